"""The answers that are cut in tests: real prose in several languages, and seeded ones by kind."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from router.core.boundary import make_boundary
from router.core.commit import CommitMachine
from router.simulate import seeded_text, tokenize

FIXTURES = Path(__file__).parents[1] / "fixtures" / "texts"
SEEDED_CHARS = 700
KINDS = ("prose", "dialogue", "facts", "list", "code", "german", "japanese")
OTHER = seeded_text("another wording", 300)
"""What a provider says that words the rest differently."""


class Sample(NamedTuple):
    """One answer.

    Args:
        name: for messages.
        text: all of it.
        language: ISO 639-1 code, for its sentence ends.
    """

    name: str
    text: str
    language: str


class Moment(NamedTuple):
    """How far a router is after so many characters.

    Args:
        committed: the record's text.
        fragment: delivered beyond it.
        in_fence: info string of the code fence that the committed text ends inside.
    """

    committed: str
    fragment: str
    in_fence: str | None


def written() -> list[Sample]:
    """The texts of `fixtures/texts`; the first two letters of a name are its language."""
    return [
        Sample(path.name, path.read_text(encoding="utf-8"), path.name[:2])
        for path in sorted(FIXTURES.iterdir())
    ]


def seeded(seed: int = 7, chars: int = SEEDED_CHARS) -> list[Sample]:
    """One text of each kind, and one of all kinds."""
    languages = {"german": "de", "japanese": "ja"}
    singles = [
        Sample(kind, seeded_text(seed, chars, kinds=(kind,)), languages.get(kind, "en"))
        for kind in KINDS
    ]
    return [*singles, Sample("mixed", seeded_text(seed, chars, kinds=KINDS), "en")]


@cache
def moments(sample: Sample) -> tuple[Moment, ...]:
    """How far a router is after each token of an answer."""
    boundary = make_boundary("text", language=sample.language)
    machine = CommitMachine()
    seen = []
    for token in tokenize(sample.text):
        machine.text(token)
        chars = boundary.feed(token)
        if chars:
            machine.commit(chars)
        seen.append(Moment(machine.committed_text, machine.fragment, boundary.in_fence))
    return tuple(seen)
