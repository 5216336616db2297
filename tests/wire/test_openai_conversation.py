"""A request for a chat completion to and from the canonical conversation, and between formats."""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import replace
from typing import Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import completion_create_params
from support.conversations import JSON, alike, conversations, joined

from router.core.conversation import (
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
from router.errors import RequestError
from router.wire.anthropic import conversation as anthropic
from router.wire.anthropic import parse_messages_request
from router.wire.anthropic.schema import output_schema
from router.wire.openai import parse_chat_request
from router.wire.openai.conversation import read_conversation, write_conversation
from router.wire.openai.conversation_out import DEFAULT_EFFORT
from router.wire.openai.parts_out import ERROR, SHOWN_BELOW
from router.wire.openai.strict import is_strict

Role = Literal["system", "user", "assistant"]
PNG = base64.b64encode(b"png").decode()
USER = {"role": "user", "content": "Hi"}
MINIMAL: dict[str, Any] = {"model": "m", "messages": [USER]}


def read(**changes: object) -> Conversation:
    """What a request says; reading changes nothing in it."""
    body = MINIMAL | changes
    request = parse_chat_request(json.dumps(body).encode())
    conversation = read_conversation(request)
    assert request.raw == json.loads(json.dumps(body))
    return conversation


def read_parts(*content: object, role: str = "user") -> tuple[tuple[Part, ...], tuple[Loss, ...]]:
    conversation = read(messages=[{"role": role, "content": list(content)}])
    return conversation.turns[0].parts, conversation.losses


def refused(**changes: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        read(**changes)
    error = caught.value
    assert error.status == 400
    assert f"'{error.param}'" in error.message
    assert error.message.endswith(".")
    return error


def turn(role: Role, *parts: Part, where: str = "messages[0]") -> Turn:
    return Turn(where=where, role=role, parts=parts)


def text(said: str) -> TextPart:
    return TextPart(where="w", text=said)


def user(*parts: Part) -> Turn:
    return turn("user", *(parts or (text("Hi"),)))


def params(losses: tuple[Loss, ...], *, hint: bool) -> list[str]:
    return [loss.param for loss in losses if loss.hint is hint]


def spoken(conversation: Conversation) -> Conversation:
    """A failed tool's result as chat completions tell of it."""

    def said(part: Part) -> Part:
        if not isinstance(part, ResultPart) or not part.error:
            return part
        first = "".join(each.text for each in part.parts if isinstance(each, TextPart))
        return replace(part, parts=(TextPart(where="", text=ERROR + first),), error=False)

    turns = tuple(replace(t, parts=tuple(map(said, t.parts))) for t in conversation.turns)
    return replace(conversation, turns=turns)


# -- Both ways, and between formats ----------------------------------------------------------------


@given(conversations())
def test_what_was_written_is_read_again(asked: Conversation) -> None:
    before = copy.deepcopy(asked)
    written = write_conversation(asked)
    assert asked == before
    assert not written.losses
    again = read(**written.body)
    assert not again.losses
    assert joined(alike(again)) == spoken(joined(alike(asked)))


@given(conversations())
def test_nothing_is_lost_on_the_way_to_messages(asked: Conversation) -> None:
    first = read(**write_conversation(asked).body)
    written = anthropic.write_conversation(first)
    assert not written.losses
    body = json.dumps(written.body | {"model": "m"}).encode()
    last = anthropic.read_conversation(parse_messages_request(body))
    assert not last.losses
    assert alike(last) == alike(first)


@given(conversations())
def test_nothing_is_lost_on_the_way_from_messages(asked: Conversation) -> None:
    body = json.dumps(anthropic.write_conversation(asked).body | {"model": "m"}).encode()
    first = anthropic.read_conversation(parse_messages_request(body))
    written = write_conversation(first)
    assert not written.losses
    assert joined(alike(read(**written.body))) == spoken(joined(alike(first)))


# -- Reading ---------------------------------------------------------------------------------------


def function(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def answer(*calls: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)} | more


def result(call_id: str, content: object = "5") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_everything_has_its_path() -> None:
    conversation = read(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "In French."}]},
            {"role": "user", "content": "Look.", "name": "ann"},
            answer(function("a", "f", '{"x": 1}'), function("b", "g", ""), content="So."),
            result("b"),
            result("a", [{"type": "text", "text": "6"}]),
            {"role": "system", "content": "Now in German."},
            {"role": "assistant", "content": "Gut", "refusal": "No."},
        ],
        tools=[
            {
                "type": "function",
                "function": {"name": "f", "description": "d", "parameters": {}, "strict": True},
            },
            {"type": "custom", "custom": {"name": "g", "format": {"type": "text"}}},
        ],
        tool_choice={"type": "function", "function": {"name": "f"}},
        parallel_tool_calls=False,
        max_tokens=5,
        stop="x",
        n=2,
        temperature=1.5,
        top_p=0.5,
        top_k=-1,
        seed=7,
        presence_penalty=1,
        frequency_penalty=-1,
        logprobs=True,
        top_logprobs=3,
        reasoning_effort="low",
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": True},
        },
        user="u",
    )
    call = "messages[3].tool_calls"
    assert conversation == Conversation(
        system=(
            TextPart(where="messages[0].content", text="Be brief."),
            TextPart(where="messages[1].content[0]", text="In French."),
        ),
        turns=(
            Turn(
                where="messages[2]",
                role="user",
                parts=(TextPart(where="messages[2].content", text="Look."),),
                name="ann",
            ),
            turn(
                "assistant",
                TextPart(where="messages[3].content", text="So."),
                CallPart(where=f"{call}[0]", id="a", name="f", arguments='{"x": 1}'),
                CallPart(where=f"{call}[1]", id="b", name="g", arguments="{}"),
                where="messages[3]",
            ),
            turn(
                "user",
                ResultPart(
                    where="messages[4]",
                    call_id="b",
                    name="g",
                    parts=(TextPart(where="messages[4].content", text="5"),),
                ),
                where="messages[4]",
            ),
            turn(
                "user",
                ResultPart(
                    where="messages[5]",
                    call_id="a",
                    name="f",
                    parts=(TextPart(where="messages[5].content[0]", text="6"),),
                ),
                where="messages[5]",
            ),
            turn(
                "system",
                TextPart(where="messages[6].content", text="Now in German."),
                where="messages[6]",
            ),
            turn(
                "assistant",
                TextPart(where="messages[7].content", text="Gut"),
                TextPart(where="messages[7].refusal", text="No."),
                where="messages[7]",
            ),
        ),
        tools=(
            Tool(where="tools[0]", name="f", description="d", parameters={}, strict=True),
            Tool(where="tools[1]", name="g", custom=True),
        ),
        tool_choice=ToolChoice(mode="named", name="f"),
        parallel_calls=False,
        max_tokens=5,
        stop=("x",),
        n=2,
        sampling=Sampling(
            temperature=1.5,
            top_p=0.5,
            seed=7,
            presence_penalty=1,
            frequency_penalty=-1,
            logprobs=True,
            top_logprobs=3,
        ),
        thinking=Thinking(where="reasoning_effort", effort="low"),
        document=Document(
            where="response_format", schema={"type": "object"}, name="s", strict=True
        ),
        user="u",
    )


