"""A bug in the router's own house, and its stop: an error for the client, never a silent end."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import NoReturn

import httpx
import pytest
from support.caller import called, calling, error_of
from support.clock import FakeClock
from support.raw import CHAT, connected, post
from support.reading import ask, check_contract
from support.routers import routed, running_router

from router.api import chat
from router.api.sinks import BlockingSink, StreamSink
from router.core.events import Event
from router.engine.observe import Detail, StreamEnded
from router.providers.openai import OpenAIProvider
from router.simulate import Ended, Script, SimulatedProvider, Turnstile, seeded_text

TEXT = seeded_text(5, 600)
SAME = Script(text=TEXT)
SECRET = "the prompt of a bug"


class Bug(Exception):
    """What is thrown in."""


def broken(*_: object, **__: object) -> NoReturn:
    raise Bug("ouch")


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    logged = [one for one in caplog.records if one.exc_info]
    assert all(one.levelno >= logging.ERROR for one in logged)
    return [logging.Formatter().formatException(one.exc_info) for one in logged if one.exc_info]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_provider_that_cannot_build_its_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, stream: bool
) -> None:
    monkeypatch.setattr(OpenAIProvider, "build", broken)
    async with SimulatedProvider() as provider:
        async with running_router(routed(provider)) as it:
            answer, _ = await called(it.base_url, stream=stream, content=SECRET)
            # And nothing of it sticks: the target may be asked again.
            assert it.serving.engine.health.available("p1/model-p1")
        assert provider.requests == []
    assert answer.status == 500
    error = error_of(answer)
    assert (error["type"], error["code"]) == ("server_error", "internal_error")
    assert "ouch" not in answer.raw.decode()
    (trace,) = tracebacks(caplog)
    assert "Bug: ouch" in trace
    assert SECRET not in caplog.text


async def test_a_bug_in_mid_stream(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, seen = StreamSink.deliver, 0

    async def deliver(self: StreamSink, events: Sequence[Event]) -> None:
        nonlocal seen
        seen += 1
        if seen == 5:
            broken()
        await real(self, events)

    monkeypatch.setattr(StreamSink, "deliver", deliver)
    # One token a write, so that there are several deliveries.
    gate = Turnstile(10_000)
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        async with running_router(routed(provider)) as it:
            answer, call = await called(it.base_url)
        assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED
        assert len(provider.requests) == 1  # no second try for a bug of ours
    assert call.whole
    error = error_of(answer)
    assert (error["type"], error["code"]) == ("server_error", "internal_error")
    assert (answer.done, answer.finish_reasons) == (0, [])
    assert answer.delivered
    assert TEXT.startswith(answer.delivered)
    assert "Bug: ouch" in tracebacks(caplog)[0]


async def test_a_bug_in_the_blocking_form(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(BlockingSink, "deliver", broken)
    async with SimulatedProvider(script=SAME) as provider, running_router(routed(provider)) as it:
        answer, _ = await called(it.base_url, stream=False)
    assert answer.status == 500
    assert error_of(answer)["code"] == "internal_error"
    assert "Bug: ouch" in tracebacks(caplog)[0]


async def test_a_bug_before_the_request_is_understood(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(chat, "parse_chat_request", broken)
    async with SimulatedProvider() as provider, running_router(routed(provider)) as it:
        answer, _ = await called(it.base_url)
    assert answer.status == 500
    assert error_of(answer)["code"] == "internal_error"
    assert "Bug: ouch" in tracebacks(caplog)[0]


async def test_an_observer_with_a_bug_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def observer(_: Detail) -> None:
        broken()

    async with SimulatedProvider(script=SAME) as one, SimulatedProvider(script=SAME) as two:
        one.set_faults("cut@20")
        config = routed(one, two, types=["vllm", "vllm"])
        async with running_router(config, observers=[observer]) as it:
            answer = await ask(it.base_url)
    check_contract(answer)
    assert answer.delivered == TEXT
    assert "Bug: ouch" in tracebacks(caplog)[0]


async def test_a_bug_beside_the_streams(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with SimulatedProvider() as provider, running_router(routed(provider)) as it:
        monkeypatch.setattr(type(it.serving.engine.store), "stats", property(broken))
        root = it.base_url.removesuffix("/v1")
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"{root}/ready")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "Bug: ouch" in tracebacks(caplog)[0]


# --- the router stops -----------------------------------------------------------------------------


async def test_a_stream_that_outlasts_the_drain_is_told() -> None:
    gate, details = Turnstile(40), list[Detail]()
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        config = routed(provider, record={"resume_window_s": 60})
        async with running_router(config, observers=[details.append]) as it:
            async with calling(it.base_url) as call:
                await gate.held()
                while not call.has(" "):
                    await call.read()
                it.serving.interrupt()
                answer = await call.answer()
            assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED
            record = await it.serving.engine.store.load(answer.headers["x-router-stream-id"])
    assert call.whole
    error = error_of(answer)
    assert (error["type"], error["code"]) == ("server_error", "stream_interrupted")
    assert (answer.done, answer.finish_reasons) == (0, [])
    (end,) = [one for one in details if isinstance(one, StreamEnded)]
    assert end.report.outcome == "router_stopped"
    # It was no client that left, and whoever comes back finds the text.
    assert record.outcome == "router_stopped"
    assert TEXT.startswith(record.text)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_that_outlasts_the_drain_unanswered_may_go_elsewhere(
    *, stream: bool
) -> None:
    gate = Turnstile(0 if stream else 40)
    async with (
        SimulatedProvider(script=SAME, gate=gate) as provider,
        running_router(routed(provider)) as it,
        calling(it.base_url, stream=stream) as call,
    ):
        await gate.held()
        it.serving.interrupt()
        answer = await call.answer()
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert json.loads(answer.raw)["error"]["code"] == "draining"


async def test_a_reload_while_a_request_is_read() -> None:
    """It is answered by the configuration that it began with, whose connections are still open."""
    clock = FakeClock()
    async with SimulatedProvider(script=SAME) as one, SimulatedProvider(script=SAME) as two:
        async with (
            running_router(routed(one), clock=clock) as it,
            running_router(routed(two)) as other,
            connected(it.base_url) as client,
        ):
            data = post(CHAT)
            await client.send(data[:-5])
            await clock.settle()
            it.serving.replace(other.serving.generation)
            await clock.settle()
            await client.send(data[-5:])
            assert (await client.reply()).body.endswith(b"data: [DONE]\n\n")
        assert (len(one.requests), len(two.requests)) == (1, 0)
