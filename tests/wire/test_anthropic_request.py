"""What the router takes as a Messages request, and how it refuses the rest."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.request import ChatRequest, Format
from router.errors import RequestError
from router.wire.anthropic import parse_count_request, parse_messages_request
from router.wire.anthropic.request import MAX_STOP
from router.wire.anthropic.signature import UNSIGNED_SIGNATURE_PREFIX, unsigned_signature
from router.wire.checks import MAX_MESSAGES, MAX_TOOLS, is_base64

PNG = base64.b64encode(b"\x89PNG\r\n").decode()
SIGNATURE = base64.b64encode(b"signed by its provider").decode()
USER = {"role": "user", "content": "Hi"}
MINIMAL: dict[str, Any] = {"model": "chat", "max_tokens": 5_000, "messages": [USER]}


def tool(name: str, **more: object) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}} | more


def encoded(**changes: object) -> bytes:
    return json.dumps(MINIMAL | changes).encode()


def with_blocks(*blocks: object, role: str = "user") -> dict[str, Any]:
    """Changes that put blocks into `messages[1]`, or into `messages[0]` of a user."""
    message = {"role": role, "content": list(blocks)}
    return {"messages": [message] if role == "user" else [USER, message, USER]}


def refused(body: bytes) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse_messages_request(body)
    error = caught.value
    assert (error.status, error.type) == (400, "invalid_request_error")
    assert error.message.endswith(".")
    return error


def error_of(body: bytes) -> RequestError | None:
    try:
        parse_messages_request(body)
    except RequestError as error:
        return error
    return None


def test_the_least_request() -> None:
    request = parse_messages_request(encoded())
    assert request == ChatRequest(
        model="chat",
        raw=MINIMAL,
        messages=(USER,),
        format=Format.ANTHROPIC,
        max_tokens=5_000,
    )


def test_the_full_request() -> None:
    schema = {"type": "object", "additionalProperties": False}
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    body = {
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "stream": True,
        "stop_sequences": ["a", "b"],
        "temperature": 1,
        "top_p": 0.5,
        "top_k": 40,
        "tools": [tool("f", description="d", strict=True), search],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "summarized"},
        "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": schema}},
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "a_field_of_tomorrow": {"deep": [1]},
    }
    request = parse_messages_request(encoded(**body), {"anthropic-beta": "x-1,y-2", "host": "h"})
    assert request.raw == MINIMAL | body
    assert (request.stream, request.max_tokens, request.stop) == (True, 5_000, ("a", "b"))
    function = {
        "name": "f",
        "description": "d",
        "parameters": {"type": "object"},
        "strict": True,
    }
    assert request.tools == ({"type": "function", "function": function}, search)
    assert request.response_format == {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": schema, "strict": True},
    }
    assert request.headers == (("anthropic-beta", "x-1,y-2"),)
    assert (request.n, request.logprobs) == (1, False)


def test_headers_come_as_they_were_sent() -> None:
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "b", "x-api-key": "secret"}
    request = parse_messages_request(encoded(), headers)
    assert request.headers == (("anthropic-version", "2023-06-01"), ("anthropic-beta", "b"))


OPTIONAL = (
    *("system", "stream", "stop_sequences", "temperature", "top_p", "top_k", "tools"),
    *("tool_choice", "thinking", "output_config", "output_format", "metadata", "service_tier"),
)


def test_null_counts_as_absent() -> None:
    request = parse_messages_request(encoded(**dict.fromkeys(OPTIONAL)))
    assert (request.stream, request.tools, request.stop) == (False, (), ())


def call(call_id: str = "toolu_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {}}


def result(call_id: str = "toolu_1", **more: object) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id} | more


def image(**source: object) -> dict[str, Any]:
    return {"type": "image", "source": source}


def document(**source: object) -> dict[str, Any]:
    return {"type": "document", "source": source}


TEXT = {"type": "text", "text": "Hi"}
CALLED = [USER, {"role": "assistant", "content": [call()]}]


@pytest.mark.parametrize(
    "changes",
    [
        with_blocks(TEXT, image(type="base64", media_type="image/png", data=PNG)),
        with_blocks(image(type="url", url="https://example.com/a.png")),
        with_blocks(image(type="file", file_id="file_1")),
        with_blocks(image(type="of_tomorrow")),
        with_blocks(
            document(type="base64", media_type="application/pdf", data=PNG) | {"title": "t"}
        ),
        with_blocks(document(type="text", media_type="text/plain", data="Hi")),
        with_blocks(document(type="content", content=[TEXT])),
        with_blocks(document(type="content", content="Hi")),
        with_blocks({"type": "search_result", "source": "s", "title": "t", "content": [TEXT]}),
        with_blocks({"type": "of_tomorrow"}),
        with_blocks({"type": "thinking", "thinking": "", "signature": SIGNATURE}, role="assistant"),
        with_blocks(
            {"type": "thinking", "thinking": "Hm.", "signature": unsigned_signature()},
            role="assistant",
        ),
        with_blocks({"type": "redacted_thinking", "data": "x"}, TEXT, role="assistant"),
        with_blocks(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            TEXT,
            role="assistant",
        ),
        {"messages": [*CALLED, {"role": "user", "content": [result(content="5")]}]},
        {"messages": [*CALLED, {"role": "user", "content": [result(content=[TEXT])]}]},
        {"messages": [*CALLED, {"role": "user", "content": [result(is_error=True), TEXT]}]},
        # Messages of one side are one turn.
        {"messages": [*CALLED, USER, {"role": "user", "content": [result()]}]},
        {"messages": [USER, {"role": "assistant", "content": "The answer is"}]},
        {"messages": [USER, {"role": "assistant", "content": ""}]},
        {"messages": [USER, {"role": "assistant", "content": []}]},
        {"messages": [USER, {"role": "system", "content": "Now in French."}]},
        {
            "messages": [
                USER,
                {"role": "system", "content": [TEXT]},
                {"role": "assistant", "content": "Bon."},
            ]
        },
        {"system": ""},
        {"tools": [tool("f"), tool("g", type="custom")], "tool_choice": {"type": "any"}},
        {"tools": [{"type": "of_tomorrow"}, {"type": "of_tomorrow"}]},
        {"tool_choice": {"type": "none"}},
        {"thinking": {"type": "adaptive"}},
        {"thinking": {"type": "disabled"}},
        {"output_format": {"type": "of_tomorrow"}},
    ],
)
def test_is_taken(changes: dict[str, Any]) -> None:
    assert parse_messages_request(encoded(**changes)).raw == MINIMAL | changes


def test_the_beta_form_of_structured_output() -> None:
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    request = parse_messages_request(encoded(output_format=wanted))
    assert request.response_format is not None
    assert request.response_format["json_schema"]["schema"] == {"type": "object"}


def test_a_budget_may_pass_the_answers_where_thinking_is_interleaved() -> None:
    body = encoded(thinking={"type": "enabled", "budget_tokens": 9_000})
    parse_messages_request(body, {"anthropic-beta": "interleaved-thinking-2025-05-14"})
    assert refused(body).param == "thinking.budget_tokens"


M = "messages"
M0 = "messages[0].content[0]"
M1 = "messages[1].content[0]"


def thought(signature: object) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": "Hm.", "signature": signature}
    return with_blocks(block, role="assistant")


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"model": None}, "model", "missing_required_parameter"),
    ({"max_tokens": None}, "max_tokens", "missing_required_parameter"),
    ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
    ({"max_tokens": 1.5}, "max_tokens", "invalid_type"),
    ({M: None}, M, "missing_required_parameter"),
    ({M: []}, M, "empty_array"),
    ({M: [USER] * (MAX_MESSAGES + 1)}, M, "array_above_max_length"),
    ({M: ["Hi"]}, "messages[0]", "invalid_type"),
    ({M: [{"content": "x"}]}, "messages[0].role", "missing_required_parameter"),
    ({M: [{"role": "tool", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({M: [{"role": 1, "content": "x"}]}, "messages[0].role", "invalid_type"),
    ({M: [{"role": "system", "content": "x"}, USER]}, "messages[0].role", "invalid_value"),
    (
        {M: [USER, {"role": "system", "content": "x"}, USER]},
        "messages[1].role",
        "invalid_value",
    ),
    ({M: [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    ({M: [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type"),
    ({M: [{"role": "user", "content": " "}]}, "messages[0].content", "empty_text"),
    ({M: [{"role": "user", "content": []}]}, "messages[0].content", "empty_array"),
    (
        {M: [USER, {"role": "assistant", "content": ""}, USER]},
        "messages[1].content",
        "empty_text",
    ),
    (with_blocks("x"), M0, "invalid_type"),
    (with_blocks({"text": "x"}), f"{M0}.type", "missing_required_parameter"),
    (with_blocks({"type": "text"}), f"{M0}.text", "missing_required_parameter"),
    (with_blocks({"type": "text", "text": 5}), f"{M0}.text", "invalid_type"),
    (with_blocks(TEXT, {"type": "text", "text": ""}), "messages[0].content[1].text", "empty_text"),
    (with_blocks({"type": "image"}), f"{M0}.source", "missing_required_parameter"),
    (
        with_blocks(image(type="base64", data=PNG)),
        f"{M0}.source.media_type",
        "missing_required_parameter",
    ),
    (
        with_blocks(image(type="base64", media_type="image/bmp", data=PNG)),
        f"{M0}.source.media_type",
        "invalid_value",
    ),
    *(
        (
            with_blocks(image(type="base64", media_type="image/png", data=data)),
            f"{M0}.source.data",
            "invalid_base64",
        )
        for data in ("", "???", PNG[:-1], PNG + "=", PNG + "\n", "ab-_", "é===", f"data:,{PNG}")
    ),
    (with_blocks(image(type="url", url="file:///x")), f"{M0}.source.url", "invalid_value"),
    (with_blocks(image(type="file")), f"{M0}.source.file_id", "missing_required_parameter"),
    (
        with_blocks(document(type="base64", media_type="image/png", data=PNG)),
        f"{M0}.source.media_type",
        "invalid_value",
    ),
    (
        with_blocks(document(type="text", media_type="text/plain", data=" ")),
        f"{M0}.source.data",
        "empty_text",
    ),
    (with_blocks(call()), f"{M0}.type", "invalid_value"),
    (with_blocks(result(), role="assistant"), f"{M1}.type", "invalid_value"),
    (with_blocks(result()), f"{M0}.tool_use_id", "invalid_value"),
    (with_blocks(call(), role="assistant"), M1, "missing_tool_result"),
    ({M: CALLED}, M1, "missing_tool_result"),
    (
        {M: [USER, {"role": "assistant", "content": [call(), call()]}]},
        "messages[1].content[1].id",
        "invalid_value",
    ),
    (
        {M: [*CALLED, {"role": "user", "content": [result()]}, *CALLED[1:]]},
        "messages[3].content[0].id",
        "invalid_value",
    ),
    (
        {M: [*CALLED, {"role": "user", "content": [result(), result()]}]},
        "messages[2].content[1].tool_use_id",
        "invalid_value",
    ),
    (
        {
            M: [
                *CALLED,
                {"role": "user", "content": [result()]},
                {"role": "assistant", "content": "So."},
                {"role": "user", "content": [result()]},
            ]
        },
        "messages[4].content[0].tool_use_id",
        "invalid_value",
    ),
    (with_blocks(call() | {"id": ""}, role="assistant"), f"{M1}.id", "invalid_value"),
    (
        with_blocks(call() | {"id": None}, role="assistant"),
        f"{M1}.id",
        "missing_required_parameter",
    ),
    (with_blocks(call() | {"input": "{}"}, role="assistant"), f"{M1}.input", "invalid_type"),
    *(
        (thought(signature), f"{M1}.signature", "invalid_signature")
        for signature in ("", "forged!", "seam-router", "abc", UNSIGNED_SIGNATURE_PREFIX[1:])
    ),
    (thought(None), f"{M1}.signature", "missing_required_parameter"),
    (thought(5), f"{M1}.signature", "invalid_type"),
    ({"system": 5}, "system", "invalid_type"),
    ({"system": [{"type": "text", "text": ""}]}, "system[0].text", "empty_text"),
    ({"system": [image(type="file", file_id="x")]}, "system[0].type", "invalid_value"),
    ({"stream": "yes"}, "stream", "invalid_type"),
    ({"stop_sequences": "x"}, "stop_sequences", "invalid_type"),
    ({"stop_sequences": ["x", "\n"]}, "stop_sequences[1]", "invalid_value"),
    ({"stop_sequences": ["x"] * (MAX_STOP + 1)}, "stop_sequences", "array_above_max_length"),
    ({"temperature": 1.1}, "temperature", "invalid_value"),
    ({"temperature": "1"}, "temperature", "invalid_type"),
    ({"top_p": -0.1}, "top_p", "invalid_value"),
    ({"top_k": 0.5}, "top_k", "invalid_type"),
    ({"thinking": {"type": "enable"}}, "thinking.type", "invalid_value"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "missing_required_parameter"),
    (
        {"thinking": {"type": "enabled", "budget_tokens": 1_023}},
        "thinking.budget_tokens",
        "integer_below_min_value",
    ),
    (
        {"thinking": {"type": "enabled", "budget_tokens": 5_000}},
        "thinking.budget_tokens",
        "invalid_value",
    ),
    ({"output_config": {"effort": "most"}}, "output_config.effort", "invalid_value"),
    (
        {"output_config": {"format": {"type": "json_schema"}}},
        "output_config.format.schema",
        "missing_required_parameter",
    ),
    (
        {"output_format": {"type": "json_schema", "schema": 1}},
        "output_format.schema",
        "invalid_type",
    ),
    ({"metadata": {"user_id": 5}}, "metadata.user_id", "invalid_type"),
    ({"service_tier": 5}, "service_tier", "invalid_type"),
    ({"tools": {}}, "tools", "invalid_type"),
    ({"tools": [tool(f"f{i}") for i in range(MAX_TOOLS + 1)]}, "tools", "array_above_max_length"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema", "missing_required_parameter"),
    ({"tools": [tool("f", input_schema=[])]}, "tools[0].input_schema", "invalid_type"),
    (
        {"tools": [tool("f", input_schema={"type": "array"})]},
        "tools[0].input_schema.type",
        "invalid_value",
    ),
    ({"tools": [tool("a b")]}, "tools[0].name", "invalid_value"),
    ({"tools": [tool("a"), tool("a")]}, "tools[1].name", "invalid_value"),
    ({"tool_choice": "auto"}, "tool_choice", "invalid_type"),
    ({"tool_choice": {"type": "required"}}, "tool_choice.type", "invalid_value"),
    ({"tool_choice": {"type": "any"}}, "tool_choice", "invalid_value"),
    ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name", "invalid_value"),
    (
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}},
        "tool_choice.disable_parallel_tool_use",
        "invalid_type",
    ),
]


@pytest.mark.parametrize(("changes", "param", "code"), WRONG)
def test_is_refused_by_name(changes: dict[str, Any], param: str, code: str) -> None:
    error = refused(encoded(**changes))
    assert (error.param, error.code) == (param, code)
    assert f"'{param}'" in error.message


def test_instructions_among_the_messages_are_told_where_they_belong() -> None:
    error = refused(encoded(messages=[{"role": "system", "content": "Be brief."}, USER]))
    assert "top-level 'system'" in error.message


def test_a_count_needs_no_budget_and_no_result() -> None:
    body = {"model": "chat", "messages": CALLED}
    request = parse_count_request(json.dumps(body).encode())
    assert (request.format, request.max_tokens) == (Format.ANTHROPIC, None)
    with pytest.raises(RequestError) as caught:
        parse_count_request(json.dumps(body | {"stream": True}).encode())
    assert caught.value.param == "stream"


NAMES = st.sampled_from(
    [*("type", "text", "source", "content", "id", "name", "input", "tool_use_id", "signature")]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.sampled_from([*OPTIONAL, "messages", "max_tokens", "model"]))
def test_any_value_is_taken_or_refused_by_name(value: object, field: str) -> None:
    body = encoded(**{field: value})
    before = copy.deepcopy(json.loads(body))
    with contextlib.suppress(RequestError):
        assert parse_messages_request(body).raw == before


BLOCK_KINDS = st.sampled_from(
    ["text", "image", "document", "tool_use", "tool_result", "thinking", "search_result", "x"]
)


@given(
    st.lists(st.tuples(BLOCK_KINDS, st.dictionaries(NAMES, JSON, max_size=4)), max_size=3),
    st.sampled_from(["user", "assistant", "system"]),
)
def test_any_block_is_taken_or_refused_by_name(
    blocks: list[tuple[str, dict[str, Any]]], role: str
) -> None:
    content = [fields | {"type": kind} for kind, fields in blocks]
    error = error_of(encoded(messages=[USER, {"role": role, "content": content}]))
    assert error is None or (error.param or "").startswith("messages[1]")


@given(st.binary(min_size=1, max_size=9), st.text("AZaz09+/=-_ \né", max_size=12))
def test_base64_is_what_decodes_and_nothing_else(data: bytes, text: str) -> None:
    assert is_base64(base64.b64encode(data).decode())
    try:
        decoded = base64.b64decode(text.encode(), validate=True)
    except ValueError:
        decoded = b""
    assert is_base64(text) is (bool(decoded) and len(text) % 4 == 0)
