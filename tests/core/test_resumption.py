"""Where a resumed stream goes on: every small case by brute force, and long ones at random.

A client's text is drawn as a word: `c` is a character of the answer, `x` one that was superseded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.resumption import Resumption, delivered_at, plan_resumption

LONGEST = 7
"""Characters of a client's text that are tried exhaustively."""


def without(text: str, ranges: Sequence[tuple[int, int]]) -> str:
    kept, at = [], 0
    for start, end in ranges:
        assert at <= start < end <= len(text)
        kept.append(text[at:start])
        at = end
    return "".join((*kept, text[at:]))


def runs_of(shape: str) -> list[tuple[int, int]]:
    """The maximal runs of `x`."""
    found, at = [], 0
    for kind, run in itertools.groupby(shape):
        length = len([*run])
        if kind == "x":
            found.append((at, at + length))
        at += length
    return found


class Case:
    """A writer's text, how much of its answer is committed, and what its record says.

    Args:
        shape: the delivered text, as a word of `c` and `x`.
        committed: characters of the answer that the record holds.
        noted: superseded ranges that the record speaks of.
    """

    def __init__(self, shape: str, committed: int, noted: Sequence[tuple[int, int]]) -> None:
        self.noted = noted
        # The answer in letters, what is superseded as dots, an uncommitted fragment in capitals,
        # since the next writer will word it differently.
        answer = iter(range(10_000))
        self.delivered = ""
        for kind in shape:
            at = next(answer) if kind == "c" else -1
            letter = chr(0x4E00 + at) if at < committed else chr(0x7E00 + at)
            self.delivered += "." if kind == "x" else letter
        self.committed = "".join(chr(0x4E00 + at) for at in range(committed))
        self.whole = self.committed + "the rest."

    def check(self, received: int, known: int | None = None) -> Resumption:
        """Both kinds of client end with the answer."""
        plan = plan_resumption(self.committed, self.noted, received, known=known)
        assert plan.received == received
        assert 0 <= plan.start <= received
        assert self.committed.endswith(plan.replay)
        rest = plan.replay + self.whole[len(self.committed) :]
        # One that only appends, and deletes what it is told to at the end.
        assert without(self.delivered[:received] + rest, plan.superseded) == self.whole
        # One that cuts its text where the answer starts.
        before = [span for span in plan.superseded if span[1] <= plan.start]
        assert without(self.delivered[: plan.start] + rest, before) == self.whole
        return plan


def cases(shape: str) -> Iterator[Case]:
    """Every record that such a text can have left behind."""
    runs = runs_of(shape)
    for committed in range(shape.count("c") + 1):
        # A range is noted with the commit that follows it; later ones may or may not be.
        at = [index for index, kind in enumerate(shape) if kind == "c"][committed - 1 : committed]
        end = at[0] + 1 if at else 0
        past = [span for span in runs if span[0] < end]
        later = [span for span in runs if span[0] >= end]
        for count in range(len(later) + 1):
            yield Case(shape, committed, [*past, *later[:count]])


def shapes() -> Iterator[str]:
    for length in range(LONGEST + 1):
        for kinds in itertools.product("cx", repeat=length):
            yield "".join(kinds)


def test_every_small_text_resumed_anywhere_ends_with_the_answer() -> None:
    tried = 0
    for shape in shapes():
        for case in cases(shape):
            for received in range(len(shape) + 1):
                case.check(received)
                tried += 1
    assert tried > 10_000


def test_of_text_that_the_record_knows_nothing_is_dropped() -> None:
    """What is committed and received, and not superseded, stays where it is."""
    for shape in shapes():
        for case in cases(shape):
            for received in range(len(shape) + 1):
                inside = any(start < received <= end for start, end in case.noted)
                own = without(
                    case.delivered[:received],
                    [(a, min(b, received)) for a, b in case.noted if a < received],
                )
                if not inside and len(own) <= len(case.committed):
                    assert case.check(received).start == received


def test_what_the_record_does_not_speak_of_is_replaced() -> None:
    """The client heard another writer after `known`: only up to there do the ranges count."""
    for shape in shapes():
        if len(shape) > 5:
            continue
        for case in cases(shape):
            for known in range(len(shape) + 1):
                # Behind `known` the client has text that this record's writer never sent.
                other = Case(shape, len(case.committed), case.noted)
                other.delivered = case.delivered[:known] + "?" * 3
                for received in range(known, known + 4):
                    plan = other.check(received, known)
                    assert plan.start <= known


@given(st.text("cx", max_size=60), st.data())
def test_long_texts(shape: str, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from([*cases(shape)]))
    case.check(data.draw(st.integers(0, len(shape))))


@pytest.mark.parametrize(
    ("received", "start", "replay", "superseded"),
    [
        (0, 0, "abcdef", ()),
        (2, 2, "cdef", ()),
        (3, 2, "cdef", ((2, 3),)),
        (4, 2, "cdef", ((2, 4),)),
        (8, 8, "", ((2, 4),)),
        (9, 8, "", ((2, 4), (8, 9))),
    ],
)
def test_by_hand(
    received: int, start: int, replay: str, superseded: tuple[tuple[int, int], ...]
) -> None:
    plan = plan_resumption("abcdef", [(2, 4)], received)
    assert (plan.start, plan.replay, plan.superseded) == (start, replay, superseded)


def test_where_committed_text_stands() -> None:
    assert [delivered_at(chars, [(2, 4), (5, 6)]) for chars in range(5)] == [0, 1, 2, 5, 7]
