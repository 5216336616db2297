"""What a request asks and another format cannot say: a target is passed over for it, or is asked
without it and the client is told; nothing is lost in silence."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anthropic
import openai
import pytest
from support.heard import QUESTION, check_whole
from support.pairs import CLIENTS, FAMILIES, OWN, house

from router.simulate import Script

TALK: Final = Script(text="One is whole. Two is cut in the middle of it.")
MIDST: Final = 8
ASKED: Final = {"role": "user", "content": QUESTION}
PDF: Final = "JVBERi0xLjQK"
PARAMETERS: Final = {"type": "object", "properties": {"to": {"type": "string"}}}
DROP: Final = {"unsupported": "drop"}


def said(*content: Mapping[str, Any]) -> dict[str, Any]:
    """A question with more than text in it."""
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, *content]}]}


@dataclass(frozen=True, kw_only=True)
class Field:
    """Something that a request asks.

    Args:
        name: for messages.
        client: whose format says it.
        request: what it says.
        param: how the client is told of it.
        words: what must be nowhere in a request that was sent without it.
        to: families that cannot be told; others of another format can.
    """

    name: str
    client: str
    request: Mapping[str, Any]
    param: str
    words: str
    to: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.client}-{self.name}"


BOTH: Final[Mapping[str, tuple[str, ...]]] = {
    client: tuple(family for family in FAMILIES if family != own) for client, own in OWN.items()
}


def field(
    client: str,
    param: str,
    request: Mapping[str, Any],
    words: str = "",
    *,
    to: tuple[str, ...] = (),
) -> Field:
    """One, named by its path."""
    name = param.replace("[", ".").replace("]", "")
    return Field(
        name=name,
        client=client,
        request=request,
        param=param,
        words=words or param.partition(".")[0].partition("[")[0],
        to=to or BOTH[client],
    )


CUSTOM_TOOL: Final = {"type": "custom", "custom": {"name": "shell", "description": "Free text."}}
FUNCTION: Final = {"type": "function", "function": {"name": "pay", "parameters": PARAMETERS}}
SEARCH: Final = {"type": "web_search_20250305", "name": "web_search"}
CITED: Final = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
    "citations": {"enabled": True},
}
STORED: Final = {"type": "image", "source": {"type": "file", "file_id": "file_17"}}
MODAL: Final = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
DEMANDS: Final = [
    field("chat", "logit_bias", {"logit_bias": {"50256": -100}}),
    field("chat", "modalities", MODAL),
    field("chat", "prediction", {"prediction": {"type": "content", "content": "x = 1"}}),
    field("chat", "web_search_options", {"web_search_options": {}}),
    field("chat", "verbosity", {"verbosity": "low"}),
    field("chat", "tomorrow", {"tomorrow": {"deep": [1]}}),
    field("chat", "n", {"n": 2}, '"n":', to=("anthropic",)),
    field("chat", "logprobs", {"logprobs": True, "top_logprobs": 2}, to=("anthropic",)),
    field("chat", "tools[1]", {"tools": [FUNCTION, CUSTOM_TOOL]}, "shell"),
    field(
        "chat",
        "parallel_tool_calls",
        {"tools": [FUNCTION], "parallel_tool_calls": False},
        to=("gemini",),
    ),
    field("chat", "stop", {"stop": ["END", "\n\n"]}, r"\n\n", to=("anthropic",)),
    field("messages", "tools[0]", {"tools": [SEARCH]}, "web_search"),
    field("messages", "container", {"container": "box_17"}, "box_17"),
    field("messages", "inference_geo", {"inference_geo": "eu"}),
    field("messages", "tomorrow", {"tomorrow": {"deep": [1]}}),
    field("messages", "messages[0].content[1].citations", said(CITED), "citations"),
    field("messages", "messages[0].content[1].source", said(STORED), "file_17"),
]
"""What changes the answer."""


MARKED: Final = {"type": "text", "text": "Be.", "cache_control": {"type": "ephemeral"}}
HINTS: Final = [
    field("chat", "store", {"store": True}),
    field("chat", "service_tier", {"service_tier": "flex"}),
    field("chat", "prompt_cache_key", {"prompt_cache_key": "k-17"}),
    field("chat", "metadata", {"metadata": {"a": "b"}}),
    field("chat", "seed", {"seed": 7}, to=("anthropic",)),
    field("chat", "presence_penalty", {"presence_penalty": 0.5}, to=("anthropic",)),
    field("chat", "temperature", {"temperature": 1.5}, "1.5", to=("anthropic",)),
    field("chat", "user", {"user": "u-17"}, "u-17", to=("gemini",)),
    field("chat", "messages[0].name", {"messages": [{**ASKED, "name": "Zoe"}]}, "Zoe"),
    field("messages", "system[0].cache_control", {"system": [MARKED]}, "cache_control"),
    field("messages", "top_k", {"top_k": 5}, to=("openai",)),
    field("messages", "service_tier", {"service_tier": "auto"}),
    field("messages", "metadata.user_id", {"metadata": {"user_id": "u-17"}}, to=("gemini",)),
]
"""What the answer is as good without."""


PAIRS: Final = [(client, family) for client in CLIENTS for family in BOTH[client]]
"""A client's format, and a family that speaks another."""


