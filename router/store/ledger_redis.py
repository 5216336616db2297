"""Rows in Redis: every process appends to one stream, written behind everybody's back.

A batch is written by a script that remembers the writer's last batch, so one that is repeated
because its answer was lost is not written twice. With Redis away rows wait, bounded; beyond the
bound the oldest are dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import secrets
from collections import deque
from collections.abc import Mapping, Sequence

from router.errors import RecordUnavailable
from router.store.ledger import MAX_ROWS, Leaf
from router.store.redis import RedisLink
from router.store.scripts import Script
from router.store.writebehind import QueueLimits, pause

KEY = "router-{books}"
"""The stream of rows. The braces keep it and the writers' keys on one slot of a Cluster, and the
dash keeps them apart from records."""

KEEP_S = 604_800.0
"""How long a row is kept, in seconds, unless the configuration says otherwise: a week."""

MAX_BATCH_ROWS = 64
MAX_BATCH_BYTES = 1 << 20
"""Bounds on what is sent together (one row may exceed the second alone)."""

WRITER_MEMORY_S = 86_400
"""How long Redis remembers a writer's last batch after it."""

WAITING = QueueLimits(max_bytes=16 << 20, max_streams=5_000)
"""Bounds on what waits for Redis: bytes, and rows (its `max_streams`)."""

_WRITE = Script("""
local rows, writer = KEYS[1], KEYS[2]
local number, max_rows, keep_ms, memory_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('GET', writer) == number then return 0 end
local now = redis.call('TIME')
local oldest = now[1] * 1000 + math.floor(now[2] / 1000) - keep_ms
for i = 5, #ARGV do
  redis.call('XADD', rows, 'MAXLEN', '~', max_rows, '*', 'row', ARGV[i])
end
redis.pcall('XTRIM', rows, 'MINID', '~', string.format('%.0f', oldest))
redis.call('PEXPIRE', rows, keep_ms)
redis.call('SET', writer, number, 'PX', memory_ms)
return #ARGV - 4
""")
"""Before Redis 6.2 there is no MINID: rows then go by their number, or with the whole stream."""


class RedisLedger:
    """Rows of every process that writes to one Redis.

    Args:
        link: connections to it; closed with the ledger.
        max_rows: bound on their number; Redis keeps some more, a node of its stream at most.
        keep_s: how long a row is kept, in seconds.
        limits: bounds and times of the queue.
        rng: where jitter comes from.
    """

    def __init__(
        self,
        link: RedisLink,
        *,
        max_rows: int = MAX_ROWS,
        keep_s: float = KEEP_S,
        limits: QueueLimits = WAITING,
        rng: random.Random | None = None,
    ) -> None:
        self._link = link
        self._max_rows = max_rows
        self._keep_ms = round(keep_s * 1000)
        self._limits = limits
        self._rng = rng or random.Random()  # noqa: S311 - jitter, no secret
        self._log = logging.getLogger("router.store")
        self._writer = f"{KEY}:writer:{secrets.token_hex(8)}"
        self._number = 0
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._batch: list[bytes] = []
        self._written = self._dropped = self._failures = self._in_a_row = 0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def stats(self) -> Mapping[str, int]:
        """The counts, and how much waits now."""
        return {
            "shared_rows_written": self._written,
            "shared_rows_dropped": self._dropped,
            "shared_failures": self._failures,
            "waiting_rows": len(self._waiting) + len(self._batch),
            "waiting_bytes": self._bytes + sum(map(len, self._batch)),
        }

    def add(self, row: bytes) -> None:
        """Keep a row; see `Ledger.add`. Needs a running loop."""
        if self._stop.is_set():
            self._dropped += 1
            return
        self._waiting.append(row)
        self._bytes += len(row)
        while len(self._waiting) > self._limits.max_streams or self._bytes > self._limits.max_bytes:
            self._bytes -= len(self._waiting.popleft())
            self._dropped += 1
        self._wake.set()
        self._idle.clear()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="books-writer")

    async def flushed(self) -> None:
        """Wait until everything was written: with Redis away, until it is back."""
        await self._idle.wait()

    async def page(self, before: str | None, count: int) -> Sequence[Leaf]:
        """Read rows; see `Ledger.page`."""
        newest = "+" if before is None else _older(before)
        reply = await self._link.ask(("XREVRANGE", KEY, newest, "-", "COUNT", count))
        return [Leaf(at.decode(), fields.get(b"row", b"")) for at, fields in reply[0]]

    async def aclose(self) -> None:
        """Write what waits, for `close_timeout_s` at most and with one try; then stop."""
        self._stop.set()
        self._wake.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait((task,), timeout=self._limits.close_timeout_s)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        unsent = len(self._waiting) + len(self._batch)
        if unsent:
            self._dropped += unsent
            self._log.warning("books: %d rows unsent at the end", unsent)
        await self._link.aclose()

    async def _run(self) -> None:
        while not (self._stop.is_set() and not (self._waiting or self._batch)):
            await self._wake.wait()
            if not self._stop.is_set():
                await asyncio.sleep(self._limits.linger_s)
            if await self._flush():
                self._settled()
            elif self._stop.is_set():
                return
            else:
                await pause(self._limits, self._in_a_row, self._rng, self._stop)

    async def _flush(self) -> bool:
        """Write one batch; it stays as it is until it is answered."""
        if not self._batch:
            self._take()
        try:
            if self._batch:
                await self._link.run(_WRITE, (KEY, self._writer), *self._arguments())
        except RecordUnavailable as error:
            self._failed(str(error))
        except Exception as error:  # noqa: BLE001 - the one writer outlives any surprise: try again
            self._failed(repr(error))
        else:
            self._written += len(self._batch)
            self._batch = []
            return True
        return False

    def _take(self) -> None:
        size = 0
        while self._waiting and len(self._batch) < MAX_BATCH_ROWS and size < MAX_BATCH_BYTES:
            row = self._waiting.popleft()
            size += len(row)
            self._batch.append(row)
        self._bytes -= size
        self._number += 1

    def _arguments(self) -> tuple[str | int | bytes, ...]:
        memory_ms = WRITER_MEMORY_S * 1000
        return (self._number, self._max_rows, self._keep_ms, memory_ms, *self._batch)

    def _settled(self) -> None:
        if self._in_a_row:
            self._log.warning("books: the store answers again, %d rows wait", len(self._waiting))
        self._in_a_row = 0
        if not self._waiting:
            self._idle.set()
            if not self._stop.is_set():
                self._wake.clear()

    def _failed(self, reason: str) -> None:
        self._failures += 1
        self._in_a_row += 1
        if self._in_a_row == 1:
            self._log.warning("books: not written for now, this process keeps them: %s", reason)


def _older(place: str) -> str:
    """The greatest id below one; ranges that exclude their end came only with Redis 6.2."""
    found = re.fullmatch(r"([0-9]{1,15})-([0-9]{1,19})", place)
    if found is None:
        raise ValueError(place)
    ms, number = int(found[1]), int(found[2])
    if number:
        return f"{ms}-{number - 1}"
    return f"{ms - 1}-{(1 << 64) - 1}" if ms else "0-0"
