"""Reads a response body of any format: the bytes of an upstream to decoded JSON, to events.

What a body is shows in its first bytes, not in its headers: an event stream, one JSON value (a
whole answer, an error), JSON lines, or something else. Each JSON object then goes through the
format's own normaliser, whatever it came in. What providers really send, and what each case means,
is listed in `docs/failures.md`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, Protocol

from router.core.events import Done, Event, Failed
from router.core.faults import Fault, FaultKind
from router.core.sse import MAX_EVENT_BYTES, ServerSentEvent, SseDecoder
from router.errors import MalformedStream
from router.wire.jsontext import Json, deeper_than, loads, plain_loads

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Bound on a body that is one JSON value: a whole answer, which is held until its end."""

MAX_FOREIGN_DEPTH = 32
"""Bound on the nesting of what is passed on unread: log probabilities, usage, unknown fields."""

_STARTS: Final = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
"""What an event stream starts with; `error:` is llama.cpp's."""
_BOM: Final = b"\xef\xbb\xbf"
_PADDING: Final = re.compile(rb"(?:\xef\xbb\xbf|[ \t\r\n])*")
_FIELD: Final = re.compile(rb"[A-Za-z][\w.-]{0,63}:")
"""A stray line of this form is a field of tomorrow, which the standard says to ignore."""
_LAST: Final = frozenset((Done, Failed))
"""Nothing follows these."""


class Normaliser(Protocol):
    """What a format's decoded JSON means, and the memory of one answer between its objects."""

    odd: bool
    """Strings of the next object may hold lone surrogates: set by who decoded it, cleared here."""

    @property
    def token_event(self) -> bytes:
        """Name of the events that bring the tokens, b"" where they have none: these take a shorter
        way through the reader."""
        ...

    def named(self, name: bytes, value: Json) -> Json:
        """An event came under a name.

        Args:
            name: of the event, never empty; events called `error` are not asked about.
            value: its JSON, as decoded.

        Returns:
            The value to take: with what only the name told, where names mean anything.
        """
        ...

    def take(self, value: Json, out: list[Event]) -> None:
        """Translate one JSON value of a stream.

        Args:
            value: as decoded.
            out: events are appended here; after a `Failed` or a `Done` nothing more is taken.

        Raises:
            MalformedStream: it has no readable shape, and may have held text.
        """
        ...

    def bare(self, value: Json, out: list[Event]) -> None:
        """Translate one JSON value outside any event: a body, a line, an entry of a list.

        Args:
            value: as decoded: an error, a whole answer, or what an event would have held.
            out: as for `take`; an answer that is whole ends in `Done`.

        Raises:
            MalformedStream: it is nothing that this format knows.
        """
        ...

    def report(self, said: Json, out: list[Event]) -> None:
        """The provider reports an error.

        Args:
            said: its object, or its words.
            out: the `Failed` is appended here.
        """
        ...


class _Mode(Enum):
    SNIFF = "sniff"
    STREAM = "stream"
    BODY = "body"
    OVER = "over"


