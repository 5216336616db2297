"""The connections to one provider: the only place that knows the HTTP client.

httpx's types over aiohttp's transport, which costs a tenth of httpx's own pool per request.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterator

import aiohttp
import httpx
from aiohttp.connector import AddrInfoType
from httpx_aiohttp import AiohttpTransport
from yarl import URL

from router.providers.base import UpstreamRequest

Response = httpx.Response

KEEPALIVE_S = 30.0
"""How long an idle upstream connection is kept for the next request."""

READ_BUFFER_BYTES = 65_536
"""Bound on what is buffered of an upstream body that the client does not take: beyond twice this
the socket is not read, and the provider is slowed down by TCP itself."""

RECEIVE_BUFFER_BYTES = 131_072
"""What the kernel may hold of an upstream body (it takes twice this). Left to itself it grows the
buffer to many megabytes a connection while a client reads slowly."""

MAX_CODED_BODY_BYTES = 64 * 1024 * 1024
"""Bound on a compressed upstream body, which nobody asked for."""

_ZLIB_CODINGS = frozenset({"gzip", "x-gzip", "deflate"})
_GZIP_OR_ZLIB = 47  # zlib's number for "whichever of the two headers comes"

WARM_EVERY_S = 2.0
"""How often a warm connection is looked after; servers commonly drop an idle one after 5 s."""

TRANSPORT_ERRORS = (httpx.HTTPError, aiohttp.ClientError, OSError, EOFError)
"""What the transport raises; aiohttp's own slip through where httpx has no equal."""

DECODING_ERRORS = (httpx.DecodingError,)
"""What a body raises that is not coded as it says."""


def _bounded_socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return sock


def make_tls() -> ssl.SSLContext:
    """TLS settings for every provider: making them takes 20 ms, so they are made once."""
    return httpx.create_ssl_context()


class Upstream:
    """The long-lived connections to one provider.

    Args:
        transport: None makes the real one; tests may pass another.
        verify: TLS settings, from `make_tls`.
    """

    def __init__(
        self,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self._verify = verify
        self._made: aiohttp.ClientSession | None = None
        self._transport = transport or AiohttpTransport(verify=verify, client=self._session)
        self._warm_holders = 0
        self._warmer: asyncio.Task[None] | None = None

    async def send(self, request: UpstreamRequest, *, connect_s: float) -> httpx.Response:
        """Send a request.

        Args:
            request: what to send.
            connect_s: limit for the connection, in seconds.

        Returns:
            The response, its body unread.
        """
        return await self._transport.handle_async_request(
            httpx.Request(
                request.method,
                request.url,
                headers=list(request.headers),
                content=request.body,
                extensions={"timeout": {"connect": connect_s}},
            )
        )

    def keep_warm(self, url: str, *, connect_s: float) -> Callable[[], None]:
        """Hold one live connection ready for as long as anybody asks for it.

        Args:
            url: where to; the first asker's counts.
            connect_s: limit for a connection, in seconds.

        Returns:
            To be called, once, when it is not needed any more.
        """
        self._warm_holders += 1
        if self._warmer is None:
            loop = asyncio.get_running_loop()
            self._warmer = loop.create_task(self._stay_warm(url, connect_s))
        return self._cool

    def _cool(self) -> None:
        self._warm_holders -= 1

    async def _stay_warm(self, url: str, connect_s: float) -> None:
        """Take a connection from the pool and give it back: a dead one is replaced by that.

        It ends by itself some time after the last holder has gone, so that a row of short streams
        does not open and drop a connection each.
        """
        while self._warm_holders:
            with contextlib.suppress(*TRANSPORT_ERRORS):
                session = self._session()
                request = aiohttp.ClientRequest(
                    "HEAD", URL(url), loop=asyncio.get_running_loop(), session=session
                )
                limit = aiohttp.ClientTimeout(sock_connect=connect_s)
                assert session.connector is not None  # noqa: S101 - an open session has one
                (await session.connector.connect(request, [], limit)).release()
            await asyncio.sleep(WARM_EVERY_S)
        self._warmer = None

    async def aclose(self) -> None:
        """Close every connection."""
        warmer, self._warmer = self._warmer, None
        if warmer is not None:
            warmer.cancel()
            await asyncio.gather(warmer, return_exceptions=True)
        await self._transport.aclose()
        # The transport knows the session only once it has sent something; keeping warm does not.
        made, self._made = self._made, None
        if made is not None:
            await made.close()

    def _session(self) -> aiohttp.ClientSession:
        """One session for the life of this object: its pool is what makes a failover quick."""
        if self._made is None:
            self._made = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,  # streams are limited where they come in, not where they go out
                    keepalive_timeout=KEEPALIVE_S,
                    ssl=self._verify,
                    socket_factory=_bounded_socket,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=READ_BUFFER_BYTES,
                auto_decompress=False,
            )
        return self._made


