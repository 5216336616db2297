"""uvicorn, set up for streams: one process's server, its listening socket, its way to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TypeAlias

import uvicorn

from router.api.asgi import Receive, Scope, Send
from router.api.protocol import bounded_protocol
from router.engine.clock import Clock, LoopClock

KEEP_ALIVE_S = 75
"""How long an idle client connection is kept: longer than common load balancers keep theirs (60 s),
so that it is they who close first and no request meets a closing door."""

UNSENT_BYTES = 65_536
"""Bound on what the kernel holds of an answer that cannot be sent yet, per connection: a client
that reads slowly is to slow its provider down, and not to fill four megabytes of kernel memory."""

LATE_S = 5
"""After the time to drain, how long the last errors may take to reach their clients, in seconds."""

LOOK_S = 0.01
"""How often a stopping server looks whether its last connections are closed, in seconds."""

_log = logging.getLogger("router")

Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An application."""

Hook: TypeAlias = Callable[[], Awaitable[None]]
"""What is done at a start or an end."""


def _nothing() -> None:
    """No hook."""


class Server(uvicorn.Server):
    """A server for one process.

    Args:
        app: the ASGI application.
        host: for the address that is shown.
        port: the same.
        max_header_bytes: bound on request headers.
        drain_s: how long live streams may run on after a shutdown was asked for, in seconds.
        clock: where the connections' time comes from; the loop's by default.
        stopping: called in the event loop once no new requests can come.
        late: called in the event loop when `drain_s` is over, or the signal came a second time.
        parent: process that this one may not outlive, or None.
    """

    def __init__(
        self,
        app: Asgi,
        *,
        host: str,
        port: int,
        max_header_bytes: int,
        drain_s: float,
        clock: Clock | None = None,
        stopping: Callable[[], None] = _nothing,
        late: Callable[[], None] = _nothing,
        parent: int | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                loop="uvloop",
                http=bounded_protocol(max_header_bytes, clock or LoopClock()),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
            )
        )
        self._address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._drain_s = drain_s
        self._stopping = stopping
        self._late = late
        self._parent = parent
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hurry = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        _log.info("listening on %s", self._address)

    async def on_tick(self, counter: int) -> bool:
        """Asked ten times a second whether to stop; a worker without its parent does."""
        if self._parent is not None and counter % 10 == 0 and os.getppid() != self._parent:
            _log.error("the parent process is gone, and its worker goes too")
            self.ask_to_stop()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's
        """SIGINT or SIGTERM. uvicorn would raise it again at the end, and die of it.

        Args:
            sig: the signal.
            frame: where it struck.
        """
        if self.should_exit and sig == signal.SIGINT and self._loop is not None:
            # A person who asks twice does not want to wait.
            self._loop.call_soon_threadsafe(self._hurry.set)
        self.ask_to_stop()

    def ask_to_stop(self) -> None:
        """Drain, then end; from a signal handler, too."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._close_door)

    def _close_door(self) -> None:
        """Take no new connections, and no requests on those that are idle.

        At once, and not at the next `on_tick`: who knocks at a closed door asks the next replica,
        and who was let in to be told that nobody serves may not.
        """
        for server in getattr(self, "servers", ()):  # a signal may come before there are any
            server.close()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        self._stopping()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nobody new, let streams run on for a while, then end them."""
        self._close_door()
        for sock in sockets or ():
            sock.close()
        state = self.server_state
        _log.info("stopping; %d requests may run on for %g s", len(state.tasks), self._drain_s)
        limits = asyncio.create_task(self._limit_shutdown())
        try:
            while state.tasks:
                await asyncio.wait(state.tasks)
            while state.connections:  # noqa: ASYNC110 - uvicorn's set tells nobody
                await asyncio.sleep(LOOK_S)
        finally:
            limits.cancel()
            await asyncio.gather(limits, return_exceptions=True)
        await self.lifespan.shutdown()

    async def _limit_shutdown(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                await self._hurry.wait()
        self._late()
        await asyncio.sleep(LATE_S)
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()  # who takes nothing, not even an error
        for task in self.server_state.tasks:
            task.cancel()


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
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # its connections inherit it
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
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
