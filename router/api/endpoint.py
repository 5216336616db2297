"""The endpoint that answers, whatever format the client speaks: a plain ASGI callable, because a
framework's response costs more per token than everything else here together.

A stream and a blocking answer are the same run of the engine; only the sink differs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from router.api.asgi import (
    ClientGone,
    Receive,
    Scope,
    Send,
    headers_of,
    read_body,
    send_error,
)
from router.api.auth import authorize
from router.api.documents import document_for
from router.api.face import Face, Origin
from router.api.fit import Fit, fit, tell
from router.api.options import Choices, choices_of
from router.api.permits import Permit
from router.api.protocol import ABORT
from router.api.resume import Asker, take_over
from router.api.serving import Generation, Serving
from router.api.sinks import AnswerSink, BlockingSink, StreamSink
from router.core.json_schema import Schemas
from router.core.request import ChatRequest
from router.core.structured import Structured
from router.engine.clock import Expired, Timer, Watch
from router.engine.report import StreamReport
from router.engine.resume import Resumed
from router.engine.route import Route
from router.engine.run import ROUTER_STOPPED
from router.errors import MalformedStream, RequestError

STALL_GRACE_S = 5.0
"""Past the request's own deadline by this much, a client that takes no more bytes is let go."""

FENCED_GRACE_S = 1.0
"""How long a stream that another router has taken over is given to tell its client so."""

FLUSH_S = 0.5
"""How long a stream that is broken off when the router stops waits for its record to be written."""

PARSE_ASIDE_BYTES = 262_144
"""A larger body is parsed in a thread: one of ten megabytes, made for the purpose, takes a second,
and no other stream's token waits for that."""

SCHEMA_ASIDE_BYTES = 32_768
"""The same for schemas, which are compiled: 0.5 ms for 1 KB."""

_INTERRUPTED = "stream_interrupted"

