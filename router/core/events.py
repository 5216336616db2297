"""Canonical events of one upstream stream, the place where all formats meet.

A wire reader turns a provider's bytes into these; a writer turns these into client bytes.
All are frozen. They are `msgspec.Struct`s because one is made per token: 0.1 µs each, where a
frozen dataclass takes 0.6 µs.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import msgspec

from router.core.faults import Fault
from router.core.request import Format

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]
"""The values that OpenAI's wire knows; every synonym becomes one of these."""


_FINISH_REASONS: frozenset[FinishReason] = frozenset(get_args(FinishReason))


def finish_reason(word: str) -> FinishReason:
    """A canonical reason that was stored as a word; an unknown one is `stop`.

    Args:
        word: from a record.
    """
    return next((reason for reason in _FINISH_REASONS if reason == word), "stop")


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The provider named the model that answers; sent once, before everything else.

    Args:
        model: as the provider reports it.
    """

    model: str


class Text(msgspec.Struct, frozen=True, gc=False):
    """Answer text.

    Args:
        text: never empty.
        choice: index of the choice, 0 unless the client asked for `n > 1`.
        logprobs: the chunk's `logprobs` object as it came, or None.
    """

    text: str
    choice: int = 0
    logprobs: Any = None


class Reasoning(msgspec.Struct, frozen=True, gc=False):
    """Text of the model's reasoning: forwarded, never committed, no output.

    Args:
        text: never empty.
        choice: index of the choice.
    """

    text: str
    choice: int = 0


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Text of a refusal (OpenAI's `refusal` field).

    Args:
        text: never empty.
        choice: index of the choice.
    """

    text: str
    choice: int = 0


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One increment of a tool call, in canonical shape.

    Args:
        index: position of the call in this answer, from 0, distinct per call.
        id: the call's id, on its first increment only, else "".
        name: the function's name, on its first increment only, else "".
        arguments: next piece of the arguments' JSON text, may be empty.
        choice: index of the choice.
        legacy: it came as `function_call` and must be passed on as that.
        custom: it calls a custom tool; `arguments` are free text, not JSON.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    choice: int = 0
    legacy: bool = False
    custom: bool = False


class Extra(msgspec.Struct, frozen=True, gc=False):
    """Fields unknown to the router (`annotations`, `audio`, a signature, …), passed on as they are
    to a client that speaks their format; no other could read them.

    Args:
        fields: name to value, in the shape of the format.
        choice: index of the choice.
        format: whose fields they are.
    """

    fields: dict[str, Any]
    choice: int = 0
    format: Format = Format.OPENAI


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts as the provider reports them; cumulative, so a later one replaces an earlier.

    Args:
        input_tokens: prompt tokens.
        output_tokens: completion tokens.
        raw: the counts with their details, in the shape of chat completions' `usage`, whatever
            format they came in; details that this has no name for keep their own.
    """

    input_tokens: int
    output_tokens: int
    raw: dict[str, Any]


class Finish(msgspec.Struct, frozen=True, gc=False):
    """The answer (of one choice) is whole.

    Args:
        reason: canonical reason.
        choice: index of the choice.
        raw: the provider's own word, kept for the log.
        matched: the stop sequence that ended it, where the provider tells; else "".
    """

    reason: FinishReason
    choice: int = 0
    raw: str = ""
    matched: str = ""


class Done(msgspec.Struct, frozen=True, gc=False):
    """The provider's terminal marker (`[DONE]`, `message_stop`). Alone it is no success."""


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The stream itself says, or shows, that it went wrong. Nothing follows.

    Args:
        fault: what happened.
    """

    fault: Fault


Event: TypeAlias = (
    Opened | Text | Reasoning | Refusal | ToolCall | Extra | Usage | Finish | Done | Failed
)
"""Any item of a stream."""
