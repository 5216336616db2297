"""Writes a canonical conversation as the body of a Messages request.

https://platform.claude.com/docs/en/api/messages/create. The body says all that the client said, in
the words of the newest models; what an older or newer model does not take is the provider's
business (`router/providers/claude_models.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from router.core.conversation import (
    Conversation,
    Document,
    Sampling,
    TextPart,
    Thinking,
    Tool,
    ToolChoice,
    Written,
)
from router.wire.anthropic.parts_out import write_messages
from router.wire.anthropic.request import MIN_THINKING_TOKENS, TOOL_NAME
from router.wire.anthropic.schema import output_schema
from router.wire.checks import quote
from router.wire.losses import Losses

DEFAULT_MAX_TOKENS: Final = 32_000
"""The answer's budget where the client gave none; Anthropic wants one. It is the least maximum of
the models since Claude 4: https://platform.claude.com/docs/en/about-claude/models/overview."""

_Json: TypeAlias = dict[str, Any]


def write_conversation(conversation: Conversation) -> Written:
    """The body of a request, and what it could not say.

    Instructions in mid-conversation move to the others at the front: only some models take them
    where they stand. A temperature above 1 is written as 1, as Anthropic's own compatible endpoint
    does: https://platform.claude.com/docs/en/api/openai-sdk.

    Args:
        conversation: what the client asks for.

    Returns:
        `max_tokens` and `messages`, and whatever else there is something to say in.
    """
    losses = Losses()
    tools = list(_tools(conversation.tools, losses))
    turns = [turn for turn in conversation.turns if turn.role != "system"]
    max_tokens = conversation.max_tokens or DEFAULT_MAX_TOKENS
    body: _Json = {
        "max_tokens": max_tokens,
        "system": _system(conversation, losses),
        "messages": write_messages(turns, losses),
        "tools": tools,
        "tool_choice": _tool_choice(conversation, {tool["name"] for tool in tools}),
        "stop_sequences": _stop(conversation.stop, losses),
        **_sampling(conversation.sampling, losses),
        "thinking": _thinking(conversation.thinking, max_tokens, losses),
        "output_config": _output_config(conversation, losses),
        "metadata": {"user_id": conversation.user} if conversation.user else None,
    }
    if conversation.n > 1:
        losses.add("n", f"Anthropic gives one answer, not {conversation.n}.")
    written = {name: value for name, value in body.items() if value not in (None, [], {}, "")}
    return Written(body=written, losses=losses.all())


def _system(conversation: Conversation, losses: Losses) -> str | list[_Json]:
    texts: list[TextPart] = list(conversation.system)
    for turn in conversation.turns:
        if turn.name:
            param = f"{turn.where}.name"
            losses.add(param, "Anthropic takes no name of who speaks.", hint=True)
        if turn.role != "system":
            continue
        message = "Instructions among the messages are moved to the front."
        losses.add(turn.where, message, hint=True)
        for part in turn.parts:
            if isinstance(part, TextPart):
                texts.append(part)
            else:
                losses.add(part.where, "Anthropic takes instructions in text alone.")
    blocks = [{"type": "text", "text": part.text} for part in texts if part.text.strip()]
    return str(blocks[0]["text"]) if len(blocks) == 1 else blocks


def _tools(tools: Iterable[Tool], losses: Losses) -> Iterable[_Json]:
    for tool in tools:
        if tool.custom:
            losses.add(tool.where, "Anthropic has no tools that take free text.")
        elif not TOOL_NAME.fullmatch(tool.name):
            losses.add(tool.where, f"Anthropic takes no tool of the name {quote(tool.name)}.")
        else:
            yield _tool(tool, losses)


def _tool(tool: Tool, losses: Losses) -> _Json:
    written: _Json = {"name": tool.name}
    if tool.description:
        written["description"] = tool.description
    schema = {"type": "object", **(tool.parameters or {"properties": {}})}
    strict = output_schema(schema) if tool.strict else None
    if strict is not None:
        return written | {"input_schema": strict, "strict": True}
    if tool.strict:
        message = "Anthropic cannot hold a model to this schema; it is sent as a description."
        losses.add(f"{tool.where}.strict", message, hint=True)
    return written | {"input_schema": _without_choices(schema, tool, losses)}


def _without_choices(schema: _Json, tool: Tool, losses: Losses) -> _Json:
    """Anthropic answers 400 to a choice at the top of a tool's schema, though not further down:
    "input_schema does not support oneOf, allOf, or anyOf at the top level"."""
    kept = {name: value for name, value in schema.items() if name not in _CHOICES}
    if len(kept) < len(schema):
        message = "Anthropic takes no choice at the top of a tool's schema; it is left out."
        losses.add(tool.where, message, hint=True)
    return kept


