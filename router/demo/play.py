"""One answer as it is seen from both sides: what its client got, and what the router says of it.

What was delivered comes from the HTTP stream alone; what is committed, cut and joined comes from
the router's observers. The two run in one process, so an observer may be a moment ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from router.core.faults import Fault
from router.engine.observe import (
    AttemptEnded,
    AttemptStarted,
    Committed,
    Detail,
    Joined,
    StreamEnded,
)


class Ink(StrEnum):
    """How a piece of text stands."""

    COMMITTED = "committed"
    """The record holds it."""
    PENDING = "pending"
    """The client has it, the record does not yet."""
    HELD = "held"
    """Committed by now, but pending when the provider failed."""
    SUPERSEDED = "superseded"
    """Delivered, and replaced by what follows it."""
    SEAM = "seam"
    """No text: the place where one provider ended and another went on."""
    WAITING = "waiting"
    """The same, while nobody has gone on yet."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one ink."""

    text: str
    ink: Ink


@dataclass(frozen=True, slots=True, kw_only=True)
class Seam:
    """A join.

    Args:
        at: offset in the delivered text.
        held_from: where the text begins that was pending then and stood the join.
        label: what to write there.
    """

    at: int
    held_from: int
    label: str


class Play:
    """The state of one answer.

    Args:
        now_s: seconds, for the wait that a person sees.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.delivered = ""
        self.committed_text = ""
        self.commits = 0
        self.superseded: list[tuple[int, int]] = []
        self.seams: list[Seam] = []
        self.target = ""
        self.fault: Fault | None = None
        """Set while an attempt has failed and no other has gone on."""
        self.ended = False
        """The client got its finish, so nothing is pending any more."""
        self._over = False
        self._unseen = False
        self._now_s = now_s
        self._last_text_s = now_s()

    def text(self, text: str) -> None:
        """The client got text.

        Args:
            text: not empty.
        """
        self.delivered += text
        if self._unseen:
            self.fault, self._unseen = None, False
        self._last_text_s = self._now_s()

    def observe(self, detail: Detail) -> None:
        """The router did something.

        Args:
            detail: what.
        """
        match detail:
            case AttemptStarted():
                self.target = detail.target
            case AttemptEnded():
                self.fault = detail.report.fault
                # A fault before any output is followed by no join: the next text is the first.
                self._unseen = not self.delivered and not detail.report.output_chars
            case Joined():
                self._join(detail)
            case Committed():
                self.committed_text += detail.delta
                self.commits += 1
            case StreamEnded():
                self._over = True
                self.ended = detail.report.outcome == "completed"
                self.fault = None if self.ended else self.fault
                # The report is exact about ranges that were estimated while the stream ran.
                self.superseded = list(detail.report.superseded)
            case _:
                pass

    def _join(self, joined: Joined) -> None:
        """A join is told before the next commit: the fragment begins where the record ends."""
        committed = len(self.committed_text)
        end = self._delivered_at(committed + joined.fragment_chars)
        held_from = self._delivered_at(committed, after=True)
        fault, self.fault = self.fault or joined.report.fault, None
        if joined.superseded_chars:
            # Of a fragment that is replaced, its leading white space usually stays.
            fragment = self._canonical()[committed : committed + joined.fragment_chars]
            kept = len(fragment) - len(fragment.lstrip())
            start = self._delivered_at(committed + kept, after=True)
            self.superseded.append((start, start + joined.superseded_chars))
            held_from = end
        label = _label(fault, joined.report.pause_ms)
        self.seams.append(Seam(at=end, held_from=held_from, label=label))

    @property
    def committed_end(self) -> int:
        """Where the committed text ends in the delivered text."""
        return self._delivered_at(len(self.committed_text))

    @property
    def pending_chars(self) -> int:
        """Characters that the client has and the record has not."""
        return max(0, len(self._canonical()) - len(self.committed_text))

    def _delivered_at(self, chars: int, *, after: bool = False) -> int:
        """Where an offset of the answer lies in the delivered text: before or after a superseded
        range that begins just there."""
        for start, end in self.superseded:
            if chars > start or (after and chars == start):
                chars += end - start
        return chars

    def _canonical(self) -> str:
        """The answer so far."""
        kept, at = [], 0
        for start, end in self.superseded:
            kept.append(self.delivered[at:start])
            at = end
        return "".join((*kept, self.delivered[at:]))

    def pieces(self) -> Iterator[Piece]:
        """All that is to be shown, in order."""
        known = len(self.delivered)
        edges = {0, known, min(self.committed_end, known)}
        for offset in (*(seam.at for seam in self.seams), *self._marked()):
            edges.add(min(offset, known))
        for start, end in pairwise(sorted(edges)):
            yield Piece(self.delivered[start:end], self._ink(start))
            for seam in self.seams:
                if seam.at == end:
                    yield Piece(seam.label, Ink.SEAM)
        if self.fault is not None and known:
            waited_ms = 1000 * (self._now_s() - self._last_text_s)
            label = _label(self.fault, None if self._over else waited_ms)
            yield Piece(label, Ink.SEAM if self._over else Ink.WAITING)

    def _marked(self) -> Iterator[int]:
        for start, end in self.superseded:
            yield from (start, end)
        yield from (seam.held_from for seam in self.seams)

    def _ink(self, at: int) -> Ink:
        if any(start <= at < end for start, end in self.superseded):
            return Ink.SUPERSEDED
        seam = next((one for one in self.seams if one.held_from <= at < one.at), None)
        # What was pending at a fault stays one piece, though a commit may end inside it.
        until = at + 1 if seam is None else seam.at
        if until > self.committed_end and not self.ended:
            return Ink.PENDING
        return Ink.COMMITTED if seam is None else Ink.HELD


def _label(fault: Fault, pause_ms: float | None) -> str:
    pause = "" if pause_ms is None else f" {pause_ms:.0f} ms"
    return f"{fault.kind.value}{pause}"
