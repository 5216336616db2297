"""Reads what a client asks: the body of `POST /v1/chat/completions`, before any upstream call.

What is checked is what the router itself relies on, and what every provider would refuse in words
of its own. Everything else in the body is passed on as it came: a field of tomorrow is no error.
Messages name the field and say what would be right; codes are OpenAI's where it has one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from router.core.request import ChatRequest
from router.errors import RequestError
from router.wire.openai.jsontext import Json, deeper_than, mend

MAX_DEPTH = 128
"""Bound on the nesting of a body: tool schemas nest a few dozen levels, a hostile body more."""
MAX_MESSAGES = 10_000
"""Bound on messages: each costs a check; no model's window holds as many."""
MAX_TOOLS = 1_024
"""Bound on tools: OpenAI takes 128, others more."""
MAX_STOP = 16
"""Bound on stop sequences: the most that a provider takes (OpenAI takes 4)."""
MAX_N = 128
"""Bound on choices: OpenAI's own."""
MAX_TOKENS = 100_000_000
"""Bound on a token budget: beyond any model, within any provider's integer."""
MAX_MODEL_CHARS = 256
"""Bound on a model's name, which is repeated in logs and errors."""
MAX_QUOTED_CHARS = 64
"""Bound on a client's own value when an error quotes it."""

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
TOOL_CHOICES: Final = ("none", "auto", "required", "any")

_Object: TypeAlias = Mapping[str, Any]
_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number with a fraction",
    type(None): "null",
}
_BYTE: Final = re.compile(r"\(byte (\d+)\)")


def parse_chat_request(body: bytes) -> ChatRequest:
    """Read and check one request.

    Args:
        body: the request's body as it came; its size is the server's concern.

    Returns:
        The request, with the whole body in `raw`. Null counts as absent.

    Raises:
        RequestError: 400, `invalid_request_error`, with the field at fault in `param`.
    """
    raw = _load(body)
    model = _model(raw)
    messages = _messages(raw)
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


def _load(body: bytes) -> dict[str, Any]:
    body = body.removeprefix(b"\xef\xbb\xbf")
    try:
        raw = msgspec.json.decode(body)
    except RecursionError:
        _refuse_depth()
    except msgspec.DecodeError as exc:
        raw = _load_surrogates(body, exc)
    if not isinstance(raw, dict):
        _refuse(f"The body must be a JSON object, not {_kind(raw)}.", None, "invalid_type")
    if deeper_than(raw, MAX_DEPTH):
        _refuse_depth()
    return raw


def _load_surrogates(body: bytes, exc: msgspec.DecodeError) -> Json:
    """A lone surrogate (a cut emoji in a chat's history) is mended; all else stays malformed."""
    try:
        if rb"\u" not in body:
            raise exc
        lenient = json.loads(body, parse_constant=_no_constant)
        text = json.dumps(lenient, ensure_ascii=False, separators=(",", ":"))
        return msgspec.json.decode(mend(text))
    except (ValueError, RecursionError):
        _refuse_json(body, str(exc))


def _refuse_json(body: bytes, what: str) -> NoReturn:
    found = _BYTE.search(what)
    position = int(found[1]) if found else len(body)
    try:
        body.decode()
    except UnicodeDecodeError as exc:
        position = exc.start
    line = body.count(b"\n", 0, position) + 1
    column = position - body.rfind(b"\n", 0, position)
    what = _BYTE.sub("", what).strip().rstrip(".")
    where = f"at byte {position} (line {line}, column {column})"
    _refuse(f"The body is not valid JSON: {what}, {where}.", None, "invalid_json")


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _model(raw: _Object) -> str:
    model = _required(raw, "model")
    _string(model, "model")
    if not model:
        _refuse("'model' is empty: name the model to use.", "model", "invalid_value")
    if len(model) > MAX_MODEL_CHARS:
        _too_long("model", "characters", MAX_MODEL_CHARS, len(model))
    return str(model)


def _messages(raw: _Object) -> tuple[_Object, ...]:
    messages = _required(raw, "messages")
    _array(messages, "messages")
    if not messages:
        _refuse("'messages' is empty: send at least one message.", "messages", "empty_array")
    if len(messages) > MAX_MESSAGES:
        _too_long("messages", "items", MAX_MESSAGES, len(messages))
    for number, message in enumerate(messages):
        _message(message, f"messages[{number}]")
    return tuple(messages)


