"""The wire contract of `docs/wire.md`, read byte by byte off a real socket."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import openai
import pytest
from support.caller import Call, called, calling, error_of
from support.clock import FakeClock
from support.reading import Answer, ask, check_contract
from support.routers import routed, running_router

from router.api.sinks import KEEPALIVE_COMMENT_S
from router.simulate import RawAnswer, Script, SimulatedProvider, Turnstile, seeded_text

TEXT = seeded_text(7, 600)
SAME = Script(text=TEXT)
PATIENT: dict[str, Any] = {"health": {"eject_after": 1000}}
NO_RETRY = {"retry": {"same_target": 0}}


def at_finish(answer: Answer) -> dict[str, Any]:
    (chunk,) = [c for c in answer.chunks if c["choices"] and c["choices"][0]["finish_reason"]]
    return chunk


# --- while streaming ------------------------------------------------------------------------------


async def test_headers_of_a_stream() -> None:
    async with SimulatedProvider(script=SAME) as provider, running_router(routed(provider)) as it:
        answer = await ask(it.base_url)
    headers = answer.headers
    assert headers["content-type"].partition(";")[0] == "text/event-stream"
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert headers["x-router-target"] == "p1/model-p1"
    assert answer.chunks[0]["id"] == f"chatcmpl-{headers['x-router-stream-id']}"
    assert "content-encoding" not in headers
    assert "server" not in headers


async def test_lines_of_a_stream() -> None:
    async with SimulatedProvider(script=SAME) as provider, running_router(routed(provider)) as it:
        answer = await ask(it.base_url, headers={"accept-encoding": "gzip, br"})
    check_contract(answer)
    assert answer.delivered == TEXT
    assert answer.comments == []
    assert answer.raw.endswith(b"data: [DONE]\n\n")
    for event in answer.raw.removesuffix(b"\n\n").split(b"\n\n"):
        assert re.fullmatch(rb"data: \S[^\n]*", event), event  # no event:, id: or retry:


async def test_what_the_router_does_not_know_is_passed_on() -> None:
    async with SimulatedProvider(script=SAME) as provider, running_router(routed(provider)) as it:
        check_contract(await ask(it.base_url, tomorrow={"deep": [1]}, temperature=0.5))
    body = provider.requests[0].body
    assert (body["tomorrow"], body["temperature"]) == ({"deep": [1]}, 0.5)
    assert body["model"] == "model-p1"  # the target's own name, not the route's


@pytest.mark.parametrize("asked", [None, {"include_usage": False}, {"include_usage": True}])
async def test_usage_only_if_asked(asked: dict[str, bool] | None) -> None:
    async with SimulatedProvider(script=SAME) as provider, running_router(routed(provider)) as it:
        fields: dict[str, Any] = {"stream_options": asked} if asked else {}
        answer = await ask(it.base_url, **fields)
    check_contract(answer)
    with_usage = [chunk for chunk in answer.chunks if "usage" in chunk]
    empty = [chunk for chunk in answer.chunks if not chunk["choices"]]
    if asked and asked["include_usage"]:
        assert with_usage == empty == [answer.chunks[-1]]
        assert answer.chunks[-1]["usage"]["completion_tokens"] > 0
        assert at_finish(answer) is answer.chunks[-2]
    else:
        assert with_usage == empty == []
    # Whatever the client asked, what an attempt costs is known.
    assert provider.requests[0].body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(("asked", "told"), [("always", True), ("ALWAYS", True), ("", False)])
async def test_metadata_of_an_uneventful_stream(asked: str, *, told: bool) -> None:
    async with SimulatedProvider(script=SAME) as provider, running_router(routed(provider)) as it:
        answer = await ask(it.base_url, headers={"X-Router-Metadata": asked})
    check_contract(answer)
    assert (answer.metadata is not None) is told
    if answer.metadata is not None:
        facts = answer.metadata
        assert facts["stream_id"] == answer.headers["x-router-stream-id"]
        assert (facts["outcome"], facts["failovers"], facts["superseded"]) == ("completed", [], [])
        (attempt,) = facts["attempts"]
        assert set(attempt) == {
            "target", "model", "fault", "first_output_ms", "duration_ms", "output_chars",
            "usage", "usage_estimated",
        }  # fmt: skip
        assert attempt["output_chars"] == len(TEXT)
        assert 0 <= attempt["first_output_ms"] <= attempt["duration_ms"]


async def test_a_failover_changes_nothing_that_the_client_sees() -> None:
    async with (
        SimulatedProvider(script=SAME, model="gpt-first-2026") as first,
        SimulatedProvider(script=SAME, model="other-second") as second,
    ):
        first.set_faults("cut@30")
        config = routed(first, second, types=["vllm", "vllm"])
        async with running_router(config) as it:
            answer = await ask(it.base_url, stream_options={"include_usage": True})
    check_contract(answer)
    assert answer.delivered == TEXT
    assert answer.chunks[0]["model"] == "gpt-first-2026"  # as the first producing target reports
    assert answer.headers["x-router-target"] == "p1/model-p1"
    assert answer.comments == []
    facts = answer.metadata
    assert facts is not None
    assert [one["fault"] for one in facts["attempts"]] == ["cut", None]
    (failover,) = facts["failovers"]
    assert set(failover) == {"from", "to", "fault", "style", "committed_chars", "pause_ms"}
    assert failover["style"] == "continue_final"
    assert 0 < failover["committed_chars"] < len(TEXT)
    ordinary = [chunk for chunk in answer.chunks if chunk is not at_finish(answer)]
    assert all("router" not in chunk for chunk in ordinary)
    assert len({frozenset(chunk) - {"usage"} for chunk in ordinary}) == 1


async def test_the_first_producing_target_gives_its_name() -> None:
    """One that opened its stream and said nothing has produced nothing."""
    async with (
        SimulatedProvider(script=SAME, model="silent") as first,
        SimulatedProvider(script=SAME, model="spoken") as second,
    ):
        first.set_faults("no_finish@0")
        async with running_router(routed(first, second, route=NO_RETRY)) as it:
            answer = await ask(it.base_url)
    check_contract(answer)
    assert answer.chunks[0]["model"] == "spoken"
    assert answer.headers["x-router-target"] == "p2/model-p2"
    assert answer.delivered == TEXT
    assert answer.metadata is not None
    assert answer.metadata["attempts"][0]["fault"] == "truncated"


# --- before the first output ----------------------------------------------------------------------


async def test_not_a_byte_before_the_first_output() -> None:
    gate = Turnstile(0)
    clock = FakeClock()
    async with (
        SimulatedProvider(script=SAME, gate=gate) as provider,
        running_router(routed(provider), clock=clock) as it,
        calling(it.base_url) as call,
    ):
        await gate.held()
        await clock.advance(9.9)  # `commit_headers_after_s` is 10
        assert call.bytes_received == 0
        reading = asyncio.ensure_future(call.answer())
        await clock.settle()
        assert call.bytes_received == 0
        gate.open()
        answer = await clock.run(reading)
    check_contract(answer)
    assert (answer.delivered, answer.comments) == (TEXT, [])


async def wait_aloud(clock: FakeClock, call: Call) -> asyncio.Task[Answer]:
    """Let the time to commit the headers pass; the client reads on."""
    reading = asyncio.ensure_future(call.answer())
    await clock.advance(1.0)
    await clock.until(lambda: call.has(": waiting"))
    return reading


async def test_a_long_wait_sends_the_headers_and_comments() -> None:
    gate = Turnstile(0)
    clock = FakeClock()
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        config = routed(
            provider,
            server={"commit_headers_after_s": 1},
            route={"timeouts": {"first_output_s": 100}},
        )
        async with running_router(config, clock=clock) as it, calling(it.base_url) as call:
            await gate.held()
            reading = await wait_aloud(clock, call)
            await clock.advance(2 * KEEPALIVE_COMMENT_S)
            gate.open()
            answer = await clock.run(reading)
    check_contract(answer)
    assert answer.delivered == TEXT
    assert answer.comments == [": waiting"] * 3
    # One newline each: some SDKs take a blank line for an event.
    assert answer.raw.startswith(b": waiting\n: waiting\n: waiting\ndata: {")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "x-router-stream-id" in answer.headers
    assert "x-router-target" not in answer.headers  # nobody has produced anything yet


async def test_a_failure_after_the_headers_goes_in_band() -> None:
    clock = FakeClock()
    async with SimulatedProvider() as provider:
        provider.set_faults("silent")
        config = routed(
            provider,
            server={"commit_headers_after_s": 1},
            route={"timeouts": {"first_output_s": 5}, **NO_RETRY, "max_attempts": 1},
        )
        async with running_router(config, clock=clock) as it, calling(it.base_url) as call:
            await provider.wait_requests()
            answer = await clock.run(await wait_aloud(clock, call))
    assert answer.status == 200
    assert call.whole
    assert (answer.done, answer.finish_reasons) == (0, [])
    error = error_of(answer)
    assert error["code"] == "all_targets_failed"
    assert error["router"]["attempts"][0]["fault"] == "first_output_timeout"
    assert answer.raw.count(b"data:") == 1


# --- the end that is none -------------------------------------------------------------------------


async def test_a_stream_that_cannot_go_on() -> None:
    async with SimulatedProvider(script=SAME) as one, SimulatedProvider(script=SAME) as two:
        one.set_faults("cut@30")
        two.set_faults("cut@5")
        config = routed(one, two, route={"max_attempts": 2}, **PATIENT)
        async with running_router(config) as it:
            answer, call = await called(it.base_url, stream_options={"include_usage": True})
    assert call.whole  # a clean end, not a reset
    assert not call.reset
    error = answer.error
    assert error is not None
    assert set(error) == {"message", "type", "param", "code", "router"}
    assert (error["type"], error["param"]) == ("server_error", None)
    assert error["code"] == "stream_interrupted"
    assert "p2/model-p2" in error["message"]
    assert (answer.done, answer.finish_reasons) == (0, [])
    assert all("usage" not in chunk for chunk in answer.chunks)
    assert set(answer.chunks[-1]) == {"error"}
    assert error["router"]["outcome"] == "stream_interrupted"
    assert [one["fault"] for one in error["router"]["attempts"]] == ["cut", "cut"]
    assert TEXT.startswith(answer.canonical.rstrip())


ALL_FAIL = [
    ("status=503", 502, "server_error", None),
    ("status=503,retry_after=7", 502, "server_error", "7"),
    ("rate_limit,retry_after=12", 429, "rate_limit_error", "12"),
    ("unauthorized", 502, "server_error", None),
    ("reset", 503, "server_error", None),
    ("html", 502, "server_error", None),
    ("done_only", 502, "server_error", None),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("faults", "status", "kind", "after"), ALL_FAIL)
async def test_all_targets_failing(
    faults: str, status: int, kind: str, after: str | None, *, stream: bool
) -> None:
    async with SimulatedProvider() as one, SimulatedProvider() as two:
        one.set_faults(faults)
        two.set_faults(faults)
        async with running_router(routed(one, two, route=NO_RETRY, **PATIENT)) as it:
            answer, _ = await called(it.base_url, stream=stream)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers.get("retry-after") == after
    error = error_of(answer)
    assert (error["type"], error["code"]) == (kind, "all_targets_failed")
    assert error["router"]["stream_id"] == answer.headers["x-router-stream-id"]
    assert len(error["router"]["attempts"]) >= 2
    assert one.requests
    assert two.requests


VERDICTS = [
    ("context_length", 400, "context_length_exceeded", "messages"),
    ("content_policy", 400, "content_policy_violation", None),
    (
        "status=422,code=bad_tool,param=tools,message=This%20tool%20is%20unknown.",
        422,
        "bad_tool",
        "tools",
    ),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("faults", "status", "code", "param"), VERDICTS)
async def test_a_verdict_on_the_request_is_returned(
    faults: str, status: int, code: str, param: str | None, *, stream: bool
) -> None:
    async with SimulatedProvider() as one, SimulatedProvider() as two:
        one.set_faults(faults)
        async with running_router(routed(one, two)) as it:
            answer, _ = await called(it.base_url, stream=stream)
    assert answer.status == status
    error = error_of(answer)
    assert (error["code"], error["param"]) == (code, param)
    said = {"context_length": "maximum context length is 4096", "content_policy": "safety system"}
    assert said.get(faults, "This tool is unknown.") in error["message"]
    assert len(one.requests) == 1
    assert two.requests == []


# --- the blocking form ----------------------------------------------------------------------------


async def test_a_blocking_answer_is_the_stream_folded() -> None:
    async with SimulatedProvider(script=SAME, model="m-1") as one, SimulatedProvider() as two:
        async with running_router(routed(one, two)) as it:
            answer, _ = await called(it.base_url, stream=False)
        assert one.requests[0].stream  # there is no second way through the house
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-router-target"] == "p1/model-p1"
    body = json.loads(answer.raw)
    assert (body["object"], body["model"]) == ("chat.completion", "m-1")
    assert body["id"] == f"chatcmpl-{answer.headers['x-router-stream-id']}"
    assert body["usage"]["completion_tokens"] > 0
    assert "router" not in body
    (choice,) = body["choices"]
    assert choice["message"]["content"] == TEXT
    assert (choice["message"]["role"], choice["finish_reason"]) == ("assistant", "stop")


async def test_a_blocking_answer_holds_the_canonical_text_and_no_superseded_range() -> None:
    text = "This is the first sentence. Then comes a second one that breaks off here, and more."
    other = " A different second sentence ends it."
    async with (
        SimulatedProvider(script=Script(text=text)) as one,
        SimulatedProvider(script=Script(text=text, other_text=other)) as two,
    ):
        one.set_faults("cut@12")
        config = routed(one, two, types=["vllm", "vllm"], targets=[{}, {}])
        async with running_router(config) as it:
            two.set_faults("prefix=differ")
            streamed = await ask(it.base_url)
            blocking, _ = await called(it.base_url, stream=False)
    check_contract(streamed)
    assert streamed.metadata is not None
    assert streamed.metadata["superseded"]
    body = json.loads(blocking.raw)
    assert body["choices"][0]["message"]["content"] == streamed.canonical
    assert body["router"]["superseded"] == []  # of what is delivered, nothing is superseded
    assert len(body["router"]["failovers"]) == 1


# --- through the client that most users have ------------------------------------------------------


async def test_openai_reads_the_metadata_and_the_error() -> None:
    async with SimulatedProvider(script=SAME) as one, SimulatedProvider(script=SAME) as two:
        one.set_faults("cut@30")
        config = routed(one, two, types=["vllm", "vllm"], route={"max_attempts": 2}, **PATIENT)
        async with running_router(config) as it, client_of(it.base_url) as client:
            stream = await client.chat.completions.create(
                model="chat", messages=[{"role": "user", "content": "Go."}], stream=True
            )
            chunks = [chunk async for chunk in stream]
            assert "".join(c.choices[0].delta.content or "" for c in chunks) == TEXT
            assert (chunks[-1].model_extra or {})["router"]["outcome"] == "completed"

            two.set_faults("cut@3")
            stream = await client.chat.completions.create(
                model="chat", messages=[{"role": "user", "content": "Go."}], stream=True
            )
            with pytest.raises(openai.APIError) as caught:
                _ = [chunk async for chunk in stream]
    assert caught.value.code == "stream_interrupted"
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["router"]["outcome"] == "stream_interrupted"


async def test_openai_does_not_repeat_what_the_router_repeated() -> None:
    async with SimulatedProvider() as one:
        one.set_faults("status=503")
        config = routed(one, route={"max_attempts": 1}, **PATIENT)
        async with running_router(config) as it, client_of(it.base_url, max_retries=3) as client:
            with pytest.raises(openai.APIStatusError) as caught:
                await client.chat.completions.create(
                    model="chat", messages=[{"role": "user", "content": "Go."}]
                )
        assert len(one.requests) == 1
    assert caught.value.code == "all_targets_failed"


async def test_extra_fields_of_an_unusual_answer_reach_the_client() -> None:
    body = (
        b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{"role":"assistant","content":"Hi.","annotations":[{"a":1}]},'
        b'"finish_reason":null}]}\n\n'
        b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    async with (
        SimulatedProvider(raw=RawAnswer(body=body)) as one,
        running_router(routed(one)) as it,
    ):
        answer = await ask(it.base_url)
    check_contract(answer)
    assert answer.delivered == "Hi."
    assert b'"annotations":[{"a":1}]' in answer.raw


def client_of(base_url: str, *, key: str = "none", max_retries: int = 0) -> openai.AsyncOpenAI:
    """openai-python, as it comes, but for the environment's proxies."""
    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key=key,
        max_retries=max_retries,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
    )
