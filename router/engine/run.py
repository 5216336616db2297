"""One stream's way through its targets: THE loop.

Ask a target, pass its answer on, and when it dies decide, purely, what comes next. `Run` owns the
attempts and the budget; what a single attempt brings is `stream.py`'s business, and two attempts at
once are `hedge.py`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import msgspec

from router.core.commit import State
from router.core.continuation import Style
from router.core.events import Finish, finish_reason
from router.core.failover import Action, Ask, GiveUp, Phase, Progress, Refuse, Return
from router.core.faults import Fault, FaultKind, Verdict
from router.engine.asked import Asked
from router.engine.attempt import Attempt
from router.engine.choice import Choice, Means
from router.engine.failures import explain
from router.engine.hedge import Hedge
from router.engine.meter import Meter, add_usage
from router.engine.observe import AttemptEnded, AttemptStarted, StreamEnded
from router.engine.options import OnInterrupt
from router.engine.report import AttemptReport, StreamReport
from router.engine.route import Route, Stall, Target
from router.engine.sink import Failure, Sink
from router.engine.stream import Fenced, OpenFailover, Stream

ROUTER_STOPPED = "router_stopped"
"""The message of a cancellation that is no client's leaving: this process is being stopped."""


class Run:
    """One stream's way through its targets.

    Args:
        means: what every run is given.
        stream: the answer.
        route: where it may be found.
        sink: the client.
        on_end: told how it went, or None.
    """

    def __init__(
        self,
        means: Means,
        stream: Stream,
        route: Route,
        sink: Sink,
        on_end: Callable[[StreamReport], None] | None = None,
    ) -> None:
        self._on_end = on_end
        self._means = means
        self._stream = stream
        self._route = route
        self._sink = sink
        self._clock = means.clock
        self._started_s = means.clock.now_s()
        # Of this request: a record that is resumed was created by an earlier one.
        self._started_unix_s = means.clock.unix_s()
        self._choice = Choice(means, route, self._started_s + route.total_s)
        self._attempts: list[AttemptReport] = []
        self._report_at_end: StreamReport | None = None
        self._cool: Callable[[], None] | None = None
        stream.on_answering = self._answering

    async def run(self) -> StreamReport:
        """Go on until the client has a finish or an error.

        Returns:
            How it went; the client was told already.
        """
        try:
            return await self._loop()
        except asyncio.CancelledError as stop:
            gone = "record_fenced" if self._stream.fenced else "client_gone"
            self._abandon(ROUTER_STOPPED if ROUTER_STOPPED in stop.args else gone)
            raise
        except Exception:
            self._abandon("internal_error")
            raise
        finally:
            self._stream.release()
            if self._cool is not None:
                self._cool()

    def _answering(self, target: Target) -> None:
        """Output has come: the target is well, and the next one's connection is kept warm, so that
        a failover does not begin with a handshake."""
        self._means.health.answering(target.name)
        if self._cool is not None:
            self._cool()
            self._cool = None
        others = (one for one in self._route.targets if one is not target)
        standby = next((one for one in others if self._means.health.available(one.name)), None)
        if standby is not None:
            self._cool = standby.upstream.keep_warm(
                standby.provider.url, connect_s=standby.connect_s
            )

    def _abandon(self, outcome: str) -> None:
        """Nobody listens any more, or we have a bug: keep the books and the record honest."""
        if self._stream.machine.state not in (State.COMPLETED, State.BROKEN):
            self._end(outcome, finish="")

    async def _loop(self) -> StreamReport:
        await self._stream.replay()
        if self._stream.resumed is not None and self._stream.resumed.facts.finish:
            return await self._complete_kept(self._stream.resumed.facts.finish)
        asked = self.make(self._choice.first(committed=self._stream.machine.committed_chars > 0))
        change: OpenFailover | None = None
        while True:
            try:
                fault, winner = await self._follow(asked, change)
            except Fenced:
                return await self._fail(None, GiveUp("fenced"))
            if fault is None:
                assert self._report_at_end is not None  # noqa: S101 - `_complete` made it
                return self._report_at_end
            action = self._decide(fault, asked) if winner is None else winner.ask
            if self._stands():
                action = GiveUp("partial")
            if not isinstance(action, Ask):
                return await self._fail(fault, action)
            change = self._go_on(fault, asked, action)
            if self._begins_anew():
                await self._stream.restart()
            if winner is None and action.wait_s > 0:
                await self._clock.sleep(action.wait_s)
            asked = winner or self.make(action)

    def _stands(self) -> bool:
        """The client would rather keep what it has than see it continued."""
        wanted = self._stream.options.on_interrupt is OnInterrupt.PARTIAL
        return wanted and self._stream.phase is Phase.TEXT

    def _begins_anew(self) -> bool:
        """The client would rather forget what it has than see it continued."""
        wanted = self._stream.options.on_interrupt is OnInterrupt.RESTART
        return wanted and self._stream.machine.state is State.SPLICING

    # -- one attempt -------------------------------------------------------------------------

    def make(self, ask: Ask) -> Asked:
        """Prepare an attempt: its request is built, nothing is sent yet.

        Args:
            ask: whom, and how.
        """
        target = self._route.targets[ask.target]
        how = self._choice.style_for(ask)
        continuation = self._stream.continuation(how)
        sent = target.provider.sends(self._stream.request, continuation) if continuation else None
        number = self._choice.begin()
        asked = Asked(
            ask=ask,
            target=target,
            attempt=Attempt(
                target.upstream,
                target.provider,
                target.provider.build(self._stream.request, continuation, first=number == 1),
                self._choice.limits(target),
                self._clock,
                continuing=sent is not None and sent.style is not Style.RESTART,
            ),
            meter=self._meter(number, target, sent.style.value if sent else ""),
            how=how,
            sent=sent,
        )
        self._means.health.asked(target.name)
        self._means.tell(
            AttemptStarted(
                stream_id=self._stream.head.stream_id,
                number=asked.meter.number,
                target=target.name,
                style=asked.meter.style,
            )
        )
        return asked

    async def _follow(
        self, asked: Asked, change: OpenFailover | None
    ) -> tuple[Fault | None, Asked | None]:
        """Pass one attempt's answer on.

        Returns:
            Why the answer is not whole, or None if the client has its finish; and the attempt that
            overtook this one, if any did.
        """
        if change is not None:
            change = replace(change, style=asked.meter.style or "original")
        self._stream.expect(asked.how, asked.sent, change, asked.attempt)
        hedge = Hedge(self, asked) if self._route.stall is Stall.HEDGE else None
        finished = noted = False
        try:
            self._check_fence()  # it may have fallen while we waited
            fault = None if asked.opened else await asked.attempt.open()
            self._check_fence()
            if fault is None:
                fault = await self._stream.consume(
                    asked.attempt, asked.meter, asked.target, asked.first
                )
            fault = _in_context(fault, asked)
            noted = True
            self.note(asked, fault)
            if fault is None:
                finished = True
                if hedge is not None:
                    await hedge.aclose()  # what it cost belongs into the report
                await self._complete(asked)
                return None, None
            await asked.attempt.aclose()  # at once, and not when the other one has spoken
            return fault, None if hedge is None else await hedge.result()
        except BaseException as end:
            if not noted:
                self.note(asked, _given_up(end))
            raise
        finally:
            if hedge is not None:
                await hedge.aclose()
            await asked.attempt.aclose(finished=finished)

    def _check_fence(self) -> None:
        if self._stream.fenced:
            raise Fenced

    def note(self, asked: Asked, fault: Fault | None) -> None:
        """An attempt is over: into the report, to the observers, to the target's health.

        Args:
            asked: the attempt.
            fault: why it ended badly, or None.
        """
        report = asked.meter.report(fault)
        self._attempts.append(report)
        name = asked.target.name
        if fault is None:
            self._means.health.succeeded(name)
        else:
            self._means.health.failed(name, fault)
            self._choice.failed(asked.ask, fault)
        if asked.attempt.longest_gap_s:
            asked.target.gaps.add(asked.attempt.longest_gap_s)
        self._means.tell(AttemptEnded(stream_id=self._stream.head.stream_id, report=report))

    async def _complete(self, asked: Asked) -> None:
        self._stream.settle()
        await self._stream.begin(asked.meter, asked.target)
        await self._stream.claim_end(self._stream.finishes[0].reason)
        report = self._report("completed", finish=self._stream.finishes[0].reason)
        await self._sink.finish(self._stream.finishes, report.usage, report)
        self._end_whole(report)
        self._report_at_end = report

    async def _complete_kept(self, reason: str) -> StreamReport:
        """The answer was whole already, and was kept: what was missing has been replayed."""
        report = self._report("completed", finish=reason)
        finish = Finish(reason=finish_reason(reason))
        await self._sink.finish([finish], report.usage, report)
        self._end_whole(report)
        return report

    def _end_whole(self, report: StreamReport) -> None:
        keep_s = self._means.retention.completed_s
        if keep_s:
            self._stream.keep_whole(report.finish)
        self._stream.machine.finish()
        self._stream.close_record("completed", keep_s=keep_s)
        self._tell_end(report)

    # -- what next ---------------------------------------------------------------------------

    def beside(self, asked: Asked) -> Asked | None:
        """An attempt beside one that has fallen silent.

        Args:
            asked: the silent one.

        Returns:
            What a fault would have led to now, if that is another target at once.
        """
        silent = Fault(kind=FaultKind.IDLE_TIMEOUT)
        ask = self._decide(silent, asked, also_failed=asked.ask.target)
        if not isinstance(ask, Ask) or ask.wait_s or ask.target == asked.ask.target:
            return None
        return self.make(ask)

    def _decide(self, fault: Fault, asked: Asked, *, also_failed: int | None = None) -> Action:
        progress = Progress(
            phase=self._stream.phase,
            committed=self._stream.machine.committed_chars > 0,
            instructed=asked.instructed,
        )
        return self._choice.next(fault, progress, asked.ask, also_failed=also_failed)

    def _go_on(self, fault: Fault, asked: Asked, action: Ask) -> OpenFailover | None:
        """Turn to the next attempt.

        Returns:
            The failover that this is, or None for a retry that the client never sees.
        """
        self._choice.turn(asked.ask, action)
        unseen = self._stream.phase is Phase.BEFORE_OUTPUT
        self._stream.fault()
        if unseen and action.target == asked.ask.target:
            return None
        return OpenFailover(
            source=asked.target.name,
            to=self._route.targets[action.target].name,
            fault=fault,
            style="",
            committed_chars=self._stream.machine.committed_chars,
        )

    # -- the end -----------------------------------------------------------------------------

    async def _fail(self, fault: Fault | None, action: Return | Refuse | GiveUp) -> StreamReport:
        stream = self._stream
        stream.settle()
        told = explain(
            fault,
            action,
            self._attempts,
            begun=stream.began,
            tools=stream.describe_tools(),
            sealed=stream.sealed,
            passed_over=self._route.passed_over,
        )
        report = self._end(told.code or "refused", finish="")
        await self._sink.fail(
            Failure(
                status=told.status,
                message=told.message,
                type=told.type,
                code=told.code,
                param=told.param,
                retry_after_s=told.retry_after_s,
                begun=stream.began,
                report=report,
                partial=told.code == "partial_complete",
                closers=stream.closers,
            )
        )
        return report

    def _end(self, outcome: str, *, finish: str) -> StreamReport:
        kept = self._means.retention
        resumable = self._stream.resumable and kept.interrupted_s > 0 and not kept.nothing
        self._stream.machine.break_off()
        report = self._report(outcome, finish=finish, resumable=resumable)
        self._stream.close_record(outcome, keep_s=self._means.retention.interrupted_s)
        self._tell_end(report)
        return report

    def _tell_end(self, report: StreamReport) -> None:
        self._means.tell(StreamEnded(report=report))
        if self._on_end is not None:
            self._on_end(report)

    def _meter(self, number: int, target: Target, style: str) -> Meter:
        return Meter(
            self._clock,
            origin_s=self._started_s,
            number=number,
            target=target.name,
            model=target.model,
            style=style,
            prompt_chars=self._stream.request.prompt_chars,
        )

    def _report(self, outcome: str, *, finish: str, resumable: bool = False) -> StreamReport:
        stream = self._stream
        first_s = stream.first_output_s
        now_s = self._clock.now_s()
        attempts = tuple(sorted(self._attempts, key=lambda one: one.number))
        return StreamReport(
            stream_id=stream.head.stream_id,
            route=self._route.name,
            outcome=outcome,
            started_unix_s=self._started_unix_s,
            duration_ms=1000 * (now_s - self._started_s),
            first_output_ms=None if first_s is None else 1000 * (first_s - self._started_s),
            attempts=attempts,
            failovers=tuple(stream.failovers),
            superseded=tuple(stream.machine.superseded),
            delivered_chars=stream.machine.delivered_chars,
            committed_chars=stream.machine.committed_chars,
            boundaries=stream.machine.boundaries,
            usage=add_usage(attempts),
            finish=finish,
            resumed_from=stream.resumed.plan.start if stream.resumed is not None else None,
            resumable=resumable,
            retained=not self._means.retention.nothing,
        )


def _in_context(fault: Fault | None, asked: Asked) -> Fault | None:
    """A refused prefix means something only where one was sent."""
    if fault is not None and fault.verdict is Verdict.PREFIX_REFUSED and asked.sent is None:
        return msgspec.structs.replace(fault, verdict=Verdict.REQUEST)
    return fault


def _given_up(end: BaseException) -> Fault:
    """An attempt that ended with its stream: the client left, or the router gave it up."""
    if isinstance(end, asyncio.CancelledError) and ROUTER_STOPPED not in end.args:
        return Fault(kind=FaultKind.CLIENT_GONE)
    return Fault(kind=FaultKind.ABANDONED, message=type(end).__name__)
