"""A stream without `alt=sse`: one JSON array that grows.

Source: https://cloud.google.com/apis/docs/system-parameters
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.simulate.dialect import Dialect
from router.simulate.sse import encoded


class ArrayStream:
    """One body that is a JSON array.

    Args:
        dialect: escapes; nothing else of it has a place here.
    """

    content_type = "application/json; charset=UTF-8"

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._begun = False

    def start(self) -> bytes:
        """Nothing: the bracket comes with the first value."""
        return b""

    def event(self, value: Mapping[str, Any], _name: str = "") -> bytes:
        """The next item."""
        return self._before() + encoded(value, self._dialect)

    def cut(self, value: Mapping[str, Any], _name: str = "") -> bytes:
        """An item that lost its last quarter."""
        text = encoded(value, self._dialect)
        return self._before() + text[: -len(text) // 4]

    def field(self, name: str, value: Mapping[str, Any]) -> bytes:
        """An item of its own."""
        return self.event({name: value})

    def comment(self) -> bytes:
        """White space."""
        return b"\r\n"

    def beat(self) -> bytes:
        """Nothing."""
        return b""

    def end(self) -> bytes:
        """The closing bracket."""
        return (b"" if self._begun else b"[") + b"]"

    def _before(self) -> bytes:
        mark = b",\r\n" if self._begun else b"["
        self._begun = True
        return mark
