"""Anthropic's Messages format, both directions.

`request` reads what a client asks.
"""

from router.wire.anthropic.request import parse_count_request, parse_messages_request

__all__ = ["parse_count_request", "parse_messages_request"]
