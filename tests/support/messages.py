"""What a client of Messages got, read from the raw bytes with as little cleverness as possible."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from support.continuity import without

OWN_EVENTS = {"reset_stream", "partial_complete"}
"""Names of the router's own events, which only those get who asked for them."""


@dataclass
class Block:
    """One content block.

    Args:
        start: as its start has it.
        deltas: in order.
        stopped: its end came.
    """

    start: dict[str, Any]
    deltas: list[dict[str, Any]] = field(default_factory=list)
    stopped: bool = False

    @property
    def kind(self) -> str:
        """Its type."""
        kind: str = self.start["type"]
        return kind

    def joined(self, name: str) -> str:
        """What its deltas say in a field, in one piece."""
        return "".join(delta.get(name, "") for delta in self.deltas)


@dataclass
class MessageAnswer:
    """One response, taken apart."""

    status: int
    headers: httpx.Headers
    raw: bytes
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)

    def named(self, name: str) -> list[dict[str, Any]]:
        """The events of one name."""
        return [data for event, data in self.events if event == name]

    @property
    def names(self) -> list[str]:
        """Of all events but signs of life, in order."""
        return [name for name, _ in self.events if name != "ping"]

    @property
    def blocks(self) -> list[Block]:
        """The content blocks; anything out of its place fails the test."""
        found: list[Block] = []
        for name, data in self.events:
            if name == "content_block_start":
                assert data["index"] == len(found), "indices are not 0, 1, 2, …"
                assert all(block.stopped for block in found), "two blocks are open at once"
                found.append(Block(data["content_block"]))
            elif name in {"content_block_delta", "content_block_stop"}:
                assert data["index"] == len(found) - 1, "a delta outside of the open block"
                assert not found[-1].stopped, "a block goes on after its end"
                if name == "content_block_stop":
                    found[-1].stopped = True
                else:
                    found[-1].deltas.append(data["delta"])
        return found

    @property
    def delivered(self) -> str:
        """All text that was delivered."""
        return "".join(block.joined("text") for block in self.blocks)

    @property
    def stop(self) -> dict[str, Any] | None:
        """The `delta` of the end, None if there was none."""
        ends = self.named("message_delta")
        assert len(ends) <= 1
        return ends[0]["delta"] if ends else None

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The `router` object, which must stand on the `message_delta` and nowhere else."""
        carriers = [(name, data["router"]) for name, data in self.events if "router" in data]
        carriers = [one for one in carriers if one[0] not in OWN_EVENTS]
        assert [name for name, _ in carriers] in ([], ["message_delta"])
        return carriers[0][1] if carriers else None

    @property
    def error(self) -> dict[str, Any] | None:
        """The in-band error, which must be the last event."""
        if "error" not in self.names:
            return None
        assert self.names.count("error") == 1
        name, data = self.events[-1]
        assert (name, data["type"]) == ("error", "error")
        found: dict[str, Any] = data["error"]
        return found

    @property
    def canonical(self) -> str:
        """The delivered text without the superseded ranges."""
        facts = self.metadata or (self.error or {}).get("router") or {}
        return without(self.delivered, facts.get("superseded", []))


def read_messages(status: int, headers: httpx.Headers, raw: bytes) -> MessageAnswer:
    """Take a stream's bytes apart; anything outside the format fails the test."""
    answer = MessageAnswer(status, headers, raw)
    for event in raw.decode().split("\n\n")[:-1]:
        lines = event.split("\n")
        answer.comments += [line for line in lines if line.startswith(":")]
        named, data = [line for line in lines if not line.startswith((":", "id: "))]
        assert named.startswith("event: "), named
        assert data.startswith("data: "), data
        name, value = named.removeprefix("event: "), json.loads(data.removeprefix("data: "))
        assert name in OWN_EVENTS or value["type"] == name, event
        answer.events.append((name, value))
    return answer


def check_message(answer: MessageAnswer) -> None:
    """What every finished stream keeps to: one beginning, its blocks, one end, and nothing else."""
    assert answer.status == 200
    assert answer.error is None, answer.error
    names = answer.names
    assert names[0] == "message_start"
    assert names[-2:] == ["message_delta", "message_stop"]
    inside = {"content_block_start", "content_block_delta", "content_block_stop"}
    assert set(names[1:-2]) <= inside
    assert all(block.stopped for block in answer.blocks)
    assert answer.stop is not None
    assert answer.stop["stop_reason"]
    assert answer.metadata is None or "superseded" in answer.metadata
