"""One stream: what may be delivered is delivered, counted and committed.

`Stream` knows nothing of retries and targets: `run.py` opens attempts and hands them in; nor of how
an attempt's events become deliverable: that is `intake.py`. Here is the per-token path: one read,
one pass over its events, one delivery, one feed of the boundary.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from router.core.commit import CommitMachine, State
from router.core.continuation import Continuation, ContinuationStyle
from router.core.events import Event, Extra, Finish, Text, ToolCall
from router.core.failover import Phase
from router.core.faults import Fault, FaultKind
from router.core.request import ChatRequest
from router.core.structured import Structured
from router.core.tokens import tokens_spent
from router.core.tools import ToolLedger
from router.engine.attempt import Attempt
from router.engine.clock import Clock, Expired, Watch
from router.engine.intake import Batch, Intake, Seam
from router.engine.judge import Judge
from router.engine.meter import CHARS_PER_TOKEN, Meter
from router.engine.observe import Committed, Joined, Observers
from router.engine.options import OnInterrupt, Options
from router.engine.portions import portion
from router.engine.report import FailoverReport
from router.engine.resume import Facts, Resumed, gap_of
from router.engine.route import Route, Target
from router.engine.sink import Sink, StreamHead
from router.providers.base import Sent
from router.store.base import RecordHead, RecordStore, RecordWriter

_NO_FINISH = "the stream ended without a finish"

REASSURE_S = 10.0
"""Silence towards the client, while its provider speaks, after which it gets a sign of life."""


CLAIM_S = 0.5
"""How long the end of a stream that was resumed waits for the store's word that it is still this
router's to give, in seconds: a client that comes back waits as long for its record."""


class Fenced(Exception):
    """Another router took the stream over: this one must fall silent."""


@dataclass(slots=True, kw_only=True)
class OpenFailover:
    """A failover that is under way.

    Args:
        source: name of the target that failed.
        to: name of the target that was asked to go on.
        fault: why.
        style: how it was asked.
        committed_chars: length of the prefix.
    """

    source: str
    to: str
    fault: Fault
    style: str
    committed_chars: int

    def report(self, join: str = "", pause_ms: float | None = None) -> FailoverReport:
        """How it went.

        Args:
            join: how the seam was explained.
            pause_ms: what the client waited.
        """
        return FailoverReport(
            from_target=self.source,
            to_target=self.to,
            fault=self.fault,
            style=self.style,
            committed_chars=self.committed_chars,
            join=join,
            pause_ms=pause_ms,
        )


