"""A local relay in front of one real provider, which dies on demand.

In front plain HTTP on a loopback port, behind it the provider's real origin over the same client
and the same TLS settings as the router's own. Requests and bodies pass as they are; what is cut is
cut by closing the connection, as a dying provider does. It adds no credential and keeps no text.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, Self

import h11

from router.drill.scissors import Scissors
from router.engine.upstream import TRANSPORT_ERRORS, Response, Upstream
from router.providers.base import StreamReader, UpstreamRequest
from router.simulate.transport import reset

HOST: Final = "127.0.0.1"
MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
"""Bound on a request body: a drill's own question with an answer's beginning is far below it."""
MAX_SEEN: Final = 1_000
"""Bound on what is remembered per round; a route makes at most 100 attempts."""
_READ_BYTES: Final = 65_536

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of one connection (RFC 9110, section 7.6.1)."""
_OURS: Final = _HOP_BY_HOP | {"host", "content-length"}
"""Headers that the client towards the provider sets for itself."""


class End(StrEnum):
    """How an exchange ended."""

    OPEN = "open"
    WHOLE = "whole"
    """The provider's answer passed to its end."""
    CUT = "cut"
    """It was cut where it was ordered."""
    DEAD = "dead"
    """The relay was dead already: the connection was reset, the provider was not asked."""
    UPSTREAM = "upstream"
    """The provider itself failed."""
    GONE = "gone"
    """The router closed first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """An accident.

    Args:
        after_texts: pieces of text that pass before it; 0 is before the first token, when the head
            of the answer has passed and nothing else.
        how: `rst` resets the connection, `fin` closes it.
        returns: the provider is there again for the next request; else it stays dead.
    """

    after_texts: int
    how: Literal["rst", "fin"] = "rst"
    returns: bool = False


@dataclass(slots=True, kw_only=True)
class Seen:
    """One exchange, as the relay saw it: a witness that knows nothing of the router's books.

    Args:
        status: the provider's HTTP status, 0 if there was none.
        texts: pieces of text that passed.
        chars: characters of text that passed.
        body_bytes: bytes of the body that passed.
        end: how it ended.
        reason: what the provider's connection said, where that failed.
    """

    status: int = 0
    texts: int = 0
    chars: int = 0
    body_bytes: int = 0
    end: End = End.OPEN
    reason: str = ""


class Relay:
    """The relay. Use it as an async context manager.

    Args:
        origin: scheme, host and port of the provider.
        upstream: connections to it.
        make_reader: a fresh reader of the provider's bodies, to count tokens.
        connect_s: limit for the connection to the provider, in seconds.
    """

    def __init__(
        self,
        origin: str,
        *,
        upstream: Upstream,
        make_reader: Callable[[], StreamReader],
        connect_s: float,
    ) -> None:
        self._origin = origin
        self._upstream = upstream
        self._make_reader = make_reader
        self._connect_s = connect_s
        self._cut: Cut | None = None
        self._dead = False
        self._seen: list[Seen] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._exchanges = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.url = ""
        """Its own origin, once started."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{HOST}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def arm(self, cut: Cut | None) -> None:
        """Order the next accident, bring the provider back to life, and forget what was seen.

        Args:
            cut: it, or None for none.
        """
        self._cut = cut
        self._dead = False
        self._seen = []

    async def settled(self) -> tuple[Seen, ...]:
        """Wait until every exchange is over; a connection without a request is none.

        Returns:
            What was seen since `arm`, in the order of arrival.
        """
        await self._quiet.wait()
        return tuple(self._seen)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one exchange; whatever happens, it ends closed."""
        writer.transport.set_write_buffer_limits(high=0)  # drain: the kernel has it all
        front = _Front(reader, writer)
        try:
            with contextlib.suppress(ConnectionError, h11.ProtocolError):
                request = await front.request()
                if request is not None:
                    with self._counted():
                        await self._exchange(front, *request)
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._exchanges += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._exchanges -= 1
            if not self._exchanges:
                self._quiet.set()

    async def _exchange(self, front: _Front, head: h11.Request, body: bytes) -> None:
        seen = Seen()
        if len(self._seen) < MAX_SEEN:
            self._seen.append(seen)
        if self._dead:
            seen.end = End.DEAD
            front.rst()
            return
        passing = asyncio.ensure_future(self._pass(front, seen, self._request(head, body)))
        gone = asyncio.ensure_future(front.gone())
        try:
            await asyncio.wait({passing, gone}, return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            passing.cancel()
            gone.cancel()
            await asyncio.gather(passing, gone, return_exceptions=True)
            if seen.end is End.OPEN:
                seen.end = End.GONE

    def _request(self, head: h11.Request, body: bytes) -> UpstreamRequest:
        pairs = ((n.decode(), v.decode("latin-1")) for n, v in head.headers.raw_items())
        return UpstreamRequest(
            method=head.method.decode(),
            url=self._origin + head.target.decode("latin-1"),
            headers=tuple((name, value) for name, value in pairs if name.lower() not in _OURS),
            body=body,
        )

    async def _pass(self, front: _Front, seen: Seen, request: UpstreamRequest) -> None:
        try:
            response = await self._upstream.send(request, connect_s=self._connect_s)
        except TRANSPORT_ERRORS as error:
            return _broken(front, seen, error)
        try:
            seen.status = response.status_code
            await front.head(response.status_code, response.headers.raw)
            cut = self._cut if response.status_code // 100 == 2 else None
            scissors = Scissors(self._make_reader(), cut.after_texts if cut else None)
            try:
                await self._body(front, seen, scissors, response)
            except TRANSPORT_ERRORS as error:
                return _broken(front, seen, error)
            if scissors.struck and cut is not None:
                self._strike(front, seen, cut)
            else:
                seen.end = End.WHOLE
                await front.end()
        finally:
            with contextlib.suppress(*TRANSPORT_ERRORS):
                await response.aclose()
        return None

    async def _body(
        self, front: _Front, seen: Seen, scissors: Scissors, response: Response
    ) -> None:
        stream: AsyncIterator[bytes] = aiter(response.stream)  # type: ignore[arg-type]
        async for data in stream:
            if not data:
                continue
            passed = scissors.feed(data)
            seen.texts, seen.chars = scissors.texts, scissors.chars
            seen.body_bytes += passed
            if passed:
                await front.body(data[:passed])
            if scissors.struck:
                return
        scissors.close()
        seen.texts, seen.chars = scissors.texts, scissors.chars

    def _strike(self, front: _Front, seen: Seen, cut: Cut) -> None:
        seen.end = End.CUT
        if cut.returns:
            self._cut = None
        else:
            self._dead = True
        if cut.how == "rst":
            front.rst()
        else:
            front.fin()


def _broken(front: _Front, seen: Seen, error: BaseException) -> None:
    """The provider failed: the router sees a broken connection, the drill's owner the reason."""
    seen.end = End.UPSTREAM
    seen.reason = (str(error) or type(error).__name__)[:200]
    front.rst()


