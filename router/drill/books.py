"""What the books must say of a round: held against the relay and the client, who keep their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from router.drill.relay import End, Seen
from router.engine.report import AttemptReport, StreamReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """One request, in the books and as others saw it.

    Args:
        name: what it was, in a word.
        report: the books' row.
        target: name of the target that the relay stood before.
        seen: the relay's own list.
        delivered_chars: what the client counted.
        finished: the client got a finish.
    """

    name: str
    report: StreamReport
    target: str
    seen: Sequence[Seen]
    delivered_chars: int
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must hold.

    Args:
        good: it does.
        words: what was compared, with its numbers.
    """

    good: bool
    words: str


def check_books(round_: Witnessed) -> Iterator[Check]:
    """Compare.

    Args:
        round_: the request.

    Yields:
        Each comparison.
    """
    report, name = round_.report, round_.name
    rows = [row for row in report.attempts if row.target == round_.target]
    yield Check(
        good=len(rows) == len(round_.seen),
        words=f"{name}: {len(rows)} attempt(s) of {round_.target} booked, the relay saw "
        f"{len(round_.seen)}",
    )
    for row, seen in zip(rows, round_.seen, strict=False):
        yield _outcome(name, row, seen)
        yield _chars(name, row, seen)
    yield Check(
        good=(report.outcome == "completed") is round_.finished,
        words=f"{name}: booked as {report.outcome}, the client got "
        f"{'a finish' if round_.finished else 'no finish'}",
    )
    yield Check(
        good=report.delivered_chars == round_.delivered_chars,
        words=f"{name}: {report.delivered_chars} characters booked as delivered, the client "
        f"counted {round_.delivered_chars}",
    )


def _outcome(name: str, row: AttemptReport, seen: Seen) -> Check:
    """A cut is a fault, whatever the HTTP status was. Who closed first is judged as it was seen."""
    fault = "no fault" if row.fault is None else f"fault {row.fault.kind}"
    broken = seen.end in (End.CUT, End.DEAD, End.UPSTREAM)
    return Check(
        good=row.fault is not None if broken else True,
        words=f"{name}: attempt #{row.number} booked with {fault}, the relay saw it {seen.end}",
    )


def _chars(name: str, row: AttemptReport, seen: Seen) -> Check:
    """The last bytes before a cut may never have been read; more than passed is never right."""
    exact = seen.end is End.WHOLE
    good = row.output_chars == seen.chars if exact else row.output_chars <= seen.chars
    return Check(
        good=good,
        words=f"{name}: attempt #{row.number} booked with {row.output_chars} characters, the "
        f"relay let {seen.chars} pass",
    )
