"""Reads chat completions' request as a canonical conversation, for a target of another format.

https://platform.openai.com/docs/api-reference/chat/create. What the parser leaves to the provider
(the parts of a message, the arguments of a call) is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from router.wire.checks import (
    MAX_TOKENS,
    Object,
    check_boolean,
    check_string,
    integer_check,
    quote,
)
from router.wire.jsontext import Json
from router.wire.losses import CACHE_MARK, Losses, Unheld
from router.wire.openai.parts_in import MessageReader

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def read_conversation(request: ChatRequest) -> Conversation:
    """What a request for a chat completion says, in no format's words.

    Args:
        request: parsed from a body of this format.

    Returns:
        The conversation; `losses` names what has no place in it. A refusal in the history is text.

    Raises:
        RequestError: data that are no base64, a call without an id or with another's, arguments
            that are no JSON object, a result without its call, a call without its result.
    """
    raw, losses = request.raw, Losses()
    for name, check in _CHECKS.items():
        if raw.get(name) is not None:
            check(raw[name], name)
    losses.fields(raw, _HELD, _UNHELD)
    reader = MessageReader(losses)
    for number, message in enumerate(request.messages):
        reader.read(message, f"messages[{number}]")
    reader.close()
    tools = tuple(_tools(request, losses))
    choice, allowed = _tool_choice(raw, losses)
    return Conversation(
        turns=tuple(reader.turns) or (_silence(),),
        system=tuple(reader.system),
        tools=tools if allowed is None else tuple(t for t in tools if t.name in allowed),
        tool_choice=choice,
        parallel_calls=raw.get("parallel_tool_calls"),
        max_tokens=request.max_tokens,
        stop=request.stop,
        n=request.n,
        sampling=_sampling(raw),
        thinking=_thinking(raw, losses),
        document=_document(request, losses),
        user=_user(raw, losses),
        losses=losses.all(),
    )


def _silence() -> Turn:
    """Instructions alone: OpenAI answers to them, others want somebody to have spoken."""
    part = TextPart(where="messages", text="")
    return Turn(where="messages", role="user", parts=(part,))


def _sampling(raw: Object) -> Sampling:
    top_k = raw.get("top_k")
    return Sampling(
        temperature=raw.get("temperature"),
        top_p=raw.get("top_p"),
        top_k=top_k if top_k is not None and top_k > 0 else None,
        seed=raw.get("seed"),
        presence_penalty=raw.get("presence_penalty"),
        frequency_penalty=raw.get("frequency_penalty"),
        logprobs=bool(raw.get("logprobs")),
        top_logprobs=raw.get("top_logprobs"),
    )


def _tools(request: ChatRequest, losses: Losses) -> Iterable[Tool]:
    field = "tools" if request.raw.get("tools") is not None else "functions"
    for number, tool in enumerate(request.tools):
        where, kind = f"{field}[{number}]", tool["type"]
        if kind not in ("function", "custom"):
            losses.add(where, f"A tool of the kind {quote(kind)} is its provider's own.")
            continue
        inner, at = tool[kind], where if field == "functions" else f"{where}.{kind}"
        losses.fields(tool, _TOOL, _MARKED, where)
        losses.fields(inner, _FUNCTION if kind == "function" else _CUSTOM, _INNER_UNHELD, at)
        yield Tool(
            where=where,
            name=inner["name"],
            description=inner.get("description") or "",
            parameters=inner.get("parameters") if kind == "function" else None,
            strict=inner.get("strict"),
            custom=kind == "custom",
        )


def _tool_choice(raw: Object, losses: Losses) -> tuple[ToolChoice | None, set[str] | None]:
    """The choice, and the names of the tools that it leaves, None for all of them."""
    field = "tool_choice" if raw.get("tool_choice") is not None else "function_call"
    choice = raw.get(field)
    if choice is None:
        return None, None
    if isinstance(choice, str):
        return _MODES.get(choice), None
    kind = choice.get("type") if field == "tool_choice" else "function_call"
    match kind:
        case "function" | "custom":
            return ToolChoice(mode="named", name=choice[kind]["name"]), None
        case "function_call":
            return ToolChoice(mode="named", name=choice["name"]), None
        case "allowed_tools":
            return _allowed(choice.get("allowed_tools"), losses)
    losses.add(field, "Such a choice of tools is not known to other formats.")
    return None, None


def _allowed(allowed: Json, losses: Losses) -> tuple[ToolChoice | None, set[str] | None]:
    """Some of the tools are offered, which is the same as to offer those alone."""
    where = "tool_choice.allowed_tools"
    if not isinstance(allowed, dict) or not isinstance(allowed.get("tools"), list):
        losses.add(where, "Such a choice of tools is not known to other formats.")
        return None, None
    names = {
        str(tool[tool["type"]].get("name"))
        for tool in allowed["tools"]
        if isinstance(tool, dict) and isinstance(tool.get(str(tool.get("type"))), dict)
    }
    mode = allowed.get("mode")
    return _MODES.get(mode if isinstance(mode, str) else "auto"), names


def _thinking(raw: Object, losses: Losses) -> Thinking | None:
    """`reasoning_effort`; and `thinking`, by which DeepSeek, Kimi and others switch it:
    https://api-docs.deepseek.com/guides/thinking_mode."""
    effort, switch = raw.get("reasoning_effort"), raw.get("thinking")
    if effort is not None and effort not in EFFORTS:
        losses.add("reasoning_effort", f"The effort {quote(effort)} is not known to other formats.")
        effort = None
    kind = switch.get("type") if isinstance(switch, dict) else None
    on = _SWITCH.get(kind) if isinstance(kind, str) else None
    if switch is not None and on is None:
        losses.add("thinking", "Such a way to switch thinking is not known to other formats.")
    if on is None and effort is None:
        return None
    return Thinking(
        where="thinking" if effort is None else "reasoning_effort", on=on, effort=effort
    )


def _document(request: ChatRequest, losses: Losses) -> Document | None:
    wanted, where = request.response_format, "response_format"
    match (wanted or {}).get("type"):
        case None:
            return None
        case "json_object":
            return Document(where=where, any_object=True)
        case "json_schema" if wanted:
            inner = wanted["json_schema"]
            losses.fields(inner, _SCHEMA, _SCHEMA_UNHELD, f"{where}.json_schema")
            return Document(
                where=where,
                schema=inner.get("schema"),
                name=str(inner.get("name") or ""),
                strict=inner.get("strict"),
            )
        case kind:
            losses.add(where, f"An answer of the form {quote(kind)} is its provider's own.")
            return None


def _user(raw: Object, losses: Losses) -> str:
    """The newer name of the field is the better one."""
    user, safety = raw.get("user"), raw.get("safety_identifier")
    if user and safety and user != safety:
        losses.add("user", "Of two names of the end user 'safety_identifier' is kept.", hint=True)
    return str(safety or user or "")


_MODES: Final[Mapping[str, ToolChoice]] = {
    "auto": ToolChoice(mode="auto"),
    "none": ToolChoice(mode="none"),
    "required": ToolChoice(mode="required"),
    "any": ToolChoice(mode="required"),
}
_SWITCH: Final[Mapping[str, bool]] = {"enabled": True, "disabled": False, "adaptive": True}
_CHECKS: Final[Mapping[str, Callable[[Json, str], None]]] = {
    "parallel_tool_calls": check_boolean,
    "reasoning_effort": check_string,
    "safety_identifier": check_string,
    "seed": integer_check(-(2**63), 2**63 - 1),
    "top_k": integer_check(-1, MAX_TOKENS),
    "user": check_string,
}
"""Fields that the parser leaves to the provider."""

_HELD: Final = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens"),
        *("n", "stop", "temperature", "top_p", "top_k", "seed", "presence_penalty"),
        *("frequency_penalty", "logprobs", "top_logprobs", "tools", "functions", "tool_choice"),
        *("function_call", "parallel_tool_calls", "reasoning_effort", "thinking"),
        *("response_format", "user", "safety_identifier", "router"),
    }
)
"""Top-level fields that are read, or that are the router's own business."""

_UNHELD: Final[Mapping[str, Unheld]] = {
    "audio": Unheld(message="How an answer sounds cannot be told elsewhere."),
    "logit_bias": Unheld(message="Tokens have no bias in other formats.", idle=({},)),
    "metadata": Unheld(message="Metadata of a stored answer are left out.", hint=True, idle=({},)),
    "modalities": Unheld(message="Other formats answer in text alone.", idle=(["text"], [])),
    "moderation": Unheld(message="Moderation by the provider is OpenAI's own."),
    "prediction": Unheld(message="A predicted answer is OpenAI's own."),
    "prompt_cache_key": CACHE_MARK,
    "prompt_cache_options": CACHE_MARK,
    "prompt_cache_retention": CACHE_MARK,
    "service_tier": Unheld(message="Tiers of service are the provider's own.", hint=True),
    "store": Unheld(message="No answer is stored elsewhere.", hint=True, idle=(False,)),
    "verbosity": Unheld(message="How much is said cannot be told elsewhere.", idle=("medium",)),
    "web_search_options": Unheld(message="Searching the web is the provider's own."),
}
"""Top-level fields of the public reference that have no place elsewhere."""

_TOOL: Final = frozenset({"type", "function", "custom"})
_MARKED: Final[Mapping[str, Unheld]] = {"cache_control": CACHE_MARK}
_FUNCTION: Final = frozenset({"name", "description", "parameters", "strict"})
_CUSTOM: Final = frozenset({"name", "description"})
_INNER_UNHELD: Final[Mapping[str, Unheld]] = {
    **_MARKED,
    "format": Unheld(
        message="A grammar of a tool's text is OpenAI's own.", idle=({"type": "text"},)
    ),
}
_SCHEMA: Final = frozenset({"name", "schema", "strict"})
_SCHEMA_UNHELD: Final[Mapping[str, Unheld]] = {
    "description": Unheld(message="What a schema is for is left out.", hint=True, idle=("",))
}
