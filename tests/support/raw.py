"""A client's bare socket, for requests that no client library would send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import h11

WAIT_S = 10.0
"""Bound of every wait: a mistake fails, and does not hang."""


@dataclass
class RawReply:
    """One response, and how its connection went on. `how` is `end` (whole), `fin` or `rst`."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    how: str = ""

    @property
    def error(self) -> dict[str, Any]:
        """The OpenAI error, which must be all that the body holds."""
        body = json.loads(self.body)
        assert set(body) == {"error"}
        assert {"message", "type", "param", "code"} <= set(body["error"])
        found: dict[str, Any] = body["error"]
        return found


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._parser = h11.Connection(h11.CLIENT)

    async def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def post(self, body: object, *, path: str = "/v1/chat/completions", **head: str) -> None:
        """A whole request; underscores in header names stand for hyphens."""
        await self.send(post(body, path=path, **head))

    async def reply(self) -> RawReply:
        """The next response, whole or as far as it comes."""
        reply = RawReply()
        self._parser.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
        self._parser.send(h11.EndOfMessage())
        async with asyncio.timeout(WAIT_S):
            try:
                await self._read(reply)
            except ConnectionResetError:
                reply.how = "rst"
            except h11.RemoteProtocolError:
                reply.how = "fin"
        if self._parser.our_state is h11.DONE and self._parser.their_state is h11.DONE:
            self._parser.start_next_cycle()
        return reply

    async def closed(self) -> str:
        """Wait for the connection's end: `fin` or `rst`; anything that comes first is an error."""
        async with asyncio.timeout(WAIT_S):
            try:
                rest = self._parser.trailing_data[0] + await self.reader.read()
            except ConnectionResetError:
                return "rst"
        assert rest == b"", rest
        return "fin"

    async def _read(self, reply: RawReply) -> None:
        while not reply.how:
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                self._parser.receive_data(await self.reader.read(65_536))
            elif isinstance(event, h11.Response):
                reply.status = event.status_code
                reply.headers = {k.decode(): v.decode() for k, v in event.headers}
            elif isinstance(event, h11.Data):
                reply.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                reply.how = "end"
            elif isinstance(event, h11.ConnectionClosed):
                reply.how = "fin"


CHAT = {"model": "chat", "messages": [{"role": "user", "content": "Go."}], "stream": True}
"""A request like any other."""


def post(body: object, *, path: str = "/v1/chat/completions", **head: str) -> bytes:
    """The bytes of a request; a body that is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"host": "router", "content-type": "application/json"}
    if "transfer_encoding" not in head:
        lines["content-length"] = str(len(data))
    lines |= {name.replace("_", "-"): value for name, value in head.items()}
    fields = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{fields}\r\n".encode() + data


@asynccontextmanager
async def connected(
    base_url: str, *, receive_buffer: int | None = None
) -> AsyncIterator[RawClient]:
    """A connection to a router, dropped when the block is left.

    Args:
        base_url: of the router.
        receive_buffer: bytes that the kernel holds for this client, or None for its default.
    """
    url = urlsplit(base_url)
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (url.hostname, url.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=4_096)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
