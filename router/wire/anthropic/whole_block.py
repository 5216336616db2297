"""A content block that is passed on whole, when it stops: what a provider's own tool was asked and
what it brought, thoughts that are sealed, and whatever the format may get beside."""

from __future__ import annotations

from typing import Any

from router.errors import MalformedStream
from router.wire.anthropic.tool_input import read_input
from router.wire.jsontext import Json
from router.wire.streams import check_depth

MAX_HELD_CHARS = 1_048_576
"""Bound on the deltas of one block."""


class WholeBlock:
    """One block, growing.

    Args:
        started: the block as it started.
    """

    __slots__ = ("_block", "_chars", "_input", "_texts")

    def __init__(self, started: dict[str, Any]) -> None:
        self._block = started
        self._input: list[str] = []
        self._texts: dict[str, list[str]] = {}
        self._chars = 0

    def add_input(self, piece: str) -> None:
        """The next piece of its input, which replaces the one that it started with.

        Args:
            piece: of a JSON text.

        Raises:
            MalformedStream: the block is too large.
        """
        self._hold(piece)
        self._input.append(piece)

    def grow(self, delta: dict[str, Any]) -> None:
        """Any other delta: texts are joined to what the block has, all else replaces it.

        Args:
            delta: as decoded.

        Raises:
            MalformedStream: the block is too large.
        """
        for name, value in delta.items():
            if name == "type":
                continue
            before = self._block.get(name)
            if isinstance(value, str) and (before is None or isinstance(before, str)):
                self._hold(value)
                self._texts.setdefault(name, [before or ""]).append(value)
            else:
                self._block[name] = value

    def value(self) -> Json:
        """The block as it is now.

        Raises:
            MalformedStream: it is nested too deep.
        """
        whole = self._block | {name: "".join(texts) for name, texts in self._texts.items()}
        if self._input:
            whole["input"] = read_input("".join(self._input))
        check_depth(whole)
        return whole

    def _hold(self, piece: str) -> None:
        self._chars += len(piece)
        if self._chars > MAX_HELD_CHARS:
            raise MalformedStream(f"A content block is larger than {MAX_HELD_CHARS} characters.")
