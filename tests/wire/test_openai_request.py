"""What the router takes as a request, and how it refuses the rest."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import RequestError
from router.wire.checks import MAX_DEPTH, MAX_MESSAGES, MAX_TOOLS
from router.wire.openai import parse_chat_request
from router.wire.openai.request import MAX_STOP

USER = {"role": "user", "content": "Hi"}
MINIMAL: dict[str, Any] = {"model": "chat", "messages": [USER]}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def encoded(**changes: object) -> bytes:
    return json.dumps(MINIMAL | changes).encode()


def refused(body: bytes) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse_chat_request(body)
    error = caught.value
    assert (error.status, error.type) == (400, "invalid_request_error")
    assert error.message.endswith(".")
    return error


def test_the_least_request() -> None:
    request = parse_chat_request(encoded())
    assert request.model == "chat"
    assert request.messages == (USER,)
    assert (request.stream, request.include_usage, request.logprobs) == (False, False, False)
    assert (request.max_tokens, request.n, request.stop, request.tools) == (None, 1, (), ())
    assert request.response_format is None
    assert request.raw == MINIMAL


def test_the_full_request() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    body = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "max_completion_tokens": 7,
        "n": 2,
        "stop": ["a", "b"],
        "logprobs": True,
        "top_logprobs": 3,
        "temperature": 0,
        "top_p": 0.5,
        "tools": [tool("f"), tool("g")],
        "tool_choice": {"type": "function", "function": {"name": "g"}},
        "response_format": schema,
        "a_field_of_tomorrow": {"deep": [1]},
    }
    request = parse_chat_request(encoded(**body))
    assert request.stream
    assert request.include_usage
    assert request.logprobs
    assert (request.max_tokens, request.n, request.stop) == (7, 2, ("a", "b"))
    assert request.tools == (tool("f"), tool("g"))
    assert request.response_format == schema
    assert request.raw["a_field_of_tomorrow"] == {"deep": [1]}


OPTIONAL = (
    *("stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "stop"),
    *("temperature", "logprobs", "top_logprobs", "tools", "tool_choice", "response_format"),
    *("functions", "function_call"),
)


def test_null_counts_as_absent() -> None:
    request = parse_chat_request(encoded(**dict.fromkeys(OPTIONAL)))
    assert (request.stream, request.n, request.tools) == (False, 1, ())


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}]},
        {"messages": [USER, {"role": "assistant"}, {"role": "developer", "content": ""}]},
        {"messages": [USER, {"role": "tool", "tool_call_id": "a", "content": "5"}]},
        {"messages": [USER, {"role": "function", "name": "f", "content": None}]},
        {"stop": "x"},
        {"stop": []},
        {"tool_choice": "none"},
        {"tools": [tool("f")], "tool_choice": "required"},
        {"tools": [{"type": "web_search"}, {"type": "web_search"}]},
        {
            "tools": [{"type": "custom", "custom": {"name": "c"}}],
            "tool_choice": {"type": "custom", "custom": {"name": "c"}},
        },
        {"tools": [tool("f")], "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}},
        {"response_format": {"type": "text"}},
        {"stream_options": {"include_usage": False, "include_obfuscation": False}},
    ],
)
def test_is_taken(changes: dict[str, Any]) -> None:
    assert parse_chat_request(encoded(**changes)).raw == MINIMAL | changes


def test_text_is_no_structured_output() -> None:
    request = parse_chat_request(encoded(response_format={"type": "text"}))
    assert request.response_format is None


def test_legacy_functions_are_tools() -> None:
    body = encoded(functions=[{"name": "f"}], function_call={"name": "f"})
    assert parse_chat_request(body).tools == ({"type": "function", "function": {"name": "f"}},)


def test_a_cut_emoji_in_the_history_is_mended() -> None:
    body = b'{"model": "chat", "messages": [{"role": "user", "content": "a\\ud83d"}]}'
    assert parse_chat_request(body).messages[0]["content"] == "a\ufffd"
    assert parse_chat_request(b"\xef\xbb\xbf" + encoded()).model == "chat"


M = "messages"
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"model": None}, "model", "missing_required_parameter"),
    ({"model": 5}, "model", "invalid_type"),
    ({"model": ""}, "model", "invalid_value"),
    ({"model": "x" * 300}, "model", "string_above_max_length"),
    ({M: None}, M, "missing_required_parameter"),
    ({M: "Hi"}, M, "invalid_type"),
    ({M: {}}, M, "invalid_type"),
    ({M: []}, M, "empty_array"),
    ({M: [USER] * (MAX_MESSAGES + 1)}, M, "array_above_max_length"),
    ({M: [USER, "Hi"]}, "messages[1]", "invalid_type"),
    ({M: [USER, USER, {"content": "x"}]}, "messages[2].role", "missing_required_parameter"),
    ({M: [{"role": 5, "content": "x"}]}, "messages[0].role", "invalid_type"),
    ({M: [USER, USER, {"role": "bot", "content": "x"}]}, "messages[2].role", "invalid_value"),
    ({M: [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    ({M: [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type"),
    ({M: [{"role": "user", "content": {}}]}, "messages[0].content", "invalid_type"),
    ({M: [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]", "invalid_type"),
    (
        {M: [{"role": "user", "content": [{"text": "x"}]}]},
        "messages[0].content[0].type",
        "missing_required_parameter",
    ),
    (
        {M: [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
        "messages[0].content[0].text",
        "invalid_type",
    ),
    (
        {M: [{"role": "tool", "content": "x"}]},
        "messages[0].tool_call_id",
        "missing_required_parameter",
    ),
    ({M: [{"role": "function", "content": "x"}]}, "messages[0].name", "missing_required_parameter"),
    ({M: [{"role": "assistant", "tool_calls": 5}]}, "messages[0].tool_calls", "invalid_type"),
    ({"stream": "true"}, "stream", "invalid_type"),
    ({"stream": 1}, "stream", "invalid_type"),
    ({"stream_options": True}, "stream_options", "invalid_type"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "invalid_type"),
    ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
    ({"max_tokens": True}, "max_tokens", "invalid_type"),
    ({"max_tokens": 10**30}, "max_tokens", "integer_above_max_value"),
    ({"max_completion_tokens": -1}, "max_completion_tokens", "integer_below_min_value"),
    ({"max_completion_tokens": 1.5}, "max_completion_tokens", "invalid_type"),
    ({"n": 0}, "n", "integer_below_min_value"),
    ({"n": 129}, "n", "integer_above_max_value"),
    ({"n": "2"}, "n", "invalid_type"),
    ({"stop": 5}, "stop", "invalid_type"),
    ({"stop": ""}, "stop", "invalid_value"),
    ({"stop": ["a", ""]}, "stop[1]", "invalid_value"),
    ({"stop": ["a", 5]}, "stop[1]", "invalid_type"),
    ({"stop": ["a"] * (MAX_STOP + 1)}, "stop", "array_above_max_length"),
    ({"temperature": "hot"}, "temperature", "invalid_type"),
    ({"temperature": True}, "temperature", "invalid_type"),
    ({"top_p": []}, "top_p", "invalid_type"),
    ({"logprobs": 5}, "logprobs", "invalid_type"),
    ({"tools": {}}, "tools", "invalid_type"),
    ({"tools": [5]}, "tools[0]", "invalid_type"),
    ({"tools": [{}]}, "tools[0].type", "missing_required_parameter"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
    ({"tools": [tool("")]}, "tools[0].function.name", "invalid_value"),
    ({"tools": [tool("f"), tool("f")]}, "tools[1].function.name", "invalid_value"),
    ({"tools": [tool(str(i)) for i in range(MAX_TOOLS + 1)]}, "tools", "array_above_max_length"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
        "tools[0].function.parameters",
        "invalid_type",
    ),
    ({"functions": [{"name": "f"}, {"name": "f"}]}, "functions[1].name", "invalid_value"),
    ({"tool_choice": "maybe"}, "tool_choice", "invalid_value"),
    ({"tool_choice": 5}, "tool_choice", "invalid_type"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    (
        {"tools": [tool("f")], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice.function.name",
        "invalid_value",
    ),
    (
        {"tool_choice": {"type": "function"}},
        "tool_choice.function",
        "missing_required_parameter",
    ),
    (
        {"functions": [{"name": "f"}], "function_call": {"name": "g"}},
        "function_call.name",
        "invalid_value",
    ),
    ({"response_format": "json"}, "response_format", "invalid_type"),
    ({"response_format": {}}, "response_format.type", "missing_required_parameter"),
    (
        {"response_format": {"type": "json_schema"}},
        "response_format.json_schema",
        "missing_required_parameter",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}},
        "response_format.json_schema.schema",
        "invalid_type",
    ),
]


@pytest.mark.parametrize(("changes", "param", "code"), WRONG)
def test_is_refused(changes: dict[str, Any], param: str, code: str) -> None:
    error = refused(encoded(**changes))
    assert (error.param, error.code) == (param, code)
    assert f"'{param}'" in error.message


@pytest.mark.parametrize(
    ("body", "position"),
    [
        (b"", "byte 0 (line 1, column 1)"),
        (b'{"model": chat}', "byte 10 (line 1, column 11)"),
        (b'{"model": "chat",\n "messages": [}', "byte 32 (line 2, column 15)"),
        (b'{"model": "chat"', "byte 16 (line 1, column 17)"),
        (b'{"model": "\xff"}', "byte 11 (line 1, column 12)"),
        (b'{"temperature": NaN, "x": "\\ud83d"}', "byte 16 (line 1, column 17)"),
    ],
)
def test_malformed_json_names_the_place(body: bytes, position: str) -> None:
    error = refused(body)
    assert position in error.message
    assert (error.param, error.code) == (None, "invalid_json")


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"', b"5", b"true"])
def test_a_body_that_is_no_object(body: bytes) -> None:
    assert refused(body).code == "invalid_type"


@pytest.mark.parametrize("depth", [MAX_DEPTH, 100_000])
def test_nesting_is_bounded(depth: int) -> None:
    body = b'{"x":' + b"[" * depth + b"]" * depth + b"}"
    assert refused(body).code == "nested_too_deep"


def test_an_error_quotes_a_bounded_part_of_the_value() -> None:
    error = refused(encoded(messages=[{"role": "x" * 10_000, "content": ""}]))
    assert len(error.message) < 300


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*OPTIONAL, "model", "messages"]), JSON, max_size=4))
def test_nothing_but_a_refusal_is_ever_raised(changes: dict[str, Any]) -> None:
    with contextlib.suppress(RequestError):
        request = parse_chat_request(encoded(**changes))
        assert request.messages
        assert request.n >= 1
