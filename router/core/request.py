"""A request for an answer: what the router itself must know, and the client's own body.

`raw` is the body as parsed. A target of the same format is sent `raw` with a few fields replaced:
fields that the router does not know pass through unharmed. For a target of another format it is
translated (`providers/translate.py`), by way of `core/conversation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Format(StrEnum):
    """A public format of requests and answers."""

    OPENAI = "openai"
    """OpenAI's chat completions."""
    ANTHROPIC = "anthropic"
    """Anthropic's Messages."""
    GEMINI = "gemini"
    """Gemini's `generateContent`; no client speaks it here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request for an answer.

    Args:
        model: the public model name, that is the route.
        raw: the client's body as parsed from JSON; never mutated.
        format: the format that `raw` is in.
        messages: the messages in `raw`, validated to be non-empty objects with a role.
        stream: the client wants a stream.
        include_usage: `stream_options.include_usage` was asked.
        max_tokens: `max_completion_tokens` or `max_tokens`, or None.
        n: number of choices.
        stop: stop sequences, empty if none.
        logprobs: token log probabilities were asked.
        tools: the tools offered, empty if none; in the shape of chat completions.
        response_format: the structured-output request, or None for free text; in the shape of chat
            completions.
        headers: headers of the client, names in lower case, that a target of the same format gets
            as they came.
        translations: what `providers/translate.py` made of it already, by format; and what it read.
    """

    model: str
    raw: Mapping[str, Any]
    messages: tuple[Mapping[str, Any], ...]
    format: Format = Format.OPENAI
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    response_format: Mapping[str, Any] | None = None
    headers: tuple[tuple[str, str], ...] = ()
    translations: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def prompt_chars(self) -> int:
        """Size of the question in characters of message text, for an estimate of its tokens."""
        return sum(len(str(message.get("content") or "")) for message in self.messages)