def test_the_form_before_there_were_ids() -> None:
    conversation = read(
        messages=[
            USER,
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": None},
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "5"},
        ],
        functions=[{"name": "f", "parameters": {"type": "object"}}],
        function_call={"name": "f"},
    )
    calls = [part for each in conversation.turns for part in each.parts]
    first, second = calls[1], calls[3]
    assert isinstance(first, CallPart)
    assert isinstance(second, CallPart)
    assert first.id != second.id
    assert calls[2] == ResultPart(where="messages[2]", call_id=first.id, name="f", parts=())
    assert conversation.tools[0].where == "functions[0]"
    assert conversation.tool_choice == ToolChoice(mode="named", name="f")


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://e.com/a.png", "detail": "low"}},
            MediaPart(where="", kind="image", url="https://e.com/a.png", detail="low"),
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/JPG;base64,{PNG}"}},
            MediaPart(where="", kind="image", media_type="image/jpeg", data=PNG),
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;a=b;base64,{PNG}"}},
            MediaPart(where="", kind="image", media_type="image/png", data=PNG),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": PNG, "format": "mp3"}},
            MediaPart(where="", kind="audio", media_type="audio/mp3", data=PNG),
        ),
        (
            {"type": "file", "file": {"file_data": PNG, "filename": "a.pdf"}},
            MediaPart(
                where="", kind="document", media_type="application/pdf", data=PNG, name="a.pdf"
            ),
        ),
        (
            {"type": "file", "file": {"file_data": f"data:text/csv;base64,{PNG}"}},
            MediaPart(where="", kind="document", media_type="text/csv", data=PNG),
        ),
    ],
)
def test_a_part_is_read(part: dict[str, Any], expected: Part) -> None:
    parts, losses = read_parts(part)
    assert [replace(each, where="") for each in parts] == [expected]
    assert not losses


