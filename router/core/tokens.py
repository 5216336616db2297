"""How many tokens a delivered text has cost, for the budget of its continuation.

Nobody tells: a provider that dies reports no usage, and its tokenizer is not ours. But providers
stream, and most send one token a piece, so counting pieces is exact for them. Where pieces are too
large to be single tokens, the text itself is the better witness.

The error of the estimate is bounded by construction: pieces that pass for single tokens hold at
most about two each, and an estimate by text misses by less than that. So an answer with a budget
of N tokens may come out longer by at most half of what was committed before the failover and eight
tokens, and with one token a piece not at all.
"""

from __future__ import annotations

ASCII_PER_TOKEN = 4
"""Characters; the usual figure for European text. Code has fewer to a token."""

OTHER_BYTES_PER_TOKEN = 6
"""UTF-8 bytes beyond ASCII: two characters of Chinese or Japanese, three of Cyrillic or Arabic."""

_SEVERAL = 1.4
"""Estimated tokens per piece from which on pieces are held to be several tokens each; one token a
piece gives 0.7 (code) to 1.3 (Arabic)."""

_DOUBT_PIECES = 3
"""A few long words prove nothing."""


def tokens_spent(text: str, pieces: int) -> int:
    """What a text has cost.

    Args:
        text: as delivered.
        pieces: how many pieces it came in, those counted that lie wholly in it.

    Returns:
        Tokens.
    """
    estimate = _estimate(text)
    return int(estimate) if estimate > _SEVERAL * (pieces + _DOUBT_PIECES) else pieces


def _estimate(text: str) -> float:
    plain = len(text.encode("ascii", "ignore"))
    other = len(text.encode("utf-8", "replace")) - plain
    return plain / ASCII_PER_TOKEN + other / OTHER_BYTES_PER_TOKEN
