"""Reads a chat-completions response body: bytes of an upstream to canonical events.

What a body is shows in its first bytes, not in its headers: an event stream, one JSON value (a
whole completion, an error), JSON lines, or something else. Each JSON object then goes through the
one normaliser (`chunks.py`), whatever it came in. What providers really send, and what each case
means, is listed in `docs/failures.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from router.core.events import Done, Event, Failed
from router.core.faults import Fault, FaultKind
from router.core.sse import MAX_EVENT_BYTES, ServerSentEvent, SseDecoder
from router.errors import MalformedStream
from router.wire.jsontext import Json, loads, plain_loads
from router.wire.openai.chunks import ChunkNormaliser

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Bound on a body that is one JSON value: a whole completion, which is held until its end."""

_STARTS: Final = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
"""What an event stream starts with; `error:` is llama.cpp's."""
_BOM: Final = b"\xef\xbb\xbf"
_PADDING: Final = re.compile(rb"(?:\xef\xbb\xbf|[ \t\r\n])*")
_FIELD: Final = re.compile(rb"[A-Za-z][\w.-]{0,63}:")
"""A stray line of this form is a field of tomorrow, which the standard says to ignore."""


class _Mode(Enum):
    SNIFF = "sniff"
    STREAM = "stream"
    BODY = "body"
    OVER = "over"


class ChatStreamReader:
    """Reads one 2xx response body; a `router.providers.base.StreamReader`.

    Args:
        on_error: judges an error that the stream reports. It is given an object whose `error` is
            never empty: the provider's own object where it has such a field (`{"error": "…",
            "error_type": "…"}` arrives whole), else what it said, wrapped as `{"error": …}`.
        max_event_bytes: bound on one event of a stream.
        max_body_bytes: bound on a body that is one JSON value.
    """

    __slots__ = ("_body", "_chunks", "_decoder", "_head", "_line_tried", "_max_body", "_mode")

    def __init__(
        self,
        *,
        on_error: Callable[[Mapping[str, Any]], Fault],
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._max_body = max_body_bytes
        self._decoder = SseDecoder(max_event_bytes=max_event_bytes)
        self._chunks = ChunkNormaliser(on_error)
        self._mode = _Mode.SNIFF
        self._head = b""  # first bytes, until they tell what the body is; shorter than any start
        self._body = bytearray()  # a body that is one JSON value
        self._line_tried = False  # its first line is no JSON value of its own

    def feed(self, data: bytes) -> list[Event]:
        """See `StreamReader.feed`."""
        out: list[Event] = []
        try:
            if self._mode is _Mode.STREAM:
                if not self._sole_chunk(data, out):
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

    def _sole_chunk(self, data: bytes, out: list[Event]) -> bool:
        """The per-token way: one event, one object, plain JSON. Whatever is odd takes the other."""
        payload = self._decoder.sole_data(data)
        if payload is None or not payload.startswith(b"{"):
            return False
        value = plain_loads(payload)
        if value is None:
            return False
        self._take(value, out)
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
        else:
            self._take(value, out)

    def _bare(self, value: Json, out: list[Event]) -> None:
        """A JSON value outside any event: an error, a whole completion, or a chunk on a line."""
        objects = value if isinstance(value, list) and value else [value]
        for obj in objects:
            self._take(obj, out)
            if self._mode is _Mode.OVER:
                return
            if "choices" not in obj:
                raise MalformedStream("The provider's answer is JSON, but no completion.")
            if any(choice.get("message") for choice in obj["choices"] or ()):
                self._done(out)
                return

    def _take(self, value: Json, out: list[Event]) -> None:
        self._chunks.take(value, out)
        if out and type(out[-1]) is Failed:
            self._end()

    def _json(self, data: bytes) -> Json:
        try:
            value, odd = loads(data)
        except ValueError:
            raise MalformedStream("The provider sent text where JSON belongs.") from None
        if odd:
            self._chunks.odd = True
        return value

    def _reported(self, data: bytes, out: list[Event]) -> None:
        """An error that its framing marks as one: as JSON, or as the plain words it is."""
        try:
            said, _ = loads(data)
        except ValueError:
            said = data.decode("utf-8", "replace").strip()
        self._chunks.report(said, out)
        self._end()

    def _malformed(self, exc: Exception, out: list[Event]) -> None:
        what = str(exc) if isinstance(exc, MalformedStream) else "The JSON is nested too deep."
        out.append(Failed(Fault(kind=FaultKind.MALFORMED, message=what)))
        self._end()

    def _done(self, out: list[Event]) -> None:
        out.append(Done())
        self._end()

    def _end(self) -> None:
        self._mode = _Mode.OVER
        self._body.clear()