_log = logging.getLogger("router.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request that can be answered.

    Args:
        request: what was asked.
        fitted: where it may be answered.
        structured: the JSON document it asks for, or None for text.
        choices: what the client chose.
        resumed: the stream that it comes back for, or None for a new one.
        permit: to be given back when it is over.
        digest: hex digest of its body.
        owner: digest of the API key that asked, or "".
    """

    request: ChatRequest
    fitted: Fit
    structured: Structured | None
    choices: Choices
    resumed: Resumed | None
    permit: Permit
    digest: str
    owner: str


class Answers:
    """The endpoint of one format.

    Args:
        serving: what is being served.
        face: the format.
    """

    def __init__(self, serving: Serving, face: Face) -> None:
        self.serving = serving
        self.face = face
        """The format."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Args:
            scope: of the request.
            receive: its body, then its disconnection.
            send: takes the response.
        """
        headers = headers_of(scope)
        generation = self.serving.generation
        async with generation.hold():  # from the first look on: a reload may come while we read
            try:
                asked = await self._read(generation, headers, receive)
            except RequestError as error:
                self.serving.metrics.refused(error.status)
                await send_error(send, error, self.face)
            except ClientGone:
                pass
            except Exception:  # noqa: BLE001 - a bug of ours, and the client is told all the same
                _log.exception("a request failed inside the router before it was understood")
                self.serving.metrics.refused(500)
                await send_error(send, internal_error(), self.face)
            else:
                call = _Call(self, scope, receive, send, asked.resumed)
                tell(asked.fitted, call.stream_id)
                await call.run(asked, call.sink(asked, generation))

    async def _read(
        self, generation: Generation, headers: Mapping[str, str], receive: Receive
    ) -> _Asked:
        owner = authorize(generation, headers)
        if self.serving.draining:
            raise draining_error()
        limit = generation.settings.max_body_bytes
        body = await read_body(receive, headers, limit, self.serving.engine.clock)
        parse = functools.partial(self.face.parse, body, headers)
        aside = len(body) > PARSE_ASIDE_BYTES
        request = await asyncio.to_thread(parse) if aside else parse()
        route = route_of(generation, request.model)
        schemas = self.serving.schemas
        understand = functools.partial(_understand, headers, request, route, schemas)
        aside = len(body) > SCHEMA_ASIDE_BYTES
        structured, choices, fitted = await asyncio.to_thread(understand) if aside else understand()
        digest = hashlib.sha256(self.face.salt + body).hexdigest()
        permit = Permit(self.serving.limiter, owner, self.serving.engine.new_stream_id())
        await permit.obtain()
        try:
            resumed = await take_over(
                headers,
                self.serving.engine.store,
                Asker(
                    digest=digest,
                    owner=owner,
                    kind="text" if structured is None else "json",
                    stream=request.stream,
                    several=request.n > 1,
                    continuable=fitted.route.continuable,
                ),
                sleep=self.serving.engine.clock.sleep,
            )
        except BaseException:
            await permit.give_back()
            raise
        return _Asked(
            request=request,
            fitted=fitted,
            structured=structured,
            choices=choices,
            resumed=resumed,
            permit=permit,
            digest=digest,
            owner=owner,
        )


class _Call:
    """One request that is being answered."""

    def __init__(
        self,
        endpoint: Answers,
        scope: Scope,
        receive: Receive,
        send: Send,
        resumed: Resumed | None,
    ) -> None:
        self._serving = endpoint.serving
        self._face = endpoint.face
        self._engine = endpoint.serving.engine
        self._abort = scope.get(ABORT)
        self._receive = receive
        self._send = send
        self._origin = self._origin_of(resumed)
        self._report: StreamReport | None = None
        self._late: Timer | None = None
        self._left = False
        self._stopped = False

    @property
    def stream_id(self) -> str:
        """Which stream it is."""
        return self._origin.stream_id

    def _origin_of(self, resumed: Resumed | None) -> Origin:
        part = self._engine.new_part()
        if resumed is None:
            created = int(self._engine.clock.unix_s())
            return Origin(stream_id=self._engine.new_stream_id(), created=created, part=part)
        return Origin(
            stream_id=resumed.record.head.stream_id,
            created=int(resumed.record.head.created),
            part=part,
            resume_from=resumed.plan.start,
            received=resumed.plan.received,
        )

    def sink(self, asked: _Asked, generation: Generation) -> AnswerSink:
        """What the answer goes into."""
        choices = asked.choices
        if not asked.request.stream:
            return BlockingSink(
                self._send,
                self._face,
                self._origin,
                metadata=choices.metadata,
                dropped=asked.fitted.dropped,
            )
        return StreamSink(
            self._send,
            self._face,
            self._origin,
            metadata=choices.metadata,
            include_usage=asked.request.include_usage or self._face.always_usage,
            named_events=choices.named_events,
            event_ids=choices.event_ids,
            close_json=choices.close_json,
            dropped=asked.fitted.dropped,
            clock=self._engine.clock,
            commit_headers_after_s=generation.settings.commit_headers_after_s,
        )

    async def run(self, asked: _Asked, sink: AnswerSink) -> None:
        """Answer, whatever happens: the client leaves, the router stops, or has a bug."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        clock = self._engine.clock
        watcher = asyncio.create_task(self._watch(task, sink))
        stalled = clock.call_at(
            clock.now_s() + asked.fitted.route.total_s + STALL_GRACE_S,
            lambda: self._drop(task, sink),
        )
        try:
            with self._serving.running(lambda: self._stop(task, sink)):
                await self._answer(asked, sink, task)
        finally:
            stalled.cancel()
            if self._late is not None:
                self._late.cancel()
            watcher.cancel()
            await sink.aclose()
            await asked.permit.give_back()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    async def _answer(self, asked: _Asked, sink: AnswerSink, task: asyncio.Task[Any]) -> None:
        try:
            await self._engine.run(
                asked.request,
                asked.fitted.route,
                sink,
                stream_id=self._origin.stream_id,
                part=self._origin.part,
                digest=asked.digest,
                owner=asked.owner,
                options=asked.choices.options,
                structured=asked.structured,
                resumed=asked.resumed,
                on_end=lambda report: self._note(report, asked),
                on_fenced=lambda: self._fenced(task, sink),
            )
        except asyncio.CancelledError:
            if not (self._left or self._stopped) or task.uncancel() > 0:
                raise
            if not self._left:
                await self._tell_stopped(sink)
        except MalformedStream as error:
            # What the provider said cannot be put into the client's format.
            refusal = RequestError(str(error), status=502, type="server_error", code=_INTERRUPTED)
            await sink.give_up(refusal, code=_INTERRUPTED, report=self._report)
        except Exception:  # noqa: BLE001 - a bug of ours must still end the stream in an error
            _log.exception("stream %s failed inside the router", self._origin.stream_id)
            await sink.give_up(internal_error(), code="internal_error", report=self._report)

    def _note(self, report: StreamReport, asked: _Asked) -> None:
        self._report = report
        asked.permit.spent(report)

    async def _tell_stopped(self, sink: AnswerSink) -> None:
        """The stream is broken off because this process ends: say how to go on elsewhere, once the
        record is whole, or whoever comes back at once would be given again what it has."""
        watch = Watch(self._engine.clock)
        watch.due_s = self._engine.clock.now_s() + FLUSH_S
        try:
            with contextlib.suppress(Expired), watch:
                await self._engine.store.flushed()
        finally:
            watch.stop()
        lasting = self._engine.store.lasting
        error = draining_error(self._report, self._origin.part, lasting=lasting)
        await sink.give_up(error, code=_INTERRUPTED, report=self._report)

    def _fenced(self, task: asyncio.Task[Any], sink: AnswerSink) -> None:
        """The client is elsewhere by now. This end of it may be dead, and take not even the error
        that says so: then it goes without."""
        clock = self._engine.clock
        self._late = clock.call_at(clock.now_s() + FENCED_GRACE_S, lambda: self._drop(task, sink))

    async def _watch(self, task: asyncio.Task[Any], sink: AnswerSink) -> None:
        """A client that leaves is noticed at once, not at the next write."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave(task, sink)

    def _drop(self, task: asyncio.Task[Any], sink: AnswerSink) -> None:
        """A client that takes nothing is let go, with what waits in its connection."""
        self._leave(task, sink)
        if self._abort is not None:
            self._abort()

    def _leave(self, task: asyncio.Task[Any], sink: AnswerSink) -> None:
        # The end of a whole answer looks like the client's leaving; there is nothing left to cancel
        # then, and what still runs hands the upstream connection back.
        if not (self._left or sink.ended):
            self._left = True
            if not self._stopped:
                task.cancel()

    def _stop(self, task: asyncio.Task[Any], sink: AnswerSink) -> None:
        if not (self._left or self._stopped or sink.ended):
            self._stopped = True
            task.cancel(ROUTER_STOPPED)


def _understand(
    headers: Mapping[str, str], request: ChatRequest, route: Route, schemas: Schemas
) -> tuple[Structured | None, Choices, Fit]:
    return (
        document_for(request, schemas, always=route.json),
        choices_of(headers, request, route, schemas),
        fit(request, route),
    )


def route_of(generation: Generation, name: str) -> Route:
    """The route of a public model name.

    Args:
        generation: whose routes there are.
        name: the model that was asked for.

    Raises:
        RequestError: 404.
    """
    route = generation.routes.get(name)
    if route is None:
        raise unknown_model(generation, name)
    return route


def unknown_model(generation: Generation, name: str) -> RequestError:
    """There is no such route.

    Args:
        generation: whose routes there are.
        name: the model that was asked for.
    """
    known = ", ".join(list(generation.routes)[:20])
    return RequestError(
        f"The model {name[:200]!r} is not a route of this router. It has: {known}.",
        status=404,
        param="model",
        code="model_not_found",
    )


def draining_error(
    report: StreamReport | None = None, part: str = "", *, lasting: bool = True
) -> RequestError:
    """The router stops: another one will answer.

    Args:
        report: of the stream that is broken off by it, or None for a request that was not begun.
        part: name of the response that is broken off.
        lasting: its record outlives this process.
    """
    how = "Ask again: another replica will answer."
    stream_id: tuple[tuple[str, str], ...] = ()
    if report is not None and report.resumable and lasting:
        how = (
            "Nothing is lost: send the same request again, to any replica, with the headers "
            f"x-router-resume: {report.stream_id}, x-router-part: {part} and x-router-received: "
            "the number of characters of text that have come; the answer then goes on."
        )
        stream_id = (("x-router-stream-id", report.stream_id),)
    elif report is not None and report.delivered_chars:
        kept = "" if lasting else ", since its record is in this router's memory alone"
        how = f"This stream cannot be resumed{kept}; what was delivered is incomplete."
    return RequestError(
        f"This router is shutting down, and what it was asked is not answered to its end. {how}",
        status=503,
        type="server_error",
        code="draining",
        headers=(("retry-after", "1"), ("connection", "close"), *stream_id),
    )


def internal_error() -> RequestError:
    """A bug of ours."""
    return RequestError(
        "The router failed while it answered this request; its log says more.",
        status=500,
        type="server_error",
        code="internal_error",
    )
