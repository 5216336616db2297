"""Every known shape of a chat-completions body: bytes beside the events they mean.

`tests/fixtures/openai/NAME.body` is what a provider sent, `NAME.json` the events. Each is read
whole, cut at every byte, byte by byte, and truncated at every byte.
"""

from __future__ import annotations

import pytest
from support.bodies import Bodies, described, judge

from router.wire.openai import ChatStreamReader

BODIES = Bodies("openai", lambda: ChatStreamReader(on_error=judge))
NAMES = BODIES.names


def test_fixtures_are_there() -> None:
    assert len(NAMES) > 80


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
