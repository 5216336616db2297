"""The user message of the style `instruct`: it asks for the rest of an answer and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

TAIL_CHARS = 100
"""How much of the committed text the nudge quotes: enough to be unique, too little to be echoed."""

VIOLATION_CHARS = 200
"""How much is said about a value that was refused: where it stood and what was wrong with it."""

_SENTENCE_END = re.compile(r"[.?!…。！？]['\"”’»)\]*_`]*\Z")
_LIST_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,4}[.)])\s")


# Where a free text can stop, what tells it (last line, whole text), and what the first words to
# come should do about it. The first row that holds is taken.
_PLACES: tuple[tuple[Callable[[str, str], object], str, str], ...] = (
    (
        lambda line, _: line.startswith("|"),
        "inside a table",
        "Go on with the next row; do not write its head again.",
    ),
    (
        lambda _, text: text.endswith("\n\n"),
        "between two paragraphs",
        "Go on with the next paragraph.",
    ),
    (
        lambda line, _: _LIST_ITEM.match(line),
        "inside a list",
        "Keep to the list's form and numbering.",
    ),
    (lambda _, text: text.endswith("\n"), "at the end of a line", "Go on with the next line."),
    (
        lambda _, text: _SENTENCE_END.search(text[-TAIL_CHARS:].rstrip()),
        "at the end of a sentence",
        "Go on with the next sentence.",
    ),
    (
        lambda _line, _text: True,
        "in the middle of a sentence",
        "Go on in the middle of that sentence.",
    ),
)


def _place(prefix: str, in_fence: str | None, *, structured: bool) -> tuple[str, str]:
    if structured:
        return "inside a JSON document", "Go on with its next characters; do not start it again."
    if in_fence is not None:
        return (
            f"inside a ```{in_fence} code block",
            "Go on with the next line of the code; the block is already open, so do not open it.",
        )
    line = prefix.rstrip("\n").rpartition("\n")[2]
    return next((where, then) for holds, where, then in _PLACES if holds(line, prefix))


def _bounded(clause: str) -> str:
    line = " ".join(clause.split()).rstrip(".")
    return line if len(line) <= VIOLATION_CHARS else f"{line[: VIOLATION_CHARS - 1]}…"


def nudge(
    prefix: str, *, in_fence: str | None, structured: bool = False, violation: str = ""
) -> str:
    """The user message that asks for the rest of an interrupted answer and for nothing else.

    Args:
        prefix: the committed text.
        in_fence: info string of the code block that it ends inside, or None.
        structured: it is the beginning of a structured answer.
        violation: why what was written after it could not be kept, a clause, or "".
    """
    where, then = _place(prefix, in_fence, structured=structured)
    # JSON keeps quotation marks, line ends and white space of the tail readable and unambiguous.
    tail = json.dumps(prefix[-TAIL_CHARS:], ensure_ascii=False)
    why = f" What came next could not be kept: {_bounded(violation)}." if violation else ""
    return (
        "Your answer above was interrupted before it was finished. "
        f"As a JSON string, it ends with {tail}. It stops {where}.{why}\n\n"
        "Write only the text that comes after that, so that both parts read as one answer in the "
        f"same language, tone and format. {then} Do not repeat anything that is already written. "
        "Add no introduction, no apology and no remark about the interruption."
    )
