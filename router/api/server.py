"""uvicorn, set up for streams, with the one bound it lacks: on the size of request headers."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.api.asgi import Receive, Scope, Send

KEEP_ALIVE_S = 75
"""How long an idle client connection is kept: longer than common load balancers keep theirs (60 s),
so that it is they who close first and no request meets a closing door."""

Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An application."""

Hook: TypeAlias = Callable[[], Awaitable[None]]
"""What is done at a start or an end."""

_TOO_LARGE = (
    b'{"error":{"message":"The request headers are too large.","type":"invalid_request_error",'
    b'"param":null,"code":"headers_too_large"}}'
)
_RESPONSE_431 = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_TOO_LARGE), _TOO_LARGE)
)


def bounded_protocol(max_header_bytes: int) -> type[HttpToolsProtocol]:
    """A protocol that refuses a request whose headers outgrow a bound.

    Args:
        max_header_bytes: bound on request line and headers.

    Returns:
        A class for uvicorn's `http` setting.
    """

    class Bounded(HttpToolsProtocol):
        """Counts bytes while no body is being received."""

        _head_bytes = 0
        _in_body = False

        def data_received(self, data: bytes) -> None:
            if not self._in_body:
                self._head_bytes += len(data)
            super().data_received(data)
            if not self._in_body and self._head_bytes > max_header_bytes:
                self.transport.write(_RESPONSE_431)
                self.transport.close()

        def on_headers_complete(self) -> None:
            self._in_body = True
            self._head_bytes = 0
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._in_body = False
            super().on_message_complete()

    return Bounded


class Server(uvicorn.Server):
    """A server for one process.

    Args:
        app: the ASGI application.
        host: for the address that is shown.
        port: the same.
        max_header_bytes: bound on request headers.
        drain_s: how long live streams may run on after a shutdown was asked for, in seconds.
    """

    def __init__(
        self, app: Asgi, *, host: str, port: int, max_header_bytes: int, drain_s: float
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                loop="uvloop",
                http=bounded_protocol(max_header_bytes),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, round(drain_s)),
            )
        )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, bound here so that several workers can share it.

    Args:
        host: address.
        port: 0 takes a free one.

    Returns:
        The socket.

    Raises:
        OSError: the address is taken or not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only on a socket that says it is TCP;
    # without it every small write after the first waits 40 ms for a delayed acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    sock.set_inheritable(True)
    return sock


class Lifespan:
    """Wraps an application with what must begin and end with the server.

    Args:
        app: answers requests.
        start: awaited before the first one.
        stop: awaited after the last one.
    """

    def __init__(self, app: Asgi, start: Hook, stop: Hook) -> None:
        self._app = app
        self._start = start
        self._stop = stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or follow the server's life.

        Args:
            scope: of the request.
            receive: its messages.
            send: takes the response.
        """
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        await receive()
        await self._start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stop()
        await send({"type": "lifespan.shutdown.complete"})
