"""Finding rows: which ones are wanted, and a walk through a ledger that is bounded."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from router.store.ledger import Leaf, Ledger

CHUNK_ROWS = 100
"""Rows read at once: looking through them holds the event loop for a millisecond, and every other
stream's token waits no longer than that."""

MAX_SCANNED_ROWS = 20_000
"""Rows looked through for one page; a search that found too little by then goes on from its
cursor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows are wanted; None leaves a question open.

    Args:
        stream_id: of this stream.
        route: of this route.
        target: with an attempt at this target.
        fault: with an attempt that ended so; with `target`, the same attempt.
        outcome: that ended so.
        since_s: that ended then or later, Unix time in seconds.
        until_s: that ended before then.
    """

    stream_id: str | None = None
    route: str | None = None
    target: str | None = None
    fault: str | None = None
    outcome: str | None = None
    since_s: float | None = None
    until_s: float | None = None

    def asks_for(self, row: RowBrief) -> bool:
        """Whether a row is wanted.

        Args:
            row: what is known of it.
        """
        return (
            self.stream_id in (None, row.stream_id)
            and self.route in (None, row.route)
            and self.outcome in (None, row.outcome)
            and (self.since_s is None or row.ended_unix_s >= self.since_s)
            and (self.until_s is None or row.ended_unix_s < self.until_s)
            and (
                (self.target is None and self.fault is None)
                or any(self._asks_for_attempt(one) for one in row.attempts)
            )
        )

    def _asks_for_attempt(self, entry: EntryBrief) -> bool:
        return self.target in (None, entry.target) and self.fault in (None, entry.fault)


class EntryBrief(msgspec.Struct):
    """As much of an entry as a search looks at.

    Args:
        target: name of the target.
        fault: kind of the fault, or None.
    """

    target: str
    fault: str | None


class RowBrief(msgspec.Struct):
    """As much of a row as a search looks at; the rest is not even decoded.

    Args:
        stream_id: its id.
        route: the public model name.
        outcome: how it ended.
        ended_unix_s: and when.
        attempts: every upstream call.
    """

    stream_id: str
    route: str
    outcome: str
    ended_unix_s: float
    attempts: tuple[EntryBrief, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of what was found.

    Args:
        rows: JSON, newest first.
        next: place to go on from, None at the end.
        scanned: rows that were looked through.
    """

    rows: tuple[bytes, ...]
    next: str | None
    scanned: int


async def search(
    ledger: Ledger,
    wanted: Wanted,
    *,
    before: str | None,
    limit: int,
    max_scanned: int = MAX_SCANNED_ROWS,
) -> Page:
    """Look for rows.

    Args:
        ledger: where.
        wanted: which.
        before: place to begin at, None for the newest.
        limit: how many at most.
        max_scanned: bound on the rows that are looked through.

    Raises:
        ValueError: no such place can be.
        RecordUnavailable: the ledger does not answer.
    """
    found: list[bytes] = []
    scanned = 0
    while True:
        leaves = await ledger.page(before, CHUNK_ROWS)
        for leaf in leaves:
            scanned += 1
            before = leaf.at
            if _fits(leaf, wanted):
                found.append(leaf.row)
            if len(found) == limit or scanned >= max_scanned:
                return Page(rows=tuple(found), next=before, scanned=scanned)
        if len(leaves) < CHUNK_ROWS:
            return Page(rows=tuple(found), next=None, scanned=scanned)


_decoder: msgspec.json.Decoder[RowBrief] = msgspec.json.Decoder(RowBrief)


def _fits(leaf: Leaf, wanted: Wanted) -> bool:
    if wanted.stream_id is not None and wanted.stream_id.encode() not in leaf.row:
        return False  # spares most rows the decoding
    try:
        return wanted.asks_for(_decoder.decode(leaf.row))
    except msgspec.DecodeError:
        return False  # another version's: passed over rather than mistaken
