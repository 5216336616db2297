"""Time: every wait ends by the right limit, at the right moment, whatever signs of life come."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
import pytest_asyncio
from fault_kit import LIMITS, TALK, TEXT, TOKENS, Stage, finished, route, staged, unfinished
from support.caller import called
from support.reading import check_contract
from support.routers import routed, running_router

from router.core.faults import FaultKind
from router.engine.attempt import FINISH_GRACE_S
from router.simulate import (
    Ended,
    FaultSpec,
    Misdeed,
    Pace,
    RawAnswer,
    Script,
    SimulatedProvider,
)
from router.simulate.text import seeded_text

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = {
    "chat": route(1, 2),
    "alone": route(1),
    "short": route(1, 2, timeouts=LIMITS | {"total_s": 20}),
    "tight": route(1, 2, timeouts=LIMITS | {"total_s": 16}),
}
FIRST_S, IDLE_S, TOTAL_S = LIMITS["first_output_s"], LIMITS["idle_s"], LIMITS["total_s"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Stage]:
    async with staged(routes=ROUTES, providers=2) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="module")
async def stage(shared: Stage) -> Stage:
    await shared.rest()
    return shared


def fault_of(stage: Stage, attempt: int = 0) -> FaultKind | None:
    fault = stage.report.attempts[attempt].fault
    return fault.kind if fault else None


# --- the first output ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        "silent",
        "slow_header",
        "slow_header,every_s=0.1",
        "role_then_silence",
        "keepalive_forever,form=comment",
        "keepalive_forever,form=empty",
        "keepalive_forever,form=role",
        "keepalive_forever,form=empty,every_s=0.1",
        "stall@0",
        "first_token_s=16",
    ],
)
async def test_no_sign_of_life_is_a_first_output(stage: Stage, fault: str) -> None:
    stage.faults(fault)
    answer, call = await stage.ask()
    finished(answer)
    assert call.reads[0][0] == pytest.approx(FIRST_S)
    assert fault_of(stage) is FaultKind.FIRST_OUTPUT_TIMEOUT
    assert await stage.ended(1) is Ended.CLIENT_CLOSED
    assert stage.asked == (1, 1)


async def test_a_first_token_just_in_time_is_one(stage: Stage) -> None:
    stage.faults("first_token_s=14.9")
    answer, call = await stage.ask()
    finished(answer)
    assert call.reads[0][0] == pytest.approx(14.9)
    assert stage.asked == (1, 0)


async def test_reasoning_ends_the_wait_for_the_first_output(stage: Stage) -> None:
    stage.faults(script=Script(text=TEXT, reasoning="Let me think about this."))
    stage.providers[0].manner.pace = Pace(tokens_per_s=1 / 4, first_token_delay_s=10)
    answer, call = await stage.ask(max_tokens=10)
    assert answer.finish_reasons == ["length"]
    assert call.reads[0][0] == pytest.approx(10)
    assert stage.report.attempts[0].first_output_ms == pytest.approx(10_000)
    assert stage.asked == (1, 0)


# --- between two outputs -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        "stall@20",
        "keepalive_forever@20,form=comment",
        "keepalive_forever@20,form=empty",
        "keepalive_forever@20,form=role",
        "keepalive_forever@20,form=comment,every_s=0.1",
    ],
)
async def test_no_sign_of_life_is_an_output(stage: Stage, fault: str) -> None:
    stage.faults(fault)
    answer, call = await stage.ask()
    finished(answer)
    assert call.ended_s == pytest.approx(IDLE_S)
    assert fault_of(stage) is FaultKind.IDLE_TIMEOUT
    assert await stage.ended(1) is Ended.CLIENT_CLOSED
    assert answer.metadata is not None
    assert answer.metadata["failovers"][0]["pause_ms"] == pytest.approx(1000 * IDLE_S)


async def test_one_token_a_minute_is_too_slow(stage: Stage) -> None:
    stage.providers[0].manner.pace = Pace(tokens_per_s=1 / 60)
    answer, call = await stage.ask()
    finished(answer)
    assert call.ended_s == pytest.approx(IDLE_S)
    assert fault_of(stage) is FaultKind.IDLE_TIMEOUT


async def test_a_token_just_in_time_is_enough(stage: Stage) -> None:
    stage.providers[0].manner.pace = Pace(tokens_per_s=1 / 4.9)
    answer, _ = await stage.ask(max_tokens=12)
    assert answer.finish_reasons == ["length"]
    assert stage.asked == (1, 0)


async def test_reasoning_feeds_the_idle_limit_and_the_total_one_ends_it(stage: Stage) -> None:
    endless = Script(text=TEXT, reasoning=seeded_text("endless", 2_000))
    stage.faults(script=endless)
    stage.providers[0].manner.pace = Pace(tokens_per_s=1 / 4)
    answer, call = await stage.ask()
    unfinished(answer, code="deadline_exceeded")
    assert call.ended_s == pytest.approx(TOTAL_S)
    assert fault_of(stage) is FaultKind.DEADLINE
    assert stage.asked == (1, 0)


async def test_a_pause_in_reasoning_forbids_no_retry(stage: Stage) -> None:
    """Reasoning is no output: another model reasons afresh, and answers."""
    reasoning = "Let me think about this for a while."
    stage.faults("stall@4", script=Script(text=TEXT, reasoning=reasoning))
    answer, call = await stage.ask()
    finished(answer)
    assert call.ended_s == pytest.approx(IDLE_S)
    assert fault_of(stage) is FaultKind.IDLE_TIMEOUT
    assert stage.asked == (1, 1)
    assert stage.requests(2)[0].prefix == ""


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["comment", "silence"])
async def test_a_body_that_goes_on_after_done_holds_nobody_up(stage: Stage, form: str) -> None:
    stage.faults(f"after_done_forever,form={form},every_s=0.01")
    answer, call = await stage.ask()
    finished(answer)
    assert call.ended_s == pytest.approx(0, abs=0.01)
    await stage.clock.advance(1)
    assert await stage.ended(1) is Ended.CLIENT_CLOSED
    assert fault_of(stage) is None


async def test_a_body_that_goes_on_after_the_finish_is_given_a_moment(stage: Stage) -> None:
    word = '{"choices":[{"index":0,"delta":{"content":"Yes."},"finish_reason":null}]}'
    finish = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    body = f"data: {word}\n\ndata: {finish}\n\n"
    stage.providers[0].manner.raw = RawAnswer(body=body.encode(), after="stall")
    answer, call = await stage.ask()
    finished(answer, "Yes.")
    assert call.ended_s == pytest.approx(FINISH_GRACE_S)
    await stage.clock.advance(1)
    assert await stage.ended(1) is Ended.CLIENT_CLOSED
    assert stage.asked == (1, 0)


# --- the whole -----------------------------------------------------------------------------------


async def test_an_attempt_that_cannot_end_in_time_is_not_started(stage: Stage) -> None:
    stage.faults("silent")
    answer, call = await stage.ask(model="short")
    assert answer.status == 504
    unfinished(answer, code="deadline_exceeded")
    assert call.ended_s == pytest.approx(FIRST_S)
    assert stage.asked == (1, 0)


async def test_a_stream_that_outlives_its_time_is_ended(stage: Stage) -> None:
    stage.providers[0].manner.pace = Pace(tokens_per_s=1)
    answer, call = await stage.ask(model="short")
    unfinished(answer, code="deadline_exceeded")
    assert call.ended_s == pytest.approx(20)
    assert TEXT.startswith(answer.delivered)
    assert answer.delivered.startswith("".join(TOKENS[:20]))
    assert await stage.ended(1) is Ended.CLIENT_CLOSED


# --- waiting before a retry ----------------------------------------------------------------------


def limited(wait: str, *, header: str = "", message: str = "") -> FaultSpec:
    return FaultSpec(
        kind=Misdeed.STATUS,
        status=429,
        times=1,
        retry_after=wait,
        header=header,
        message=message,
    )


NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)


def date(second: int) -> str:
    return format_datetime(NOW.replace(second=second), usegmt=True)


AT = f"Date: {date(0)}"


@pytest.mark.parametrize(
    ("fault", "waited_s"),
    [
        (limited("0"), 0),
        (limited("1"), 1),
        (limited("2"), 2),
        (limited("1.5"), 1.5),
        (limited(date(2), header=AT), 2),
        (limited("", header="retry-after-ms: 750"), 0.75),
        (limited("", header="x-ratelimit-reset-requests: 1s"), 1),
        (limited("", message="Limit reached. Please try again in 1.25s."), 1.25),
    ],
)
async def test_a_short_wait_is_waited(stage: Stage, fault: FaultSpec, waited_s: float) -> None:
    stage.faults(fault)
    answer, call = await stage.ask()
    finished(answer)
    assert stage.asked == (2, 0)
    first, second = stage.requests(1)
    assert second.received_at - first.received_at == pytest.approx(waited_s)
    assert call.reads[0][0] == pytest.approx(waited_s)


@pytest.mark.parametrize(
    "fault",
    [
        limited("3"),
        limited("86400"),
        limited("1e300"),
        limited(date(30), header=AT),
        limited("", header="x-ratelimit-reset-tokens: 6m0s"),
        limited("", message="Please try again in 20s."),
    ],
)
async def test_a_long_wait_is_not(stage: Stage, fault: FaultSpec) -> None:
    stage.faults(fault)
    answer, call = await stage.ask()
    finished(answer)
    assert stage.asked == (1, 1)
    assert call.reads[0][0] == pytest.approx(0)


async def test_a_wait_that_the_deadline_forbids_is_not_waited(stage: Stage) -> None:
    """Two seconds and the limit for a first output do not fit into sixteen; another target does."""
    stage.faults(limited("2"))
    answer, call = await stage.ask(model="tight")
    finished(answer)
    assert stage.asked == (1, 1)
    assert call.reads[0][0] == pytest.approx(0)


async def test_the_last_one_left_tells_how_long_to_wait(stage: Stage) -> None:
    stage.faults("rate_limit,retry_after=30")
    answer, call = await stage.ask(model="alone")
    assert answer.status == 429
    unfinished(answer, code="all_targets_failed")
    assert answer.headers["retry-after"] == "30"
    assert stage.asked == (1, 0)
    assert call.ended_s == pytest.approx(0)


# --- a long wait before the first output ---------------------------------------------------------


async def test_a_long_wait_is_spoken_into() -> None:
    async with staged(providers=2, server={"commit_headers_after_s": 10}) as stage:
        stage.faults("stall@0", "first_token_s=14")
        answer, call = await stage.ask()
        finished(answer)
        moments = [moment for moment, _ in call.reads]
        assert moments[:2] == pytest.approx([10, 20])
        assert answer.comments == [": waiting", ": waiting"]
        assert b": waiting\n\n" not in answer.raw
        assert "x-router-target" not in answer.headers

        await stage.rest()
        stage.faults("stall@0", "stall@0")
        answer, call = await stage.ask()
        assert answer.status == 200
        unfinished(answer, code="all_targets_failed")


# --- connecting, in real time --------------------------------------------------------------------


async def test_a_connection_that_never_stands_is_given_up() -> None:
    """The kernel answers nobody once the queue of a listener that never accepts is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        address = deaf.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(address)
            async with SimulatedProvider(script=TALK) as healthy:
                config = routed(
                    f"http://127.0.0.1:{address[1]}/v1",
                    healthy,
                    route={"timeouts": {"connect_s": 0.2}},
                )
                async with running_router(config) as router:
                    async with asyncio.timeout(10):
                        answer, _ = await called(router.base_url)
        finally:
            for filler in fillers:
                filler.close()
    finished(answer)
    assert answer.metadata is not None
    assert [one["fault"] for one in answer.metadata["attempts"]] == ["connect", None]


async def test_a_server_that_speaks_no_tls_is_no_connection() -> None:
    async with SimulatedProvider(script=TALK) as plain, SimulatedProvider(script=TALK) as healthy:
        wrong = plain.base_url.replace("http:", "https:")
        async with running_router(routed(wrong, healthy)) as router:
            answer, _ = await called(router.base_url)
    check_contract(answer)
    assert answer.metadata is not None
    assert [one["fault"] for one in answer.metadata["attempts"]] == ["connect", None]
