"""Every known shape of a Messages body: bytes beside the events they mean.

After a wanted change, `PYTHONPATH=tests python tests/wire/test_anthropic_fixtures.py` writes the
events anew; read the diff.
"""

from __future__ import annotations

import json

import pytest
from support.bodies import FIXTURES, Bodies, described, judge

from router.wire.anthropic.reader import MessagesReader

BODIES = Bodies("anthropic", lambda: MessagesReader(on_error=judge))
NAMES = BODIES.names


def test_fixtures_are_there() -> None:
    assert len(NAMES) > 90


@pytest.mark.parametrize("name", NAMES)
def test_whole(name: str) -> None:
    assert described(BODIES.run(BODIES.body(name))) == BODIES.expected(name)


@pytest.mark.parametrize("name", NAMES)
def test_any_cut_gives_the_same_events(name: str) -> None:
    BODIES.any_cut_gives_the_same_events(name)


@pytest.mark.parametrize("name", NAMES)
def test_event_by_event_is_the_same_as_byte_by_byte(name: str) -> None:
    BODIES.event_by_event_is_the_same_as_byte_by_byte(name)


@pytest.mark.parametrize("name", NAMES)
def test_truncation_invents_nothing(name: str) -> None:
    BODIES.truncation_invents_nothing(name)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("error", "html"))])
def test_a_failure_is_never_a_finish(name: str) -> None:
    BODIES.a_failure_is_never_a_finish(name)


if __name__ == "__main__":
    for one in NAMES:
        events = described(BODIES.run(BODIES.body(one)))
        text = json.dumps(events, ensure_ascii=False, indent=1) + "\n"
        (FIXTURES / "anthropic" / f"{one}.json").write_text(text, "utf-8")
