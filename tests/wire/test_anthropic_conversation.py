"""A Messages request to and from the canonical conversation, and on to the same format."""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import replace
from typing import Any, Literal, cast

import pytest
from anthropic.types import message_create_params
from anthropic.types.beta import message_create_params as beta_params
from hypothesis import given
from hypothesis import strategies as st
from support.conversations import ARGUMENTS, NAMES, TEXTS, THOUGHTS, alike, conversations

from router.core.conversation import (
    NOTHING_SAID,
    CallPart,
    Conversation,
    Document,
    Loss,
    MediaPart,
    Part,
    ResultPart,
    Sampling,
    TextPart,
    Thinking,
    Tool,
    ToolChoice,
    Turn,
)
from router.wire.anthropic import parse_messages_request
from router.wire.anthropic.conversation import (
    DEFAULT_MAX_TOKENS,
    drop_refused,
    read_conversation,
    valid_ids,
    write_conversation,
)
from router.wire.anthropic.schema import output_schema
from router.wire.anthropic.signature import unsigned_signature

Role = Literal["system", "user", "assistant"]
PNG = base64.b64encode(b"png").decode()
USER = {"role": "user", "content": "Hi"}
MINIMAL: dict[str, Any] = {"model": "m", "max_tokens": 9_000, "messages": [USER]}


def read(**changes: object) -> Conversation:
    """What a request says; reading changes nothing in it."""
    body = MINIMAL | changes
    request = parse_messages_request(json.dumps(body).encode())
    conversation = read_conversation(request)
    assert request.raw == json.loads(json.dumps(body))
    return conversation


def read_blocks(*blocks: object, role: str = "user") -> tuple[tuple[Part, ...], tuple[Loss, ...]]:
    messages = [{"role": role, "content": list(blocks)}]
    conversation = read(messages=messages if role == "user" else [USER, *messages, USER])
    number = 0 if role == "user" else 1
    return conversation.turns[number].parts, conversation.losses


def written_again(conversation: Conversation) -> Conversation:
    return read(**write_conversation(conversation).body)


def turn(role: Role, *parts: Part, where: str = "messages[0]") -> Turn:
    return Turn(where=where, role=role, parts=parts)


def text(said: str) -> TextPart:
    return TextPart(where="w", text=said)


def user(*parts: Part) -> Turn:
    return turn("user", *(parts or (text("Hi"),)))


def said_by(part: ResultPart) -> str:
    return "".join(each.text for each in part.parts if isinstance(each, TextPart))


def params(losses: tuple[Loss, ...], *, hint: bool) -> list[str]:
    return [loss.param for loss in losses if loss.hint is hint]


# -- Both ways -------------------------------------------------------------------------------------


@given(conversations(), THOUGHTS)
def test_what_was_written_is_read_again(
    conversation: Conversation, thinking: Thinking | None
) -> None:
    budget = 3_000 if thinking is not None else conversation.max_tokens
    asked = replace(conversation, thinking=thinking, max_tokens=budget)
    before = copy.deepcopy(asked)
    written = write_conversation(asked)
    assert asked == before
    assert not written.losses
    again = read(**written.body)
    assert not again.losses
    assert alike(again) == alike(asked)


@given(st.lists(st.lists(st.text(max_size=6), min_size=1, max_size=3), min_size=1, max_size=4))
def test_ids_of_any_kind_become_valid_and_stay_with_their_results(rounds: list[list[str]]) -> None:
    turns = [user()]
    for number, ids in enumerate(rounds):
        distinct = [f"{call_id}{at}" for at, call_id in enumerate(ids)]
        calls = [
            CallPart(where="c", id=i, name=f"f{number}", arguments=json.dumps({"id": i}))
            for i in distinct
        ]
        results = [
            ResultPart(where="r", call_id=i, name=f"f{number}", parts=(text(f"of {i}"),))
            for i in reversed(distinct)
        ]
        turns += [turn("assistant", *calls), turn("user", *results)]
    again = written_again(Conversation(turns=tuple(turns)))
    made = {
        part.id: json.loads(part.arguments)["id"]
        for each in again.turns
        for part in each.parts
        if isinstance(part, CallPart)
    }
    assert len(made) == sum(map(len, rounds))
    for each in again.turns:
        for part in each.parts:
            if isinstance(part, ResultPart):
                assert said_by(part) == f"of {made[part.call_id]}"


