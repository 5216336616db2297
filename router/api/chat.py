"""`POST /v1/chat/completions`: a plain ASGI callable, because a framework's response costs more per
token than everything else here together.

A stream and a blocking answer are the same run of the engine; only the sink differs.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from router.api.asgi import (
    ClientGone,
    Receive,
    Scope,
    Send,
    headers_of,
    read_body,
    send_error,
    send_json,
)
from router.api.serving import Generation, Serving
from router.core.events import Event, Finish
from router.core.request import ChatRequest
from router.core.sse import encode_comment
from router.engine.clock import Clock, Timer
from router.engine.report import StreamReport
from router.engine.route import Route
from router.engine.sink import Failure, StreamHead
from router.errors import RequestError
from router.wire.openai import ChunkWriter, CompletionFold, error_object, parse_chat_request

KEEPALIVE_COMMENT_S = 10.0
"""Between two comments while the first output is waited for; proxies commonly give up at 60 s."""

STALL_GRACE_S = 5.0
"""Past the request's own deadline by this much, a client that takes no more bytes is let go."""

_log = logging.getLogger("router.api")

_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class ChatCompletions:
    """The endpoint.

    Args:
        serving: what is being served.
    """

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Args:
            scope: of the request.
            receive: its body, then its disconnection.
            send: takes the response.
        """
        generation = self._serving.generation
        headers = headers_of(scope)
        try:
            owner = authorize(generation, headers)
            if self._serving.draining:
                raise _draining()
            body = await read_body(receive, headers, generation.settings.max_body_bytes)
            request = parse_chat_request(body)
            route = _route(generation, request)
        except RequestError as error:
            await send_error(send, error)
        except ClientGone:
            pass
        else:
            async with generation.hold():
                call = _Call(self._serving, generation, headers, receive, send)
                await call.run(request, route, hashlib.sha256(body).hexdigest(), owner)


class _Call:
    """One request that is being answered."""

    def __init__(
        self,
        serving: Serving,
        generation: Generation,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        self._engine = serving.engine
        self._settings = generation.settings
        self._metadata = headers.get("x-router-metadata", "").lower() == "always"
        self._receive = receive
        self._send = send
        self._left = False

    async def run(self, request: ChatRequest, route: Route, digest: str, owner: str) -> None:
        stream_id = self._engine.new_stream_id()
        sink = self._sink(request, stream_id)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        watcher = asyncio.create_task(self._watch(task))
        stalled = self._engine.clock.call_at(
            self._engine.clock.now_s() + route.total_s + STALL_GRACE_S, lambda: self._leave(task)
        )
        try:
            await self._engine.run(
                request, route, sink, stream_id=stream_id, digest=digest, owner=owner
            )
        except asyncio.CancelledError:
            if not self._left or task.uncancel() > 0:
                raise
        except Exception:  # noqa: BLE001 - a bug of ours must still end the stream in an error
            _log.exception("stream %s failed inside the router", stream_id)
            await sink.crash()
        finally:
            stalled.cancel()
            watcher.cancel()
            await sink.aclose()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    def _sink(self, request: ChatRequest, stream_id: str) -> _StreamSink | _BlockingSink:
        created = int(self._engine.clock.unix_s())
        if not request.stream:
            return _BlockingSink(self._send, stream_id, created, metadata=self._metadata)
        return _StreamSink(
            self._send,
            stream_id,
            created,
            metadata=self._metadata,
            include_usage=request.include_usage,
            clock=self._engine.clock,
            commit_headers_after_s=self._settings.commit_headers_after_s,
        )

    async def _watch(self, task: asyncio.Task[Any]) -> None:
        """A client that leaves is noticed at once, not at the next write."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave(task)

    def _leave(self, task: asyncio.Task[Any]) -> None:
        if not self._left:
            self._left = True
            task.cancel()


class _StreamSink:
    """Events to server-sent chunks, one write for what came in one read."""

    def __init__(
        self,
        send: Send,
        stream_id: str,
        created: int,
        *,
        metadata: bool,
        include_usage: bool,
        clock: Clock,
        commit_headers_after_s: float,
    ) -> None:
        self._send = send
        self._stream_id = stream_id
        self._created = created
        self._metadata = metadata
        self._include_usage = include_usage
        self._clock = clock
        self._writer = self._make_writer("")
        self._started = False
        self._ended = False
        self._waiting: asyncio.Task[None] | None = None
        self._timer: Timer | None = clock.call_at(
            clock.now_s() + commit_headers_after_s, self._wait_aloud
        )

    async def open(self, head: StreamHead) -> None:
        await self._stop_waiting()
        self._writer = self._make_writer(head.model)
        if not self._started:
            await self._start(head.target)

    async def deliver(self, events: Sequence[Event]) -> None:
        data = self._writer.write(events)
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(
        self, finishes: Sequence[Finish], usage: Mapping[str, Any], report: StreamReport
    ) -> None:
        router = report.to_wire() if report.eventful or self._metadata else None
        await self._end(
            self._writer.finish(finishes, usage if self._include_usage else None, router)
        )

    async def fail(self, failure: Failure) -> None:
        await self._stop_waiting()
        if not self._started:
            self._ended = True
            await _send_failure(self._send, failure)
        else:
            await self._end(self._writer.error(_error_of(failure)["error"]))

    async def crash(self) -> None:
        """A bug of ours: say so, and never end in silence."""
        await self._stop_waiting()
        if self._ended:
            return
        if not self._started:
            self._ended = True
            await send_error(self._send, _internal())
        else:
            error = error_object(_internal().message, type="server_error", code="internal_error")
            await self._end(self._writer.error(error["error"]))

    async def aclose(self) -> None:
        """Let go of the timer."""
        await self._stop_waiting()

    def _make_writer(self, model: str) -> ChunkWriter:
        return ChunkWriter(
            completion_id=f"chatcmpl-{self._stream_id}",
            created=self._created,
            fallback_model=model,
        )

    async def _start(self, target: str | None) -> None:
        self._started = True
        headers = [*_STREAM_HEADERS, (b"x-router-stream-id", self._stream_id.encode())]
        if target is not None:
            headers.append((b"x-router-target", target.encode("ascii", "replace")))
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _end(self, data: bytes) -> None:
        self._ended = True
        await self._send({"type": "http.response.body", "body": data})

    # A long wait for the first output: comments keep proxies and SDKs patient. No blank line
    # follows them, since some SDKs take one for an empty event.

    def _wait_aloud(self) -> None:
        self._timer = None
        self._waiting = asyncio.get_running_loop().create_task(self._comment())

    async def _comment(self) -> None:
        if not self._started:
            await self._start(None)
        while True:
            await self._send(
                {
                    "type": "http.response.body",
                    "body": encode_comment(b"waiting"),
                    "more_body": True,
                }
            )
            await self._clock.sleep(KEEPALIVE_COMMENT_S)

    async def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


