"""The answers to the three questions, read off what the rounds have shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from router.core.continuation import ContinuationStyle, Style
from router.core.faults import Fault, Verdict
from router.drill import advice
from router.drill.advice import Fix, Pair
from router.drill.books import Witnessed, check_books
from router.drill.judge import MARKS, MEANS, Behaviour, JoinFacts, Manner, Mark, behaviour, worst
from router.drill.relay import End
from router.drill.stage import Heard, Round
from router.engine.report import AttemptReport, FailoverReport
from router.providers.registry import PREFILL_STYLES
from router.providers.resolve import configured, downgraded

UNCUT: Final = "uncut"
BEFORE: Final = "killed before"
AFTER: Final = "killed after"

TITLES: Final = {
    1: "Killed before the first token",
    2: "Killed in mid-answer",
    3: "The books",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seam:
    """What there was to join.

    Args:
        done: what the fallback did.
        manner: what it took.
        style: how it was asked at last.
        committed: the committed text.
        fragment: what the client had seen beyond it.
        came: the fallback's text as it came.
        superseded_chars: of the delivered text, what is not part of the answer.
        like_uncut: the joined answer is the uncut one word for word, as far as both go.
    """

    done: Behaviour
    manner: Manner
    style: str
    committed: str
    fragment: str
    came: str
    superseded_chars: int
    like_uncut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer to one of the three questions.

    Args:
        question: 1, 2 or 3.
        mark: what it is worth.
        words: what happened, in sentences.
        fixes: what would mend it.
        pause_ms: what the client waited, for its first token or in mid-answer, or None.
        asked_ms: of its wait for the first token, what passed before the fallback was asked.
        own_ms: the fallback's own time to its first token, or None.
        seam: what was joined, or None.
    """

    question: int
    mark: Mark
    words: tuple[str, ...]
    fixes: tuple[Fix, ...] = ()
    pause_ms: float | None = None
    asked_ms: float | None = None
    own_ms: float | None = None
    seam: Seam | None = None


# --- no question could be asked -------------------------------------------------------------------


def no_control(pair: Pair, control: Round) -> tuple[Finding, ...]:
    """Questions 1 and 2 where the target does not even answer when it is left in peace.

    Args:
        pair: who.
        control: what should have been its uncut answer.
    """
    rows = [row for row in control.report.attempts if row.target == pair.victim.name]
    fault = next((row.fault for row in rows if row.fault is not None), None)
    reason = next((seen.reason for seen in control.seen if seen.reason), "")
    said = reason or (fault.message if fault else "") or "it gave no answer"
    words = f"Not drilled: {pair.victim.name} gave no uncut answer ({_kind(fault)}: {said})."
    fix = advice.for_fault(pair, pair.victim, fault) if fault else None
    return tuple(
        Finding(question=n, mark=Mark.FAIL, words=(words,), fixes=(fix,) if fix and n == 1 else ())
        for n in (1, 2)
    )


def unstreamed(pair: Pair, texts: int) -> Finding:
    """Question 2 where there is no middle to cut.

    Args:
        pair: who.
        texts: tokens of the uncut answer.
    """
    return Finding(
        question=2,
        mark=Mark.WARN,
        words=(
            f"Not drilled: {pair.victim.name} sent {texts} token(s), too few to cut between them.",
            "Ask for a longer answer with --prompt.",
        ),
    )


# --- question 1 -----------------------------------------------------------------------------------


def before(pair: Pair, told: Round) -> Finding:
    """Question 1: the client may not have noticed anything but a wait.

    Args:
        pair: who.
        told: the round with the first accident.
    """
    last = told.report.attempts[-1]
    name = pair.fallback.name
    if not told.finished:
        return _lost(1, pair, told, last)
    fixes = [advice.second_target(pair)] if pair.alone else []
    late = advice.for_little_room(pair, last.first_output_ms or 0.0)
    words = [f"{last.target} gave the whole answer from its first token; the client saw no error."]
    if last.target != name or pair.alone:
        words.append("It was asked again, and was there again: that is no second provider.")
    return Finding(
        question=1,
        mark=Mark.WARN if late or pair.alone or last.target != name else Mark.PASS,
        words=tuple(words),
        fixes=tuple(fixes + ([late] if late else [])),
        pause_ms=told.report.first_output_ms,
        asked_ms=last.started_ms,
        own_ms=last.first_output_ms,
    )


