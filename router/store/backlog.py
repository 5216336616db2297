"""What one stream still has to tell the store: a pure state machine, no I/O.

Everything that waits is coalesced into one `Write`, so however much piles up, a stream costs one
command. One write is under way at a time and is repeated exactly as it was until it is answered:
the store recognises a repetition, so a lost reply does no harm. Committed text that was answered
is not kept; how the waiting text relates to what the store holds is a `Fit`:

    FOLLOWS --drop, refused commit--> UNKNOWN --marked, no source--> MARKED
       ^  \\--store holds less--> BEHIND <--marked, source-- UNKNOWN
       \\--caught up-- BEHIND

A stream that lost text is first marked stale in the store. If its owner gave a `source` (a way to
ask for the whole committed text), that is then put in the place of what is there, and the mark
taken off: whole, as what is sealed frame by frame can only be read from its first frame on.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from router.store.base import Record, RecordHead
from router.store.codec import encode_head, encode_meta, encode_text
from router.store.envelope import Envelope, Plain

WHEREVER = -1
"""`Write.at_chars` of a write that only marks the record stale (and may close it)."""

MAX_RECOVERIES = 3
"""Attempts to catch up that may be refused in a row before the record is left marked stale."""

FENCED, MISSING, FOREIGN, REFUSED = -1, -2, -3, -4
"""Answers below zero: a newer epoch; no such record; not ours to touch; the store will not."""
MISMATCH = -10
"""`MISMATCH - n`: the record holds `n` characters, which is not where the write begins."""


class Fit(Enum):
    """How the text that waits relates to the text that the store holds."""

    FOLLOWS = "follows"
    UNKNOWN = "unknown"
    BEHIND = "behind"
    MARKED = "marked"


class Write(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One command to the store.

    Args:
        stream_id: whose record.
        epoch: the writer's fencing number.
        writer: the number that tells it from another one to whom the same epoch was given.
        head: the head, wrapped, if the record may have to be created, else empty.
        seal: name of the seal of a record that is created, "" for none.
        at_chars: characters that the record must hold, or `WHEREVER`.
        at_bytes: the same in bytes, as they are stored.
        delta: text to append, wrapped.
        plain: the same as it was, kept for as long as the store may say that the record is gone.
        anew: `delta` is the whole text, in the place of what is there.
        chars: characters that the owner has committed with this.
        boundaries: commits so far, these included.
        meta: facts, wrapped, or empty to leave them.
        outcome: how the stream ended, or "".
        keep_ms: milliseconds that a closed record is kept; 0 deletes it.
        mends: the record is whole with this; a stale mark is taken off. Others leave the mark, so
            that an older command that arrives late cannot take it off.
        repeated: an earlier command of this stream may still arrive, so a deletion must leave a
            tombstone for it to fail at.
        commits: commits that were merged into this.
    """

    stream_id: str
    epoch: int
    writer: str
    head: bytes
    seal: str
    at_chars: int
    at_bytes: int
    delta: bytes
    plain: bytes
    anew: bool
    chars: int
    boundaries: int
    meta: bytes
    outcome: str
    keep_ms: int
    mends: bool
    repeated: bool
    commits: int


@dataclass(slots=True)
class Tally:
    """Counts of one store, since it started.

    Args:
        commits_queued: commits accepted.
        commits_sent: commits that the store has confirmed.
        commits_dropped: commits whose text was lost to overflow, or came after such a loss.
        commits_moot: commits that were still waiting when their stream completed.
        commits_refused: commits that did not fit the committed length: a bug in the caller.
        commands: commands confirmed.
        stale: times that a record was left behind.
        recovered: times that a record caught up again.
        records_behind: records that are stale just now, of streams that may still mend them.
        fenced: writers that met a newer epoch.
        foreign: writers whose key held what is not ours, or that the store refuses.
        failures: batches that failed or timed out.
        reconnects: times that the store answered again after failures.
        forgotten: streams put out of a full queue.
        evicted: records put out of a full memory.
        deferred: commands that the store could not take just then, of batches whose others it took.
        reads_failed: reads that the store did not answer.
        reads_refused: reads that were not tried, as those before them had failed.
        circuit_trips: times that reads began to be refused.
    """

    commits_queued: int = 0
    commits_sent: int = 0
    commits_dropped: int = 0
    commits_moot: int = 0
    commits_refused: int = 0
    commands: int = 0
    stale: int = 0
    recovered: int = 0
    records_behind: int = 0
    fenced: int = 0
    foreign: int = 0
    failures: int = 0
    reconnects: int = 0
    forgotten: int = 0
    evicted: int = 0
    deferred: int = 0
    reads_failed: int = 0
    reads_refused: int = 0
    circuit_trips: int = 0

    def as_dict(self) -> dict[str, int]:
        """Name to count."""
        return {name: getattr(self, name) for name in self.__slots__}


def new_writer() -> str:
    """A number for a writer: 64 random bits."""
    return secrets.token_hex(8)


