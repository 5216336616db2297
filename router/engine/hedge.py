"""Two attempts at once: when one falls silent, another is asked while the first is still heard.

Whichever speaks first goes on; the other is closed and counted. The second attempt runs in a task
of its own up to its first output, and is then handed to the loop as if it had been opened there.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from router.core.events import Failed, Reasoning, Refusal, Text, ToolCall
from router.core.faults import Fault, FaultKind
from router.engine.asked import Asked

_LOST = "the first target went on after all"
_SPEAKS = (Text, Reasoning, Refusal, ToolCall)
"""What overtakes: a bare finish says nothing, and would end an answer that is being written."""


class Asker(Protocol):
    """Who makes attempts and notes how they end."""

    def beside(self, asked: Asked) -> Asked | None:
        """An attempt beside one that has fallen silent, if there is whom to ask."""
        ...

    def note(self, asked: Asked, fault: Fault | None) -> None:
        """An attempt is over."""
        ...


class Hedge:
    """A second attempt for one that may have stalled.

    Args:
        run: makes attempts and notes how they end.
        asked: the attempt that is being followed.
    """

    def __init__(self, run: Asker, asked: Asked) -> None:
        self._run = run
        self._asked = asked
        self._task: asyncio.Task[Asked | None] | None = None
        self._dropped: list[asyncio.Task[None]] = []
        asked.attempt.watch_for_stall(self._slow, self._recovered)

    async def result(self) -> Asked | None:
        """The first attempt has failed: wait for the second, should one be under way.

        Returns:
            It, with its first output, or None.
        """
        await asyncio.gather(*self._dropped)
        self._dropped.clear()
        if self._task is None:
            return None
        # Shielded, and forgotten only when it is handed over: should the client leave meanwhile,
        # `aclose` still finds it.
        second = await asyncio.shield(self._task)
        self._task = None
        return second

    async def aclose(self) -> None:
        """Nobody needs a second attempt any more."""
        self._drop()
        await asyncio.gather(*self._dropped)
        self._dropped.clear()

    def _slow(self) -> None:
        second = self._run.beside(self._asked) if self._task is None else None
        if second is not None:
            self._task = asyncio.get_running_loop().create_task(self._race(second))

    def _recovered(self) -> None:
        self._drop()

    def _drop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._dropped.append(asyncio.get_running_loop().create_task(self._close(task)))

    async def _close(self, task: asyncio.Task[Asked | None]) -> None:
        task.cancel()
        (second,) = await asyncio.gather(task, return_exceptions=True)
        if second is not None and not isinstance(second, BaseException):
            # It had just won, and nobody took it.
            self._run.note(second, Fault(kind=FaultKind.HEDGED, message=_LOST))
            await second.attempt.aclose()

    async def _race(self, second: Asked) -> Asked | None:
        """Open the second attempt, and read up to its first output."""
        fault: Fault | None = Fault(kind=FaultKind.HEDGED)
        try:
            fault = await second.attempt.open() or await self._first_output(second)
            if fault is None:
                self._asked.attempt.overtake()
                return second
        except asyncio.CancelledError:
            fault = Fault(kind=FaultKind.HEDGED, message=_LOST)
            raise
        finally:
            if fault is not None:
                self._run.note(second, fault)
                await second.attempt.aclose()
        return None

    async def _first_output(self, second: Asked) -> Fault | None:
        second.opened = True
        while True:
            events = await second.attempt.read()
            second.first += events
            for event in events:
                if isinstance(event, Failed):
                    return event.fault
                if isinstance(event, _SPEAKS):
                    return None
            if second.attempt.ended:
                return Fault(kind=FaultKind.TRUNCATED, message="the stream ended without a word")