def those(fields: Iterable[Field], client: str, family: str) -> list[Field]:
    """What a client may say and a family cannot be told; some of it there must be."""
    found = [one for one in fields if one.client == client and family in one.to]
    assert found
    return found


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_refused_where_no_target_can_be_told(client: str, family: str) -> None:
    async with house(family, script=TALK) as place:
        asker = place.client(client)
        for turn, asked in enumerate(those(DEMANDS, client, family)):
            response = await asker.post(stream=bool(turn % 2), **asked.request)
            assert response.status_code == 400, asked
            error = response.json()["error"]
            assert error["code"] == "unsupported_parameter", asked
            assert error["param"] == asked.param
            assert "unsupported: drop" in error["message"]
            heard = await asker.stream(extra_body=dict(asked.request))
            assert isinstance(heard.error, openai.BadRequestError | anthropic.BadRequestError)
        assert place.asked() == 0


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_passed_over_where_another_target_can_be_told(client: str, family: str) -> None:
    """Before the first output, and when an answer is to be gone on with."""
    own = OWN[client]
    async with house(family, own, family, own, script=TALK, route={"max_attempts": 3}) as place:
        for asked in those(DEMANDS, client, family):
            if str(asked) == "messages-tomorrow":
                continue  # which nobody knows, and Anthropic refuses
            place.faults(None, f"cut@{MIDST}")
            before = place.asked(1)
            answer = await place.client(client).raw(**asked.request)
            if asked.param not in {"n", "logprobs"}:  # which nobody can go on with
                check_whole(answer)
                assert answer.delivered == TALK.text, asked
            assert answer.headers["x-router-target"] == "p2/model-p2", asked
            assert "x-router-dropped" not in answer.headers
            assert place.asked(1) == before + 1
            body = place.last(1).body
            assert {name: body[name] for name in asked.request} == dict(asked.request)
        assert (place.asked(0), place.asked(2)) == (0, 0)
        assert place.asked(3)


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_dropped_where_the_route_says_so(client: str, family: str) -> None:
    async with house(family, script=TALK, route=DROP) as place:
        for asked in those(DEMANDS, client, family):
            answer = await place.client(client).raw(**asked.request)
            check_whole(answer)
            assert answer.delivered == TALK.text
            dropped = answer.headers["x-router-dropped"]
            assert asked.param in names(dropped)
            assert asked.words.encode() not in place.last().raw, asked
            whole = await place.client(client).post(**asked.request)
            assert whole.headers["x-router-dropped"] == dropped


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_hint_is_left_out_and_told(
    client: str, family: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The target is asked without it, whatever the route says; the log has a line for it."""
    async with house(family, script=TALK) as place:
        for asked in HINTS:
            if asked.client != client:
                continue
            caplog.clear()
            with caplog.at_level(logging.INFO, "router.api"):
                answer = await place.client(client).raw(**asked.request)
            check_whole(answer)
            lines = [one.getMessage() for one in caplog.records if "is not told" in one.message]
            if family in asked.to:
                assert names(answer.headers["x-router-dropped"]) == [asked.param]
                assert asked.words.encode() not in place.last().raw, asked
                (line,) = lines
                assert asked.param in line
            else:
                assert "x-router-dropped" not in answer.headers, asked
                assert lines == []


def names(header: str) -> list[str]:
    """The fields of such a header."""
    return header.split(", ")


async def test_the_header_speaks_of_who_answered() -> None:
    """Each target is told what it can be told."""
    asked: dict[str, Any] = {"seed": 7, "user": "u-17", "logit_bias": {"1": 2}}
    want = {"anthropic": ["logit_bias", "seed"], "gemini": ["logit_bias", "user"]}
    for first, second in (("anthropic", "gemini"), ("gemini", "anthropic")):
        route = {**DROP, "retry": {"same_target": 0}}
        async with house(first, second, "openai", script=TALK, route=route) as place:
            answer = await place.chat.raw(**asked)
            assert names(answer.headers["x-router-dropped"]) == want[first]
            place.faults("status=500")
            answer = await place.chat.raw(**asked)
            assert names(answer.headers["x-router-dropped"]) == want[second]
            place.faults("status=500", "status=500")
            answer = await place.chat.raw(**asked)
            assert "x-router-dropped" not in answer.headers
            assert place.last(2).body["logit_bias"] == {"1": 2}


async def test_a_wrong_request_is_refused_before_anyone_is_asked() -> None:
    """What only shows when a request is translated, in the client's own words."""
    orphan = {"role": "tool", "tool_call_id": "call_9", "content": "paid"}
    bad: Mapping[str, dict[str, Any]] = {
        "messages[1].tool_call_id": {"messages": [ASKED, orphan]},
        "messages[0].content[1].image_url.url": said(
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}}
        ),
    }
    for family in ("anthropic", "gemini"):
        async with house(family, script=TALK) as place:
            for param, request in bad.items():
                response = await place.chat.post(**request)
                assert response.status_code == 400
                assert response.json()["error"]["param"] == param
            assert place.asked() == 0


