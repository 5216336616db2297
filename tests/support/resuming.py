"""A client that comes back: it counts what it has, and asks any replica for the rest.

It keeps everything that came (`text`) and, beside it, the ranges that a later response replaced
(`holes`); what it shows is the one without the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from router.engine.observe import Detail, StreamEnded
from router.engine.report import StreamReport
from router.simulate import SimulatedProvider
from support.continuity import without
from support.redis_servers import RedisServer
from support.routers import Router, routed, running_router

WAIT_S = 30.0
"""Bound of every wait for bytes."""

MESSAGES = [{"role": "user", "content": "Tell me something long."}]


class Comer:
    """One stream's client, over as many connections as it takes.

    Args:
        headers: further headers of every request.
        by_id: it reads events with ids, and comes back with `Last-Event-ID`.
        fields: of the request.
    """

    def __init__(
        self,
        *,
        headers: Mapping[str, str] | None = None,
        by_id: bool = False,
        **fields: Any,  # noqa: ANN401 - of a request
    ) -> None:
        self.body = json.dumps(
            {"model": "chat", "messages": MESSAGES, "stream": True, **fields}
        ).encode()
        self._own = dict(headers or {})
        self._by_id = by_id
        self.text = ""
        """Everything that came, over all connections."""
        self.holes: list[tuple[int, int]] = []
        self.last_id = ""
        self.stream_id = ""
        self.part = ""
        self.finish = ""
        self.metadata: dict[str, Any] = {}
        self.errors: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        """Status and headers of each response."""
        self.ids: set[str] = set()
        """Of the chunks."""
        self.created: set[int] = set()
        self._changed = asyncio.Condition()

    @property
    def shown(self) -> str:
        """What a client shows that cuts its text where a response starts."""
        return without(self.text, self.holes)

    @property
    def canonical(self) -> str:
        """The answer, once it has its finish."""
        return without(self.text, self.metadata.get("superseded", []))

    @property
    def repeated(self) -> int:
        """Characters that came in vain."""
        return len(self.text) - len(self.canonical)

    @property
    def coming_back(self) -> dict[str, str]:
        """The headers of its next request."""
        if not self.stream_id:
            return {}
        if self._by_id:
            return {"last-event-id": self.last_id} if self.last_id else {}
        return {
            "x-router-resume": self.stream_id,
            "x-router-part": self.part,
            "x-router-received": str(len(self.text)),
        }

    def lose(self, chars: int) -> None:
        """What came after so many characters never reached the program.

        Args:
            chars: characters that did.
        """
        self.text = self.text[:chars]

    async def listen(
        self, base_url: str, *, chars: int | None = None, headers: Mapping[str, str] | None = None
    ) -> str:
        """One connection.

        Args:
            base_url: of a router, `/v1` included.
            chars: hang up once so many characters have come over all connections.
            headers: instead of those of `coming_back`.

        Returns:
            "finished", "left", "broken" (the connection ended without a word), or an error's code.
        """
        wire = await _ask(base_url, self.body, self._headers(headers))
        async with contextlib.aclosing(wire) as lines:
            return await self._read(lines, chars)

    def _headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        ids = {"x-router-events": "ids"} if self._by_id else {}
        back = self.coming_back if headers is None else headers
        return {**self._own, **ids, **back}

    async def until(self, condition: Callable[[Comer], bool]) -> None:
        """Wait until what has come so far meets a condition; it is asked after every line."""
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def _read(self, lines: _Wire, chars: int | None) -> str:
        head = await lines.head()
        if head is None:
            return "broken"
        self.heads.append(head)
        if head["status"] != "200":
            error = json.loads(await lines.rest())["error"]
            self.errors.append(error)
            return str(error["code"])
        self._begin(head)
        while chars is None or len(self.text) < chars:
            async with self._changed:
                self._changed.notify_all()
            line = await lines.line()
            if line is None:
                return "broken"
            how = self._take(line)
            if how:
                return how
        return "left"

    def _begin(self, head: Mapping[str, str]) -> None:
        start = int(head.get("x-router-resume-from", 0))
        assert start <= len(self.text)
        if start < len(self.text):
            kept = [(begin, min(end, start)) for begin, end in self.holes if begin < start]
            self.holes = [*kept, (start, len(self.text))]
        assert self.stream_id in ("", head["x-router-stream-id"])
        self.stream_id, self.part = head["x-router-stream-id"], head["x-router-part"]

    def _take(self, line: str) -> str:
        """What a line ends the connection with, if it does."""
        if line.startswith("id: "):
            assert self._by_id
            self.last_id = line.removeprefix("id: ")
        if line == "data: [DONE]":
            assert self.finish
            return "finished"
        if line.startswith(":"):
            assert not self.last_id, "a comment after an id"
        if not line.startswith("data: "):
            return ""
        chunk = json.loads(line.removeprefix("data: "))
        if "error" in chunk:
            self.errors.append(chunk["error"])
            return str(chunk["error"]["code"])
        self._take_chunk(chunk)
        return ""

    def _take_chunk(self, chunk: dict[str, Any]) -> None:
        self.ids.add(chunk["id"])
        self.created.add(chunk["created"])
        self.metadata = chunk.get("router", self.metadata)
        for choice in chunk["choices"]:
            self.text += choice["delta"].get("content") or ""
            self.finish = choice["finish_reason"] or self.finish


class _Wire:
    """The lines of a response, read as they come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._chunked = False
        self._length = 0
        self._body = b""

    async def head(self) -> dict[str, str] | None:
        """Status and headers, or None if the connection ended."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            async with asyncio.timeout(WAIT_S):
                raw = await self._reader.readuntil(b"\r\n\r\n")
            first, *lines = raw.decode("latin-1").strip().split("\r\n")
            found = {
                name.lower(): value for name, _, value in (one.partition(": ") for one in lines)
            }
            self._chunked = found.get("transfer-encoding") == "chunked"
            self._length = int(found.get("content-length", 0))
            return {"status": first.split()[1], **found}
        return None

    async def line(self) -> str | None:
        """The next line of the body, or None if it ended, in order or not."""
        while b"\n" not in self._body:
            piece = await self._piece()
            if not piece:
                return None
            self._body += piece
        line, _, self._body = self._body.partition(b"\n")
        return line.decode()

    async def rest(self) -> bytes:
        """All that is left of the body."""
        while piece := await self._piece():
            self._body += piece
        return self._body

    async def _piece(self) -> bytes:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            async with asyncio.timeout(WAIT_S):
                if not self._chunked:
                    piece = await self._reader.read(self._length)
                    self._length -= len(piece)
                    return piece
                size = int(await self._reader.readuntil(b"\r\n"), 16)
                return (await self._reader.readexactly(size + 2))[:-2]
        return b""

    async def aclose(self) -> None:
        """Let go of the connection at once."""
        self._writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


async def _ask(base_url: str, body: bytes, headers: Mapping[str, str]) -> _Wire:
    url = urlsplit(base_url)
    lines = {
        "Host": url.netloc,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(f"POST {url.path}/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + body)
    return _Wire(reader, writer)


class Holds:
    """A provider's gate: some of its requests stand still before a token, until they are let go."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._free: dict[int, asyncio.Event] = {}

    def hold(self, request: int, *, before: int) -> None:
        """Let a request stand still.

        Args:
            request: its number.
            before: index of the token that it does not send.
        """
        self._before[request] = before
        self._free[request] = asyncio.Event()

    def release(self, request: int) -> None:
        """Let it go on to its end."""
        self._free[request].set()

    async def __call__(self, request: int, token: int) -> None:
        """Called by the provider before each token."""
        if token >= self._before.get(request, token + 1):
            await self._free[request].wait()