# -- Reading ---------------------------------------------------------------------------------------


def test_everything_has_its_path() -> None:
    conversation = read(
        system=[{"type": "text", "text": "Be brief."}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Look."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "So."},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1, "é"]}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "is_error": True,
                        "content": [{"type": "text", "text": "No."}],
                    },
                    {"type": "text", "text": "Again."},
                ],
            },
            {"role": "system", "content": "In French."},
            {"role": "assistant", "content": "Bon"},
        ],
        tools=[{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        tool_choice={"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        thinking={"type": "adaptive", "display": "omitted"},
        output_config={"effort": "low"},
        metadata={"user_id": "u"},
        stop_sequences=["x"],
        temperature=0.5,
        top_k=4,
    )
    at = "messages[1].content[1]"
    assert conversation == Conversation(
        turns=(
            turn("user", TextPart(where="messages[0].content[0]", text="Look.")),
            turn(
                "assistant",
                TextPart(where="messages[1].content[0]", text="So."),
                CallPart(where=at, id="t1", name="f", arguments='{"a":[1,"é"]}'),
                where="messages[1]",
            ),
            turn(
                "user",
                ResultPart(
                    where="messages[2].content[0]",
                    call_id="t1",
                    name="f",
                    parts=(TextPart(where="messages[2].content[0].content[0]", text="No."),),
                    error=True,
                ),
                TextPart(where="messages[2].content[1]", text="Again."),
                where="messages[2]",
            ),
            turn(
                "system",
                TextPart(where="messages[3].content", text="In French."),
                where="messages[3]",
            ),
            turn(
                "assistant", TextPart(where="messages[4].content", text="Bon"), where="messages[4]"
            ),
        ),
        system=(TextPart(where="system[0]", text="Be brief."),),
        tools=(Tool(where="tools[0]", name="f", description="d", parameters={"type": "object"}),),
        tool_choice=ToolChoice(mode="named", name="f"),
        parallel_calls=False,
        max_tokens=9_000,
        stop=("x",),
        sampling=Sampling(temperature=0.5, top_k=4),
        thinking=Thinking(where="thinking", on=True, effort="low", shown=False),
        user="u",
    )


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            {"type": "image", "source": {"type": "url", "url": "https://e.com/a.png"}},
            [MediaPart(where="", kind="image", url="https://e.com/a.png")],
        ),
        (
            {
                "type": "document",
                "title": "T",
                "context": "C",
                "source": {"type": "text", "media_type": "text/plain", "data": "é"},
            },
            [
                TextPart(where="", text="C"),
                MediaPart(
                    where="", kind="document", media_type="text/plain", data="w6k=", name="T"
                ),
            ],
        ),
        (
            {
                "type": "document",
                "title": "T",
                "source": {
                    "type": "content",
                    "content": [
                        {"type": "text", "text": "C"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                        },
                    ],
                },
            },
            [
                TextPart(where="", text="T"),
                TextPart(where="", text="C"),
                MediaPart(where="", kind="image", media_type="image/png", data=PNG),
            ],
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "https://e.com/a.pdf"}},
            [
                MediaPart(
                    where="",
                    kind="document",
                    media_type="application/pdf",
                    url="https://e.com/a.pdf",
                )
            ],
        ),
        (
            {
                "type": "search_result",
                "source": "S",
                "title": "T",
                "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
            },
            [TextPart(where="", text="T\nS\n\nA\n\nB")],
        ),
    ],
)
def test_a_block_is_read(block: dict[str, Any], expected: list[Part]) -> None:
    parts, losses = read_blocks(block)
    assert [replace(part, where="") for part in parts] == expected
    assert not losses


MARK = {"cache_control": {"type": "ephemeral"}}
TEXT = {"type": "text", "text": "Hi"}


