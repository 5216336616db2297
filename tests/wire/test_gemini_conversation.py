"""What becomes of a conversation in Gemini's words, and what it cannot say."""

from __future__ import annotations

import itertools
import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from router.wire.gemini import write_conversation
from router.wire.gemini.conversation import FOREIGN_SIGNATURE
from router.wire.gemini.settings import MAX_CANDIDATES, MAX_STOP_SEQUENCES


def text(words: str, where: str = "messages[0]") -> TextPart:
    return TextPart(where=where, text=words)


def user(*parts: Part | str, name: str = "") -> Turn:
    return Turn(where="messages[0]", role="user", parts=_parts(parts), name=name)


def model(*parts: Part | str) -> Turn:
    return Turn(where="messages[1]", role="assistant", parts=_parts(parts))


def _parts(parts: tuple[Part | str, ...]) -> tuple[Part, ...]:
    return tuple(text(part) if isinstance(part, str) else part for part in parts)


def call(id_: str, name: str, arguments: str = "{}", *, custom: bool = False) -> CallPart:
    return CallPart(where="w", id=id_, name=name, arguments=arguments, custom=custom)


def result(
    id_: str, name: str, *parts: TextPart | MediaPart | str, error: bool = False
) -> ResultPart:
    inner = tuple(text(part) if isinstance(part, str) else part for part in parts)
    return ResultPart(where="w", call_id=id_, name=name, parts=inner, error=error)


def tool(name: str, **fields: Any) -> Tool:  # noqa: ANN401 - any of its fields
    return Tool(where="tools[0]", name=name, **fields)


def body(*turns: Turn, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any of its fields
    return write_conversation(Conversation(turns=turns or (user("Hi."),), **fields)).body


def losses(*turns: Turn, **fields: Any) -> tuple[Loss, ...]:  # noqa: ANN401 - any of its fields
    return write_conversation(Conversation(turns=turns or (user("Hi."),), **fields)).losses


def demands(*turns: Turn, **fields: Any) -> list[str]:  # noqa: ANN401 - any of its fields
    return [loss.param for loss in losses(*turns, **fields) if not loss.hint]


def hints(*turns: Turn, **fields: Any) -> list[str]:  # noqa: ANN401 - any of its fields
    return [loss.param for loss in losses(*turns, **fields) if loss.hint]


# -- Turns -----------------------------------------------------------------------------------------


def test_the_least_there_is() -> None:
    assert body() == {"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]}
    assert losses() == ()


def test_turns_of_one_role_become_one_and_empty_texts_go() -> None:
    said = body(user("a", ""), user("b"), model("", ""), user("c"), model("d"), model("e"))
    assert said["contents"] == [
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}, {"text": "c"}]},
        {"role": "model", "parts": [{"text": "d"}, {"text": "e"}]},
    ]


def test_instructions_stand_apart_and_late_ones_are_moved_to_them() -> None:
    late = Turn(where="messages[2]", role="system", parts=(text("Be terse."),))
    system = (text("Be kind."), text(""))
    written = body(user("a"), late, user("b"), system=system)
    assert written["systemInstruction"] == {"parts": [{"text": "Be kind."}, {"text": "Be terse."}]}
    assert written["contents"] == [{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}]
    assert hints(user("a"), late) == ["messages[2]"]


def test_the_user_speaks_first() -> None:
    called, answered = model(call("1", "f")), user(result("1", "f", "x"))
    first = {"role": "user", "parts": [{"text": NOTHING_SAID}]}
    for turns in ((called, answered), (model("Hello."), user("Hi."))):
        written = body(*turns)["contents"]
        assert [content["role"] for content in written] == ["user", "model", "user"]
        assert written[0] == first
        assert [(loss.param, loss.hint) for loss in losses(*turns)] == [("messages", True)]
    assert body(user(""))["contents"] == [first]


def test_instructions_alone_are_asked_as_a_question() -> None:
    alone = Turn(where="messages[1]", role="system", parts=(text("Say hi."),))
    assert body(alone) == {"contents": [{"role": "user", "parts": [{"text": "Say hi."}]}]}
    assert demands(alone) == []


