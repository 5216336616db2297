"""Server-sent events as the simulated provider writes them, with a dialect's quirks in them.

Written apart from `core/sse.py`, so that a mistake there is not repeated here and thereby hidden.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from router.simulate.dialect import Dialect


class Stream(Protocol):
    """Frames JSON values in the body of one stream."""

    @property
    def content_type(self) -> str:
        """Of the body."""
        ...

    def start(self) -> bytes:
        """What comes before the first value."""
        ...

    def event(self, value: Mapping[str, Any], name: str = "") -> bytes:
        """One value, under a name where the framing has any."""
        ...

    def cut(self, value: Mapping[str, Any], name: str = "") -> bytes:
        """A value that lost its last quarter."""
        ...

    def field(self, name: str, value: Mapping[str, Any]) -> bytes:
        """A value in a field of its own, where there should be `data`."""
        ...

    def comment(self) -> bytes:
        """A sign of life without a value."""
        ...

    def beat(self) -> bytes:
        """Called after each increment: the comment that is due now, or nothing."""
        ...

    def end(self) -> bytes:
        """What the framing itself puts after the last value."""
        ...


class EventStream:
    """One body of `text/event-stream`.

    Args:
        dialect: line ends, escapes, comments.
    """

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._line_end = dialect.line_end.encode()
        self._data = b"data:" if dialect.no_space else b"data: "
        self._beats = 0

    def start(self) -> bytes:
        """The byte order mark, if there is one."""
        return "\ufeff".encode() if self._dialect.bom else b""

    def event(self, value: Mapping[str, Any], name: str = "") -> bytes:
        """An event with JSON in it."""
        return self.text(encoded(value, self._dialect), name)

    def cut(self, value: Mapping[str, Any], name: str = "") -> bytes:
        """An event whose JSON lost its last quarter."""
        text = encoded(value, self._dialect)
        return self.text(text[: -len(text) // 4], name)

    def text(self, text: bytes, name: str = "") -> bytes:
        """An event with any text on its one line of data."""
        head = b"event: " + name.encode() + self._line_end if name else b""
        return head + self._data + text + self._line_end * 2

    def field(self, name: str, value: Mapping[str, Any]) -> bytes:
        """A line that the standard tells readers to ignore."""
        return name.encode() + b": " + encoded(value, self._dialect) + self._line_end * 2

    def comment(self) -> bytes:
        """A comment."""
        return b": keep-alive" + self._line_end * 2

    def beat(self) -> bytes:
        """A comment after every so many increments."""
        self._beats += 1
        every = self._dialect.comment_every
        return self.comment() if every and self._beats % every == 0 else b""

    def end(self) -> bytes:
        """Nothing."""
        return b""


def encoded(value: Mapping[str, Any], dialect: Dialect) -> bytes:
    """JSON, with everything beyond ASCII escaped where the dialect says so."""
    return json.dumps(value).encode() if dialect.ascii_json else msgspec.json.encode(value)
