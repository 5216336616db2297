"""The bounded queue between streams that never wait and a store that may: one task per process.

A stream with something to say lies in `_dirty` once, however much it has to say. The task takes up
to `MAX_PIPELINE` of them, sends their writes together, hands each its answer, and begins again.
What could not be written goes to the end of the line, where it holds up nobody (of a Cluster only
one node may be down), and after a batch of which nothing could there is a pause that grows, with
jitter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from router.errors import RecordUnavailable
from router.store.backlog import Backlog, Tally, Write

MAX_PIPELINE = 64
"""Commands sent together: beyond it nothing is gained, and replies of a slow store pile up."""

MAX_PIPELINE_BYTES = 1 << 20
"""Text sent together (one write may exceed it alone), so that a backlog after an outage still fits
into the command timeout."""

LATER = -5
"""The answer of a store that cannot write just now (loading, read-only, out of memory)."""


class Sent(NamedTuple):
    """What became of some writes.

    Args:
        answers: in their order.
        why: the first reason for which there is no other answer than `LATER`, if there is one.
    """

    answers: Sequence[int]
    why: str = ""


Send = Callable[[Sequence[Write]], Awaitable[Sent]]
"""Sends writes. Raises RecordUnavailable when no answers can be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Bounds and times of the queue.

    Args:
        max_bytes: text waiting in this process, in bytes; beyond it the oldest streams lose theirs.
        max_streams: streams waiting; beyond it the oldest is put out.
        linger_s: wait for company before a batch that is not full; costs no stream anything.
        backoff_min_s: first pause after a failure, in seconds.
        backoff_max_s: longest pause, in seconds.
        close_timeout_s: longest wait for the queue to empty at the end.
    """

    max_bytes: int = 32 << 20
    max_streams: int = 20_000
    linger_s: float = 0.005
    backoff_min_s: float = 0.05
    backoff_max_s: float = 2.0
    close_timeout_s: float = 2.0


async def pause(
    limits: QueueLimits, failures: int, rng: random.Random, stop: asyncio.Event
) -> None:
    """Wait after failures, longer after each, with jitter.

    Args:
        limits: shortest and longest pause.
        failures: in a row.
        rng: where jitter comes from.
        stop: ends the pause.
    """
    ceiling = min(limits.backoff_max_s, limits.backoff_min_s * 2 ** min(failures, 16))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ceiling * rng.uniform(0.5, 1.0)):
            await stop.wait()


class WriteQueue:
    """Streams that wait, and the task that sends for them.

    Args:
        send: how a batch reaches the store.
        limits: bounds and times.
        tally: the store's counts.
        rng: where jitter comes from.
    """

    def __init__(self, send: Send, limits: QueueLimits, tally: Tally, rng: random.Random) -> None:
        self._send = send
        self._limits = limits
        self._tally = tally
        self._rng = rng
        self._log = logging.getLogger("router.store")
        self._dirty: dict[Backlog, None] = {}
        self._heavy: dict[Backlog, None] = {}
        self._bytes = 0
        self._failures = 0
        self._troubled = False
        self._stuck: set[Backlog] = set()
        self._awaited: dict[Backlog, asyncio.Event] = {}
        self._overflowing = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def stats(self) -> Mapping[str, int]:
        """The counts, and how much waits now."""
        waits = {"queue_streams": len(self._dirty), "queue_bytes": self._bytes}
        return self._tally.as_dict() | waits

    def start(self) -> None:
        """Begin to send. Needs a running loop."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="record-writer")

    async def aclose(self) -> None:
        """Send what waits, for `close_timeout_s` at most and with one try; then stop."""
        self._stop.set()
        self._wake.set()
        task, self._task = self._task, None
        if task is None:
            return
        await asyncio.wait((task,), timeout=self._limits.close_timeout_s)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if self._dirty:
            self._log.warning("record: %d streams unsent at the end", len(self._dirty))

    async def flushed(self) -> None:
        """Wait until nothing is queued and nothing is under way."""
        await self._idle.wait()

    async def settled(self, backlog: Backlog) -> None:
        """Wait until nothing of one stream is queued or under way.

        Args:
            backlog: the stream's. One waits for it at most.
        """
        if backlog not in self._dirty:
            return
        done = self._awaited[backlog] = asyncio.Event()
        try:
            await done.wait()
        finally:
            self._awaited.pop(backlog, None)

    def touch(self, backlog: Backlog) -> None:
        """Something changed in a stream: queue it, or take it out, and keep within the bounds."""
        if backlog.has_work:
            self._dirty.setdefault(backlog)
            self._idle.clear()
            self._wake.set()
        else:
            self._remove(backlog)
        self._weigh(backlog)
        if self._bytes > self._limits.max_bytes or len(self._dirty) > self._limits.max_streams:
            self._shed()

    # The task.

    async def _run(self) -> None:
        while not (self._stop.is_set() and not self._dirty):
            await self._wake.wait()
            if len(self._dirty) < MAX_PIPELINE and not self._stop.is_set():
                await asyncio.sleep(self._limits.linger_s)
            if await self._flush():
                self._answered()
            elif self._stop.is_set():
                return
            else:
                await pause(self._limits, self._failures, self._rng, self._stop)

    async def _flush(self) -> bool:
        batch = self._next_batch()
        why = ""
        try:
            answers, why = await self._send([write for _, write in batch]) if batch else Sent(())
        except RecordUnavailable as exc:
            self._failed(str(exc))
            answers = [LATER] * len(batch)
        except Exception as exc:  # noqa: BLE001 - the one writer outlives any surprise: try again
            self._failed(repr(exc))
            answers = [LATER] * len(batch)
        else:
            if answers and all(answer == LATER for answer in answers):
                self._failed("the store cannot write now")
        finally:
            for backlog, _ in batch:
                backlog.on_wire = False
        for (backlog, _), answer in zip(batch, answers, strict=True):
            self._settle(backlog, answer)
        stuck = [b for (b, _), answer in zip(batch, answers, strict=True) if answer == LATER]
        for backlog in stuck:
            if backlog in self._dirty:  # to the end of the line
                del self._dirty[backlog]
                self._dirty[backlog] = None
        if stuck and len(stuck) == len(batch):
            return False
        self._tally.deferred += len(stuck)
        if stuck and not self._troubled:
            self._troubled = True
            self._log.warning("record: %d streams are not written for now: %s", len(stuck), why)
        return True

    def _next_batch(self) -> list[tuple[Backlog, Write]]:
        batch: list[tuple[Backlog, Write]] = []
        size = 0
        for backlog in tuple(islice(self._dirty, MAX_PIPELINE)):
            write = backlog.take()
            if write is None:
                self._remove(backlog)
                continue
            batch.append((backlog, write))
            size += len(write.delta)
            if size >= MAX_PIPELINE_BYTES:
                break
        for backlog, _ in batch:
            backlog.on_wire = True
            self._weigh(backlog)
        return batch

    def _settle(self, backlog: Backlog, answer: int) -> None:
        if answer == LATER:
            if backlog in self._dirty:
                self._stuck.add(backlog)
            else:
                backlog.put_out()  # as it was while this was on its way
        else:
            backlog.settle(answer)
            # Not removed and put back: whoever waits in `flushed` would be woken in between.
            self._dirty.pop(backlog, None)
            self._stuck.discard(backlog)
            if backlog.has_work:
                self._dirty[backlog] = None
            else:
                self._remove(backlog)
            if backlog.fenced and backlog.on_fenced:
                asyncio.get_running_loop().call_soon(backlog.on_fenced)
                backlog.on_fenced = None
        self._weigh(backlog)

    def _answered(self) -> None:
        self._failures = 0
        self._overflowing = False
        if self._troubled and not self._stuck:
            self._troubled = False
            self._tally.reconnects += 1
            self._log.warning("record: the store answers again, %d streams wait", len(self._dirty))

    def _failed(self, reason: str) -> None:
        self._tally.failures += 1
        self._failures += 1
        if not self._troubled:
            self._troubled = True
            self._log.warning("record: not written for now, streams go on: %s", reason)

    # The bounds.

    def _remove(self, backlog: Backlog) -> None:
        self._dirty.pop(backlog, None)
        self._stuck.discard(backlog)
        if backlog in self._awaited:
            self._awaited[backlog].set()
        if not self._dirty:
            self._wake.clear()
            self._idle.set()

    def _weigh(self, backlog: Backlog) -> None:
        weight = backlog.waiting_bytes
        self._bytes += weight - backlog.weight
        backlog.weight = weight
        if weight:
            self._heavy.setdefault(backlog)
        else:
            self._heavy.pop(backlog, None)

    def _shed(self) -> None:
        while self._bytes > self._limits.max_bytes and self._heavy:
            oldest = next(iter(self._heavy))
            oldest.drop()
            self._weigh(oldest)
        while len(self._dirty) > self._limits.max_streams:
            oldest = next(iter(self._dirty))
            oldest.put_out()
            self._tally.forgotten += 1
            self._weigh(oldest)
            self._remove(oldest)
        if not self._overflowing:
            self._overflowing = True
            self._log.warning("record: the queue is full, the oldest streams' records go stale")
