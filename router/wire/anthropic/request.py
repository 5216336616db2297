"""Reads what a client asks: the body of `POST /v1/messages`, before any upstream call.

What is checked is what the router itself relies on, and what Anthropic's public API refuses
(https://platform.claude.com/docs/en/api/messages/create). Everything else in the body is passed on
as it came: a field of tomorrow is no error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from router.core.request import ChatRequest, Format
from router.wire.anthropic.blocks import check_content, check_text_blocks
from router.wire.calls import CallBook
from router.wire.checks import (
    MAX_TOKENS,
    MAX_TOOLS,
    Object,
    check_array,
    check_boolean,
    check_object,
    check_objects,
    check_string,
    check_word,
    integer_check,
    load_object,
    messages_of,
    model_name,
    number_check,
    quote,
    refuse,
    refuse_size,
    required,
)
from router.wire.jsontext import Json

MAX_STOP = 128
"""Bound on stop sequences: each is looked for at a seam."""
MIN_THINKING_TOKENS = 1_024
"""Least `budget_tokens`, by https://platform.claude.com/docs/en/build-with-claude/extended-thinking."""

TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
"""What a tool may be called."""
ROLES: Final = ("user", "assistant")
THINKING: Final = ("enabled", "disabled", "adaptive", "between_tools")
EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
TOOL_CHOICES: Final = ("auto", "any", "tool", "none")
BETA: Final = "anthropic-beta"
HEADERS: Final = ("anthropic-version", BETA)
"""Headers that a target of the same format gets as the client sent them."""

_INTERLEAVED: Final = "interleaved-thinking"
"""The beta under which a thinking budget covers a whole turn, and may pass `max_tokens`."""


def parse_messages_request(body: bytes, headers: Mapping[str, str] | None = None) -> ChatRequest:
    """Read and check one request for an answer.

    Args:
        body: the request's body as it came; its size is the server's concern.
        headers: the request's, names in lower case.

    Returns:
        The request, with the whole body in `raw`. Null counts as absent.

    Raises:
        RequestError: 400, `invalid_request_error`, with the field at fault in `param`.
    """
    raw = load_object(body)
    calls = CallBook(unique=True)
    request = _request(raw, headers or {}, calls)
    calls.close()
    required(raw, "max_tokens")
    _thinking_fits(raw, dict(request.headers).get(BETA, ""))
    return request


def parse_count_request(body: bytes, headers: Mapping[str, str] | None = None) -> ChatRequest:
    """Read and check one request to count tokens: the same without an answer's budget.

    The history may end with a call, since no answer is to follow.

    Args:
        body: the request's body as it came.
        headers: the request's, names in lower case.

    Raises:
        RequestError: 400, as for an answer; also if a stream is asked for.
    """
    raw = load_object(body)
    request = _request(raw, headers or {}, CallBook(unique=True))
    if request.stream:
        refuse("'stream' has no meaning here: a count is one object.", "stream", "invalid_value")
    return request


def _request(raw: Object, headers: Mapping[str, str], calls: CallBook) -> ChatRequest:
    model = model_name(raw)
    messages = _messages(raw, calls)
    for name, check in _CHECKS.items():
        if raw.get(name) is not None:
            check(raw[name], name)
    tools = _tools(raw)
    _tool_choice(raw, tools)
    return ChatRequest(
        model=model,
        raw=raw,
        messages=messages,
        format=Format.ANTHROPIC,
        stream=bool(raw.get("stream")),
        max_tokens=raw.get("max_tokens"),
        stop=tuple(raw.get("stop_sequences") or ()),
        tools=tuple(_chat_tool(tool) for tool in tools),
        response_format=_response_format(raw),
        headers=tuple((name, headers[name]) for name in HEADERS if headers.get(name)),
    )