def _lost(question: int, pair: Pair, told: Round, last: AttemptReport) -> Finding:
    """The client got an error."""
    target = pair.fallback if last.target == pair.fallback.name else pair.victim
    fix = advice.second_target(pair) if pair.alone else None
    if fix is None and last.fault is not None:
        fix = advice.for_fault(pair, target, last.fault)
    return Finding(
        question=question,
        mark=Mark.FAIL,
        words=(f"The client got an error: {told.error}",),
        fixes=(fix,) if fix else (),
    )


def _kind(fault: Fault | None) -> str:
    if fault is None:
        return "no fault"
    return f"{fault.kind} {fault.status}" if fault.status else f"{fault.kind}"


# --- question 2 -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """One attempt after the accident."""

    row: AttemptReport
    heard: Heard
    failover: FailoverReport | None

    @property
    def refused(self) -> bool:
        """A prefix was sent, and answered with an error about the request."""
        fault = self.row.fault
        return (
            fault is not None
            and fault.status is not None
            and fault.verdict in (Verdict.PREFIX_REFUSED, Verdict.REQUEST)
            and self.row.style in PREFILL_STYLES
        )


def midst(pair: Pair, rounds: Mapping[str, Round], place: int, after: int) -> Finding:
    """Question 2: what became of the answer that was cut in its middle.

    Args:
        pair: who.
        rounds: all three.
        place: tokens after which it was cut.
        after: tokens after which it should have been.
    """
    control, first, second = (rounds[name] for name in (UNCUT, BEFORE, AFTER))
    if not any(seen.end is End.CUT for seen in second.seen):
        return _uncut(pair, second)
    tried = _tried(pair, second)
    if not tried:
        return _nobody_asked(pair, second)
    refused = any(one.refused for one in tried)
    joined = next((one for one in tried if one.failover and one.failover.join), None)
    chosen = joined or next((one for one in tried if not one.refused), tried[-1])
    facts = _facts(pair, first, second, chosen)
    done = behaviour(facts)
    how = _how(pair, chosen, refused=refused)
    seam = Seam(
        done=done,
        manner=Manner.REFUSED if refused else Manner.PLAIN,
        style=chosen.row.style or "the original question",
        committed=facts.committed,
        fragment=facts.fragment,
        came=facts.came,
        superseded_chars=sum(end - start for start, end in second.report.superseded),
        like_uncut=second.finished and _same_text(second.canonical, control.delivered),
    )
    return Finding(
        question=2,
        mark=_mark(pair, second, done, refused=refused, attempts=len(tried) - refused),
        words=tuple(_words(pair, second, seam, place, after)),
        fixes=tuple(_fixes(pair, second, done, how, chosen, refused=refused)),
        pause_ms=chosen.failover.pause_ms if chosen.failover else None,
        own_ms=chosen.row.first_output_ms,
        seam=seam,
    )


def _tried(pair: Pair, told: Round) -> list[_Tried]:
    """The fallback's attempts. After output every attempt but the first is a failover."""
    rows = told.report.attempts
    failovers = dict(zip((row.number for row in rows[1:]), told.report.failovers, strict=False))
    return [
        _Tried(row=row, heard=heard, failover=failovers.get(row.number))
        for row, heard in zip(rows, told.heard, strict=True)
        if row.number > 1 and row.target == pair.fallback.name
    ]


def _facts(pair: Pair, first: Round, second: Round, chosen: _Tried) -> JoinFacts:
    report = second.report
    committed_chars = report.failovers[0].committed_chars if report.failovers else 0
    join = next(iter(second.joins), None)
    committed, beyond = second.delivered[:committed_chars], second.delivered[committed_chars:]
    afresh = [one.text for one in first.heard if one.target == pair.fallback.name]
    return JoinFacts(
        committed=committed,
        fragment=beyond if join is None else beyond[: join.fragment_chars],
        came=chosen.heard.text,
        # The last: where the victim itself goes on, its first answer was cut.
        afresh=afresh[-1] if afresh else "",
        outcome=chosen.failover.join if chosen.failover else "",
        dropped=join.dropped if join else (),
        fault=chosen.row.fault,
    )


