"""The canonical chat request: what the router itself must know, and the client's own body.

`raw` is the body as parsed. A target of the same format family is sent `raw` with a few fields
replaced, so fields that the router does not know pass through unharmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request for an answer.

    Args:
        model: the public model name, that is the route.
        raw: the client's body as parsed from JSON; never mutated.
        messages: `raw["messages"]`, validated to be non-empty objects with a role.
        stream: the client wants a stream.
        include_usage: `stream_options.include_usage` was asked.
        max_tokens: `max_completion_tokens` or `max_tokens`, or None.
        n: number of choices.
        stop: stop sequences, empty if none.
        logprobs: token log probabilities were asked.
        tools: the tools offered, empty if none.
        response_format: the structured-output request, or None for free text.
    """

    model: str
    raw: Mapping[str, Any]
    messages: tuple[Mapping[str, Any], ...]
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    response_format: Mapping[str, Any] | None = field(default=None)

    @property
    def prompt_chars(self) -> int:
        """Size of the question in characters of message text, for an estimate of its tokens."""
        return sum(len(str(message.get("content") or "")) for message in self.messages)
