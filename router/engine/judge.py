"""A route's check between an answer and its commits.

In structured output a value waits for its verdict and is delivered after it. Text was delivered
already; its commits wait, in order, while tokens keep flowing, and what is rejected stays what it
is, uncommitted text that a continuation replaces.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from router.core.boundary import Boundary
from router.core.commit import CommitMachine
from router.core.faults import Fault, FaultKind, Verdict
from router.core.json_values import JsonFault
from router.core.structured import Structured
from router.core.unit import Unit
from router.engine.check import BoundaryCheck, OnReject
from router.engine.clock import Clock
from router.engine.intake import Batch, Intake
from router.engine.observe import Observers

MAX_WAITING_UNITS = 16
"""Units without a verdict; with more, the provider is not read on until one has its own."""


class Transcript:
    """An answer in the pieces in which it came. Pieces are only ever added.

    Args:
        text: what there is of it already.
    """

    def __init__(self, text: str = "") -> None:
        self._parts = [text]
        self._starts = [0]
        self.length = len(text)

    def append(self, text: str) -> None:
        """More of it.

        Args:
            text: what follows.
        """
        self._parts.append(text)
        self._starts.append(self.length)
        self.length += len(text)

    def cut(self, start: int, end: int) -> str:
        """A part of it, at a cost of its own length.

        Args:
            start: in characters.
            end: in characters.
        """
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, end - 1)
        offset = self._starts[first]
        return "".join(self._parts[first:last])[start - offset : end - offset]

    def up_to(self, end: int) -> Callable[[], str]:
        """A function that gives the beginning; it may be called in another thread.

        Args:
            end: in characters.
        """
        parts = self._parts
        return lambda: "".join(parts)[:end]


class _Waiting(NamedTuple):
    unit: Unit
    chars: int
    mark: object


class _Queue:
    """Asks about the units of a text, one after another.

    Args:
        ask: gives a reason to reject a unit, or "".
        commit: called with the length of each unit that is accepted, in order.
        wake: called when a unit is rejected.
        mark: the boundary's state at the end of what is committed.
    """

    def __init__(
        self,
        ask: Callable[[Unit], Awaitable[str]],
        *,
        commit: Callable[[int], None],
        wake: Callable[[], None],
        mark: object,
    ) -> None:
        self.mark = mark
        """The boundary's state at the end of what was accepted last."""
        self.rejected = ""
        """Why a unit was rejected; nothing after it is asked about."""
        self.waiting_chars = 0
        """Text that has no verdict yet."""
        self._ask = ask
        self._commit = commit
        self._wake = wake
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()

    def submit(self, unit: Unit, mark: object) -> None:
        """A unit is to be committed.

        Args:
            unit: it.
            mark: the boundary's state behind it.
        """
        if self.rejected:
            return
        self._waiting.append(_Waiting(unit, len(unit.text), mark))
        self.waiting_chars += len(unit.text)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def make_room(self) -> None:
        """Wait while too many units have no verdict."""
        while len(self._waiting) > MAX_WAITING_UNITS:
            self._moved.clear()
            await self._moved.wait()

    async def drain(self) -> None:
        """Wait until every unit has its verdict, or one is rejected."""
        if self._task is not None:
            await self._task

    def reset(self, mark: object) -> None:
        """What had no verdict, or a bad one, is no part of the answer any more.

        Args:
            mark: the boundary's state at the end of what is committed.
        """
        self.release()
        self.mark = mark
        self.rejected = ""

    def release(self) -> None:
        """Nobody needs a verdict any more."""
        self._forget()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _work(self) -> None:
        while self._waiting:
            unit, chars, mark = self._waiting[0]
            self.rejected = await self._ask(unit)
            if self.rejected:
                self._forget()
                self._wake()
                return
            self._waiting.popleft()
            self.waiting_chars -= chars
            self.mark = mark
            self._commit(chars)
            self._moved.set()

    def _forget(self) -> None:
        self._waiting.clear()
        self.waiting_chars = 0
        self._moved.set()


