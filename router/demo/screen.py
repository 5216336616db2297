"""Rows on a terminal that is redrawn, or in a log that only grows.

A terminal shows how text stands by colour and redraws, in one write and without clearing first, no
more than the rows that may still change. A log gets each row once, when nothing in it will change
any more; there the state is written with marks.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from router.demo.layout import Marks, Row, cells, wrap
from router.demo.play import Ink, Piece

MARGIN: Final = "  "
MAX_COLUMNS: Final = 100
"""Longer lines are hard to read."""
MIN_COLUMNS: Final = 24

_RESET = "\x1b[0m"
_STYLES: Final[Mapping[str, str]] = {
    Ink.COMMITTED: "",
    Ink.PENDING: "\x1b[4;33m",  # underlined, yellow
    Ink.HELD: "\x1b[4m",
    Ink.SUPERSEDED: "\x1b[9;31m",  # struck through, red
    Ink.SEAM: "\x1b[7;36m",  # reversed, cyan
    Ink.WAITING: "\x1b[7;31m",
    "title": "\x1b[1m",
    "quiet": "\x1b[2m",
    "good": "\x1b[1;32m",
    "bad": "\x1b[1;31m",
}
_UNDERLINED: Final = frozenset({Ink.PENDING, Ink.HELD})
_TERMINAL_MARKS: Final[Marks] = {Ink.SEAM: (" ", " "), Ink.WAITING: (" ", "… ")}
_LOG_MARKS: Final[Marks] = {
    Ink.HELD: ("{", "}"),
    Ink.SUPERSEDED: ("[-", "-]"),
    Ink.SEAM: ("⟨", "⟩"),
    Ink.WAITING: ("⟨", "…⟩"),
}
_ASCII: Final = {"⟨": "<", "⟩": ">", "…": "...", "·": "-", "●": "*", "✗": "x", "→": "->", "─": "-"}


class Screen(Protocol):
    """Where the demo is shown."""

    @property
    def columns(self) -> int:
        """Room for text beside the margin."""
        ...

    @property
    def legend(self) -> tuple[Piece, ...]:
        """Words about how text is marked here."""
        ...

    def line(self, text: str = "", style: str = "") -> None:
        """Write one line.

        Args:
            text: not longer than `columns`.
            style: a name, or "".
        """
        ...

    def flow(self, pieces: Iterable[Piece]) -> None:
        """Write text of several inks, broken into rows."""
        ...

    def begin(self) -> None:
        """An answer begins."""
        ...

    def frame(self, pieces: Iterable[Piece], status: str) -> None:
        """Show the answer as it stands.

        Args:
            pieces: all of it.
            status: one line about it, for a screen that can take it back.
        """
        ...

    def end(self, pieces: Iterable[Piece]) -> None:
        """Show the answer as it stands at its end."""
        ...


def make_screen(out: TextIO, env: Mapping[str, str], *, plain: bool) -> Terminal | Log:
    """The screen that fits an output.

    Args:
        out: where to.
        env: `NO_COLOR` and `TERM` are heeded.
        plain: no escape sequences, whatever the output is.
    """
    capable = out.isatty() and not env.get("NO_COLOR") and env.get("TERM", "dumb") != "dumb"
    return Log(out) if plain or not capable else Terminal(out)


@dataclass(slots=True)
class _Page:
    """What both have in common: an output and where in the answer its changing part begins."""

    out: TextIO
    start: int = 0

    def write(self, text: str) -> None:
        encoding = self.out.encoding or "utf-8"
        try:
            text.encode(encoding)
        except UnicodeError:
            for char, plain in _ASCII.items():
                text = text.replace(char, plain)
            text = text.encode(encoding, "replace").decode(encoding)
        self.out.write(text)
        self.out.flush()


class Log:
    """An output that only grows.

    Args:
        out: where to.
    """

    def __init__(self, out: TextIO) -> None:
        self._page = _Page(out)
        self.legend = (
            Piece("committed", Ink.COMMITTED),
            Piece(" · ", Ink.COMMITTED),
            Piece("pending at the fault", Ink.HELD),
            Piece(" · ", Ink.COMMITTED),
            Piece("superseded", Ink.SUPERSEDED),
            Piece(" · ", Ink.COMMITTED),
            Piece("fault and pause", Ink.SEAM),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def columns(self) -> int:
        """Room for text beside the margin."""
        return _columns(self._page.out) - len(MARGIN)

    def line(self, text: str = "", style: str = "") -> None:  # noqa: ARG002 - a log has no styles
        """Write one line."""
        self._page.write(f"{MARGIN if text else ''}{text}\n")

    def flow(self, pieces: Iterable[Piece]) -> None:
        """Write text of several inks, broken into rows."""
        for row in wrap(cells(pieces, _LOG_MARKS), self.columns):
            self.line("".join(run.text for run in row.runs))

    def begin(self) -> None:
        """An answer begins."""
        self._page.start = 0

    def frame(self, pieces: Iterable[Piece], status: str) -> None:  # noqa: ARG002 - nothing is taken back
        """Write the rows that are final now."""
        self._show(pieces, ended=False)

    def end(self, pieces: Iterable[Piece]) -> None:
        """Write all that is left."""
        self._show(pieces, ended=True)

    def _show(self, pieces: Iterable[Piece], *, ended: bool) -> None:
        rows = wrap(cells(pieces, _LOG_MARKS), self.columns, self._page.start)
        for row in rows:
            if not ended and not row.final:
                self._page.start = row.start
                return
            self.line("".join(run.text for run in row.runs))


class Terminal:
    """A terminal with colours and a cursor. As a context manager it gives the cursor back.

    Args:
        out: where to.
    """

    def __init__(self, out: TextIO) -> None:
        self._page = _Page(out)
        self._drawn = 0
        self._width = 0
        self._last = ""
        self.legend = (
            Piece("committed", Ink.COMMITTED),
            Piece("   ", Ink.COMMITTED),
            Piece("pending", Ink.PENDING),
            Piece("   ", Ink.COMMITTED),
            Piece("pending at the fault", Ink.HELD),
            Piece("   ", Ink.COMMITTED),
            Piece("superseded", Ink.SUPERSEDED),
            Piece("   ", Ink.COMMITTED),
            Piece("fault and pause", Ink.SEAM),
        )

    def __enter__(self) -> Self:
        self._page.write("\x1b[?25l")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an interrupt the cursor stands inside the answer.
        self._page.write(("\r\n" if self._drawn else "") + _RESET + "\x1b[?25h")

    @property
    def columns(self) -> int:
        """Room for text beside the margin; the last column stays free, or a full row would wrap."""
        return _columns(self._page.out) - len(MARGIN) - 1

    def line(self, text: str = "", style: str = "") -> None:
        """Write one line."""
        self._page.write(f"{MARGIN}{_styled(text, style)}\r\n")

    def flow(self, pieces: Iterable[Piece]) -> None:
        """Write text of several inks, broken into rows."""
        for row in wrap(cells(pieces, _TERMINAL_MARKS), self.columns):
            self._page.write(f"{_drawn(row)}\r\n")

    def begin(self) -> None:
        """An answer begins."""
        self._page.start = self._drawn = 0
        self._last = ""
        self._width = self.columns

    def frame(self, pieces: Iterable[Piece], status: str) -> None:
        """Redraw what may have changed."""
        below = ["", MARGIN + _styled(_fit(status, self.columns), "quiet")]
        self._draw(pieces, below)

    def end(self, pieces: Iterable[Piece]) -> None:
        """Draw the answer for good, without the line of status."""
        self._draw(pieces, [])
        self._page.write("\r\n")
        self._drawn = 0

    def _draw(self, pieces: Iterable[Piece], below: list[str]) -> None:
        lead = self._lead()
        rows = wrap(cells(pieces, _TERMINAL_MARKS), self.columns, self._page.start)
        lines = [_drawn(row) for row in rows] + below
        body = "\r\n".join(f"{line}\x1b[K" for line in lines)
        if body == self._last and not lead:
            return
        up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
        self._page.write(f"{lead}\r{up}{body}\x1b[J")
        left = self._leave(rows, len(below))
        self._drawn = len(lines) - left
        self._last = "\r\n".join(body.split("\r\n")[left:])

    def _lead(self) -> str:
        """Once the width has changed, what was drawn has moved: leave it and go on below it."""
        if self.columns == self._width:
            return ""
        self._width = self.columns
        drawn, self._drawn = self._drawn, 0
        return "\r\n" if drawn else ""

    def _leave(self, rows: list[Row], below: int) -> int:
        """Rows that are not touched again: those that are final, and those that scroll away."""
        height = shutil.get_terminal_size().lines - 1
        left = next((at for at, row in enumerate(rows) if not row.final), len(rows) - 1)
        left = max(left, len(rows) + below - height)
        left = min(left, len(rows) - 1)
        self._page.start = rows[left].start
        return left


def _drawn(row: Row) -> str:
    return MARGIN + "".join(_drawn_run(run) for run in row.runs)


def _drawn_run(run: Piece) -> str:
    """White space at the edge of underlined words is not underlined."""
    words = run.text.strip(" ")
    if run.ink not in _UNDERLINED or not words:
        return _styled(run.text, "" if run.ink in _UNDERLINED else run.ink)
    lead, tail = run.text.split(words, 1)
    return lead + _styled(words, run.ink) + tail


def _styled(text: str, style: str) -> str:
    code = _STYLES.get(style, "")
    return f"{code}{text}{_RESET}" if code and text else text


def _fit(text: str, columns: int) -> str:
    """Cut to a width; the status is plain Latin, but for names that the user may have chosen."""
    width = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
    return text if width <= columns else text[: columns - 1]


def _columns(out: TextIO) -> int:
    """The output's width, within reason. `COLUMNS` counts, as it does for other programs."""
    columns = shutil.get_terminal_size().columns
    if not os.environ.get("COLUMNS"):
        try:
            columns = os.get_terminal_size(out.fileno()).columns or columns
        except (OSError, ValueError):  # a pipe, or no file at all
            columns = 80
    return max(MIN_COLUMNS, min(columns, MAX_COLUMNS))
