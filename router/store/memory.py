"""The record in this process's memory: for one worker, for tests, and when there is no Redis.

Bounded by records and bytes; the record that was touched longest ago goes first. It behaves as the
Redis store does (one contract test suite holds both to it), without a queue: what is committed is
there at once.
"""

from __future__ import annotations

import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from router.errors import RecordConflict, RecordNotFound
from router.store.backlog import Tally
from router.store.base import Record, RecordHead
from router.store.codec import checked_id, decode_meta, encode_meta, encode_text

MAX_RECORDS = 20_000
"""Records held: live streams of one process and the interrupted ones that may be resumed."""

MAX_BYTES = 256 << 20
"""Text held, in bytes of UTF-8."""

SPARE_DEADLINES = 1024
"""Deadlines of records that are gone, kept before the heap is swept (with as many again as there
are records): sweeping then costs nothing per record."""

TTL_S = 720.0
"""Seconds that an open record outlives its last commit: a whole request (600) and the window in
which it may be resumed (120)."""


@dataclass(slots=True, eq=False)
class _Entry:
    """One record. `parts` are joined when somebody reads."""

    head: RecordHead
    expires_at: float
    epoch: int = 1
    parts: list[str] = field(default_factory=list)
    chars: int = 0
    size: int = 0
    boundaries: int = 0
    outcome: str = ""
    stale: bool = False
    meta: bytes = b""
    writer: MemoryRecordWriter | None = None
    gone: bool = False


class MemoryRecordWriter:
    """One stream's writer; see `RecordWriter`.

    Args:
        store: where the record is.
        entry: the record.
    """

    __slots__ = ("_ended", "_entry", "_refused", "_store", "epoch", "fenced",
                 "on_fenced", "source")  # fmt: skip

    def __init__(self, store: MemoryRecordStore, entry: _Entry) -> None:
        self._store = store
        self._entry = entry
        self._ended = False
        self._refused = False
        self.epoch = entry.epoch
        self.fenced = False
        self.on_fenced: Callable[[], None] | None = None
        self.source: Callable[[], str] | None = None

    def commit(self, delta: str, *, at_chars: int, meta: Mapping[str, Any] | None = None) -> None:
        """Move the record to the next boundary; see `RecordWriter.commit`."""
        if self._ended or self.fenced:
            return
        if self._refused or at_chars != self._entry.chars:
            self._refused = True
            self._store.refuse(self._entry)
        else:
            self._store.append(self._entry, delta, meta)

    def close(self, outcome: str, *, keep_s: float) -> None:
        """The stream ended; see `RecordWriter.close`."""
        if not self._ended and not self.fenced:
            self._ended = True
            self._store.end(self._entry, outcome or "closed", keep_s)

    async def settled(self) -> None:
        """Nothing ever waits here; see `RecordWriter.settled`."""

    def fence(self) -> None:
        """A newer epoch took over."""
        if not self._ended:
            self.fenced = True
            if self.on_fenced:
                self.on_fenced()


