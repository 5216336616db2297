"""A drill's results as people and as programs read them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from router.books import Entry
from router.drill.advice import Fix, Pair
from router.drill.findings import TITLES, Finding, Seam
from router.drill.judge import Behaviour, Mark, worst
from router.drill.question import Cost
from router.drill.rounds import PairResult, answered_by
from router.drill.stage import Round

WIDTH: Final = 96
SNIPPET_CHARS: Final = 72
"""How much of a text is shown."""
_WRITES_AGAIN: Final = (Behaviour.CONTINUED, Behaviour.ECHOED)
_INDENT: Final = "   "
_LABEL_CHARS: Final = 12


# --- for people -----------------------------------------------------------------------------------


def plan(pairs: Sequence[tuple[str, str]], cost: Cost, after: int) -> Iterator[str]:
    """What is about to happen, and what it costs.

    Args:
        pairs: names of the target that is cut, and of the one that goes on.
        cost: the estimate.
        after: tokens after which it is cut in mid-answer.
    """
    calls = ", ".join(f"{count} to {name}" for name, count in cost.calls.items())
    for cut, goes_on in pairs:
        yield f"Drill: {cut} is killed, {goes_on} goes on; in mid-answer after {after} tokens."
    yield from _wrapped(
        f"It makes {sum(cost.calls.values())} calls ({calls}) with the keys of the configuration: "
        f"about {cost.tokens_in:,} tokens in and at most {cost.tokens_out:,} out, in all."
    )
    yield ""


def told(result: PairResult) -> Iterator[str]:
    """One pair's result.

    Args:
        result: of the drill.
    """
    yield _headline(result.pair)
    yield ""
    if answered_by(result.control, result.pair.victim.name):
        yield from _uncut(result.control)
    for finding in result.findings:
        yield from _finding(finding)
        if finding.question == 3:
            yield from _rows(result)
        yield ""
    fixes = list(dict.fromkeys(fix for one in result.findings for fix in one.fixes))
    if fixes:
        yield "What would mend it (these keys at their place; the rest of the file stays)"
        yield ""
        for fix in fixes:
            yield from _fix(fix)


def closing(results: Sequence[PairResult]) -> str:
    """The last line.

    Args:
        results: of every pair.
    """
    marks = [finding.mark for result in results for finding in result.findings]
    counts = ", ".join(f"{marks.count(mark)} {mark}" for mark in Mark if mark in marks)
    return f"Verdict: {worst(marks)} ({counts})"


def _headline(pair: Pair) -> str:
    names = pair.victim.name if pair.alone else f"{pair.victim.name} → {pair.fallback.name}"
    return f"── {pair.route}: {names} ".ljust(WIDTH, "─")


def _uncut(control: Round) -> Iterator[str]:
    row, seen = control.report.attempts[-1], control.seen[-1]
    yield (
        f"   Uncut: {len(control.delivered):,} characters in {seen.texts} tokens from "
        f"{row.target}, first token after {_ms(row.first_output_ms)}, "
        f"finish `{control.report.finish}`."
    )
    yield ""


def _finding(finding: Finding) -> Iterator[str]:
    yield f"{finding.question}  {TITLES[finding.question]} ".ljust(WIDTH - 5, ".") + (
        f" {finding.mark}"
    )
    for words in finding.words:
        yield from _wrapped(shown(words), _INDENT)
    if finding.seam is not None:
        yield from _seam(finding.seam)
    if finding.pause_ms is not None and finding.own_ms is not None:
        label = "first token" if finding.seam is None else "pause"
        yield _labelled(label, _pause(finding))


def _pause(finding: Finding) -> str:
    """What the client waited, and what of it is the fallback's own time."""
    own = f"the fallback's own first token after {_ms(finding.own_ms)}"
    if finding.asked_ms is not None:
        own = (
            f"the fallback was asked after {_ms(finding.asked_ms)}, and took {_ms(finding.own_ms)}"
        )
    again = finding.seam is not None and finding.seam.done in _WRITES_AGAIN
    then = ", then the fragment again" if again else ""
    return f"{_ms(finding.pause_ms)} for the client; {own}{then}"


