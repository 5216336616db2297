"""Every client format with every provider's: what is asked for arrives, and so does the answer.

What a provider was asked is read from its records, what a client got through its own SDK; the
stream and the blocking answer must say the same.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from support.heard import QUESTION
from support.pairs import FAMILIES, OWN, PAIRS, House, both, house
from support.received import Received, received

from router.core.events import ToolCall
from router.simulate import Script, tokenize
from router.simulate.seals import seal
from router.wire.anthropic.conversation import DEFAULT_MAX_TOKENS
from router.wire.anthropic.signature import UNSIGNED_SIGNATURE_PREFIX

Request = dict[str, Any]

PNG: Final = base64.b64encode(b"\x89PNG\r\n\x1a\n and a picture").decode()
PICTURE_URL: Final = "https://example.com/cat.png"
THOUGHT: Final = "Two and two. Hmm, let me see."
CALLS: Final = (
    ToolCall(index=0, id="call_a", name="pay", arguments='{"to": "Zoë 😀", "amount": 36}'),
    ToolCall(index=1, id="call_b", name="look", arguments='{"at": ["x", {"y": null}]}'),
)
PARAMETERS: Final = {"type": "object", "properties": {"to": {"type": "string"}}}


def tool(client: str, name: str) -> dict[str, Any]:
    """A tool, as a client says it."""
    if client == "chat":
        inner = {"name": name, "description": f"To {name}.", "parameters": PARAMETERS}
        return {"type": "function", "function": inner}
    return {"name": name, "description": f"To {name}.", "input_schema": PARAMETERS}


TOOLS: Final = {name: (f"To {name}.", PARAMETERS) for name in ("pay", "look")}


def tools(client: str) -> list[dict[str, Any]]:
    """Both of them."""
    return [tool(client, name) for name in TOOLS]


def budget(client: str, family: str) -> int | None:
    """The answer's budget where nobody says anything of it."""
    if client == "messages":
        return 4_096
    return DEFAULT_MAX_TOKENS if family == "anthropic" else None


def asked(place: House, provider: int = 0) -> Received:
    """What a provider was asked last."""
    return received(place.last(provider))


# -- text ------------------------------------------------------------------------------------------

TALK: Final[Mapping[str, Request]] = {
    "chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": [{"type": "text", "text": "More “quotes”, Zoë 😀."}]},
        ],
        "temperature": 0.25,
        "top_p": 0.5,
        "max_completion_tokens": 300,
        "stop": ["<END>", "\n\nHuman:"],
        "user": "u-17",
    },
    "messages": {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": [{"type": "text", "text": "Yes?"}]},
            {"role": "user", "content": "More “quotes”, Zoë 😀."},
        ],
        "temperature": 0.25,
        "top_p": 0.5,
        "max_tokens": 300,
        "stop_sequences": ["<END>", "\n\nHuman:"],
        "metadata": {"user_id": "u-17"},
    },
}
ANSWER: Final = (
    "It is 7 p.m. in Zürich. 🌊 “Well”, he said.\n\n```python\nfor x in y:\n    pass\n```\n"
)


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_a_conversation(client: str, family: str) -> None:
    async with house(family, script=Script(text=ANSWER)) as place:
        heard = await both(place, client, TALK[client])
    assert heard.content == (ANSWER, "", [], ["stop"])
    assert heard.usage is not None
    assert heard.usage[1] == len(tokenize(ANSWER))
    assert asked(place) == Received(
        system="Be brief.",
        turns=[
            ("user", [("text", "Hi.")]),
            ("assistant", [("text", "Yes?")]),
            ("user", [("text", "More “quotes”, Zoë 😀.")]),
        ],
        sampling={"temperature": 0.25, "top_p": 0.5},
        max_tokens=300,
        stop=["<END>", "\n\nHuman:"],
        user="" if family == "gemini" else "u-17",
    )


async def test_the_prompt_costs_the_same_in_every_format() -> None:
    counted = set()
    for client, family in PAIRS:
        async with house(family, script=Script(text="Yes.")) as place:
            counted.add((await place.client(client).stream(**TALK[client])).usage)
    assert len(counted) == 1


