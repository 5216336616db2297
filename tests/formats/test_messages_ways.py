"""What a client of either format may choose, and what it sees while it waits, through providers of
other formats: signs of life, coming back, `partial`, `restart`, ids."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import httpx
import pytest
from support.clock import FakeClock
from support.heard import Taken, check_whole
from support.messages import MessageAnswer, read_messages
from support.pairs import CLIENTS, FAMILIES, House, house

from router.api.sinks import KEEPALIVE_COMMENT_S
from router.core.events import ToolCall
from router.simulate import Script, tokenize

TEXT: Final = "One is whole. Two is cut in the middle of it. Three comes later."
TALK: Final = Script(text=TEXT)
MIDST: Final = 8
"""Pieces after which the second sentence is cut."""
BEGUN: Final = "".join(tokenize(TEXT)[:MIDST])
ONCE: Final = {"retry": {"same_target": 0}, "max_attempts": 2}
"""Every target is asked once."""
OTHERS: Final = [("anthropic", "gemini"), ("gemini", "openai"), ("openai", "anthropic")]
NAMED: Final = {"x-router-events": "named"}


def facts_of(answer: Taken) -> dict[str, Any]:
    """The failover metadata, which must be there."""
    assert answer.metadata is not None
    return answer.metadata


def signs_of_life(answer: Taken) -> int:
    """How many there are, all of them before the answer."""
    if isinstance(answer, MessageAnswer):
        names = [name for name, _ in answer.events]
        count = names.count("ping")
        assert names[:count] == ["ping"] * count
        return count
    assert set(answer.comments) <= {": waiting"}
    return len(answer.comments)


# -- while the client waits ------------------------------------------------------------------------


@pytest.mark.parametrize("families", OTHERS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_long_wait_is_told_in_the_words_of_the_format(
    client: str, families: tuple[str, str]
) -> None:
    clock = FakeClock()
    async with house(
        *families,
        script=TALK,
        targets=[{"timeouts": {"first_output_s": 2.5 * KEEPALIVE_COMMENT_S}}, {}],
        route=ONCE,
        clock=clock,
        server={"commit_headers_after_s": 1},
    ) as place:
        asker = place.client(client)
        assert (await asker.stream()).error is None  # an SDK's first request asks other threads
        place.faults("silent", None)
        answer = await clock.run(asker.raw())
        check_whole(answer)
        assert answer.delivered == TEXT
        assert signs_of_life(answer) == 3
        assert "x-router-target" not in answer.headers  # nobody had spoken yet
        place.faults("silent", None)
        heard = await clock.run(asker.stream())
        assert heard.content == (TEXT, "", [], ["stop"])


@pytest.mark.parametrize("families", OTHERS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_when_nobody_answers_after_a_long_wait_it_is_told_in_band(
    client: str, families: tuple[str, str]
) -> None:
    clock = FakeClock()
    async with house(
        *families, script=TALK, route=ONCE, clock=clock, server={"commit_headers_after_s": 1}
    ) as place:
        asker = place.client(client)
        assert (await asker.stream()).error is None  # as above
        place.faults("silent", "status=529")
        answer = await clock.run(asker.raw())
        assert answer.status == 200
        assert signs_of_life(answer) == 2
        assert answer.error is not None
        assert answer.error["code"] == "all_targets_failed"
        assert answer.delivered == ""
        place.faults("silent", "status=529")
        heard = await clock.run(asker.stream())
        assert heard.failure["code"] == "all_targets_failed"
        assert heard.words == []


# -- coming back -----------------------------------------------------------------------------------


def back(headers: Mapping[str, str], received: int) -> dict[str, str]:
    """What is sent by who comes back for a stream."""
    return {
        "x-router-resume": headers["x-router-stream-id"],
        "x-router-part": headers["x-router-part"],
        "x-router-received": str(received),
    }


async def interrupted(place: House, client: str, **fields: Any) -> Taken:  # noqa: ANN401 - of a request
    """A stream that breaks off in its second sentence, and then everybody is well again."""
    place.faults(f"cut@{MIDST}", "status=500")
    answer = await place.client(client).raw(**fields)
    assert answer.error is not None
    assert answer.error["code"] == "stream_interrupted"
    assert answer.delivered == BEGUN
    place.faults(None, None)
    return answer


@pytest.mark.parametrize("families", OTHERS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_coming_back(client: str, families: tuple[str, str]) -> None:
    """Once byte by byte, once through the SDK: the answer goes on, in one stream's name."""
    async with house(*families, script=TALK, route=ONCE) as place:
        asker = place.client(client)
        first = await interrupted(place, client)
        second = await asker.raw(back(first.headers, len(BEGUN)))
        check_whole(second)
        start = int(second.headers["x-router-resume-from"])
        assert 0 < start <= len(BEGUN)
        assert first.delivered[:start] + second.delivered == TEXT
        assert facts_of(second)["resumed_from"] == start
        assert id_of(first) == id_of(second)
        assert second.headers["x-router-part"] != first.headers["x-router-part"]
        place.faults(f"cut@{MIDST}", "status=500")
        broken = await asker.stream()
        assert broken.failure["code"] == "stream_interrupted"
        place.faults(None, None)
        (named,) = broken.ids
        stream_id = named.removeprefix("chatcmpl-").removeprefix("msg_")
        headers = {"x-router-resume": stream_id, "x-router-received": str(len(broken.delivered))}
        heard = await asker.stream(extra_headers=headers)
        assert heard.error is None
        assert heard.ids == broken.ids
        assert BEGUN[: heard.facts["resumed_from"]] + heard.delivered == TEXT