class BodyReader:
    """Reads one 2xx response body; a `router.providers.base.StreamReader`.

    `data: [DONE]` ends a stream of any format: some servers put it behind another's last event.

    Args:
        normaliser: of the body's format, fresh.
        max_event_bytes: bound on one event of a stream.
        max_body_bytes: bound on a body that is one JSON value.
    """

    __slots__ = (
        "_body",
        "_decoder",
        "_head",
        "_line_tried",
        "_max_body",
        "_mode",
        "_normaliser",
        "_token_event",
        "_token_head",
    )

    def __init__(
        self,
        normaliser: Normaliser,
        *,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._max_body = max_body_bytes
        self._decoder = SseDecoder(max_event_bytes=max_event_bytes)
        self._normaliser = normaliser
        self._token_event = name = normaliser.token_event
        self._token_head = (b"event: %b\n" % name if name else b"") + b"data: "
        self._mode = _Mode.SNIFF
        self._head = b""  # first bytes, until they tell what the body is; shorter than any start
        self._body = bytearray()  # a body that is one JSON value
        self._line_tried = False  # its first line is no JSON value of its own

    def feed(self, data: bytes) -> list[Event]:
        """See `StreamReader.feed`."""
        out: list[Event] = []
        try:
            if self._mode is _Mode.STREAM:
                if not self._sole_event(data, out):
                    self._stream(data, out)
            elif self._mode is _Mode.SNIFF:
                self._sniff(data, out)
            elif self._mode is _Mode.BODY:
                self._collect(data, out)
        except (MalformedStream, RecursionError) as exc:
            self._malformed(exc, out)
        return out

    def close(self) -> list[Event]:
        """See `StreamReader.close`."""
        out: list[Event] = []
        try:
            if self._mode is _Mode.STREAM:
                self._items(self._decoder.close(), out)
            elif self._mode is _Mode.BODY:
                self._bare(self._json(bytes(self._body)), out)
        except (MalformedStream, RecursionError) as exc:
            self._malformed(exc, out)
        self._end()
        return out

    def _sole_event(self, data: bytes, out: list[Event]) -> bool:
        """The per-token way: one event, one object, plain JSON. Whatever is odd takes the other."""
        payload = self._decoder.sole_data(data, self._token_head)
        if payload is None or not payload.startswith(b"{"):
            return False
        value = plain_loads(payload)
        if value is None:
            return False
        if self._token_event:
            value = self._normaliser.named(self._token_event, value)
        self._normaliser.take(value, out)
        if out and type(out[-1]) in _LAST:
            self._end()
        return True

    def _sniff(self, data: bytes, out: list[Event]) -> None:
        head = self._head + data
        padding = _PADDING.match(head)
        self._head = head = head[padding.end() :] if padding else head
        if head[:1] in {b"{", b"["}:
            self._mode, self._head = _Mode.BODY, b""
            self._collect(head, out)
        elif head.startswith(_STARTS):
            self._mode, self._head = _Mode.STREAM, b""
            self._stream(head, out)
        elif not any(start.startswith(head) for start in (*_STARTS, _BOM)):
            what = "HTML or XML" if head[:1] == b"<" else "neither a stream nor JSON"
            raise MalformedStream(f"The provider's answer is {what}.")

    def _collect(self, data: bytes, out: list[Event]) -> None:
        """One JSON value is held until its end; JSON lines show at the end of the first line."""
        body = self._body
        end = -1 if self._line_tried else data.find(b"\n")
        if end >= 0:
            end += len(body)
        body += data
        if 0 <= end <= self._max_body:
            self._line_tried = True
            try:
                value, rest = self._json(bytes(body[:end])), bytes(body[end + 1 :])
            except MalformedStream:
                pass  # one value over several lines
            else:
                body.clear()
                self._mode = _Mode.STREAM
                self._bare(value, out)
                self._stream(rest, out)
                return
        if len(body) > self._max_body:
            raise MalformedStream(f"The provider's answer is larger than {self._max_body} bytes.")

    def _stream(self, data: bytes, out: list[Event]) -> None:
        if self._mode is _Mode.OVER:
            return
        decoder = self._decoder
        going_on = self._items(decoder.feed(data), out)
        if going_on and decoder.error is not None:
            raise decoder.error

    def _items(self, items: list[ServerSentEvent], out: list[Event]) -> bool:
        for item in items:
            self._item(item, out)
            if self._mode is _Mode.OVER:
                return False
        return True

    def _item(self, item: ServerSentEvent, out: list[Event]) -> None:
        data = item.data
        if item.stray:
            self._stray(item, out)
        elif item.event == b"error":
            self._reported(data, out)
        elif data.startswith(b"{"):
            self._decoded(item, out)
        else:
            data = data.strip()
            if data == b"[DONE]":
                self._done(out)
            elif data:
                self._decoded(item, out)

    def _stray(self, item: ServerSentEvent, out: list[Event]) -> None:
        """A line outside the standard's fields: an error, a JSON line, or nothing we know."""
        line = item.data.strip()
        if line.startswith(b"error:"):
            self._reported(line[6:], out)
        elif line.startswith((b"{", b"[{")):
            self._decoded(item, out)
        elif line == b"[DONE]":
            self._done(out)
        elif line and not item.unterminated and not _FIELD.match(line):
            raise MalformedStream("The stream holds a line that is no part of a stream.")

    def _decoded(self, item: ServerSentEvent, out: list[Event]) -> None:
        try:
            value = self._json(item.data)
        except MalformedStream:
            if item.unterminated:
                return  # the body ended inside this event: truncated, which the engine sees
            raise
        if item.stray:
            self._bare(value, out)
            return
        if item.event:
            value = self._normaliser.named(item.event, value)
        self._normaliser.take(value, out)
        self._end_if_last(out)

    def _bare(self, value: Json, out: list[Event]) -> None:
        for one in value if isinstance(value, list) and value else [value]:
            self._normaliser.bare(one, out)
            self._end_if_last(out)
            if self._mode is _Mode.OVER:
                return

    def _json(self, data: bytes) -> Json:
        try:
            value, odd = loads(data)
        except ValueError:
            raise MalformedStream("The provider sent text where JSON belongs.") from None
        if odd:
            self._normaliser.odd = True
        return value

    def _reported(self, data: bytes, out: list[Event]) -> None:
        """An error that its framing marks as one: as JSON, or as the plain words it is."""
        try:
            said, _ = loads(data)
        except ValueError:
            said = data.decode("utf-8", "replace").strip()
        self._normaliser.report(said, out)
        self._end()

    def _malformed(self, exc: Exception, out: list[Event]) -> None:
        what = str(exc) if isinstance(exc, MalformedStream) else "The JSON is nested too deep."
        out.append(Failed(Fault(kind=FaultKind.MALFORMED, message=what)))
        self._end()

    def _done(self, out: list[Event]) -> None:
        out.append(Done())
        self._end()

    def _end_if_last(self, out: list[Event]) -> None:
        if out and type(out[-1]) in _LAST:
            self._end()

    def _end(self) -> None:
        self._mode = _Mode.OVER
        self._body.clear()


def check_depth(value: Json) -> None:
    """What is passed on unread must be encodable later, on whatever stack that happens.

    Args:
        value: as decoded.

    Raises:
        MalformedStream: it is nested in more than `MAX_FOREIGN_DEPTH` levels.
    """
    if deeper_than(value, MAX_FOREIGN_DEPTH):
        raise MalformedStream("A field of the answer is nested too deep.")
