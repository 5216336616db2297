"""The bytes on the socket: heads, chunked bodies, splits, FIN and RST, exactly as ordered."""

from __future__ import annotations

import asyncio
import socket
import struct
import zlib
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, Literal

Framing = Literal["chunked", "close", "length"]
"""How the end of a body is known: by a last chunk, by the end of the connection, by its length."""

_RST_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, zero seconds
_GZIP_WINDOW = 31  # zlib's number for "with a gzip header"
_BODY_END = b"0\r\n\r\n"


class BodyLimit(Exception):
    """The ordered number of body bytes has been sent."""


class Outlet:
    """Writes one response.

    Args:
        writer: of the connection.
        framing: how the end of a streamed body is known.
    """

    def __init__(self, writer: asyncio.StreamWriter, *, framing: Framing = "chunked") -> None:
        self._writer = writer
        self._framing = framing
        self._write_bytes: int | None = None
        self._room: int | None = None
        self._gzip: zlib._Compress | None = None
        self.bytes_sent = 0
        self.reusable = framing != "close"

    def order(self, *, write_bytes: int | None, limit_bytes: int | None, gzip: bool) -> None:
        """Say how the body is to be written.

        Args:
            write_bytes: largest write of body bytes, or None for one write per call.
            limit_bytes: raise `BodyLimit` after so many bytes of the body, or None.
            gzip: compress the body.
        """
        self._write_bytes = write_bytes
        self._room = limit_bytes
        self._gzip = zlib.compressobj(wbits=_GZIP_WINDOW) if gzip else None

    async def head(
        self, status: int, headers: Iterable[tuple[str, str]], *, length: int | None = None
    ) -> None:
        """Send the status line and the headers.

        Args:
            status: HTTP status.
            headers: further ones; framing headers are added.
            length: of the body in bytes, true or not; None streams it.
        """
        lines = [_status_line(status), *(f"{name}: {value}" for name, value in headers)]
        if self._gzip is not None:
            lines.append("Content-Encoding: gzip")
        if length is not None:
            self._framing = "length"
            lines.append(f"Content-Length: {length}")
        elif self._framing == "chunked":
            lines.append("Transfer-Encoding: chunked")
        if not self.reusable:
            lines.append("Connection: close")
        await self.raw("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def body(self, data: bytes, *, last: bool = False) -> None:
        """Send body bytes, in writes of the ordered size.

        Args:
            data: bytes of the body.
            last: the body ends with them, and its end goes out in the same write.

        Raises:
            BodyLimit: the ordered number of bytes is reached; what fits has been sent.
        """
        if self._gzip is not None:
            mode = zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH
            data = self._gzip.compress(data) + self._gzip.flush(mode)
        fits = data if self._room is None else data[: self._room]
        cut = self._room is not None and len(data) + last > self._room
        if self._room is not None:
            self._room -= len(fits)
        await self._pieces(fits, last=last and not cut)
        if cut:
            raise BodyLimit

    async def _pieces(self, data: bytes, *, last: bool) -> None:
        size = self._write_bytes or len(data) or 1
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        end = _BODY_END if last and self._framing == "chunked" else b""
        if not pieces and end:
            await self.raw(end)
        for number, piece in enumerate(pieces, start=1):
            self.bytes_sent += len(piece)
            await self.raw(self._framed(piece) + (end if number == len(pieces) else b""))

    def _framed(self, data: bytes) -> bytes:
        if self._framing != "chunked":
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)

    async def raw(self, data: bytes) -> None:
        """Send bytes as they are, and wait until the kernel has them."""
        self._writer.write(data)
        await self._writer.drain()
        # A drain that need not wait does not yield either, and tests share this loop.
        await asyncio.sleep(0)

    async def terminate(self) -> None:
        """End the body in order, whatever was still to come."""
        if self._framing == "chunked":
            await self.raw(_BODY_END)
        else:
            self.reusable = False

    def fin(self) -> None:
        """Close the connection in order, without the end of the body."""
        self.reusable = False
        self._writer.close()

    def rst(self) -> None:
        """Reset the connection."""
        self.reusable = False
        reset(self._writer)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with RST instead of FIN."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
    writer.transport.abort()


def _status_line(status: int) -> str:
    known = {code.value: code.phrase for code in HTTPStatus}
    return f"HTTP/1.1 {status} {known.get(status, 'Simulated')}"
