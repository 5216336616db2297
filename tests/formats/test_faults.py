"""How Anthropic's and Gemini's servers fail, and what clients of either format see of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anthropic
import httpx
import openai
import pytest
from support.heard import Taken, check_whole
from support.messages import MessageAnswer
from support.pairs import CLIENTS, FAMILIES, PAIRS, house

from router.core.continuation import Style
from router.core.events import ToolCall
from router.simulate import Dialect, Script, tokenize

TEXT: Final = "One is whole. Two is cut in the middle of it. Three comes later."
TALK: Final = Script(text=TEXT)
MIDST: Final = 8
"""Pieces after which the second sentence is cut."""
CALL: Final = ToolCall(index=0, id="call_1", name="pay", arguments='{"to": "Ada", "amount": 36}')
ACT: Final = Script(text="I pay.", tool_calls=(CALL,))
BEFORE_CALL: Final = len(tokenize(ACT.text))
PARAMETERS: Final = {"type": "object", "properties": {"amount": {"type": "integer"}}}
TOOLS: Final[Mapping[str, dict[str, Any]]] = {
    "chat": {
        "tools": [{"type": "function", "function": {"name": "pay", "parameters": PARAMETERS}}]
    },
    "messages": {"tools": [{"name": "pay", "input_schema": PARAMETERS}]},
}
ONCE: Final = {"retry": {"same_target": 0}, "max_attempts": 2}
"""Every target is asked once."""


def error_of(answer: Taken | httpx.Response) -> dict[str, Any]:
    """The error: in band, or as a response of its own, in the format's own shape."""
    if isinstance(answer, httpx.Response):
        body = answer.json()
        if answer.url.path.endswith("/messages"):
            assert set(body) == {"type", "error"}
            assert body["type"] == "error"
        else:
            assert set(body) == {"error"}
        found: dict[str, Any] = body["error"]
        return found
    assert answer.error is not None, answer.raw[-300:]
    return answer.error


def unfinished(answer: Taken) -> dict[str, Any]:
    """An answer that ends in an error, with nothing in it that could be taken for a success.

    Returns:
        The error.
    """
    assert answer.status == 200
    if isinstance(answer, MessageAnswer):
        assert answer.stop is None
        assert "message_stop" not in answer.names
    else:
        assert answer.finish_reasons == []
        assert answer.done == 0
    return error_of(answer)


def facts_of(answer: Taken) -> dict[str, Any]:
    """The failover metadata, which must be there."""
    assert answer.metadata is not None
    return answer.metadata


def faults_of(answer: Taken) -> list[str | None]:
    """Why each attempt ended."""
    return [one["fault"] for one in facts_of(answer)["attempts"]]


# -- before any output -----------------------------------------------------------------------------

UNSEEN: Final = [
    ("anthropic", "status=529", "status"),
    ("anthropic", "status=500", "status"),
    ("anthropic", "rate_limit,retry_after=30", "status"),
    ("anthropic", "unauthorized", "status"),
    ("anthropic", "no_model", "status"),
    ("anthropic", "error@0,status=529", "stream_error"),
    ("anthropic", "role_then_silence", "first_output_timeout"),
    ("anthropic", "done_only", "truncated"),
    ("anthropic", "no_finish@0", "truncated"),
    ("gemini", "status=503", "status"),
    ("gemini", "rate_limit,retry_after=30", "status"),
    ("gemini", "unauthorized", "status"),
    ("gemini", "no_model", "status"),
    ("gemini", "error@0,status=503", "stream_error"),
    ("gemini", "empty", "truncated"),
    ("gemini", "done_only", "truncated"),
    ("gemini", "finish_error@0", "stream_error"),
]


@pytest.mark.parametrize(("family", "fault", "seen_as"), UNSEEN)
async def test_a_failure_before_any_output_is_never_seen(
    family: str, fault: str, seen_as: str
) -> None:
    """The next provider gets the original question, whatever it speaks."""
    limits = {"timeouts": {"first_output_s": 0.1}} if "silence" in fault else {}
    second = [*FAMILIES][len(fault) % len(FAMILIES)]
    async with house(family, second, script=TALK, targets=[limits, {}], route=ONCE) as place:
        place.faults(fault)
        for client in CLIENTS:
            place.router.serving.engine.health.succeeded("p1/model-p1")  # a wrong key ejects it
            answer = await place.client(client).raw()
            check_whole(answer)
            assert answer.delivered == TEXT
            assert faults_of(answer) == [seen_as, None]
            assert place.last(1).style is None
            assert answer.headers["x-router-target"] == "p2/model-p2"