class MemoryRecordStore:
    """Records in memory.

    Args:
        max_records: records held at most.
        max_bytes: text held at most, in bytes.
        ttl_s: seconds that an open record outlives its last commit.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        *,
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
        ttl_s: float = TTL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._tally = Tally()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0
        self._deadlines: list[tuple[float, int, _Entry]] = []
        self._deadline_seq = 0

    async def start(self) -> None:
        """Nothing to begin."""

    async def aclose(self) -> None:
        """Let go of every record."""
        for stream_id in tuple(self._entries):
            self._remove(stream_id)
        self._deadlines.clear()

    async def flushed(self) -> None:
        """Nothing ever waits here."""

    @property
    def lasting(self) -> bool:
        """They end with it."""
        return False

    @property
    def stats(self) -> Mapping[str, int]:
        """The counts; the queue is always empty."""
        held = {"records": len(self._entries), "record_bytes": self._bytes, "circuit_open": 0}
        return self._tally.as_dict() | {"queue_streams": 0, "queue_bytes": 0} | held

    @property
    def advice(self) -> Sequence[str]:
        """There is no backend."""
        return ()

    def open(self, head: RecordHead) -> MemoryRecordWriter:
        """Begin a record.

        Raises:
            ValueError: the head's id is no stream id.
        """
        stream_id = checked_id(head.stream_id)
        self._expire()
        self._remove(stream_id)
        entry = self._entries[stream_id] = _Entry(head, 0.0)
        entry.writer = writer = MemoryRecordWriter(self, entry)
        self._touch(entry, self._ttl_s)
        self._set_deadline(entry)
        self._shed()
        return writer

    async def load(self, stream_id: str) -> Record:
        """Read a record back; see `RecordStore.load`."""
        entry = self._find(stream_id)
        return Record(
            head=entry.head,
            epoch=entry.epoch,
            text="".join(entry.parts),
            boundaries=entry.boundaries,
            outcome=entry.outcome,
            stale=entry.stale,
            meta=decode_meta(stream_id, entry.meta),
        )

    async def takeover(
        self, stream_id: str, *, expected_epoch: int
    ) -> tuple[Record, MemoryRecordWriter]:
        """Become the owner; see `RecordStore.takeover`."""
        entry = self._find(stream_id)
        if entry.epoch != expected_epoch:
            raise RecordConflict(f"record {stream_id} is at epoch {entry.epoch}")
        record = replace(await self.load(stream_id), epoch=expected_epoch + 1)
        old, entry.epoch, entry.outcome = entry.writer, expected_epoch + 1, ""
        entry.writer = writer = MemoryRecordWriter(self, entry)
        self._touch(entry, self._ttl_s)
        self._set_deadline(entry)
        self._tally.fenced += 1
        if old:
            old.fence()
        return record, writer

    # For the writers.

    def append(self, entry: _Entry, delta: str, meta: Mapping[str, Any] | None) -> None:
        """Add a commit to a record, unless it is gone."""
        self._expire()
        if entry.gone:
            self._tally.commits_dropped += 1
            return
        if meta is not None:
            entry.meta = encode_meta(meta)
        if delta:
            self._add_text(entry, delta)
        self._touch(entry, self._ttl_s)
        self._shed()

    def refuse(self, entry: _Entry) -> None:
        """A commit that does not fit: the record keeps what it has, and says that it is stale."""
        self._tally.commits_refused += 1
        self._tally.stale += not entry.stale
        entry.stale = True

    def end(self, entry: _Entry, outcome: str, keep_s: float) -> None:
        """Close a record, unless it is gone."""
        self._expire()
        if entry.gone:
            return
        if keep_s <= 0:
            self._remove(entry.head.stream_id)
            return
        entry.outcome = outcome
        self._touch(entry, keep_s)
        self._set_deadline(entry)

    def _add_text(self, entry: _Entry, delta: str) -> None:
        size = len(encode_text(delta))
        entry.parts.append(delta)
        entry.chars += len(delta)
        entry.size += size
        entry.boundaries += 1
        entry.stale = False
        self._bytes += size
        self._tally.commits_queued += 1
        self._tally.commits_sent += 1

    # Time and space.

    def _find(self, stream_id: str) -> _Entry:
        self._expire()
        entry = self._entries.get(stream_id)
        if entry is None:
            raise RecordNotFound(f"no record of stream {stream_id[:128]!r}")
        return entry

    def _touch(self, entry: _Entry, life_s: float) -> None:
        entry.expires_at = self._clock() + life_s
        self._entries.move_to_end(entry.head.stream_id)

    def _set_deadline(self, entry: _Entry) -> None:
        self._deadline_seq += 1
        heapq.heappush(self._deadlines, (entry.expires_at, self._deadline_seq, entry))
        if len(self._deadlines) > 2 * len(self._entries) + SPARE_DEADLINES:
            self._deadlines = [item for item in self._deadlines if not item[2].gone]
            heapq.heapify(self._deadlines)

    def _expire(self) -> None:
        # A commit moves `expires_at` and leaves the heap alone: the entry is looked at when its
        # old deadline comes, and gets its new one then.
        now = self._clock()
        while self._deadlines and self._deadlines[0][0] <= now:
            entry = heapq.heappop(self._deadlines)[2]
            if entry.gone:
                continue
            if entry.expires_at <= now:
                self._remove(entry.head.stream_id)
            else:
                self._set_deadline(entry)

    def _shed(self) -> None:
        while len(self._entries) > self._max_records or self._bytes > self._max_bytes:
            self._tally.evicted += 1
            self._remove(next(iter(self._entries)))

    def _remove(self, stream_id: str) -> None:
        entry = self._entries.pop(stream_id, None)
        if entry is not None:
            self._bytes -= entry.size
            entry.gone = True
            entry.parts.clear()
            entry.writer = None
