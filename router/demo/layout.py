"""Pieces of text to rows of a width. Pure.

Greedy from the left, so a row is never changed by what is added after the row that follows it:
that is what lets a log be written row by row, and a terminal be redrawn from one row on.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from router.demo.play import Ink, Piece

_TAB = "    "
_FINAL: Final = frozenset({Ink.COMMITTED, Ink.HELD, Ink.SUPERSEDED, Ink.SEAM})
_LABELS: Final = frozenset({Ink.SEAM, Ink.WAITING})
_JOINERS: Final = frozenset("\u200c\u200d")
_GLUE: Final = "\u00a0"
"""A space inside a label, where no row may end."""


class Cell(NamedTuple):
    """One character with all that combines with it, its ink, and its width in columns."""

    text: str
    ink: Ink
    width: int


Marks = Mapping[Ink, tuple[str, str]]
"""What is written before and after text of an ink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row.

    Args:
        start: index of its first cell.
        runs: its text, by ink.
        final: nothing in it will change but for what may be added at its end.
    """

    start: int
    runs: tuple[Piece, ...]
    final: bool


def cells(pieces: Iterable[Piece], marks: Marks) -> list[Cell]:
    """Take pieces apart.

    Args:
        pieces: in order; neighbours of one ink are one text.
        marks: for each ink that has some.
    """
    out: list[Cell] = []
    for ink, run in groupby(pieces, key=lambda piece: piece.ink):
        before, after = marks.get(ink, ("", ""))
        text = "".join(piece.text for piece in run)
        if ink in _LABELS:
            marked = (before + text + after).replace(" ", _GLUE)
        else:
            # Marks embrace the words and not the white space around them, or a row could end
            # between a mark and its word.
            words = text.strip()
            lead, _, tail = text.partition(words) if words else (text, "", "")
            marked = f"{lead}{before}{words}{after}{tail}" if words else text
        for char in marked:
            _add(out, char, ink)
    return out


def _add(out: list[Cell], char: str, ink: Ink) -> None:
    if char == "\t":
        out.extend(Cell(" ", ink, 1) for _ in _TAB)
    elif char == "\n":
        out.append(Cell(char, ink, 0))
    elif char in _JOINERS or unicodedata.category(char) in {"Mn", "Me"}:
        if out and out[-1].text != "\n":
            out[-1] = out[-1]._replace(text=out[-1].text + char)
    elif unicodedata.category(char) in {"Cc", "Cf", "Cs"}:
        out.append(Cell("\ufffd", ink, 1))  # no text may steer the terminal
    else:
        out.append(Cell(char, ink, 2 if unicodedata.east_asian_width(char) in "WF" else 1))


def wrap(line: Sequence[Cell], width: int, start: int = 0) -> list[Row]:
    """Break cells into rows.

    Args:
        line: all cells.
        width: columns, at least 2.
        start: index of the cell to begin with.

    Returns:
        Rows; the last may be empty, which is where the next cell would stand.
    """
    ends = _breaks(line, width, start)
    changing = next((at for at in range(start, len(line)) if line[at].ink not in _FINAL), len(line))
    rows = []
    for at, (first, last) in enumerate(ends):
        settled = last <= changing and at < len(ends) - 1
        rows.append(Row(start=first, runs=_runs(line[first:last]), final=settled))
    return rows


def _breaks(line: Sequence[Cell], width: int, start: int) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    used, may_break, at = 0, start, start
    while at < len(line):
        cell = line[at]
        if cell.text == "\n" or (used + cell.width > width and cell.text == " "):
            rows.append((start, at))
            start, used = at + 1, 0
            may_break = start
        elif used + cell.width > width:
            end = may_break if may_break > start else at
            rows.append((start, end))
            start, used, may_break, at = end, 0, end, end - 1
        else:
            used += cell.width
            if _breakable(line, at):
                may_break = at + 1
        at += 1
    return [*rows, (start, len(line))]


def _breakable(line: Sequence[Cell], at: int) -> bool:
    """Whether a row may end after this cell."""
    cell = line[at]
    if cell.text == " " or cell.width == 2:
        return True
    following = line[at + 1] if at + 1 < len(line) else None
    return following is not None and ((cell.ink in _LABELS) != (following.ink in _LABELS))


def _runs(row: Sequence[Cell]) -> tuple[Piece, ...]:
    end = len(row)
    while end and row[end - 1].text == " ":
        end -= 1
    return tuple(
        Piece("".join(cell.text for cell in run).replace(_GLUE, " "), ink)
        for ink, run in groupby(row[:end], key=lambda cell: cell.ink)
    )