NOBODY: Final = {
    # what all providers answer: status of the answer, and Anthropic's word for it
    "status=500": (502, "api_error"),
    "status=529": (502, "api_error"),
    "rate_limit,retry_after=30": (429, "rate_limit_error"),
    "reset": (503, "overloaded_error"),
}


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_when_nobody_answers_it_is_a_status_and_an_error_of_the_format(
    client: str, family: str
) -> None:
    async with house(family, family, script=TALK, route=ONCE) as place:
        for turn, (fault, (status, word)) in enumerate(NOBODY.items()):
            place.faults(fault, fault)
            response = await place.client(client).post(stream=bool(turn % 2))
            error = error_of(response)
            assert response.status_code == status
            assert response.headers["x-should-retry"] == "false"
            assert error["code"] == "all_targets_failed"
            assert len(error["router"]["attempts"]) == 2
            if client == "messages":
                assert error["type"] == word
                assert response.headers["request-id"]
            # How long to wait stands in a header there, and in the body here.
            wait = response.headers.get("retry-after")
            assert wait == ("30" if "retry_after" in fault else None)
        heard = await place.client(client).stream()
        assert heard.failure["code"] == "all_targets_failed"


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_a_prompt_that_is_too_long(client: str, family: str) -> None:
    """Returned with the provider's reason, unless another target's window is larger."""
    async with house(family, "openai", script=TALK) as place:
        place.faults("context_length")
        response = await place.client(client).post(stream=True)
        error = error_of(response)
        assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
        assert client == "chat" or error["type"] == "invalid_request_error"
        assert place.asked(1) == 0
    windows = [{"context_window": 1_000}, {"context_window": 2_000}]
    async with house(family, "openai", script=TALK, targets=windows) as place:
        place.faults("context_length")
        answer = await place.client(client).raw()
        check_whole(answer)
        assert faults_of(answer) == ["context_length", None]


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_what_one_provider_will_not_say_nobody_else_is_asked(
    client: str, family: str
) -> None:
    """A refusal in mid-answer, an answer that is refused whole, a request that is refused."""
    async with house(family, "openai", script=TALK) as place:
        asker = place.client(client)
        for fault, said in ((f"filtered@{MIDST}", "One is whole. Two is cut in"), ("filtered", "")):
            place.faults(fault)
            heard, whole = await asker.stream(), await asker.whole()
            assert heard.content == whole.content == (said, "", [], ["content_filter"])
        place.faults("content_policy")
        heard = await asker.stream()
        assert isinstance(heard.error, openai.BadRequestError | anthropic.BadRequestError)
        assert place.asked(1) == 0


# -- in mid-answer ---------------------------------------------------------------------------------

BROKEN: Final = [
    ("anthropic", f"error@{MIDST},status=529", "stream_error"),
    ("anthropic", f"error@{MIDST},status=500", "stream_error"),
    ("anthropic", f"error@{MIDST},status=429", "stream_error"),
    ("anthropic", f"error_then_done@{MIDST},status=529", "stream_error"),
    ("anthropic", f"error@{MIDST},status=529,form=object", "stream_error"),
    ("anthropic", f"finish_error@{MIDST}", "stream_error"),
    ("anthropic", f"malformed@{MIDST}", "malformed"),
    ("anthropic", f"done_early@{MIDST}", "truncated"),
    ("anthropic", f"no_finish@{MIDST}", "truncated"),
    ("gemini", f"error@{MIDST},status=503", "stream_error"),
    ("gemini", f"error@{MIDST},status=429", "stream_error"),
    ("gemini", f"error@{MIDST},status=500,form=choices", "stream_error"),
    ("gemini", f"finish_error@{MIDST}", "stream_error"),
    ("gemini", f"finish_error@{MIDST},reason=MALFORMED_RESPONSE", "stream_error"),
    ("gemini", f"malformed@{MIDST}", "malformed"),
    ("gemini", f"no_finish@{MIDST}", "truncated"),
]


@pytest.mark.parametrize(("family", "fault", "seen_as"), BROKEN)
async def test_a_failure_in_mid_answer_is_gone_on_from(
    family: str, fault: str, seen_as: str
) -> None:
    second = [*FAMILIES][len(fault) % len(FAMILIES)]
    async with house(family, second, script=TALK, route=ONCE) as place:
        for client in CLIENTS:
            place.faults(fault, None)
            answer = await place.client(client).raw()
            check_whole(answer)
            assert answer.delivered == TEXT
            assert faults_of(answer) == [seen_as, None]
            (failover,) = facts_of(answer)["failovers"]
            assert failover["committed_chars"] == len("One is whole.")
            place.faults(fault, "status=500")
            answer = await place.client(client).raw()
            assert unfinished(answer)["code"] == "stream_interrupted"
            assert answer.delivered == "One is whole. Two is cut in"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("client", CLIENTS)
