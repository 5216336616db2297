"""Every known shape of a chat-completions body: bytes beside the events they mean.

`tests/fixtures/openai/NAME.body` is what a provider sent, `NAME.json` the events. Each is read
whole, cut at every byte, byte by byte, and truncated at every byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from router.core.events import Done, Event, Failed, Finish, Text, ToolCall, Usage
from router.core.faults import Fault, FaultKind
from router.wire.openai import ChatStreamReader

FIXTURES = Path(__file__).parent.parent / "fixtures" / "openai"
NAMES = sorted(path.stem for path in FIXTURES.glob("*.body"))


def judge(said: Mapping[str, Any]) -> Fault:
    assert said["error"]
    message = json.dumps(said, ensure_ascii=False, sort_keys=True)
    return Fault(kind=FaultKind.STREAM_ERROR, message=message)


def run(*pieces: bytes) -> list[Event]:
    reader = ChatStreamReader(on_error=judge)
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.close()


def described(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Events as JSON: the kind, and the fields that are not at their default."""
    return [_describe(event) for event in events]


def _describe(event: Event) -> dict[str, Any]:
    if isinstance(event, Failed):
        return {"kind": "Failed", "fault": event.fault.kind, "said": event.fault.message}
    fields = msgspec.to_builtins(event)
    if isinstance(event, Usage):
        del fields["raw"]
    shown = {name: value for name, value in fields.items() if value or name == "index"}
    return {"kind": type(event).__name__} | shown


def load(name: str) -> tuple[bytes, list[dict[str, Any]]]:
    body = (FIXTURES / f"{name}.body").read_bytes()
    return body, json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))


def test_fixtures_are_there() -> None:
    assert len(NAMES) > 80


@pytest.mark.parametrize("name", NAMES)
def test_whole(name: str) -> None:
    body, expected = load(name)
    assert described(run(body)) == expected


@pytest.mark.parametrize("name", NAMES)
def test_any_cut_gives_the_same_events(name: str) -> None:
    body, _ = load(name)
    whole = run(body)
    for at in range(len(body) + 1):
        assert run(body[:at], body[at:]) == whole, at
    assert run(*(body[at : at + 1] for at in range(len(body)))) == whole
    assert run(*(body[at : at + 7] for at in range(0, len(body), 7))) == whole


@pytest.mark.parametrize("name", NAMES)
def test_event_by_event_is_the_same_as_byte_by_byte(name: str) -> None:
    """A read that is one whole event takes a shorter way through the reader."""
    body, _ = load(name)
    events = re.findall(rb".+?(?:\n\n|\Z)", body, re.DOTALL)
    whole = run(*(body[at : at + 1] for at in range(len(body))))
    assert run(*events) == whole
    # Also behind a line that only the next read ends.
    for at in range(1, len(events)):
        head, tail = events[at][:-1], events[at][-1:]
        assert run(*events[:at], head, tail, *events[at + 1 :]) == whole


@pytest.mark.parametrize("name", NAMES)
def test_truncation_invents_nothing(name: str) -> None:
    body, _ = load(name)
    whole = run(body)
    finishes = [event for event in whole if isinstance(event, Finish)]
    for at in range(len(body)):
        events = run(body[:at])
        seen = [event for event in events if isinstance(event, Finish)]
        assert seen == finishes[: len(seen)], at
        assert joined(whole).startswith(joined(events)), at
        for kind in (Failed, Done):
            ends = [place for place, event in enumerate(events) if isinstance(event, kind)]
            assert ends in ([], [len(events) - 1]), at


def joined(events: list[Event]) -> str:
    """Text and arguments: what must never be more in a part than in the whole."""
    texts = [event.text for event in events if isinstance(event, Text)]
    calls = [event.arguments for event in events if isinstance(event, ToolCall)]
    return "".join(texts + calls) if not (texts and calls) else "".join(texts)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("error", "html"))])
def test_a_failure_is_never_a_finish(name: str) -> None:
    body, expected = load(name)
    assert expected[-1]["kind"] == "Failed"
    for at in range(len(body) + 1):
        assert not any(isinstance(event, Finish) for event in run(body[:at])), at