def _messages(raw: Object, calls: CallBook) -> tuple[Object, ...]:
    messages = messages_of(raw, _role)
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if message["role"] == "system":
            _system_message(messages, number, where)
            continue
        calls.turn(message["role"])
        content = required(message, "content", where)
        last = number == len(messages) - 1
        if last and message["role"] == "assistant" and content in ("", []):
            continue  # the one that may be empty: the answer follows on nothing
        check_content(content, f"{where}.content", message["role"], calls)
    return messages


def _role(message: Json, where: str) -> None:
    check_object(message, where)
    role = required(message, "role", where)
    if role != "system":
        check_word(role, f"{where}.role", ROLES)


def _system_message(messages: tuple[Object, ...], number: int, where: str) -> None:
    """Instructions in mid-conversation stand behind a user's turn and before the assistant's next:
    https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages."""
    message = messages[number]
    before = messages[number - 1]["role"] if number else ""
    after = messages[number + 1]["role"] if number + 1 < len(messages) else "assistant"
    if (before, after) != ("user", "assistant"):
        refuse(
            f"'{where}.role' is 'system', which is not supported here: put the instructions into "
            "the top-level 'system'. In 'messages' they may only stand right behind a message of "
            "the user, and before one of the assistant or at the end.",
            f"{where}.role",
            "invalid_value",
        )
    if message.get("content") is not None:
        check_text_blocks(message["content"], f"{where}.content", only=False)


def _tools(raw: Object) -> list[Object]:
    offered = raw.get("tools")
    tools: list[Object] = [] if offered is None else list(check_objects(offered, "tools"))
    if len(tools) > MAX_TOOLS:
        refuse_size("tools", "items", MAX_TOOLS, len(tools))
    seen: set[str] = set()
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        name = _own_tool(tool, where) if is_own(tool) else _typed_tool(tool, where)
        if name in seen:
            param = f"{where}.name"
            refuse(f"'{param}' repeats the name {quote(name)}.", param, "invalid_value")
        if name:
            seen.add(name)
    return tools


def is_own(tool: Object) -> bool:
    """Is a tool the client's own, with a schema of its own? Others are of a kind that Anthropic
    defines (`web_search_20250305`), and mean nothing to other providers.

    Args:
        tool: as the client sent it.
    """
    return tool.get("type") in (None, "custom")


def _own_tool(tool: Object, where: str) -> str:
    name = required(tool, "name", where)
    check_string(name, f"{where}.name")
    if not TOOL_NAME.fullmatch(name):
        message = (
            f"'{where}.name' is {quote(name)}; it must be 1 to 128 letters, digits, '_' or '-'."
        )
        refuse(message, f"{where}.name", "invalid_value")
    if tool.get("description") is not None:
        check_string(tool["description"], f"{where}.description")
    schema, at = required(tool, "input_schema", where), f"{where}.input_schema"
    check_object(schema, at)
    if schema.get("type") not in (None, "object"):
        message = f"'{at}.type' must be 'object': a tool's input is one object."
        refuse(message, f"{at}.type", "invalid_value")
    return str(name)


def _typed_tool(tool: Object, where: str) -> str:
    check_string(tool["type"], f"{where}.type")
    name = tool.get("name")
    if name is not None:
        check_string(name, f"{where}.name")
    return name or ""


def _tool_choice(raw: Object, tools: list[Object]) -> None:
    choice = raw.get("tool_choice")
    if choice is None:
        return
    check_object(choice, "tool_choice")
    kind = required(choice, "type", "tool_choice")
    check_word(kind, "tool_choice.type", TOOL_CHOICES)
    if choice.get("disable_parallel_tool_use") is not None:
        check_boolean(choice["disable_parallel_tool_use"], "tool_choice.disable_parallel_tool_use")
    if kind == "any" and not tools:
        message = "'tool_choice' asks for a tool, but 'tools' is empty."
        refuse(message, "tool_choice", "invalid_value")
    if kind == "tool":
        name = required(choice, "name", "tool_choice")
        check_string(name, "tool_choice.name")
        if name not in {tool.get("name") for tool in tools}:
            message = f"'tool_choice.name' names {quote(name)}, which is not among the tools."
            refuse(message, "tool_choice.name", "invalid_value")


