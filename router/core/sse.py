"""Server-sent events on bytes: the decoder for upstream bodies, the encoders for the client.

The format is WHATWG HTML, section 9.2.6 "Interpreting an event stream". Everything here works on
bytes: a UTF-8 sequence cannot be cut by a read, as none of its bytes is a CR or an LF, and U+2028
ends no line. Three deliberate additions to the standard, because providers need them:

- a line whose field name the standard does not know is handed on as a *stray* event at once. That
  is where llama.cpp (`error: {…}`) and Ollama (`{"error": "…"}`) put their last words;
- what the body's end leaves without its blank line is handed on by `close`, marked `unterminated`:
  many servers forget the blank line after their last event;
- a comment costs nothing, however long, and however many come without a blank line between them.
"""

from __future__ import annotations

import msgspec

from router.errors import MalformedStream

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Bound on one event with all its lines: above any answer, below what would hurt a process."""

_BOM = b"\xef\xbb\xbf"
_LF, _CR, _COLON = 10, 13, 58
_SILENT = frozenset((b"id", b"retry"))
"""Fields about reconnecting, which is not ours to do upstream."""


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    """One event, or one stray line.

    Args:
        data: the `data` lines joined by LF; for a stray line, the whole line.
        event: the event's name, b"" when it has none.
        stray: this is a single line that belongs to no known field.
        unterminated: the body ended before the blank line (a stray: before the line's end).
    """

    data: bytes
    event: bytes = b""
    stray: bool = False
    unterminated: bool = False


class SseDecoder:
    """Bytes of one body to events, in time linear in the bytes however they are cut.

    Args:
        max_event_bytes: bound on the lines of one event together, the one still arriving included.
    """

    __slots__ = (
        "_after_cr",
        "_data",
        "_data_bytes",
        "_error",
        "_in_comment",
        "_line",
        "_max",
        "_name",
        "_start",
    )

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._start: bytes | None = b""  # what may yet be a BOM; None once that is decided
        self._after_cr = False  # an LF now would belong to the line end already seen
        self._in_comment = False  # the line still arriving is a comment: its bytes are dropped
        self._line = bytearray()  # the line still arriving
        self._data: list[bytes] = []  # `data` lines of the event still arriving
        self._data_bytes = 0
        self._name = b""
        self._error: MalformedStream | None = None

    @property
    def error(self) -> MalformedStream | None:
        """Set once the bound was passed; nothing is decoded from then on."""
        return self._error

    def sole_data(self, data: bytes, head: bytes = b"data: ") -> bytes | None:
        """The payload, if these bytes are one whole event of one `data` line, and none is waiting.

        So nearly every token arrives, and so it need not be taken apart: the decoder stays as it
        is. Otherwise None, and nothing is taken: the bytes are for `feed`.

        Args:
            data: the next bytes.
            head: what the event must begin with, up to its payload: `data: `, with a line before it
                where the events have a name.
        """
        start = len(head)
        if (
            data.endswith(b"\n\n")
            and data.startswith(head)
            and data.find(b"\n", start) == len(data) - 2
            and len(data) <= self._max
            and b"\r" not in data
            and not (self._line or self._data or self._in_comment or self._after_cr or self._name)
            and self._start is None
            and self._error is None
        ):
            return data[start:-2]
        return None

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Take the next bytes; give the events that they complete, in order.

        Raises:
            MalformedStream: an event passes the bound. Events before it are given first: then this
                call returns them, `error` is set, and the next call raises.
        """
        if self._error is not None:
            raise self._error
        if self._start is not None:
            data = self._skip_bom(data)
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == _LF:
                data = data[1:]
        if not data:
            return []
        return self._lines(data)

    def close(self) -> list[ServerSentEvent]:
        """The body ended: give what was waiting for its end, each marked `unterminated`.

        Raises:
            MalformedStream: the bound had been passed before.
        """
        if self._error is not None:
            raise self._error
        out: list[ServerSentEvent] = []
        if self._start:  # one or two bytes of a BOM: no line of ours starts so
            self._line += self._start
        if self._line:
            self._take(bytes(self._line), out, unterminated=True)
            self._line.clear()
        if self._data:
            out.append(ServerSentEvent(b"\n".join(self._data), self._name, unterminated=True))
            self._data = []
        return out

    def _skip_bom(self, data: bytes) -> bytes:
        head = (self._start or b"") + data
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._start = head
            return b""
        self._start = None
        return head.removeprefix(_BOM)

    def _lines(self, data: bytes) -> list[ServerSentEvent]:
        lines = data.splitlines()  # of bytes: at LF, CR and CRLF, and nowhere else
        last = data[-1]
        self._after_cr = last == _CR
        rest = b"" if last in (_LF, _CR) else lines.pop()
        out: list[ServerSentEvent] = []
        if lines:
            self._join_first(lines)
            for line in lines:
                if line.startswith(b"data:"):
                    self._grow(line)
                elif line:
                    self._take(line, out)
                else:
                    self._dispatch(out)
                if self._error is not None:
                    break
        if rest and self._error is None:
            self._hold(rest)
        if self._error is not None and not out:
            raise self._error
        return out

    def _join_first(self, lines: list[bytes]) -> None:
        """The first line end of this read ends the line that was arriving before it."""
        if self._in_comment:
            self._in_comment = False
            lines[0] = b":"
        elif self._line:
            self._line += lines[0]
            lines[0] = bytes(self._line)
            self._line.clear()

    def _hold(self, rest: bytes) -> None:
        if self._in_comment:
            return
        if not self._line and rest[0] == _COLON:
            self._in_comment = True
            return
        if self._fits(len(self._line) + len(rest)):
            self._line += rest

    def _fits(self, line_bytes: int) -> bool:
        """The same rule for a whole line and for one still arriving, so cuts change nothing."""
        if self._data_bytes + line_bytes <= self._max:
            return True
        self._error = MalformedStream(f"An event is larger than {self._max} bytes.")
        self._line.clear()
        self._data = []
        return False

    def _grow(self, line: bytes) -> None:
        if self._fits(len(line)):
            self._data_bytes += len(line) + 1  # the line end counts: empty lines must not be free
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])

    def _take(self, line: bytes, out: list[ServerSentEvent], *, unterminated: bool = False) -> None:
        """Any line but the two frequent ones: a `data` line with its colon, and the blank line."""
        if line[0] == _COLON or not self._fits(len(line)):
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._grow(b"data:" + value)
        elif name == b"event":
            self._name = value.removeprefix(b" ")
        elif name not in _SILENT:
            out.append(ServerSentEvent(line, stray=True, unterminated=unterminated))

    def _dispatch(self, out: list[ServerSentEvent]) -> None:
        data = self._data
        if data:
            joined = data[0] if len(data) == 1 else b"\n".join(data)
            out.append(ServerSentEvent(joined, self._name))
            self._data = []
            self._data_bytes = 0
        self._name = b""


def encode_event(data: bytes, name: bytes = b"") -> bytes:
    r"""One event; a line end inside `data` becomes a further `data` line.

    Args:
        data: the payload; JSON has no line ends of its own.
        name: of the event, for clients that asked for named ones; b"" for none.
    """
    if name:
        return b"event: %b\n" % name + encode_event(data)
    if b"\n" in data or b"\r" in data:
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return b"".join(b"data: %b\n" % line for line in lines) + b"\n"
    return b"data: %b\n\n" % data


def encode_comment(text: bytes) -> bytes:
    """A comment, to keep a connection awake: one line end and no blank line after it.

    A blank line would dispatch an empty event in SDKs that do not follow the standard to the letter
    (`docs/wire.md`).

    Args:
        text: line ends inside it become spaces.
    """
    return b": %b\n" % b" ".join(text.splitlines())