class Judge:
    """The check of one stream.

    Args:
        check: of its route.
        stream_id: the stream.
        route: the public model name.
        machine: how far the stream is.
        boundary: taken back where a unit is rejected.
        intake: told of what was rejected.
        structured: the document, or None for text.
        clock: where time comes from.
        tell: told of a check that fails.
        commit: called with the length of accepted text, in order.
        wake: ends the present wait for the provider.
    """

    def __init__(
        self,
        check: BoundaryCheck,
        *,
        stream_id: str,
        route: str,
        machine: CommitMachine,
        boundary: Boundary,
        intake: Intake,
        structured: Structured | None,
        clock: Clock,
        tell: Observers,
        commit: Callable[[int], None],
        wake: Callable[[], None],
    ) -> None:
        self._check = check
        self._stream_id = stream_id
        self._route = route
        self._machine = machine
        self._boundary = boundary
        self._intake = intake
        self._structured = structured
        self._clock = clock
        self._tell = tell
        self._transcript = Transcript(machine.committed_text)
        self._queue = _Queue(self._ask, commit=commit, wake=wake, mark=boundary.mark())

    @property
    def rejected(self) -> bool:
        """Text was rejected: nothing more of this attempt is wanted."""
        return bool(self._queue.rejected)

    def release(self) -> None:
        """The stream is over."""
        self._queue.release()

    def restart(self) -> None:
        """The answer begins anew."""
        self._transcript = Transcript()
        self._queue.reset(self._boundary.mark())

    # -- text ----------------------------------------------------------------------------------

    async def submit(self, chars: int) -> None:
        """Text is to be committed.

        Args:
            chars: how much of what has not been submitted.
        """
        self._queue.submit(self._text_unit(chars), self._boundary.mark())
        await self._queue.make_room()

    async def settle(self, fault: Fault | None) -> Fault | None:
        """An attempt at a text is over: every verdict is waited for, that on its last words too.

        Args:
            fault: how it ended.

        Returns:
            The same, or that it was rejected.
        """
        if fault is not None and fault.kind is FaultKind.DEADLINE:
            return fault  # there is no time for verdicts
        await self._queue.drain()
        reason = self._queue.rejected
        if fault is None and not reason and self._machine.fragment.strip():
            reason = await self._ask(self._text_unit(len(self._machine.fragment)))
        return self._refuse(reason) if reason else fault

    def _refuse(self, reason: str) -> Fault:
        mark = self._queue.mark
        self._transcript = Transcript(self._machine.committed_text)
        self._queue.reset(mark)
        self._boundary.back(mark, self._machine.fragment)
        self._intake.reject(reason)
        ends = self._check.on_reject is OnReject.END
        return Fault(
            kind=FaultKind.BOUNDARY_REJECTED,
            verdict=Verdict.REQUEST if ends else Verdict.TRANSIENT,
            message=reason,
        )

    def _text_unit(self, chars: int) -> Unit:
        start = self._queue.waiting_chars
        text = self._machine.fragment[start : start + chars]
        self._transcript.append(text)
        return Unit(
            kind="sentence",
            text=text,
            value=text,
            stream_id=self._stream_id,
            route=self._route,
            so_far=self._transcript.up_to(self._transcript.length),
        )

    # -- documents -----------------------------------------------------------------------------

    async def screen(self, batch: Batch) -> None:
        """Keep from a client what is rejected of a document.

        Args:
            batch: about to be delivered; the first value that is rejected, and all after it, is
                taken out of it.
        """
        structured = self._structured
        if structured is None or not batch.ends:
            return
        start = self._transcript.length
        self._transcript.append("".join(batch.texts))
        kept = start
        for end in batch.ends:
            reason = await self._ask(
                Unit(
                    kind="value",
                    text=self._transcript.cut(end.start, end.end),
                    value=end.value,
                    path=end.path,
                    stream_id=self._stream_id,
                    route=self._route,
                    so_far=self._transcript.up_to(end.end),
                )
            )
            if reason:
                why = JsonFault(reason, end.path, end.start)
                batch.fault = Fault(kind=FaultKind.SCHEMA_VIOLATION, message=str(why))
                batch.shorten(kept - start)
                self._intake.reject(why)
                structured.take_back(kept)
                self._transcript = Transcript(structured.delivered)
                return
            kept = end.end

    async def _ask(self, unit: Unit) -> str:
        return await self._check.verdict(unit, self._clock, self._tell)