async def test_what_came_from_a_cache_is_counted_apart() -> None:
    """The whole prompt is `prompt_tokens` there; here it is the sum of three."""
    marked = {"type": "text", "text": "A long text.", "cache_control": {"type": "ephemeral"}}
    messages = [{"role": "user", "content": [marked, {"type": "text", "text": "And?"}]}]
    async with house("anthropic", "openai", script=Script(text="Yes.")) as place:
        heard = await both(place, "messages", {"messages": messages})
        assert heard.usage is not None
        assert heard.cached
        assert place.last().body["messages"][0]["content"][0] == marked
        place.faults("status=500")
        elsewhere = await place.messages.stream(messages=messages)
    assert elsewhere.error is None
    assert asked(place, 1).turns == [("user", [("text", "A long text.\n\nAnd?")])]


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_a_stop_sequence(client: str, family: str) -> None:
    script = Script(text="One two STOP three.")
    name = {"chat": "stop", "messages": "stop_sequences"}[client]
    async with house(family, script=script) as place:
        heard = await both(place, client, {name: ["STOP"]})
    assert heard.content == ("One two ", "", [], ["stop"])
    # Only Anthropic says which one it was, and only Messages has a place for it.
    tells = (client, family) == ("messages", "anthropic")
    assert heard.matched == ("STOP" if tells else None)
    assert asked(place).stop == ["STOP"]


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_the_answers_budget(client: str, family: str) -> None:
    async with house(family, script=Script(text="One two three four five six.")) as place:
        heard = await both(place, client, {"max_tokens": 3})
    assert heard.content == ("One two three", "", [], ["length"])
    assert heard.usage is not None
    assert heard.usage[1] == 3
    assert asked(place).max_tokens == 3


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_a_filter(client: str, family: str) -> None:
    async with house(family, family, script=Script(text="One two three four.")) as place:
        place.faults("filtered@2")
        heard = await place.client(client).stream()
        whole = await place.client(client).whole()
        assert heard.content == whole.content == ("One two", "", [], ["content_filter"])
        assert place.asked(1) == 0  # nobody else is asked to say what one would not


# -- tools -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_calls_and_their_results(client: str, family: str) -> None:
    """Two calls at once behind some text; their results go back, one of them a failure."""
    first = Script(text="Let me see.", tool_calls=CALLS)
    async with house(family, script=first) as place:
        heard = await both(place, client, {"tools": tools(client)})
        text, _, calls, finishes = heard.content
        assert (text, finishes) == ("Let me see.", ["tool_calls"])
        assert calls == [(c.id, c.name, json.loads(c.arguments)) for c in CALLS]
        assert asked(place).tools == TOOLS
        place.providers[0].manner.script = Script(text="Done.")
        history = [
            {"role": "user", "content": QUESTION},
            heard.message,
            *results(client, {"call_a": "paid", "call_b": "no such thing"}, failed="call_b"),
        ]
        again = await both(place, client, {"tools": tools(client), "messages": history})
    assert again.content == ("Done.", "", [], ["stop"])
    told = "failed" if client == "messages" and family != "openai" else "result"
    words = {"failed": "no such thing", "result": "Error: no such thing"}[told]
    assert asked(place).turns == [
        ("user", [("text", QUESTION)]),
        (
            "assistant",
            [
                ("text", "Let me see."),
                ("call", "call_a", "pay", {"to": "Zoë 😀", "amount": 36}),
                ("call", "call_b", "look", {"at": ["x", {"y": None}]}),
            ],
        ),
        ("user", [("result", "call_a", "paid"), (told, "call_b", words)]),
    ]


def results(client: str, said: Mapping[str, str], *, failed: str) -> list[dict[str, Any]]:
    """What some calls brought, as a client says it."""
    if client == "chat":
        words = {id_: f"Error: {one}" if id_ == failed else one for id_, one in said.items()}
        return [{"role": "tool", "tool_call_id": id_, "content": words[id_]} for id_ in said]
    blocks = [
        {"type": "tool_result", "tool_use_id": id_, "content": one, "is_error": id_ == failed}
        for id_, one in said.items()
    ]
    return [{"role": "user", "content": blocks}]