def body_of(response: Response) -> AsyncIterator[bytes]:
    """A response's body as it comes off the socket, decoded if it is compressed.

    Args:
        response: its body unread.

    Returns:
        Pieces of the body.
    """
    coded = response.headers.get("content-encoding", "").strip().lower() not in ("", "identity")
    return aiter(_decoded(response) if coded else response.stream)  # type: ignore[arg-type]


async def _decoded(response: httpx.Response) -> AsyncIterator[bytes]:
    """A compressed body although `identity` was asked for: decoded in pieces, within bounds."""
    coding = response.headers["content-encoding"].strip().lower()
    if coding not in _ZLIB_CODINGS:
        raise httpx.DecodingError(f"{coding[:40]!r}, which was not asked for")
    total = 0
    decoder = zlib.decompressobj(_GZIP_OR_ZLIB)
    async for data in response.aiter_raw():
        for piece in _inflated(decoder, data):
            total += len(piece)
            if total > MAX_CODED_BODY_BYTES:
                raise httpx.DecodingError(f"more than {MAX_CODED_BODY_BYTES} bytes")
            yield piece


def _inflated(decoder: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """A thousandfold growth is legal, so no more is made at once than the reader takes at once."""
    full = True
    while (data or full) and not decoder.eof:
        try:
            piece = decoder.decompress(data, READ_BUFFER_BYTES)
        except zlib.error as error:
            raise httpx.DecodingError(str(error)) from error
        data = decoder.unconsumed_tail
        full = len(piece) == READ_BUFFER_BYTES
        if piece:
            yield piece


MAX_CAUSES = 8
"""Causes of causes that are looked at."""


def words_of(error: BaseException) -> str:
    """What broke, in words of our own: a library's name hosts, ports and its own classes.

    Args:
        error: one of `TRANSPORT_ERRORS`.
    """
    chain: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and len(chain) < MAX_CAUSES:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    for kind, words in _WORDS.items():
        if any(isinstance(one, kind) for one in chain):
            return words
    return type(error).__name__


_WORDS: dict[type[BaseException], str] = {
    ConnectionRefusedError: "the connection was refused",
    ConnectionResetError: "the connection was reset",
    BrokenPipeError: "the connection was closed while the request was sent",
    socket.gaierror: "the host name is not known",
    aiohttp.ClientConnectorDNSError: "the host name is not known",
    ssl.SSLCertVerificationError: "its TLS certificate is not trusted",
    ssl.SSLError: "TLS failed",
    aiohttp.ServerDisconnectedError: "the connection was closed before an answer",
    aiohttp.ClientPayloadError: "the body ended early",
    aiohttp.ServerTimeoutError: "no connection within the limit",
    httpx.TimeoutException: "no connection within the limit",
    aiohttp.ClientConnectorError: "no connection",
    aiohttp.ClientResponseError: "the answer is no valid HTTP",
    httpx.ReadError: "the connection broke",
    httpx.ConnectError: "no connection",
}
"""The first that fits the error or one of its causes: the more telling stand first."""