class _BlockingSink:
    """The same events folded into one completion."""

    def __init__(self, send: Send, stream_id: str, created: int, *, metadata: bool) -> None:
        self._send = send
        self._stream_id = stream_id
        self._created = created
        self._metadata = metadata
        self._fold = self._make_fold("")
        self._target = ""
        self._ended = False

    async def open(self, head: StreamHead) -> None:
        self._fold = self._make_fold(head.model)
        self._target = head.target

    async def deliver(self, events: Sequence[Event]) -> None:
        self._fold.add(events)

    async def finish(
        self, finishes: Sequence[Finish], usage: Mapping[str, Any], report: StreamReport
    ) -> None:
        router = report.to_wire() if report.eventful or self._metadata else None
        self._ended = True
        headers = (
            (b"x-router-stream-id", self._stream_id.encode()),
            (b"x-router-target", self._target.encode("ascii", "replace")),
        )
        result = self._fold.result(finishes, usage, router)
        await send_json(self._send, 200, _without(result, report), headers)

    async def fail(self, failure: Failure) -> None:
        self._ended = True
        await _send_failure(self._send, failure)

    async def crash(self) -> None:
        """A bug of ours: say so."""
        if not self._ended:
            self._ended = True
            await send_error(self._send, _internal())

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def _make_fold(self, model: str) -> CompletionFold:
        return CompletionFold(
            completion_id=f"chatcmpl-{self._stream_id}",
            created=self._created,
            fallback_model=model,
        )


def _without(result: dict[str, Any], report: StreamReport) -> dict[str, Any]:
    """A blocking client never saw what was superseded: give it the canonical text."""
    content = result["choices"][0]["message"].get("content") if report.superseded else None
    if content is not None:
        result["choices"][0]["message"]["content"] = canonical(content, report.superseded)
    return result


def canonical(delivered: str, superseded: Sequence[tuple[int, int]]) -> str:
    """The answer: what was delivered without the superseded ranges.

    Args:
        delivered: the delivered text.
        superseded: ranges in characters of it, in order.
    """
    kept = []
    at = 0
    for start, end in superseded:
        kept.append(delivered[at:start])
        at = end
    return "".join((*kept, delivered[at:]))


def _error_of(failure: Failure) -> dict[str, Any]:
    return error_object(
        failure.message,
        type=failure.type,
        param=failure.param,
        code=failure.code,
        router=failure.report.to_wire(),
    )


async def _send_failure(send: Send, failure: Failure) -> None:
    """The router's own budget is spent: an SDK that tries again would only multiply the load."""
    headers = [
        (b"x-should-retry", b"false"),
        (b"x-router-stream-id", failure.report.stream_id.encode()),
    ]
    if failure.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, round(failure.retry_after_s))).encode()))
    await send_json(send, failure.status, _error_of(failure), headers)


def authorize(generation: Generation, headers: Mapping[str, str]) -> str:
    """Let a request in.

    Args:
        generation: whose keys count.
        headers: of the request, names in lower case.

    Returns:
        Hex digest of its API key, "" where no key is asked for.

    Raises:
        RequestError: 401.
    """
    owner = generation.settings.owner_of(headers.get("authorization"))
    if owner is None:
        raise RequestError(
            "The API key is missing or not known here. Send one of server.api_keys as "
            "'Authorization: Bearer <key>'.",
            status=401,
            code="invalid_api_key",
        )
    return owner


def _route(generation: Generation, request: ChatRequest) -> Route:
    route = generation.routes.get(request.model)
    if route is None:
        known = ", ".join(list(generation.routes)[:20])
        raise RequestError(
            f"The model {request.model[:200]!r} is not a route of this router. It has: {known}.",
            status=404,
            param="model",
            code="model_not_found",
        )
    return route


def _draining() -> RequestError:
    return RequestError(
        "This router is shutting down; ask again, another replica will answer.",
        status=503,
        type="server_error",
        code="draining",
        headers=(("retry-after", "1"), ("connection", "close")),
    )


def _internal() -> RequestError:
    return RequestError(
        "The router failed while it answered this request; its log says more.",
        status=500,
        type="server_error",
        code="internal_error",
    )
