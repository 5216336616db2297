"""The simulated provider itself: a listening socket, its connections, what tests ask of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Self

import msgspec

from router.simulate.answer import Conduct, Script
from router.simulate.anthropic import AnthropicWire
from router.simulate.casting import DEFAULT_MODEL, Casting, FaultPlan, Faults, Manner
from router.simulate.dialect import Dialect, Wire
from router.simulate.gemini import GeminiWire
from router.simulate.intake import BadRequest, HttpRequest, Intake
from router.simulate.openai import OpenAIWire
from router.simulate.perform import perform
from router.simulate.records import MAX_RECORDS, Ended, Journal, RequestRecord
from router.simulate.scene import Gate, Pace, RawAnswer, Scene
from router.simulate.transport import Framing, Outlet, reset

WAIT_S: Final = 10.0
"""Bound of every wait of a test: a mistake fails, and does not hang."""

WIRES: Final[Mapping[str, Wire]] = {
    "/chat/completions": OpenAIWire(),
    "/messages": AnthropicWire(),
    "/messages/count_tokens": AnthropicWire(counts=True),
    ":generateContent": GeminiWire(),
    ":streamGenerateContent": GeminiWire(),
    ":countTokens": GeminiWire(),
}
"""End of the path to wire format; what stands before it (`/v1`, a deployment, a model's name) and
the query behind it do not matter."""


class SimulatedProvider:
    """An LLM provider on a real socket that answers deterministically and misbehaves on demand.

    Use it as an async context manager. Each request may order its own conduct, in the mini language
    of `faults.py`, by the header `x-simulate` or after a `!` in the model name; that comes before
    the server's own.

    Args:
        script: what there is to say.
        conduct: what is done with a prefix.
        pace: how fast.
        dialect: quirks of the stream.
        faults: what goes wrong.
        raw: scripted responses, one for all requests or one (or None) per request in turn.
        model: name that answers report; None reports the one asked for.
        api_key: required, as bearer token or as the format has it, unless None.
        host: address to listen on.
        port: 0 takes a free one.
        framing: how bodies end: `chunked`, or `close` as old servers do it.
        write_bytes: largest write of body bytes, or None.
        send_buffer_bytes: of the kernel per connection, or None for its default.
        gate: awaited before each token with the request's number and the token's index.
        clock: seconds, for records, pace and windows of time.
        sleep: waits so many seconds.
        keep_requests: how many records are kept.
    """

    def __init__(
        self,
        *,
        script: Script | None = None,
        conduct: Conduct | None = None,
        pace: Pace | None = None,
        dialect: Dialect | None = None,
        faults: Faults | None = None,
        raw: RawAnswer | Sequence[RawAnswer | None] | None = None,
        model: str | None = None,
        api_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        framing: Framing = "chunked",
        write_bytes: int | None = None,
        send_buffer_bytes: int | None = None,
        gate: Gate | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        keep_requests: int = MAX_RECORDS,
    ) -> None:
        self.manner = Manner(
            script=script or Script(),
            conduct=conduct or Conduct(),
            pace=pace or Pace(),
            dialect=dialect or Dialect(),
            raw=raw,
            model=model,
            api_key=api_key,
            framing=framing,
            write_bytes=write_bytes,
            gate=gate,
        )
        self.host = host
        self.port = port
        self.connections_accepted = 0
        self._send_buffer = send_buffer_bytes
        self._sleep = sleep
        self._journal = Journal(kept=keep_requests)
        self._plan = FaultPlan(faults)
        self._casting = Casting(
            self.manner, self._plan, self._journal, clock=clock, sleep=sleep, go_down=self.go_down
        )
        self._holder: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self._busy: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Bind the port and listen, unless the fault for every request is `refuse`.

        Raises:
            OSError: the port cannot be had.
        """
        self._holder = _bound(self.host, self.port)
        self.port = self._holder.getsockname()[1]
        refusal = self._plan.refusal
        if refusal is None:
            await self.come_back()
        else:
            self.go_down(refusal.for_s or refusal.until_s)

    async def close(self) -> None:
        """Stop listening, end every request and connection; nothing stays open."""
        self._stop_listening()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def go_down(self, for_s: float | None = None) -> None:
        """Refuse connections, and close those that are idle; requests under way go on.

        Args:
            for_s: come back after so many seconds; None waits for `come_back`.
        """
        self._stop_listening()
        for writer in self._open - self._busy:
            reset(writer)
        if for_s is not None:
            self._start(self._return_after(for_s))

    async def come_back(self) -> None:
        """Listen (again), on the same port."""
        if self._server is not None or self._holder is None:
            return
        listener = self._holder
        if sys.platform == "linux":  # elsewhere one port cannot be bound twice
            listener = _bound(self.host, self.port)
        else:
            self._holder = listener.dup()
        self._server = await asyncio.start_server(self._connected, sock=listener)
        self._journal.changed()

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _return_after(self, seconds: float) -> None:
        await self._sleep(seconds)
        await self.come_back()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"{self.origin}/v1"

    @property
    def origin(self) -> str:
        """What an Anthropic or a Gemini client takes as its base URL."""
        return f"http://{self.host}:{self.port}"

    @property
    def requests(self) -> list[RequestRecord]:
        """All requests for an answer that are remembered, as they stand now."""
        return [record.snapshot() for record in self._journal.records]

    @property
    def open_connections(self) -> int:
        """Connections that are open now."""
        return len(self._open)

    def set_faults(self, faults: Faults | None) -> None:
        """Misbehave otherwise from the next request on; a list begins with it."""
        self._plan.set(faults, first=self._journal.count)

    async def until(
        self, condition: Callable[[], bool], *, what: str = "it", wait_s: float = WAIT_S
    ) -> None:
        """Wait for a condition on the records or connections; it is asked at each change.

        Raises:
            TimeoutError: it did not hold within `wait_s` seconds; the message tells the state.
        """
        try:
            async with asyncio.timeout(wait_s):
                await self._journal.until(condition)
        except TimeoutError:
            state = [f"{r.number}: {r.tokens_sent} tokens, {r.ended}" for r in self.requests]
            raise TimeoutError(f"Waited {wait_s} s for {what}; requests: {state}") from None

    async def wait_requests(self, count: int = 1, *, wait_s: float = WAIT_S) -> RequestRecord:
        """Wait until so many requests were seen; give the last of them."""
        what = f"{count} requests"
        await self.until(lambda: self._journal.count >= count, what=what, wait_s=wait_s)
        return self._record(count - 1)

    async def wait_tokens(
        self, count: int, *, request: int = 0, wait_s: float = WAIT_S
    ) -> RequestRecord:
        """Wait until so many tokens of a request are with the socket."""

        def reached() -> bool:
            record = self._journal.get(request)
            return record is not None and record.tokens_sent >= count

        await self.until(reached, what=f"{count} tokens of request {request}", wait_s=wait_s)
        return self._record(request)

    async def wait_ended(self, request: int = 0, *, wait_s: float = WAIT_S) -> RequestRecord:
        """Wait until a request has ended, whoever ended it."""

        def ended() -> bool:
            record = self._journal.get(request)
            return record is not None and record.ended is not None

        await self.until(ended, what=f"the end of request {request}", wait_s=wait_s)
        return self._record(request)

    async def wait_connections(self, count: int, *, wait_s: float = WAIT_S) -> None:
        """Wait until exactly so many connections are open."""
        what = f"{count} connections, now {len(self._open)}"
        await self.until(lambda: len(self._open) == count, what=what, wait_s=wait_s)

    async def wait_listening(self, *, wait_s: float = WAIT_S) -> None:
        """Wait until connections are accepted (again)."""
        await self.until(lambda: self._server is not None, what="the listener", wait_s=wait_s)

    def _record(self, number: int) -> RequestRecord:
        record = self._journal.get(number)
        if record is None:
            raise LookupError(f"Request {number} is no longer remembered.")
        return record.snapshot()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        self.connections_accepted += 1
        self._journal.changed()
        self._start(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # drain: the kernel has it all
        if self._send_buffer is not None:
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        intake = Intake(reader, writer)
        try:
            with contextlib.suppress(ConnectionError):
                while await self._next(intake, writer):
                    pass
        except asyncio.CancelledError:
            writer.transport.abort()  # a close would wait for a client that does not read
            raise
        finally:
            writer.close()
            self._open.discard(writer)
            self._journal.changed()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _next(self, intake: Intake, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection is good for another."""
        try:
            request = await intake.request()
        except BadRequest as error:
            await self._plain(writer, {"error": {"message": str(error)}}, status=error.status)
            return False
        if request is None:
            return False
        self._busy.add(writer)
        try:
            return await self._answer(request, intake, writer) and self._server is not None
        finally:
            self._busy.discard(writer)

    async def _answer(
        self, request: HttpRequest, intake: Intake, writer: asyncio.StreamWriter
    ) -> bool:
        wire = next((w for end, w in WIRES.items() if request.path.endswith(end)), None)
        if wire is None or request.method != "POST":
            await self._side(request, writer)
            return request.keep_alive
        scene = self._casting.scene(request, wire, writer)
        reusable = await self._watch(scene, intake, writer)
        return reusable and request.keep_alive

    async def _watch(self, scene: Scene, intake: Intake, writer: asyncio.StreamWriter) -> bool:
        """Perform until the end, or until the client is gone, whichever comes first."""
        show = asyncio.ensure_future(self._show(scene))
        gone = asyncio.ensure_future(intake.client_gone())
        try:
            await asyncio.wait({show, gone}, return_when=asyncio.FIRST_COMPLETED)
            if show.done():
                return show.result()
            scene.record.end(scene.record.closing or Ended.CLIENT_CLOSED)
            writer.transport.abort()
            return False
        finally:
            scene.record.end(Ended.SERVER_CLOSED)
            show.cancel()
            gone.cancel()
            await asyncio.gather(show, gone, return_exceptions=True)

    async def _show(self, scene: Scene) -> bool:
        try:
            scene.record.end(await perform(scene))
        except ConnectionError:
            scene.record.end(scene.record.closing or Ended.CLIENT_CLOSED)
            return False
        return scene.outlet.reusable

    async def _side(self, request: HttpRequest, writer: asyncio.StreamWriter) -> None:
        name = self.manner.model or DEFAULT_MODEL
        model = {"id": name, "object": "model", "created": 0, "owned_by": "router"}
        pages: dict[tuple[str, str], dict[str, Any]] = {
            ("GET", "/v1/models"): {"object": "list", "data": [model]},
            ("GET", "/health"): {"status": "ok"},
        }
        page = pages.get((request.method, request.path))
        missing = {"error": {"message": f"No such page: {request.method} {request.path}"}}
        await self._plain(writer, page or missing, status=404 if page is None else 200)

    async def _plain(
        self, writer: asyncio.StreamWriter, value: Mapping[str, Any], *, status: int
    ) -> None:
        body = msgspec.json.encode(value)
        outlet = Outlet(writer)
        await outlet.head(status, (("Content-Type", "application/json"),), length=len(body))
        await outlet.body(body, last=True)


def _bound(host: str, port: int) -> socket.socket:
    """A bound socket. It keeps the port ours while nobody listens on it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound
