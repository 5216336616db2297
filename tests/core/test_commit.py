"""The commit machine: its table, and what every legal way through it keeps."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from router.core.commit import TRANSITIONS, CommitMachine, Move, State
from router.errors import IllegalTransition

texts = st.text("ab .\n日", min_size=1, max_size=12)
ENDED = (State.COMPLETED, State.BROKEN)


def snapshot(machine: CommitMachine) -> tuple[Any, ...]:
    """All that can be seen of it."""
    return (
        machine.state,
        machine.delivered_chars,
        machine.committed_chars,
        machine.committed_pieces,
        machine.boundaries,
        tuple(machine.superseded),
        machine.committed_text,
        machine.fragment,
    )


def make(machine: CommitMachine, move: Move) -> None:
    """Make a move with arguments that are right if the move is."""
    calls = {
        Move.TEXT: lambda: machine.text("x"),
        Move.TOOL: machine.tool,
        Move.COMMIT: lambda: machine.commit(1),
        Move.SUPERSEDE: lambda: machine.supersede(0, "\n\n"),
        Move.STAND: machine.stand,
        Move.RESTART: machine.restart,
        Move.FAULT: machine.fault,
        Move.FINISH: machine.finish,
        Move.BREAK: machine.break_off,
    }
    calls[move]()


WAYS: dict[State, tuple[Move, ...]] = {
    State.OPENING: (),
    State.TEXT: (Move.TEXT,),
    State.TOOL: (Move.TEXT, Move.TOOL),
    State.SPLICING: (Move.TEXT, Move.FAULT),
    State.COMPLETED: (Move.TEXT, Move.FINISH),
    State.BROKEN: (Move.TEXT, Move.BREAK),
}
"""A way into each state; where there can be one, with a fragment."""


def at(state: State) -> CommitMachine:
    machine = CommitMachine()
    for move in WAYS[state]:
        make(machine, move)
    assert machine.state is state
    return machine


def test_the_table_names_every_state_and_only_states_and_moves() -> None:
    assert set(TRANSITIONS) == set(State) == set(WAYS)
    for moves in TRANSITIONS.values():
        assert set(moves) <= set(Move)
        assert set(moves.values()) <= set(State)
    assert {move for moves in TRANSITIONS.values() for move in moves} == set(Move)
    assert {to for moves in TRANSITIONS.values() for to in moves.values()} == set(State)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("move", Move)
def test_every_cell_of_the_table(state: State, move: Move) -> None:
    machine = at(state)
    before = snapshot(machine)
    to = TRANSITIONS[state].get(move)
    if to is None:
        with pytest.raises(IllegalTransition):
            make(machine, move)
        assert snapshot(machine) == before
    else:
        make(machine, move)
        assert machine.state is to


@pytest.mark.parametrize("state", ENDED)
def test_nothing_follows_the_end(state: State) -> None:
    assert not TRANSITIONS[state]


def test_a_fault_after_a_tool_call_leaves_only_the_break() -> None:
    assert Move.FAULT not in TRANSITIONS[State.TOOL]
    assert Move.SUPERSEDE not in TRANSITIONS[State.TOOL]
    assert all(to in (State.TOOL, *ENDED) for to in TRANSITIONS[State.TOOL].values())


def test_only_a_splice_supersedes() -> None:
    assert [state for state, moves in TRANSITIONS.items() if Move.SUPERSEDE in moves] == [
        State.SPLICING
    ]


def test_a_fragment_that_nothing_was_said_against_stands() -> None:
    machine = CommitMachine()
    machine.text("One. ")
    machine.commit(4)
    machine.fault()
    machine.stand()
    assert machine.commit(1) == " "
    assert (machine.canonical_text, machine.superseded) == ("One. ", [])
    machine.finish()


def test_only_a_splice_begins_anew() -> None:
    restarts = [state for state, moves in TRANSITIONS.items() if Move.RESTART in moves]
    assert restarts == [State.SPLICING]


def test_a_restart_forgets_all() -> None:
    machine = CommitMachine()
    machine.text("One. Tw")
    machine.commit(4)
    machine.fault()
    machine.supersede(0, "\n\n")
    machine.fault()
    machine.restart()
    assert snapshot(machine)[1:] == (0, 0, 0, 1, (), "", "")
    machine.text("Three.")
    assert machine.canonical_text == "Three."


@given(st.lists(texts, min_size=1, max_size=12), st.data())
def test_pieces_are_counted_when_they_are_committed_whole(
    pieces: list[str], data: st.DataObject
) -> None:
    machine = CommitMachine()
    ends = list(accumulate(map(len, pieces)))
    at = 0
    for piece, end in zip(pieces, ends, strict=True):
        machine.text(piece)
        chars = data.draw(st.integers(0, end - at))
        if chars:
            machine.commit(chars)
            at += chars
        assert machine.committed_pieces == sum(one <= at for one in ends)


@given(texts, st.integers(-3, 20))
def test_a_commit_beyond_what_was_delivered_changes_nothing(text: str, chars: int) -> None:
    machine = CommitMachine()
    machine.text(text)
    before = snapshot(machine)
    if 0 < chars <= len(text):
        assert machine.commit(chars) == text[:chars]
    else:
        with pytest.raises(IllegalTransition):
            machine.commit(chars)
        assert snapshot(machine) == before


@given(texts, st.integers(-3, 20))
def test_keeping_more_than_there_is_changes_nothing(text: str, keep: int) -> None:
    machine = CommitMachine()
    machine.text(text)
    machine.fault()
    before = snapshot(machine)
    if 0 <= keep <= len(text):
        machine.supersede(keep, "")
        assert machine.canonical_text == text[:keep]
    else:
        with pytest.raises(IllegalTransition):
            machine.supersede(keep, "")
        assert snapshot(machine) == before


def test_a_superseded_range_is_the_fragments_end_and_the_separator() -> None:
    machine = CommitMachine()
    machine.text("One. Tw")
    machine.commit(4)
    machine.fault()
    machine.supersede(1, "\n\n")
    machine.text("Three.")
    assert machine.superseded == [(5, 9)]
    assert machine.canonical_text == "One. Three."
    assert machine.delivered_chars == len("One. Tw\n\nThree.")


def test_keeping_all_without_a_separator_supersedes_nothing() -> None:
    machine = CommitMachine()
    machine.text("One")
    machine.fault()
    machine.supersede(3, "")
    assert machine.superseded == []


class Life(RuleBasedStateMachine):
    """Random moves, legal and not, beside a model that is only strings (design's promises 1 and 7:
    delivered minus superseded is canonical; the record's text is always a prefix of it and never
    goes backward or past what was delivered)."""

    @initialize()
    def begin(self) -> None:
        self.machine = CommitMachine()
        self.delivered = ""
        self.record = ""
        self.superseded_before: set[int] = set()

    def allowed(self, move: Move) -> bool:
        return move in TRANSITIONS[self.machine.state]

    @rule(text=texts)
    def text(self, text: str) -> None:
        if self.attempt(Move.TEXT, lambda: self.machine.text(text)):
            self.delivered += text

    @rule(data=st.data())
    @precondition(lambda self: self.machine.fragment)
    def commit(self, data: st.DataObject) -> None:
        chars = data.draw(st.integers(1, len(self.machine.fragment)))
        expected = self.machine.fragment[:chars]
        if self.attempt(Move.COMMIT, lambda: self.machine.commit(chars)):
            self.record += expected

    @rule(data=st.data(), separator=st.sampled_from(("", "\n", "\n\n")))
    def supersede(self, data: st.DataObject, separator: str) -> None:
        keep = data.draw(st.integers(0, len(self.machine.fragment)))
        if self.attempt(Move.SUPERSEDE, lambda: self.machine.supersede(keep, separator)):
            self.delivered += separator

    @rule()
    def restart(self) -> None:
        if self.attempt(Move.RESTART, self.machine.restart):
            self.delivered = self.record = ""
            self.superseded_before = set()

    @rule(move=st.sampled_from((Move.TOOL, *[Move.FAULT] * 2, Move.STAND, Move.FINISH, Move.BREAK)))
    def other(self, move: Move) -> None:
        ends = move in (Move.FINISH, Move.BREAK)
        if not ends or len(self.delivered) > 60:  # a life is to be seen before it ends
            self.attempt(move, lambda: make(self.machine, move))

    def attempt(self, move: Move, call: Any) -> bool:  # noqa: ANN401 - any of the machine's calls
        """Make a move; one that the table does not allow raises and changes nothing."""
        legal = self.allowed(move)
        before = snapshot(self.machine)
        if legal:
            call()
            assert self.machine.state is TRANSITIONS[before[0]][move]
        else:
            with pytest.raises(IllegalTransition):
                call()
            assert snapshot(self.machine) == before
        return legal

    @invariant()
    def delivered_minus_superseded_is_canonical(self) -> None:
        if not hasattr(self, "machine"):
            return
        kept, at_chars = [], 0
        for start, end in self.machine.superseded:
            assert at_chars <= start < end <= len(self.delivered)
            kept.append(self.delivered[at_chars:start])
            at_chars = end
        assert "".join((*kept, self.delivered[at_chars:])) == self.machine.canonical_text
        assert self.machine.delivered_chars == len(self.delivered)

    @invariant()
    def the_record_is_a_prefix_that_only_grows(self) -> None:
        if not hasattr(self, "machine"):
            return
        machine = self.machine
        assert machine.committed_text == self.record
        assert machine.committed_chars == len(self.record)
        assert machine.canonical_text == machine.committed_text + machine.fragment
        superseded = {at for start, end in machine.superseded for at in range(start, end)}
        assert superseded >= self.superseded_before  # what was replaced never comes back
        self.superseded_before = superseded


TestLife = Life.TestCase
