"""Reads requests off a connection with h11, and notices at once when the client goes away."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import h11

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Largest request body taken: above any prompt, below what would hurt a test machine."""
MAX_PIPELINED_BYTES: Final = 1024 * 1024
"""Bytes a client may send ahead of its answer before it is taken for hostile."""
_READ_BYTES = 65_536


class BadRequest(Exception):
    """What came is no HTTP request.

    Args:
        status: HTTP status to answer with.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request as read.

    Args:
        method: such as "POST".
        path: of the target, without its query, percent-encoded as it came.
        query: of the target, without its question mark.
        headers: names in lower case; the last of equal names counts.
        body: whole.
        keep_alive: the client may send another one on this connection.
        old: HTTP/1.0, which knows no chunks.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool
    old: bool
    query: str = ""


class Intake:
    """The reading side of one connection.

    Args:
        reader: of the connection.
        writer: of it, for `100 Continue` only.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ahead = b""

    async def request(self) -> HttpRequest | None:
        """Read the next request.

        Returns:
            It, or None if the client has closed.

        Raises:
            BadRequest: it is no HTTP, or too large.
            ConnectionError: the client has reset.
        """
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_READ_BYTES)
        try:
            if self._ahead:
                parser.receive_data(self._ahead)
            head = await self._next(parser)
            if not isinstance(head, h11.Request):
                return None
            body = await self._body(parser)
        except h11.RemoteProtocolError as error:
            raise BadRequest(error.error_status_hint) from None
        self._ahead = parser.trailing_data[0]
        return _request(head, body)

    async def _body(self, parser: h11.Connection) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while isinstance(event := await self._next(parser), h11.Data):
            size += len(event.data)
            if size > MAX_BODY_BYTES:
                raise BadRequest(413)
            pieces.append(bytes(event.data))
        return b"".join(pieces)

    async def _next(self, parser: h11.Connection) -> object:
        while (event := parser.next_event()) is h11.NEED_DATA:
            if parser.they_are_waiting_for_100_continue:
                self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                parser.send(h11.InformationalResponse(status_code=100, headers=[]))
            parser.receive_data(await self._reader.read(_READ_BYTES))
        return event

    async def client_gone(self) -> None:
        """Return when the client closes or resets, or sends far too much ahead."""
        try:
            while len(self._ahead) < MAX_PIPELINED_BYTES:
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    return
                self._ahead += data
        except ConnectionError:
            return


def _request(head: h11.Request, body: bytes) -> HttpRequest:
    headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
    target = head.target.decode("latin-1")
    old = head.http_version < b"1.1"
    return HttpRequest(
        method=head.method.decode(),
        path=target.partition("?")[0],
        query=target.partition("?")[2],
        headers=headers,
        body=body,
        keep_alive=not old and "close" not in headers.get("connection", "").lower(),
        old=old,
    )
