"""Continuations in the format of chat completions, as its many servers want them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.core.continuation import Continuation, Style
from router.core.request import ChatRequest
from router.providers.writing import Body, ContinuationWriter, as_budget, left

BUDGET_FIELDS = ("max_tokens", "max_completion_tokens")
"""Where a client's token budget may stand; the one it used is the one that is sent."""

GRAMMAR_FIELDS = (
    "guided_json",  # vLLM, older
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",  # vLLM, newer
    "json_schema",  # llama.cpp, SGLang
    "grammar",
    "regex",
    "ebnf",
)
"""Fields beside `response_format` that constrain decoding: a grammar starts at its root, wherever
the prefix may be."""

MESSAGE_FLAGS: Mapping[Style, Mapping[str, bool]] = {
    Style.PREFIX_FLAG: {"prefix": True},
    Style.PARTIAL_FLAG: {"partial": True},
}
"""What a style puts on the assistant message."""

BODY_FLAGS: Mapping[Style, Mapping[str, bool]] = {
    Style.CONTINUE_FINAL: {"continue_final_message": True, "add_generation_prompt": False},
}
"""What a style puts at top level."""


def _constrained(raw: Mapping[str, Any]) -> bool:
    return any(name in raw for name in GRAMMAR_FIELDS)


def _tail(request: ChatRequest) -> Mapping[str, Any] | None:
    """The client's own prefill: a trailing assistant message that is text and not a tool call."""
    last = request.messages[-1]
    if last.get("role") != "assistant" or last.get("tool_calls") or last.get("function_call"):
        return None
    return last


def _tail_text(request: ChatRequest) -> str:
    content = (_tail(request) or {}).get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))


def _begun(body: Body, request: ChatRequest, continuation: Continuation, style: Style) -> None:
    """Most chat templates refuse two assistant turns in a row."""
    tail = _tail(request)
    text = _tail_text(request) + continuation.prefix
    message: dict[str, Any] = {"role": "assistant"}
    if tail is not None:
        # The client's own flags were for another server.
        ours = {name for flags in MESSAGE_FLAGS.values() for name in flags}
        message = {name: value for name, value in tail.items() if name not in ours}
    message["content"] = text.rstrip() if continuation.how.rstrip_prefix else text
    before = request.messages if tail is None else request.messages[:-1]
    body["messages"] = [*before, message | dict(MESSAGE_FLAGS.get(style, {}))]
    # A client's own, for a trailing message that is no longer the last.
    for name in BODY_FLAGS[Style.CONTINUE_FINAL]:
        body.pop(name, None)
    body.update(BODY_FLAGS.get(style, {}))


def _ask(body: Body, text: str) -> None:
    body["messages"].append({"role": "user", "content": text})


def _loosen(body: Body, *, every: bool) -> None:
    for name in ("response_format", *(GRAMMAR_FIELDS if every else ())):
        body.pop(name, None)


def _spend(body: Body, tokens: int) -> None:
    for name in BUDGET_FIELDS:
        budget = as_budget(body.get(name))
        if budget is not None:
            body[name] = left(budget, tokens)


WRITER = ContinuationWriter(
    constrained=_constrained,
    tail_text=_tail_text,
    begun=_begun,
    ask=_ask,
    loosen=_loosen,
    spend=_spend,
)
"""Chat completions."""
