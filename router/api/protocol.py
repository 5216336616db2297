"""One client connection: uvicorn's protocol, and the bounds and manners that it lacks.

- The head of a request is bounded in bytes and in time, whether it ever ends or not.
- A connection that must be closed while its client still sends is half-closed and drained first, or
  the client would find a reset in the place of the answer (RFC 9112, section 9.6).
- While an answer runs, nothing is taken from its client but its leaving, and that is told at once:
  a pipelined request is dropped, and the connection closed after the answer, which RFC 9112,
  section 9.3.2 allows. uvicorn would queue it, and stop listening for the end of the connection.
- An offer to upgrade (Java's client makes one at first) is passed over, as RFC 9110,
  section 7.8 allows. The parser would take the body for the other protocol's, and lose it.
- What uvicorn says in plain text is said in OpenAI's shape.
"""

from __future__ import annotations

import asyncio
import http
import logging
from typing import Any, cast

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.engine.clock import Clock, Timer
from router.wire.openai import error_object

HEAD_S = 30.0
"""How long the head of a request may take, from the connection or from its first byte."""

LINGER_S = 30.0
"""How long a client that sends on after its answer is listened to before the door is shut."""

ABORT = "router.abort"
"""Key in the ASGI scope: a callable that drops the connection with whatever waits in it."""

_log = logging.getLogger("router.api")


