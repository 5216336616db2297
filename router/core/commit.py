"""The commit machine: how far one stream has come, and what may happen next.

One stream is in exactly one `State`. Every happening is a `Move`; the table `TRANSITIONS` says
where it leads. What is not in the table raises `IllegalTransition` and changes nothing.

    OPENING    nothing that the client could act on was delivered (reasoning may have been)
    TEXT       answer text was delivered
    TOOL       some part of a tool call was delivered: from here on there is no failover
    SPLICING   the attempt that wrote the text died; a continuation is being asked for
    COMPLETED  the client got a finish
    BROKEN     the client got an error, or is gone

Three lengths are kept, all in characters:

    delivered   everything that went to the client, superseded ranges included
    canonical   delivered without the superseded ranges: this is the answer
    committed   the part of canonical that the record holds; it only grows, and never past canonical

The *fragment* is canonical[committed:], what the client has seen and the record does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from router.errors import IllegalTransition


class State(StrEnum):
    """Where a stream is."""

    OPENING = "opening"
    TEXT = "text"
    TOOL = "tool"
    SPLICING = "splicing"
    COMPLETED = "completed"
    BROKEN = "broken"


class Move(StrEnum):
    """What can happen to a stream."""

    TEXT = "text"
    """Answer text was delivered."""
    TOOL = "tool"
    """A part of a tool call was delivered."""
    COMMIT = "commit"
    """The record moves to a boundary."""
    SUPERSEDE = "supersede"
    """A continuation replaces the fragment."""
    STAND = "stand"
    """The answer ended without a word against the fragment: it stands."""
    RESTART = "restart"
    """The client was told to forget what it has."""
    FAULT = "fault"
    """The attempt ended badly."""
    FINISH = "finish"
    """The answer is whole."""
    BREAK = "break"
    """The stream ends without a finish."""


TRANSITIONS: dict[State, dict[Move, State]] = {
    State.OPENING: {
        Move.TEXT: State.TEXT,
        Move.TOOL: State.TOOL,
        Move.FAULT: State.OPENING,
        Move.FINISH: State.COMPLETED,
        Move.BREAK: State.BROKEN,
    },
    State.TEXT: {
        Move.TEXT: State.TEXT,
        Move.TOOL: State.TOOL,
        Move.COMMIT: State.TEXT,
        Move.FAULT: State.SPLICING,
        Move.FINISH: State.COMPLETED,
        Move.BREAK: State.BROKEN,
    },
    State.TOOL: {
        Move.TEXT: State.TOOL,
        Move.TOOL: State.TOOL,
        Move.COMMIT: State.TOOL,
        Move.FINISH: State.COMPLETED,
        Move.BREAK: State.BROKEN,
    },
    State.SPLICING: {
        Move.TEXT: State.TEXT,
        Move.TOOL: State.TOOL,
        Move.SUPERSEDE: State.TEXT,
        Move.STAND: State.TEXT,
        Move.RESTART: State.OPENING,
        Move.FAULT: State.SPLICING,
        Move.FINISH: State.COMPLETED,
        Move.BREAK: State.BROKEN,
    },
    State.COMPLETED: {},
    State.BROKEN: {},
}
"""TOOL has no FAULT: a fault there leaves only BREAK, whatever else the caller would like."""


class CommitMachine:
    """The progress of one stream: bookkeeping that is told what was done and refuses nonsense."""

    __slots__ = (
        "_committed",
        "_fragment",
        "_pieces",
        "boundaries",
        "committed_chars",
        "committed_pieces",
        "delivered_chars",
        "state",
        "superseded",
    )

    def __init__(self) -> None:
        self.state = State.OPENING
        self.delivered_chars = 0
        self.committed_chars = 0
        self.committed_pieces = 0
        """Pieces of text (mostly tokens) that the committed text came in."""
        self.boundaries = 0
        self.superseded: list[tuple[int, int]] = []
        self._committed: list[str] = []
        self._fragment: list[str] = []
        self._pieces: list[int] = []

    @classmethod
    def resumed(
        cls,
        committed: str,
        boundaries: int,
        received: int,
        superseded: Sequence[tuple[int, int]],
        fragment: str = "",
    ) -> CommitMachine:
        """The machine of a stream that another writer began.

        Args:
            committed: the text of its record.
            boundaries: commits so far.
            received: characters that the client has.
            superseded: ranges of those that are no part of the answer.
            fragment: what is known to follow the committed text.
        """
        machine = cls()
        machine._fragment = [fragment] if fragment else []
        machine._pieces = [len(fragment)] if fragment else []
        machine._committed = [committed] if committed else []
        machine.committed_chars = len(committed)
        machine.boundaries = boundaries
        machine.delivered_chars = received
        machine.superseded = list(superseded)
        if committed:
            machine.state = State.SPLICING
        return machine

    def replayed(self, chars: int) -> None:
        """Committed text was delivered again.

        Args:
            chars: its length.
        """
        self.delivered_chars += chars

    @property
    def committed_text(self) -> str:
        """All that is committed: the prefix of a continuation."""
        if len(self._committed) > 1:
            self._committed = ["".join(self._committed)]
        return self._committed[0] if self._committed else ""

    @property
    def fragment(self) -> str:
        """Canonical text that the client has and the record has not."""
        if len(self._fragment) > 1:
            self._fragment = ["".join(self._fragment)]
        return self._fragment[0] if self._fragment else ""

    @property
    def canonical_text(self) -> str:
        """The answer so far."""
        return self.committed_text + self.fragment

    def text(self, text: str) -> None:
        """Answer text was delivered.

        Args:
            text: what went out, not empty.
        """
        # The per-token call: while text follows text, no table look-up is needed.
        if self.state is not State.TEXT:
            self._move(Move.TEXT)
        self.delivered_chars += len(text)
        self._fragment.append(text)
        self._pieces.append(len(text))

    def tool(self) -> None:
        """A part of a tool call was delivered."""
        self._move(Move.TOOL)

    def commit(self, chars: int) -> str:
        """The record moves to a boundary.

        Args:
            chars: how much of the fragment is committed now, at least 1.

        Returns:
            The text to append to the record.

        Raises:
            IllegalTransition: nothing to commit, or more than was delivered.
        """
        fragment = self.fragment
        if not 0 < chars <= len(fragment):
            raise IllegalTransition(f"cannot commit {chars} of {len(fragment)} pending characters")
        self._move(Move.COMMIT)
        delta = fragment[:chars]
        self._committed.append(delta)
        self.committed_chars += chars
        self._fragment = [fragment[chars:]]
        self._count_pieces(chars)
        self.boundaries += 1
        return delta

    def supersede(self, keep_chars: int, separator: str) -> None:
        """A continuation replaces the fragment, which the client has already seen.

        Args:
            keep_chars: length of the fragment's head that stays canonical.
            separator: text that was delivered after the fragment to set the continuation off; it
                belongs to the superseded range.
        """
        fragment = self.fragment
        if not 0 <= keep_chars <= len(fragment):
            raise IllegalTransition(f"cannot keep {keep_chars} of {len(fragment)} characters")
        self._move(Move.SUPERSEDE)
        start = self._delivered_at(self.committed_chars + keep_chars)
        self.delivered_chars += len(separator)
        # A second rewording of one sentence may reach back behind the first: one range is left.
        while self.superseded and self.superseded[-1][0] >= start:
            self.superseded.pop()
        if self.delivered_chars > start:
            self.superseded.append((start, self.delivered_chars))
        self._fragment = [fragment[:keep_chars]]
        self._pieces = [keep_chars] if keep_chars else []

    def stand(self) -> None:
        """The continuation had nothing to add, so what the client has is the answer."""
        self._move(Move.STAND)

    def fault(self) -> None:
        """The attempt ended badly."""
        self._move(Move.FAULT)

    def finish(self) -> None:
        """The client got its finish."""
        self._move(Move.FINISH)

    def break_off(self) -> None:
        """The stream ended without a finish."""
        self._move(Move.BREAK)

    def restart(self) -> None:
        """The client was told to forget everything: the answer begins anew."""
        self._move(Move.RESTART)
        self.delivered_chars = 0
        self.committed_chars = 0
        self.committed_pieces = 0
        self.superseded = []
        self._committed = []
        self._fragment = []
        self._pieces = []

    def _count_pieces(self, chars: int) -> None:
        """How many pieces lie wholly in what is committed now."""
        at = 0
        for size in self._pieces:
            if size > chars:
                break
            chars -= size
            at += 1
        self.committed_pieces += at
        self._pieces = (
            [self._pieces[at] - chars, *self._pieces[at + 1 :]] if chars else (self._pieces[at:])
        )

    def _delivered_at(self, chars: int) -> int:
        """Where a character of the canonical text stands in the delivered text."""
        for start, end in self.superseded:
            if chars >= start:
                chars += end - start
        return chars

    def _move(self, move: Move) -> None:
        to = TRANSITIONS[self.state].get(move)
        if to is None:
            raise IllegalTransition(f"{move} is not allowed in {self.state}")
        self.state = to