@pytest.mark.parametrize(
    ("block", "role", "hints", "demands"),
    [
        (TEXT | MARK, "user", ["cache_control"], []),
        (TEXT | {"citations": []}, "assistant", [], []),
        (TEXT | {"citations": [{}]}, "assistant", ["citations"], []),
        (TEXT | {"of_tomorrow": 1}, "user", [], ["of_tomorrow"]),
        (
            {"type": "thinking", "thinking": "", "signature": unsigned_signature()},
            "assistant",
            [""],
            [],
        ),
        ({"type": "redacted_thinking", "data": "x"}, "assistant", [""], []),
        ({"type": "of_tomorrow"}, "assistant", [], [""]),
        (
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            "assistant",
            [],
            [""],
        ),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "user", [], ["source"]),
        ({"type": "document", "source": {"type": "tape"}}, "user", [], ["source"]),
        (
            {
                "type": "document",
                "source": {"type": "url", "url": "https://e.com"},
                "citations": {"enabled": True},
            },
            "user",
            [],
            ["citations"],
        ),
    ],
)
def test_what_has_no_place_is_a_loss(
    block: dict[str, Any], role: str, hints: list[str], demands: list[str]
) -> None:
    _, losses = read_blocks(TEXT, block, role=role)
    where = f"messages[{0 if role == 'user' else 1}].content[1]"
    named = [f"{where}.{name}" if name else where for name in hints]
    assert params(losses, hint=True) == named
    named = [f"{where}.{name}" if name else where for name in demands]
    assert params(losses, hint=False) == named


def test_the_same_loss_in_every_message_is_one() -> None:
    said = [{"role": "user", "content": [TEXT | MARK]}, {"role": "assistant", "content": "So."}]
    losses = read(messages=said * 50 + [USER]).losses
    assert params(losses, hint=True) == ["messages[0].content[0].cache_control"]


HELD: dict[str, Any] = {
    "model": "m",
    "messages": [USER],
    "max_tokens": 9_000,
    "system": "s",
    "stream": True,
    "stop_sequences": ["x"],
    "temperature": 1,
    "top_p": 1,
    "top_k": 5,
    "tools": [],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "low"},
    "output_format": {"type": "json_schema", "schema": {}},
    "metadata": {"user_id": "u"},
}
HINTS: dict[str, Any] = {
    "cache_control": {"type": "ephemeral"},
    "context_management": {"edits": []},
    "diagnostics": {"previous_message_id": None},
    "fallback_credit_token": "t",
    "fallbacks": "default",
    "service_tier": "auto",
    "speed": "fast",
}
DEMANDS: dict[str, Any] = {
    "billing_policy": {"type": "billing_policy", "bill_to": "user_profile"},
    "compaction": {},
    "container": "c",
    "inference_geo": "us",
    "mcp_servers": [{"type": "url", "url": "https://e.com", "name": "m"}],
    "thread": {"type": "create"},
    "a_field_of_tomorrow": 1,
}


@pytest.mark.parametrize(
    ("field", "value", "hints", "demands"),
    [
        *((name, value, [], []) for name, value in HELD.items()),
        *((name, value, [name], []) for name, value in HINTS.items()),
        *((name, value, [], [name]) for name, value in DEMANDS.items()),
        ("betas", ["b"], ["betas"], []),
        ("mcp_servers", [], [], []),
        ("router", {}, [], []),
        ("metadata", {"user_id": "u", "more": 1}, ["metadata"], []),
        ("thinking", {"type": "between_tools"}, ["thinking.type"], []),
        ("output_config", {"task_budget": {}}, ["output_config.task_budget"], []),
        ("output_config", {"format": {"type": "x"}}, [], ["output_config.format"]),
        ("output_format", {"type": "x"}, [], ["output_format"]),
        ("tools", [{"type": "web_search_20250305", "name": "web_search"}], [], ["tools[0]"]),
        (
            "tools",
            [
                {
                    "name": "f",
                    "input_schema": {},
                    "defer_loading": True,
                    "allowed_callers": ["direct"],
                }
            ],
            ["tools[0].defer_loading"],
            [],
        ),
    ],
)
def test_a_field_is_held_or_lost_by_name(
    field: str, value: object, hints: list[str], demands: list[str]
) -> None:
    """The fields of https://platform.claude.com/docs/en/api/beta/messages/create."""
    losses = read(**{field: value}).losses
    assert params(losses, hint=True) == hints
    assert params(losses, hint=False) == demands


def test_no_field_of_the_reference_is_missing_here() -> None:
    """The SDK is written from the reference; some of its parameters are headers on the wire."""
    stable = set(message_create_params.MessageCreateParamsBase.__annotations__)
    beta = set(beta_params.MessageCreateParamsBase.__annotations__)
    headers = {"betas", "user_profile_id", "workspace_id"}
    assert (stable | beta) - headers <= HELD.keys() | HINTS.keys() | DEMANDS.keys()