def _chat_tool(tool: Object) -> Object:
    """A tool in the shape of chat completions; one of Anthropic's own kinds stays as it is."""
    if not is_own(tool):
        return tool
    function = {
        "name": tool["name"],
        "description": tool.get("description"),
        "parameters": tool["input_schema"],
        "strict": tool.get("strict"),
    }
    held = {name: value for name, value in function.items() if value is not None}
    return {"type": "function", "function": held}


def _response_format(raw: Object) -> Object | None:
    """Structured output in the shape of chat completions."""
    wanted = json_format(raw)
    if wanted is None:
        return None
    named = {"name": "output", "schema": wanted["schema"], "strict": True}
    return {"type": "json_schema", "json_schema": named}


def json_format(raw: Object) -> Object | None:
    """What a body says of structured output: in `output_config.format`, or where the beta had it.

    Args:
        raw: a checked body.
    """
    wanted = (raw.get("output_config") or {}).get("format") or raw.get("output_format")
    return wanted if wanted and wanted["type"] == "json_schema" else None


def _thinking_fits(raw: Object, betas: str) -> None:
    """A budget for thinking is a part of the answer's."""
    thinking = raw.get("thinking") or {}
    if thinking.get("type") != "enabled" or _INTERLEAVED in betas:
        return
    budget = thinking["budget_tokens"]
    if budget < raw["max_tokens"]:
        return
    message = (
        f"'thinking.budget_tokens' is {quote(budget)} and must be less than 'max_tokens', which is "
        f"{quote(raw['max_tokens'])}: thinking counts towards it."
    )
    refuse(message, "thinking.budget_tokens", "invalid_value")


# Checks of one value: each takes it with its field's name, and is silent if it is right.


def _stop_sequences(value: Json, where: str) -> None:
    check_array(value, where)
    if len(value) > MAX_STOP:
        refuse_size(where, "items", MAX_STOP, len(value))
    for number, entry in enumerate(value):
        at = f"{where}[{number}]"
        check_string(entry, at)
        if not entry.strip():
            what = "blank" if entry else "empty"
            message = f"'{at}' is {what}: a stop sequence needs more than white space."
            refuse(message, at, "invalid_value")


def _thinking(value: Json, where: str) -> None:
    check_object(value, where)
    kind = required(value, "type", where)
    check_word(kind, f"{where}.type", THINKING)
    if kind == "enabled":
        budget = required(value, "budget_tokens", where)
        integer_check(MIN_THINKING_TOKENS, MAX_TOKENS)(budget, f"{where}.budget_tokens")


def _output_config(value: Json, where: str) -> None:
    check_object(value, where)
    if value.get("effort") is not None:
        check_word(value["effort"], f"{where}.effort", EFFORTS)
    if value.get("format") is not None:
        _output_format(value["format"], f"{where}.format")


def _output_format(value: Json, where: str) -> None:
    check_object(value, where)
    kind = required(value, "type", where)
    check_string(kind, f"{where}.type")
    if kind == "json_schema":
        check_object(required(value, "schema", where), f"{where}.schema")


def _metadata(value: Json, where: str) -> None:
    check_object(value, where)
    if value.get("user_id") is not None:
        check_string(value["user_id"], f"{where}.user_id")


_CHECKS: Final[Mapping[str, Callable[[Json, str], None]]] = {
    "max_tokens": integer_check(1, MAX_TOKENS),
    "system": check_text_blocks,
    "stream": check_boolean,
    "stop_sequences": _stop_sequences,
    "temperature": number_check(0, 1),
    "top_p": number_check(0, 1),
    "top_k": integer_check(0, MAX_TOKENS),
    "thinking": _thinking,
    "output_config": _output_config,
    "output_format": _output_format,
    "metadata": _metadata,
    "service_tier": check_string,
}
"""Optional fields and their checks, in the order in which they are reported."""
