"""Healthy conduct over real sockets: answers, shapes, records, and nothing left open."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from simulate_kit import USER, ask, connect

from router.core.continuation import Style
from router.core.events import ToolCall
from router.simulate import (
    Conduct,
    Dialect,
    Ended,
    Pace,
    RawAnswer,
    Script,
    SimulatedProvider,
    Turnstile,
    parse_dialect,
    seeded_text,
    tokenize,
)

TEXT = "Dr. Vane left at 6 p.m. “Why?” asked nobody. Zwölf Äpfel、三冊。 The end."
SCRIPT = Script(text=TEXT)
TOKENS = tokenize(TEXT)


async def test_a_stream_is_the_text_token_by_token() -> None:
    async with SimulatedProvider(script=SCRIPT) as provider:
        reply = await ask(provider)
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.pieces == TOKENS
        assert (reply.finish, reply.done, reply.how) == ("stop", True, "end")
        assert reply.choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert {chunk["id"] for chunk in reply.chunks} == {"chatcmpl-sim000000"}
        assert not any("usage" in chunk for chunk in reply.chunks)
        record = await provider.wait_ended()
        assert (record.ended, record.tokens_sent, record.status) == (
            Ended.COMPLETED,
            len(TOKENS),
            200,
        )
        assert record.bytes_sent == len(reply.body)
        assert record.finish_sent
        assert record.fault is None
        assert record.style is None


async def test_the_default_answer_is_long_and_seeded() -> None:
    async with SimulatedProvider() as provider:
        assert (await ask(provider)).text == seeded_text(0, 2_000)


async def test_a_blocking_answer_is_the_same() -> None:
    async with SimulatedProvider(script=SCRIPT) as provider, httpx.AsyncClient() as client:
        response = await client.post(
            f"{provider.base_url}/chat/completions", json={"model": "m", "messages": [USER]}
        )
        body = response.json()
        assert body["object"] == "chat.completion"
        assert body["model"] == "m"
        assert body["choices"][0]["message"]["content"] == TEXT
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["completion_tokens"] == len(TOKENS)
        record = await provider.wait_ended()
        assert (record.ended, record.tokens_sent) == (Ended.COMPLETED, len(TOKENS))


async def test_usage_is_reported_when_asked_for() -> None:
    async with SimulatedProvider(script=SCRIPT) as provider:
        reply = await ask(provider, stream_options={"include_usage": True})
        last = reply.chunks[-1]
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == len(TOKENS)
        assert last["usage"]["prompt_tokens"] == 4 + len(tokenize(USER["content"]))
        assert last["usage"]["total_tokens"] == sum(
            last["usage"][name] for name in ("prompt_tokens", "completion_tokens")
        )


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_a_token_budget_ends_the_answer(field: str) -> None:
    async with SimulatedProvider(script=SCRIPT) as provider:
        reply = await ask(provider, **{field: 5})
        assert (reply.pieces, reply.finish) == (TOKENS[:5], "length")
        whole = await ask(provider, **{field: len(TOKENS)})
        assert (whole.text, whole.finish) == (TEXT, "stop")


@pytest.mark.parametrize("stop", ["Why", ["nobody", "Why"]])
async def test_a_stop_sequence_ends_the_answer(stop: str | list[str]) -> None:
    async with SimulatedProvider(script=SCRIPT) as provider:
        reply = await ask(provider, stop=stop)
        assert (reply.text, reply.finish) == ("Dr. Vane left at 6 p.m. “", "stop")


async def test_two_choices_interleave() -> None:
    async with SimulatedProvider(script=SCRIPT) as provider:
        reply = await ask(provider, n=2)
        for index in (0, 1):
            mine = [choice for choice in reply.choices if choice["index"] == index]
            assert "".join(choice["delta"].get("content", "") for choice in mine) == TEXT
            assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["stop"]


async def test_reasoning_comes_before_the_text() -> None:
    script = Script(text="So.", reasoning="Let me think. Yes.")
    async with SimulatedProvider(script=script) as provider:
        reply = await ask(provider)
        thought = [c["delta"].get("reasoning_content") for c in reply.choices]
        assert "".join(filter(None, thought)) == "Let me think. Yes."
        assert thought.index("Let") < len(thought) - 3
        assert reply.text == "So."
        prefix = await ask(provider, messages=[USER, {"role": "assistant", "content": "S"}])
        assert prefix.text == "o."
        assert not any("reasoning_content" in c["delta"] for c in prefix.choices)


CALLS = (
    ToolCall(index=0, id="call_1", name="pay", arguments='{"amount": 500, "to": "Vane"}'),
    ToolCall(index=1, id="call_2", name="look", arguments="{}"),
)


async def test_tool_calls_come_in_pieces() -> None:
    async with SimulatedProvider(script=Script(text="", tool_calls=CALLS)) as provider:
        reply = await ask(provider)
        assert reply.finish == "tool_calls"
        deltas = [d for c in reply.choices for d in c["delta"].get("tool_calls", [])]
        for call in CALLS:
            mine = [delta for delta in deltas if delta["index"] == call.index]
            assert mine[0]["id"] == call.id
            assert mine[0]["function"]["name"] == call.name
            assert all("id" not in delta for delta in mine[1:])
            assert "".join(delta["function"]["arguments"] for delta in mine) == call.arguments
        whole = json.loads((await ask(provider, stream=False)).body)
        message = whole["choices"][0]["message"]
        assert [call["function"]["name"] for call in message["tool_calls"]] == ["pay", "look"]
        assert json.loads(message["tool_calls"][0]["function"]["arguments"])["amount"] == 500


async def test_a_document_is_said_when_json_is_wanted() -> None:
    document = '{"name": "Vane", "age": 36}'
    async with SimulatedProvider(script=Script(text=TEXT, json_text=document)) as provider:
        reply = await ask(provider, response_format={"type": "json_object"})
        assert reply.text == document
        assert (await ask(provider, response_format={"type": "text"})).text == TEXT
        tail = {"role": "assistant", "content": '{"name": "Vane",'}
        rest = await ask(provider, response_format={"type": "json_schema"}, messages=[USER, tail])
        assert rest.text == ' "age": 36}'


async def test_a_prefix_is_continued_and_remembered() -> None:
    async with SimulatedProvider(script=SCRIPT) as provider:
        prefix = "Dr. Vane left at 6 p.m."
        reply = await ask(provider, messages=[USER, {"role": "assistant", "content": prefix}])
        assert prefix + reply.text == TEXT
        record = await provider.wait_ended()
        assert (record.style, record.prefix, record.behaviour, record.found) == (
            Style.ASSISTANT_TAIL,
            prefix,
            "continue",
            True,
        )


@pytest.mark.parametrize(
    ("fields", "on"),
    [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "enabled"}}, True),
        ({"enable_thinking": False}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "none"}, False),
    ],
)
async def test_what_was_asked_is_remembered(fields: dict[str, Any], on: bool | None) -> None:
    script = Script(text="So.", reasoning="Hm.")
    tool = {"type": "function", "function": {"name": "look"}}
    async with SimulatedProvider(script=script) as provider:
        reply = await ask(
            provider, _path="/v1/chat/completions?api-version=1", tools=[tool], **fields
        )
        assert (b"reasoning_content" in reply.body) is (on is not False)
        record = await provider.wait_ended()
        assert (record.messages, record.tools, record.thinking) == (1, ("look",), on)
        assert (record.query, json.loads(record.raw)) == ("api-version=1", record.body)


async def test_a_prefix_is_refused_in_the_familys_words() -> None:
    async with SimulatedProvider(script=SCRIPT, conduct=Conduct(prefix="refuse")) as provider:
        reply = await ask(provider, messages=[USER, {"role": "assistant", "content": "Dr."}])
        assert reply.status == 400
        assert "does not support assistant message prefill" in reply.message
        assert (await provider.wait_ended()).ended is Ended.REJECTED
        both = await ask(
            provider,
            messages=[USER, {"role": "assistant", "content": "Dr."}],
            continue_final_message=True,
        )
        assert (both.status, both.message[:15]) == (400, "Cannot set both")


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "m!prefix=echo"},
        {"_headers": {"x-simulate": "prefix=echo"}},
    ],
)
async def test_a_request_orders_its_own_conduct(fields: dict[str, Any]) -> None:
    async with SimulatedProvider(script=SCRIPT) as provider:
        tail = {"role": "assistant", "content": "Dr. Vane"}
        reply = await ask(provider, messages=[USER, tail], **fields)
        assert reply.text == TEXT
        assert {chunk["model"] for chunk in reply.chunks} <= {"m", "sim"}
        assert (await provider.wait_ended()).behaviour == "echo"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("crlf", b"\r\n\r\ndata: {"),
        ("cr", b"\r\rdata: {"),
        ("no_space", b"\n\ndata:{"),
        ("bom", b"\xef\xbb\xbfdata: {"),
        ("comment_every=2", b": keep-alive\n\n"),
        ("azure_first", b'"choices":[],"prompt_filter_results":[]'),
        ("error_null", b'"error":null'),
        ("usage_null", b'"usage":null'),
        ("usage_every_chunk", b'"completion_tokens":3,'),
        ("role_every_chunk", b'{"role":"assistant","content":"Dr"}'),
        ("finish_word=eos", b'"finish_reason":"eos"'),
        ("ascii_json", b"\\u4e09"),
        ("tokens_per_chunk=3", f'"content":"{"".join(TOKENS[:3])}"'.encode()),
        ("text_in_finish", b'{"content":"."},"finish_reason":"stop"'),
        ("finish_twice", b'"finish_reason":"stop"'),
    ],
)
async def test_each_shape_of_a_healthy_stream(words: str, shown: bytes) -> None:
    async with SimulatedProvider(script=SCRIPT, dialect=parse_dialect(words)) as provider:
        reply = await ask(provider)
        assert shown in reply.body
        assert shown not in (await healthy_body()) or words == "finish_twice"
        reply.body = reply.body.removeprefix("\ufeff".encode())
        assert (reply.text, reply.done) == (TEXT, True)
        assert reply.finish == ("eos" if "eos" in words else "stop")
        finishes = [choice for choice in reply.choices if choice["finish_reason"]]
        assert len(finishes) == (2 if words == "finish_twice" else 1)


async def test_a_finish_may_be_bare() -> None:
    async with SimulatedProvider(script=SCRIPT, dialect=parse_dialect("bare_finish")) as provider:
        last = (await ask(provider)).choices[-1]
        assert last == {"index": 0, "finish_reason": "stop"}


async def healthy_body() -> bytes:
    async with SimulatedProvider(script=SCRIPT) as provider:
        return (await ask(provider)).body


async def test_no_role_and_no_usage() -> None:
    async with SimulatedProvider(dialect=Dialect(no_role=True, no_usage=True)) as provider:
        reply = await ask(provider, stream_options={"include_usage": True})
        assert not any("role" in choice["delta"] for choice in reply.choices)
        assert not any("usage" in chunk for chunk in reply.chunks)


async def test_writes_of_one_byte_give_the_same_body() -> None:
    async with SimulatedProvider(script=SCRIPT, write_bytes=1) as provider:
        assert (await ask(provider)).body == await healthy_body()
        ordered = await ask(provider, _headers={"x-simulate": "write_bytes=7"})
        assert ordered.body.replace(b"sim000001", b"sim000000") == await healthy_body()


async def test_raw_bytes_come_as_they_are() -> None:
    body = "data: {Zähne}\r\rdata: [DONE]\n\n".encode()
    raw = RawAnswer(body=body, splits=(8, 9), headers=(("Content-Type", "text/plain"),))
    async with SimulatedProvider(raw=[raw, None], script=SCRIPT) as provider:
        reply = await ask(provider)
        assert (reply.body, reply.how) == (body, "end")
        assert reply.headers["content-type"] == "text/plain"
        assert (await provider.wait_ended()).tokens_sent == 3
        assert (await ask(provider)).text == TEXT
        assert (await ask(provider)).text == TEXT


@pytest.mark.parametrize(("after", "how"), [("fin", "fin"), ("rst", "rst")])
async def test_raw_bytes_may_end_badly(after: str, how: str) -> None:
    async with SimulatedProvider(raw=RawAnswer(body=b"data: {", after=after)) as provider:
        reply = await ask(provider)
        assert (reply.body, reply.how) == (b"data: {", how)
        cut = await ask(provider, _headers={"x-simulate": "cut_byte@3"})
        assert (cut.body, cut.how) == (b"dat", "fin")


async def test_time_comes_from_the_pace_and_the_clock() -> None:
    now, slept = 100.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    pace = Pace(tokens_per_s=4, first_token_delay_s=2)
    async with SimulatedProvider(
        script=SCRIPT, pace=pace, clock=lambda: now, sleep=sleep
    ) as provider:
        await ask(provider)
        assert slept == [2.0, *[0.25] * (len(TOKENS) - 1)]
        record = await provider.wait_ended()
        assert (record.received_at, record.first_token_at) == (100.0, 102.0)
        assert record.last_token_at == 102 + (len(TOKENS) - 1) / 4
        slept.clear()
        await ask(provider, model="sim!first_token_s=20!tokens_per_s=0.5")
        assert slept == [20.0, *[2.0] * (len(TOKENS) - 1)]


async def test_a_turnstile_holds_a_stream() -> None:
    gate = Turnstile(3, request=0)
    async with SimulatedProvider(script=SCRIPT, gate=gate) as provider, connect(provider) as caller:
        await caller.send()
        await gate.held()
        reply = await caller.read(until=lambda reply: len(reply.pieces) == 3)
        assert provider.requests[0].tokens_sent == 3
        gate.move(5)
        await gate.held()
        await provider.wait_tokens(5)
        assert provider.requests[0].ended is None
        assert (await ask(provider)).text == TEXT
        gate.open()
        rest = await caller.read()
        assert reply.text + rest.text == TEXT


async def test_a_client_that_leaves_is_noticed_at_once() -> None:
    gate = Turnstile(2)
    async with SimulatedProvider(script=SCRIPT, gate=gate) as provider:
        async with connect(provider) as caller:
            await caller.send()
            await gate.held()
        record = await provider.wait_ended()
        assert (record.ended, record.tokens_sent) == (Ended.CLIENT_CLOSED, 2)
        await provider.wait_connections(0)


async def test_a_client_that_does_not_read_stops_the_stream() -> None:
    script = Script(text="word " * 400_000)
    dialect = Dialect(tokens_per_chunk=500)
    async with (
        SimulatedProvider(script=script, dialect=dialect, send_buffer_bytes=4_096) as provider,
        connect(provider) as caller,
    ):
        await caller.send()
        seen = -1
        while (
            seen < (now := provider.requests[0].tokens_sent if provider.requests else 0) or not now
        ):
            seen = now
            for _ in range(50):  # turns of the loop in which it could send fifty chunks more
                await asyncio.sleep(0)
        assert seen < 400_000
        assert provider.requests[0].ended is None
    # both sides are closed with much of it unsent: nothing hangs, nothing is left
    assert provider.requests[0].ended in {Ended.CLIENT_CLOSED, Ended.SERVER_CLOSED}


async def test_connections_are_kept_and_counted() -> None:
    async with SimulatedProvider(script=SCRIPT) as provider:
        async with connect(provider) as caller:
            for _ in range(3):
                assert (await caller.ask()).text == TEXT
            assert (provider.connections_accepted, provider.open_connections) == (1, 1)
            assert [record.number for record in provider.requests] == [0, 1, 2]
        await provider.wait_connections(0)
        async with connect(provider) as caller:
            assert (await caller.ask(_headers={"connection": "close"})).text == TEXT
            await provider.wait_connections(0)


async def test_side_pages_and_wrong_requests() -> None:
    async with (
        SimulatedProvider(model="sim-1") as provider,
        httpx.AsyncClient(base_url=f"http://{provider.host}:{provider.port}") as client,
    ):
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "sim-1"
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/v2")).status_code == 404
        assert provider.requests == []
        chat = "/v1/chat/completions"
        for body in (b"{", b"[]", b'{"messages": []}', b'{"messages": [3]}', b'{"n": "x"}'):
            assert (await client.post(chat, content=body)).status_code == 400, body
        wrong = await client.post(chat, json={"messages": [USER], "model": "m!explode"})
        assert "Unknown fault 'explode'" in wrong.json()["error"]["message"]
        wrong = await client.post(chat, json={"messages": [USER], "model": "m!prefix=sing"})
        assert "prefix=sing: behind the = stands one of" in wrong.json()["error"]["message"]
        azure = f"/openai/deployments/x{chat}"
        assert (await client.post(azure, json={"messages": [USER]})).is_success
        assert all(r.ended is Ended.REJECTED for r in provider.requests[:-1])


async def test_what_is_no_http_is_refused() -> None:
    async with SimulatedProvider() as provider, connect(provider) as caller:
        caller.writer.write(b"NONSENSE\r\n\r\n")
        reader = caller._reader
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")


async def test_a_key_is_required_if_there_is_one() -> None:
    async with SimulatedProvider(api_key="sk-sim") as provider:
        assert (await ask(provider)).status == 401
        wrong = await ask(provider, _headers={"authorization": "Bearer sk-other"})
        assert (wrong.status, wrong.message) == (401, "Incorrect API key provided.")
        assert (await ask(provider, _headers={"authorization": "Bearer sk-sim"})).status == 200


async def test_the_oldest_records_are_forgotten() -> None:
    async with SimulatedProvider(script=Script(text="x"), keep_requests=2) as provider:
        for _ in range(4):
            await ask(provider)
        assert [record.number for record in provider.requests] == [2, 3]
        with pytest.raises(LookupError, match="no longer remembered"):
            await provider.wait_requests(1)


async def test_a_wait_in_vain_says_what_it_saw() -> None:
    async with SimulatedProvider(script=Script(text="x")) as provider:
        await ask(provider)
        with pytest.raises(TimeoutError, match=r"5 tokens of request 0; requests: .'0: 1 tokens"):
            await provider.wait_tokens(5, wait_s=0.01)


async def test_closing_leaves_nothing_open() -> None:
    before = asyncio.all_tasks()
    provider = SimulatedProvider(faults="silent", script=SCRIPT)
    async with provider, connect(provider) as caller, connect(provider):
        await caller.send()
        await provider.wait_requests(1)
        await provider.wait_connections(2)
        await provider.close()
        assert provider.requests[0].ended is Ended.SERVER_CLOSED
        assert provider.open_connections == 0
    assert asyncio.all_tasks() == before
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(provider.host, provider.port)


async def test_a_taken_port_is_an_error() -> None:
    async with SimulatedProvider() as provider:
        with pytest.raises(OSError, match="in use"):
            await SimulatedProvider(port=provider.port).start()