class Connection:
    """A transport whose `close` lets its protocol decide how; all else is the transport's own.

    Args:
        transport: the real one.
        owner: its protocol.
    """

    __slots__ = ("_owner", "transport", "write")

    def __init__(self, transport: asyncio.Transport, owner: BoundedProtocol) -> None:
        self.transport = transport
        self.write = transport.write  # the per-token call goes straight through
        self._owner = owner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the transport has
        return getattr(self.transport, name)

    def is_closing(self) -> bool:
        """Nothing more may be sent."""
        return self._owner.lingering or self.transport.is_closing()

    def close(self) -> None:
        """Close, or linger first."""
        self._owner.hang_up()


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Abstract: `bounded_protocol` fills in the bounds."""

    clock: Clock
    max_header_bytes: int
    head_s = HEAD_S
    linger_s = LINGER_S

    lingering = False
    _deaf = False  # nothing that comes is read any more
    _in_head = False  # the head of a request has begun and is incomplete
    _head_bytes = 0  # of an incomplete head: what came
    _field_bytes = 0  # of any head: what it was found to hold
    _timer: Timer | None = None  # for what the client has to do next
    _flush: Timer | None = None  # for what it has to take of a whole answer

    # -- the connection ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        plain = cast("asyncio.Transport", transport)
        super().connection_made(cast("asyncio.Transport", Connection(plain, self)))
        self._expect_within(self.head_s)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._deaf:
            return
        if self._answering():
            if data.strip(b"\r\n"):  # an empty line behind a body is an old client's habit
                self._stop_listening()
            return
        self._unset_keepalive_if_required()
        self._feed(data)
        if self._in_head and not self._deaf:
            self._head_bytes += len(data)
            if self._head_bytes > self.max_header_bytes:
                self._refuse(431, "headers_too_large", _TOO_LARGE)
        if self._timer is None and self._between():
            self._expect_within(self.head_s)

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._deaf:
                self._pass_over_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            _log.info("bytes that are no HTTP request: %s", error)
            self._refuse(400, "invalid_http", "What came is no HTTP request.")

    def eof_received(self) -> None:
        """The client sends no more: one that waits for an answer is taken to have left."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._expect_within(None)
        if self._flush is not None:
            self._flush.cancel()
        super().connection_lost(exc)

    def hang_up(self) -> None:
        """Close; if the client is still sending, only after it has had time to read."""
        if self.lingering or self._transport.is_closing() or not self._unread():
            self._transport.close()
            return
        self.lingering = True
        self._deaf = True
        self._expect_within(self.linger_s)
        self.flow.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def shutdown(self) -> None:
        """The server stops: an idle connection is closed, a busy one after its answer."""
        if self.cycle is None or self.cycle.response_complete:
            self._transport.close()
        else:
            super().shutdown()

    # -- the parser --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._answering():
            self._stop_listening()
        if self._deaf:
            return
        self._in_head = True
        self._field_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        if not self._deaf:
            self._field_bytes += len(url)
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        if not self._deaf and self._in_head:
            self._field_bytes += len(name) + len(value)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole: the request can be answered."""
        if self._deaf:
            return
        if self._field_bytes > self.max_header_bytes:
            self._refuse(431, "headers_too_large", _TOO_LARGE)
            return
        if self.parser.should_upgrade():
            return
        self._in_head = False
        self._head_bytes = 0
        self._expect_within(None)
        cast("dict[str, Any]", self.scope)[ABORT] = self._transport.abort
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        if not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._deaf or self._in_head:
            return
        super().on_message_complete()
        if self.cycle.response_complete:  # it was drained: the next request may come
            self.cycle.more_body = False
            self._expect_within(self.head_s)

    def on_response_complete(self) -> None:
        """The answer is whole. The rest of a body that nobody wanted is read, for a while."""
        super().on_response_complete()
        if self._transport.get_write_buffer_size() and self._flush is None:
            # A client that takes nothing must not keep its connection for ever, whole as its
            # answer is: closing waits until everything is sent.
            self._flush = self.clock.call_at(self.clock.now_s() + self.linger_s, self._unsent)
        if self.cycle.more_body and not self.transport.is_closing():
            self._expect_within(self.linger_s)

    def _unsent(self) -> None:
        self._flush = None
        if self._transport.get_write_buffer_size():
            self._transport.abort()

    def _pass_over_upgrade(self, rest: bytes) -> None:
        """Read the request once more, without the offer."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(405, "method_not_allowed", "This is no proxy: CONNECT is not taken.")
            return
        lines = [b"%b: %b\r\n" % field for field in self.headers if field[0] not in _HOP_BY_HOP]
        self.parser = httptools.HttpRequestParser(self)
        head = b"%b %b HTTP/1.1\r\n%b\r\n" % (method, self.url, b"".join(lines))
        self._feed(head + rest)

    # -- refusals ----------------------------------------------------------------------------

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer a request that never became one, or breaks off, and hang up."""
        self._deaf = True
        cycle = self.cycle
        silent = cycle is None or not cycle.response_started or self._between()
        if silent and not self.transport.is_closing():
            self._transport.write(_response(status, code, message))
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # for the application it is over
            cycle.message_event.set()
        self.hang_up()

    def _expired(self) -> None:
        self._timer = None
        if self._in_head and self._head_bytes and not self._deaf:
            self._refuse(408, "request_timeout", f"The request took more than {self.head_s:g} s.")
        else:
            self._transport.abort()

    def _expect_within(self, limit_s: float | None) -> None:
        """Set, or with None take back, the time by which something must have happened."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if limit_s is not None:
            self._timer = self.clock.call_at(self.clock.now_s() + limit_s, self._expired)

    # -- where it stands ---------------------------------------------------------------------

    @property
    def _transport(self) -> asyncio.Transport:
        return cast("Connection", self.transport).transport

    def _answering(self) -> bool:
        """A whole request is in, and its answer is not out."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _between(self) -> bool:
        """No request is being received or answered."""
        cycle = self.cycle
        return cycle is None or (cycle.response_complete and not cycle.more_body)

    def _unread(self) -> bool:
        """The client may be in the middle of sending something."""
        return self._deaf or (self.cycle is not None and self.cycle.more_body)

    def _stop_listening(self) -> None:
        self._deaf = True
        self.cycle.keep_alive = False


_HOP_BY_HOP = frozenset({b"connection", b"upgrade", b"http2-settings"})
"""What an offer to upgrade consists of."""

_TOO_LARGE = "The request's headers are too large. Send less, or raise server.max_header_bytes."


def _response(status: int, code: str, message: str) -> bytes:
    error = error_object(message, type="invalid_request_error", code=code)
    body = msgspec.json.encode(error)
    return (
        b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b"connection: close\r\n\r\n%b"
    ) % (status, http.HTTPStatus(status).phrase.encode(), len(body), body)


def bounded_protocol(max_header_bytes: int, clock: Clock) -> type[BoundedProtocol]:
    """A class for uvicorn's `http` setting.

    Args:
        max_header_bytes: bound on request line and headers.
        clock: where time comes from.
    """
    return type(
        "Bounded", (BoundedProtocol,), {"max_header_bytes": max_header_bytes, "clock": clock}
    )
