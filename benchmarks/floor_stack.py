"""The floor `stack`: a proxy that copies, on the server and the client library of the router.

See `floor.py`, which starts it.
"""

from __future__ import annotations

import socket
from typing import Any, cast

import aiohttp
import httpx
import uvicorn
from httpx_aiohttp import AiohttpTransport


class _Stack:
    """An ASGI application that copies.

    Args:
        port: where the provider listens.
    """

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self._session: aiohttp.ClientSession | None = None
        self._transport = AiohttpTransport(client=self._make_session)

    def _make_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        return self._session

    async def __call__(self, _: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        request = httpx.Request("POST", self._url, content=body)
        response = await self._transport.handle_async_request(request)
        start = {"status": 200, "headers": [(b"content-type", b"text/event-stream")]}
        await send({"type": "http.response.start", **start})
        async for data in cast("httpx.AsyncByteStream", response.stream):
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        await response.aclose()


def serve(port: int, fd: int) -> None:
    """Run until told to stop.

    Args:
        port: where the provider listens.
        fd: a socket that listens.
    """
    config = uvicorn.Config(
        _Stack(port),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    with socket.socket(fileno=fd) as sock:
        uvicorn.Server(config).run(sockets=[sock])
