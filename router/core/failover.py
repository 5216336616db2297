"""What to do about a fault: one pure decision, `next_action`.

The rules are two tables. `RULES` says for each kind of fault and each verdict what is wanted before
the first output, `RULES_TEXT` what is wanted once text was delivered. After a tool call there is
nothing to want: the answer is `Refuse`. What is wanted is then held against the budget: attempts
left, time left, targets left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from router.core.faults import Fault, FaultKind, Verdict

BACKOFF_BASE_S = 0.25
"""Ceiling of the first wait before the same target is asked again; doubles with every retry."""


class Phase(StrEnum):
    """How far the stream is, as far as failover cares."""

    BEFORE_OUTPUT = "before_output"
    TEXT = "text"
    SEALED = "sealed"
    """A tool call, or something else that no second model can take up, was delivered."""


class Want(StrEnum):
    """What a rule asks for."""

    RETRY = "retry"
    """The same target once more if the wait fits, else the next."""
    NEXT = "next"
    """The next target."""
    LARGER = "larger"
    """The next target, if its context window is larger; else the fault is returned."""
    INSTRUCT = "instruct"
    """The same target in the style `instruct`; if that was it already, the next target."""
    RETURN = "return"
    """The fault is the answer."""


_BY_VERDICT = {
    Verdict.TRANSIENT: Want.RETRY,
    Verdict.ACCOUNT: Want.NEXT,
    Verdict.REQUEST: Want.RETURN,
    Verdict.PREFIX_REFUSED: Want.RETURN,
}
_ALWAYS_NEXT = dict.fromkeys(Verdict, Want.NEXT)
_ALWAYS_RETURN = dict.fromkeys(Verdict, Want.RETURN)

RULES: Mapping[FaultKind, Mapping[Verdict, Want]] = {
    FaultKind.CONNECT: _ALWAYS_NEXT,
    FaultKind.STATUS: _BY_VERDICT,
    FaultKind.CONTEXT_LENGTH: dict.fromkeys(Verdict, Want.LARGER),
    FaultKind.CONTENT_POLICY: _ALWAYS_RETURN,
    FaultKind.FIRST_OUTPUT_TIMEOUT: _ALWAYS_NEXT,
    FaultKind.IDLE_TIMEOUT: _ALWAYS_NEXT,
    FaultKind.CUT: _ALWAYS_NEXT,
    FaultKind.TRUNCATED: _ALWAYS_NEXT,
    FaultKind.STREAM_ERROR: _BY_VERDICT,
    FaultKind.MALFORMED: _ALWAYS_NEXT,
    FaultKind.DIVERGED: _ALWAYS_NEXT,
    FaultKind.SCHEMA_VIOLATION: _ALWAYS_NEXT,
    # The route says by the verdict whether a rejection ends the stream.
    FaultKind.BOUNDARY_REJECTED: {**_ALWAYS_NEXT, Verdict.REQUEST: Want.RETURN},
    FaultKind.DEADLINE: _ALWAYS_RETURN,
    FaultKind.CLIENT_GONE: _ALWAYS_RETURN,
    FaultKind.ABANDONED: _ALWAYS_RETURN,
    FaultKind.HEDGED: _ALWAYS_NEXT,
}
"""Before the first output: the client has seen nothing, so everything may be tried."""

RULES_TEXT: Mapping[FaultKind, Mapping[Verdict, Want]] = {
    **RULES,
    # An HTTP status here answers a continuation that the client never asked for: a verdict on it
    # is a verdict on its prefix, not on the client's request.
    FaultKind.STATUS: {
        Verdict.TRANSIENT: Want.NEXT,
        Verdict.ACCOUNT: Want.NEXT,
        Verdict.REQUEST: Want.INSTRUCT,
        Verdict.PREFIX_REFUSED: Want.INSTRUCT,
    },
    FaultKind.CONTEXT_LENGTH: _ALWAYS_NEXT,
    FaultKind.STREAM_ERROR: {
        Verdict.TRANSIENT: Want.NEXT,
        Verdict.ACCOUNT: Want.NEXT,
        Verdict.REQUEST: Want.RETURN,
        Verdict.PREFIX_REFUSED: Want.INSTRUCT,
    },
}
"""After text: the same, but a target is asked twice only in another style."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One target of the route, as the decision sees it; listed in priority order.

    Args:
        available: not ejected.
        failed: it failed in this stream already.
        hopeless: it failed in a way that another try in this stream cannot mend (a refused key).
        continues: it is able to go on from committed text.
        context_window: tokens, or None if not configured.
        first_output_s: its first-output limit in seconds.
    """

    available: bool = True
    failed: bool = False
    hopeless: bool = False
    continues: bool = True
    context_window: int | None = None
    first_output_s: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the stream is.

    Args:
        phase: see `Phase`.
        committed: something is committed, so a continuation needs a target that can continue.
        instructed: the failed attempt already was in the style `instruct`, or no continuation.
    """

    phase: Phase
    committed: bool = False
    instructed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may still be spent.

    Args:
        attempts_left: upstream calls that may still be made.
        time_left_s: seconds until the deadline of the whole request.
        retries_left: how often the failed target may still be asked again in a row.
        max_wait_s: longest wait before a retry, in seconds.
        retry_number: 0 for the first retry of this target.
        jitter: a random number in [0, 1), for full jitter.
    """

    attempts_left: int
    time_left_s: float
    retries_left: int = 0
    max_wait_s: float = 2.0
    retry_number: int = 0
    jitter: float = 0.5


@dataclass(frozen=True, slots=True)
class Ask:
    """Open an attempt.

    Args:
        target: index of the target.
        wait_s: seconds to wait first.
        instruct: use the style `instruct`, whatever the target's own is.
    """

    target: int
    wait_s: float = 0.0
    instruct: bool = False


@dataclass(frozen=True, slots=True)
class Return:
    """The fault is the answer: pass the provider's reason on."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """No second request may be made: what was delivered cannot be taken up by another model."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The budget is spent.

    Args:
        reason: "attempts", "targets" or "deadline".
    """

    reason: str


Action: TypeAlias = Ask | Return | Refuse | GiveUp


def next_action(
    fault: Fault,
    progress: Progress,
    budget: Budget,
    candidates: Sequence[Candidate],
    current: int,
) -> Action:
    """Decide what follows a fault.

    Args:
        fault: what happened.
        progress: where the stream is.
        budget: what may still be spent.
        candidates: the route's targets in priority order; the current one is marked as failed.
        current: index of the target that failed.

    Returns:
        What to do.
    """
    if fault.kind is FaultKind.DEADLINE:
        return GiveUp("deadline")
    if progress.phase is Phase.SEALED:
        return Refuse()
    rules = RULES if progress.phase is Phase.BEFORE_OUTPUT else RULES_TEXT
    want = rules[fault.kind][fault.verdict]
    if want is Want.RETURN:
        return Return()
    if want is Want.LARGER:
        return _larger(budget, candidates, current)
    again = None
    if _able(candidates[current], progress):
        again = _same_target(want, fault, progress, budget, candidates=candidates, current=current)
    return _within(budget, candidates, again or _next(fault, progress, budget, candidates, current))


def first_target(candidates: Sequence[Candidate], *, committed: bool = False) -> int:
    """Whom to ask first.

    Args:
        candidates: the route's targets in priority order, at least one of them able.
        committed: a stream is resumed that has committed text: only those that continue are able.

    Returns:
        Index of the first that is not ejected; with all ejected, of the first: asking is better
        than refusing.
    """
    able = [at for at, one in enumerate(candidates) if one.continues or not committed]
    return next((at for at in able if candidates[at].available), able[0])


def _able(one: Candidate, progress: Progress) -> bool:
    """Whether asking it makes sense at all."""
    return not one.hopeless and (one.continues or not progress.committed)


def _same_target(
    want: Want,
    fault: Fault,
    progress: Progress,
    budget: Budget,
    *,
    candidates: Sequence[Candidate],
    current: int,
) -> Ask | None:
    if want is Want.INSTRUCT and not progress.instructed:
        return Ask(current, instruct=True)
    # Nobody goes unasked so that one is asked twice.
    spare = budget.attempts_left > sum(
        one.available and not one.failed and _able(one, progress) for one in candidates
    )
    # This very fault may have ejected it: a probe that failed is one request, not two.
    if want is Want.RETRY and budget.retries_left > 0 and spare and candidates[current].available:
        wait_s = _wait_s(fault, budget)
        ask = None if wait_s is None else Ask(current, wait_s=wait_s)
        # A wait that the deadline does not allow is no reason not to ask somebody else at once.
        return ask if ask is not None and _fits(ask, budget, candidates) else None
    return None


def _next(
    fault: Fault,
    progress: Progress,
    budget: Budget,
    candidates: Sequence[Candidate],
    current: int,
) -> Ask | GiveUp:
    able = [at for at, one in enumerate(candidates) if _able(one, progress)]
    fresh = [at for at in able if not candidates[at].failed]
    # An ejected target is asked only when nobody else is left: better than no answer. One that has
    # too little time left is passed over for one that answers faster.
    ranked = [Ask(at) for at in (*(f for f in fresh if candidates[f].available), *fresh)]
    fitting = (ask for ask in ranked if _fits(ask, budget, candidates))
    for ask in (*fitting, *ranked):
        return ask
    # The only one left that is able may be asked again, but never at once.
    again = current if current in able else next(iter(able), None)
    wait_s = _wait_s(fault, budget)
    if again is None or wait_s is None or fault.kind is FaultKind.DIVERGED:
        return GiveUp("targets")
    return Ask(again, wait_s=wait_s)


def _wait_s(fault: Fault, budget: Budget) -> float | None:
    """How long to wait before a target is asked again, or None if it should not be.

    A `Retry-After` is obeyed or the target is left alone; without one the wait is drawn evenly
    from [0, ceiling), the ceiling doubling with every retry ("full jitter").
    """
    if fault.retry_after_s is not None:
        return fault.retry_after_s if fault.retry_after_s <= budget.max_wait_s else None
    return min(budget.max_wait_s, BACKOFF_BASE_S * 2.0**budget.retry_number) * budget.jitter


def _larger(budget: Budget, candidates: Sequence[Candidate], current: int) -> Action:
    """Asking a window of the same size again would be the same refusal."""
    size = candidates[current].context_window
    for at, one in enumerate(candidates):
        larger = size is not None and one.context_window is not None and one.context_window > size
        if larger and not one.failed and not one.hopeless:
            return _within(budget, candidates, Ask(at))
    return Return()


def _fits(ask: Ask, budget: Budget, candidates: Sequence[Candidate]) -> bool:
    return ask.wait_s + candidates[ask.target].first_output_s <= budget.time_left_s


def _within(budget: Budget, candidates: Sequence[Candidate], ask: Ask | GiveUp) -> Ask | GiveUp:
    """An attempt that cannot finish its first-output limit inside the deadline is not started."""
    if isinstance(ask, GiveUp):
        return ask
    if budget.attempts_left < 1:
        return GiveUp("attempts")
    return ask if _fits(ask, budget, candidates) else GiveUp("deadline")