def test_betas_are_a_loss() -> None:
    said = {"anthropic-beta": "context-1m", "anthropic-version": "2023-06-01"}
    request = parse_messages_request(json.dumps(MINIMAL).encode(), said)
    assert params(read_conversation(request).losses, hint=True) == ["anthropic-beta"]


def test_where_nothing_is_left_a_turn_stays() -> None:
    conversation = read(messages=[{"role": "user", "content": [{"type": "of_tomorrow"}]}])
    assert [part.text for part in conversation.turns[0].parts if isinstance(part, TextPart)] == [""]
    assert write_conversation(conversation).body["messages"][0]["content"] == NOTHING_SAID


# -- Writing ---------------------------------------------------------------------------------------


def body_of(conversation: Conversation) -> dict[str, Any]:
    return write_conversation(conversation).body


def test_the_least_body() -> None:
    assert body_of(Conversation(turns=(user(),))) == {
        "max_tokens": DEFAULT_MAX_TOKENS,
        "messages": [USER],
    }


def test_turns_alternate_and_results_come_first() -> None:
    call = CallPart(where="c", id="t1", name="f", arguments="{}")
    result = ResultPart(where="r", call_id="t1", name="f", parts=())
    conversation = Conversation(
        turns=(
            user(text("a"), text(" ")),
            user(text("b")),
            turn("assistant", text("")),
            turn("assistant", call),
            user(text("c")),
            turn("system", text("s"), where="messages[5]"),
            user(result, text("d")),
            turn("assistant", text("So \n")),
        ),
        system=(text("first"),),
    )
    written = write_conversation(conversation)
    assert written.body["system"] == [
        {"type": "text", "text": "first"},
        {"type": "text", "text": "s"},
    ]
    assert written.body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1"},
                {"type": "text", "text": "c"},
                {"type": "text", "text": "d"},
            ],
        },
        {"role": "assistant", "content": "So"},
    ]
    assert params(written.losses, hint=True) == ["messages[5]"]


def test_the_user_speaks_first() -> None:
    call = CallPart(where="c", id="t1", name="f", arguments="{}")
    result = ResultPart(where="r", call_id="t1", name="f", parts=())
    for said, then in ((call, result), (text("Hello."), text("Hi."))):
        written = write_conversation(Conversation(turns=(turn("assistant", said), user(then))))
        first, *others = written.body["messages"]
        assert first == {"role": "user", "content": NOTHING_SAID}
        assert [message["role"] for message in others] == ["assistant", "user"]
        assert params(written.losses, hint=True) == ["messages"]


def lost(*, hint: bool, **fields: object) -> list[str]:
    conversation = Conversation(turns=(user(),))
    return params(
        write_conversation(replace(conversation, **cast("Any", fields))).losses, hint=hint
    )


def test_what_the_format_cannot_say_is_a_loss() -> None:
    custom = Tool(where="tools[0]", name="f", custom=True)
    dotted = Tool(where="tools[1]", name="a.b")
    assert lost(hint=False, n=2) == ["n"]
    assert lost(hint=False, sampling=Sampling(logprobs=True)) == ["logprobs"]
    assert lost(hint=True, sampling=Sampling(presence_penalty=1)) == ["presence_penalty"]
    assert lost(hint=True, sampling=Sampling(frequency_penalty=1)) == ["frequency_penalty"]
    assert lost(hint=True, sampling=Sampling(frequency_penalty=0)) == []
    assert lost(hint=False, tools=(custom, dotted)) == ["tools[0]", "tools[1]"]
    assert lost(hint=False, stop=("x", "\n")) == ["stop"]
    assert lost(hint=True, sampling=Sampling(seed=0)) == ["seed"]
    assert lost(hint=True, sampling=Sampling(temperature=1.5)) == ["temperature"]
    assert lost(hint=True, turns=(replace(user(), name="ann"),)) == ["messages[0].name"]
    system = replace(turn("system", text("s"), where="messages[1]"), name="ann")
    named = lost(hint=True, turns=(user(), system))
    assert named == ["messages[1].name", "messages[1]"]


