"""Following one JSON document as its text arrives, and telling where values end.

`JsonReader` is a strict incremental reader of RFC 8259 that keeps offsets: it says after which
character a value is complete, at any depth. Strings end at their quote, numbers where their
delimiter begins, containers at their bracket. Whatever cannot be part of a document raises
`JsonFault`, as does a key that an object has already.

It is linear in the text for any split: a token that spans many pieces is kept as pieces and joined
once, and long runs are skipped by regular expressions.
"""

from __future__ import annotations

import json
import math
import re
import sys
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from router.errors import RouterError

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the root to a value."""

MAX_DEPTH = 128
"""Containers within containers; no schema that a model can follow is deeper."""

MAX_STRING_CHARS = 4 * 1024 * 1024
"""One string; the bound on what is held back until its quote."""

MAX_NUMBER_CHARS = 4096
"""One number, digits and all."""

MAX_SPACE_CHARS = 10_000
"""White space in a row, inside the document: a model that is held to JSON and has nothing to say is
known to send it without end."""

_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER_CHARS = re.compile(r"[-+0-9.eE]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS = {"t": "true", "f": "false", "n": "null"}
_HEX = frozenset("0123456789abcdefABCDEF")
_CLOSER = {"{": "}", "[": "]"}


class JsonFault(RouterError):
    """Text that is no JSON document, or not the one that was asked for.

    Args:
        reason: what is wrong, a clause.
        path: where in the document.
        offset: where in the text, in characters.
    """

    def __init__(self, reason: str, path: Path = (), offset: int = 0) -> None:
        self.reason = reason
        self.path = path
        self.offset = offset
        super().__init__(f"at {pointer(path)} (character {offset}): {reason}")


class ValueEnd(NamedTuple):
    """A value is complete.

    Args:
        path: where it stands.
        start: offset of its first character.
        end: offset after its last.
        value: as Python data.
        container: an object or array.
    """

    path: Path
    start: int
    end: int
    value: Any
    container: bool


def pointer(path: Path) -> str:
    """A path for people and machines (RFC 6901), "" being the whole document.

    Args:
        path: keys and indices.
    """
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return "".join(f"/{step}" for step in steps) or "the document"


class _Await(StrEnum):
    VALUE = "a value"
    VALUE_OR_END = "a value or `]`"
    KEY = "a key"
    KEY_OR_END = "a key or `}`"
    COLON = "`:`"
    COMMA_OR_END = "`,` or the end of the container"
    NOTHING = "nothing more"


class _Lex(StrEnum):
    STRUCTURE = "structure"
    STRING = "string"
    ESCAPE = "escape"
    HEX = "hex"
    NUMBER = "number"
    WORD = "word"


class Frame:
    """An open container.

    Args:
        opener: "{" or "[".
        path: where it stands.
        start: offset of its bracket.
    """

    __slots__ = ("key", "opener", "path", "start", "value")

    def __init__(self, opener: str, path: Path, start: int) -> None:
        self.opener = opener
        self.path = path
        self.start = start
        self.key: str = ""
        self.value: Any = {} if opener == "{" else []

    @property
    def closer(self) -> str:
        """The bracket that closes it."""
        return _CLOSER[self.opener]

    def child(self) -> Path:
        """Path of the value that is being read in it."""
        step = self.key if self.opener == "{" else len(self.value)
        return (*self.path, step)

    def take(self, value: Any) -> None:  # noqa: ANN401 - JSON is anything
        """A value in it is complete."""
        if self.opener == "{":
            self.value[self.key] = value
        else:
            self.value.append(value)


class JsonReader:
    """Reads one document.

    Args:
        max_depth: bound on nesting.
        max_string_chars: bound on one string.
    """

    def __init__(
        self, *, max_depth: int = MAX_DEPTH, max_string_chars: int = MAX_STRING_CHARS
    ) -> None:
        self.frames: list[Frame] = []
        self.offset = 0
        """Characters read so far."""
        self.value: Any = None
        """The document, once it is complete."""
        self.surplus = False
        """Text other than white space came after the document; it is not read."""
        self.ends: list[ValueEnd] = []
        """What the last `feed` completed, also if it raised."""
        self._max_depth = max_depth
        self._max_string_chars = max_string_chars
        self._await = _Await.VALUE
        self._lex = _Lex.STRUCTURE
        self._token: list[str] = []
        self._token_chars = 0
        self._token_start = 0
        self._space_chars = 0
        self._hex_left = 0
        self._word = ""
        self._is_key = False
        self._base = 0

    @property
    def complete(self) -> bool:
        """The document is whole."""
        return self._await is _Await.NOTHING

    @property
    def begun(self) -> bool:
        """More than white space was read."""
        return bool(self.frames) or self.complete or self._lex is not _Lex.STRUCTURE

    @property
    def closers(self) -> str:
        """The brackets that close what is open, if the text ends after a complete value."""
        return "".join(frame.closer for frame in reversed(self.frames))

    def feed(self, text: str) -> list[ValueEnd]:
        """Take the next piece of the text.

        Args:
            text: any piece.

        Returns:
            The values that it completes, in order.

        Raises:
            JsonFault: this cannot be.
        """
        ends: list[ValueEnd] = []
        self.ends = ends
        at, length = 0, len(text)
        self._base = self.offset
        while at < length:
            if self._await is _Await.NOTHING:
                self.surplus = self.surplus or _SPACE.fullmatch(text, at) is None
                break
            match self._lex:
                case _Lex.STRUCTURE:
                    at = self._structure(text, at, ends)
                case _Lex.STRING:
                    at = self._string(text, at, ends)
                case _Lex.NUMBER:
                    at = self._number(text, at, ends)
                case _:
                    at = self._letter(text, at, ends)
        self.offset += length
        return ends

    @classmethod
    def after(cls, committed: str) -> JsonReader:
        """A reader that has read a committed text, which ends right after a complete value.

        A number at its end is known to be whole: its delimiter was seen before it was committed.

        Args:
            committed: from a `JsonGate`.
        """
        reader = cls()
        reader.feed(committed)
        reader._base = reader.offset
        if reader._lex is _Lex.NUMBER:
            reader._end_number(0, [])
        return reader

    def end(self) -> list[ValueEnd]:
        """The text is over: a number at the top is complete now.

        Returns:
            That value, if it is one.

        Raises:
            JsonFault: the number is none.
        """
        ends: list[ValueEnd] = []
        self._base = self.offset
        if self._lex is _Lex.NUMBER and not self.frames:
            self._end_number(0, ends)
        return ends

    # -- tokens --------------------------------------------------------------------------------

    def _begin(self, lex: _Lex, at: int) -> None:
        self._lex = lex
        self._token = []
        self._token_chars = 0
        self._token_start = self._base + at

    def _keep(self, piece: str, at: int) -> None:
        self._token.append(piece)
        self._token_chars += len(piece)
        bound = MAX_NUMBER_CHARS if self._lex is _Lex.NUMBER else self._max_string_chars
        if self._token_chars > bound:
            raise self._fault(f"a {self._lex} of more than {bound} characters", at)

    def _string(self, text: str, at: int, ends: list[ValueEnd]) -> int:
        found = _PLAIN.match(text, at)
        assert found is not None  # noqa: S101 - it matches nothing, too
        stop = found.end()
        if stop > at:
            self._keep(found.group(), stop)
        if stop == len(text):
            return stop
        char = text[stop]
        if char == "\\":
            self._keep(char, stop)
            self._lex = _Lex.ESCAPE
        elif char == '"':
            self._end_string(stop + 1, ends)
        else:
            raise self._fault("a control character inside a string", stop)
        return stop + 1

    def _letter(self, text: str, at: int, ends: list[ValueEnd]) -> int:
        """One character of an escape, of `\\uXXXX`, or of a word."""
        char = text[at]
        if self._lex is _Lex.WORD:
            return self._word_letter(char, at, ends)
        self._keep(char, at)
        if self._lex is _Lex.HEX:
            if char not in _HEX:
                raise self._fault("a bad `\\u` escape", at)
            self._hex_left -= 1
            if not self._hex_left:
                self._lex = _Lex.STRING
        elif char == "u":
            self._lex = _Lex.HEX
            self._hex_left = 4
        elif char in '"\\/bfnrt':
            self._lex = _Lex.STRING
        else:
            raise self._fault(f"an unknown escape `\\{char}`", at)
        return at + 1

    def _word_letter(self, char: str, at: int, ends: list[ValueEnd]) -> int:
        if char != self._word[self._token_chars]:
            raise self._fault(f"something that is not `{self._word}`", at)
        self._token_chars += 1
        if self._token_chars == len(self._word):
            self._lex = _Lex.STRUCTURE
            value = {"true": True, "false": False, "null": None}[self._word]
            self._complete(value, self._token_start, at + 1, ends)
        return at + 1

    def _number(self, text: str, at: int, ends: list[ValueEnd]) -> int:
        found = _NUMBER_CHARS.match(text, at)
        assert found is not None  # noqa: S101 - it matches nothing, too
        stop = found.end()
        if stop > at:
            self._keep(found.group(), stop)
        if stop < len(text):
            if text[stop] not in " \t\n\r,]}":
                raise self._fault("something that ends no number", stop)
            self._end_number(stop, ends)
        return stop

    def _end_number(self, at: int, ends: list[ValueEnd]) -> None:
        raw = "".join(self._token)
        if not _NUMBER.fullmatch(raw):
            raise self._fault(f"`{raw[:40]}` is no number", at)
        self._lex = _Lex.STRUCTURE
        self._complete(number_value(raw), self._token_start, at, ends)

    def _end_string(self, at: int, ends: list[ValueEnd]) -> None:
        value: str = json.loads(f'"{"".join(self._token)}"')
        self._lex = _Lex.STRUCTURE
        if not self._is_key:
            self._complete(value, self._token_start, at, ends)
            return
        frame = self.frames[-1]
        if value in frame.value:
            frame.key = value
            raise self._fault("the object has this key already", at)
        frame.key = value
        self._is_key = False
        self._await = _Await.COLON

    # -- structure -----------------------------------------------------------------------------

    def _structure(self, text: str, at: int, ends: list[ValueEnd]) -> int:
        found = _SPACE.match(text, at)
        assert found is not None  # noqa: S101 - it matches nothing, too
        if found.end() == len(text):
            self._space_chars += found.end() - at
            if self._space_chars > MAX_SPACE_CHARS:
                raise self._fault(f"more than {MAX_SPACE_CHARS} characters of white space", at)
            return found.end()
        self._space_chars = 0
        at = found.end()
        char = text[at]
        match self._await:
            case _Await.VALUE | _Await.VALUE_OR_END:
                self._value(char, at, ends)
            case _Await.KEY | _Await.KEY_OR_END:
                self._key(char, at, ends)
            case _Await.COLON if char == ":":
                self._await = _Await.VALUE
            case _Await.COMMA_OR_END:
                self._comma_or_end(char, at, ends)
            case _:
                raise self._unexpected(char, at)
        return at + 1

    def _value(self, char: str, at: int, ends: list[ValueEnd]) -> None:
        if char == '"':
            self._begin(_Lex.STRING, at)
        elif char in _CLOSER:
            self._open(char, at)
        elif char in _WORDS:
            self._begin(_Lex.WORD, at)
            self._word = _WORDS[char]
            self._token_chars = 1
        elif char == "-" or ("0" <= char <= "9"):
            self._begin(_Lex.NUMBER, at)
            self._keep(char, at)
        elif char == "]" and self._await is _Await.VALUE_OR_END:
            self._close(at, ends)
        else:
            raise self._unexpected(char, at)

    def _key(self, char: str, at: int, ends: list[ValueEnd]) -> None:
        if char == '"':
            self._begin(_Lex.STRING, at)
            self._is_key = True
        elif char == "}" and self._await is _Await.KEY_OR_END:
            self._close(at, ends)
        else:
            raise self._unexpected(char, at)

    def _comma_or_end(self, char: str, at: int, ends: list[ValueEnd]) -> None:
        frame = self.frames[-1]
        if char == ",":
            self._await = _Await.KEY if frame.opener == "{" else _Await.VALUE
        elif char == frame.closer:
            self._close(at, ends)
        else:
            raise self._unexpected(char, at)

    def _open(self, char: str, at: int) -> None:
        if len(self.frames) >= self._max_depth:
            raise self._fault(f"more than {self._max_depth} containers within each other", at)
        self.frames.append(Frame(char, self._here(), self._base + at))
        self._await = _Await.KEY_OR_END if char == "{" else _Await.VALUE_OR_END

    def _close(self, at: int, ends: list[ValueEnd]) -> None:
        frame = self.frames.pop()
        self._complete(frame.value, frame.start, at + 1, ends, container=True)

    def _complete(
        self,
        value: Any,  # noqa: ANN401 - JSON is anything
        start: int,
        at: int,
        ends: list[ValueEnd],
        *,
        container: bool = False,
    ) -> None:
        ends.append(ValueEnd(self._here(), start, self._base + at, value, container))
        if self.frames:
            self.frames[-1].take(value)
            self._await = _Await.COMMA_OR_END
        else:
            self.value = value
            self._await = _Await.NOTHING

    def _here(self) -> Path:
        return self.frames[-1].child() if self.frames else ()

    def _unexpected(self, char: str, at: int) -> JsonFault:
        return self._fault(f"`{char}` where {self._await.value} should be", at)

    def _fault(self, reason: str, at: int) -> JsonFault:
        return JsonFault(reason, self._here(), self._base + at)


def number_value(raw: str) -> int | float:
    """A number as Python data, for validation; its text is what is delivered.

    Args:
        raw: as RFC 8259 writes it.

    Returns:
        An int or a float; what no float can hold becomes the int it is, or the largest float.
    """
    if not any(char in raw for char in ".eE"):
        # Python's own limit on digits is lower than ours: such a number validates as a float.
        return int(raw) if len(raw) < sys.int_info.default_max_str_digits else _huge(raw)
    value = float(raw)
    if math.isfinite(value):
        return value
    return _huge(raw)


def _huge(raw: str) -> float:
    return -sys.float_info.max if raw.startswith("-") else sys.float_info.max
