"""Reads a Messages request as a canonical conversation, for a target that speaks another format.

https://platform.claude.com/docs/en/api/messages/create. The request was checked when it was parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from router.core.conversation import (
    Conversation,
    Document,
    Sampling,
    TextPart,
    Thinking,
    Tool,
    ToolChoice,
    Turn,
)
from router.core.request import ChatRequest
from router.wire.anthropic.parts_in import BlockReader
from router.wire.anthropic.request import BETA, is_own, json_format
from router.wire.checks import Object, quote
from router.wire.losses import CACHE_MARK, Losses, Unheld


def read_conversation(request: ChatRequest) -> Conversation:
    """What a Messages request says, in no format's words.

    Args:
        request: parsed from a body of this format.

    Returns:
        The conversation; `losses` names what has no place in it. A document of plain text is kept
        as its bytes, a search result as text.
    """
    raw, losses = request.raw, Losses()
    losses.fields(raw, _HELD, _UNHELD)
    if any(name == BETA for name, _ in request.headers):
        losses.add(BETA, "Betas are Anthropic's own.", hint=True)
    tools = tuple(_tools(raw.get("tools") or (), losses))
    choice = raw.get("tool_choice") or {}
    losses.fields(choice, _CHOICE_HELD, {}, "tool_choice")
    return Conversation(
        turns=_turns(request, losses),
        system=tuple(_system(raw, losses)),
        tools=tools,
        tool_choice=_tool_choice(choice, {tool.name for tool in tools}),
        parallel_calls=False if choice.get("disable_parallel_tool_use") else None,
        max_tokens=request.max_tokens,
        stop=request.stop,
        sampling=Sampling(
            temperature=raw.get("temperature"),
            top_p=raw.get("top_p"),
            top_k=raw.get("top_k") or None,
        ),
        thinking=_thinking(raw, losses),
        document=_document(raw, losses),
        user=_user(raw, losses),
        losses=losses.all(),
    )


def _system(raw: Object, losses: Losses) -> Iterable[TextPart]:
    system = raw.get("system") or ()
    if isinstance(system, str):
        return [TextPart(where="system", text=system)]
    reader = BlockReader(losses)
    return [reader.text(block, f"system[{i}]") for i, block in enumerate(system)]


def _turns(request: ChatRequest, losses: Losses) -> tuple[Turn, ...]:
    reader = BlockReader(losses)
    turns: list[Turn] = []
    for number, message in enumerate(request.messages):
        where = f"messages[{number}]"
        losses.fields(message, _MESSAGE_HELD, _MESSAGE_UNHELD, where)
        parts = tuple(reader.content(message, where))
        if parts:
            turns.append(Turn(where=where, role=message["role"], parts=parts))
    return tuple(turns) or (_silence(),)


def _silence() -> Turn:
    """A conversation of which nothing is left; what it was is among the losses."""
    part = TextPart(where="messages[0]", text="")
    return Turn(where="messages[0]", role="user", parts=(part,))


def _tools(tools: Iterable[Object], losses: Losses) -> Iterable[Tool]:
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        if not is_own(tool):
            message = (
                f"The tool {quote(tool['type'])} is Anthropic's own; no other provider has it."
            )
            losses.add(where, message)
            continue
        losses.fields(tool, _TOOL_HELD, _TOOL_UNHELD, where)
        yield Tool(
            where=where,
            name=tool["name"],
            description=tool.get("description") or "",
            parameters=tool["input_schema"],
            strict=tool.get("strict"),
        )


def _tool_choice(choice: Object, names: set[str]) -> ToolChoice | None:
    match choice.get("type"):
        case "auto":
            return ToolChoice(mode="auto")
        case "any":
            return ToolChoice(mode="required") if names else None
        case "tool" if choice["name"] in names:
            return ToolChoice(mode="named", name=choice["name"])
        case "none":
            return ToolChoice(mode="none")
        case _:
            return None  # one of Anthropic's own tools, which is among the losses


def _thinking(raw: Object, losses: Losses) -> Thinking | None:
    thinking = raw.get("thinking") or {}
    config = raw.get("output_config") or {}
    losses.fields(thinking, _THINKING_HELD, _THINKING_UNHELD, "thinking")
    losses.fields(config, _CONFIG_HELD, _CONFIG_UNHELD, "output_config")
    kind, effort = thinking.get("type"), config.get("effort")
    if kind == "between_tools":
        losses.add("thinking.type", "When the model is to think is left to it.", hint=True)
    on = _ON.get(kind) if isinstance(kind, str) else None
    if on is None and effort is None:
        return None
    display = thinking.get("display")
    return Thinking(
        where="output_config.effort" if on is None else "thinking",
        on=on,
        effort=effort,
        budget_tokens=thinking.get("budget_tokens") if kind == "enabled" else None,
        shown=None if display is None else display != "omitted",
    )


def _document(raw: Object, losses: Losses) -> Document | None:
    named = (raw.get("output_config") or {}).get("format") is not None
    where = "output_config.format" if named else "output_format"
    wanted = json_format(raw)
    if wanted is not None:
        losses.fields(wanted, _FORMAT_HELD, {}, where)
        return Document(where=where, schema=wanted["schema"], strict=True)
    if named or raw.get("output_format") is not None:
        losses.add(where, "Only structured output by a JSON Schema is known to other formats.")
    return None


def _user(raw: Object, losses: Losses) -> str:
    metadata = raw.get("metadata") or {}
    if any(value is not None for name, value in metadata.items() if name != "user_id"):
        losses.add("metadata", "Of the metadata only 'user_id' is passed on.", hint=True)
    return str(metadata.get("user_id") or "")


_ON: Final[Mapping[str, bool]] = {"enabled": True, "adaptive": True, "disabled": False}

_CHOICE_HELD: Final = frozenset({"type", "name", "disable_parallel_tool_use"})
_MESSAGE_HELD: Final = frozenset({"role", "content"})
_MESSAGE_UNHELD: Final[Mapping[str, Unheld]] = {
    "cache_control": CACHE_MARK,
    "clear_at": Unheld(message="How long an instruction stays cannot be told elsewhere."),
    "output_config": Unheld(message="Settings of a single turn cannot be told elsewhere."),
}
_TOOL_HELD: Final = frozenset({"type", "name", "description", "input_schema", "strict"})
_TOOL_UNHELD: Final[Mapping[str, Unheld]] = {
    "cache_control": CACHE_MARK,
    "allowed_callers": Unheld(
        message="A tool is called by the model itself, not by code that it runs.",
        hint=True,
        idle=(["direct"],),
    ),
    "defer_loading": Unheld(message="Every tool is offered at once.", hint=True, idle=(False,)),
    "eager_input_streaming": Unheld(
        message="How the input of a tool is streamed is left to the provider.", hint=True
    ),
    "input_examples": Unheld(
        message="Examples of a tool's input are left out.", hint=True, idle=([],)
    ),
}
_THINKING_HELD: Final = frozenset({"type", "budget_tokens", "display"})
_THINKING_UNHELD: Final[Mapping[str, Unheld]] = {
    "block_binding": Unheld(message="Thinking is not carried to other formats.", hint=True)
}
_CONFIG_HELD: Final = frozenset({"effort", "format"})
_CONFIG_UNHELD: Final[Mapping[str, Unheld]] = {
    "task_budget": Unheld(message="The budget of a task is advice to Anthropic alone.", hint=True)
}
_FORMAT_HELD: Final = frozenset({"type", "schema"})

_HELD: Final = frozenset(
    {
        *("model", "messages", "max_tokens", "system", "stream", "stop_sequences", "temperature"),
        *("top_p", "top_k", "tools", "tool_choice", "thinking", "output_config", "output_format"),
        *("metadata", "router"),
    }
)
"""Top-level fields that are read, or that are the router's own business."""

