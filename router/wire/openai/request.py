"""Reads what a client asks: the body of `POST /v1/chat/completions`, before any upstream call.

What is checked is what the router itself relies on, and what every provider would refuse in words
of its own. Everything else in the body is passed on as it came: a field of tomorrow is no error.
Messages name the field and say what would be right; codes are OpenAI's where it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from router.core.request import ChatRequest
from router.wire.checks import (
    MAX_TOKENS,
    MAX_TOOLS,
    Object,
    check_boolean,
    check_number,
    check_object,
    check_objects,
    check_string,
    integer_check,
    load_object,
    messages_of,
    model_name,
    quote,
    refuse,
    refuse_size,
    refuse_type,
    refuse_word,
    required,
)
from router.wire.jsontext import Json

MAX_STOP = 16
"""Bound on stop sequences: the most that a provider takes (OpenAI takes 4)."""
MAX_N = 128
"""Bound on choices: OpenAI's own."""

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
TOOL_CHOICES: Final = ("none", "auto", "required", "any")


def parse_chat_request(body: bytes) -> ChatRequest:
    """Read and check one request.

    Args:
        body: the request's body as it came; its size is the server's concern.

    Returns:
        The request, with the whole body in `raw`. Null counts as absent.

    Raises:
        RequestError: 400, `invalid_request_error`, with the field at fault in `param`.
    """
    raw = load_object(body)
    model = model_name(raw)
    messages = messages_of(raw, _message)
    for name, check in _CHECKS.items():
        if raw.get(name) is not None:
            check(raw[name], name)
    tools = _tools(raw)
    _tool_choice(raw, tools)
    stop = raw.get("stop")
    max_tokens = raw.get("max_completion_tokens")
    return ChatRequest(
        model=model,
        raw=raw,
        messages=messages,
        stream=bool(raw.get("stream")),
        include_usage=bool((raw.get("stream_options") or {}).get("include_usage")),
        max_tokens=raw.get("max_tokens") if max_tokens is None else max_tokens,
        n=raw.get("n") or 1,
        stop=() if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
        logprobs=bool(raw.get("logprobs")),
        tools=tools,
        response_format=_structured(raw.get("response_format")),
    )


def _message(message: Json, where: str) -> None:
    check_object(message, where)
    role = required(message, "role", where)
    check_string(role, f"{where}.role")
    if role not in ROLES:
        refuse_word(role, f"{where}.role", ROLES)
    if role == "tool":
        check_string(required(message, "tool_call_id", where), f"{where}.tool_call_id")
    elif role == "function":
        check_string(required(message, "name", where), f"{where}.name")
    content = message.get("content")
    if content is not None:
        _content(content, f"{where}.content")
    elif role not in {"assistant", "function"}:  # theirs may be a call, or its empty result
        required(message, "content", where)
    if role == "assistant" and message.get("tool_calls") is not None:
        check_objects(message["tool_calls"], f"{where}.tool_calls")