def id_of(answer: Taken) -> str:
    """Of a message, or of every chunk."""
    if isinstance(answer, MessageAnswer):
        (start,) = answer.named("message_start")
        return str(start["message"]["id"])
    (only,) = {str(chunk["id"]) for chunk in answer.chunks if "id" in chunk}
    return only


@pytest.mark.parametrize("client", CLIENTS)
async def test_coming_back_by_the_last_events_id(client: str) -> None:
    async with house("gemini", "anthropic", script=TALK, route=ONCE) as place:
        asker = place.client(client)
        place.faults(f"cut@{MIDST}", "status=500")
        response = await asker.post({"x-router-events": "ids"}, stream=True)
        ids = re.findall(r"^id: (.+)$", response.text, re.MULTILINE)
        stream_id, part, offset = ids[-1].split(":")
        assert (stream_id, part) == (
            response.headers["x-router-stream-id"],
            response.headers["x-router-part"],
        )
        assert int(offset) == len(BEGUN)
        place.faults(None, None)
        answer = await asker.raw({"last-event-id": ids[-1]})
        check_whole(answer)
        start = int(answer.headers["x-router-resume-from"])
        assert BEGUN[:start] + answer.delivered == TEXT


PATHS: Final = {"chat": "/chat/completions", "messages": "/messages"}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_stream_of_one_endpoint_is_not_gone_on_with_at_the_other(client: str) -> None:
    """The same bytes are another question there."""
    other = {"chat": "messages", "messages": "chat"}[client]
    question = {"role": "user", "content": "Tell me."}
    body = json.dumps({"model": "chat", "messages": [question], "max_tokens": 500, "stream": True})
    async with (
        house("openai", "anthropic", script=TALK, route=ONCE) as place,
        httpx.AsyncClient(trust_env=False, base_url=place.router.base_url) as http,
    ):
        place.faults(f"cut@{MIDST}", "status=500")
        first = await http.post(PATHS[client], content=body)
        assert first.status_code == 200
        place.faults(None, None)
        asked = place.asked(), place.asked(1)
        headers = back(first.headers, len(BEGUN))
        refused = await http.post(PATHS[other], content=body, headers=headers)
        assert refused.status_code == 409
        assert refused.json()["error"]["code"] == "resume_wrong_body"
        assert ("type" in refused.json()) == (other == "messages")
        assert (place.asked(), place.asked(1)) == asked
        second = await http.post(PATHS[client], content=body, headers=headers)
        assert second.status_code == 200


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("client", CLIENTS)
async def test_after_a_call_there_is_no_coming_back(client: str, family: str) -> None:
    call = ToolCall(index=0, id="call_1", name="pay", arguments='{"amount": 36}')
    parameters = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    tools: dict[str, Any] = {
        "chat": [{"type": "function", "function": {"name": "pay", "parameters": parameters}}],
        "messages": [{"name": "pay", "input_schema": parameters}],
    }
    script = Script(text="I pay.", tool_calls=(call,))
    async with house(family, script=script) as place:
        asker = place.client(client)
        place.faults(f"no_finish@{len(tokenize(script.text)) + 1}")
        first = await asker.raw(tools=tools[client])
        assert first.error is not None
        assert first.error["code"] == "tool_call_interrupted"
        headers = back(first.headers, len(first.delivered))
        refused = await asker.post(headers, stream=True, tools=tools[client])
        assert refused.status_code == 409
        assert refused.json()["error"]["code"] == "tool_call_interrupted"
        assert place.asked() == 1


