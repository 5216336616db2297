"""Where an answer goes: a stream, or one object folded from the same events.

In what words is the face's business (`face.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from router.api.asgi import Send, send_error, send_json
from router.api.face import Face, Fold, Origin, Writer
from router.core.events import Event, Finish, Opened, Text
from router.core.sse import encode_event
from router.engine.clock import Clock, Timer
from router.engine.report import StreamReport
from router.engine.sink import Failure, StreamHead
from router.errors import RequestError
from router.wire.jsontext import dumps as encode_json

KEEPALIVE_COMMENT_S = 10.0
"""Between two signs of life while the first output is waited for; proxies mostly wait 60 s."""


_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class StreamSink:
    """Events to server-sent events, one write for what came in one read.

    Args:
        send: takes the response.
        face: the client's format.
        origin: which stream it is, and from where.
        metadata: the client asked for the `router` object whatever happens.
        include_usage: the client is told the usage.
        named_events: the client reads events with a name.
        event_ids: the client wants ids, to come back with `Last-Event-ID`.
        close_json: the client wants a broken-off document closed so that it parses.
        dropped: by target, what of the request it was not told; for a header.
        clock: where time comes from.
        commit_headers_after_s: wait for the first output after which the status line goes out.
    """

    def __init__(
        self,
        send: Send,
        face: Face,
        origin: Origin,
        *,
        metadata: bool,
        include_usage: bool,
        named_events: bool = False,
        event_ids: bool = False,
        close_json: bool = False,
        dropped: Mapping[str, str] | None = None,
        clock: Clock,
        commit_headers_after_s: float,
    ) -> None:
        self._named_events = named_events
        self._event_ids = event_ids
        self._delivered_chars = origin.received
        self._close_json = close_json
        self._send = send
        self._face = face
        self._dropped = dropped or {}
        self._origin = origin
        self._event_id = f"id: {origin.stream_id}:{origin.part}:".encode()
        self._metadata = metadata
        self._include_usage = include_usage
        self._clock = clock
        self._model = ""
        self._writer = self._make_writer("")
        self._started = False
        self.ended = False
        """The client has all that it will get."""
        self._waiting: asyncio.Task[None] | None = None
        self._timer: Timer | None = clock.call_at(
            clock.now_s() + commit_headers_after_s, self._wait_aloud
        )

    async def open(self, head: StreamHead) -> None:
        """The first output is at hand."""
        await self._stop_waiting()
        self._model = head.model
        self._writer = self._make_writer(head.model)
        if not self._started:
            await self._start(head.target)

    async def deliver(self, events: Sequence[Event]) -> None:
        """Send output on."""
        data = self._with_ids(events) if self._event_ids else self._writer.write(events)
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(
        self, finishes: Sequence[Finish], usage: Mapping[str, Any], report: StreamReport
    ) -> None:
        """The answer is whole."""
        router = report.to_wire() if report.eventful or self._metadata else None
        await self._end(
            self._writer.finish(finishes, usage if self._include_usage else None, router)
        )

    async def fail(self, failure: Failure) -> None:
        """The stream ends without a finish: as a response of its own, or in band."""
        await self._stop_waiting()
        if self._started:
            await self._end(self._closing(failure) + self._last_event(failure))
        else:
            self.ended = True
            await _send_failure(self._send, self._face, self._origin, failure)

    async def give_up(
        self, error: RequestError, *, code: str, report: StreamReport | None = None
    ) -> None:
        """The router itself cannot go on: say so, and never end in silence.

        Args:
            error: for a response of its own.
            code: for an error in band.
            report: how it went, as far as that is known.
        """
        await self._stop_waiting()
        if self.ended:
            return
        if self._started:
            router = report.to_wire() if report is not None else None
            body = self._face.error(
                error.message,
                status=error.status,
                type="server_error",
                param=None,
                code=code,
                router=router,
            )
            await self._end(self._writer.error(body))
        else:
            self.ended = True
            await send_error(self._send, error, self._face)

    async def reassure(self) -> None:
        """A sign of life; but none after an id, which some SDKs stumble over."""
        if not self._event_ids:
            await self._say_waiting()

    async def reset(self, reason: str) -> None:
        """The client is told to forget what it has; its next chunk is a first one again."""
        self._writer = self._make_writer(self._model)
        self._delivered_chars = 0
        event = encode_event(encode_json({"reason": reason}), b"reset_stream")
        event += self._writer.write([Opened(self._model)])  # it stays the stream's one model
        await self._send({"type": "http.response.body", "body": event, "more_body": True})

    def _with_ids(self, events: Sequence[Event]) -> bytes:
        """Each event under the offset that the client has reached with it. No comment follows an
        id: comments are sent only before the first output. Where a format says one of our events in
        several of its own, the last one has the id: a client that has it has them all."""
        out = bytearray()
        for event in events:
            if isinstance(event, Text) and not event.choice:
                self._delivered_chars += len(event.text)
            data = self._writer.write([event])
            if data:
                last = data.rfind(b"\n\n", 0, -2)
                start = last + 2 if last >= 0 else 0
                out += data[:start] + self._event_id
                out += b"%d\n" % self._delivered_chars + data[start:]
        return bytes(out)

    def _closing(self, failure: Failure) -> bytes:
        wanted = failure.closers and (failure.partial or self._close_json)
        return self._writer.write([Text(failure.closers)]) if wanted else b""

    def _last_event(self, failure: Failure) -> bytes:
        if failure.partial and self._named_events:
            body = {"reason": failure.message, "router": failure.report.to_wire()}
            return encode_event(encode_json(body), b"partial_complete")
        return self._writer.error(_error_of(self._face, failure))

    async def aclose(self) -> None:
        """Let go of the timer."""
        await self._stop_waiting()

    def _make_writer(self, model: str) -> Writer:
        return self._face.writer(self._origin, model)

    async def _start(self, target: str | None) -> None:
        own = self._face.headers(self._origin)
        headers = [*_STREAM_HEADERS, *self._origin.headers, *own]
        if target:
            headers += _target_headers(target, self._dropped)
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self._started = True

    async def _end(self, data: bytes) -> None:
        self.ended = True
        await self._send({"type": "http.response.body", "body": data})

    # A long wait for the first output: signs of life keep proxies and SDKs patient.

    def _wait_aloud(self) -> None:
        self._timer = None
        self._waiting = asyncio.get_running_loop().create_task(self._comment())

    async def _comment(self) -> None:
        await self._start(None)
        while True:
            await self._say_waiting()
            await self._clock.sleep(KEEPALIVE_COMMENT_S)

    async def _say_waiting(self) -> None:
        sign = self._face.sign_of_life
        await self._send({"type": "http.response.body", "body": sign, "more_body": True})

    async def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


class BlockingSink:
    """The same events folded into one object.

    Args:
        send: takes the response.
        face: the client's format.
        origin: which stream it is.
        metadata: the client asked for the `router` object whatever happens.
        dropped: by target, what of the request it was not told; for a header.
    """

    def __init__(
        self,
        send: Send,
        face: Face,
        origin: Origin,
        *,
        metadata: bool,
        dropped: Mapping[str, str] | None = None,
    ) -> None:
        self._send = send
        self._face = face
        self._dropped = dropped or {}
        self._origin = origin
        self._metadata = metadata
        self._model = ""
        self._fold = self._make_fold("")
        self._target = ""
        self.ended = False
        """The client has all that it will get."""

    async def open(self, head: StreamHead) -> None:
        """The first output is at hand."""
        self._model = head.model
        self._fold = self._make_fold(head.model)
        self._target = head.target

    async def deliver(self, events: Sequence[Event]) -> None:
        """Keep output."""
        self._fold.add(events)

    async def reassure(self) -> None:
        """Nothing can be said before the answer."""

    async def reset(self, reason: str) -> None:  # noqa: ARG002 - nobody has seen anything
        """Forget what was kept."""
        self._fold = self._make_fold(self._model)
        self._fold.add([Opened(self._model)])

    async def finish(
        self, finishes: Sequence[Finish], usage: Mapping[str, Any], report: StreamReport
    ) -> None:
        """The answer is whole: send it."""
        router = report.to_wire() if report.eventful or self._metadata else None
        target = _target_headers(self._target, self._dropped)
        headers = (*self._origin.headers, *self._face.headers(self._origin), *target)
        result = self._fold.result(finishes, usage, router)
        if report.superseded:
            # The client never saw it; with it gone, no range of what is delivered is superseded.
            self._face.clean(result, report.superseded)
            if router is not None:
                result["router"]["superseded"] = []
        self.ended = True  # not before: what cannot be folded is still to be told
        await send_json(self._send, 200, result, headers)

    async def fail(self, failure: Failure) -> None:
        """There is no answer; a part of one is none, and stands in the error if it was wanted."""
        self.ended = True
        part = self._part(failure) if failure.partial else None
        await _send_failure(self._send, self._face, self._origin, failure, part)

    def _part(self, failure: Failure) -> dict[str, Any]:
        if failure.closers:
            self._fold.add([Text(failure.closers)])
        return self._fold.message()

    async def give_up(
        self,
        error: RequestError,
        *,
        code: str,  # noqa: ARG002 - there is no band here
        report: StreamReport | None = None,  # noqa: ARG002 - as above
    ) -> None:
        """The router itself cannot go on: say so.

        Args:
            error: the response.
            code: for an error in band.
            report: the same.
        """
        if not self.ended:
            self.ended = True
            await send_error(self._send, error, self._face)

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def _make_fold(self, model: str) -> Fold:
        return self._face.fold(self._origin, model)


AnswerSink: TypeAlias = StreamSink | BlockingSink
"""Either of them."""


def _target_headers(target: str, dropped: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Who speaks first, and what it was not told."""
    headers = [(b"x-router-target", target.encode("ascii", "replace"))]
    if target in dropped:
        headers.append((b"x-router-dropped", dropped[target].encode("ascii", "replace")))
    return headers


def _error_of(
    face: Face, failure: Failure, part: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return face.error(
        failure.message,
        status=failure.status,
        type=failure.type,
        param=failure.param,
        code=failure.code,
        router=failure.report.to_wire(),
        partial=part,
    )


async def _send_failure(
    send: Send,
    face: Face,
    origin: Origin,
    failure: Failure,
    part: Mapping[str, Any] | None = None,
) -> None:
    """The router's own budget is spent: an SDK that tries again would only multiply the load."""
    headers = [
        (b"x-should-retry", b"false"),
        (b"x-router-stream-id", failure.report.stream_id.encode()),
        *face.headers(origin),
    ]
    if failure.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(failure.retry_after_s))).encode()))
    await send_json(send, failure.status, _error_of(face, failure, part), headers)
