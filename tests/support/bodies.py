"""Bodies as providers sent them, beside the events that they mean, and what holds for every one.

`DIR/NAME.body` is what a provider sent, `DIR/NAME.json` the events. Each is read whole, cut at
every byte, byte by byte, event by event, and truncated at every byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from router.core.events import Done, Event, Failed, Finish, Text, ToolCall, Usage
from router.core.faults import Fault, FaultKind
from router.providers.base import StreamReader

FIXTURES = Path(__file__).parent.parent / "fixtures"


def judge(said: Mapping[str, Any]) -> Fault:
    """An `on_error` that keeps what it was given in its message."""
    assert said["error"]
    message = json.dumps(said, ensure_ascii=False, sort_keys=True)
    return Fault(kind=FaultKind.STREAM_ERROR, message=message)


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


@dataclass(frozen=True)
class Bodies:
    """The bodies of one format.

    Args:
        format: name of their folder.
        make: a fresh reader.
    """

    format: str
    make: Callable[[], StreamReader]

    @property
    def names(self) -> list[str]:
        """All of them."""
        return sorted(path.stem for path in (FIXTURES / self.format).glob("*.body"))

    def body(self, name: str) -> bytes:
        """What was sent."""
        return (FIXTURES / self.format / f"{name}.body").read_bytes()

    def expected(self, name: str) -> list[dict[str, Any]]:
        """What it means."""
        text = (FIXTURES / self.format / f"{name}.json").read_text("utf-8")
        events: list[dict[str, Any]] = json.loads(text)
        return events

    def run(self, *pieces: bytes) -> list[Event]:
        """The events of a body that comes in these reads."""
        reader = self.make()
        events = [event for piece in pieces for event in reader.feed(piece)]
        return events + reader.close()

    def any_cut_gives_the_same_events(self, name: str) -> None:
        """Whatever the reads are."""
        body = self.body(name)
        whole = self.run(body)
        for at in range(len(body) + 1):
            assert self.run(body[:at], body[at:]) == whole, at
        assert self.run(*(body[at : at + 1] for at in range(len(body)))) == whole
        assert self.run(*(body[at : at + 7] for at in range(0, len(body), 7))) == whole

    def event_by_event_is_the_same_as_byte_by_byte(self, name: str) -> None:
        """A read that is one whole event takes a shorter way through the reader."""
        body = self.body(name)
        events = re.findall(rb".+?(?:\r\n\r\n|\n\n|\Z)", body, re.DOTALL)
        whole = self.run(*(body[at : at + 1] for at in range(len(body))))
        assert self.run(*events) == whole
        # Also behind a line that only the next read ends.
        for at in range(1, len(events)):
            head, tail = events[at][:-1], events[at][-1:]
            assert self.run(*events[:at], head, tail, *events[at + 1 :]) == whole

    def truncation_invents_nothing(self, name: str) -> None:
        """No finish, no text and no call that the whole body has not, and one end at most."""
        body = self.body(name)
        whole = self.run(body)
        finishes = [event for event in whole if isinstance(event, Finish)]
        all_of_it = _said(whole)
        for at in range(len(body)):
            events = self.run(body[:at])
            seen = [event for event in events if isinstance(event, Finish)]
            assert seen == finishes[: len(seen)], at
            said = _said(events)
            assert all(all_of_it.get(key, "").startswith(part) for key, part in said.items()), at
            for kind in (Failed, Done):
                ends = [place for place, event in enumerate(events) if isinstance(event, kind)]
                assert ends in ([], [len(events) - 1]), at

    def a_failure_is_never_a_finish(self, name: str) -> None:
        """Wherever it is cut."""
        body = self.body(name)
        assert self.expected(name)[-1]["kind"] == "Failed"
        for at in range(len(body) + 1):
            assert not any(isinstance(event, Finish) for event in self.run(body[:at])), at


def _said(events: list[Event]) -> dict[object, str]:
    """Text, and the arguments of each call: what must never be more in a part than in the whole."""
    said: dict[object, str] = {}
    for event in events:
        if isinstance(event, Text):
            said[event.choice] = said.get(event.choice, "") + event.text
        elif isinstance(event, ToolCall):
            call = (event.choice, event.index, event.legacy)
            said[call] = said.get(call, "") + event.arguments
    return said