TEXT = {"type": "text", "text": "Hi"}


@pytest.mark.parametrize(
    ("part", "hints", "demands"),
    [
        (TEXT | {"cache_control": {"type": "ephemeral"}}, [".cache_control"], []),
        (TEXT | {"prompt_cache_breakpoint": {}}, [".prompt_cache_breakpoint"], []),
        (TEXT | {"of_tomorrow": 1}, [], [".of_tomorrow"]),
        ({"type": "video_url", "video_url": {}}, [], [""]),
        ({"type": "file", "file": {"file_id": "f"}}, [], [".file"]),
    ],
)
def test_a_part_that_has_no_place_is_a_loss(
    part: dict[str, Any], hints: list[str], demands: list[str]
) -> None:
    _, losses = read_parts(TEXT, part)
    where = "messages[0].content[1]"
    assert params(losses, hint=True) == [where + name for name in hints]
    assert params(losses, hint=False) == [where + name for name in demands]


@pytest.mark.parametrize(
    ("fields", "hints", "demands"),
    [
        ({"reasoning_content": "Hm."}, ["reasoning_content"], []),
        ({"reasoning": "", "reasoning_details": [], "annotations": []}, [], []),
        ({"reasoning_details": [{}]}, ["reasoning_details"], []),
        ({"annotations": [{}]}, ["annotations"], []),
        ({"prefix": True}, ["prefix"], []),
        ({"partial": False}, [], []),
        ({"id": "m"}, ["id"], []),
        ({"audio": {"id": "a"}}, [], ["audio"]),
        ({"of_tomorrow": 1}, [], ["of_tomorrow"]),
    ],
)
def test_what_stands_beside_an_answer_is_a_loss(
    fields: dict[str, Any], hints: list[str], demands: list[str]
) -> None:
    losses = read(messages=[USER, {"role": "assistant", "content": "So."} | fields]).losses
    assert params(losses, hint=True) == [f"messages[1].{name}" for name in hints]
    assert params(losses, hint=False) == [f"messages[1].{name}" for name in demands]


CALLED = [USER, answer(function("a"))]
WRONG: list[tuple[list[dict[str, Any]], str]] = [
    ([USER, result("a")], "messages[1].tool_call_id"),
    ([*CALLED, result("b")], "messages[2].tool_call_id"),
    ([*CALLED, result("a"), result("a")], "messages[3].tool_call_id"),
    (
        [*CALLED, result("a"), {"role": "assistant", "content": "So."}, result("a")],
        "messages[4].tool_call_id",
    ),
    ([USER, {"role": "function", "name": "f", "content": "5"}], "messages[1].name"),
    (CALLED, "messages[1].tool_calls[0]"),
    ([*CALLED, USER, answer(function("b")), result("b")], "messages[1].tool_calls[0]"),
    ([USER, answer(function("a"), function("a"))], "messages[1].tool_calls[1].id"),
    ([USER, answer(function(""))], "messages[1].tool_calls[0].id"),
    ([USER, answer(function("a") | {"id": None})], "messages[1].tool_calls[0].id"),
    ([USER, answer(function("a") | {"type": "x"})], "messages[1].tool_calls[0].type"),
    ([USER, answer({"id": "a"})], "messages[1].tool_calls[0].function"),
    ([USER, answer(function("a", "f", "{"))], "messages[1].tool_calls[0].function.arguments"),
    ([USER, answer(function("a", "f", "[]"))], "messages[1].tool_calls[0].function.arguments"),
    (
        [USER, answer(function("a", "f", cast("str", {"x": 1})))],
        "messages[1].tool_calls[0].function.arguments",
    ),
    (
        [USER, {"role": "assistant", "function_call": {"name": "f", "arguments": "x"}}],
        "messages[1].function_call.arguments",
    ),
]


