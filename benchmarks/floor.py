"""Three proxies that do almost nothing: what a proxy costs before it does its work.

    python -m benchmarks.floor copy|parse|stack --upstream PORT --fd N

`copy` hands bytes on, both ways, and knows no HTTP. `parse` does what anything must do that reads
tokens and says them anew: it takes the transfer coding apart, splits the events, decodes each
chunk's JSON, and writes a chunk of its own with the same text. `stack` copies too, but through the
server and the client library that the router stands on (uvicorn, and aiohttp under httpx's types).
None of them can fail over, count, time out, log, or tell one client from another.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
from typing import cast

import httptools
import msgspec
import uvloop

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class _Down(asyncio.Protocol):
    """The client's side.

    Args:
        port: where the provider listens.
        up: makes the provider's side.
    """

    def __init__(self, port: int, up: type[_Up]) -> None:
        self._port = port
        self._up = up
        self._early = b""
        self.transport: asyncio.Transport | None = None
        self.upstream: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        up, _ = await asyncio.get_running_loop().create_connection(
            lambda: self._up(self), "127.0.0.1", self._port
        )
        self.upstream = up
        up.write(self._early)

    def data_received(self, data: bytes) -> None:
        if self.upstream is None:
            self._early += data
        else:
            self.upstream.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self.upstream is not None:
            self.upstream.close()


class _Up(asyncio.Protocol):
    """The provider's side, which hands bytes on.

    Args:
        down: the client's side.
    """

    def __init__(self, down: _Down) -> None:
        assert down.transport is not None
        self.write = down.transport.write
        self._close = down.transport.close

    def data_received(self, data: bytes) -> None:
        self.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._close()


class _ParsingUp(_Up):
    """The provider's side, which reads tokens and writes its own chunks.

    Args:
        down: the client's side.
    """

    def __init__(self, down: _Down) -> None:
        super().__init__(down)
        self._parser = httptools.HttpResponseParser(self)
        self._rest = b""
        self._head = b'data: {"id":"floor","object":"chat.completion.chunk","created":0,'

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        self.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        self.write(b"transfer-encoding: chunked\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        *events, self._rest = (self._rest + body).split(b"\n\n")
        out: list[bytes] = []
        for event in events:
            data = event[6:]
            if data == b"[DONE]":
                out.append(b"data: [DONE]\n\n")
            else:
                self._chunk(_decode(data), out)
        written = b"".join(out)
        if written:
            self.write(b"%x\r\n%b\r\n" % (len(written), written))

    def _chunk(self, chunk: dict[str, list[dict[str, object]]], out: list[bytes]) -> None:
        for choice in chunk["choices"]:
            delta = cast("dict[str, str]", choice["delta"])
            text, finish = delta.get("content") or "", choice["finish_reason"]
            out += (self._head, b'"model":"sim","choices":[{"index":0,"delta":{"content":')
            out += (_encode(text), b'},"finish_reason":', _encode(finish), b"}]}\n\n")

    def on_message_complete(self) -> None:
        self.write(b"0\r\n\r\n")


KINDS: dict[str, type[_Up]] = {"copy": _Up, "parse": _ParsingUp}


async def _serve(kind: str, port: int, fd: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    with socket.socket(fileno=fd) as sock:
        server = await loop.create_server(lambda: _Down(port, KINDS[kind]), sock=sock, backlog=1024)
        await stop.wait()
        server.close()


def main() -> None:
    """Run one until it is told to stop."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=(*KINDS, "stack"))
    parser.add_argument("--upstream", type=int, required=True, help="the provider's port")
    parser.add_argument("--fd", type=int, required=True, help="a socket that listens")
    args = parser.parse_args()
    if args.kind == "stack":
        from benchmarks.floor_stack import serve  # noqa: PLC0415 - the others need no library

        serve(args.upstream, args.fd)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(args.kind, args.upstream, args.fd))


if __name__ == "__main__":
    main()
