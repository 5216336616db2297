"""Stop sequences across a seam: any split gives the same, and what is held is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.stops import StopGuard

words = st.text("ab.", min_size=1, max_size=4)


def run(committed: str, stops: Sequence[str], pieces: Sequence[str]) -> tuple[str, bool]:
    guard = StopGuard(committed, stops)
    out = "".join(guard.feed(piece) for piece in pieces if piece) + guard.finish()
    return out, guard.stopped


def model(committed: str, stops: Sequence[str], text: str) -> tuple[str, bool]:
    """A sequence that begins before the seam and ends after it stops the answer at the seam."""
    seam = len(committed)
    joined = committed + text
    for stop in stops:
        for start in range(max(0, seam - len(stop) + 1), seam):
            if joined.startswith(stop, start) and start + len(stop) > seam:
                return "", True
    return text, False


@given(
    st.text("ab.", max_size=6),
    st.lists(words, max_size=3),
    st.text("ab.", max_size=8),
    st.lists(st.integers(0, 20), max_size=5),
)
def test_any_split_gives_the_same(
    committed: str, stops: list[str], text: str, cuts: list[int]
) -> None:
    edges = [0, *sorted(at % (len(text) + 1) for at in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert run(committed, stops, pieces) == model(committed, stops, text)
    assert run(committed, stops, list(text)) == model(committed, stops, text)


@given(st.text("ab.", max_size=9), st.lists(words, min_size=1, max_size=3), st.text("ab.a"))
def test_no_more_is_held_than_the_longest_sequence(
    committed: str, stops: list[str], text: str
) -> None:
    guard = StopGuard(committed, stops)
    out = 0
    for fed, char in enumerate(text, 1):
        out += len(guard.feed(char))
        if guard.stopped:
            break
        assert fed - out < max(map(len, stops))


@pytest.mark.parametrize(
    ("committed", "stops", "text", "expected"),
    [
        ("One. E", ["END"], "ND more", ("", True)),
        ("One. EN", ["END"], "D", ("", True)),
        ("One. EN", ["END"], "TER", ("TER", False)),
        ("One.", ["END"], "END", ("END", False)),  # the provider's own business
        ("One. END", ["END"], " more", (" more", False)),
        ("aa", ["aab", "ac"], "c", ("", True)),
        ("", ["END"], "END", ("END", False)),
        ("E", ["E"], "E", ("E", False)),
        ("One. E", ["END"], "", ("", False)),
        ("One. E", [], "ND", ("ND", False)),
    ],
)
def test_cases(committed: str, stops: list[str], text: str, expected: tuple[str, bool]) -> None:
    assert run(committed, stops, [text]) == expected
    assert model(committed, stops, text) == expected


def test_nothing_passes_once_it_stopped() -> None:
    guard = StopGuard("E", ["END"])
    assert guard.feed("ND") == ""
    assert guard.feed("more") == ""
    assert guard.finish() == ""
