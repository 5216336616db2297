"""THE loop: ask a target, pass its answer on, and when it dies decide, purely, what comes next."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from router.core.commit import State
from router.core.continuation import ContinuationStyle, Style
from router.core.failover import (
    Action,
    Ask,
    Budget,
    Candidate,
    GiveUp,
    Phase,
    Progress,
    Refuse,
    Return,
    first_target,
    next_action,
)
from router.core.faults import Fault, FaultKind, Verdict
from router.core.request import ChatRequest
from router.engine.attempt import Attempt, Limits
from router.engine.clock import Clock
from router.engine.failures import explain
from router.engine.health import Health
from router.engine.meter import Meter, add_usage
from router.engine.observe import AttemptEnded, AttemptStarted, Observers, StreamEnded
from router.engine.report import AttemptReport, StreamReport
from router.engine.route import Route, Target
from router.engine.sink import Failure, Sink
from router.engine.stream import Fenced, OpenFailover, Stream
from router.providers.registry import downgraded
from router.store.base import RecordHead, RecordStore

STREAM_ID_BYTES = 18
"""144 random bits: a stream id is also the right to resume the stream, so it cannot be guessed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long the record's text outlives its stream, in seconds.

    Args:
        completed_s: after the client got its finish.
        interrupted_s: after it did not: the window in which it may come back.
    """

    completed_s: float = 0.0
    interrupted_s: float = 120.0


class Engine:
    """Runs streams.

    Args:
        store: the failover records.
        health: the condition of the targets.
        clock: where time comes from.
        tell: the observers.
        retention: how long the record's text is kept.
        random: numbers in [0, 1), for jitter.
    """

    def __init__(
        self,
        *,
        store: RecordStore,
        health: Health,
        clock: Clock,
        tell: Observers,
        retention: Retention,
        random: Callable[[], float],
    ) -> None:
        self.store = store
        self.health = health
        self.clock = clock
        self.tell = tell
        self.retention = retention
        self.random = random

    def new_stream_id(self) -> str:
        """An id that cannot be guessed."""
        return secrets.token_urlsafe(STREAM_ID_BYTES)

    async def run(
        self,
        request: ChatRequest,
        route: Route,
        sink: Sink,
        *,
        stream_id: str,
        digest: str,
        owner: str,
    ) -> StreamReport:
        """Answer one request.

        Args:
            request: what was asked.
            route: where it may be answered.
            sink: the client.
            stream_id: from `new_stream_id`.
            digest: hex digest of the request's body.
            owner: digest of the API key that asked, or "".

        Returns:
            How it went; the client was told already.
        """
        head = RecordHead(
            stream_id=stream_id,
            kind="text",
            route=route.name,
            request_digest=digest,
            owner=owner,
            created=self.clock.unix_s(),
        )
        stream = Stream(
            head=head,
            request=request,
            route=route,
            sink=sink,
            store=self.store,
            clock=self.clock,
            tell=self.tell,
        )
        return await _Run(self, stream, route, sink).run()


@dataclass(slots=True)
class _Tried:
    """What this stream knows of one target."""

    failed: bool = False
    hopeless: bool = False
    instruct: bool = False


class _Run:
    """One stream's way through its targets."""

    def __init__(self, engine: Engine, stream: Stream, route: Route, sink: Sink) -> None:
        self._engine = engine
        self._stream = stream
        self._route = route
        self._sink = sink
        self._clock = engine.clock
        self._started_s = engine.clock.now_s()
        self._deadline_s = self._started_s + route.total_s
        self._attempts: list[AttemptReport] = []
        self._tried = [_Tried() for _ in route.targets]
        self._retries_in_a_row = 0
        self._prompt_chars = 0
        self._last_report: StreamReport | None = None
        self._how = ContinuationStyle()
        self._instructed = True

    async def run(self) -> StreamReport:
        """Go on until the client has a finish or an error."""
        try:
            return await self._loop()
        except asyncio.CancelledError:
            self._abandon("client_gone")
            raise
        except Exception:
            self._abandon("internal_error")
            raise

    def _abandon(self, outcome: str) -> None:
        """Nobody listens any more, or we have a bug: keep the books and the record honest."""
        if self._stream.machine.state not in (State.COMPLETED, State.BROKEN):
            self._end(outcome, finish="")

    async def _loop(self) -> StreamReport:
        ask = Ask(first_target(self._candidates()))
        change: OpenFailover | None = None
        while True:
            if ask.wait_s > 0:
                await self._clock.sleep(ask.wait_s)
            try:
                fault = await self._attempt(ask, change)
            except Fenced:
                return await self._fail(None, GiveUp("fenced"))
            if self._last_report is not None:
                return self._last_report
            assert fault is not None  # noqa: S101 - an attempt ends in a report or in a fault
            action = self._decide(fault, ask)
            if not isinstance(action, Ask):
                return await self._fail(fault, action)
            change = self._change(fault, ask, action)
            ask = action

    # -- one attempt -------------------------------------------------------------------------

    async def _attempt(self, ask: Ask, change: OpenFailover | None) -> Fault | None:
        """Ask one target.

        Returns:
            None if the client has its finish, else why not.
        """
        target = self._route.targets[ask.target]
        self._how = self._style_for(ask)
        continuation = self._stream.continuation(self._how)
        sent = target.provider.sends(self._stream.request, continuation) if continuation else None
        self._instructed = sent is None or sent.style in (Style.INSTRUCT, Style.RESTART)
        style = sent.style.value if sent else ""
        if change is not None:
            change = replace(change, style=style or "original")
        self._stream.expect(self._how, sent, change)
        meter = self._meter(target, style)
        self._engine.health.asked(target.name)
        self._engine.tell(
            AttemptStarted(
                stream_id=self._stream.head.stream_id,
                number=meter.number,
                target=target.name,
                style=style,
            )
        )
        attempt = Attempt(
            target.upstream,
            target.provider,
            target.provider.build(self._stream.request, continuation),
            self._limits(target),
            self._clock,
        )
        return await self._follow(attempt, meter, target, continued=continuation is not None)

    async def _follow(
        self, attempt: Attempt, meter: Meter, target: Target, *, continued: bool
    ) -> Fault | None:
        finished = noted = False
        try:
            fault = await attempt.open() or await self._stream.consume(attempt, meter, target)
            fault = _in_context(fault, continued=continued)
            noted = True
            self._note(meter, target, fault)
            if fault is None:
                finished = True
                await self._complete(meter, target)
        finally:
            if not noted:
                self._note(meter, target, Fault(kind=FaultKind.CLIENT_GONE))
            await attempt.aclose(finished=finished)
        return fault

    def _note(self, meter: Meter, target: Target, fault: Fault | None) -> None:
        """The attempt is over: into the report, to the observers, to the target's health."""
        report = meter.report(fault)
        self._attempts.append(report)
        self._engine.tell(AttemptEnded(stream_id=self._stream.head.stream_id, report=report))
        if fault is None:
            self._engine.health.succeeded(target.name)
        else:
            self._engine.health.failed(target.name, fault)

    async def _complete(self, meter: Meter, target: Target) -> None:
        self._stream.settle()
        await self._stream.begin(meter, target)
        report = self._report("completed", finish=self._stream.finishes[0].reason)
        await self._sink.finish(self._stream.finishes, report.usage, report)
        self._stream.machine.finish()
        self._stream.close_record("completed", keep_s=self._engine.retention.completed_s)
        self._engine.tell(StreamEnded(report=report))
        self._last_report = report

    # -- what next ---------------------------------------------------------------------------

    def _decide(self, fault: Fault, ask: Ask) -> Action:
        tried = self._tried[ask.target]
        tried.failed = True
        tried.hopeless = tried.hopeless or fault.verdict is Verdict.ACCOUNT
        action = next_action(
            fault,
            Progress(
                phase=self._stream.phase,
                committed=self._stream.machine.committed_chars > 0,
                instructed=self._instructed,
            ),
            self._budget(),
            self._candidates(),
            ask.target,
        )
        if isinstance(action, Ask):
            self._prepare(action, ask)
        return action

    def _prepare(self, action: Ask, ask: Ask) -> None:
        self._retries_in_a_row = self._retries_in_a_row + 1 if action.target == ask.target else 0
        if action.instruct:
            self._tried[action.target].instruct = True
            self._engine.health.refused_prefix(self._route.targets[action.target].name)
        self._stream.fault()

    def _change(self, fault: Fault, ask: Ask, action: Ask) -> OpenFailover | None:
        """Is the next attempt a failover, or only a retry that the client never sees?"""
        unseen = self._stream.phase is Phase.BEFORE_OUTPUT
        if unseen and action.target == ask.target:
            return None
        return OpenFailover(
            source=self._route.targets[ask.target].name,
            to=self._route.targets[action.target].name,
            fault=fault,
            style="",
            committed_chars=self._stream.machine.committed_chars,
        )

    def _style_for(self, ask: Ask) -> ContinuationStyle:
        target = self._route.targets[ask.target]
        how = target.provider.continuation
        switched = self._tried[ask.target].instruct or self._engine.health.prefers_instruct(
            target.name
        )
        return downgraded(how) if switched and _prefills(how) else how

    def _candidates(self) -> list[Candidate]:
        return [
            Candidate(
                available=self._engine.health.available(target.name),
                failed=tried.failed,
                hopeless=tried.hopeless,
                continues=target.provider.continuation.style is not Style.NONE,
                context_window=target.context_window,
                first_output_s=target.first_output_s,
            )
            for target, tried in zip(self._route.targets, self._tried, strict=True)
        ]

    def _budget(self) -> Budget:
        return Budget(
            attempts_left=self._route.max_attempts - len(self._attempts),
            time_left_s=self._deadline_s - self._clock.now_s(),
            retries_left=self._route.same_target_retries - self._retries_in_a_row,
            max_wait_s=self._route.max_wait_s,
            retry_number=self._retries_in_a_row,
            jitter=self._engine.random(),
        )

    def _limits(self, target: Target) -> Limits:
        return Limits(
            connect_s=target.connect_s,
            first_output_s=target.first_output_s,
            idle_s=target.idle_s,
            deadline_s=self._deadline_s,
        )

    # -- the end -----------------------------------------------------------------------------

    async def _fail(self, fault: Fault | None, action: Return | Refuse | GiveUp) -> StreamReport:
        stream = self._stream
        stream.settle()
        told = explain(fault, action, stream.machine.state, self._attempts, begun=stream.began)
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
            )
        )
        return report

    def _end(self, outcome: str, *, finish: str) -> StreamReport:
        self._stream.machine.break_off()
        report = self._report(outcome, finish=finish)
        self._stream.close_record(outcome, keep_s=self._engine.retention.interrupted_s)
        self._engine.tell(StreamEnded(report=report))
        return report

    def _meter(self, target: Target, style: str) -> Meter:
        return Meter(
            self._clock,
            origin_s=self._started_s,
            number=len(self._attempts) + 1,
            target=target.name,
            model=target.model,
            style=style,
            prompt_chars=self._stream.request.prompt_chars,
        )

    def _report(self, outcome: str, *, finish: str) -> StreamReport:
        stream = self._stream
        first_s = stream.first_output_s
        now_s = self._clock.now_s()
        attempts = tuple(self._attempts)
        return StreamReport(
            stream_id=stream.head.stream_id,
            route=self._route.name,
            outcome=outcome,
            started_unix_s=stream.head.created,
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
        )


def _prefills(how: ContinuationStyle) -> bool:
    return how.style not in (Style.RESTART, Style.NONE)


def _in_context(fault: Fault | None, *, continued: bool) -> Fault | None:
    """A refused prefix means something only where one was sent."""
    if fault is not None and fault.verdict is Verdict.PREFIX_REFUSED and not continued:
        return msgspec.structs.replace(fault, verdict=Verdict.REQUEST)
    return fault