def _tool_choice(conversation: Conversation, names: set[str]) -> _Json | None:
    if not names:
        return None  # Anthropic takes a choice with tools only
    one_at_a_time = conversation.parallel_calls is False
    choice = _chosen(conversation.tool_choice, names)
    if one_at_a_time and choice is None:
        choice = {"type": "auto"}
    if choice and one_at_a_time and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return choice


def _chosen(choice: ToolChoice | None, names: set[str]) -> _Json | None:
    if choice is None:
        return None
    if choice.mode == "named":
        return {"type": "tool", "name": choice.name} if choice.name in names else None
    return {"type": _MODES[choice.mode]}


def _stop(stop: tuple[str, ...], losses: Losses) -> list[str]:
    blank = [entry for entry in stop if not entry.strip()]
    if blank:
        losses.add("stop", "Anthropic takes no stop sequence of white space alone.")
    return [entry for entry in stop if entry not in blank]


def _sampling(sampling: Sampling, losses: Losses) -> _Json:
    temperature = sampling.temperature
    if temperature is not None and temperature > 1:
        losses.add("temperature", "Anthropic takes a temperature up to 1; 1 is sent.", hint=True)
        temperature = 1
    for name, (message, hint) in _UNSAYABLE.items():
        if getattr(sampling, name):
            losses.add(name, message, hint=hint)
    if sampling.seed is not None:
        losses.add("seed", "Anthropic takes no seed.", hint=True)
    settings = {"temperature": temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
    return {name: value for name, value in settings.items() if value is not None}


def _thinking(thinking: Thinking | None, max_tokens: int, losses: Losses) -> _Json | None:
    """An effort turns thinking on, since other formats name it for models that reason; a number of
    tokens is a budget; neither leaves it to the model.

    Newer models hide their thoughts unless they are told to show them. Other formats show them
    unasked, and a model that thinks unseen cannot be told from one that is dead:
    https://platform.claude.com/docs/en/build-with-claude/extended-thinking.
    """
    if thinking is None:
        return None
    if thinking.on is False or thinking.effort == "none":
        return {"type": "disabled"}
    written: _Json = {"type": "adaptive"}
    if thinking.budget_tokens is not None:
        budget = fitting_budget(thinking.budget_tokens, max_tokens)
        if budget is None:
            losses.add(thinking.where, "The answer's budget has no room for thinking.", hint=True)
            return None
        written = {"type": "enabled", "budget_tokens": budget}
    written["display"] = "omitted" if thinking.shown is False else "summarized"
    return written


def fitting_budget(wanted: int, max_tokens: int) -> int | None:
    """A budget for thinking, which is a part of the answer's and has a least size.

    Args:
        wanted: tokens.
        max_tokens: the answer's.

    Returns:
        At most `wanted` where that leaves anything for the answer, else half of the answer's; None
        where that is too little.
    """
    budget = max(wanted, MIN_THINKING_TOKENS)
    budget = budget if budget < max_tokens else max_tokens // 2
    return budget if budget >= MIN_THINKING_TOKENS else None


def _output_config(conversation: Conversation, losses: Losses) -> _Json:
    effort = conversation.thinking.effort if conversation.thinking else None
    word = _EFFORTS.get(effort, effort) if effort else None
    config = {"effort": word, "format": _format(conversation.document, losses)}
    return {name: value for name, value in config.items() if value}


def _format(document: Document | None, losses: Losses) -> _Json | None:
    if document is None:
        return None
    schema = output_schema(document.schema) if document.schema is not None else None
    if schema is not None:
        return {"type": "json_schema", "schema": schema}
    what = "this schema" if document.schema is not None else "any JSON"
    message = f"Anthropic cannot hold an answer to {what}; the router checks the answer itself."
    losses.add(document.where, message, hint=True)
    return None


_CHOICES: Final = frozenset({"anyOf", "oneOf", "allOf"})
_MODES: Final[Mapping[str, str]] = {"auto": "auto", "none": "none", "required": "any"}
_EFFORTS: Final[Mapping[str, str | None]] = {"none": None, "minimal": "low"}
"""Words that Anthropic has not; its own are `low`, `medium`, `high`, `xhigh`, `max`:
https://platform.claude.com/docs/en/build-with-claude/effort."""
_UNSAYABLE: Final[Mapping[str, tuple[str, bool]]] = {
    "presence_penalty": ("Anthropic takes no penalties.", True),
    "frequency_penalty": ("Anthropic takes no penalties.", True),
    "logprobs": ("Anthropic gives no log probabilities.", False),
}
