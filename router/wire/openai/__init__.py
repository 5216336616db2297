"""OpenAI's chat-completions format, both directions.

`request` reads what a client asks, `reader` what a provider answers, `writer` writes what the
client gets.
"""

from router.wire.jsontext import dumps as encode_json
from router.wire.openai.reader import ChatStreamReader
from router.wire.openai.request import parse_chat_request
from router.wire.openai.writer import ChunkWriter, CompletionFold, error_object

__all__ = [
    "ChatStreamReader",
    "ChunkWriter",
    "CompletionFold",
    "encode_json",
    "error_object",
    "parse_chat_request",
]