@pytest.mark.parametrize(
    ("part", "role", "hint"),
    [
        (MediaPart(where="p", kind="audio", media_type="audio/wav", data=PNG), "user", False),
        (MediaPart(where="p", kind="image", media_type="image/bmp", data=PNG), "user", False),
        (
            MediaPart(where="p", kind="document", media_type="text/plain", data="/w=="),
            "user",
            False,
        ),
        (
            MediaPart(where="p", kind="document", media_type="application/zip", data=PNG),
            "user",
            False,
        ),
        (MediaPart(where="p", kind="image", url="https://e.com"), "assistant", False),
        (MediaPart(where="p", kind="image", url="https://e.com", detail="high"), "user", True),
        (CallPart(where="p", id="c", name="f", arguments="x", custom=True), "assistant", True),
    ],
)
def test_a_part_that_cannot_be_said_is_a_loss(part: Part, role: Role, hint: bool) -> None:
    conversation = Conversation(turns=(user(), turn(role, part)))
    assert params(write_conversation(conversation).losses, hint=hint) == ["p"]


def test_a_document_of_text_is_one() -> None:
    part = MediaPart(where="p", kind="document", media_type="text/csv", data="w6k=", name="a.csv")
    body = body_of(Conversation(turns=(user(part),)))
    assert body["messages"][0]["content"] == [
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "é"},
            "title": "a.csv",
        }
    ]


SHOWN = {"display": "summarized"}


@pytest.mark.parametrize(
    ("thinking", "config", "effort"),
    [
        (Thinking(where="t", effort="none"), {"type": "disabled"}, None),
        (Thinking(where="t", on=False), {"type": "disabled"}, None),
        (Thinking(where="t", effort="minimal"), {"type": "adaptive", **SHOWN}, "low"),
        (Thinking(where="t", effort="high"), {"type": "adaptive", **SHOWN}, "high"),
        (
            Thinking(where="t", budget_tokens=2_000, shown=True),
            {"type": "enabled", "budget_tokens": 2_000, **SHOWN},
            None,
        ),
        (
            Thinking(where="t", on=True, shown=False),
            {"type": "adaptive", "display": "omitted"},
            None,
        ),
    ],
)
def test_how_much_to_think(thinking: Thinking, config: dict[str, Any], effort: str | None) -> None:
    body = body_of(Conversation(turns=(user(),), thinking=thinking))
    assert body["thinking"] == config
    assert (body.get("output_config") or {}).get("effort") == effort


def test_a_tool_without_parameters_has_an_empty_schema() -> None:
    tools = (Tool(where="t", name="f"), Tool(where="t", name="g", parameters={"anyOf": [{}]}))
    written = write_conversation(Conversation(turns=(user(),), tools=tools, parallel_calls=False))
    assert written.body["tools"] == [
        {"name": "f", "input_schema": {"type": "object", "properties": {}}},
        {"name": "g", "input_schema": {"type": "object"}},
    ]
    assert written.body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert params(written.losses, hint=True) == ["t"]


