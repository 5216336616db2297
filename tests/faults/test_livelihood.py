"""After every fault the next request is answered, and nothing of the last one is left open."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from fault_kit import ACT, AFTER_CALL, AFTER_TEXT, TALK, Stage, finished, route, staged
from support.caller import calling
from support.routers import routed, running_router

from router.engine.attempt import FINISH_GRACE_S, RELEASE_GRACE_S
from router.simulate import Script, SimulatedProvider

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESUME_WINDOW_S = 120.0

BEFORE = (
    "refuse",
    "reset",
    "close",
    "silent",
    "slow_header",
    "status=503",
    "status=400",
    "unauthorized",
    "redirect",
    "html",
    "json",
    "done_only",
    "bad_length,delta=-1000",
    "bad_length,delta=1000",
    "gzip",
    "role_then_silence",
)
MIDST = (
    "cut",
    "rst",
    "cut_byte",
    "stall",
    "keepalive_forever",
    "error",
    "error_then_done",
    "malformed",
    "big_line,size_bytes=9000000",
    "no_finish",
    "done_early",
    "finish_error",
)
END = ("no_done", "cut_after_finish", "after_done_forever", "after_done_forever,form=silence")


def at(fault: str, place: int) -> str:
    name, _, rest = fault.partition(",")
    return f"{name}@{place * 170 if name == 'cut_byte' else place}" + (rest and f",{rest}")


CASES: list[tuple[str, Script]] = [
    *((fault, TALK) for fault in (*BEFORE, *END)),
    *((at(fault, 0), TALK) for fault in MIDST),
    *((at(fault, AFTER_TEXT), TALK) for fault in MIDST),
    *((at(fault, AFTER_CALL), ACT) for fault in MIDST),
    *((fault, ACT) for fault in END),
]
IDS = [f"{fault}{'-call' if script is ACT else ''}" for fault, script in CASES]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Stage]:
    routes = {"chat": route(1, 2), "alone": route(1, max_attempts=1)}
    record = {"resume_window_s": RESUME_WINDOW_S}
    async with staged(routes=routes, providers=2, record=record) as stage:
        await at_rest(stage)
        yield stage


@pytest_asyncio.fixture(loop_scope="module")
async def stage(shared: Stage) -> Stage:
    await shared.rest()
    return shared


async def at_rest(stage: Stage) -> None:
    """Behaving again; idle connections are dropped, and what was put off is over."""
    for provider in stage.providers:
        provider.set_faults(None)
        provider.go_down()
        await stage.clock.settle()
        await provider.come_back()
    await stage.clock.advance(FINISH_GRACE_S + RELEASE_GRACE_S)


def tasks() -> Counter[str]:
    """What runs, by name. The warmers end by themselves some seconds later, and the connections of
    the providers are counted by the providers."""
    names = (task.get_coro().__qualname__ for task in asyncio.all_tasks())  # type: ignore[union-attr]
    apart = {"Upstream._stay_warm", "SimulatedProvider._serve"}
    return Counter(name for name in names if name not in apart)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def records(stage: Stage) -> int:
    return stage.router.serving.engine.store.stats["records"]


@pytest.mark.parametrize(("fault", "script"), CASES, ids=IDS)
async def test_after_a_fault(stage: Stage, fault: str, script: Script) -> None:
    before = tasks()
    stage.faults(fault, script=script)
    for model in ("chat", "alone"):
        answer, _ = await stage.ask(model=model)
        assert (answer.done == 1) == (stage.report.outcome == "completed")
    await at_rest(stage)
    assert stage.clock.pending == 0
    assert tasks() == before
    assert [provider.open_connections for provider in stage.providers] == [0, 0]

    stage.faults("-", script=TALK)
    answer, _ = await stage.ask(model="alone")
    finished(answer)
    assert stage.requests(1)[-1].finish_sent


@pytest.mark.parametrize("place", [0, AFTER_TEXT, AFTER_CALL])
async def test_after_a_client_has_left(stage: Stage, place: int) -> None:
    script = ACT if place == AFTER_CALL else TALK
    before = tasks()
    stage.faults(f"stall@{place}", script=script)
    for _ in range(3):
        async with calling(stage.router.base_url, now_s=stage.clock.now_s) as call:
            await stage.clock.settle()
            await call.leave()
    await stage.clock.settle()
    assert [request.ended for request in stage.requests(1)] == ["client_closed"] * 3
    await at_rest(stage)
    assert stage.clock.pending == 0
    assert tasks() == before
    stage.faults("-", script=TALK)
    finished((await stage.ask(model="alone"))[0])


async def test_records_outlive_an_interruption_by_the_window_and_no_more(stage: Stage) -> None:
    await stage.clock.advance(2 * RESUME_WINDOW_S)
    stage.faults(f"cut@{AFTER_TEXT}")
    await stage.ask(model="alone")
    assert stage.report.outcome == "stream_interrupted"
    kept = records(stage)
    assert kept >= 1
    stage.faults("-")
    await stage.ask(model="alone")
    assert records(stage) <= kept  # a whole answer leaves none
    await stage.clock.advance(RESUME_WINDOW_S + 1)
    await stage.ask(model="alone")
    assert records(stage) == 0


async def test_no_file_is_left_open(stage: Stage) -> None:
    """Every fault again and again: the process holds as many files as before."""
    counts = []
    for _ in range(2):
        for fault, script in CASES:
            stage.faults(fault, script=script)
            await stage.ask(model="alone")
        await at_rest(stage)
        counts.append(open_files())
    assert counts[0] == counts[1]


async def test_a_fallback_that_was_only_kept_warm_is_closed() -> None:
    """A session that never sent a request is closed with the others: a warning is an error here."""
    async with (
        SimulatedProvider(script=TALK) as first,
        SimulatedProvider(script=TALK) as second,
    ):
        async with (
            running_router(routed(first, second)) as router,
            calling(router.base_url) as call,
        ):
            finished(await call.answer())
            assert second.requests == []
        await second.wait_connections(0)
        await first.wait_connections(0)
