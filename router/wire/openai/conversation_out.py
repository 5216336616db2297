"""Writes a canonical conversation as the body of a request for a chat completion.

https://platform.openai.com/docs/api-reference/chat/create, with the names that it has today; a
server that knows others has a row in the registry that renames them. The body says all that the
client said; what a model or a server does not take is the provider's business
(`router/providers/openai_models.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from router.core.conversation import Conversation, Document, Thinking, Tool, ToolChoice, Written
from router.wire.losses import Losses
from router.wire.openai.parts_out import BETWEEN, write_messages
from router.wire.openai.strict import is_strict

BUDGETS: Final = ((1_024, "low"), (8_192, "medium"))
"""Most tokens of thinking that an effort stands for, after the numbers by which Gemini's compatible
endpoint reads efforts: https://ai.google.dev/gemini-api/docs/openai. Beyond them it is `high`."""

DEFAULT_EFFORT: Final = "default"
"""Stands where reasoning is asked for, and not how much of it: no word for that is known to all
servers, so the provider makes one of it that the model knows, or none."""

_Json: TypeAlias = dict[str, Any]


def write_conversation(conversation: Conversation) -> Written:
    """The body of a request, and what it could not say.

    Texts that stand beside each other become one, with a blank line between them; those of the
    assistant, which are pieces of one answer, are put together as they are.

    Args:
        conversation: what the client asks for.

    Returns:
        `messages`, and whatever else there is something to say in.
    """
    losses, sampling = Losses(), conversation.sampling
    tools = [_tool(tool, losses) for tool in conversation.tools]
    body: _Json = {
        "messages": [*_system(conversation), *write_messages(conversation.turns, losses)],
        "max_completion_tokens": conversation.max_tokens,
        "n": conversation.n if conversation.n > 1 else None,
        "stop": list(conversation.stop) or None,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": sampling.seed,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logprobs": sampling.logprobs or None,
        "top_logprobs": sampling.top_logprobs if sampling.logprobs else None,
        "tools": tools or None,
        "tool_choice": _tool_choice(conversation.tool_choice, conversation.tools),
        # Refused where there are no tools.
        "parallel_tool_calls": conversation.parallel_calls if tools else None,
        "reasoning_effort": _effort(conversation.thinking, losses),
        "response_format": _response_format(conversation.document, losses),
        "user": conversation.user or None,
    }
    written = {name: value for name, value in body.items() if value is not None}
    return Written(body=written, losses=losses.all())


def _system(conversation: Conversation) -> Iterable[_Json]:
    text = BETWEEN.join(part.text for part in conversation.system if part.text)
    return [{"role": "system", "content": text}] if text else []


def _tool(tool: Tool, losses: Losses) -> _Json:
    inner: _Json = {"name": tool.name}
    if tool.description:
        inner["description"] = tool.description
    if tool.custom:
        return {"type": "custom", "custom": inner}
    if tool.parameters is not None:
        inner["parameters"] = dict(tool.parameters)
    if tool.strict is False or (tool.strict and is_strict(tool.parameters or {})):
        inner["strict"] = tool.strict
    elif tool.strict:
        message = "OpenAI cannot hold a model to this schema; it is sent as a description."
        losses.add(f"{tool.where}.strict", message, hint=True)
    return {"type": "function", "function": inner}


def _tool_choice(choice: ToolChoice | None, tools: tuple[Tool, ...]) -> str | _Json | None:
    if choice is None or not tools:
        return None
    if choice.mode != "named":
        return choice.mode
    custom = any(tool.custom for tool in tools if tool.name == choice.name)
    kind = "custom" if custom else "function"
    return {"type": kind, kind: {"name": choice.name}}


def _effort(thinking: Thinking | None, losses: Losses) -> str | None:
    """An effort as it is, a budget by its size, and `none` where there is to be no thinking."""
    if thinking is None:
        return None
    if thinking.shown is not None:
        message = "Whether thoughts are shown is up to the provider."
        losses.add(f"{thinking.where}.display", message, hint=True)
    if thinking.on is False:
        return "none"
    if thinking.effort is not None:
        return thinking.effort
    if thinking.budget_tokens is None:
        return DEFAULT_EFFORT if thinking.on else None
    budget = thinking.budget_tokens
    return next((word for most, word in BUDGETS if budget <= most), "high")


def _response_format(document: Document | None, losses: Losses) -> _Json | None:
    """A schema that `strict` would refuse is sent without it: the router checks the answer."""
    if document is None:
        return None
    if document.any_object:
        return {"type": "json_object"}
    if document.schema is None:
        message = "OpenAI asks for an object, not for any JSON; the router checks the answer."
        losses.add(document.where, message, hint=True)
        return None
    named: _Json = {"name": document.name or _NAME, "schema": dict(document.schema)}
    if document.strict is False or (document.strict and is_strict(document.schema)):
        named["strict"] = document.strict
    return {"type": "json_schema", "json_schema": named}


_NAME: Final = "output"
"""What a schema is called that has no name: OpenAI wants one."""