class Stream:
    """One request's answer, across all its attempts.

    Args:
        head: what the record knows of it.
        request: what was asked.
        route: where it may be answered.
        sink: the client.
        store: the failover records.
        clock: where time comes from.
        tell: the observers.
        options: what the client chose.
        structured: the JSON document that is asked for, or None for text.
        resumed: what another writer left, or None for a new stream.
        part: name of this response of the stream.
    """

    def __init__(
        self,
        *,
        head: RecordHead,
        request: ChatRequest,
        route: Route,
        sink: Sink,
        store: RecordStore,
        clock: Clock,
        tell: Observers,
        options: Options,
        structured: Structured | None = None,
        resumed: Resumed | None = None,
        part: str = "",
    ) -> None:
        self.head = head
        self.request = request
        self.options = options
        self.machine = CommitMachine() if resumed is None else _machine_of(resumed)
        self.tools = ToolLedger()
        self.failovers: list[FailoverReport] = []
        self.first_output_s: float | None = None
        self.began = False
        """Something reached the client: its status line, if nothing else."""
        self.on_answering: Callable[[Target], None] | None = None
        """Told once per attempt that its target has sent output."""
        self._sink = sink
        self._store = store
        self._clock = clock
        self._tell = tell
        self._structured = structured
        self._boundary = route.make_boundary()
        self._intake = Intake(
            request=request,
            options=options,
            machine=self.machine,
            boundary=self._boundary,
            structured=structured,
        )
        self.resumed = resumed
        self._part = part
        self._record: RecordWriter | None = None
        self._record_meta_changed = True
        self._target = self._model = ""  # as the client was told
        self._gap = self._finish = ""  # as the record knows them
        self._reading: Attempt | None = None
        self.fenced = False
        """Another router has taken the stream over."""
        self.on_fenced: Callable[[], None] | None = None
        """Told so; may not wait."""
        self._sealed = self._called = False  # as the record knows it
        self._failover: OpenFailover | None = None
        self._seam: tuple[OpenFailover, Seam] | None = None
        self._last_output_s = 0.0
        self._reassured_s = 0.0
        if resumed is not None:
            self._take_over(resumed)
        self._judge = self._make_judge(route) if route.check is not None else None

    # -- what the loop asks ------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """How far the stream is, as far as failover cares."""
        intake = self._intake
        if intake.sealed or intake.ran or self.machine.state is State.TOOL:
            return Phase.SEALED
        before = self.machine.state is State.OPENING
        return Phase.BEFORE_OUTPUT if before else Phase.TEXT

    @property
    def finishes(self) -> tuple[Finish, ...]:
        """The finish of each choice."""
        return self._intake.finishes

    @property
    def resumable(self) -> bool:
        """Another router could go on from its record."""
        return self._record is not None and not self.fenced and self.phase is not Phase.SEALED

    def describe_tools(self) -> str:
        """The tool calls that were delivered, and what the provider itself ran; a clause."""
        self.tools.ran(self._intake.ran)
        return self.tools.describe()

    @property
    def sealed(self) -> str:
        """What was delivered that no second model can take up, as a clause; "" without that."""
        return self._intake.sealed

    @property
    def closers(self) -> str:
        """What closes a delivered document so that it parses, "" for text."""
        return self._intake.closers

    def continuation(self, how: ContinuationStyle) -> Continuation | None:
        """What to ask the next target for.

        Args:
            how: its style.

        Returns:
            None for the original question: opening a stream is not a commit.
        """
        prefix = self.machine.committed_text
        if not prefix:
            return None
        document = self._structured is not None
        violation = self._intake.violation
        return Continuation(
            how=how,
            prefix=prefix,
            in_fence=None if document else self._boundary.in_fence,
            spent_tokens=self._spent_tokens(prefix),
            violation=str(violation) if violation is not None else "",
        )

    def _spent_tokens(self, prefix: str) -> int:
        """What the committed text has cost. A document's pieces are values, no tokens."""
        if self._structured is not None:
            return len(prefix) // CHARS_PER_TOKEN
        return tokens_spent(prefix, self.machine.committed_pieces)

    def expect(
        self,
        how: ContinuationStyle,
        sent: Sent | None,
        failover: OpenFailover | None,
        attempt: Attempt,
    ) -> None:
        """An attempt begins.

        Args:
            how: the target's style.
            sent: what was made of it, None for the original question.
            failover: the change that leads to it, or None for the first attempt and for a retry.
            attempt: it; given up if another router takes the stream over.
        """
        self._reading = attempt
        self._failover = failover
        self._intake.expect(how, sent)

    def fault(self) -> None:
        """The attempt ended badly and another may follow."""
        self._record_meta_changed = True
        if self.machine.state is not State.TOOL:
            self.machine.fault()
        self.settle()

    async def restart(self) -> None:
        """Tell the client to forget what it has; the next attempt begins anew."""
        await self._sink.reset("provider_failover")
        self.machine.restart()
        self._boundary.rewind()
        self._intake.restart()
        if self._judge is not None:
            self._judge.restart()
        if self._record is not None:  # a stream that was resumed has one, of the text before
            self._record.close("restarted", keep_s=0)
            self._record = None

    def settle(self) -> None:
        """No more text will come of this attempt: close the account of the failover to it."""
        self._tell_joined(None)
        if self._failover is not None:
            self.failovers.append(self._failover.report())
            self._failover = None

    def close_record(self, outcome: str, *, keep_s: float) -> None:
        """The stream is over.

        Args:
            outcome: how it ended.
            keep_s: how long its text is kept, in seconds.
        """
        if self._record is not None:
            self._record.close(outcome, keep_s=keep_s)

    # -- one attempt -------------------------------------------------------------------------

    async def consume(
        self, attempt: Attempt, meter: Meter, target: Target, first: list[Event]
    ) -> Fault | None:
        """Read an attempt to its end.

        Args:
            attempt: open.
            meter: counts it.
            target: whom it asks.
            first: events that were read already.

        Returns:
            None if the answer is whole, else why it is not.

        Raises:
            Fenced: another router owns the record.
        """
        fault = await self._follow(attempt, meter, target, first)
        if self._judge is not None and self._structured is None:
            fault = await self._judge.settle(fault)
            if self.fenced:
                raise Fenced
        return fault

    async def _follow(
        self, attempt: Attempt, meter: Meter, target: Target, first: list[Event]
    ) -> Fault | None:
        expecting_end = False
        intake = self._intake
        events = first or await attempt.read()
        while True:
            if self.fenced:
                raise Fenced
            if self._judge is not None and self._judge.rejected:
                return None  # `settle` says why
            events, waiting = portion(events)
            silent = not meter.chunks
            batch = await self._screened(intake.take(events, meter))
            if silent and batch.spoke and self.on_answering is not None:
                self.on_answering(target)
            await self._pass_on(batch, meter, target)
            if waiting and batch.fault is None:
                await asyncio.sleep(0)  # others have their turn
                events = waiting
                continue
            over = attempt.ended or batch.fault is not None
            if intake.settled:
                # A finish that was seen is an end, whatever breaks after it.
                if over or intake.stopped:
                    return await self._end_of_answer(meter, target)
                if not expecting_end:
                    expecting_end = True
                    attempt.expect_end()
            elif over and (intake.conclude() or (intake.finished and batch.fault is None)):
                return await self._end_of_answer(meter, target)  # or fewer choices than were asked
            elif over:
                return batch.fault or Fault(kind=FaultKind.TRUNCATED, message=_NO_FINISH)
            events = await attempt.read()

    async def _pass_on(self, batch: Batch, meter: Meter, target: Target) -> None:
        if batch.out:
            await self._deliver(batch, meter, target)
        elif self._structured is not None:
            await self._reassure()

    async def _end_of_answer(self, meter: Meter, target: Target) -> Fault | None:
        """A finish is held: deliver what was held with it, if the answer really is whole."""
        batch = await self._screened(self._intake.end(meter))
        if batch.out:
            await self._deliver(batch, meter, target)
        return batch.fault or await self._end_of_tools(meter, target)

    async def _end_of_tools(self, meter: Meter, target: Target) -> Fault | None:
        """Clients repair arguments that stop in mid-value, and run them: no success may end so."""
        if self._intake.cut_short or self.machine.state is not State.TOOL:
            return None
        inside = self.tools.cut_short()
        if inside:
            return Fault(kind=FaultKind.TRUNCATED, message=f"it finished inside {inside}")
        bare = self.tools.without_arguments()
        if bare:
            await self._deliver(Batch(out=[*bare]), meter, target)
        return None

    async def _screened(self, batch: Batch) -> Batch:
        """What is left of a batch after the route's check; its seam is noted."""
        if self._judge is not None:
            await self._judge.screen(batch)
        # A join may be decided by text that the client has already: then nothing is sent yet.
        if batch.seam is not None and self._failover is not None:
            self._seam, self._failover = (self._failover, batch.seam), None
        return batch

    async def _deliver(self, batch: Batch, meter: Meter, target: Target) -> None:
        if not self.began:
            await self.begin(meter, target)
        only_text = len(batch.out) == len(batch.texts)
        if not only_text:
            self._seal(batch.out)
        await self._sink.deliver(batch.out)
        now_s = self._clock.now_s()
        if self._seam is not None and batch.texts:
            self._tell_joined(1000 * (now_s - self._last_output_s))
        self._last_output_s = now_s
        texts = batch.texts
        if texts:
            chars = self._advance(texts)
            if chars and self._judge is not None and self._structured is None:
                await self._judge.submit(chars)
            elif chars:
                self._commit(chars)
        if not only_text:
            self._note_tools(batch.out)

    async def _reassure(self) -> None:
        """A long value is held until it is whole: meanwhile the connection must not look dead."""
        now_s = self._clock.now_s()
        if self.began and now_s - max(self._last_output_s, self._reassured_s) > REASSURE_S:
            self._reassured_s = now_s
            await self._sink.reassure()

    async def begin(self, meter: Meter, target: Target) -> None:
        """The first output of the stream, or an empty answer: the client is told that one comes.

        Args:
            meter: of the attempt that produced it.
            target: whom it asked.
        """
        if self.began:
            return
        self.began = True
        self._target, self._model = target.name, meter.model
        self.first_output_s = self._clock.now_s()
        # An answer that begins anew after a fault has no committed text to go back to.
        if self._record is None and self.options.on_interrupt is not OnInterrupt.RESTART:
            self._hold(self._store.open(self.head))
        await self._sink.open(
            StreamHead(stream_id=self.head.stream_id, target=target.name, model=meter.model)
        )

    async def replay(self) -> None:
        """Give a client that came back what it has not received of the committed text."""
        resumed = self.resumed
        if resumed is None or not (resumed.record.text or resumed.facts.finish):
            return
        self.began = True
        self.first_output_s = self._clock.now_s()
        self._last_output_s = self.first_output_s
        await self._sink.open(
            StreamHead(
                stream_id=self.head.stream_id,
                target=resumed.facts.target,
                model=resumed.facts.model,
            )
        )
        if resumed.plan.replay:
            await self._sink.deliver([Text(resumed.plan.replay)])
            self.machine.replayed(len(resumed.plan.replay))

    def keep_whole(self, finish: str) -> None:
        """The answer is complete and is to be kept: commit the rest of it.

        Args:
            finish: how it ended.
        """
        if self._record is None or self._record.fenced:
            return
        rest = len(self.machine.fragment)
        if rest and self.machine.state is State.SPLICING:
            self.machine.stand()
        if rest:
            self._commit(rest)
        if finish != self._finish:
            self._note_facts(finish)

    async def claim_end(self, finish: str) -> None:
        """The answer is whole, and the client not yet told: is that for this router to do?

        A client, or a proxy before it, may come back twice at once. The one that is taken over last
        goes on, and the other one learns that only when it next writes to the record, which may be
        too late. So a stream that was resumed writes down first that it is whole: whoever takes it
        over after that gives out what is there, and asks nobody; and if one has done so before, it
        is that one's to end. A store that does not answer in time does not hold up the end.

        Args:
            finish: how it ended.

        Raises:
            Fenced: another router owns the record.
        """
        record = self._record
        if record is None or self.resumed is None:
            return
        self.keep_whole(finish)
        watch = Watch(self._clock)
        watch.due_s = self._clock.now_s() + CLAIM_S
        try:
            with contextlib.suppress(Expired), watch:
                await record.settled()
        finally:
            watch.stop()
        if record.fenced:
            raise Fenced

    def _take_over(self, resumed: Resumed) -> None:
        text = resumed.record.text
        self._target, self._model = resumed.facts.target, resumed.facts.model
        self._gap = resumed.facts.gap
        self._hold(resumed.writer)
        # From now on delivered offsets are ours.
        self._note_facts(resumed.facts.finish)
        if self._structured is not None:
            self._structured.resume(text)
        elif text:
            self._boundary.feed(text)
            self._boundary.finish()
            self._boundary.feed(resumed.facts.gap)

    def _hold(self, record: RecordWriter) -> None:
        self._record = record
        # Asked only after the store has lost something: the record catches up from our own copy.
        record.source = self._committed_text
        record.on_fenced = self._on_fenced

    def _on_fenced(self) -> None:
        """Another router has taken the stream over: stop listening at once."""
        self.fenced = True
        self._stop_reading()
        if self.on_fenced is not None:
            self.on_fenced()

    def _committed_text(self) -> str:
        return self.machine.committed_text

    def _seal(self, out: list[Event]) -> None:
        """What no second model can take up is in the record before it is with the client: should
        this router die now, nobody asks again."""
        called = self._called or self._intake.ran or any(isinstance(one, ToolCall) for one in out)
        news = bool(called) > self._called or bool(self._intake.sealed) > self._sealed
        self._called, self._sealed = bool(called), bool(self._intake.sealed)
        if news:
            self._note_facts()

    def _note_tools(self, out: list[Event]) -> None:
        for event in out:
            if isinstance(event, ToolCall):
                self.machine.tool()
                self.tools.take(event)
            elif self._intake.ran and isinstance(event, Extra):
                self.machine.tool()

    def _advance(self, texts: list[str]) -> int:
        """Text is with the client: how much more of it may be committed?"""
        for text in texts:
            self.machine.text(text)
        joined = texts[0] if len(texts) == 1 else "".join(texts)
        # Of a document only whole values go out, so all of it may be committed.
        return len(joined) if self._structured is not None else self._boundary.feed(joined)

    def _make_judge(self, route: Route) -> Judge:
        assert route.check is not None  # noqa: S101 - asked before
        return Judge(
            route.check,
            stream_id=self.head.stream_id,
            route=route.name,
            machine=self.machine,
            boundary=self._boundary,
            intake=self._intake,
            structured=self._structured,
            clock=self._clock,
            tell=self._tell,
            commit=self._commit_judged,
            wake=self._stop_reading,
        )

    def _commit_judged(self, chars: int) -> None:
        with contextlib.suppress(Fenced):  # whoever reads notices it
            self._commit(chars)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.give_up()

    def release(self) -> None:
        """Nobody waits for this stream any more."""
        self.on_fenced = None
        if self._judge is not None:
            self._judge.release()

    def _commit(self, chars: int) -> None:
        record = self._record
        if record is None:
            return
        at_chars = self.machine.committed_chars
        delta = self.machine.commit(chars)
        gap = gap_of(self.machine.fragment)
        if gap != self._gap:
            self._gap, self._record_meta_changed = gap, True
        meta = self._facts().to_meta() if self._record_meta_changed else None
        self._record_meta_changed = False
        record.commit(delta, at_chars=at_chars, meta=meta)
        self._tell(
            Committed(
                stream_id=self.head.stream_id, committed_chars=at_chars + len(delta), delta=delta
            )
        )
        if record.fenced:
            raise Fenced

    def _note_facts(self, finish: str = "") -> None:
        """Write down the facts alone."""
        if self._record is not None:
            self._finish = finish
            facts = self._facts(finish)
            self._record.commit("", at_chars=self.machine.committed_chars, meta=facts.to_meta())

    def _facts(self, finish: str = "") -> Facts:
        """What a router that takes the stream over must know besides the text."""
        return Facts(
            epoch=self._record.epoch if self._record is not None else 1,
            part=self._part,
            start=self.resumed.plan.start if self.resumed is not None else 0,
            superseded=tuple(self.machine.superseded),
            tool_call=self._called,
            sealed=bool(self._intake.sealed),
            target=self._target,
            model=self._model,
            finish=finish,
            gap=self._gap,
        )

    def _tell_joined(self, pause_ms: float | None) -> None:
        if self._seam is None:
            return
        (failover, seam), self._seam = self._seam, None
        report = failover.report(seam.join.outcome.value, pause_ms)
        self.failovers.append(report)
        self._record_meta_changed = self._record_meta_changed or seam.superseded_chars > 0
        self._tell(
            Joined(
                stream_id=self.head.stream_id,
                report=report,
                fragment_chars=seam.fragment_chars,
                superseded_chars=seam.superseded_chars,
                dropped=seam.join.dropped,
            )
        )


def _machine_of(resumed: Resumed) -> CommitMachine:
    plan = resumed.plan
    return CommitMachine.resumed(
        resumed.record.text,
        resumed.record.boundaries,
        plan.received,
        plan.superseded,
        resumed.facts.gap,
    )
