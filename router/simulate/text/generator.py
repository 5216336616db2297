"""A long text from a seed: prose, numbers, dialogue, a list, code, other languages.

Everything that makes sentence ends hard to find is in it on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import cycle
from random import Random
from typing import Final

from router.simulate.text.grammar import CODE, ITEMS, SENTENCES, WORDS

KINDS: Final = ("prose", "dialogue", "facts", "list", "code", "german")
"""The kinds of paragraph of the default text; `japanese` is there to be asked for."""

_SLOT = re.compile(r"\{(\w+)\}")
_JOINS = {"japanese": ""}


def seeded_text(seed: int | str, chars: int, *, kinds: Sequence[str] = KINDS) -> str:
    """Make up a text; the same arguments give the same text on every Python.

    Args:
        seed: any number or word.
        chars: wanted length in characters; the text is as long or longer by at most one sentence,
            list or code block.
        kinds: kinds of paragraph, taken in turn: `prose`, `dialogue`, `facts`, `list`, `code`,
            `german`, `japanese`.

    Returns:
        Paragraphs with a blank line between them, no white space at the end.

    Raises:
        ValueError: a kind is unknown, or there is none.
    """
    if not kinds or any(kind not in _PARAGRAPHS for kind in kinds):
        raise ValueError(f"kinds must be some of {', '.join(_PARAGRAPHS)}; got {list(kinds)}.")
    rng = Random(f"text {seed}")
    text = ""
    for kind in cycle(kinds):
        separator = "\n\n" if text else ""
        text += separator + _PARAGRAPHS[kind](rng, chars - len(text) - len(separator))
        if len(text) >= chars:
            return text
    raise AssertionError("a cycle does not end")


def _sentences(kind: str) -> Callable[[Random, int], str]:
    def build(rng: Random, room: int) -> str:
        sentences: list[str] = []
        size = 0
        templates = rng.sample(SENTENCES[kind], len(SENTENCES[kind]))  # none twice in a row
        for template in templates[: rng.randint(4, 7)]:
            sentences.append(_fill(rng, template))
            size += len(sentences[-1]) + 1
            if size > room:
                break
        return _JOINS.get(kind, " ").join(sentences)

    return build


def _list(rng: Random, _room: int) -> str:
    numbered = rng.random() < 0.5
    lines = ["What was found, in order of weight:", ""]
    for number in range(1, rng.randint(4, 6)):
        bullet = f"{number}." if numbered else "-"
        lines.append(f"{bullet} {_fill(rng, rng.choice(ITEMS))}")
    return "\n".join(lines)


def _code(rng: Random, _room: int) -> str:
    return _fill(rng, rng.choice(CODE))


_PARAGRAPHS: Final[dict[str, Callable[[Random, int], str]]] = {
    **{kind: _sentences(kind) for kind in SENTENCES},
    "list": _list,
    "code": _code,
}


def _fill(rng: Random, template: str) -> str:
    """Replace every slot by one of its words; `{Who}` is `{who}` with a capital."""

    def word(match: re.Match[str]) -> str:
        slot = match[1]
        if slot == "number_py":
            return f"{rng.randint(2, 90)}.5"
        chosen = rng.choice(WORDS[slot.lower()])
        return chosen[0].upper() + chosen[1:] if slot[0].isupper() else chosen

    return _SLOT.sub(word, template)