def test_names_are_not_told() -> None:
    assert hints(user("a", name="Ada"), user="u-1") == ["messages[0].name", "user"]
    late = Turn(where="messages[1]", role="system", parts=(text("Be terse."),), name="Ada")
    assert set(hints(user("a"), late)) == {"messages[1].name", "messages[1]"}


# -- Media -----------------------------------------------------------------------------------------


def picture(**fields: Any) -> MediaPart:  # noqa: ANN401 - any of its fields
    return MediaPart(where="messages[0].content[1]", kind="image", **fields)


def test_bytes_are_sent_as_they_are() -> None:
    part = picture(media_type="image/png", data="iVBORw0KGgo=")
    (content,) = body(user("Look:", part))["contents"]
    inline = {"mimeType": "image/png", "data": "iVBORw0KGgo="}
    assert content["parts"] == [{"text": "Look:"}, {"inlineData": inline}]
    assert losses(user(part)) == ()


@pytest.mark.parametrize(
    ("url", "media_type", "told"),
    [
        ("https://example.org/a/b.PNG?size=2", "", "image/png"),
        ("https://example.org/report.pdf", "", "application/pdf"),
        ("https://example.org/picture", "image/webp", "image/webp"),
        ("gs://bucket/a.jpg", "", "image/jpeg"),
    ],
)
def test_an_address_goes_with_its_type(url: str, media_type: str, told: str) -> None:
    (content,) = body(user(picture(url=url, media_type=media_type)))["contents"]
    assert content["parts"] == [{"fileData": {"mimeType": told, "fileUri": url}}]


@pytest.mark.parametrize("url", ["https://example.org/picture", "http://example.org/a.png", "x:y"])
def test_an_address_that_gemini_cannot_fetch_is_a_loss(url: str) -> None:
    turn = user("Look:", picture(url=url))
    assert demands(turn) == ["messages[0].content[1]"]
    assert body(turn)["contents"][0]["parts"] == [{"text": "Look:"}]


def test_what_is_said_beside_a_picture_is_reported() -> None:
    data = {"media_type": "image/png", "data": "iVBORw0KGgo="}
    assert (
        hints(user(picture(**data, detail="low"), picture(**data, name="a.png")))
        == ["messages[0].content[1]"] * 2
    )
    assert hints(user(picture(**data, detail="auto"))) == []


# -- Calls and results -----------------------------------------------------------------------------


def test_calls_and_results_by_id_and_name() -> None:
    said = body(
        user("Weather?"),
        model("I look.", call("c1", "get", '{"city":"Bern","n":1}'), call("c2", "now")),
        user(result("c1", "get", "mild"), result("c2", "now", "noon", error=True), "And?"),
    )
    assert said["contents"][1] == {
        "role": "model",
        "parts": [
            {"text": "I look."},
            {
                "functionCall": {"id": "c1", "name": "get", "args": {"city": "Bern", "n": 1}},
                "thoughtSignature": FOREIGN_SIGNATURE,
            },
            {"functionCall": {"id": "c2", "name": "now", "args": {}}},
        ],
    }
    assert said["contents"][2] == {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "c1", "name": "get", "response": {"output": "mild"}}},
            {"functionResponse": {"id": "c2", "name": "now", "response": {"error": "noon"}}},
            {"text": "And?"},
        ],
    }


def test_every_step_of_calls_is_signed_once() -> None:
    said = body(
        user("Go."),
        model(call("a", "f"), call("b", "f")),
        user(result("a", "f", "1"), result("b", "f", "2")),
        model(call("c", "f")),
        user(result("c", "f", "3")),
    )
    signed = [
        part["functionCall"]["id"]
        for content in said["contents"]
        for part in content["parts"]
        if "thoughtSignature" in part
    ]
    assert signed == ["a", "c"]


def test_results_stand_before_everything_else_of_their_turn() -> None:
    image = picture(media_type="image/png", data="iVBORw0KGgo=")
    said = body(
        user("Go."),
        model(call("a", "f"), call("b", "f")),
        user(result("a", "f", "one", image), result("b", "f", "two", "three")),
    )
    first, second, shown = said["contents"][2]["parts"]
    assert first["functionResponse"]["response"] == {"output": "one"}
    assert second["functionResponse"]["response"] == {"output": ["two", "three"]}
    assert "inlineData" in shown


