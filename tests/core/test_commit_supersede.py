"""Delivered without the superseded ranges is the canonical text, however often one is reworded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.core.commit import CommitMachine

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["text", "commit", "supersede"]),
        st.integers(0, 12),
        st.text("ab \n", min_size=1, max_size=6),
        st.sampled_from(["", "\n", "\n\n"]),
    ),
    max_size=14,
)


def without(delivered: str, ranges: list[tuple[int, int]]) -> str:
    kept, at = [], 0
    for start, end in ranges:
        assert at <= start < end <= len(delivered)
        kept.append(delivered[at:start])
        at = end
    return "".join((*kept, delivered[at:]))


def test_a_second_rewording_that_keeps_less_than_the_first() -> None:
    machine = CommitMachine()
    machine.text("One. Two a")
    machine.commit(4)
    machine.fault()
    machine.supersede(1, "\n\n")
    machine.text("Deux x")
    machine.fault()
    machine.supersede(0, "")
    machine.text("\n\nDrei y")
    assert machine.canonical_text == "One.\n\nDrei y"
    assert machine.superseded == [(4, 18)]
    assert without("One. Two a\n\nDeux x\n\nDrei y", machine.superseded) == "One.\n\nDrei y"


@given(STEPS)
def test_ranges_and_canonical_text_agree(steps: list[tuple[str, int, str, str]]) -> None:
    machine, delivered = CommitMachine(), ""
    for step, number, text, separator in steps:
        pending = len(machine.fragment)
        if step == "text":
            machine.text(text)
            delivered += text
        elif step == "commit" and 0 < number <= pending:
            machine.commit(number)
        elif step == "supersede" and machine.delivered_chars:
            machine.fault()
            machine.supersede(min(number, pending), separator)
            machine.text(text)
            delivered += separator + text
        assert machine.delivered_chars == len(delivered)
        assert without(delivered, machine.superseded) == machine.canonical_text
