"""Whom to ask next, in which style, and within which limits: what one stream knows of its targets.

The decision itself is `core/failover.py`'s; here its inputs are gathered: what failed in this
stream, who is ejected, what is left of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from router.core.continuation import ContinuationStyle, Style
from router.core.failover import (
    Action,
    Ask,
    Budget,
    Candidate,
    Progress,
    first_target,
    next_action,
)
from router.core.faults import Fault, FaultKind, Verdict
from router.engine.attempt import Limits
from router.engine.clock import Clock
from router.engine.health import Health
from router.engine.observe import Observers
from router.engine.route import Route, Stall, Target
from router.providers.resolve import downgraded


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long the record's text outlives its stream, in seconds.

    Args:
        completed_s: after the client got its finish.
        interrupted_s: after it did not: the window in which it may come back.
        nothing: no text is kept at any time, so no stream can be resumed.
    """

    completed_s: float = 0.0
    interrupted_s: float = 120.0
    nothing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What every run is given.

    Args:
        health: the condition of the targets.
        clock: where time comes from.
        tell: the observers.
        retention: how long the record's text is kept.
        random: numbers in [0, 1), for jitter.
    """

    health: Health
    clock: Clock
    tell: Observers
    retention: Retention
    random: Callable[[], float]


@dataclass(slots=True)
class _Tried:
    """What this stream knows of one target."""

    failed: bool = False
    hopeless: bool = False
    instruct: bool = False


class Choice:
    """One stream's targets and budget.

    Args:
        means: what every run is given.
        route: the targets.
        deadline_s: monotonic time at which the whole request must be over.
    """

    def __init__(self, means: Means, route: Route, deadline_s: float) -> None:
        self._means = means
        self._route = route
        self._deadline_s = deadline_s
        self._begun = 0
        self._tried = [_Tried() for _ in route.targets]
        self._retries_in_a_row = 0

    def first(self, *, committed: bool = False) -> Ask:
        """Whom to ask first.

        Args:
            committed: there is text already, so it must be able to continue.
        """
        return Ask(first_target(self._candidates(None), committed=committed))

    def begin(self) -> int:
        """An attempt begins.

        Returns:
            Its number, from 1.
        """
        self._begun += 1
        return self._begun

    def failed(self, ask: Ask, fault: Fault) -> None:
        """An attempt ended badly.

        Args:
            ask: the decision that had led to it.
            fault: why; one that was only overtaken has not failed.
        """
        if fault.kind is not FaultKind.HEDGED:
            tried = self._tried[ask.target]
            tried.failed = True
            tried.hopeless = tried.hopeless or fault.verdict is Verdict.ACCOUNT

    def next(
        self, fault: Fault, progress: Progress, ask: Ask, *, also_failed: int | None = None
    ) -> Action:
        """What follows a fault.

        Args:
            fault: what happened.
            progress: where the stream is.
            ask: the decision that had led to the attempt.
            also_failed: index of a target to be taken for failed, though it may yet speak.
        """
        return next_action(
            fault, progress, self._budget(), self._candidates(also_failed), ask.target
        )

    def turn(self, before: Ask, after: Ask) -> None:
        """Another attempt will be made.

        Args:
            before: the decision that had led to the last one.
            after: the one that leads to the next.
        """
        same = after.target == before.target
        self._retries_in_a_row = self._retries_in_a_row + 1 if same else 0
        if after.instruct:
            self._tried[after.target].instruct = True
            self._means.health.refused_prefix(self._route.targets[after.target].name)

    def style_for(self, ask: Ask) -> ContinuationStyle:
        """How a target would go on: its own style, or in words once it has refused a prefix.

        Args:
            ask: whom.
        """
        target = self._route.targets[ask.target]
        how = target.provider.continuation
        switched = self._tried[ask.target].instruct or self._means.health.prefers_instruct(
            target.name
        )
        prefills = how.style not in (Style.RESTART, Style.NONE)
        return downgraded(how) if switched and prefills else how

    def limits(self, target: Target) -> Limits:
        """The clocks of an attempt.

        Args:
            target: whom it asks.
        """
        learnt_s = target.gaps.limit_s() if self._route.stall is not Stall.FIXED else None
        usual_s = target.idle_s if learnt_s is None else min(target.idle_s, learnt_s)
        hedging = self._route.stall is Stall.HEDGE
        return Limits(
            connect_s=target.connect_s,
            first_output_s=target.first_output_s,
            idle_s=target.idle_s if hedging else usual_s,
            deadline_s=self._deadline_s,
            slow_s=usual_s if hedging else math.inf,
        )

    def _candidates(self, also_failed: int | None) -> list[Candidate]:
        return [
            Candidate(
                available=self._means.health.available(target.name),
                failed=tried.failed or at == also_failed,
                hopeless=tried.hopeless,
                continues=target.provider.continuation.style is not Style.NONE,
                context_window=target.context_window,
                first_output_s=target.first_output_s,
            )
            for at, (target, tried) in enumerate(zip(self._route.targets, self._tried, strict=True))
        ]

    def _budget(self) -> Budget:
        return Budget(
            attempts_left=self._route.max_attempts - self._begun,
            time_left_s=self._deadline_s - self._means.clock.now_s(),
            retries_left=self._route.same_target_retries - self._retries_in_a_row,
            max_wait_s=self._route.max_wait_s,
            retry_number=self._retries_in_a_row,
            jitter=self._means.random(),
        )
