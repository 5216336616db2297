"""Who is left alone, for how long, and how one comes back: through the whole router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from fault_kit import AFTER_TEXT, Stage, finished, route, staged
from support.caller import called, calling

from router.core.failover import Ask, Budget, Candidate, Phase, Progress, next_action
from router.core.faults import Fault, FaultKind, Verdict
from router.engine.health import MIN_RATE_ATTEMPTS, RATE_WINDOW
from router.engine.observe import TargetEjected, TargetRestored
from router.simulate import Ended

pytestmark = pytest.mark.asyncio(loop_scope="module")

COOL_S, LONGEST_S = 10.0, 30.0
P1 = "p1/model-p1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Stage]:
    health = {
        "eject_after": 3,
        "eject_rate": 1,
        "cool_down_s": COOL_S,
        "max_cool_down_s": LONGEST_S,
    }
    routes = {"chat": route(1, 2, retry={"same_target": 0}), "retrying": route(1, 2)}
    async with staged(providers=2, health=health, routes=routes) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="module")
async def stage(shared: Stage) -> Stage:
    await shared.rest()
    return shared


def ejections(stage: Stage) -> list[TargetEjected]:
    return stage.told(TargetEjected)


async def ask(stage: Stage, model: str = "chat") -> None:
    finished((await stage.ask(model=model))[0])


async def eject(stage: Stage, fault: str = "status=503") -> None:
    """Three faults in a row."""
    stage.faults(fault)
    for _ in range(3):
        await ask(stage)
    assert [one.target for one in ejections(stage)] == [P1]
    assert stage.asked == (3, 3)


def standing(stage: Stage) -> str:
    return str(stage.router.serving.engine.health.summary(P1)["standing"])


# --- out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["status=503", "reset", "cut@0", "html", "silent", "cut@40"])
async def test_faults_in_a_row_eject(stage: Stage, fault: str) -> None:
    await eject(stage, fault)
    (ejection,) = ejections(stage)
    assert (ejection.cool_down_s, ejection.alarm) == (COOL_S, False)
    for _ in range(5):
        await ask(stage)
    assert stage.asked == (3, 8)


async def test_a_success_between_faults_starts_the_count_anew(stage: Stage) -> None:
    for fault in ("status=503", "status=503", "-") * 3:
        stage.faults(fault)
        await ask(stage)
    assert ejections(stage) == []


@pytest.mark.parametrize(
    "fault",
    [
        "status=401",
        "status=402",
        "status=403",
        "status=404",
        "unauthorized",
        "no_model",
        "status=429,code=insufficient_quota",
        "redirect",
        "error@0,status=401,code=invalid_api_key",
        "error@40,status=402,code=insufficient_quota",
    ],
)
async def test_what_a_person_must_mend_ejects_at_once_and_alarms(stage: Stage, fault: str) -> None:
    stage.faults(fault)
    await ask(stage)
    (ejection,) = ejections(stage)
    assert (ejection.target, ejection.alarm, ejection.cool_down_s) == (P1, True, COOL_S)
    assert ejection.fault.condition == "account"
    await ask(stage)
    assert stage.asked == (1, 2)


@pytest.mark.parametrize("fault", ["status=400", "context_length", "content_policy"])
async def test_a_verdict_on_the_request_says_nothing_of_the_target(
    stage: Stage, fault: str
) -> None:
    stage.faults(fault)
    for _ in range(5):
        answer, _ = await stage.ask()
        assert answer.status == 400
    assert ejections(stage) == []


async def test_a_client_that_leaves_says_nothing_of_the_target(stage: Stage) -> None:
    stage.faults("stall@0")
    for _ in range(5):
        async with calling(stage.router.base_url, model="chat"):
            await stage.clock.settle()
    await stage.clock.settle()
    assert stage.asked == (5, 0)
    assert ejections(stage) == []


async def test_a_share_of_faults_ejects_too() -> None:
    health = {"eject_after": 1000, "eject_rate": 0.5, "cool_down_s": COOL_S}
    async with staged(
        providers=2, health=health, routes={"chat": route(1, 2, retry={"same_target": 0})}
    ) as stage:
        for number in range(MIN_RATE_ATTEMPTS - 2):  # and one success that the stage began with
            stage.faults("cut@40" if number % 2 else "-")
            await ask(stage)
            assert ejections(stage) == []
        stage.faults("cut@40")  # the tenth, and the fifth fault
        await ask(stage)
        assert [one.target for one in ejections(stage)] == [P1]
        await stage.clock.advance(COOL_S)
        stage.faults("-")
        await ask(stage)
        # What was before the ejection counts no more.
        for _ in range(MIN_RATE_ATTEMPTS - 2):
            stage.faults("cut@40")
            await ask(stage)
        assert len(ejections(stage)) == 1


async def test_a_share_below_the_limit_does_not() -> None:
    health = {"eject_after": 1000, "eject_rate": 0.5}
    async with staged(
        providers=2, health=health, routes={"chat": route(1, 2, retry={"same_target": 0})}
    ) as stage:
        for number in range(2 * RATE_WINDOW):
            stage.faults("-" if number % 3 else "cut@40")
            await ask(stage)
        assert ejections(stage) == []


# --- the way back --------------------------------------------------------------------------------


async def test_the_cool_down_grows_and_is_bounded(stage: Stage) -> None:
    await eject(stage)
    for cool_down_s in (10.0, 20.0, 30.0, 30.0):
        assert ejections(stage)[-1].cool_down_s == cool_down_s
        asked = stage.asked[0]
        await stage.clock.advance(cool_down_s - 0.1)
        await ask(stage)
        assert stage.asked[0] == asked  # still out
        await stage.clock.advance(0.1)
        await ask(stage)
        assert stage.asked[0] == asked + 1  # one probe, which fails
        await ask(stage)
        assert stage.asked[0] == asked + 1
    assert {one.alarm for one in ejections(stage)} == {False}


async def test_a_whole_answer_makes_the_next_cool_down_short_again(stage: Stage) -> None:
    await eject(stage)
    await stage.clock.advance(COOL_S)
    await ask(stage)
    assert ejections(stage)[-1].cool_down_s == 2 * COOL_S
    await stage.clock.advance(2 * COOL_S)
    stage.faults("-")
    await ask(stage)
    assert [one.target for one in stage.told(TargetRestored)] == [P1]
    stage.faults("status=503")
    for _ in range(3):
        await ask(stage)
    assert ejections(stage)[-1].cool_down_s == COOL_S


async def test_a_probe_that_only_begins_well_does_not(stage: Stage) -> None:
    """It is restored by its first output; what comes after is judged as ever, and remembered."""
    await eject(stage)
    await stage.clock.advance(COOL_S)
    stage.faults(f"cut@{AFTER_TEXT}")
    await ask(stage)
    assert standing(stage) == "well"
    for _ in range(2):
        await ask(stage)
    assert [one.cool_down_s for one in ejections(stage)] == [COOL_S, 2 * COOL_S]


async def test_it_is_used_again_as_soon_as_it_recovers(stage: Stage) -> None:
    await eject(stage)
    stage.faults("-")
    await ask(stage)
    assert stage.asked == (3, 4)
    await stage.clock.advance(COOL_S)
    for _ in range(4):
        await ask(stage)
    assert stage.asked == (7, 4)
    assert [one.target for one in stage.told(TargetRestored)] == [P1]


async def test_one_request_probes_and_the_others_go_elsewhere(stage: Stage) -> None:
    await eject(stage)
    await stage.clock.advance(COOL_S)
    stage.faults("stall@0,for_s=4")
    async with AsyncExitStack() as calls:
        probe = await calls.enter_async_context(calling(stage.router.base_url))
        await stage.clock.settle()
        assert standing(stage) == "probing"
        others = await stage.clock.run(
            asyncio.gather(*(called(stage.router.base_url) for _ in range(5))), within_s=1
        )
        for answer, _ in others:
            finished(answer)
            assert answer.headers["x-router-target"] == "p2/model-p2"
        assert stage.asked == (4, 8)
        stage.faults("-")
        answer = await stage.clock.run(probe.answer())
    finished(answer)
    assert answer.headers["x-router-target"] == P1
    await ask(stage)
    assert stage.asked == (5, 8)


async def test_the_first_output_restores_not_the_last(stage: Stage) -> None:
    await eject(stage)
    await stage.clock.advance(COOL_S)
    stage.faults("stall@10,for_s=4")
    async with calling(stage.router.base_url) as probe:
        await stage.clock.settle()
        assert standing(stage) == "well"
        stage.faults("-")
        await ask(stage)
        assert stage.asked == (5, 3)
        finished(await stage.clock.run(probe.answer()))


async def test_a_client_that_leaves_during_a_probe_releases_it(stage: Stage) -> None:
    await eject(stage)
    await stage.clock.advance(COOL_S)
    stage.faults("stall@0")
    async with calling(stage.router.base_url):
        await stage.clock.settle()
        assert standing(stage) == "probing"
    assert await stage.ended(1) is Ended.CLIENT_CLOSED
    assert stage.router.serving.engine.health.available(P1)
    stage.faults("-")
    await ask(stage)
    assert stage.asked == (5, 3)
    assert standing(stage) == "well"


@pytest.mark.parametrize("fault", ["status=400", "context_length", "content_policy"])
async def test_a_verdict_on_a_probe_s_request_releases_it(stage: Stage, fault: str) -> None:
    await eject(stage)
    await stage.clock.advance(COOL_S)
    stage.faults(fault)
    answer, _ = await stage.ask()
    assert answer.status == 400
    stage.faults("-")
    await ask(stage)
    assert stage.asked == (5, 3)
    assert standing(stage) == "well"


@pytest.mark.parametrize("fault", ["status=503", "error@0,status=503", "rate_limit,retry_after=1"])
async def test_a_probe_that_fails_is_one_request(stage: Stage, fault: str) -> None:
    """The retry on the same target, which a passing fault otherwise allows, is no second probe."""
    await eject(stage)
    await stage.clock.advance(COOL_S)
    stage.faults(fault)
    await ask(stage, "retrying")
    assert stage.asked == (4, 4)


async def test_with_all_of_them_out_the_first_is_asked_all_the_same(stage: Stage) -> None:
    stage.faults("status=503", "status=503")
    for _ in range(3):
        await stage.ask()
    assert len(ejections(stage)) >= 2
    stage.faults("-", "-")
    before = stage.asked
    await ask(stage)
    assert stage.asked == (before[0] + 1, before[1])


async def test_what_a_person_sees(stage: Stage) -> None:
    stage.faults("unauthorized")
    await ask(stage)
    await stage.clock.advance(4)
    seen = stage.router.serving.engine.health.summary(P1)
    assert seen["standing"] == "ejected"
    assert seen["available"] is False
    assert seen["cool_down_left_s"] == 6
    assert seen["last_fault"]["condition"] == "account"
    assert seen["last_fault"]["status"] == 401


# --- the decision itself -------------------------------------------------------------------------

BUSY = Fault(kind=FaultKind.STATUS, verdict=Verdict.TRANSIENT, status=503)
BEFORE = Progress(phase=Phase.BEFORE_OUTPUT)


async def test_a_target_that_the_fault_ejected_is_not_retried_while_another_is_left() -> None:
    budget = Budget(attempts_left=3, time_left_s=100, retries_left=1, jitter=0)
    out, other = Candidate(available=False, failed=True), Candidate()
    assert next_action(BUSY, BEFORE, budget, [out, other], 0) == Ask(1)
    assert next_action(BUSY, BEFORE, budget, [out], 0) == Ask(0)


async def test_the_deadline_chooses_among_the_targets() -> None:
    """A wait, or a target, that does not fit is passed over for one that does."""
    slow = Candidate(failed=True, first_output_s=15)
    slower, quick = Candidate(first_output_s=30), Candidate(first_output_s=5)
    budget = Budget(attempts_left=3, time_left_s=16, retries_left=1)
    wait = Fault(kind=FaultKind.STATUS, status=429, retry_after_s=2)
    assert next_action(wait, BEFORE, budget, [slow, slower, quick], 0) == Ask(2)
