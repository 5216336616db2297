"""What follows a fault: every cell of the table, every limit of the budget, and what never is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.failover import (
    BACKOFF_BASE_S,
    RULES,
    RULES_TEXT,
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

AMPLE = Budget(attempts_left=4, time_left_s=600.0, retries_left=1)
FAILED, FRESH = Candidate(failed=True), Candidate()
K, V = FaultKind, Verdict


def decide(
    fault: Fault,
    *,
    phase: Phase = Phase.BEFORE_OUTPUT,
    committed: bool | None = None,
    instructed: bool = False,
    budget: Budget = AMPLE,
    candidates: tuple[Candidate, ...] = (FAILED, FRESH),
    current: int = 0,
) -> Action:
    has_text = phase is Phase.TEXT if committed is None else committed
    progress = Progress(phase=phase, committed=has_text, instructed=instructed)
    return next_action(fault, progress, budget, candidates, current)


# -- the table -------------------------------------------------------------------------------------

RETRY = Ask(0, wait_s=BACKOFF_BASE_S * AMPLE.jitter)
NEXT = Ask(1)
INSTRUCT = Ask(0, instruct=True)

# A failed first target and a fresh second one of the same size. One action for all verdicts, or
# one for each of transient, account, request, prefix_refused.
BEFORE: dict[FaultKind, Action | tuple[Action, ...]] = {
    K.CONNECT: NEXT,
    K.STATUS: (RETRY, NEXT, Return(), Return()),
    K.CONTEXT_LENGTH: Return(),
    K.CONTENT_POLICY: Return(),
    K.FIRST_OUTPUT_TIMEOUT: NEXT,
    K.IDLE_TIMEOUT: NEXT,
    K.CUT: NEXT,
    K.TRUNCATED: NEXT,
    K.STREAM_ERROR: (RETRY, NEXT, Return(), Return()),
    K.MALFORMED: NEXT,
    K.DIVERGED: NEXT,
    K.SCHEMA_VIOLATION: NEXT,
    K.BOUNDARY_REJECTED: (NEXT, NEXT, Return(), NEXT),
    K.DEADLINE: GiveUp("deadline"),
    K.CLIENT_GONE: Return(),
    K.HEDGED: NEXT,
    K.ABANDONED: Return(),
}
AFTER_TEXT: dict[FaultKind, Action | tuple[Action, ...]] = {
    **BEFORE,
    K.STATUS: (NEXT, NEXT, INSTRUCT, INSTRUCT),
    K.CONTEXT_LENGTH: NEXT,
    K.STREAM_ERROR: (NEXT, NEXT, Return(), INSTRUCT),
}
SEALED: dict[FaultKind, Action | tuple[Action, ...]] = {
    **dict.fromkeys(FaultKind, Refuse()),
    K.DEADLINE: GiveUp("deadline"),
}
TABLE = {Phase.BEFORE_OUTPUT: BEFORE, Phase.TEXT: AFTER_TEXT, Phase.SEALED: SEALED}


def test_the_tables_are_complete() -> None:
    for rules in (RULES, RULES_TEXT):
        assert set(rules) == set(FaultKind)
        assert all(set(row) == set(Verdict) for row in rules.values())
    assert all(set(rows) == set(FaultKind) for rows in TABLE.values())
    assert set(TABLE) == set(Phase)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("kind", FaultKind)
@pytest.mark.parametrize("verdict", Verdict)
def test_every_cell(phase: Phase, kind: FaultKind, verdict: Verdict) -> None:
    row = TABLE[phase][kind]
    expected = row[list(Verdict).index(verdict)] if isinstance(row, tuple) else row
    assert decide(Fault(kind=kind, verdict=verdict), phase=phase) == expected


# -- the same target -------------------------------------------------------------------------------

LIMITED = Fault(kind=K.STATUS, status=429)
REFUSED = Fault(kind=K.STATUS, status=400, verdict=V.PREFIX_REFUSED)


def test_a_refused_prefix_is_asked_for_in_words_once() -> None:
    assert decide(REFUSED, phase=Phase.TEXT) == Ask(0, instruct=True)
    assert decide(REFUSED, phase=Phase.TEXT, instructed=True) == Ask(1)


def test_without_retries_left_the_next_target_is_asked() -> None:
    assert decide(LIMITED, budget=replace(AMPLE, retries_left=0)) == Ask(1)


@pytest.mark.parametrize(
    ("asked_s", "expected"), [(0.0, Ask(0)), (2.0, Ask(0, 2.0)), (2.1, Ask(1))]
)
def test_a_wait_that_was_asked_for_is_obeyed_or_the_target_is_left_alone(
    asked_s: float, expected: Action
) -> None:
    fault = Fault(kind=K.STATUS, status=429, retry_after_s=asked_s)
    assert decide(fault, budget=replace(AMPLE, max_wait_s=2.0)) == expected


@given(st.integers(0, 40), st.floats(0, 1, exclude_max=True), st.floats(0, 10))
def test_the_wait_is_drawn_below_a_ceiling_that_doubles(
    number: int, jitter: float, max_wait_s: float
) -> None:
    budget = replace(AMPLE, retry_number=number, jitter=jitter, max_wait_s=max_wait_s)
    action = decide(LIMITED, budget=budget)
    assert isinstance(action, Ask)
    assert action.target == 0
    assert 0 <= action.wait_s <= min(max_wait_s, BACKOFF_BASE_S * 2**number)


# -- which one is next -----------------------------------------------------------------------------

CUT = Fault(kind=K.CUT)
EJECTED = Candidate(available=False)
HOPELESS = Candidate(failed=True, hopeless=True)
NEVER_GOES_ON = Candidate(continues=False)


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ((FAILED, FRESH, FRESH), Ask(1)),
        ((FAILED, EJECTED, FRESH), Ask(2)),
        ((FAILED, EJECTED, EJECTED), Ask(1)),
        ((FAILED, FAILED, FRESH), Ask(2)),
        ((FAILED, NEVER_GOES_ON, FRESH), Ask(2)),
        ((FAILED, NEVER_GOES_ON, EJECTED), Ask(2)),
        # nobody fresh: the one that failed, after a wait
        ((FAILED, FAILED), RETRY),
        ((FAILED, NEVER_GOES_ON), RETRY),
        ((FAILED, HOPELESS), RETRY),
        ((HOPELESS, FAILED), replace(RETRY, target=1)),
        ((HOPELESS, HOPELESS), GiveUp("targets")),
        ((HOPELESS, NEVER_GOES_ON), GiveUp("targets")),
        ((HOPELESS, FRESH), Ask(1)),
    ],
)
def test_the_next_target(candidates: tuple[Candidate, ...], expected: Action) -> None:
    assert decide(CUT, phase=Phase.TEXT, candidates=candidates) == expected


def test_a_target_that_never_continues_serves_what_is_not_committed() -> None:
    both = (FAILED, NEVER_GOES_ON)
    assert decide(CUT, phase=Phase.TEXT, committed=False, candidates=both) == Ask(1)
    assert decide(CUT, phase=Phase.BEFORE_OUTPUT, candidates=both) == Ask(1)


def test_targets_before_the_failed_one_are_asked_too() -> None:
    assert decide(CUT, candidates=(FRESH, FAILED), current=1) == Ask(0)


def test_the_only_one_left_is_asked_again_after_a_wait_that_fits() -> None:
    one = (FAILED,)
    assert decide(CUT, phase=Phase.TEXT, candidates=one) == RETRY
    long = Fault(kind=K.STATUS, retry_after_s=60.0)
    assert decide(long, phase=Phase.TEXT, candidates=one) == GiveUp("targets")


def test_one_that_wrote_the_answer_anew_is_not_asked_again() -> None:
    assert decide(Fault(kind=K.DIVERGED), phase=Phase.TEXT, candidates=(FAILED,)) == GiveUp(
        "targets"
    )


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ((8_000, 8_000), Return()),
        ((8_000, 4_000), Return()),
        ((8_000, 16_000), Ask(1)),
        ((8_000, None), Return()),
        ((None, 16_000), Return()),
        ((8_000, 8_000, 32_000), Ask(2)),
    ],
)
def test_too_long_a_request_goes_only_to_a_larger_window(
    windows: tuple[int | None, ...], expected: Action
) -> None:
    candidates = tuple(
        Candidate(failed=at == 0, context_window=size) for at, size in enumerate(windows)
    )
    assert decide(Fault(kind=K.CONTEXT_LENGTH), candidates=candidates) == expected


def test_a_larger_window_that_failed_already_is_not_asked() -> None:
    candidates = (
        Candidate(failed=True, context_window=8_000),
        Candidate(failed=True, context_window=16_000),
    )
    assert decide(Fault(kind=K.CONTEXT_LENGTH), candidates=candidates) == Return()


@pytest.mark.parametrize(
    ("available", "expected"),
    [((True, True), 0), ((False, True), 1), ((False, False), 0), ((True, False), 0)],
)
def test_whom_to_ask_first(available: tuple[bool, ...], expected: int) -> None:
    assert first_target([Candidate(available=one) for one in available]) == expected


# -- the budget ------------------------------------------------------------------------------------


def test_no_attempt_is_left() -> None:
    assert decide(CUT, budget=replace(AMPLE, attempts_left=0)) == GiveUp("attempts")
    assert decide(CUT, budget=replace(AMPLE, attempts_left=1)) == Ask(1)


def test_an_attempt_that_cannot_finish_its_first_output_limit_is_not_started() -> None:
    slow = Candidate(first_output_s=15.0)
    for time_left_s, expected in ((15.0, Ask(1)), (14.9, GiveUp("deadline"))):
        budget = replace(AMPLE, time_left_s=time_left_s)
        assert decide(CUT, budget=budget, candidates=(FAILED, slow)) == expected


def test_the_wait_counts_against_the_deadline() -> None:
    fault = Fault(kind=K.STATUS, retry_after_s=1.0)
    one = (Candidate(failed=True, first_output_s=15.0),)
    for time_left_s, expected in ((16.0, Ask(0, 1.0)), (15.9, GiveUp("deadline"))):
        budget = replace(AMPLE, time_left_s=time_left_s)
        assert decide(fault, budget=budget, candidates=one) == expected


# -- never -----------------------------------------------------------------------------------------

faults = st.builds(
    Fault,
    kind=st.sampled_from(FaultKind),
    verdict=st.sampled_from(Verdict),
    retry_after_s=st.none() | st.floats(0, 100),
)
candidate_lists = st.lists(
    st.builds(
        Candidate,
        available=st.booleans(),
        failed=st.booleans(),
        hopeless=st.booleans(),
        continues=st.booleans(),
        context_window=st.none() | st.sampled_from((4_000, 8_000)),
        first_output_s=st.floats(0.1, 60),
    ),
    min_size=1,
    max_size=5,
)
progresses = st.builds(
    Progress, phase=st.sampled_from(Phase), committed=st.booleans(), instructed=st.booleans()
)
budgets = st.builds(
    Budget,
    attempts_left=st.integers(-1, 4),
    time_left_s=st.floats(-10, 100),
    retries_left=st.integers(-1, 3),
    max_wait_s=st.floats(0, 10),
    retry_number=st.integers(0, 10),
    jitter=st.floats(0, 1, exclude_max=True),
)


@given(st.data(), faults, progresses, budgets, candidate_lists)
def test_whatever_happens(
    data: st.DataObject,
    fault: Fault,
    progress: Progress,
    budget: Budget,
    candidates: list[Candidate],
) -> None:
    # Of a fault after a commit the decision knows that it is not before the first output.
    if progress.phase is Phase.BEFORE_OUTPUT:
        progress = replace(progress, committed=False)
    current = data.draw(st.integers(0, len(candidates) - 1))
    action = next_action(fault, progress, budget, candidates, current)
    assert next_action(fault, progress, budget, candidates, current) == action
    if progress.phase is Phase.SEALED:
        assert isinstance(action, Refuse | GiveUp)
    if not isinstance(action, Ask):
        return
    target = candidates[action.target]
    assert not target.hopeless
    assert target.continues or not progress.committed
    assert budget.attempts_left >= 1
    assert action.wait_s <= budget.max_wait_s
    assert action.wait_s + target.first_output_s <= budget.time_left_s
    assert fault.kind not in (K.DEADLINE, K.CLIENT_GONE, K.CONTENT_POLICY)
    if action.instruct:
        assert action.target == current
        assert not progress.instructed
    elif progress.phase is Phase.TEXT and target.failed and action.target != current:
        # One that failed before is asked again only when nobody else is left.
        assert all(
            one.failed or one.hopeless or not (one.continues or not progress.committed)
            for one in candidates
        )
