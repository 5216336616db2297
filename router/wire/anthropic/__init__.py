"""Anthropic's Messages format, both directions.

`request` reads what a client asks, `reader` what a provider answers, `writer` writes what the
client gets.
"""

from router.wire.anthropic.reader import MessagesReader
from router.wire.anthropic.request import parse_count_request, parse_messages_request
from router.wire.anthropic.writer import (
    PING,
    MessageFold,
    MessageWriter,
    error_object,
    error_type,
)

__all__ = [
    "PING",
    "MessageFold",
    "MessageWriter",
    "MessagesReader",
    "error_object",
    "error_type",
    "parse_count_request",
    "parse_messages_request",
]
