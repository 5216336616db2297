from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.simulate import seeded_text, tokenize


@given(st.text(max_size=300))
def test_tokens_join_to_the_text(text: str) -> None:
    tokens = tokenize(text)
    assert "".join(tokens) == text
    assert all(tokens)


def test_tokens_look_like_those_of_a_vocabulary() -> None:
    text = seeded_text(3, 5_000)
    tokens = tokenize(text)
    assert 3 <= len(text) / len(tokens) <= 5
    assert tokenize("Read the unbelievable end.") == [
        "Read",
        " the",
        " unbe",
        "lieva",
        "ble",
        " end",
        ".",
    ]
    assert max(map(len, tokenize("図書館で見つけた"))) == 2


@given(st.integers(), st.integers(min_value=1, max_value=4_000))
def test_a_seeded_text_is_as_long_as_asked_and_always_the_same(seed: int, chars: int) -> None:
    text = seeded_text(seed, chars)
    assert chars <= len(text) <= chars + 600
    assert text == seeded_text(seed, chars)
    assert text == text.strip()


def test_the_text_holds_what_is_hard() -> None:
    text = seeded_text(0, 3_000)
    for hard in (
        "“",
        "Dr. ",
        "e.g. ",
        "i.e. ",
        "\n```",
        "in order of weight:\n\n",
        "ß",
        "1,204.50",
    ):
        assert hard in text, hard
    assert text.count("```") % 2 == 0


def test_the_text_is_the_same_on_every_python() -> None:
    assert seeded_text("pin", 1, kinds=("prose",)) == PINNED


def test_kinds_are_chosen_by_name() -> None:
    assert "。" in seeded_text(1, 200, kinds=("japanese",))
    assert "```" not in seeded_text(1, 2_000, kinds=("prose", "dialogue"))
    with pytest.raises(ValueError, match="kinds must be some of"):
        seeded_text(1, 10, kinds=("verse",))
    with pytest.raises(ValueError, match="kinds must be some of"):
        seeded_text(1, 10, kinds=())


PINNED = (
    "Nobody at the upper lock knew why Dr. Okafor argued about three crates of winter apples; "
    "it was done with great care."
)