@pytest.mark.parametrize(("messages", "param"), WRONG)
def test_calls_and_results_must_fit(messages: list[dict[str, Any]], param: str) -> None:
    assert refused(messages=messages).param == param


def test_ids_may_come_again_in_another_turn() -> None:
    conversation = read(messages=[*CALLED, result("a"), answer(function("a")), result("a")])
    assert [part.id for each in conversation.turns for part in each.parts if hasattr(part, "id")]


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "image_url", "image_url": "https://e.com"}, "image_url"),
        ({"type": "image_url", "image_url": {}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "file:///a"}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "data:image/png,abc"}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "data:;base64,AAAA"}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}, "image_url.url"),
        (
            {"type": "input_audio", "input_audio": {"data": "?", "format": "mp3"}},
            "input_audio.data",
        ),
        (
            {"type": "input_audio", "input_audio": {"data": PNG, "format": "x"}},
            "input_audio.format",
        ),
        ({"type": "file", "file": {"file_data": "???"}}, "file.file_data"),
    ],
)
def test_data_that_is_none_is_refused(part: dict[str, Any], param: str) -> None:
    error = refused(messages=[{"role": "user", "content": [TEXT, part]}])
    assert error.param == f"messages[0].content[1].{param}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", "x"),
        ("top_k", 0.5),
        ("user", 5),
        ("parallel_tool_calls", "no"),
        ("reasoning_effort", 5),
    ],
)
def test_what_the_parser_leaves_to_the_provider_is_checked(field: str, value: object) -> None:
    assert refused(**{field: value}).param == field


HELD: dict[str, Any] = {
    "model": "m",
    "messages": [USER],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 5,
    "max_completion_tokens": 5,
    "n": 2,
    "stop": "x",
    "temperature": 1,
    "top_p": 1,
    "seed": 1,
    "presence_penalty": 1,
    "frequency_penalty": 1,
    "logprobs": True,
    "top_logprobs": 1,
    "tools": [],
    "functions": [],
    "tool_choice": "auto",
    "function_call": "auto",
    "parallel_tool_calls": True,
    "reasoning_effort": "max",
    "response_format": {"type": "json_object"},
    "user": "u",
    "safety_identifier": "u",
}
HINTS: dict[str, Any] = {
    "metadata": {"a": "b"},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "implicit"},
    "prompt_cache_retention": "24h",
    "service_tier": "flex",
    "store": True,
}
DEMANDS: dict[str, Any] = {
    "audio": {"voice": "alloy", "format": "wav"},
    "logit_bias": {"1": 5},
    "modalities": ["text", "audio"],
    "moderation": {"mode": "score"},
    "prediction": {"type": "content", "content": "x"},
    "verbosity": "low",
    "web_search_options": {},
    "a_field_of_tomorrow": 1,
}


@pytest.mark.parametrize(
    ("field", "value", "hints", "demands"),
    [
        *((name, value, [], []) for name, value in HELD.items()),
        *((name, value, [name], []) for name, value in HINTS.items()),
        *((name, value, [], [name]) for name, value in DEMANDS.items()),
        ("router", {}, [], []),
        ("top_k", 5, [], []),
        ("store", False, [], []),
        ("logit_bias", {}, [], []),
        ("modalities", ["text"], [], []),
        ("verbosity", "medium", [], []),
        ("thinking", {"type": "disabled"}, [], []),
        ("thinking", {"type": "x"}, [], ["thinking"]),
        ("reasoning_effort", "extreme", [], ["reasoning_effort"]),
        ("response_format", {"type": "text"}, [], []),
        ("response_format", {"type": "grammar"}, [], ["response_format"]),
        (
            "response_format",
            {"type": "json_schema", "json_schema": {"name": "s", "description": "d"}},
            ["response_format.json_schema.description"],
            [],
        ),
        ("tools", [{"type": "web_search"}], [], ["tools[0]"]),
        (
            "tools",
            [{"type": "custom", "custom": {"name": "c", "format": {"type": "grammar"}}}],
            [],
            ["tools[0].custom.format"],
        ),
        ("tool_choice", {"type": "x"}, [], ["tool_choice"]),
        ("tool_choice", {"type": "allowed_tools"}, [], ["tool_choice.allowed_tools"]),
    ],
)
def test_a_field_is_held_or_lost_by_name(
    field: str, value: object, hints: list[str], demands: list[str]
) -> None:
    """The fields of https://platform.openai.com/docs/api-reference/chat/create."""
    losses = read(**{field: value}).losses
    assert params(losses, hint=True) == hints
    assert params(losses, hint=False) == demands


