"""Time, as the engine asks for it, and the watch that bounds one attempt's waits.

Everything that waits takes a `Clock`, so that a test moves time by hand instead of sleeping.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol


class Timer(Protocol):
    """A call that was put off."""

    def cancel(self) -> None:
        """Never mind."""
        ...


class Clock(Protocol):
    """A source of time and of later calls. Seconds throughout."""

    def now_s(self) -> float:
        """Monotonic time."""
        ...

    def unix_s(self) -> float:
        """Wall-clock time since the epoch."""
        ...

    def call_at(self, when_s: float, call: Callable[[], None]) -> Timer:
        """Call later, at monotonic time `when_s`."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Wait."""
        ...


class LoopClock:
    """The running event loop's time."""

    def now_s(self) -> float:
        """Monotonic time."""
        return time.monotonic()

    def unix_s(self) -> float:
        """Wall-clock time since the epoch."""
        return time.time()

    def call_at(self, when_s: float, call: Callable[[], None]) -> Timer:
        """Call later."""
        loop = asyncio.get_running_loop()
        return loop.call_later(max(0.0, when_s - time.monotonic()), call)

    async def sleep(self, delay_s: float) -> None:
        """Wait."""
        await asyncio.sleep(delay_s)


class Expired(Exception):
    """A watched wait passed its due time."""


class Watch:
    """Bounds the waits of one task, one after another, with a single lazy timer.

    `with watch:` around an await. Moving the due time costs an assignment: the timer is re-armed
    only when it goes off too early or would go off too late, so a stream of tokens arms it about
    once per limit, not once per token. Time in which nothing is awaited under the watch (a client
    that reads slowly) does not expire it; it is found out at the next wait.

    Args:
        clock: where time comes from.
    """

    __slots__ = (
        "_armed_s",
        "_cancels",
        "_clock",
        "_fired",
        "_task",
        "_timer",
        "_waiting",
        "due_s",
        "on_soft",
        "soft_s",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._task: asyncio.Task[object] | None = None
        self._timer: Timer | None = None
        self._armed_s = 0.0
        self._waiting = False
        self._fired = False
        self._cancels = 0
        self.due_s = 0.0
        """Monotonic time at which a wait is given up; set it before each wait."""
        self.soft_s = math.inf
        """Monotonic time at which a wait is merely remarked upon, once."""
        self.on_soft: Callable[[], None] | None = None

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._waiting = True
        if self._timer is None or min(self.due_s, self.soft_s) < self._armed_s:
            self._arm()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._waiting = False
        if self._fired:
            self._fired = False
            task = self._task
            # As in `asyncio.timeout`: a cancellation from outside wins over our own.
            ours = task is not None and task.uncancel() <= self._cancels
            if ours and kind is asyncio.CancelledError:
                raise Expired from error

    def interrupt(self) -> bool:
        """Give the present wait up now.

        Returns:
            False if nothing is being waited for: it was too late.
        """
        if not self._waiting or self._fired or self._task is None:
            return False
        self._cancels = self._task.cancelling()
        self._fired = True
        return self._task.cancel()

    def stop(self) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self.stop()
        self._armed_s = min(self.due_s, self.soft_s)
        self._timer = self._clock.call_at(self._armed_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        now_s = self._clock.now_s()
        if now_s >= self.due_s:
            self.interrupt()
            return
        if now_s >= self.soft_s:
            self.soft_s = math.inf
            if self.on_soft is not None:
                self.on_soft()
        self._arm()
