"""Reads the body of a Messages answer: bytes of an upstream to canonical events."""

from __future__ import annotations

from router.core.sse import MAX_EVENT_BYTES
from router.wire.anthropic.messages import MessageNormaliser
from router.wire.reports import Judge
from router.wire.streams import MAX_BODY_BYTES, BodyReader


class MessagesReader(BodyReader):
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
            MessageNormaliser(on_error),
            max_event_bytes=max_event_bytes,
            max_body_bytes=max_body_bytes,
        )