def test_a_strict_tool_stays_strict_where_its_schema_can_be_said() -> None:
    said = {"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}}
    unsaid = {"type": "object", "additionalProperties": {"type": "string"}}
    tools = (
        Tool(where="tools[0]", name="f", parameters=said, strict=True),
        Tool(where="tools[1]", name="g", parameters=unsaid, strict=True),
    )
    written = write_conversation(Conversation(turns=(user(),), tools=tools))
    strict, loose = written.body["tools"]
    assert strict["strict"]
    assert strict["input_schema"] == output_schema(said)
    assert loose == {"name": "g", "input_schema": unsaid}
    assert params(written.losses, hint=True) == ["tools[1].strict"]


@pytest.mark.parametrize(
    "document",
    [
        Document(where="response_format", any_object=True),
        Document(where="response_format"),
        Document(where="response_format", schema={"type": "object"}),
    ],
)
def test_a_document_that_cannot_be_asked_for_is_left_to_the_router(document: Document) -> None:
    written = write_conversation(Conversation(turns=(user(),), document=document))
    assert "output_config" not in written.body
    assert params(written.losses, hint=True) == ["response_format"]


# -- Schemas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "minLength": 3, "pattern": "x"}, {"type": "string"}),
        ({"type": "string", "format": "email"}, {"type": "string", "format": "email"}),
        ({"type": "string", "format": "x"}, {"type": "string"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"enum": ["a", None]}, {"enum": ["a", None]}),
        ({"const": 5, "description": "d"}, {"const": 5, "description": "d"}),
        ({"oneOf": [{"type": "null"}]}, {"anyOf": [{"type": "null"}]}),
        (
            {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2},
            {"type": "array", "items": {"type": "null"}, "minItems": 1},
        ),
        (
            {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]},
            {
                "type": "object",
                "properties": {"a": {"type": "null"}},
                "required": ["a"],
                "additionalProperties": False,
            },
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}},
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}},
        ),
        ({}, None),
        ({"type": "object"}, None),
        ({"type": "array"}, None),
        ({"type": "any"}, None),
        ({"type": "object", "properties": {"a": True}}, None),
        ({"type": "object", "properties": {"a": {}}}, None),
        ({"enum": [{"a": 1}]}, None),
        ({"type": "string", "not": {"const": "a"}}, None),
        ({"anyOf": [{"type": "null"}, {}]}, None),
        ({"$ref": "https://e.com/schema"}, None),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}},
            },
            None,
        ),
    ],
)
def test_a_schema_in_the_part_that_is_taken(
    schema: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    before = copy.deepcopy(schema)
    assert output_schema(schema) == expected
    assert schema == before
    if expected is not None:
        assert output_schema(expected) == expected


# -- On to the same format -------------------------------------------------------------------------

CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1"}
UNSIGNED = {"type": "thinking", "thinking": "Hm.", "signature": unsigned_signature()}
SIGNED = UNSIGNED | {"signature": PNG}


def history(*blocks: dict[str, Any], results: bool = True, **more: object) -> dict[str, Any]:
    last = {"role": "user", "content": [RESULT]} if results else USER
    return (
        MINIMAL | {"messages": [USER, {"role": "assistant", "content": list(blocks)}, last]} | more
    )


def test_a_body_without_marks_is_passed_on_itself() -> None:
    body = history(SIGNED, CALL, thinking={"type": "enabled", "budget_tokens": 1_024})
    assert drop_refused(body) is body
    assert valid_ids(body) is body


def test_unsigned_thoughts_are_dropped() -> None:
    body = history(SIGNED, UNSIGNED, CALL, thinking={"type": "enabled", "budget_tokens": 1_024})
    before = copy.deepcopy(body)
    dropped = drop_refused(body)
    assert body == before
    assert dropped == history(SIGNED, CALL, thinking=body["thinking"])


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_texts_of_white_space_are_dropped(text: str) -> None:
    blank = {"type": "text", "text": text}
    body = json.dumps(history(SIGNED, blank, CALL) | {"max_tokens": 1}).encode()
    checked = parse_messages_request(body).raw
    assert drop_refused(checked)["messages"] == history(SIGNED, CALL)["messages"]


def test_a_message_that_held_nothing_else_goes_with_them() -> None:
    blank = {"type": "text", "text": " "}
    dropped = drop_refused(history(UNSIGNED, blank, results=False))
    assert dropped["messages"] == [USER, USER]


@pytest.mark.parametrize("text", [" ", "\n\n", "\u3000"])
def test_a_string_of_white_space_is_dropped_as_a_block_is(text: str) -> None:
    said = {"role": "assistant", "content": text}
    body = json.dumps(MINIMAL | {"messages": [USER, said, USER]}).encode()
    checked = parse_messages_request(body).raw
    assert checked["messages"][1] == said
    assert drop_refused(checked)["messages"] == [USER, USER]


def test_an_empty_last_answer_is_passed_on() -> None:
    body = MINIMAL | {"messages": [USER, {"role": "assistant", "content": ""}]}
    assert drop_refused(body) is body


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4, unique=True), ARGUMENTS)
def test_ids_of_other_providers_become_valid(ids: list[str], arguments: str) -> None:
    calls = [CALL | {"id": i, "input": json.loads(arguments)} for i in ids]
    results = [RESULT | {"tool_use_id": i, "content": i} for i in ids]
    body = history(*calls) | {}
    body["messages"] = [*body["messages"][:2], {"role": "user", "content": results}]
    before = copy.deepcopy(body)
    named = valid_ids(body)
    assert body == before
    given_ids = [block["id"] for block in named["messages"][1]["content"]]
    assert len(set(given_ids)) == len(ids)
    assert [block["tool_use_id"] for block in named["messages"][2]["content"]] == given_ids
    parsed = parse_messages_request(json.dumps(named).encode())
    assert valid_ids(parsed.raw) is parsed.raw


@given(TEXTS, NAMES)
def test_reading_and_writing_take_any_text(said: str, name: str) -> None:
    conversation = Conversation(turns=(user(text(said)),), user=name, max_tokens=5)
    assert alike(written_again(conversation)) == alike(conversation)
