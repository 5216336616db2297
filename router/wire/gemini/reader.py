"""Reads a Gemini response body: bytes of an upstream to canonical events.

The body is taken apart by `router/wire/streams.py`, its objects are translated by `chunks.py`; here
stands what the two need of each other, and the end, which the format does not mark.
"""

from __future__ import annotations

from router.core.events import Done, Event, Failed
from router.core.sse import MAX_EVENT_BYTES
from router.wire.gemini.chunks import AnswerNormaliser
from router.wire.reports import Judge
from router.wire.streams import MAX_BODY_BYTES, BodyReader


class GenerateContentReader(BodyReader):
    """Reads one 2xx response body; a `router.providers.base.StreamReader`.

    It is a stream of `streamGenerateContent?alt=sse`, the JSON list that the same method sends
    without `alt=sse`, or the one object of `generateContent`. There is no terminator: the end of
    the body behind a finish is one, and gives `Done`.

    An answer that stops without a word is a fault (`truncated`), unless it goes on with another:
    Gemini is known to send one now and then, and asking again helps.
    https://github.com/livekit/agents/issues/4066

    Args:
        on_error: judges an error that the stream reports.
        continuing: the answer goes on with another, and may have nothing left to say.
        max_event_bytes: bound on one event of a stream.
        max_body_bytes: bound on a body that is one JSON value.
    """

    __slots__ = ("_answer", "_over")

    def __init__(
        self,
        *,
        on_error: Judge,
        continuing: bool = False,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._answer = AnswerNormaliser(on_error, continuing=continuing)
        self._over = False
        super().__init__(
            self._answer, max_event_bytes=max_event_bytes, max_body_bytes=max_body_bytes
        )

    def close(self) -> list[Event]:
        """See `StreamReader.close`."""
        over = self._over
        out = super().close()
        if not over and not (out and type(out[-1]) in (Done, Failed)):
            self._answer.end(out)
        return out

    def _done(self, out: list[Event]) -> None:
        """Not of this format, but of relays: whatever waits for the end has waited enough."""
        self._answer.end(out)
        if not (out and type(out[-1]) in (Done, Failed)):
            out.append(Done())  # alone it is no success
        self._end()

    def _end(self) -> None:
        self._over = True
        super()._end()
