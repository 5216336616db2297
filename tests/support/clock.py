"""Time that a test moves by hand: nothing sleeps, and an hour passes in a moment.

`FakeClock` is a `router.engine.clock.Clock`. Sockets stay real, so time may only move while nothing
is under way: `settle` runs the event loop until it has nothing to do, and every step of time is
taken from such a rest.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

QUIET_TURNS = 12
"""Turns of the event loop without work, one after another, that count as rest."""

LONG_STEP_S = 0.3
"""Before a step of time this long, the kernel gets a moment to deliver what it may still hold."""

MOMENT_S = 0.001
"""That moment, in real seconds: a packet on the loopback takes less."""

EPOCH_UNIX_S = 1_700_000_000.0
"""Wall-clock time at which fake time begins."""


class FakeTimer:
    """A call that was put off.

    Args:
        call: what to call.
        forget: told when it is cancelled.
    """

    __slots__ = ("_forget", "call")

    def __init__(self, call: Callable[[], None], forget: Callable[[FakeTimer], None]) -> None:
        self.call: Callable[[], None] | None = call
        self._forget = forget

    def cancel(self) -> None:
        """Never mind."""
        if self.call is not None:
            self.call = None
            self._forget(self)


class FakeClock:
    """A clock that stands still until it is told to go on.

    Args:
        start_s: monotonic time at the beginning.
    """

    def __init__(self, start_s: float = 1_000.0) -> None:
        self._now_s = self._start_s = start_s
        self._order = itertools.count()
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._pending: set[FakeTimer] = set()

    # -- what the router and the simulator ask -----------------------------------------------

    def now_s(self) -> float:
        """Monotonic time."""
        return self._now_s

    def unix_s(self) -> float:
        """Wall-clock time since the epoch."""
        return EPOCH_UNIX_S + self._now_s - self._start_s

    def call_at(self, when_s: float, call: Callable[[], None]) -> FakeTimer:
        """Call later, at monotonic time `when_s`."""
        timer = FakeTimer(call, self._pending.discard)
        self._pending.add(timer)
        heapq.heappush(self._timers, (when_s, next(self._order), timer))
        return timer

    async def sleep(self, delay_s: float) -> None:
        """Wait."""
        waked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_at(
            self._now_s + delay_s, lambda: None if waked.done() else waked.set_result(None)
        )
        try:
            await waked
        finally:
            timer.cancel()

    # -- what a test asks --------------------------------------------------------------------

    @property
    def elapsed_s(self) -> float:
        """Time since the beginning."""
        return self._now_s - self._start_s

    @property
    def pending(self) -> int:
        """Calls that are still to come: a router at rest has none."""
        return len(self._pending)

    async def advance(self, delay_s: float) -> None:
        """Let time pass: timers go off in order, and each is followed to its consequences.

        Args:
            delay_s: how much, in seconds.
        """
        end_s = self._now_s + delay_s
        await self.settle()
        while (due_s := self._next_s()) is not None and due_s <= end_s:
            await self._step(due_s)
        self._now_s = end_s
        await self.settle()

    async def until(self, condition: Callable[[], bool], *, within_s: float = 3_600.0) -> None:
        """Let time pass, timer by timer, until something holds.

        Args:
            condition: asked whenever nothing is under way.
            within_s: bound on the time that may pass, in seconds.

        Raises:
            AssertionError: it did not come to hold, or nothing is left that could bring it about.
        """
        end_s = self._now_s + within_s
        await self.settle()
        while not condition():
            due_s = self._next_s()
            assert due_s is not None, "nothing is under way and no timer is set: it would hang"
            assert due_s <= end_s, f"not within {within_s} s"
            await self._step(due_s)

    async def run(self, work: Awaitable[T], *, within_s: float = 3_600.0) -> T:
        """Do something, with as much time as it takes.

        Args:
            work: what to do.
            within_s: bound on the time that may pass, in seconds.

        Returns:
            Its result.
        """
        task = asyncio.ensure_future(work)
        try:
            await self.until(task.done, within_s=within_s)
            return await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def settle(self) -> None:
        """Let the event loop work until it has nothing left to do."""
        ready: Any = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        quiet = 0
        while quiet < QUIET_TURNS:
            await asyncio.sleep(0)
            # What this turn found on the sockets, and what others put off, stands behind us.
            quiet = 0 if ready else quiet + 1

    async def _step(self, due_s: float) -> None:
        if due_s - self._now_s >= LONG_STEP_S:
            await asyncio.sleep(MOMENT_S)
            await self.settle()
            due_s = min(due_s, self._next_s() or due_s)
        self._now_s = max(self._now_s, due_s)
        while (next_s := self._next_s()) is not None and next_s <= self._now_s:
            timer = heapq.heappop(self._timers)[2]
            self._pending.discard(timer)
            call, timer.call = timer.call, None
            if call is not None:
                call()
        await self.settle()

    def _next_s(self) -> float | None:
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None