def test_a_result_without_a_word_is_one_all_the_same() -> None:
    said = body(user("Go."), model(call("a", "f")), user(result("a", "f")))
    (part,) = said["contents"][2]["parts"]
    assert part["functionResponse"]["response"] == {"output": ""}


def test_free_text_for_a_tool_stands_in_an_object() -> None:
    said = body(user("Go."), model(call("a", "sh", "ls -l", custom=True)))
    (part,) = said["contents"][1]["parts"]
    assert part["functionCall"]["args"] == {"input": "ls -l"}


def test_half_a_character_in_arguments_is_mended() -> None:
    said = body(user("Go."), model(call("a", "f", '{"x":"\\ud83d"}')))
    json.dumps(said).encode()
    assert said["contents"][1]["parts"][0]["functionCall"]["args"] == {"x": "\ufffd"}


# -- Tools -----------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^x"}}}


def test_tools_keep_their_json_schema() -> None:
    tools = (tool("get", description="Gets.", parameters=SCHEMA), tool("now"))
    assert body(tools=tools)["tools"] == [
        {
            "functionDeclarations": [
                {"name": "get", "description": "Gets.", "parametersJsonSchema": SCHEMA},
                {"name": "now"},
            ]
        }
    ]


@pytest.mark.parametrize("name", ["1st", "-x", "a b", "ä", "x" * 129])
def test_a_name_that_gemini_refuses_is_a_loss(name: str) -> None:
    assert demands(tools=(tool(name),)) == ["tools[0]"]
    assert "tools" not in body(tools=(tool(name),))


def test_a_tool_that_takes_free_text_is_a_loss() -> None:
    written = {"tools": (tool("sh", custom=True),), "tool_choice": ToolChoice(mode="required")}
    assert demands(**written) == ["tools[0]"]
    assert body(**written).keys() == {"contents"}


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (ToolChoice(mode="auto"), {"mode": "AUTO"}),
        (ToolChoice(mode="none"), {"mode": "NONE"}),
        (ToolChoice(mode="required"), {"mode": "ANY"}),
        (ToolChoice(mode="named", name="b"), {"mode": "ANY", "allowedFunctionNames": ["b"]}),
        (ToolChoice(mode="named", name="lost"), None),
        (None, None),
    ],
)
def test_which_tools_may_be_called(choice: ToolChoice | None, config: object) -> None:
    written = body(tools=(tool("a"), tool("b")), tool_choice=choice)
    assert written.get("toolConfig") == (config and {"functionCallingConfig": config})


