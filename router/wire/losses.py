"""What a request says and another format cannot: collected as it is found, each kind named once.

A format lists its fields in a table: those that a `Conversation` holds, and those that it does not,
with what becomes of them. A field in no such table is one of tomorrow: it may mean anything, so it
counts as something that was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.core.conversation import Loss
from router.wire.checks import Object, quote

_INDEX: Final = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unheld:
    """A field that a conversation has no place for.

    Args:
        message: what becomes of it, as a sentence.
        hint: the answer would be as good without it.
        idle: values that ask for nothing, beside null.
    """

    message: str
    hint: bool = False
    idle: tuple[Any, ...] = ()


class Losses:
    """The losses of one request.

    A history may hold the same thing a thousand times (a cache mark in each message): of each kind
    the first is kept, and kinds are bounded by what the code that calls this can say and by the
    names of unknown fields.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Loss] = {}

    def add(self, param: str, message: str, *, hint: bool = False) -> None:
        """Something is lost.

        Args:
            param: path of the client's field.
            message: what becomes of it, and why, as a sentence.
            hint: the answer would be as good without it.
        """
        if len(self._kept) < MAX_LOSSES:
            key = (_INDEX.sub("[]", param), message)
            self._kept.setdefault(key, Loss(param=param, message=message, hint=hint))

    def fields(
        self, holder: Object, held: frozenset[str], unheld: Mapping[str, Unheld], where: str = ""
    ) -> None:
        """What an object says beside the fields that are read.

        Args:
            holder: the client's object.
            held: names of the fields that are read elsewhere.
            unheld: what becomes of others.
            where: path of the object, "" for the body itself.
        """
        for name, value in holder.items():
            if value is None or name in held:
                continue
            row = unheld.get(name)
            param = f"{where}.{name}" if where else name
            if row is None:
                self.add(param, f"The field {quote(name)} is not known to other formats.")
            elif value not in row.idle:
                self.add(param, row.message, hint=row.hint)

    def all(self) -> tuple[Loss, ...]:
        """What was lost, in the order in which it was found."""
        return tuple(self._kept.values())


MAX_LOSSES: Final = 100
"""Bound on the losses of one request that are told apart: names of fields are a client's own."""

CACHE_MARK: Final = Unheld(message="Marks for a prompt cache are left out.", hint=True)
"""`cache_control` and its like, wherever it stands."""