def test_no_field_of_the_reference_is_missing_here() -> None:
    """The SDK is written from the reference."""
    known = set(completion_create_params.CompletionCreateParamsBase.__annotations__)
    assert known <= HELD.keys() | HINTS.keys() | DEMANDS.keys()


def test_the_tools_that_are_allowed_are_those_offered() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "fgh"]
    allowed = {"mode": "required", "tools": tools[1:]}
    conversation = read(
        tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed}
    )
    assert [tool.name for tool in conversation.tools] == ["g", "h"]
    assert conversation.tool_choice == ToolChoice(mode="required")


def test_two_names_of_the_user_are_one() -> None:
    conversation = read(user="a", safety_identifier="b")
    assert conversation.user == "b"
    assert params(conversation.losses, hint=True) == ["user"]


def test_instructions_alone_are_a_question_too() -> None:
    conversation = read(messages=[{"role": "system", "content": "Write a poem."}])
    assert [each.role for each in conversation.turns] == ["user"]
    assert conversation.system[0].text == "Write a poem."


# -- Writing ---------------------------------------------------------------------------------------


def body_of(*turns: Turn, **fields: object) -> dict[str, Any]:
    return write_conversation(Conversation(turns=turns, **cast("Any", fields))).body


def lost(*parts: Part, hint: bool, role: Role = "user", **fields: object) -> list[str]:
    turns = (turn(role, *(parts or (text("Hi"),))),)
    written = write_conversation(Conversation(turns=turns, **cast("Any", fields)))
    return params(written.losses, hint=hint)


def test_the_least_body() -> None:
    assert body_of(user()) == {"messages": [USER]}


def test_results_stand_right_behind_their_calls() -> None:
    call = CallPart(where="c", id="a", name="f", arguments="{}")
    body = body_of(
        turn("assistant", text("So"), call, text(" far.")),
        user(text("b")),
        turn("system", text("s")),
        user(ResultPart(where="r", call_id="a", name="f", parts=(text("x"), text("y")))),
        turn("assistant", text("")),
    )
    assert body["messages"] == [
        {"role": "assistant", "content": "So far.", "tool_calls": [function("a")]},
        {"role": "tool", "tool_call_id": "a", "content": "x\n\ny"},
        {"role": "user", "content": "b"},
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": ""},
    ]


def test_a_result_that_is_a_picture_is_shown_by_the_user() -> None:
    picture = MediaPart(where="p", kind="image", media_type="image/png", data=PNG)
    failed = ResultPart(where="r", call_id="b", name="f", parts=(text("No."),), error=True)
    asked = Conversation(
        turns=(
            user(
                ResultPart(where="r", call_id="a", name="f", parts=(picture,)),
                failed,
                text("So?"),
            ),
        )
    )
    written = write_conversation(asked)
    tool, other, shown = written.body["messages"]
    assert tool == {"role": "tool", "tool_call_id": "a", "content": SHOWN_BELOW}
    assert other["content"] == "Error: No."
    assert shown["role"] == "user"
    assert [part["type"] for part in shown["content"]] == ["text", "image_url", "text"]
    assert shown["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PNG}"
    assert params(written.losses, hint=True) == ["p"]


def test_media_are_written() -> None:
    body = body_of(
        user(
            MediaPart(where="p", kind="image", url="https://e.com/a.png", detail="high"),
            MediaPart(where="p", kind="audio", media_type="audio/mpeg", data=PNG),
            MediaPart(where="p", kind="document", media_type="application/pdf", data=PNG),
            MediaPart(where="p", kind="document", media_type="text/csv", data="w6k=", name="a.csv"),
        )
    )
    assert body["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": "https://e.com/a.png", "detail": "high"}},
        {"type": "input_audio", "input_audio": {"data": PNG, "format": "mp3"}},
        {
            "type": "file",
            "file": {
                "filename": "document.pdf",
                "file_data": f"data:application/pdf;base64,{PNG}",
            },
        },
        {"type": "text", "text": "a.csv\n\né"},
    ]


