"""Stalls found early: what is usual is learnt, and another target is asked while one still listens.

All times are fake, so a race can be arranged to the moment.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
import pytest_asyncio
from fault_kit import (
    ACT,
    AFTER_CALL,
    LIMITS,
    TEXT,
    TOKENS,
    Stage,
    finished,
    route,
    staged,
    unfinished,
)
from support.caller import calling

from router.core.events import Event, Text
from router.core.faults import Fault, FaultKind
from router.engine.gaps import FACTOR, FLOOR_S, MIN_SAMPLES, SAMPLES, Gaps
from router.engine.hedge import Hedge
from router.engine.observe import TargetEjected
from router.simulate import Conduct, Ended, Pace, RawAnswer

pytestmark = pytest.mark.asyncio(loop_scope="module")

RATE = 50.0
STALL_AT = 30
TOLD_S = (STALL_AT - 1) / RATE
"""When the last token before the stall is with the client."""
SLOW_S = FLOOR_S
"""The adaptive limit of a target that is known for gaps of 20 ms: three of those are below the
floor."""

ROUTES = {
    "fixed": route(1, 2, 3),
    "adaptive": route(1, 2, 3, stall="adaptive"),
    "hedge": route(1, 2, 3, stall="hedge"),
    "once": route(1, 2, stall="hedge", max_attempts=1),
    "alone": route(1, stall="hedge"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Stage]:
    async with staged(routes=ROUTES) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="module")
async def stage(shared: Stage) -> Stage:
    await prepare(shared)
    return shared


async def prepare(stage: Stage) -> None:
    await stage.rest()
    for name in ROUTES:
        for target in stage.router.serving.generation.routes[name].targets:
            target.gaps._longest_s.clear()
            for _ in range(MIN_SAMPLES):
                target.gaps.add(1 / RATE)
    for provider in stage.providers:
        provider.manner.pace = Pace(tokens_per_s=RATE)


def ends(stage: Stage) -> list[tuple[str, FaultKind | None]]:
    attempts = stage.report.attempts
    return [(one.target[:2], one.fault.kind if one.fault else None) for one in attempts]


# --- what is learnt ------------------------------------------------------------------------------


async def test_nothing_is_known_of_a_few() -> None:
    gaps = Gaps()
    for _ in range(MIN_SAMPLES - 1):
        gaps.add(1.0)
    assert gaps.limit_s() is None
    gaps.add(1.0)
    assert gaps.limit_s() == pytest.approx(FACTOR)


async def test_the_limit_follows_a_target_that_becomes_slower() -> None:
    gaps = Gaps()
    for _ in range(SAMPLES):
        gaps.add(0.2)
    assert gaps.limit_s() == pytest.approx(0.2 * FACTOR)
    for _ in range(SAMPLES // 2 - 1):
        gaps.add(30.0)  # a row of stalls is no habit yet
    assert gaps.limit_s() == pytest.approx(0.2 * FACTOR)
    for _ in range(SAMPLES):
        gaps.add(gaps.limit_s() or 0)  # cut off each time: that it lasted so long is known
    assert (gaps.limit_s() or 0) > 30


@pytest.mark.parametrize("name", ["adaptive", "hedge"])
async def test_it_is_learnt_from_the_target_s_own_answers(stage: Stage, name: str) -> None:
    target = stage.router.serving.generation.routes[name].targets[0]
    target.gaps._longest_s.clear()
    stage.providers[0].manner.pace = Pace(tokens_per_s=4)
    for _ in range(MIN_SAMPLES):
        assert target.gaps.limit_s() is None
        finished((await stage.ask(model=name))[0])
    assert target.gaps.limit_s() == pytest.approx(FACTOR / 4)
    assert stage.asked == (MIN_SAMPLES, 0, 0)


async def test_until_it_is_known_the_fixed_limit_holds(stage: Stage) -> None:
    for target in stage.router.serving.generation.routes["hedge"].targets:
        target.gaps._longest_s.clear()
    stage.faults(f"stall@{STALL_AT}")
    answer, _ = await stage.ask(model="hedge")
    finished(answer)
    second = stage.requests(2)[0].received_at - stage.requests(1)[0].received_at
    assert second == pytest.approx(TOLD_S + LIMITS["idle_s"])


# --- the pause -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "limit_s"), [("fixed", LIMITS["idle_s"]), ("adaptive", SLOW_S), ("hedge", SLOW_S)]
)
async def test_a_stall_after_thirty_tokens(stage: Stage, name: str, limit_s: float) -> None:
    """The pause is the limit, and the tokens that the client has already; 5.1 s against 0.4 s."""
    stage.faults(f"stall@{STALL_AT}")
    answer, _ = await stage.ask(model=name)
    finished(answer)
    assert answer.delivered == TEXT
    first, second = stage.requests(1)[0], stage.requests(2)[0]
    assert second.received_at - first.received_at == pytest.approx(TOLD_S + limit_s)
    assert first.ended is Ended.CLIENT_CLOSED
    assert first.ended_at == pytest.approx(second.received_at)  # its first token came at once
    assert ends(stage) == [("p1", FaultKind.IDLE_TIMEOUT), ("p2", None)]
    assert answer.metadata is not None
    (failover,) = answer.metadata["failovers"]
    repeated = len(second.prefix) and TOKENS[:STALL_AT]
    assert repeated
    assert limit_s * 1000 <= failover["pause_ms"] <= limit_s * 1000 + 1000 * STALL_AT / RATE


# --- races ---------------------------------------------------------------------------------------


async def test_the_silent_one_goes_on_first(stage: Stage) -> None:
    stage.faults(f"stall@{STALL_AT},for_s=1", "first_token_s=3")
    answer, _ = await stage.ask(model="hedge")
    finished(answer)
    assert answer.delivered == TEXT
    assert stage.asked == (1, 1, 0)
    (loser,) = stage.requests(2)
    assert loser.ended is Ended.CLIENT_CLOSED
    assert loser.tokens_sent == 0
    # Closed in the moment in which the first one spoke, not at the end.
    spoke_s = stage.requests(1)[0].received_at + TOLD_S + 1
    assert loser.ended_at == pytest.approx(spoke_s, abs=0.05)
    assert ends(stage) == [("p1", None), ("p2", FaultKind.HEDGED)]
    assert answer.metadata is not None
    assert answer.metadata["failovers"] == []
    assert [one["fault"] for one in answer.metadata["attempts"]] == [None, "hedged"]
    assert stage.told(TargetEjected) == []


def body(tokens: list[str]) -> bytes:
    chunks = (
        json.dumps({"choices": [{"index": 0, "delta": {"content": token}}]}) for token in tokens
    )
    return "".join(f"data: {chunk}\n\n" for chunk in chunks).encode()


FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


async def test_it_goes_on_with_all_the_rest_at_once(stage: Stage) -> None:
    """The finish comes in the same read as the first word: the books still know what it cost."""
    begin, rest = body(TOKENS[:STALL_AT]), body(TOKENS[STALL_AT:]) + FINISH
    stage.providers[0].manner.raw = RawAnswer(body=begin + rest, splits=(len(begin),))
    stage.providers[0].manner.pace = Pace(tokens_per_s=1)  # the second piece a second later
    stage.faults(None, "first_token_s=3")
    answer, _ = await stage.ask(model="hedge")
    finished(answer)
    assert ends(stage) == [("p1", None), ("p2", FaultKind.HEDGED)]
    assert await stage.ended(2) is Ended.CLIENT_CLOSED


async def test_it_stalls_again_and_again(stage: Stage) -> None:
    """Each silence asks again, within the budget of attempts."""
    stage.faults(None, "first_token_s=3", "first_token_s=3")
    stage.providers[0].manner.pace = Pace(tokens_per_s=2)  # a stall at every token
    answer, _ = await stage.ask(model="hedge", max_tokens=12)
    assert answer.finish_reasons == ["length"]
    assert answer.delivered == "".join(TOKENS[:12])
    assert sum(stage.asked) == 4
    assert all(one.ended is Ended.CLIENT_CLOSED for one in stage.requests(2))
    assert len(stage.report.attempts) == 4


@pytest.mark.parametrize("first_ms", range(0, 121, 20))
@pytest.mark.parametrize("second_ms", range(0, 121, 20))
async def test_both_speak_at_about_the_same_time(
    stage: Stage, first_ms: int, second_ms: int
) -> None:
    """Whoever wins: every word once, one finish, the other closed and counted."""
    stall_s = SLOW_S + first_ms / 1000
    stage.faults(f"stall@{STALL_AT},for_s={stall_s}", f"first_token_s={second_ms / 1000}")
    answer, _ = await stage.ask(model="hedge")
    finished(answer)
    assert answer.delivered == TEXT
    await stage.clock.settle()
    asked = stage.asked
    assert asked in {(1, 1, 0), (1, 0, 0)}
    if asked == (1, 0, 0):
        assert first_ms == 0
        return
    loser = 2 if ends(stage)[0] == ("p1", None) else 1
    won = {2: [("p1", None), ("p2", FaultKind.HEDGED)]}
    won[1] = [("p1", FaultKind.IDLE_TIMEOUT), ("p2", None)]
    assert ends(stage) == won[loser]
    assert stage.requests(loser)[0].ended is Ended.CLIENT_CLOSED
    assert stage.requests(3 - loser)[0].ended is Ended.COMPLETED
    if first_ms != second_ms:
        # With a margin the earlier one wins; the loser's later words go nowhere.
        margin = abs(first_ms - second_ms) > 20
        assert not margin or loser == (2 if first_ms < second_ms else 1)
    await stage.clock.advance(1)
    assert stage.clock.pending == 0


@pytest.mark.parametrize("fault", ["status=503", "reset", "html", "cut@0", "unauthorized"])
async def test_the_second_fails_and_the_first_goes_on(stage: Stage, fault: str) -> None:
    stage.faults(f"stall@{STALL_AT},for_s=1", fault)
    answer, _ = await stage.ask(model="hedge")
    finished(answer)
    assert answer.delivered == TEXT
    assert [name for name, _ in ends(stage)] == ["p1", "p2"]
    assert ends(stage)[0] == ("p1", None)
    assert ends(stage)[1][1] not in {None, FaultKind.HEDGED}
    assert stage.asked == (1, 1, 0)


async def test_the_second_fails_and_the_first_stays_silent(stage: Stage) -> None:
    stage.faults(f"stall@{STALL_AT}", "status=503")
    answer, _ = await stage.ask(model="hedge")
    finished(answer)
    assert ends(stage) == [
        ("p1", FaultKind.IDLE_TIMEOUT),
        ("p2", FaultKind.STATUS),
        ("p3", None),
    ]
    third = stage.requests(3)[0].received_at - stage.requests(1)[0].received_at
    assert third == pytest.approx(TOLD_S + LIMITS["idle_s"])


async def test_the_first_dies_while_the_second_is_asked(stage: Stage) -> None:
    stage.faults(f"stall@{STALL_AT}", "first_token_s=3")
    async with calling(stage.router.base_url, now_s=stage.clock.now_s, model="hedge") as call:
        await stage.clock.until(lambda: stage.sent(1) == STALL_AT)
        await stage.clock.advance(0.5)
        assert stage.asked == (1, 1, 0)
        await stage.providers[0].close()
        answer = await stage.clock.run(call.answer())
    await stage.providers[0].start()
    finished(answer)
    assert answer.delivered == TEXT
    assert ends(stage) == [("p1", FaultKind.CUT), ("p2", None)]
    assert stage.asked == (1, 1, 0)


@pytest.mark.parametrize("waited_s", [0.0, 0.1, 1.0, 4.9, 5.5])
async def test_the_client_leaves_in_mid_race(stage: Stage, waited_s: float) -> None:
    """Also when the first one has been given up already and only the second is waited for."""
    stage.faults(f"stall@{STALL_AT}", "stall@0", "stall@0")
    async with calling(stage.router.base_url, now_s=stage.clock.now_s, model="hedge") as call:
        await stage.clock.until(lambda: stage.sent(1) == STALL_AT)
        await stage.clock.advance(SLOW_S + waited_s)
        assert stage.asked == (1, 1, 0)
        await call.leave()
    await stage.clock.settle()
    assert [stage.requests(number)[0].ended for number in (1, 2)] == ["client_closed"] * 2
    assert stage.report.outcome == "client_gone"
    assert [name for name, _ in ends(stage)] == ["p1", "p2"]
    assert None not in [fault for _, fault in ends(stage)]
    await stage.clock.advance(1)
    assert stage.clock.pending == 0
    stage.faults(None, None, None)
    finished((await stage.ask(model="hedge"))[0])


async def test_the_deadline_ends_a_race(stage: Stage) -> None:
    stage.faults("keepalive_forever@30,form=comment", "stall@0", "stall@0")
    answer, _ = await stage.ask(model="hedge")
    unfinished(answer, code="stream_interrupted")
    assert answer.delivered == "".join(TOKENS[:STALL_AT])
    await stage.clock.settle()
    for number in (1, 2, 3):
        assert {one.ended for one in stage.requests(number)} <= {Ended.CLIENT_CLOSED}


class Second:
    """An attempt that speaks at once; and who made it, and keeps the books."""

    def __init__(self) -> None:
        self.attempt = self
        self.first: list[Event] = []
        self.opened = self.closed = self.ended = False
        self.noted: list[Fault | None] = []
        self.may_open = asyncio.Event()
        self.on_slow: Callable[[], None] = lambda: None
        self.on_overtaking: Callable[[], bool] = lambda: True

    def watch_for_stall(self, on_slow: Callable[[], None], on_recovered: object) -> None:
        assert on_recovered
        self.on_slow = on_slow

    def beside(self, asked: object) -> Second:
        assert asked is self
        return self

    def note(self, asked: object, fault: Fault | None) -> None:
        assert asked is self
        self.noted.append(fault)

    async def open(self) -> Fault | None:
        await self.may_open.wait()
        return None

    async def read(self) -> list[Event]:
        return [Text("Hello")]

    def overtake(self) -> bool:
        assert self.on_overtaking()
        return True

    async def aclose(self) -> None:
        self.closed = True


async def test_a_winner_that_nobody_takes_is_closed() -> None:
    """The client leaves in the moment in which the second one wins."""
    second = Second()
    hedge = Hedge(cast("Any", second), cast("Any", second))
    second.on_slow()
    taking = asyncio.get_running_loop().create_task(hedge.result())
    await asyncio.sleep(0)  # it waits for the second one now
    second.on_overtaking = taking.cancel
    second.may_open.set()
    await asyncio.gather(taking, return_exceptions=True)
    assert taking.cancelled()
    await hedge.aclose()
    assert second.closed
    assert [fault.kind for fault in second.noted if fault] == [FaultKind.HEDGED]


# --- when there is nobody to ask -----------------------------------------------------------------


async def test_a_tool_call_is_never_raced(stage: Stage) -> None:
    stage.faults(f"stall@{AFTER_CALL},for_s=2", script=ACT)
    answer, _ = await stage.ask(model="hedge")
    assert answer.finish_reasons == ["tool_calls"]
    assert stage.asked == (1, 0, 0)

    await prepare(stage)
    stage.faults(f"stall@{AFTER_CALL}", script=ACT)
    answer, _ = await stage.ask(model="hedge")
    unfinished(answer, code="tool_call_interrupted")
    assert stage.asked == (1, 0, 0)


@pytest.mark.parametrize("name", ["once", "alone"])
async def test_a_budget_of_one_is_never_raced(stage: Stage, name: str) -> None:
    stage.faults(f"stall@{STALL_AT},for_s=2")
    answer, _ = await stage.ask(model=name)
    finished(answer)
    assert stage.asked == (1, 0, 0)


async def test_before_the_first_output_nothing_is_raced(stage: Stage) -> None:
    stage.faults("first_token_s=4")
    answer, _ = await stage.ask(model="hedge")
    finished(answer)
    assert stage.asked == (1, 0, 0)


async def test_a_race_costs_what_it_costs(stage: Stage) -> None:
    """What the loser's prompt cost is in the books, and not in the client's usage twice."""
    stage.faults(f"stall@{STALL_AT},for_s=1", "first_token_s=3")
    answer, _ = await stage.ask(model="hedge", stream_options={"include_usage": True})
    finished(answer)
    usage = [chunk["usage"] for chunk in answer.chunks if chunk.get("usage")]
    assert len(usage) == 1
    assert usage[0]["completion_tokens"] == 60


async def test_a_second_attempt_that_only_finishes_overtakes_nobody(stage: Stage) -> None:
    stage.faults(f"stall@{STALL_AT},for_s={SLOW_S + 2}")
    stage.providers[1].manner.conduct = Conduct(prefix="empty")
    answer, _ = await stage.ask(model="hedge")
    finished(answer)
    assert answer.delivered == TEXT
