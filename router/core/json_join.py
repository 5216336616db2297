"""Going on with a JSON document that another model began.

A target is given the committed text as a raw prefix, or the original question. What it sends is
then either the rest of the text, or a whole document from the start; which of the two shows at the
first character, since a rest begins with `,`, `}` or `]` and a document does not. `JsonJoin` turns
both into text that goes on right after the committed values.

A second document is aligned value by value: what is committed is skipped, whatever the second model
says there; keys may come in another order; array items align by index; the first new value of the
innermost open container goes out next, and new values of outer containers wait until the inner ones
are closed. A second document that contradicts the first is a fault.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from router.core.json_gate import MAX_PROSE_CHARS, Passed
from router.core.json_values import Frame, JsonFault, JsonReader, Path, ValueEnd

MAX_HELD_CHARS = 4 * 1024 * 1024
"""Values of outer containers that wait until the inner ones are closed."""

_GOES_ON = ",}]"
_BEGINS = "{["
_LACKS = '"'
"""A rest that begins so lacks its comma: nothing else can follow a whole value."""

_WRAPPING = re.compile(
    r"\s*(?:[^\s,\[\]{}`~][^\n\[\]{}]{0,200}[:.…!][ \t]*\n\s*)?(?:(?:`{3,}|~{3,})[^\n`]*\n)?"
)
"""A line that announces the rest, and a fence: what a model puts before it."""

MAX_WRAPPING_CHARS = 300

_PIECES = re.compile(r'[^,\]}"]+|[,\]}"]')


class JsonJoin:
    """Turns a continuation into the text after the committed values.

    Args:
        committed: what was let out; it ends right after a complete value inside a container.
        raw: the target was given `committed` as a prefix, so a rest is possible.
    """

    def __init__(self, committed: str, *, raw: bool) -> None:
        self._committed = committed
        self._raw: bool | None = None if raw else False
        self._align = Align(committed)
        self._seen = ""

    @property
    def restarted(self) -> bool:
        """The continuation is a document of its own."""
        return self._raw is False

    def feed(self, text: str) -> Passed:
        """Take the continuation's next text.

        Args:
            text: any piece.

        Returns:
            Text that goes on after the committed values, for the gate; or a fault.
        """
        if self._raw is None:
            try:
                text = self._decide(self._seen + text)
            except JsonFault as fault:
                return Passed("", fault)
            if not text:
                return Passed("")
        if self._raw:
            return Passed(text)
        return self._align.feed(text)

    def _decide(self, text: str) -> str:
        """Rest or document? It shows at the first character, once what models put before it is off.

        Returns:
            The text from there on, "" while it does not show.
        """
        wrapping = _WRAPPING.match(text)
        wrapped = wrapping is not None and bool(wrapping.group().strip())
        # White space alone is no wrapping: it is the document's own.
        rest = text[wrapping.end() :] if wrapping is not None and wrapped else text
        bare = rest.lstrip()
        first = bare[:1]
        if not first or (first not in _GOES_ON + _BEGINS + _LACKS and _may_be_wrapping(bare)):
            self._seen = text
            return ""
        if first not in _GOES_ON + _BEGINS + _LACKS:
            raise JsonFault("the continuation is prose, neither the rest nor a document")
        self._seen = ""
        self._raw = first not in _BEGINS
        return f"{self._align.comma}{bare}" if first in _LACKS else rest

    def finish(self) -> Passed:
        """The continuation is over.

        Returns:
            Nothing, and a fault if a second document did not come to the end of the first.
        """
        return Passed("") if self._raw else self._align.finish()


@dataclass(slots=True)
class _Open:
    """A container of the first document that is still open.

    Args:
        frame: as the first document left it.
        size: values it has so far.
        held: new values that wait for inner containers to be closed: key, raw text.
    """

    frame: Frame
    size: int
    held: list[tuple[str, str]] = field(default_factory=list)


class Align:
    """Aligns a second document with committed values.

    Args:
        committed: text of the first document, ending right after a complete value.
    """

    def __init__(self, committed: str) -> None:
        first = JsonReader.after(committed)
        self._open = [_Open(frame, len(frame.value)) for frame in first.frames]
        self._compact = ", " not in committed and ": " not in committed
        self._reader = JsonReader()
        self._open_before: list[Frame] = []
        self._before: str | None = ""
        self._text: list[str] = []
        self._text_from = 0
        self._streaming: Path | None = None
        self._streamed_to = 0
        self._held_chars = 0

    @property
    def comma(self) -> str:
        """What stands between two values, as the committed text has it."""
        return "," if self._compact else ", "

    def feed(self, text: str) -> Passed:
        """Take the second document's next text.

        Args:
            text: any piece.

        Returns:
            Text that goes on after the committed values; or a fault.
        """
        if self._before is not None:
            text = self._unwrap(self._before + text)
            if len(self._before or "") > MAX_PROSE_CHARS:
                return Passed("", JsonFault("the answer is prose, not a JSON document"))
        if not text:
            return Passed("")
        out: list[str] = []
        try:
            # In pieces that close one container at most, so that every container of a value that
            # ends here is open before the piece or after it.
            for piece in _PIECES.findall(text):
                self._text.append(piece)
                self._open_before = list(self._reader.frames)
                for end in self._reader.feed(piece):
                    self._take(end, out)
        except JsonFault as fault:
            return Passed("".join(out), fault)
        return Passed("".join(out))

    def finish(self) -> Passed:
        """The second document is over."""
        if self._reader.complete:
            return Passed("")
        reason = "the continuation ended inside its document"
        if not self._reader.begun:
            reason = "the continuation holds no JSON document"
        return Passed("", JsonFault(reason, (), self._reader.offset))

    def _unwrap(self, text: str) -> str:
        opener = self._open[0].frame.opener if self._open else "{"
        at = text.find(opener)
        self._before = text if at < 0 else None
        return "" if at < 0 else text[at:]

    # -- one complete value of the second document ---------------------------------------------

    def _take(self, end: ValueEnd, out: list[str]) -> None:
        if not self._open:
            return  # the document is closed; what follows is a remark
        level = self._level(end.path)
        if level == len(end.path):
            self._close(level, end, out)
            return
        new = end.path[: level + 1]
        one = self._open[level]
        if isinstance(new[-1], str) is not (one.frame.opener == "{"):
            raise JsonFault("the continuation has another container there", new[:-1], end.start)
        if self._is_committed(one, new[-1]):
            self._check_type(one, end, new)
            self._drop_to(end.end)
        elif level == len(self._open) - 1:
            self._stream(one, end, new, out)
        elif len(end.path) == len(new):
            self._hold(one, end)

    def _level(self, path: Path) -> int:
        """Index of the innermost open container that holds a path, or that it is."""
        level = 0
        for step, one in zip(path, self._open[1:], strict=False):
            if one.frame.path[-1] != step:
                break
            level += 1
        return level

    def _is_committed(self, one: _Open, step: str | int) -> bool:
        return step in one.frame.value if isinstance(step, str) else step < one.size

    def _check_type(self, one: _Open, end: ValueEnd, path: Path) -> None:
        if len(end.path) != len(path):
            return
        theirs, ours = end.value, one.frame.value[path[-1]]
        if _kind(theirs) != _kind(ours):
            raise JsonFault(
                f"the continuation has {_kind(theirs)} where {_kind(ours)} was delivered",
                end.path,
                end.start,
            )

    # -- what goes out -------------------------------------------------------------------------

    def _stream(self, one: _Open, end: ValueEnd, path: Path, out: list[str]) -> None:
        """A new value of the innermost open container, or a value inside it: let it through."""
        if self._streaming is None:
            self._streaming = path
            self._streamed_to = self._start_of(end, path)
            out.append(self._separator(one, path[-1]))
        out.append(self._raw(self._streamed_to, end.end))
        self._streamed_to = end.end
        self._drop_to(end.end)
        if len(end.path) == len(path):
            self._streaming = None
            one.size += 1
            if isinstance(path[-1], str):
                one.frame.value[path[-1]] = end.value

    def _start_of(self, end: ValueEnd, path: Path) -> int:
        """Where the value at `path` begins, of which `end` is the first part to be complete."""
        if len(end.path) == len(path):
            return end.start
        frames = self._reader.frames
        frames = frames if len(frames) > len(path) else self._open_before
        return frames[len(path)].start

    def _hold(self, one: _Open, end: ValueEnd) -> None:
        raw = self._raw(end.start, end.end)
        self._held_chars += len(raw)
        if self._held_chars > MAX_HELD_CHARS:
            raise JsonFault("too much would have to wait for its turn", end.path, end.start)
        key = end.path[-1]
        assert isinstance(key, str)  # noqa: S101 - an array's new item follows all its open ones
        one.held.append((key, raw))
        self._drop_to(end.end)

    def _close(self, level: int, end: ValueEnd, out: list[str]) -> None:
        """The second document closes a container that is open in the first."""
        if level != len(self._open) - 1:
            inner = self._open[-1].frame.path
            raise JsonFault("the continuation lacks what was begun here", inner, end.end)
        one = self._open[-1]
        if not end.container or one.frame.opener != ("{" if isinstance(end.value, dict) else "["):
            raise JsonFault("the continuation has no such container", end.path, end.start)
        if one.frame.opener == "[" and len(end.value) < one.size:
            raise JsonFault(
                f"the continuation has {len(end.value)} items where {one.size} were delivered",
                end.path,
                end.start,
            )
        self._open.pop()
        out.append(one.frame.closer)
        self._drop_to(end.end)
        if self._open:
            self._open[-1].size += 1
            self._let_held_out(out)

    def _let_held_out(self, out: list[str]) -> None:
        one = self._open[-1]
        if one.frame.opener == "{":
            one.frame.value.setdefault(one.frame.key, None)
        for key, raw in one.held:
            out.append(self._separator(one, key) + raw)
            one.frame.value[key] = None
            one.size += 1
        one.held.clear()

    def _separator(self, one: _Open, step: str | int) -> str:
        comma = self.comma if one.size else ""
        if isinstance(step, int):
            return comma
        colon = ":" if self._compact else ": "
        return f"{comma}{_quoted(step)}{colon}"

    # -- the second document's text ------------------------------------------------------------

    def _raw(self, start: int, end: int) -> str:
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return self._text[0][start - self._text_from : end - self._text_from]

    def _drop_to(self, offset: int) -> None:
        text = "".join(self._text)
        self._text = [text[offset - self._text_from :]]
        self._text_from = offset


def _may_be_wrapping(text: str) -> bool:
    """Could more text make this a line to be taken off?"""
    line = text.partition("\n")[0]
    return len(text) <= MAX_WRAPPING_CHARS and "\n" not in text and not set(line) & set("[]{}")


def _quoted(key: str) -> str:
    """A key as JSON text. Half a surrogate pair stays an escape: no UTF-8 holds it."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return json.dumps(key)
    return json.dumps(key, ensure_ascii=False)


def _kind(value: Any) -> str:  # noqa: ANN401 - JSON is anything
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a truth value"}
    if value is None:
        return "null"
    return kinds.get(type(value), "a number")
