"""Where rows are kept: newest first, bounded in rows and bytes, the oldest forgotten.

A row is JSON that the store does not look into. `MemoryLedger` holds those of this process;
`RedisLedger` (`ledger_redis.py`) those of every process that writes to the same Redis.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

MAX_ROWS = 10_000
"""Rows that are kept, unless the configuration says otherwise."""

MAX_BYTES = 64 << 20
"""Rows that are kept in this process, in bytes."""


class Leaf(NamedTuple):
    """A row and its place.

    Args:
        at: its place, as `page` takes it.
        row: JSON.
    """

    at: str
    row: bytes


class Ledger(Protocol):
    """A keeper of rows. One per process."""

    def add(self, row: bytes) -> None:
        """Keep a row. Does not wait.

        Args:
            row: JSON.
        """
        ...

    async def page(self, before: str | None, count: int) -> Sequence[Leaf]:
        """Read rows, newest first.

        Args:
            before: only rows older than the one at this place; None begins with the newest.
            count: how many at most.

        Returns:
            Fewer than `count` only when there are no older ones.

        Raises:
            ValueError: no such place can be.
            RecordUnavailable: the store does not answer.
        """
        ...

    async def aclose(self) -> None:
        """Write what waits (bounded wait), then let go of everything."""
        ...

    @property
    def stats(self) -> Mapping[str, int]:
        """Counters, and what is held or waits now."""
        ...


class MemoryLedger:
    """Rows of this process.

    Args:
        max_rows: bound on their number.
        max_bytes: bound on their size together; one row may exceed it alone.
    """

    def __init__(self, *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._rows: dict[int, bytes] = {}
        self._first = self._next = 0
        self._bytes = 0

    def add(self, row: bytes) -> None:
        """Keep a row; see `Ledger.add`."""
        self._rows[self._next] = row
        self._next += 1
        self._bytes += len(row)
        while len(self._rows) > 1 and (
            len(self._rows) > self._max_rows or self._bytes > self._max_bytes
        ):
            self._bytes -= len(self._rows.pop(self._first))
            self._first += 1

    async def page(self, before: str | None, count: int) -> Sequence[Leaf]:
        """Read rows; see `Ledger.page`."""
        end = self._next if before is None else min(_place(before), self._next)
        start = max(self._first, end - count)
        return [Leaf(str(at), self._rows[at]) for at in range(end - 1, start - 1, -1)]

    async def aclose(self) -> None:
        """Nothing to let go of."""

    @property
    def stats(self) -> Mapping[str, int]:
        """The counts."""
        return {
            "rows_written": self._next,
            "rows_forgotten": self._first,
            "held_rows": len(self._rows),
            "held_bytes": self._bytes,
        }


def _place(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError(text)
    return int(text)