def _content(content: Json, where: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        refuse_type(content, where, "a string or an array of parts")
    for number, part in enumerate(content):
        at = f"{where}[{number}]"
        check_object(part, at)
        check_string(required(part, "type", at), f"{at}.type")
        if part["type"] == "text":
            check_string(required(part, "text", at), f"{at}.text")


def _tools(raw: Object) -> tuple[Object, ...]:
    """The tools offered; the legacy `functions` are given in the shape of tools."""
    if raw.get("tools") is not None:
        where, tools = "tools", check_objects(raw["tools"], "tools")
        named = [_tool_name(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    else:
        where, functions = "functions", check_objects(raw.get("functions") or [], "functions")
        tools = [{"type": "function", "function": function} for function in functions]
        named = [_function_name(f, f"functions[{i}]") for i, f in enumerate(functions)]
    if len(tools) > MAX_TOOLS:
        refuse_size(where, "items", MAX_TOOLS, len(tools))
    seen: set[str] = set()
    for name, param in named:
        if name in seen:
            refuse(f"'{param}' repeats the name {quote(name)}.", param, "invalid_value")
        if name:
            seen.add(name)
    return tuple(tools)


def _tool_name(tool: Object, where: str) -> tuple[str, str]:
    """A tool's name and the field that holds it; ("", …) for kinds that have none."""
    kind = required(tool, "type", where)
    check_string(kind, f"{where}.type")
    if kind not in {"function", "custom"}:
        return "", where
    inner = required(tool, kind, where)
    check_object(inner, f"{where}.{kind}")
    return _function_name(inner, f"{where}.{kind}")


def _function_name(function: Object, where: str) -> tuple[str, str]:
    name = required(function, "name", where)
    check_string(name, f"{where}.name")
    if not name:
        refuse(f"'{where}.name' is empty.", f"{where}.name", "invalid_value")
    if function.get("parameters") is not None:
        check_object(function["parameters"], f"{where}.parameters")
    return str(name), f"{where}.name"


def _tool_choice(raw: Object, tools: tuple[Object, ...]) -> None:
    for field, kinds in (("tool_choice", ("function", "custom")), ("function_call", ("",))):
        choice = raw.get(field)
        if isinstance(choice, str):
            if choice not in TOOL_CHOICES:
                refuse_word(choice, field, TOOL_CHOICES)
            if choice in {"required", "any"} and not tools:
                refuse(f"'{field}' asks for a tool, but 'tools' is empty.", field, "invalid_value")
        elif choice is not None:
            check_object(choice, field)
            kind = choice.get("type") if kinds[0] else ""
            if kind in kinds:
                _chosen(choice, field, kind, tools)


def _chosen(choice: Object, field: str, kind: str, tools: tuple[Object, ...]) -> None:
    """The tool that a choice names must be among those offered."""
    where = f"{field}.{kind}" if kind else field
    inner = required(choice, kind, field) if kind else choice
    check_object(inner, where)
    name = required(inner, "name", where)
    check_string(name, f"{where}.name")
    offered = {(tool.get(str(tool["type"])) or {}).get("name") for tool in tools}
    if name not in offered:
        message = f"'{where}.name' names {quote(name)}, which is not among the tools offered."
        refuse(message, f"{where}.name", "invalid_value")


def _structured(response_format: Object | None) -> Object | None:
    if response_format is None or response_format["type"] == "text":
        return None
    return response_format


# Checks of one value: each takes it with its field's name, and is silent if it is right.


def _stop(value: Json, where: str) -> None:
    if isinstance(value, list):
        if len(value) > MAX_STOP:
            refuse_size(where, "items", MAX_STOP, len(value))
        entries = [(item, f"{where}[{number}]") for number, item in enumerate(value)]
    elif isinstance(value, str):
        entries = [(value, where)]
    else:
        refuse_type(value, where, "a string or an array of strings")
    for entry, at in entries:
        check_string(entry, at)
        if not entry:
            refuse(f"'{at}' is empty: a stop sequence needs text.", at, "invalid_value")


def _stream_options(value: Json, where: str) -> None:
    check_object(value, where)
    if value.get("include_usage") is not None:
        check_boolean(value["include_usage"], f"{where}.include_usage")


def _response_format(value: Json, where: str) -> None:
    check_object(value, where)
    check_string(required(value, "type", where), f"{where}.type")
    if value["type"] == "json_schema":
        inner = required(value, "json_schema", where)
        check_object(inner, f"{where}.json_schema")
        if inner.get("schema") is not None:
            check_object(inner["schema"], f"{where}.json_schema.schema")


_CHECKS: Final[Mapping[str, Callable[[Json, str], None]]] = {
    "stream": check_boolean,
    "stream_options": _stream_options,
    "max_tokens": integer_check(1, MAX_TOKENS),
    "max_completion_tokens": integer_check(1, MAX_TOKENS),
    "n": integer_check(1, MAX_N),
    "stop": _stop,
    "temperature": check_number,
    "top_p": check_number,
    "presence_penalty": check_number,
    "frequency_penalty": check_number,
    "logprobs": check_boolean,
    "top_logprobs": integer_check(0, MAX_N),
    "response_format": _response_format,
}
"""Optional fields and their checks, in the order in which they are reported."""