def test_a_strict_tool_is_called_by_its_schema() -> None:
    tools = (tool("a", strict=True),)
    assert body(tools=tools)["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}}
    must = body(tools=tools, tool_choice=ToolChoice(mode="required"))
    assert must["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}


def test_a_choice_without_tools_says_nothing() -> None:
    assert body(tool_choice=ToolChoice(mode="auto")).keys() == {"contents"}


def test_one_call_at_a_time_cannot_be_asked_for() -> None:
    assert demands(tools=(tool("a"),), parallel_calls=False) == ["parallel_tool_calls"]
    assert demands(tools=(tool("a"),), parallel_calls=True) == []
    assert demands(parallel_calls=False) == []


# -- Settings --------------------------------------------------------------------------------------


def settings(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any of its fields
    written: dict[str, Any] = body(**fields)["generationConfig"]
    return written


def test_sampling_under_its_own_names() -> None:
    sampling = Sampling(
        temperature=0.0,
        top_p=0.9,
        top_k=40,
        seed=0,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logprobs=True,
        top_logprobs=3,
    )
    assert settings(max_tokens=9, n=2, stop=("END",), sampling=sampling) == {
        "maxOutputTokens": 9,
        "temperature": 0.0,
        "topP": 0.9,
        "topK": 40,
        "seed": 0,
        "presencePenalty": 0.5,
        "frequencyPenalty": -0.5,
        "stopSequences": ["END"],
        "candidateCount": 2,
        "responseLogprobs": True,
        "logprobs": 3,
    }


def test_what_is_out_of_range_is_reported() -> None:
    stop = tuple("abcdefg")
    assert demands(stop=stop) == ["stop"]
    assert settings(stop=stop)["stopSequences"] == list(stop[:MAX_STOP_SEQUENCES])
    assert demands(n=MAX_CANDIDATES + 1) == ["n"]
    assert settings(n=MAX_CANDIDATES + 1)["candidateCount"] == MAX_CANDIDATES
    assert hints(sampling=Sampling(seed=2**31)) == ["seed"]
    assert "generationConfig" not in body(sampling=Sampling(seed=2**31))
    assert hints(sampling=Sampling(seed=-(2**31))) == []


def test_structured_output() -> None:
    document = Document(where="response_format", schema=SCHEMA, name="d", strict=True)
    assert settings(document=document) == {
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
    }
    any_json = Document(where="response_format", any_object=True)
    assert settings(document=any_json) == {"responseMimeType": "application/json"}
    assert losses(document=any_json) == ()


SHOWN = {"includeThoughts": True}


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        ({"effort": "medium"}, {"thinkingLevel": "MEDIUM", **SHOWN}),
        ({"effort": "none"}, {"thinkingBudget": 0}),
        ({"on": False}, {"thinkingBudget": 0}),
        ({"on": True}, {"thinkingBudget": -1, **SHOWN}),
        ({"on": True, "budget_tokens": 2048}, {"thinkingBudget": 2048, **SHOWN}),
        (
            {"effort": "high", "budget_tokens": 9},
            {"thinkingLevel": "HIGH", "thinkingBudget": 9, **SHOWN},
        ),
        ({"shown": True}, SHOWN),
        ({"on": True, "shown": False}, {"thinkingBudget": -1, "includeThoughts": False}),
    ],
)
def test_thinking_says_all_that_was_said(fields: dict[str, Any], config: dict[str, Any]) -> None:
    assert settings(thinking=Thinking(where="w", **fields))["thinkingConfig"] == config


# -- Any conversation ------------------------------------------------------------------------------

WORDS = st.text("ab .\n", max_size=4)
LEAVES = st.builds(text, WORDS)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Turn, ...]:
    """Turns in which every call has its result in the turn behind."""
    turns: list[Turn] = []
    number = 0
    for _ in range(draw(st.integers(1, 5))):
        role: Literal["user", "system"] = draw(st.sampled_from(["user", "system"]))
        turns.append(Turn(where="u", role=role, parts=(draw(LEAVES),)))
        calls = [call(f"c{number + at}", "f") for at in range(draw(st.integers(0, 3)))]
        number += len(calls)
        turns.append(model(draw(LEAVES), *calls))
        results: list[Part] = [result(one.id, one.name, draw(WORDS)) for one in calls]
        if results:
            turns.append(user(*draw(st.permutations([*results, draw(LEAVES)]))))
    return tuple(turns)


@given(histories())
def test_roles_alternate_nothing_is_empty_and_no_text_is_lost(turns: tuple[Turn, ...]) -> None:
    written = body(*turns)
    contents = written["contents"]
    roles = [content["role"] for content in contents]
    assert all(one != other for one, other in itertools.pairwise(roles))
    assert all(content["parts"] for content in contents)
    places = [*contents, written.get("systemInstruction", {"parts": []})]
    told = "".join(part.get("text", "") for place in places for part in place["parts"])
    said = [part.text for turn in turns for part in turn.parts if isinstance(part, TextPart)]
    assert sorted(told.removeprefix(NOTHING_SAID)) == sorted("".join(said))
    for content in contents:
        answers = ["functionResponse" in part for part in content["parts"]]
        assert answers == sorted(answers, reverse=True)
    calls = [p["functionCall"]["id"] for c in contents for p in c["parts"] if "functionCall" in p]
    replies = [
        p["functionResponse"]["id"] for c in contents for p in c["parts"] if "functionResponse" in p
    ]
    assert sorted(calls) == sorted(replies)
    for content in contents:
        signed = [part for part in content["parts"] if "thoughtSignature" in part]
        assert len(signed) == any("functionCall" in part for part in content["parts"])
    json.dumps(contents)
