"""The order `call`: a tool that is offered is called, with arguments that its schema takes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from formats_kit import ANTHROPIC, FORMATS, GEMINI, OPENAI, Format, deltas, named_events, parts
from simulate_kit import Reply

from router.simulate import Ended, Script, SimulatedProvider, parse_directives
from router.simulate.calls import Offer, make_call

TEXT = "I pay now."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 20},
        "unit": {"type": "string", "enum": ["euro", "yen"]},
        "note": {"type": "string"},
    },
    "required": ["amount", "unit"],
}
ARGUMENTS = {"amount": 20, "unit": "euro"}
OTHER = {"type": "object", "properties": {"where": {"type": "string"}}}

every_format = pytest.mark.parametrize("form", FORMATS, ids=str)


def offered(form: Format) -> dict[str, Any]:
    """The fields of a request that offers two tools."""
    pairs = [("pay", SCHEMA), ("look", OTHER)]
    if form is OPENAI:
        return {
            "tools": [
                {"type": "function", "function": {"name": name, "parameters": schema}}
                for name, schema in pairs
            ]
        }
    if form is ANTHROPIC:
        built_in = {"type": "web_search_20250305", "name": "web_search"}
        return {"tools": [built_in, *({"name": n, "input_schema": s} for n, s in pairs)]}
    return {"tools": [{"functionDeclarations": [{"name": n, "parameters": s} for n, s in pairs]}]}


def called(form: Format, reply: Reply) -> list[tuple[str, Any]]:
    """Name and arguments of the one call in a stream, if there is any."""
    if form is OPENAI:
        pieces = [one for c in reply.choices for one in c["delta"].get("tool_calls", ())]
        names = [one["function"]["name"] for one in pieces if one["function"].get("name")]
        arguments = "".join(one["function"]["arguments"] for one in pieces)
    elif form is ANTHROPIC:
        starts = [data for name, data in named_events(reply) if name == "content_block_start"]
        blocks = [data["content_block"] for data in starts]
        names = [block["name"] for block in blocks if block["type"] == "tool_use"]
        arguments = "".join(one["partial_json"] for one in deltas(reply, "input_json_delta"))
    else:
        found = [part["functionCall"] for part in parts(reply) if "functionCall" in part]
        return [(call["name"], call["args"]) for call in found]
    return [(name, json.loads(arguments)) for name in names]


@every_format
@pytest.mark.parametrize(
    ("order", "calls"),
    [
        ("call", [("pay", ARGUMENTS)]),
        ("call=look", [("look", {})]),
        ("call=absent", []),
        ("", []),
    ],
)
async def test_a_tool_is_called_after_the_text(
    form: Format, order: str, calls: list[tuple[str, Any]]
) -> None:
    async with SimulatedProvider(script=Script(text=TEXT), faults=order) as provider:
        reply = await form.ask(provider, **offered(form))
        assert reply.status == 200, reply.body
        assert "".join(form.pieces(reply)) == TEXT
        assert called(form, reply) == calls
        assert called(form, await form.ask(provider)) == []  # nothing is offered
        again = await form.ask(provider, **offered(form))
        assert called(form, again) == calls


@every_format
async def test_a_stream_is_cut_behind_the_call(form: Format) -> None:
    async with SimulatedProvider(script=Script(text=TEXT), faults="call;no_finish") as provider:
        reply = await form.ask(provider, **offered(form))
        assert called(form, reply) == [("pay", ARGUMENTS)]
        assert form.finish(reply) is None


@every_format
async def test_the_models_name_may_order_it(form: Format) -> None:
    async with SimulatedProvider(script=Script(text=TEXT)) as provider:
        reply = await form.ask(provider, model="sim!call", **offered(form))
        assert called(form, reply) == [("pay", ARGUMENTS)]
        assert (await provider.wait_ended()).ended is Ended.COMPLETED


RESULTS: dict[str, dict[str, Any]] = {
    "openai": {
        "messages": [
            OPENAI.body["messages"][0],
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "A hill."},
        ]
    },
    "anthropic": {
        "messages": [
            ANTHROPIC.body["messages"][0],
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "1", "content": "A hill."}],
            },
        ]
    },
    "gemini": {
        "contents": [
            GEMINI.body["contents"][0],
            {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "look", "response": {"a": 1}}}],
            },
        ]
    },
}


@every_format
async def test_results_are_answered_in_words(form: Format) -> None:
    """So that an agent comes to an end."""
    async with SimulatedProvider(script=Script(text=TEXT), faults="call") as provider:
        reply = await form.ask(provider, **offered(form), **RESULTS[str(form)])
        assert reply.status == 200, reply.body
        assert "".join(form.pieces(reply)) == TEXT
        assert called(form, reply) == []


@pytest.mark.parametrize(
    "schema",
    [
        {},
        SCHEMA,
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
        {"properties": {"a": {"const": [1, {}]}}, "required": ["a"], "type": "object"},
        {
            "type": "object",
            "properties": {
                "few": {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 2},
                "maybe": {"type": ["null", "boolean"]},
                "either": {"anyOf": [{"type": "string", "minLength": 9}, {"type": "null"}]},
                "all": {"allOf": [{"type": "number", "exclusiveMaximum": -3}]},
                "short": {"type": "string", "maxLength": 2},
                "above": {"type": "integer", "exclusiveMinimum": 7},
                "deep": {"type": "object", "properties": {"x": {"enum": [3]}}, "required": ["x"]},
            },
            "required": ["few", "maybe", "either", "all", "short", "above", "deep"],
            "$defs": {"n": {"type": "integer", "maximum": 0}},
        },
    ],
)
def test_the_arguments_are_what_the_schema_takes(schema: dict[str, Any]) -> None:
    (call,) = make_call([Offer(name="f", schema=schema)], "", "1")
    arguments = json.loads(call.arguments)
    assert isinstance(arguments, dict)
    jsonschema_rs.validator_for(schema).validate(arguments)
    assert set(arguments) == set(schema.get("required", ()))


def test_types_in_capitals_are_geminis() -> None:
    schema = {"type": "OBJECT", "properties": {"n": {"type": "NUMBER"}}, "required": ["n"]}
    (call,) = make_call([Offer(name="f", schema=schema)], "", "1")
    assert json.loads(call.arguments) == {"n": 1}


def test_a_schema_without_end_and_one_that_wants_much_are_bounded() -> None:
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    huge = {
        "type": "object",
        "properties": {"s": {"type": "string", "minLength": 10**9}},
        "required": ["s"],
    }
    for schema in (loop, huge):
        (call,) = make_call([Offer(name="f", schema=schema)], "", "1")
        assert len(call.arguments) < 2_000


def test_the_order_in_the_mini_language() -> None:
    assert parse_directives("").call is None
    assert parse_directives("call;cut@3").call == ""
    assert parse_directives("cut@3;call=pay").call == "pay"
