"""Reasoning between tags: any split gives the same; only a tag at the very beginning counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.events import Reasoning, Text
from router.core.think import CLOSE, MAX_LEAD_CHARS, OPEN, ThinkSplitter

texts = st.lists(
    st.sampled_from([OPEN, CLOSE, "<", "think", ">", "</", "\n", " ", "a", "Why? ", "<b>"]),
    max_size=9,
).map("".join)


def run(pieces: Sequence[str]) -> tuple[str, str]:
    """Reasoning and text."""
    splitter = ThinkSplitter()
    events = [event for piece in pieces if piece for event in splitter.feed(piece)]
    events += splitter.finish()
    assert all(event.text for event in events)
    kinds = [type(event) for event in events]
    assert kinds == sorted(kinds, key=lambda kind: kind is Text)  # reasoning never follows text
    thought = "".join(event.text for event in events if isinstance(event, Reasoning))
    return thought, "".join(event.text for event in events if isinstance(event, Text))


def model(text: str) -> tuple[str, str]:
    bare = text.lstrip()
    if not bare.startswith(OPEN):
        return "", text
    thought, _, said = bare.removeprefix(OPEN).partition(CLOSE)
    return thought, said.lstrip("\n")


@given(texts, st.lists(st.integers(0, 80), max_size=8))
def test_any_split_gives_the_same(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(at % (len(text) + 1) for at in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert run(pieces) == model(text)
    assert run(list(text)) == model(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{OPEN}Hm.{CLOSE}\n\nYes.", ("Hm.", "Yes.")),
        (f"\n {OPEN}Hm.{CLOSE}Yes.", ("Hm.", "Yes.")),
        (f"{OPEN}Hm.", ("Hm.", "")),
        (f"{OPEN}a </thin b", ("a </thin b", "")),
        (f"Yes. {OPEN}No.{CLOSE}", ("", f"Yes. {OPEN}No.{CLOSE}")),
        (f"{OPEN}a{CLOSE}b{OPEN}c{CLOSE}", ("a", f"b{OPEN}c{CLOSE}")),
        ("<thin", ("", "<thin")),
        ("  ", ("", "  ")),
    ],
)
def test_cases(text: str, expected: tuple[str, str]) -> None:
    assert model(text) == expected
    assert run([text]) == expected


def test_reasoning_goes_out_as_it_comes() -> None:
    splitter = ThinkSplitter()
    assert splitter.feed(f"{OPEN}I see ") == [Reasoning("I see ")]
    assert splitter.feed("it</") == [Reasoning("it")]  # only what may be a tag waits
    assert splitter.feed("b>") == [Reasoning("</b>")]


@pytest.mark.parametrize(
    ("text", "over"),
    [
        (f"{OPEN}a", False),
        (f"{OPEN}a{CLOSE}\n", False),
        (f"{OPEN}a{CLOSE}\nYes", True),
        ("Yes", True),
        ("<thi", False),
    ],
)
def test_it_knows_when_it_is_over(text: str, over: bool) -> None:
    splitter = ThinkSplitter()
    splitter.feed(text)
    assert splitter.over is over


def test_white_space_before_a_tag_is_not_held_for_ever() -> None:
    splitter = ThinkSplitter()
    blank = " " * (MAX_LEAD_CHARS + 1)
    assert splitter.feed(blank) == [Text(blank)]