class Replica:
    """One of several routers that share a record."""

    def __init__(self) -> None:
        self.router: Router
        self.reports: list[StreamReport] = []
        self._ended = asyncio.Condition()
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Of its API."""
        return self.router.base_url

    def __call__(self, detail: Detail) -> None:
        """It observes its router."""
        if isinstance(detail, StreamEnded):
            self.reports.append(detail.report)
            task = asyncio.get_running_loop().create_task(self._tell())
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self) -> None:
        async with self._ended:
            self._ended.notify_all()

    async def ended(self, count: int) -> StreamReport:
        """Wait until so many streams have ended here, and all is in the record.

        Returns:
            The report of the last of them.
        """
        async with asyncio.timeout(WAIT_S), self._ended:
            await self._ended.wait_for(lambda: len(self.reports) >= count)
        await self.written()
        return self.reports[count - 1]

    async def written(self) -> None:
        """Wait until all that the router has to say is in the record."""
        await self.router.serving.engine.store.flushed()


@asynccontextmanager
async def replicas(
    redis: RedisServer,
    *providers: SimulatedProvider,
    count: int = 2,
    record: Mapping[str, Any] | None = None,
    **how: Any,  # noqa: ANN401 - arguments of `routed`
) -> AsyncIterator[list[Replica]]:
    """Routers that share nothing but a Redis.

    Args:
        redis: it.
        providers: in priority order.
        count: of the routers.
        record: further keys of that section.
        how: see `routed`.
    """
    shared = {"url": redis.url, **(record or {})}
    config = routed(*providers, record=shared, health={"eject_after": 1000}, **how)
    async with AsyncExitStack() as stack:
        found = [Replica() for _ in range(count)]
        for one in found:
            running = running_router(config, observers=(one,))
            one.router = await stack.enter_async_context(running)
        yield found


PASSING = {"broken", "away", "stream_interrupted", "draining", "resume_unavailable"}
"""Ends of a connection after which a client tries elsewhere."""

TRIES = 60
"""Connections that it makes at most."""


def always(url: str) -> Callable[[int], str]:
    """A place to try for `to_the_end`, the same each time."""
    return lambda _: url


async def to_the_end(
    comer: Comer,
    place: Callable[[int], str],
    *,
    first: str = "away",
    pause_s: float = 0.02,
    chars: int | None = None,
) -> str:
    """Come back until there is a finish, or an error that coming back does not mend.

    Args:
        comer: the client.
        place: where it tries, by the number of the try.
        first: how its first connection ended, if it had one.
        pause_s: longest wait between two tries.
        chars: see `Comer.listen`.

    Returns:
        "finished", "left", or the error's code.
    """
    how = first
    for turn in range(TRIES):
        if how not in PASSING:
            return how
        try:
            how = await comer.listen(place(turn), chars=chars)
        except OSError:
            how = "away"
        if how in PASSING:
            await asyncio.sleep(pause_s * turn)
    return how


@asynccontextmanager
async def simulated(*options: str) -> AsyncIterator[str]:
    """`router simulate` as a process of its own.

    Args:
        options: of the command.

    Yields:
        Its base URL.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "router", "simulate", "--port", "0", *options,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            line = (await process.stdout.readline()).decode()
        yield line.split()[4]
    finally:
        process.kill()
        await process.wait()
