"""Continuations in the format of Anthropic's Messages.

https://platform.claude.com/docs/en/build-with-claude/prompt-engineering/prefill-claudes-response
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from router.core.continuation import Continuation, Style
from router.core.request import ChatRequest
from router.providers.writing import Body, ContinuationWriter, as_budget, left
from router.wire.anthropic.request import MIN_THINKING_TOKENS

_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_NEEDS_THINKING = "clear_thinking"
"""How the kinds of context editing begin that are refused without thinking: 400
"`clear_thinking_20251015` strategy requires `thinking` to be enabled or adaptive"."""


def _constrained(_raw: Mapping[str, Any]) -> bool:
    return False


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A message's content as a list of blocks; text alone may stand for one."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content) if isinstance(content, Sequence) else []


def _tail(request: ChatRequest) -> list[Mapping[str, Any]] | None:
    """The blocks of the client's own prefill, or None: a trailing assistant message that calls no
    tool of the client's."""
    last = request.messages[-1]
    blocks = _blocks(last)
    if last.get("role") != "assistant" or any(block.get("type") == "tool_use" for block in blocks):
        return None
    return blocks


def _tail_text(request: ChatRequest) -> str:
    return "".join(block["text"] for block in _tail(request) or () if block.get("type") == "text")


def _begun(body: Body, request: ChatRequest, continuation: Continuation, _style: Style) -> None:
    """The last block goes on: what stands before it (a search that the provider ran, and what it
    found) stays where it is."""
    tail = _tail(request)
    blocks = list(tail or ())
    last = blocks.pop() if blocks and blocks[-1].get("type") == "text" else {"type": "text"}
    text = last.get("text", "") + continuation.prefix
    text = text.rstrip() if continuation.how.rstrip_prefix else text
    blocks.append({**last, "text": text})
    plain = len(blocks) == 1 and set(last) <= {"type", "text"}
    message = {"role": "assistant", "content": text if plain else blocks}
    before = request.messages if tail is None else request.messages[:-1]
    body["messages"] = [*before, message]


def _ask(body: Body, text: str) -> None:
    body["messages"].append({"role": "user", "content": text})


def _loosen(body: Body, *, every: bool) -> None:  # noqa: ARG001 - there is one kind of grammar
    body.pop("output_format", None)
    config = body.get("output_config")
    if isinstance(config, Mapping) and "format" in config:
        _replace(body, "output_config", {k: v for k, v in config.items() if k != "format"})


def _spend(body: Body, tokens: int) -> None:
    budget = as_budget(body.get("max_tokens"))
    if budget is not None:
        body["max_tokens"] = left(budget, tokens)
        _fit_thinking(body, budget)
    if not _thinks(body):
        forget_thinking(body)


def _fit_thinking(body: Body, before: int) -> None:
    """The budget for thinking must stay below `max_tokens`, where it was below it before: half of
    what is left, or no thinking where that is less than the least there is."""
    thinking, most = body.get("thinking"), body["max_tokens"]
    budget = as_budget(thinking.get("budget_tokens")) if isinstance(thinking, Mapping) else None
    if budget is None or not most <= budget < before:
        return
    half = most // 2
    smaller = {**body["thinking"], "budget_tokens": half}
    _replace(body, "thinking", smaller if half >= MIN_THINKING_TOKENS else {})


def _thinks(body: Body) -> bool:
    thinking = body.get("thinking")
    return isinstance(thinking, Mapping) and thinking.get("type") != "disabled"


def forget_thinking(body: Body) -> None:
    """Take out what is refused without thinking: thoughts in an assistant message at the end ("When
    thinking is disabled, an `assistant` message in the final position cannot contain `thinking`"),
    and the editing of thoughts.

    Args:
        body: of a request that asks for no thinking; changed.
    """
    last = body["messages"][-1]
    if last["role"] == "assistant" and not isinstance(last["content"], str):
        kept = [block for block in last["content"] if block.get("type") not in _THOUGHTS]
        body["messages"][-1] = {**last, "content": kept}
    management = body.get("context_management")
    edits = management.get("edits") if isinstance(management, Mapping) else None
    if isinstance(edits, list) and any(_edits_thoughts(edit) for edit in edits):
        others = [edit for edit in edits if not _edits_thoughts(edit)]
        whole = {**body["context_management"], "edits": others}
        _replace(body, "context_management", whole if others else {})


def _edits_thoughts(edit: object) -> bool:
    return isinstance(edit, Mapping) and str(edit.get("type", "")).startswith(_NEEDS_THINKING)


def _replace(body: Body, name: str, value: Mapping[str, Any]) -> None:
    """Set a field; an empty object is not sent."""
    if value:
        body[name] = value
    else:
        body.pop(name, None)


WRITER = ContinuationWriter(
    constrained=_constrained,
    tail_text=_tail_text,
    begun=_begun,
    ask=_ask,
    loosen=_loosen,
    spend=_spend,
)
"""Anthropic's Messages."""