class Backlog:
    """One stream under one epoch, as seen from its owner's side of the wire.

    Args:
        head: what was known at opening.
        tally: the store's counts.
        envelope: wraps what is sent; of a record that was taken over, at the end of its text.
        writer: the writer's number, as the takeover left it in the record; a new one by default.
        resumed: the record that was taken over, or None for a new one.
    """

    __slots__ = (
        "_commits", "_create", "_end", "_envelope", "_fit",
        "_from_chars", "_head", "_held", "_mends", "_meta", "_meta_due",
        "_parts", "_recoveries", "_repeated", "_size", "_tally", "_under_way", "boundaries",
        "chars", "epoch", "fenced", "head", "on_fenced", "on_wire", "over", "source", "weight",
        "writer",
    )  # fmt: skip

    def __init__(
        self,
        head: RecordHead,
        tally: Tally,
        *,
        envelope: Envelope | None = None,
        writer: str | None = None,
        resumed: Record | None = None,
    ) -> None:
        self.head = head
        self.writer = writer or new_writer()
        self._envelope = envelope or Plain()
        self._head = self._envelope.wrap("head", encode_head(head))
        self._tally = tally
        self.epoch = resumed.epoch if resumed else 1
        self.chars = self._from_chars = len(resumed.text) if resumed else 0
        self.boundaries = resumed.boundaries if resumed else 0
        self._create = resumed is None
        self._mends = resumed is not None and resumed.stale
        self._fit = Fit.FOLLOWS
        self._held = 0
        self._recoveries = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._commits = 0
        self._meta = b""
        self._meta_due = False
        self._end: tuple[str, int] | None = None
        self._under_way: Write | None = None
        self._repeated = False
        self.on_wire = False
        self.weight = 0
        self.over = False
        self.fenced = False
        self.on_fenced: Callable[[], None] | None = None
        self.source: Callable[[], str] | None = None

    @property
    def has_work(self) -> bool:
        """Whether `take` would give something."""
        return not self.over and bool(
            self._under_way
            or self._parts
            or self._end
            or self._create
            or self._fit in (Fit.UNKNOWN, Fit.BEHIND)
            or (self._meta_due and self._fit is Fit.FOLLOWS)
        )

    @property
    def waiting_bytes(self) -> int:
        """Text held here and not on the wire at this moment."""
        if self._under_way is None or self.on_wire:
            return self._size
        return self._size + len(self._under_way.delta)

    # What the owner says.

    def commit(self, delta: str, at_chars: int, meta: Mapping[str, Any] | None) -> None:
        """The owner moved to its next boundary; see `RecordWriter.commit`."""
        if self.over or self._end:
            return
        if at_chars != self.chars:
            self._refuse()
            return
        if meta is not None:
            self._meta, self._meta_due = encode_meta(meta), True
        if delta:
            self._append(delta)

    def close(self, outcome: str, keep_s: float) -> None:
        """The stream ended; see `RecordWriter.close`."""
        if self.over or self._end:
            return
        self._end = (outcome or "closed", max(0, round(keep_s * 1000)))
        if self._end[1] == 0:
            self._tally.commits_moot += self._commits
            self._forget_text()
            if self._create and self._under_way is None and not self._repeated:
                self._retire()

    def drop(self) -> None:
        """Give up the text that waits, to make room; the record will be marked stale."""
        lost = self._commits
        if self._under_way and not self.on_wire:
            lost += self._under_way.commits
            self._under_way = None
            self._repeated = True
            self._meta_due = bool(self._meta)
        if lost:
            self._lose(Fit.UNKNOWN, commits=lost)

    def put_out(self) -> None:
        """There is no more room for this stream: it waits no longer, until it has news."""
        self.drop()
        if self._end and not self.on_wire:
            self._retire()

    # What goes to the store.

    def take(self) -> Write | None:
        """The next write: the one under way again, or all that waits as one; None for nothing."""
        if self._under_way:
            self._repeated = True
        elif self.has_work:
            self._under_way = self._next()
            self._forget_text()
        return self._under_way

    def settle(self, answer: int) -> None:
        """The store answered the write under way.

        Args:
            answer: characters that the record holds now, or one of the codes below zero.
        """
        write = self._under_way
        assert write is not None, "an answer to no question"  # noqa: S101 - a bug, never weather
        self._under_way = None
        self._tally.commands += 1
        if answer >= 0:
            self._confirmed(write, answer)
        elif answer == MISSING:
            self._missing(write)
        elif answer <= MISMATCH:
            self._fell_behind(MISMATCH - answer, write.commits)
        else:
            self._turned_away(write, fenced=answer == FENCED)

    def _next(self) -> Write:
        if self._end and self._end[1] == 0:
            return self._write(WHEREVER, b"")
        if self._fit is Fit.BEHIND:
            return self._catch_up()
        if self._fit is Fit.FOLLOWS:
            write = self._write(self._from_chars, b"".join(self._parts))
            self._from_chars = self.chars
            return write
        can_mend = self._fit is Fit.UNKNOWN and self.source is not None
        return self._write(WHEREVER, b"", closing=not can_mend)

    def _write(
        self, at_chars: int, text: bytes, *, anew: bool = False, closing: bool = True
    ) -> Write:
        outcome, keep_ms = self._end if self._end and closing else ("", 0)
        appends = at_chars != WHEREVER
        due = appends and (self._meta_due or self._create)
        self._meta_due = False
        if anew or at_chars == 0:
            self._envelope.restart()
        at_bytes = self._envelope.size
        return Write(
            stream_id=self.head.stream_id,
            epoch=self.epoch,
            writer=self.writer,
            head=self._head if self._create else b"",
            seal=self._envelope.seal,
            at_chars=at_chars,
            at_bytes=at_bytes,
            delta=self._envelope.append(text),
            plain=text,
            anew=anew,
            chars=self.chars,
            boundaries=self.boundaries,
            meta=self._envelope.wrap("meta", self._meta) if due and self._meta else b"",
            outcome=outcome,
            keep_ms=keep_ms,
            mends=self._fit is Fit.BEHIND or (self._mends and bool(text)),
            repeated=self._repeated,
            commits=self._commits,
        )

    def _catch_up(self) -> Write:
        text = self._ask_source()
        if len(text) < self.chars:
            self.source, self._fit = None, Fit.UNKNOWN
            return self._write(WHEREVER, b"")
        self._meta_due = bool(self._meta)
        return self._write(self._held, encode_text(text), anew=True)

    def _ask_source(self) -> str:
        try:
            return self.source()[: self.chars] if self.source else ""
        except Exception:  # noqa: BLE001 - the owner's code; its stream's record is then stale
            return ""

    # What the answers mean.

    def _confirmed(self, write: Write, held: int) -> None:
        self._create = False
        if write.outcome:
            self._tally.commits_sent += write.commits
            self._finish()
        elif write.at_chars == WHEREVER:
            self._fell_behind(held, 0)
        else:
            self._appended(write)

    def _appended(self, write: Write) -> None:
        self._tally.commits_sent += write.commits
        self._recoveries = 0
        self._mends = self._mends and not write.delta
        if self._fit is not Fit.BEHIND:
            return
        self._held = write.chars
        if write.chars == self.chars:
            self._fit = Fit.FOLLOWS
            self._tally.recovered += 1
            self._tally.records_behind -= 1
            self._from_chars = self.chars

    def _missing(self, write: Write) -> None:
        self._create = True
        if self._fit is Fit.FOLLOWS and write.at_chars == 0:
            self._parts.insert(0, write.plain)
            self._size += len(write.plain)
            self._commits += write.commits
            self._from_chars = 0
        else:
            fit = Fit.BEHIND if self.source else Fit.UNKNOWN
            self._lose(fit, commits=self._commits + write.commits)

    def _fell_behind(self, held: int, commits: int) -> None:
        self._create = False
        self._recoveries += 1
        if held > self.chars or self._recoveries > MAX_RECOVERIES:
            self.source = None
        fit = Fit.BEHIND if self.source else Fit.MARKED
        self._lose(fit, held=held, commits=self._commits + commits)

    def _turned_away(self, write: Write, *, fenced: bool) -> None:
        self.fenced = fenced
        self._tally.fenced += fenced
        self._tally.foreign += not fenced
        self._tally.commits_dropped += self._commits + write.commits
        self._finish()

    def _lose(self, fit: Fit, *, commits: int, held: int = 0) -> None:
        self._tally.stale += self._fit is Fit.FOLLOWS
        self._tally.records_behind += self._fit is Fit.FOLLOWS
        self._tally.commits_dropped += commits
        self._forget_text()
        self._fit, self._held = fit, held

    def _finish(self) -> None:
        self._retire()
        self._forget_text()
        self.source = None

    def _retire(self) -> None:
        """Nothing more is to be told of this stream."""
        self.over = True
        self._tally.records_behind -= self._fit is not Fit.FOLLOWS
        self._fit = Fit.FOLLOWS

    # Small bookkeeping.

    def _append(self, delta: str) -> None:
        at_chars = self.chars
        self.chars += len(delta)
        self.boundaries += 1
        self._tally.commits_queued += 1
        if self._fit is Fit.FOLLOWS:
            part = encode_text(delta)
            self._parts.append(part)
            self._size += len(part)
            self._commits += 1
        else:
            self._tally.commits_dropped += 1
            if self._fit is Fit.MARKED and self._held >= at_chars:
                self._fit = Fit.UNKNOWN  # the mark found nothing missing then; now it will

    def _refuse(self) -> None:
        self._tally.commits_refused += 1
        if self.source is None and self._fit is not Fit.FOLLOWS:
            return
        self.source = None
        self.chars += 1  # beyond whatever the record will hold, so that it is marked
        self._lose(Fit.UNKNOWN, commits=self._commits)

    def _forget_text(self) -> None:
        self._parts.clear()
        self._size = self._commits = 0