class _Front:
    """The side of one connection that the router is on.

    Args:
        reader: of the connection.
        writer: of it.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_READ_BYTES)

    async def request(self) -> tuple[h11.Request, bytes] | None:
        """Read the one request of this connection; None if there was none, or it is too large."""
        head = await self._next()
        if not isinstance(head, h11.Request):
            return None
        pieces: list[bytes] = []
        size = 0
        while isinstance(event := await self._next(), h11.Data):
            size += len(event.data)
            if size > MAX_REQUEST_BYTES:
                return None
            pieces.append(bytes(event.data))
        return head, b"".join(pieces)

    async def _next(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_READ_BYTES))
        return event

    async def gone(self) -> None:
        """Return when the router has closed; it sends nothing more on this connection."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(_READ_BYTES):
                pass

    async def head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the status and the headers as they came, but for those of the connection."""
        kept = [(n, v) for n, v in headers if n.lower().decode("latin-1") not in _HOP_BY_HOP]
        kept.append((b"Connection", b"close"))
        await self._send(h11.Response(status_code=status, headers=kept))

    async def body(self, data: bytes) -> None:
        """Send bytes of the body, and wait until the kernel has them."""
        await self._send(h11.Data(data=data))

    async def end(self) -> None:
        """End the body in order."""
        await self._send(h11.EndOfMessage())

    def fin(self) -> None:
        """Close without the body's end."""
        self._writer.close()

    def rst(self) -> None:
        """Reset the connection."""
        reset(self._writer)

    async def _send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()
        # A drain that need not wait does not yield: the router in this process reads meanwhile.
        await asyncio.sleep(0)
