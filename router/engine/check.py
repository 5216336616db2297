"""A route's own check of what an answer says: asked about each unit before it is committed.

The check is foreign code. A plain callable runs in a thread, an `async` one in the event loop, both
against a time limit; what it raises, and what it does not say in time, is told and then counts as
the route says.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

from router.core.unit import Unit, reason_of
from router.engine.clock import Clock
from router.engine.observe import CheckFailed, Observers

MAX_THREADS = 16
"""Plain checks of one route that run at once."""


class OnReject(StrEnum):
    """What a rejection in text leads to; in structured output it is a violation of the schema."""

    REROUTE = "reroute"
    """The next target goes on from the last accepted unit."""
    END = "end"
    """The stream ends with an error."""


class BoundaryCheck:
    """One route's check.

    Args:
        call: takes a `Unit`, gives a verdict; or is `async` and does so.
        limit_s: how long it may take, in seconds.
        reject_on_failure: a failing or slow check rejects; otherwise it accepts.
        on_reject: what a rejection in text leads to.
    """

    def __init__(
        self,
        call: Callable[[Unit], object],
        *,
        limit_s: float = 1.0,
        reject_on_failure: bool = False,
        on_reject: OnReject = OnReject.REROUTE,
    ) -> None:
        self.on_reject = on_reject
        self._call = call
        self._limit_s = limit_s
        self._reject_on_failure = reject_on_failure
        self._is_async = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
            getattr(call, "__call__", None)  # noqa: B004 - an object may have an async __call__
        )
        self._threads: ThreadPoolExecutor | None = None

    async def verdict(self, unit: Unit, clock: Clock, tell: Observers) -> str:
        """Ask.

        Args:
            unit: what is about to be committed.
            clock: for the limit.
            tell: told of a check that fails.

        Returns:
            Why the unit is rejected, "" if it is accepted.
        """
        asked = asyncio.ensure_future(self._ask(unit))
        timer = clock.call_at(clock.now_s() + self._limit_s, lambda: _cancel(asked))
        try:
            await asyncio.wait([asked])
        except asyncio.CancelledError:
            asked.cancel()
            raise
        finally:
            timer.cancel()
        if asked.cancelled():
            return self._failed(unit, f"it said nothing within {self._limit_s:g} s", tell)
        error = asked.exception()
        if error is not None:
            return self._failed(unit, f"it raised {type(error).__name__}", tell, error)
        return asked.result()

    def close(self) -> None:
        """Let go of the threads; one that still runs is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, unit: Unit) -> str:
        if self._is_async:
            verdict = self._call(unit)
        else:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(MAX_THREADS, "boundary-check")
            loop = asyncio.get_running_loop()
            verdict = await loop.run_in_executor(self._threads, self._call, unit)
        return reason_of(await verdict if inspect.isawaitable(verdict) else verdict)

    def _failed(
        self, unit: Unit, what: str, tell: Observers, error: BaseException | None = None
    ) -> str:
        tell(
            CheckFailed(
                stream_id=unit.stream_id,
                route=unit.route,
                reason=what,
                rejected=self._reject_on_failure,
                error=error,
            )
        )
        return f"the route's check failed: {what}" if self._reject_on_failure else ""


def _cancel(asked: asyncio.Future[str]) -> None:
    asked.cancel()
