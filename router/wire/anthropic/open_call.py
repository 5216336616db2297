"""The call whose block is open, and whether its arguments are whole.

Whether they are is only asked where something else comes in the middle of a call, and only brackets
are looked at then: to read every value of arguments of a megabyte would hold all other streams for
seconds.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from router.wire.jsontext import loads

MAX_KEPT_CHARS = 1_048_576
"""Bound on the arguments that are kept to tell whether they are JSON; of longer ones the brackets
alone are counted."""

CallKey: TypeAlias = tuple[int, bool]
"""Which call it is: its index, and whether it is of the old form."""

_OUTSIDE: Final = re.compile(r'["\[\]{}]')
_INSIDE: Final = re.compile(r'["\\]')
"""What counts outside of a string, and in one."""


class OpenCall:
    """One call, growing.

    Args:
        key: which call it is.
    """

    __slots__ = ("_chars", "_depth", "_escaped", "_in_string", "_kept", "_unread", "_whole", "key")

    def __init__(self, key: CallKey) -> None:
        self.key = key
        self._kept: list[str] = []  # all of the arguments, up to the bound
        self._unread: list[str] = []  # what came since somebody asked
        self._chars = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False  # the next character is a part of the string, whatever it is
        self._whole: bool | None = None  # None until their last bracket has come

    def follow(self, piece: str) -> None:
        """The next piece of the arguments."""
        if self._whole is not None:
            return
        self._chars += len(piece)
        self._unread.append(piece)
        if self._chars <= MAX_KEPT_CHARS:
            self._kept.append(piece)
        else:
            self._kept.clear()
            self.whole()

    def whole(self) -> bool:
        """Are they one JSON object? None that are empty, or no JSON: nobody can tell where such
        arguments end."""
        unread, self._unread = self._unread, []
        if self._whole is None and self._closes("".join(unread)):
            self._whole = self._is_json()
            self._kept.clear()
        return bool(self._whole)

    def _closes(self, text: str) -> bool:
        """Is the last open bracket closed in the next piece?"""
        at = 0
        if self._escaped and text:
            self._escaped, at = False, 1
        while found := (_INSIDE if self._in_string else _OUTSIDE).search(text, at):
            at, mark = found.end(), found.group()
            if mark == '"':
                self._in_string = not self._in_string
            elif mark == "\\":
                self._escaped = at == len(text)
                at += 1
            else:
                self._depth += 1 if mark in "[{" else -1
                if self._depth <= 0:
                    return True
        return False

    def _is_json(self) -> bool:
        if self._chars > MAX_KEPT_CHARS:
            return self._depth == 0
        try:
            loads("".join(self._kept).encode("utf-8", "surrogatepass"))
        except ValueError:
            return False
        return True