# -- what happens at a break -----------------------------------------------------------------------

PARTIAL: Final = {"x-router-on-interrupt": "partial"}
RESTART: Final = {"x-router-on-interrupt": "restart"}


@pytest.mark.parametrize("families", OTHERS)
async def test_partial_on_messages(families: tuple[str, str]) -> None:
    """What was delivered stands; nothing looks as if the message had come to its end."""
    async with house(*families, script=TALK) as place:
        place.faults(f"cut@{MIDST}")
        plain = await place.messages.raw(PARTIAL)
        named = await place.messages.raw(PARTIAL | NAMED)
        whole = await place.messages.post(PARTIAL)
        assert plain.error is not None
        assert plain.error["code"] == "partial_complete"
        assert named.names[-1] == "partial_complete"
        assert named.named("partial_complete")[0]["router"]["outcome"] == "partial_complete"
        for answer in (plain, named):
            assert answer.delivered == BEGUN
            assert answer.stop is None
            assert "message_stop" not in answer.names
        assert whole.status_code == 502
        error = whole.json()["error"]
        assert error["code"] == "partial_complete"
        assert error["partial"]["content"] == [{"type": "text", "text": BEGUN}]
        assert place.asked(1) == 0


@pytest.mark.parametrize("families", OTHERS)
async def test_partial_closes_a_document(families: tuple[str, str]) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    document = '{"a": 36, "b": "one two three"}'
    wanted = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    async with house(*families, script=Script(json_text=document)) as place:
        place.faults(f"cut@{len(tokenize(document)) - 3}")
        answer = await place.messages.raw(PARTIAL, **wanted)
        assert answer.error is not None
        assert answer.error["code"] == "partial_complete"
        assert json.loads(answer.delivered) == {"a": 36}


@pytest.mark.parametrize("families", OTHERS)
async def test_restart_on_messages(families: tuple[str, str]) -> None:
    """After `reset_stream` a message begins anew, of the same id and model."""
    async with house(*families, script=TALK) as place:
        place.faults(f"cut@{MIDST}")
        response = await place.messages.post(RESTART | NAMED, stream=True)
        before, event, after = response.content.partition(
            b'event: reset_stream\ndata: {"reason":"provider_failover"}\n\n'
        )
        assert event
        first, second = (
            read_messages(response.status_code, response.headers, raw) for raw in (before, after)
        )
        assert first.delivered == BEGUN
        assert first.stop is None
        check_whole(second)
        assert second.delivered == TEXT
        assert id_of(first) == id_of(second)
        assert [one["fault"] for one in facts_of(second)["attempts"]] == ["cut", None]
        assert place.last(1).style is None  # the original question
        unread = await place.messages.post(RESTART, stream=True)
        assert unread.status_code == 400
        assert unread.json()["error"]["param"] == "x-router-on-interrupt"


@pytest.mark.parametrize("client", CLIENTS)
async def test_metadata_whenever_they_are_wanted(client: str) -> None:
    async with house("gemini", script=TALK) as place:
        answer = await place.client(client).raw({"x-router-metadata": "always"})
    check_whole(answer)
    assert [one["fault"] for one in facts_of(answer)["attempts"]] == [None]
    assert facts_of(answer)["outcome"] == "completed"