def _how(pair: Pair, chosen: _Tried, *, refused: bool) -> ContinuationStyle:
    """The style and knobs of an attempt."""
    own = configured(pair.config, pair.fallback)
    return downgraded(own) if refused and chosen.row.style == Style.INSTRUCT else own


def _mark(pair: Pair, told: Round, done: Behaviour, *, refused: bool, attempts: int) -> Mark:
    detour = refused or attempts > 1 or pair.alone
    lost = Mark.PASS if told.finished else Mark.FAIL
    return worst([MARKS[done], Mark.WARN if detour else Mark.PASS, lost])


def _words(pair: Pair, told: Round, seam: Seam, place: int, after: int) -> list[str]:
    name = pair.fallback.name
    words = []
    if place != after:
        words.append(f"The answer is shorter than {after} tokens, so it was cut after {place}.")
    if seam.manner is Manner.REFUSED:
        words.append(f"{name} refused the prefix; the router asked again in words.")
    words.append(f"{name} {MEANS[seam.done]} ({seam.style}).")
    if pair.alone:
        words.append("It was asked again, and was there again: that is no second provider.")
    if not told.finished:
        words.append(f"The client got an error: {told.error}")
    return words


def _fixes(
    pair: Pair,
    told: Round,
    done: Behaviour,
    how: ContinuationStyle,
    chosen: _Tried,
    *,
    refused: bool,
) -> list[Fix]:
    found = [advice.second_target(pair) if pair.alone else None]
    if refused:
        found.append(advice.for_refusal(pair))
    mended = advice.for_behaviour(pair, done, how)
    found.append(mended)
    if mended is None and not told.finished and chosen.row.fault is not None:
        found.append(advice.for_fault(pair, pair.fallback, chosen.row.fault))
    if told.finished and chosen.row.first_output_ms is not None:
        found.append(advice.for_little_room(pair, chosen.row.first_output_ms))
    return [fix for fix in found if fix is not None]


def _uncut(pair: Pair, told: Round) -> Finding:
    reason = next((seen.reason for seen in told.seen if seen.reason), "")
    why = f"it failed by itself ({reason})" if reason else "its answer ended before the cut"
    return Finding(
        question=2,
        mark=Mark.WARN,
        words=(f"Not drilled: {pair.victim.name} was to be cut, but {why}. Drill again.",),
    )


def _nobody_asked(pair: Pair, told: Round) -> Finding:
    lost = _lost(2, pair, told, told.report.attempts[-1])
    if configured(pair.config, pair.fallback).style is not Style.NONE:
        return lost
    return Finding(question=2, mark=Mark.FAIL, words=lost.words, fixes=(advice.for_silence(pair),))


def _same_text(one: str, other: str) -> bool:
    """Word for word the same, as far as both go: token budgets end them at different places."""
    return one.startswith(other) or other.startswith(one)


# --- question 3 -----------------------------------------------------------------------------------


def books(pair: Pair, rounds: Mapping[str, Round]) -> Finding:
    """Question 3: do the books say what the relay and the client saw?

    Args:
        pair: who.
        rounds: those that there were.
    """
    checks = [
        check
        for name, told in rounds.items()
        for check in check_books(
            Witnessed(
                name=name,
                rows=told.rows,
                target=pair.victim.name,
                seen=told.seen,
                delivered_chars=len(told.delivered),
                finished=told.finished,
            )
        )
    ]
    wrong = [check.words for check in checks if not check.good]
    rows = [row for told in rounds.values() for row in told.rows]
    attempts = sum(len(row.attempts) for row in rows)
    summary = (
        f"{_count(len(rows), 'row')} with {_count(attempts, 'attempt')}; "
        f"{len(checks) - len(wrong)} of {len(checks)} comparisons with what the relay and the "
        "client saw hold."
    )
    return Finding(
        question=3,
        mark=Mark.FAIL if wrong else Mark.PASS,
        words=(summary, *wrong, *_guessed(rounds)),
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _guessed(rounds: Mapping[str, Round]) -> list[str]:
    """Whose whole answers came without a word about their cost."""
    rows = [row for told in rounds.values() for row in told.report.attempts]
    names = sorted({row.target for row in rows if row.fault is None and row.usage_estimated})
    return [f"{name} reports no usage: its costs are estimated in the books." for name in names]
