"""What is said of a bad configuration: a line, what is wrong, and what would be right."""

from __future__ import annotations

from dataclasses import dataclass

MAX_SHOWN_CHARS = 60
"""Bound on what a message quotes of the file."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Args:
        line: 1-based, or None when no line is to blame.
        message: what is wrong, one sentence.
        remedy: what would be right, one sentence.
    """

    line: int | None
    message: str
    remedy: str


class Unreadable(Exception):
    """The text is no YAML that can be used at all, so there is nothing further to check."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def shown(text: str) -> str:
    """`text` as a message may quote it: short, and on one line whatever it holds."""
    cut = text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
    return f"`{cut}`" if cut.isprintable() else f"`{ascii(cut)[1:-1]}`"
