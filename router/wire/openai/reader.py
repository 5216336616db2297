"""Reads a chat-completions response body: bytes of an upstream to canonical events.

The body is taken apart by `router/wire/streams.py`, its objects are translated by `chunks.py`; here
stands what the two need of each other.
"""

from __future__ import annotations

from typing import Final

from router.core.events import Done, Event, Failed
from router.core.sse import MAX_EVENT_BYTES
from router.errors import MalformedStream
from router.wire.jsontext import Json
from router.wire.openai.chunks import ChunkNormaliser
from router.wire.reports import Judge
from router.wire.streams import MAX_BODY_BYTES, BodyReader


class _Chunks(ChunkNormaliser):
    """Chat completions' `router.wire.streams.Normaliser`."""

    __slots__ = ()

    token_event: Final = b""

    def named(self, name: bytes, value: Json) -> Json:  # noqa: ARG002 - see below
        """Names of events mean nothing here.

        Args:
            name: of the event.
            value: its JSON.
        """
        return value

    def bare(self, value: Json, out: list[Event]) -> None:
        """An error, a whole completion, or a chunk on a line of its own.

        Args:
            value: as decoded.
            out: events are appended here.

        Raises:
            MalformedStream: it is none of these.
        """
        self.take(value, out)
        if out and type(out[-1]) is Failed:
            return
        if "choices" not in value:
            raise MalformedStream("The provider's answer is JSON, but no completion.")
        if any(choice.get("message") for choice in value["choices"] or ()):
            out.append(Done())


class ChatStreamReader(BodyReader):
    """Reads one 2xx response body; a `router.providers.base.StreamReader`.

    Args:
        on_error: judges an error that the stream reports.
        max_event_bytes: bound on one event of a stream.
        max_body_bytes: bound on a body that is one JSON value.
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        on_error: Judge,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        super().__init__(
            _Chunks(on_error), max_event_bytes=max_event_bytes, max_body_bytes=max_body_bytes
        )
