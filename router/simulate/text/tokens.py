"""Cuts text into tokens as a byte-pair vocabulary does: a leading space belongs to its word."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PRE_TOKEN = re.compile(
    r"[^\S\n]+(?=[^\S\n]\S)"  # an indentation, but for the space that joins the next token
    r"|[^\S\n]?\w+"
    r"|[^\S\n]?[^\w\s]{1,3}"
    r"|\n+"
    r"|\s+"
)
_WHOLE_WORD = 8  # longer words are cut, as rare words are in a real vocabulary
_PIECE = 5
_FIRST_IDEOGRAM = "\u2e80"
_IDEOGRAMS = 2  # a token of Chinese or Japanese holds one or two characters


def tokenize(text: str) -> list[str]:
    """Split text into tokens of about four characters.

    Args:
        text: any text.

    Returns:
        Non-empty tokens that joined equal `text`; always the same for the same text.
    """
    return [token for match in _PRE_TOKEN.finditer(text) for token in _pieces(match.group())]


def _pieces(word: str) -> Iterator[str]:
    size = _IDEOGRAMS if word[-1] >= _FIRST_IDEOGRAM else _PIECE
    if size == _PIECE and (len(word) <= _WHOLE_WORD or word.isspace()):
        yield word
        return
    for start in range(0, len(word), size):
        yield word[start : start + size]