def _message(message: Json, where: str) -> None:
    _object(message, where)
    role = _required(message, "role", where)
    _string(role, f"{where}.role")
    if role not in ROLES:
        _unsupported(role, f"{where}.role", ROLES)
    if role == "tool":
        _string(_required(message, "tool_call_id", where), f"{where}.tool_call_id")
    elif role == "function":
        _string(_required(message, "name", where), f"{where}.name")
    content = message.get("content")
    if content is not None:
        _content(content, f"{where}.content")
    elif role not in {"assistant", "function"}:  # theirs may be a call, or its empty result
        _required(message, "content", where)
    if role == "assistant" and message.get("tool_calls") is not None:
        _objects(message["tool_calls"], f"{where}.tool_calls")


def _content(content: Json, where: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        _wrong_type(content, where, "a string or an array of parts")
    for number, part in enumerate(content):
        at = f"{where}[{number}]"
        _object(part, at)
        _string(_required(part, "type", at), f"{at}.type")
        if part["type"] == "text":
            _string(_required(part, "text", at), f"{at}.text")


def _tools(raw: _Object) -> tuple[_Object, ...]:
    """The tools offered; the legacy `functions` are given in the shape of tools."""
    if raw.get("tools") is not None:
        where, tools = "tools", _objects(raw["tools"], "tools")
        named = [_tool_name(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    else:
        where, functions = "functions", _objects(raw.get("functions") or [], "functions")
        tools = [{"type": "function", "function": function} for function in functions]
        named = [_function_name(f, f"functions[{i}]") for i, f in enumerate(functions)]
    if len(tools) > MAX_TOOLS:
        _too_long(where, "items", MAX_TOOLS, len(tools))
    seen: set[str] = set()
    for name, param in named:
        if name in seen:
            _refuse(f"'{param}' repeats the name {_quote(name)}.", param, "invalid_value")
        if name:
            seen.add(name)
    return tuple(tools)


def _tool_name(tool: _Object, where: str) -> tuple[str, str]:
    """A tool's name and the field that holds it; ("", …) for kinds that have none."""
    kind = _required(tool, "type", where)
    _string(kind, f"{where}.type")
    if kind not in {"function", "custom"}:
        return "", where
    inner = _required(tool, kind, where)
    _object(inner, f"{where}.{kind}")
    return _function_name(inner, f"{where}.{kind}")


def _function_name(function: _Object, where: str) -> tuple[str, str]:
    name = _required(function, "name", where)
    _string(name, f"{where}.name")
    if not name:
        _refuse(f"'{where}.name' is empty.", f"{where}.name", "invalid_value")
    if function.get("parameters") is not None:
        _object(function["parameters"], f"{where}.parameters")
    return str(name), f"{where}.name"


def _tool_choice(raw: _Object, tools: tuple[_Object, ...]) -> None:
    for field, kinds in (("tool_choice", ("function", "custom")), ("function_call", ("",))):
        choice = raw.get(field)
        if isinstance(choice, str):
            if choice not in TOOL_CHOICES:
                _unsupported(choice, field, TOOL_CHOICES)
            if choice in {"required", "any"} and not tools:
                _refuse(f"'{field}' asks for a tool, but 'tools' is empty.", field, "invalid_value")
        elif choice is not None:
            _object(choice, field)
            kind = choice.get("type") if kinds[0] else ""
            if kind in kinds:
                _chosen(choice, field, kind, tools)


def _chosen(choice: _Object, field: str, kind: str, tools: tuple[_Object, ...]) -> None:
    """The tool that a choice names must be among those offered."""
    where = f"{field}.{kind}" if kind else field
    inner = _required(choice, kind, field) if kind else choice
    _object(inner, where)
    name = _required(inner, "name", where)
    _string(name, f"{where}.name")
    offered = {(tool.get(str(tool["type"])) or {}).get("name") for tool in tools}
    if name not in offered:
        message = f"'{where}.name' names {_quote(name)}, which is not among the tools offered."
        _refuse(message, f"{where}.name", "invalid_value")


def _structured(response_format: _Object | None) -> _Object | None:
    if response_format is None or response_format["type"] == "text":
        return None
    return response_format


# Checks of one value: each takes it with its field's name, and is silent if it is right.


def _string(value: Json, where: str) -> None:
    if not isinstance(value, str):
        _wrong_type(value, where, "a string")


def _object(value: Json, where: str) -> None:
    if not isinstance(value, dict):
        _wrong_type(value, where, "an object")


def _array(value: Json, where: str) -> None:
    if not isinstance(value, list):
        _wrong_type(value, where, "an array")


def _objects(value: Json, where: str) -> list[dict[str, Any]]:
    _array(value, where)
    for number, item in enumerate(value):
        _object(item, f"{where}[{number}]")
    return list(value)


def _boolean(value: Json, where: str) -> None:
    if not isinstance(value, bool):
        _wrong_type(value, where, "a boolean")


def _number(value: Json, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _wrong_type(value, where, "a number")


def _integer(low: int, high: int | None = None) -> Callable[[Json, str], None]:
    def check(value: Json, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            _wrong_type(value, where, "an integer")
        if value < low:
            message = f"'{where}' must be at least {low}, but is {_quote(value)}."
            _refuse(message, where, "integer_below_min_value")
        if high is not None and value > high:
            message = f"'{where}' must be at most {high}, but is {_quote(value)}."
            _refuse(message, where, "integer_above_max_value")

    return check


def _stop(value: Json, where: str) -> None:
    if isinstance(value, list):
        if len(value) > MAX_STOP:
            _too_long(where, "items", MAX_STOP, len(value))
        entries = [(item, f"{where}[{number}]") for number, item in enumerate(value)]
    elif isinstance(value, str):
        entries = [(value, where)]
    else:
        _wrong_type(value, where, "a string or an array of strings")
    for entry, at in entries:
        _string(entry, at)
        if not entry:
            _refuse(f"'{at}' is empty: a stop sequence needs text.", at, "invalid_value")


def _stream_options(value: Json, where: str) -> None:
    _object(value, where)
    if value.get("include_usage") is not None:
        _boolean(value["include_usage"], f"{where}.include_usage")


def _response_format(value: Json, where: str) -> None:
    _object(value, where)
    _string(_required(value, "type", where), f"{where}.type")
    if value["type"] == "json_schema":
        inner = _required(value, "json_schema", where)
        _object(inner, f"{where}.json_schema")
        if inner.get("schema") is not None:
            _object(inner["schema"], f"{where}.json_schema.schema")


_CHECKS: Final[Mapping[str, Callable[[Json, str], None]]] = {
    "stream": _boolean,
    "stream_options": _stream_options,
    "max_tokens": _integer(1, MAX_TOKENS),
    "max_completion_tokens": _integer(1, MAX_TOKENS),
    "n": _integer(1, MAX_N),
    "stop": _stop,
    "temperature": _number,
    "top_p": _number,
    "presence_penalty": _number,
    "frequency_penalty": _number,
    "logprobs": _boolean,
    "top_logprobs": _integer(0, MAX_N),
    "response_format": _response_format,
}
"""Optional fields and their checks, in the order in which they are reported."""


# Refusals


def _required(holder: _Object, name: str, where: str = "") -> Json:
    value = holder.get(name)
    if value is None:
        param = f"{where}.{name}" if where else name
        _refuse(f"'{param}' is required and missing.", param, "missing_required_parameter")
    return value


def _wrong_type(value: Json, param: str, wanted: str) -> NoReturn:
    _refuse(f"'{param}' must be {wanted}, not {_kind(value)}.", param, "invalid_type")


def _unsupported(value: str, param: str, allowed: tuple[str, ...]) -> NoReturn:
    names = ", ".join(f"'{name}'" for name in allowed)
    _refuse(f"'{param}' is {_quote(value)}; it must be one of {names}.", param, "invalid_value")


def _too_long(param: str, unit: str, most: int, found: int) -> NoReturn:
    code = "string_above_max_length" if unit == "characters" else "array_above_max_length"
    _refuse(f"'{param}' may have at most {most} {unit}, but has {found}.", param, code)


def _refuse_depth() -> NoReturn:
    _refuse(f"The body is nested in more than {MAX_DEPTH} levels.", None, "nested_too_deep")


def _refuse(message: str, param: str | None, code: str) -> NoReturn:
    raise RequestError(message, param=param, code=code)


def _kind(value: Json) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def _quote(value: Json) -> str:
    text = value if isinstance(value, str) else f"{value:.6g}"
    return f"'{text[:MAX_QUOTED_CHARS]}…'" if len(text) > MAX_QUOTED_CHARS else f"'{text}'"
