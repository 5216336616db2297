"""What a committed text has cost: exact where a piece is a token, bounded where it is several."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.texts import Sample, seeded, written

from router.core.tokens import tokens_spent
from router.simulate import tokenize

SAMPLES = [*written(), *seeded(chars=1_500)]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_token_a_piece_is_counted_exactly(sample: Sample) -> None:
    tokens = tokenize(sample.text)
    text = ""
    for count, token in enumerate(tokens, 1):
        text += token
        assert tokens_spent(text, count) == count


@pytest.mark.parametrize("per_piece", [2, 3, 4, 8, 100])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_several_tokens_a_piece_are_estimated(sample: Sample, per_piece: int) -> None:
    tokens = tokenize(sample.text)
    for count in range(per_piece, len(tokens), per_piece):
        spent = tokens_spent("".join(tokens[:count]), count // per_piece)
        # What is under-counted makes the answer too long, what is over-counted too short.
        assert -0.5 * count <= spent - count + 8
        assert spent - count <= 0.5 * count


@given(st.text(max_size=300), st.integers(0, 300))
def test_it_never_counts_less_than_the_pieces(text: str, pieces: int) -> None:
    assert tokens_spent(text, pieces) >= pieces


def test_a_whole_answer_in_one_piece() -> None:
    assert tokens_spent("word " * 100, 1) == 125