@pytest.mark.parametrize(
    ("part", "role"),
    [
        (MediaPart(where="p", kind="audio", media_type="audio/ogg", data=PNG), "user"),
        (MediaPart(where="p", kind="audio", url="https://e.com"), "user"),
        (MediaPart(where="p", kind="document", url="https://e.com"), "user"),
        (MediaPart(where="p", kind="document", media_type="application/zip", data=PNG), "user"),
        (MediaPart(where="p", kind="image", url="https://e.com"), "assistant"),
    ],
)
def test_a_part_that_cannot_be_said_is_a_loss(part: Part, role: Role) -> None:
    assert lost(part, hint=False, role=role) == ["p"]
    assert body_of(turn(role, part))["messages"] == [{"role": role, "content": ""}]


def test_settings_that_cannot_be_said_are_losses() -> None:
    shown = Thinking(where="thinking", on=True, shown=False)
    assert lost(hint=True, thinking=shown) == ["thinking.display"]
    assert lost(hint=True, document=Document(where="d")) == ["d"]


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        (Thinking(where="t", effort="xhigh", on=True, budget_tokens=5), "xhigh"),
        (Thinking(where="t", effort="none"), "none"),
        (Thinking(where="t", on=True), DEFAULT_EFFORT),
        (Thinking(where="t", on=False, effort="high"), "none"),
        (Thinking(where="t", on=True, budget_tokens=1_024), "low"),
        (Thinking(where="t", on=True, budget_tokens=1_025), "medium"),
        (Thinking(where="t", on=True, budget_tokens=8_193), "high"),
    ],
)
def test_how_much_to_think(thinking: Thinking, effort: str | None) -> None:
    assert body_of(user(), thinking=thinking).get("reasoning_effort") == effort


def test_tools_are_written() -> None:
    strict = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    tools = (
        Tool(where="tools[0]", name="f", parameters=strict, strict=True),
        Tool(where="tools[1]", name="g", parameters={"type": "object"}, strict=True),
        Tool(where="tools[2]", name="h", custom=True),
    )
    choice = ToolChoice(mode="named", name="h")
    body = body_of(user(), tools=tools, tool_choice=choice, parallel_calls=True)
    assert body["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": strict, "strict": True}},
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}},
        {"type": "custom", "custom": {"name": "h"}},
    ]
    assert body["tool_choice"] == {"type": "custom", "custom": {"name": "h"}}
    assert body["parallel_tool_calls"] is True
    assert lost(hint=True, tools=tools) == ["tools[1].strict"]
    assert body_of(user(), tool_choice=choice, parallel_calls=True) == {"messages": [USER]}


def test_a_schema_is_strict_where_it_can_be() -> None:
    loose = {"type": "object", "properties": {"a": {"type": "null"}}}
    closed = loose | {"additionalProperties": False, "required": ["a"]}
    for schema, held in ((loose, {}), (closed, {"strict": True})):
        body = body_of(user(), document=Document(where="d", schema=schema, strict=True))
        assert body["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": schema, **held},
        }
    assert body_of(user(), document=Document(where="d", any_object=True))["response_format"] == {
        "type": "json_object"
    }


@pytest.mark.parametrize(
    ("inner", "strict"),
    [
        ({"type": "string", "pattern": "x"}, True),
        ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}, True),
        ({"type": "array", "items": {"type": "number"}}, True),
        ({"type": "array", "items": {}}, False),
        ({"oneOf": [{"type": "null"}]}, False),
        ({"type": "object"}, False),
        ({"type": "string", "default": "x"}, False),
        (True, False),
    ],
)
def test_what_may_be_strict(inner: object, strict: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"a": inner},
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"a": {"type": "string"}},
    }
    assert is_strict(schema) is strict


WORDS = st.sampled_from(
    [
        *("type", "properties", "required", "items", "anyOf", "oneOf", "enum", "const", "$ref"),
        *("$defs", "additionalProperties", "minItems", "format"),
    ]
)
SCHEMAS = st.recursive(
    JSON | st.sampled_from(["object", "array", "#/$defs/a", "string"]),
    lambda inner: st.dictionaries(WORDS | st.just("a"), inner, max_size=5),
    max_leaves=20,
)


@given(st.dictionaries(WORDS, SCHEMAS, max_size=6))
def test_no_schema_breaks_what_looks_at_it(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    written = output_schema(schema)
    assert is_strict(schema) in (True, False)
    assert written is None or output_schema(written) == written
    assert schema == before