def _seam(seam: Seam) -> Iterator[str]:
    yield _labelled("committed", f"{_tail(seam.committed)}   ({len(seam.committed):,} characters)")
    yield _labelled("fragment", _head(seam.fragment))
    yield _labelled("came", _head(seam.came))
    facts = []
    if seam.superseded_chars:
        facts.append(f"{seam.superseded_chars} delivered characters are superseded")
    if seam.like_uncut:
        facts.append("word for word the uncut answer, as far as both go")
    if facts:
        yield _labelled("answer", "; ".join(facts))


def _rows(result: PairResult) -> Iterator[str]:
    for name, one in result.rounds.items():
        for row in one.rows:
            yield (
                f"{_INDENT}{name}: {row.outcome}, {row.delivered_chars:,} characters delivered, "
                f"{row.committed_chars:,} committed"
            )
            yield from (f"{_INDENT}  {_entry(entry)}" for entry in row.attempts)


def _entry(entry: Entry) -> str:
    fault = entry.fault or "ok"
    how = f"{fault} {entry.status}" if entry.status else fault
    return (
        f"#{entry.number} {entry.target:<24} {how:<12} {entry.style or '—':<15} first "
        f"{_ms(entry.first_output_ms):>8}  {entry.output_chars:>6,} chars  "
        f"{entry.usage.get('total_tokens', 0):>5,} tokens"
        f"{' (estimated)' if entry.usage_estimated else ''}"
    )


def _fix(fix: Fix) -> Iterator[str]:
    yield from _wrapped(fix.why, _INDENT)
    yield ""
    yield from (f"{_INDENT}    {line}" for line in fix.yaml.splitlines())
    yield ""


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def _labelled(label: str, text: str) -> str:
    return f"{_INDENT}{label:<{_LABEL_CHARS}}{text}"


def _ms(value: float | None) -> str:
    return "—" if value is None else f"{value:,.0f} ms"


def _head(text: str) -> str:
    cut = text[:SNIPPET_CHARS]
    return f"“{shown(cut)}{'…' if len(text) > len(cut) else ''}”" if text else "—"


def _tail(text: str) -> str:
    cut = text[-SNIPPET_CHARS:]
    return f"“{'…' if len(text) > len(cut) else ''}{shown(cut)}”" if text else "—"


def shown(text: str) -> str:
    """A provider's text, harmless on a terminal: one line, and no control characters.

    Args:
        text: anything.
    """
    return "".join(
        one if one.isprintable() else "⏎" if one == "\n" else one.encode("unicode_escape").decode()
        for one in text
    )


# --- for programs ---------------------------------------------------------------------------------


def as_json(results: Sequence[PairResult]) -> dict[str, Any]:
    """Everything, as plain data.

    Args:
        results: of every pair.
    """
    marks = [finding.mark for result in results for finding in result.findings]
    return {"verdict": worst(marks).value, "pairs": [_pair(result) for result in results]}


def _pair(result: PairResult) -> dict[str, Any]:
    return {
        "route": result.pair.route,
        "cut": result.pair.victim.name,
        "next": None if result.pair.alone else result.pair.fallback.name,
        "verdict": result.mark.value,
        "questions": [_question(finding) for finding in result.findings],
        "requests": [
            {"name": name, **msgspec.to_builtins(row)}
            for name, one in result.rounds.items()
            for row in one.rows
        ],
    }


def _question(finding: Finding) -> dict[str, Any]:
    seam = finding.seam
    return {
        "question": finding.question,
        "title": TITLES[finding.question],
        "verdict": finding.mark.value,
        "words": list(finding.words),
        "pause_ms": finding.pause_ms,
        "fallback_asked_ms": finding.asked_ms,
        "fallback_first_token_ms": finding.own_ms,
        "join": None
        if seam is None
        else {
            "behaviour": seam.done.value,
            "prefix_refused": seam.manner.value == "refused",
            "style": seam.style,
            "committed": seam.committed,
            "fragment": seam.fragment,
            "came": seam.came,
            "superseded_chars": seam.superseded_chars,
            "like_uncut": seam.like_uncut,
        },
        "fixes": [{"why": fix.why, "yaml": fix.yaml} for fix in finding.fixes],
    }