CHOICES: Final[Mapping[str, Mapping[str, Any]]] = {
    "auto": {"chat": "auto", "messages": {"type": "auto"}},
    "none": {"chat": "none", "messages": {"type": "none"}},
    "required": {"chat": "required", "messages": {"type": "any"}},
    "pay": {
        "chat": {"type": "function", "function": {"name": "pay"}},
        "messages": {"type": "tool", "name": "pay"},
    },
}


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_a_choice_of_tools(client: str, family: str) -> None:
    async with house(family, script=Script(text="", tool_calls=CALLS[:1])) as place:
        for choice, said in CHOICES.items():
            request = {"tools": tools(client), "tool_choice": said[client]}
            heard = await both(place, client, request)
            assert heard.content[2] == [("call_a", "pay", {"to": "Zoë 😀", "amount": 36})]
            assert asked(place).choice == choice
            assert asked(place).max_tokens == budget(client, family)


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_one_call_at_a_time(client: str, family: str) -> None:
    request: Request = {"tools": tools(client)}
    if client == "chat":
        request["parallel_tool_calls"] = False
    else:
        request["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    async with house(family, script=Script(text="No.")) as place:
        heard = await place.client(client).stream(**request)
        if family == "gemini":  # which cannot be told
            assert heard.failure["code"] == "unsupported_parameter"
            assert place.asked() == 0
        else:
            assert heard.content == ("No.", "", [], ["stop"])
            assert asked(place).parallel is False


# -- pictures --------------------------------------------------------------------------------------

PICTURES: Final[Mapping[str, Sequence[dict[str, Any]]]] = {
    "chat": (
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image_url", "image_url": {"url": PICTURE_URL}},
    ),
    "messages": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": PICTURE_URL}},
    ),
}


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_pictures(client: str, family: str) -> None:
    content = [{"type": "text", "text": "What is it?"}, *PICTURES[client]]
    async with house(family, script=Script(text="A cat.")) as place:
        heard = await both(place, client, {"messages": [{"role": "user", "content": content}]})
    assert heard.delivered == "A cat."
    shown = [("text", "What is it?"), ("image", "image/png", PNG), ("image", PICTURE_URL)]
    assert asked(place).turns == [("user", shown)]


# -- reasoning -------------------------------------------------------------------------------------

THINK: Final[Mapping[str, Request]] = {
    "chat": {"reasoning_effort": "high"},
    "messages": {"thinking": {"type": "enabled", "budget_tokens": 2_048}},
}


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_reasoning_is_forwarded_and_never_handed_to_another_format(
    client: str, family: str
) -> None:
    script = Script(text="Four.", reasoning=THOUGHT)
    async with house(family, script=script) as place:
        heard = await both(place, client, THINK[client])
        assert heard.content == ("Four.", THOUGHT, [], ["stop"])
        assert asked(place).thinking
        own = (client, family) == ("messages", "anthropic")
        if client == "messages":
            assert heard.signatures == [seal(THOUGHT) if own else UNSIGNED_SIGNATURE_PREFIX]
        history = [
            {"role": "user", "content": QUESTION},
            heard.message,
            {"role": "user", "content": "And?"},
        ]
        again = await both(place, client, {**THINK[client], "messages": history})
    assert again.content == ("Four.", THOUGHT, [], ["stop"])
    answered = [part for role, parts in asked(place).turns if role == "assistant" for part in parts]
    thought = [part for part in answered if part[0] == "thought"]
    assert [part for part in answered if part[0] != "thought"] == [("text", "Four.")]
    if OWN[client] != family:
        assert thought == []
        assert THOUGHT.encode() not in place.last().raw
    elif own:
        assert thought == [("thought", THOUGHT, seal(THOUGHT))]


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_thought_that_nobody_signed_goes_to_nobody(family: str) -> None:
    """It was another provider's; Anthropic would refuse it, and others have no use for it."""
    script = Script(text="Four.", reasoning=THOUGHT)
    async with house("openai", family, script=script) as place:
        heard = await place.messages.stream(**THINK["messages"])
        assert heard.signatures == [UNSIGNED_SIGNATURE_PREFIX]
        history = [
            {"role": "user", "content": QUESTION},
            heard.message,
            {"role": "user", "content": "And?"},
        ]
        place.faults("status=500")
        again = await place.messages.stream(**THINK["messages"], messages=history)
    assert again.content == ("Four.", THOUGHT, [], ["stop"])
    assert place.asked(1) == 1
    assert THOUGHT.encode() not in place.last(1).raw
    assert UNSIGNED_SIGNATURE_PREFIX.encode() not in place.last(1).raw


NOT_ASKED: Final[Mapping[str, Request]] = {
    "chat": {"reasoning_effort": "none"},
    "messages": {"thinking": {"type": "disabled"}},
}


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_thinking_is_switched_off_where_there_is_a_word_for_it(
    client: str, family: str
) -> None:
    async with house(family, script=Script(text="Four.", reasoning=THOUGHT)) as place:
        answer = await place.client(client).raw(**NOT_ASKED[client])
        off = {
            "openai": {"reasoning_effort": "none"} if client == "chat" else {},
            "anthropic": {} if client == "chat" else {"type": "disabled"},
            "gemini": {"thinkingLevel": "MINIMAL"},
        }
        assert asked(place).thinking == off[family]
        told = answer.headers.get("x-router-dropped", "")
        assert told == ("thinking" if (client, family) == ("messages", "openai") else "")