async def test_a_client_is_told_who_could_not_be_asked(caplog: pytest.LogCaptureFixture) -> None:
    """A failover that was not possible, because of the client's own words."""
    caplog.set_level(logging.INFO, logger="router.api")
    biased: dict[str, Any] = {"logit_bias": {"50256": -100}}
    async with house("openai", "anthropic", "gemini", script=TALK) as place:
        place.faults("status=503")
        response = await place.chat.post(**biased)
        error = response.json()["error"]
        place.faults(f"cut@{MIDST}")
        heard = await place.chat.stream(extra_body=biased)
        assert (place.asked(1), place.asked(2)) == (0, 0)
    assert (response.status_code, error["code"]) == (502, "all_targets_failed")
    for message in (error["message"], str(heard.error)):
        for name in ("p2/model-p2", "p3/model-p3"):
            assert f"'{name}' (logit_bias)" in message
    stream_id = error["router"]["stream_id"]
    assert any(stream_id in line and "logit_bias" in line for line in caplog.messages)


OPUS, SONNET = {"model": "claude-opus-4-8"}, {"model": "claude-sonnet-4-5"}


@pytest.mark.parametrize(
    ("targets", "asked", "dropped"),
    [
        ([OPUS, SONNET], {"thinking": {"type": "adaptive"}, "max_tokens": 4000}, ""),
        ([SONNET, OPUS], {"temperature": 0.3}, "temperature"),
    ],
)
async def test_another_claude_is_not_asked_in_words_that_were_right_for_the_first(
    targets: list[dict[str, str]], asked: dict[str, Any], dropped: str
) -> None:
    """What only one of them takes must not end a failover; the first target is asked as ever."""
    (word, value), *_ = asked.items()
    async with house("anthropic", "anthropic", script=TALK, targets=targets) as place:
        place.faults("status=529")
        answer = await place.messages.raw(**asked)
        check_whole(answer)
        assert answer.delivered == TALK.text
        assert place.last(0).body[word] == value
        assert place.last(1).body.get(word) != value
        assert answer.headers["x-router-target"] == f"p2/{targets[1]['model']}"
        assert answer.headers.get("x-router-dropped", "") == dropped
        place.faults(None)
        first = await place.messages.raw(**asked)
        assert (first.headers["x-router-target"], place.last(0).body[word]) == (
            f"p1/{targets[0]['model']}",
            value,
        )
        assert "x-router-dropped" not in first.headers


@pytest.mark.parametrize("client", CLIENTS)
async def test_nobody_goes_unasked_so_that_one_is_asked_twice(client: str) -> None:
    async with house("anthropic", "gemini", "openai", script=TALK) as place:
        place.faults("status=503", "status=503")
        answer = await place.client(client).raw()
        check_whole(answer)
        assert answer.delivered == TALK.text
        assert [place.asked(at) for at in range(3)] == [2, 1, 1]


async def test_more_targets_than_usual_all_have_their_turn() -> None:
    async with house(*["openai"] * 6, script=TALK) as place:
        place.faults(*["status=503"] * 5)
        answer = await place.chat.raw()
        assert answer.delivered == TALK.text
        assert [place.asked(at) for at in range(6)] == [1] * 6


@pytest.mark.parametrize(("client", "family"), [("chat", "anthropic"), ("messages", "openai")])
async def test_a_long_name_is_not_given_back_whole(client: str, family: str) -> None:
    unknown: dict[str, Any] = {"x" * 100_000: 1}
    async with house(family, script=TALK) as place:
        response = await place.client(client).post(**unknown)
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("xxx")
    assert len(response.content) < 3_000
