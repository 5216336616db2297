"""What the books must say of a round: held against the relay and the client, who keep their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from router.books import Entry, Row
from router.drill.relay import End, Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """One request, in the books and as others saw it.

    Args:
        name: what it was, in a word.
        rows: what the books have of it.
        target: name of the target that the relay stood before.
        seen: the relay's own list.
        delivered_chars: what the client counted.
        finished: the client got a finish.
    """

    name: str
    rows: Sequence[Row]
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
    name = round_.name
    yield Check(good=len(round_.rows) == 1, words=f"{name}: {len(round_.rows)} rows booked, not 1")
    for row in round_.rows[:1]:
        yield from _attempts(round_, row)
        yield Check(
            good=(row.outcome == "completed") is round_.finished,
            words=f"{name}: booked as {row.outcome}, the client got "
            f"{'a finish' if round_.finished else 'no finish'}",
        )
        yield Check(
            good=row.delivered_chars == round_.delivered_chars,
            words=f"{name}: {row.delivered_chars} characters booked as delivered, the client "
            f"counted {round_.delivered_chars}",
        )


def _attempts(round_: Witnessed, row: Row) -> Iterator[Check]:
    entries = [entry for entry in row.attempts if entry.target == round_.target]
    yield Check(
        good=len(entries) == len(round_.seen),
        words=f"{round_.name}: {len(entries)} attempt(s) of {round_.target} booked, the relay saw "
        f"{len(round_.seen)}",
    )
    for entry, seen in zip(entries, round_.seen, strict=False):
        yield _outcome(round_.name, entry, seen)
        yield _chars(round_.name, entry, seen)


def _outcome(name: str, entry: Entry, seen: Seen) -> Check:
    """A cut is an error, whatever the HTTP status was."""
    broken = seen.end in (End.CUT, End.DEAD, End.UPSTREAM)
    return Check(
        good=not broken or (entry.outcome == "failed" and entry.fault is not None),
        words=f"{name}: attempt #{entry.number} booked as {entry.outcome}, the relay saw it end "
        f"as {seen.end}",
    )


def _chars(name: str, entry: Entry, seen: Seen) -> Check:
    """The last bytes before a cut may never have been read; more than passed is never right."""
    exact = seen.end is End.WHOLE
    good = entry.output_chars == seen.chars if exact else entry.output_chars <= seen.chars
    return Check(
        good=good,
        words=f"{name}: attempt #{entry.number} booked with {entry.output_chars} characters, the "
        f"relay let {seen.chars} pass",
    )
