"""A request in another format: once per request and format, by way of the canonical conversation.

No format knows of another: one side reads its body into a `Conversation`, the other writes one out.
What either cannot say is a `Loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from router.core.conversation import Conversation, Loss, Written
from router.core.request import ChatRequest, Format
from router.wire.anthropic import conversation as anthropic
from router.wire.gemini import conversation as gemini
from router.wire.openai import conversation as openai

READERS: Mapping[Format, Callable[[ChatRequest], Conversation]] = {
    Format.OPENAI: openai.read_conversation,
    Format.ANTHROPIC: anthropic.read_conversation,
}
"""Who reads a client's request; no client speaks Gemini."""

WRITERS: Mapping[Format, Callable[[Conversation], Written]] = {
    Format.OPENAI: openai.write_conversation,
    Format.ANTHROPIC: anthropic.write_conversation,
    Format.GEMINI: gemini.write_conversation,
}
"""Who writes a target's."""

MESSAGES: Mapping[Format, str] = {
    Format.OPENAI: "messages",
    Format.ANTHROPIC: "messages",
    Format.GEMINI: "contents",
}
"""Where a format's body holds what was said."""

_CONVERSATION = "conversation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """A request in a target's format.

    Args:
        request: it; its `raw` has neither model nor stream of its own where it was translated.
        losses: what the format could not be told.
    """

    request: ChatRequest
    losses: tuple[Loss, ...] = ()


def native(request: ChatRequest, format: Format) -> Native:  # noqa: A002 - the design's word
    """A client's request as a target's format says it.

    Args:
        request: the client's.
        format: the target's.

    Returns:
        The request, the same object for every target of a format. One in its own format is what
        the client sent, without what only the router put there.

    Raises:
        RequestError: it is wrong in a way that only shows when it is read as a conversation.
    """
    made = request.translations.get(format)
    if made is None:
        same = format is request.format
        made = _as_sent(request) if same else _translate(request, format)
        request.translations[format] = made
    assert isinstance(made, Native)  # noqa: S101 - nobody else writes there
    return made


def _as_sent(request: ChatRequest) -> Native:
    if request.format is not Format.ANTHROPIC:
        return Native(request=request)
    raw = anthropic.valid_ids(anthropic.drop_refused(request.raw))
    return Native(request=request if raw is request.raw else _with_body(request, raw))


def _translate(request: ChatRequest, format: Format) -> Native:  # noqa: A002
    conversation = request.translations.get(_CONVERSATION)
    if conversation is None:
        conversation = READERS[request.format](request)
        request.translations[_CONVERSATION] = conversation
    written = WRITERS[format](conversation)
    translated = replace(request, format=format, headers=(), translations={})
    return Native(
        request=_with_body(translated, written.body),
        losses=named((*conversation.losses, *written.losses), request.format),
    )


def named(losses: Iterable[Loss], format: Format) -> tuple[Loss, ...]:  # noqa: A002
    """Losses with the fields of a client's own format.

    Args:
        losses: of which a writer, or what knows a model, names fields as chat completions do.
        format: the client's.
    """
    names = _NAMES.get(format, {})
    return tuple(replace(loss, param=names.get(loss.param, loss.param)) for loss in losses)


_NAMES: Mapping[Format, Mapping[str, str]] = {
    Format.ANTHROPIC: {
        "stop": "stop_sequences",
        "user": "metadata.user_id",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
        "reasoning_effort": "thinking",
        "response_format": "output_config.format",
    },
}


def _with_body(request: ChatRequest, body: Mapping[str, Any]) -> ChatRequest:
    return replace(request, raw=body, messages=tuple(body[MESSAGES[request.format]]))