_UNHELD: Final[Mapping[str, Unheld]] = {
    "betas": Unheld(message="Betas are Anthropic's own.", hint=True, idle=([],)),
    "billing_policy": Unheld(message="Who is billed cannot be told to another provider."),
    "cache_control": CACHE_MARK,
    "compaction": Unheld(message="Only Anthropic summarises a conversation in its own block."),
    "container": Unheld(message="A container runs at Anthropic alone."),
    "context_management": Unheld(
        message="The conversation is sent as it is; the provider does not trim it.", hint=True
    ),
    "diagnostics": Unheld(message="Diagnostics of Anthropic's cache are left out.", hint=True),
    "fallback_credit_token": Unheld(
        message="A credit for Anthropic's cache is left out.", hint=True
    ),
    "fallbacks": Unheld(message="Falling back is the router's own business.", hint=True),
    "inference_geo": Unheld(message="Where the model runs cannot be told to another provider."),
    "mcp_servers": Unheld(message="Only Anthropic connects to MCP servers from here.", idle=([],)),
    "service_tier": Unheld(message="Tiers of service are Anthropic's own.", hint=True),
    "speed": Unheld(message="A faster mode is Anthropic's own.", hint=True),
    "thread": Unheld(message="A conversation that is kept at Anthropic is known to it alone."),
}
"""Top-level fields of the public reference, betas included, that have no place elsewhere."""
