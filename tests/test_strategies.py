"""What a client chose for the break: `resume`, `restart`, `partial`, over sockets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import pytest
from support.reading import check_contract, read_stream
from support.texts import seeded
from support.toolcalls import (
    DONE,
    PAY,
    Bench,
    begun,
    bench,
    chunk,
    ends,
    interrupted,
    keys_of,
    text,
    wanted,
)

from router.simulate import Script, tokenize

TEXT = next(one.text for one in seeded(seed=4, chars=220) if one.name == "prose")
TOKENS = tokenize(TEXT)
SAYS = Script(text=TEXT)

DOCUMENT = '{"name": "Ada", "tags": ["a", "b\\"]"], "deep": {"n": [1, 22.5, {"ok": true}]}}'
ANSWER = Script(json_text=DOCUMENT)
AS_JSON: dict[str, Any] = {"response_format": {"type": "json_object"}}

NAMED = {"X-Router-Events": "named"}
RESTART = {**NAMED, "X-Router-On-Interrupt": "restart"}
PARTIAL = {"X-Router-On-Interrupt": "partial"}


@dataclass
class Named:
    """A stream with named events, as one sees it who forgets all at `reset_stream`.

    Args:
        resets: data of those events.
        partial: data of `partial_complete`, or None.
        before: the text that was forgotten, by reset.
        raw: the events after the last reset, without those with a name.
    """

    resets: list[dict[str, Any]] = field(default_factory=list)
    partial: dict[str, Any] | None = None
    before: list[str] = field(default_factory=list)
    raw: bytes = b""

    @property
    def answer(self) -> Any:  # noqa: ANN401 - an Answer
        """What is left, taken apart."""
        return read_stream(200, httpx.Headers(), self.raw)


def read_named(raw: bytes) -> Named:
    """Take such a stream apart; each event is `event: NAME`, `data: JSON`, or `data:` alone."""
    named = Named()
    for event in raw.split(b"\n\n")[:-1]:
        first, *rest = event.split(b"\n")
        assert named.partial is None, "something follows partial_complete"
        if not first.startswith(b"event: "):
            named.raw += event + b"\n\n"
            continue
        (line,) = rest
        data = json.loads(line.removeprefix(b"data: "))
        if first == b"event: reset_stream":
            named.before.append(named.answer.delivered)
            named.resets.append(data)
            named.raw = b""
        else:
            assert first == b"event: partial_complete"
            named.partial = data
    return named


async def ask_named(place: Bench, headers: Mapping[str, str], **fields: Any) -> Named:  # noqa: ANN401
    response = await place.post(headers=headers, stream=True, **fields)
    assert response.status_code == 200
    return read_named(response.content)


# --- resume ---------------------------------------------------------------------------------------


async def test_resume_is_what_happens_without_a_word() -> None:
    async with bench(SAYS, SAYS) as place:
        place.providers[0].set_faults(f"cut@{len(TOKENS) // 2}")
        for headers in ({}, {"X-Router-On-Interrupt": "resume"}, NAMED):
            answer = await place.ask(headers=headers)
            check_contract(answer)
            assert answer.delivered == TEXT
            assert place.providers[1].requests[-1].prefix


# --- restart --------------------------------------------------------------------------------------


async def test_restart_at_every_token() -> None:
    async with bench(SAYS, SAYS) as place:
        for cut in range(len(TOKENS) + 1):
            place.providers[0].set_faults(f"cut@{cut}")
            named = await ask_named(place, RESTART)
            check_contract(named.answer)  # the role, one finish and one [DONE], after the reset
            assert named.answer.delivered == TEXT
            assert named.resets == ([{"reason": "provider_failover"}] if cut else [])
            assert named.before == (["".join(TOKENS[:cut])] if cut else [])
            facts = named.answer.metadata
            assert [one["fault"] for one in facts["attempts"]] == ["cut", None]
            assert facts["superseded"] == []
            asked = place.providers[1].requests[-1]
            assert (asked.prefix, asked.style) == ("", None)  # the original question


async def test_restart_twice_and_one_id_for_all() -> None:
    async with bench(SAYS, SAYS, SAYS) as place:
        place.providers[0].set_faults(f"cut@{len(TOKENS) // 2}")
        place.providers[1].set_faults("cut@5")
        response = await place.post(headers=RESTART, stream=True)
        named = read_named(response.content)
        check_contract(named.answer)
        assert named.answer.delivered == TEXT
        assert named.before == ["".join(TOKENS[: len(TOKENS) // 2]), "".join(TOKENS[:5])]
        chunks = [
            json.loads(line[6:])
            for line in response.text.split("\n")
            if line.startswith('data: {"id"')
        ]
        assert len({(one["id"], one["created"], one["model"]) for one in chunks}) == 1


async def test_restart_when_nobody_is_left() -> None:
    async with bench(SAYS, SAYS) as place:
        for provider in place.providers:
            provider.set_faults("cut@9")
        named = await ask_named(place, RESTART)
        assert len(named.resets) >= 1
        assert named.answer.error["code"] == "stream_interrupted"
        assert (named.answer.finish_reasons, named.answer.done) == ([], 0)


async def test_restart_of_a_document_begins_with_its_first_bracket() -> None:
    async with bench(ANSWER, ANSWER) as place:
        for cut in range(len(tokenize(DOCUMENT)) + 1):
            place.providers[0].set_faults(f"cut@{cut}")
            named = await ask_named(place, RESTART, **AS_JSON)
            check_contract(named.answer)
            assert named.answer.delivered == DOCUMENT
            assert len(named.resets) <= 1
            assert all(DOCUMENT.startswith(before) for before in named.before)


async def test_restart_after_reasoning_alone_needs_no_reset() -> None:
    script = Script(text=TEXT, reasoning="Let me think about it.")
    async with bench(script, script) as place:
        place.providers[0].set_faults("cut@3")
        named = await ask_named(place, RESTART)
        check_contract(named.answer)
        assert (named.resets, named.answer.delivered) == ([], TEXT)


@pytest.mark.parametrize("style", ["restart", "partial"])
async def test_a_tool_call_is_refused_whatever_the_strategy(style: str) -> None:
    script = Script(text="I will.", tool_calls=(PAY,))
    async with bench(script, script, route={"on_interrupt": style}) as place:
        place.providers[0].set_faults(f"cut@{len(tokenize('I will.')) + 3}")
        answer = await place.ask(headers=NAMED)
        interrupted(answer)
        assert place.asked == (1, 0)


async def test_restart_with_held_calls() -> None:
    script = Script(text="I will.", tool_calls=(PAY,))
    async with bench(script, script) as place:
        place.providers[0].set_faults(f"cut@{len(tokenize('I will.')) + 3}")
        headers = {**RESTART, "X-Router-Tool-Calls": "atomic"}
        response = await place.post(headers=headers, stream=True)
        named = read_named(response.content)
        check_contract(named.answer)
        assert (named.answer.delivered, keys_of(named.answer)) == ("I will.", wanted(PAY))
        assert len(named.resets) == 1


async def test_restart_of_a_blocking_answer() -> None:
    async with bench(SAYS, SAYS) as place:
        place.providers[0].set_faults(f"cut@{len(TOKENS) // 2}")
        response = await place.post(headers={"X-Router-On-Interrupt": "restart"})
        body = response.json()
        assert body["choices"][0]["message"]["content"] == TEXT
        assert place.providers[1].requests[-1].prefix == ""


async def test_restart_by_route_resumes_for_a_client_that_reads_no_names() -> None:
    async with bench(SAYS, SAYS, route={"on_interrupt": "restart"}) as place:
        place.providers[0].set_faults(f"cut@{len(TOKENS) // 2}")
        answer = await place.ask()
        check_contract(answer)
        assert answer.delivered == TEXT
        assert place.providers[1].requests[-1].prefix
        assert len((await ask_named(place, NAMED)).resets) == 1
        # And a client may choose against its route.
        answer = await place.ask(headers={**NAMED, "X-Router-On-Interrupt": "resume"})
        check_contract(answer)


# --- partial --------------------------------------------------------------------------------------


async def test_partial_at_every_token() -> None:
    async with bench(SAYS, SAYS) as place:
        for cut in range(len(TOKENS) + 1):
            place.providers[0].set_faults(f"cut@{cut}")
            answer = await place.ask(headers=PARTIAL)
            if not cut:  # nothing stands yet: somebody else is asked, and nobody notices
                check_contract(answer)
                assert (answer.delivered, place.asked) == (TEXT, (1, 1))
                continue
            assert answer.delivered == "".join(TOKENS[:cut])
            assert answer.error is not None
            assert answer.error["code"] == "partial_complete"
            assert "as was asked for" in answer.error["message"]
            assert answer.error["router"]["outcome"] == "partial_complete"
            assert (answer.finish_reasons, answer.done, place.asked) == ([], 0, (1, 0))


async def test_partial_for_those_who_read_names() -> None:
    async with bench(SAYS, SAYS) as place:
        place.providers[0].set_faults("cut@9")
        named = await ask_named(place, {**NAMED, **PARTIAL})
        assert named.partial is not None
        assert "closed the connection" in named.partial["reason"]
        assert named.partial["router"]["attempts"][0]["fault"] == "cut"
        assert named.answer.delivered == "".join(TOKENS[:9])
        assert named.answer.error is None
        assert (named.answer.finish_reasons, named.answer.done) == ([], 0)


async def test_partial_closes_a_document_so_that_it_parses() -> None:
    seen = set()
    async with bench(ANSWER, ANSWER) as place:
        for cut in range(1, len(tokenize(DOCUMENT))):
            place.providers[0].set_faults(f"cut@{cut}")
            answer = await place.ask(headers=PARTIAL, **AS_JSON)
            if answer.error is None:
                assert place.asked == (1, 1)  # no value was whole yet
                continue
            assert answer.error["code"] == "partial_complete"
            value = json.loads(answer.delivered)
            assert set(value) <= {"name", "tags", "deep"}
            seen.add(answer.delivered)
            response = await place.post(headers=PARTIAL, **AS_JSON)
            error = response.json()["error"]
            assert json.loads(error["partial"]["content"]) == value
    assert len(seen) > 5
    assert '{"name": "Ada", "tags": ["a"]}' in seen


async def test_a_document_is_closed_for_whoever_asks_when_nobody_is_left() -> None:
    async with bench(ANSWER) as place:
        place.providers[0].set_faults(f"cut@{len(tokenize(DOCUMENT)) * 2 // 3}")
        answer = await place.ask(headers={"X-Router-JSON": "closed"}, **AS_JSON)
        assert answer.error is not None
        assert answer.error["code"] == "stream_interrupted"
        assert json.loads(answer.delivered)["name"] == "Ada"
        answer = await place.ask(**AS_JSON)
        with pytest.raises(json.JSONDecodeError):
            json.loads(answer.delivered)


async def test_partial_of_a_blocking_answer_is_an_error_that_holds_it() -> None:
    async with bench(SAYS, SAYS) as place:
        place.providers[0].set_faults("cut@9")
        response = await place.post(headers=PARTIAL)
        assert response.status_code == 502
        assert response.headers["x-should-retry"] == "false"
        error = response.json()["error"]
        assert error["code"] == "partial_complete"
        assert error["partial"]["content"] == "".join(TOKENS[:9])
        assert place.asked == (1, 0)
        place.providers[0].set_faults(None)
        assert (await place.post(headers=PARTIAL)).json()["choices"][0]["message"][
            "content"
        ] == TEXT


async def test_partial_by_route_and_resume_by_header() -> None:
    async with bench(SAYS, SAYS, route={"on_interrupt": "partial"}) as place:
        place.providers[0].set_faults("cut@9")
        answer = await place.ask()
        assert answer.error is not None
        assert answer.error["code"] == "partial_complete"
        answer = await place.ask(headers={"X-Router-On-Interrupt": "resume"})
        check_contract(answer)
        assert answer.delivered == TEXT


# --- names only for those who asked ---------------------------------------------------------------


@pytest.mark.parametrize("route", ["resume", "restart", "partial"])
@pytest.mark.parametrize("chosen", ["", "resume", "partial"])
async def test_who_did_not_ask_for_names_never_sees_one(route: str, chosen: str) -> None:
    headers = {"X-Router-On-Interrupt": chosen} if chosen else {}
    script = Script(text=TEXT, tool_calls=(PAY,))
    async with bench(script, script, route={"on_interrupt": route}) as place:
        for fault in ("cut@0", "cut@7", f"cut@{len(TOKENS) + 2}", "error@7", "finish_error@7"):
            place.providers[0].set_faults(fault)
            response = await place.post(headers=headers, stream=True)
            assert b"event:" not in response.content
            assert b"reset_stream" not in response.content


# --- in a client ----------------------------------------------------------------------------------


def client_of(place: Bench) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=place.router.base_url,
        api_key="none",
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
    )


async def through_openai(place: Bench, headers: Mapping[str, str]) -> tuple[str, list[Any]]:
    """Text, and everything that is no chunk with choices."""
    said, other = "", []
    async with client_of(place) as client:
        stream = await client.chat.completions.create(
            model="chat",
            messages=[{"role": "user", "content": "Go."}],
            stream=True,
            extra_headers=headers,
        )
        async for one in stream:
            choices: list[Any] | None = one.choices  # whatever its type says
            if choices is None:
                other.append(one.model_extra)
            else:
                said += "".join(choice.delta.content or "" for choice in choices)
    return said, other


async def test_the_openai_client_ignores_names_but_not_what_they_carry() -> None:
    """It hands named events on as chunks without choices: that is why they are asked for."""
    async with bench(SAYS, SAYS) as place:
        place.providers[0].set_faults("cut@9")
        said, other = await through_openai(place, RESTART)
        assert other == [{"reason": "provider_failover"}]
        assert said == "".join(TOKENS[:9]) + TEXT
        said, other = await through_openai(place, {**NAMED, **PARTIAL})
        assert [sorted(one) for one in other] == [["reason", "router"]]
        said, other = await through_openai(place, {})
        assert (said, other) == (TEXT, [])


async def test_the_openai_client_raises_for_a_part() -> None:
    async with bench(SAYS, SAYS) as place:
        place.providers[0].set_faults("cut@9")
        with pytest.raises(openai.APIError) as caught:
            await through_openai(place, PARTIAL)
        assert caught.value.code == "partial_complete"
        async with client_of(place) as client:
            with pytest.raises(openai.InternalServerError) as blocked:
                await client.chat.completions.create(
                    model="chat",
                    messages=[{"role": "user", "content": "Go."}],
                    extra_headers=PARTIAL,
                )
        body = blocked.value.body
        assert isinstance(body, dict)
        assert body["partial"]["content"] == "".join(TOKENS[:9])


async def test_what_follows_a_refused_call_in_a_partial_stream_is_nothing() -> None:
    events = (text("So."), begun(PAY, '{"amount"'), chunk(finish="tool_calls"), DONE)
    async with bench(SAYS, SAYS) as place:
        answer = await place.ask(ends(b"".join(events[:2])), headers=PARTIAL)
        interrupted(answer)