async def test_an_empty_continuation(client: str, family: str) -> None:
    """It is the end where nothing was pending, and a fault of its own where a sentence was."""
    async with house("openai", family, "openai", script=TALK) as place:
        place.faults(f"cut@{MIDST}", "empty")
        answer = await place.client(client).raw()
        check_whole(answer)
        assert answer.delivered == TEXT
        assert faults_of(answer) == ["cut", "truncated", None]
    endless = "a" * 60 + " "  # what has no sentence end is committed at white space
    route = {"max_pending_chars": 50}
    script = Script(text=endless)
    async with house("openai", family, "openai", script=script, route=route) as place:
        place.faults(f"no_finish@{len(tokenize(endless))}", "empty")
        answer = await place.client(client).raw()
        check_whole(answer)
        assert answer.delivered == endless
        assert faults_of(answer) == ["truncated", None]
        assert place.asked(2) == 0


@pytest.mark.parametrize(
    ("family", "model"), [("anthropic", "claude-opus-4-7"), ("gemini", "gemini-3.6-flash")]
)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_prefix_is_refused_once(client: str, family: str, model: str) -> None:
    """The client never sees that 400, and the next stream asks in words at once."""
    tail = {"model": model, "continuation": {"style": "assistant_tail"}}
    async with house("openai", family, script=TALK, targets=[{}, tail]) as place:
        place.faults(f"cut@{MIDST}")
        for asked in (2, 3):
            answer = await place.client(client).raw()
            check_whole(answer)
            assert answer.delivered == TEXT
            assert place.asked(1) == asked
        styles = [record.style for record in place.providers[1].requests]
        assert styles == [Style.ASSISTANT_TAIL, Style.INSTRUCT, Style.INSTRUCT]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_finish_that_was_seen_is_an_end(client: str, family: str) -> None:
    for fault in ("no_done", "cut_after_finish"):
        async with house(family, "openai", script=TALK) as place:
            place.faults(fault)
            answer = await place.client(client).raw()
            check_whole(answer)
            assert answer.delivered == TEXT
            assert answer.metadata is None
            assert place.asked(1) == 0


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_turn_that_pauses_is_to_be_gone_on_with(client: str) -> None:
    """Anthropic's `pause_turn`: who speaks Messages is told so, to others it is cut short."""
    async with house("anthropic", "openai", script=TALK) as place:
        place.providers[0].manner.dialect = Dialect(finish_word="pause_turn")
        heard = await place.client(client).stream()
    assert heard.words == {"chat": ["length"], "messages": ["pause_turn"]}[client]
    assert heard.delivered == TEXT
    assert place.asked(1) == 0


# -- tool calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_after_a_call_nobody_else_is_asked(client: str, family: str, *, stream: bool) -> None:
    """Gemini's calls come whole, so there the stream is cut behind one."""
    async with house(family, "anthropic", script=ACT) as place:
        asker = place.client(client)
        for fault in ("cut", "rst", "no_finish"):
            place.faults(f"{fault}@{BEFORE_CALL + (1 if family == 'gemini' else 3)}")
            if stream:
                answer = await asker.raw(**TOOLS[client])
                error = unfinished(answer)
                if isinstance(answer, MessageAnswer):
                    assert answer.blocks[-1].kind == "tool_use"
                    assert not answer.blocks[-1].stopped  # no helper takes it for whole
            else:
                response = await asker.post(**TOOLS[client])
                assert response.status_code == 502
                error = error_of(response)
            assert error["code"] == "tool_call_interrupted"
            assert "pay" in error["message"]
        heard = await asker.stream(**TOOLS[client])
        assert heard.failure["code"] == "tool_call_interrupted"
        assert heard.words == []
        assert place.asked(1) == 0
        assert place.asked() == 4


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_a_call_that_is_held_until_it_is_whole_can_be_asked_for_again(
    client: str, family: str
) -> None:
    """`tool_calls: atomic`: what was not delivered did not happen; once it is out, it did."""
    whole = BEFORE_CALL + 1
    cut = BEFORE_CALL
    if family != "gemini":  # whose calls come in one piece
        whole, cut = whole + len(tokenize(CALL.arguments)), cut + 3
    second = [*FAMILIES][PAIRS.index((client, family)) % len(FAMILIES)]
    async with house(family, second, script=ACT, route={"tool_calls": "atomic"}) as place:
        place.faults(f"cut@{cut}")
        heard = await place.client(client).stream(**TOOLS[client])
        assert heard.error is None
        calls = [("call_1", "pay", {"to": "Ada", "amount": 36})]
        assert heard.content == ("I pay.", "", calls, ["tool_calls"])
        assert (place.asked(), place.asked(1)) == (1, 1)
        place.faults(f"no_finish@{whole}")
        heard = await place.client(client).stream(**TOOLS[client])
        assert heard.failure["code"] == "tool_call_interrupted"
        assert (place.asked(), place.asked(1)) == (2, 1)
