"""A client that counts: one request on a socket of its own, read byte by byte, with the times.

It knows nothing of retries and follows nothing. What the bytes mean, `reading.py` says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from support.reading import Answer, read_stream

READ_BYTES = 65_536


class Call:
    """One request under way.

    Args:
        reader: of its connection.
        writer: of its connection.
        now_s: where its times come from.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        now_s: Callable[[], float],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._now_s = now_s
        self._started_s = now_s()
        self._raw = bytearray()
        self.reads: list[tuple[float, int]] = []
        """Seconds since the request and bytes received by then, one per read."""
        self.reset = False
        """The connection broke instead of being closed."""
        self.ended_s: float | None = None
        """Seconds from the request to the connection's end."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the request."""
        return self._now_s() - self._started_s

    @property
    def bytes_received(self) -> int:
        """So far, headers included."""
        return len(self._raw)

    def has(self, text: str) -> bool:
        """Whether these characters have come in."""
        return text.encode() in self._raw

    async def read(self) -> bytes:
        """The next bytes; none at the end of the connection."""
        try:
            data = await self._reader.read(READ_BYTES)
        except ConnectionError:
            self.reset, data = True, b""
        if data:
            self._raw += data
            self.reads.append((self.elapsed_s, len(self._raw)))
        else:
            self.ended_s = self.elapsed_s
        return data

    async def answer(self) -> Answer:
        """Read to the end of the connection, and take apart what came."""
        while await self.read():
            pass
        return self.so_far()

    def so_far(self) -> Answer:
        """What came up to now."""
        head, _, body = bytes(self._raw).partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        fields = (line.partition(": ") for line in lines)
        headers = httpx.Headers([(name, value) for name, _, value in fields])
        status = int(status_line.split()[1]) if status_line else 0
        if headers.get("transfer-encoding") == "chunked":
            body, self.whole = _dechunked(body)
        else:
            self.whole = len(body) == int(headers.get("content-length", -1))
        if headers.get("content-type", "").startswith("text/event-stream"):
            return read_stream(status, headers, body)
        return Answer(status, headers, body)

    whole = False
    """The body came to its end in order, as its framing says; known after `so_far`."""

    async def leave(self) -> None:
        """Close the connection, whatever is still to come."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


def _dechunked(data: bytes) -> tuple[bytes, bool]:
    out: list[bytes] = []
    while True:
        size, mark, data = data.partition(b"\r\n")
        if not mark:
            return b"".join(out), False
        length = int(size, 16)
        if length == 0:
            return b"".join(out), True
        out.append(data[:length])
        if len(data) < length + 2:
            return b"".join(out), False
        data = data[length + 2 :]


@asynccontextmanager
async def calling(
    base_url: str,
    *,
    now_s: Callable[[], float] = time.monotonic,
    headers: Mapping[str, str] | None = None,
    model: str = "chat",
    content: str = "Tell me something long.",
    stream: bool = True,
    **fields: Any,  # noqa: ANN401 - of a request
) -> AsyncIterator[Call]:
    """Send one request; the connection is closed when the block is left.

    Args:
        base_url: of the router, `/v1` included.
        now_s: where times come from.
        headers: further request headers.
        model: a route.
        content: of the one user message.
        stream: whether a stream is asked for.
        fields: further fields of the request.
    """
    url = urlsplit(base_url)
    body = {"model": model, "messages": [{"role": "user", "content": content}], "stream": stream}
    data = json.dumps(body | fields).encode()
    lines = {
        "Host": url.netloc,
        "Content-Type": "application/json",
        "Content-Length": str(len(data)),
        "Connection": "close",
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    call = Call(reader, writer, now_s)
    try:
        writer.write(f"POST {url.path}/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + data)
        await writer.drain()
        yield call
    finally:
        await call.leave()


async def called(base_url: str, **how: Any) -> tuple[Answer, Call]:  # noqa: ANN401 - as above
    """Send one request and read its answer to the end; arguments as those of `calling`."""
    async with calling(base_url, **how) as call:
        return await call.answer(), call


def error_of(answer: Answer) -> dict[str, Any]:
    """The error, in band or as a response of its own."""
    if answer.status == 200:
        assert answer.error is not None, answer.raw[-300:]
        return answer.error
    found: dict[str, Any] = json.loads(answer.raw)["error"]
    return found
