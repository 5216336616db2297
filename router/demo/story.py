"""What the two providers of the demo say, and where the first one is cut. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from router.core.boundary import make_boundary
from router.simulate import tokenize

MAX_TEXT_BYTES: Final = 32_768
"""Bound on a text of one's own: three minutes of watching."""

QUESTION: Final = "How did a ship find its way before there were satellites?"

ANSWER: Final = (
    "A navigator needs two numbers. Latitude is the easy one: measure how high the sun stands "
    "at noon. Longitude is a matter of time. The Earth turns 15 degrees an hour, so a clock that "
    "is wrong by four minutes puts the ship 60 nautical miles from where it thinks it is.\n\n"
    "In 1714 Parliament offered £20,000 for a way to do it. Astronomers such as Dr. Maskelyne "
    "trusted the moon; John Harrison, a carpenter, trusted a watch. On the voyage to Jamaica in "
    "1761 his H4 lost only 5.1 seconds in 81 days. James Cook took a copy along. “Our faithful "
    "guide,” he called it.\n\n"
    "Still, nobody trusted a single watch. HMS Beagle sailed with 22 of them: when one stopped, "
    "another went on."
)

_FIRST_CUT: Final = "his H4 lost only 5."
_SECOND_CUT: Final = "so a clock that is wrong by four minutes puts the ship 60"
_REWORDED: Final = (
    "Every hour the Earth turns by 15 degrees: four minutes too fast or too slow, and the ship is "
    "60 nautical miles off."
)
_REWORDED_ANY: Final = "At this point the second model chose words of its own."

_MIN_SENTENCE_CHARS = 40
"""Shorter sentences have hardly a middle to be cut in."""
_CUT_AT: Final = 0.6
"""How far into its sentence a cut falls, and how far into the text the sentence lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One answer, as two providers tell it.

    Args:
        text: what the primary would say, uncut.
        cut_tokens: after how many tokens it fails.
        other_text: what the fallback would say, uncut: the same, or the same but for the sentence
            in which the primary is cut.
    """

    text: str
    cut_tokens: int
    other_text: str


def agreeing(text: str | None = None, cut_tokens: int | None = None) -> Story:
    """Both providers say the same.

    Args:
        text: the answer; None takes the demo's own.
        cut_tokens: None cuts in mid-sentence.
    """
    cut = _cut(text, cut_tokens, _FIRST_CUT)
    return Story(text=text or ANSWER, cut_tokens=cut, other_text=text or ANSWER)


def differing(text: str | None = None, cut_tokens: int | None = None) -> Story:
    """The fallback words the sentence differently in which the primary is cut.

    Args:
        text: the answer; None takes the demo's own.
        cut_tokens: None cuts in mid-sentence.
    """
    cut = _cut(text, cut_tokens, _SECOND_CUT)
    own = text is None and cut_tokens is None
    said = text or ANSWER
    start, end = _sentence_at(said, cut)
    sentence = said[start:end]
    lead = sentence[: len(sentence) - len(sentence.lstrip())]
    reworded = lead + (_REWORDED if own else _REWORDED_ANY)
    return Story(text=said, cut_tokens=cut, other_text=said[:start] + reworded + said[end:])


def sentences(text: str) -> list[tuple[int, int]]:
    """Where the record advances if nothing fails: ranges of characters that make up the text.

    Args:
        text: an answer.
    """
    boundary = make_boundary("text")
    ends, at = [0], 0
    for token in tokenize(text):
        chars = boundary.feed(token)
        if chars:
            at += chars
            ends.append(at)
    if boundary.pending:
        ends.append(len(text))
    return list(pairwise(ends))


def _cut(text: str | None, cut_tokens: int | None, phrase: str) -> int:
    if cut_tokens is not None:
        return cut_tokens
    if text is None:
        return _tokens_up_to(ANSWER, ANSWER.index(phrase) + len(phrase))
    return _tokens_up_to(text, _mid_sentence(text))


def _mid_sentence(text: str) -> int:
    """A place for a cut: inside a sentence of some length in the middle of the text."""
    spans = [
        (start, end)
        for start, end in sentences(text)
        if end - start >= _MIN_SENTENCE_CHARS and "\n" not in text[start:end].strip()
    ]
    start, end = min(
        spans or [(0, len(text))],
        key=lambda span: abs(span[0] - _CUT_AT * len(text)),
    )
    return start + round(_CUT_AT * (end - start))


def _sentence_at(text: str, cut_tokens: int) -> tuple[int, int]:
    at = len("".join(tokenize(text)[:cut_tokens]))
    spans = sentences(text)
    return next(((start, end) for start, end in spans if at < end), spans[-1])


def _tokens_up_to(text: str, chars: int) -> int:
    """How many tokens begin before a character; at least one, so that there is output to lose."""
    count = at = 0
    for token in tokenize(text):
        if at >= chars:
            break
        at += len(token)
        count += 1
    return max(1, count)
