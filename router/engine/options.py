"""What a client, or its route, chooses for one stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from router.core.json_schema import Schema


class OnInterrupt(StrEnum):
    """What happens when a provider dies in mid-answer."""

    RESUME = "resume"
    """The next target goes on from the last boundary."""
    RESTART = "restart"
    """The client is told to forget what it has, and gets the answer from the start."""
    PARTIAL = "partial"
    """What was delivered stands, and the stream ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The choices of one stream.

    Args:
        on_interrupt: see `OnInterrupt`. `RESTART` needs a client that reads named events.
        atomic_tools: a tool call is held back until it is whole.
        tools: compiled `parameters` of the offered tools, by name; used where calls are held.
        think_tags: `<think>` at the beginning of the content is reasoning.
    """

    on_interrupt: OnInterrupt = OnInterrupt.RESUME
    atomic_tools: bool = False
    tools: Mapping[str, Schema | None] = field(default_factory=dict)
    think_tags: bool = False
