"""The books themselves: an observer that makes one row of every request and hands it to all.

The counters are among those who are handed it, so they cannot disagree with what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from router.books.rows import Row, encode, row_of
from router.books.search import Page, Wanted, search
from router.engine.observe import Detail, StreamEnded
from router.errors import RecordUnavailable
from router.store.ledger import Ledger, MemoryLedger

OWN, SHARED = "own", "all"
"""Before a cursor: in whose books it is a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found, and where.

    Args:
        rows: JSON, newest first.
        cursor: to go on from, None at the end.
        scanned: rows that were looked through.
        shared: it is everybody's books that were looked through, not only this process's.
    """

    rows: tuple[bytes, ...]
    cursor: str | None
    scanned: int
    shared: bool


class Books:
    """One process's books.

    Args:
        own: keeps this process's rows.
        shared: keeps every process's, or None.
        counters: told every row.
        replica: name of this process, for the rows.
    """

    def __init__(
        self,
        own: MemoryLedger | None = None,
        *,
        shared: Ledger | None = None,
        counters: Sequence[Callable[[Row], None]] = (),
        replica: str = "",
    ) -> None:
        self._own = own or MemoryLedger()
        self._shared = shared
        self._counters = tuple(counters)
        self._replica = replica

    def __call__(self, detail: Detail) -> None:
        """Enter a request that is over; an `Observer`.

        Args:
            detail: what happened.
        """
        if type(detail) is not StreamEnded:
            return
        row = row_of(detail.report, replica=self._replica)
        for count in self._counters:
            count(row)
        data = encode(row)
        self._own.add(data)
        if self._shared is not None:
            self._shared.add(data)

    @property
    def stats(self) -> Mapping[str, int]:
        """Counters, and what is held or waits now."""
        shared = self._shared.stats if self._shared is not None else {}
        return {**self._own.stats, **shared}

    async def find(self, wanted: Wanted, *, cursor: str | None, limit: int) -> Found:
        """Look for rows: in everybody's books if there are any and they answer, else in our own.

        Args:
            wanted: which.
            cursor: of an earlier answer, None for the newest rows.
            limit: how many at most.

        Raises:
            ValueError: that is no cursor.
            RecordUnavailable: the cursor is a place in everybody's books, and they do not answer.
        """
        where, _, place = (cursor or "").partition(":")
        if cursor is not None and (where not in (OWN, SHARED) or not place):
            raise ValueError(cursor)
        if self._shared is None and where == SHARED:
            raise ValueError(cursor)
        if self._shared is not None and where != OWN:
            try:
                page = await search(self._shared, wanted, before=place or None, limit=limit)
                return _found(page, SHARED)
            except RecordUnavailable:
                if cursor is not None:
                    raise
        return _found(await search(self._own, wanted, before=place or None, limit=limit), OWN)

    async def aclose(self) -> None:
        """Write what waits, and let go of everything."""
        if self._shared is not None:
            await self._shared.aclose()


def _found(page: Page, where: str) -> Found:
    return Found(
        rows=page.rows,
        cursor=None if page.next is None else f"{where}:{page.next}",
        scanned=page.scanned,
        shared=where == SHARED,
    )
