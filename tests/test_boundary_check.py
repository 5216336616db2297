"""A route's own check: asked before a unit is committed, and obeyed."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.caller import called, calling
from support.json_texts import Json
from support.reading import ask, check_contract
from support.routers import Router, routed, running_router

from router.core.boundary import make_boundary
from router.core.commit import CommitMachine
from router.core.events import ToolCall
from router.core.unit import MAX_REASON_CHARS, Reject, Unit, Verdict, reason_of
from router.engine.check import BoundaryCheck, OnReject
from router.engine.judge import MAX_WAITING_UNITS, Transcript
from router.engine.observe import CheckFailed, Committed, Detail
from router.simulate import Ended, Script, SimulatedProvider, Turnstile

FIRST = "It began well. It went on. Here is the FORBIDDEN part. And it ended."
SECOND = "It began well. It went on. Here is a harmless part. And it ended."
TARGETS = [{}, {"continuation": {"style": "instruct", "schema": "drop"}}]

Call = Callable[[Unit], Verdict | Awaitable[Verdict]]


def forbid(unit: Unit) -> Verdict:
    """The check of most tests; also found by its name."""
    return Reject("it says FORBIDDEN") if "FORBIDDEN" in unit.text else None


@asynccontextmanager
async def checked(
    *providers: SimulatedProvider, call: Call, observers: tuple[Any, ...] = (), **how: Json
) -> AsyncIterator[Router]:
    """A router whose route asks a check."""
    config = routed(*providers, targets=TARGETS, health={"eject_after": 1000, "eject_rate": 1})
    async with running_router(config, observers=observers) as it:
        routes: Any = it.serving.generation.routes
        check = BoundaryCheck(call, **{"limit_s": 20.0, **how})
        routes["chat"] = dataclasses.replace(routes["chat"], check=check)
        yield it


def says(text: str, **how: Json) -> SimulatedProvider:
    return SimulatedProvider(script=Script(text=text), **how)


# -- text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [True, False])
async def test_every_part_of_a_text_is_asked_about_in_order(plain: bool) -> None:
    units: list[Unit] = []

    def note(unit: Unit) -> Verdict:
        units.append(unit)
        return True

    async def note_later(unit: Unit) -> Verdict:
        await asyncio.sleep(0)
        return note(unit)

    async with says(FIRST) as one, checked(one, call=note if plain else note_later) as it:
        answer = await ask(it.base_url)
    check_contract(answer)
    assert answer.delivered == FIRST
    assert "".join(unit.text for unit in units) == FIRST
    assert len(units) >= 3
    so_far = ""
    for unit in units:
        so_far += unit.text
        assert unit.text_so_far == so_far
        assert (unit.kind, unit.value, unit.path, unit.route) == ("sentence", unit.text, (), "chat")
        assert f"chatcmpl-{unit.stream_id}" == answer.chunks[0]["id"]


@pytest.mark.parametrize("stream", [True, False])
async def test_what_is_rejected_is_written_by_the_next_target(stream: bool) -> None:
    async with says(FIRST) as one, says(SECOND) as two:
        async with checked(one, two, call=forbid) as it:
            answer, _ = await called(it.base_url, stream=stream)
        nudge = two.requests[0].body["messages"][-1]["content"]
    if stream:
        check_contract(answer)
        facts, text = answer.metadata, answer.canonical
        assert "FORBIDDEN" in answer.delivered
    else:
        body = json.loads(answer.raw)
        facts, text = body["router"], body["choices"][0]["message"]["content"]
    assert text == SECOND
    assert facts is not None
    (failover,) = facts["failovers"]
    assert failover["fault"] == "boundary_rejected"
    assert failover["committed_chars"] == len("It began well. It went on.")
    assert "What came next could not be kept: it says FORBIDDEN." in nudge


async def test_a_rejection_can_end_the_stream() -> None:
    async with says(FIRST) as one, says(SECOND) as two:
        async with checked(one, two, call=forbid, on_reject=OnReject.END) as it:
            answer = await ask(it.base_url)
            blocking, _ = await called(it.base_url, stream=False)
        assert two.requests == []
    assert answer.error is not None
    assert answer.error["code"] == "boundary_rejected"
    assert "it says FORBIDDEN" in answer.error["message"]
    assert (answer.finish_reasons, answer.done) == ([], 0)
    assert blocking.status == 502
    assert json.loads(blocking.raw)["error"]["code"] == "boundary_rejected"
    # It is nobody's condition: the target is well.
    assert it.serving.engine.health.available("p1/model-p1")


@pytest.mark.parametrize(
    "text", ["FORBIDDEN", "A good one. A FORBIDDEN end", "A FORBIDDEN one. And"]
)
async def test_the_first_and_the_last_words_are_asked_about_too(text: str) -> None:
    better = says("A good one. The end")
    async with says(text) as one, better as two, checked(one, two, call=forbid) as it:
        answer = await ask(it.base_url)
    check_contract(answer)
    assert answer.canonical == "A good one. The end"


async def test_when_everybody_is_rejected_the_client_is_told() -> None:
    async with says(FIRST) as one, says(FIRST) as two, checked(one, two, call=forbid) as it:
        answer = await ask(it.base_url)
        assert len(one.requests) + len(two.requests) == 4
    assert answer.error is not None
    assert answer.error["code"] == "boundary_rejected"
    assert "wrote what the route's check rejects: it says FORBIDDEN" in answer.error["message"]


async def test_tokens_flow_while_a_verdict_is_awaited_and_commits_wait() -> None:
    arrived, told = asyncio.Event(), []

    async def slow(unit: Unit) -> Verdict:
        await arrived.wait()
        return None if unit.text else False

    def observe(detail: Detail) -> None:
        if isinstance(detail, Committed):
            told.append(detail.delta)

    async with (
        says(FIRST) as one,
        checked(one, call=slow, observers=(observe,)) as it,
        calling(it.base_url) as call,
    ):
        while not call.has("ended"):
            assert await call.read()
        assert told == []  # all of it is with the client, and nothing is committed
        arrived.set()
        answer = await call.answer()
    check_contract(answer)
    assert "".join(told) == FIRST[: FIRST.index(" And")]


async def test_a_check_that_cannot_keep_up_slows_its_provider() -> None:
    go, asked = asyncio.Event(), 0

    async def never(_: Unit) -> Verdict:
        nonlocal asked
        asked += 1
        await go.wait()
        return None

    text = "This is one sentence. " * 600
    async with says(text) as one, checked(one, call=never) as it, calling(it.base_url) as call:
        while call.bytes_received < 3000:
            assert await call.read()
        # Sentences are committed several at a time where they come at once; and then it waits.
        assert asked == 1
        go.set()
        answer = await call.answer()
    check_contract(answer)
    assert answer.delivered == text
    assert MAX_WAITING_UNITS < 100


@pytest.mark.parametrize("reject", [False, True])
@pytest.mark.parametrize(
    "how", ["raises", "raises later", "is slow", "is slow in a thread", "babbles"]
)
async def test_a_check_that_fails_counts_as_the_route_says(how: str, reject: bool) -> None:
    told: list[CheckFailed] = []
    free = threading.Event()

    async def raises_later(_: Unit) -> Verdict:
        await asyncio.sleep(0)
        raise LookupError("what the answer said")

    async def slow(_: Unit) -> Verdict:
        await asyncio.Event().wait()
        return None

    def raises(_: Unit) -> Verdict:
        raise LookupError("what the answer said")

    def slow_in_a_thread(_: Unit) -> Verdict:
        free.wait()
        return None

    def babbles(_: Unit) -> Any:  # noqa: ANN401 - on purpose
        return 5

    calls: dict[str, Call] = {
        "raises": raises,
        "raises later": raises_later,
        "is slow": slow,
        "is slow in a thread": slow_in_a_thread,
        "babbles": babbles,
    }

    def observe(detail: Detail) -> None:
        if isinstance(detail, CheckFailed):
            told.append(detail)

    limit_s = 0.01 if how.startswith("is slow") else 20
    settings = {"limit_s": limit_s, "reject_on_failure": reject, "on_reject": OnReject.END}
    async with (
        says("One thing.") as one,
        checked(one, call=calls[how], observers=(observe,), **settings) as it,
    ):
        answer = await ask(it.base_url)
        free.set()
    assert len(told) == 1
    assert told[0].rejected is reject
    names = {"raises": "LookupError", "raises later": "LookupError", "babbles": "TypeError"}
    expected = names.get(how, "0.01 s")
    assert expected in told[0].reason
    assert "what the answer said" not in told[0].reason
    if reject:
        assert answer.error is not None
        assert answer.error["code"] == "boundary_rejected"
        assert expected in answer.error["message"]
    else:
        check_contract(answer)


async def test_a_client_that_leaves_leaves_no_question_behind() -> None:
    stopped = asyncio.Event()

    async def watch(_: Unit) -> Verdict:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return None

    gate = Turnstile(18)
    async with says(FIRST, gate=gate) as one, checked(one, call=watch) as it:
        async with calling(it.base_url) as call:
            await gate.held()
            while not call.has("IDDEN"):
                assert await call.read()
        await asyncio.wait_for(stopped.wait(), 10)
        gate.open()
        assert (await one.wait_ended()).ended is Ended.CLIENT_CLOSED


async def test_a_cut_waits_for_the_verdicts_on_what_came_before_it() -> None:
    for cut in range(1, 14):
        async with says(FIRST) as one, says(SECOND) as two:
            one.set_faults(f"cut@{cut}")
            async with checked(one, two, call=forbid) as it:
                answer = await ask(it.base_url)
        check_contract(answer)
        assert answer.canonical == SECOND


async def test_a_tool_call_that_was_delivered_stays_the_last_word() -> None:
    tool = ToolCall(index=0, id="c", name="look", arguments="{}")
    script = Script(text="A FORBIDDEN remark", tool_calls=(tool,))
    async with SimulatedProvider(script=script) as one, says(SECOND) as two:
        async with checked(one, two, call=forbid) as it:
            answer = await ask(it.base_url)
        assert two.requests == []
    assert answer.error is not None
    assert answer.error["code"] == "tool_call_interrupted"


# -- structured output -----------------------------------------------------------------------------

DOCUMENT = '{"a": 1, "b": {"c": ["x", "y"]}, "d": "FORBIDDEN", "e": 2}'
BETTER = '{"a": 5, "b": {"c": ["x", "z"]}, "d": "fine", "e": 2}'
JSON: Json = {"response_format": {"type": "json_object"}}


async def test_every_value_is_asked_about_before_it_is_delivered() -> None:
    units: list[Unit] = []

    def note(unit: Unit) -> Verdict:
        units.append(unit)
        return None

    async with says(DOCUMENT) as one, checked(one, call=note) as it:
        answer = await ask(it.base_url, **JSON)
    check_contract(answer)
    assert answer.delivered == DOCUMENT
    seen = [(unit.path, unit.text, unit.value) for unit in units]
    assert seen == [
        (("a",), "1", 1),
        (("b", "c", 0), '"x"', "x"),
        (("b", "c", 1), '"y"', "y"),
        (("b", "c"), '["x", "y"]', ["x", "y"]),
        (("b",), '{"c": ["x", "y"]}', {"c": ["x", "y"]}),
        (("d",), '"FORBIDDEN"', "FORBIDDEN"),
        (("e",), "2", 2),
        ((), DOCUMENT, json.loads(DOCUMENT)),
    ]
    for unit in units:
        assert unit.kind == "value"
        assert DOCUMENT.startswith(unit.text_so_far)
        assert unit.text_so_far.endswith(unit.text)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_rejected_value_is_not_delivered_and_comes_from_the_next_target(
    stream: bool,
) -> None:
    async def later(unit: Unit) -> Verdict:
        await asyncio.sleep(0)
        return bool(unit.value != "FORBIDDEN")

    async with says(DOCUMENT) as one, says(BETTER) as two, checked(one, two, call=later) as it:
        answer, _ = await called(it.base_url, stream=stream, **JSON)
    expected = {"a": 1, "b": {"c": ["x", "y"]}, "d": "fine", "e": 2}
    if stream:
        check_contract(answer)
        assert "FORBIDDEN" not in answer.raw.decode()
        assert json.loads(answer.delivered) == expected
        assert answer.metadata is not None
        assert answer.metadata["failovers"][0]["fault"] == "schema_violation"
    else:
        assert json.loads(json.loads(answer.raw)["choices"][0]["message"]["content"]) == expected


@pytest.mark.parametrize("path", [("a",), ("b",), ("b", "c"), ("b", "c", 1), ()])
async def test_whatever_is_rejected_what_stands_ends_before_it(path: tuple[str | int, ...]) -> None:
    rejected = 0

    def once(unit: Unit) -> Verdict:
        nonlocal rejected
        if unit.path == path and not rejected:
            rejected += 1
            return "not this one"
        return None

    # The second provider answers anew: what stands of the first is skipped.
    async with says(DOCUMENT) as one, says(BETTER) as two, checked(one, two, call=once) as it:
        answer = await ask(it.base_url, **JSON)
    check_contract(answer)
    document = json.loads(answer.delivered)
    assert rejected == 1
    assert document["a"] == (5 if path == ("a",) else 1)
    assert document["d"] == ("FORBIDDEN" if path == () else "fine")


async def test_when_every_document_is_rejected_the_reason_has_its_path() -> None:
    async with says(DOCUMENT) as one, says(DOCUMENT) as two, checked(one, two, call=forbid) as it:
        answer = await ask(it.base_url, **JSON)
    assert answer.error is not None
    assert answer.error["code"] == "schema_violation"
    assert "at /d (character 38): it says FORBIDDEN" in answer.error["message"]
    assert answer.delivered == '{"a": 1, "b": {"c": ["x", "y"]}'


# -- pieces ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (None, ""),
        (True, ""),
        (False, "rejected by the route's check"),
        ("", "rejected by the route's check"),
        ("too\n rude ", "too rude"),
        (Reject("no"), "no"),
        (Reject("x" * 1000), "x" * MAX_REASON_CHARS),
    ],
)
def test_what_a_verdict_means(verdict: Verdict, reason: str) -> None:
    assert reason_of(verdict) == reason


@pytest.mark.parametrize("verdict", [0, 1.0, [], object(), Reject(5)])  # type: ignore[arg-type]
def test_what_is_no_verdict(verdict: object) -> None:
    with pytest.raises(TypeError, match="no verdict"):
        reason_of(verdict)


def test_a_transcript_gives_any_part_of_what_was_said() -> None:
    text = "0123456789"
    for size in (1, 2, 3, 10):
        transcript = Transcript()
        for at in range(0, len(text), size):
            transcript.append(text[at : at + size])
        for start in range(len(text)):
            for end in range(start + 1, len(text) + 1):
                assert transcript.cut(start, end) == text[start:end]
        early = transcript.up_to(4)
        transcript.append("more")
        assert (early(), transcript.length) == ("0123", 14)


def test_a_unit_is_easily_made_by_hand() -> None:
    unit = Unit(kind="sentence", text="Hello.")
    assert unit.text_so_far == "Hello."
    assert forbid(unit) is None


async def test_a_check_is_found_by_its_name() -> None:
    async with says(FIRST) as one, says(SECOND) as two:
        route = {"boundary_check": "test_boundary_check:forbid", "on_reject": "end"}
        async with running_router(routed(one, two, route=route)) as it:
            answer = await ask(it.base_url)
    assert answer.error is not None
    assert answer.error["code"] == "boundary_rejected"


async def test_without_a_check_nothing_is_asked() -> None:
    async with says(FIRST) as one, running_router(routed(one)) as it:
        assert it.serving.generation.routes["chat"].check is None
        check_contract(await ask(it.base_url))


def test_the_boundary_comes_back_to_a_mark() -> None:
    boundary, machine = make_boundary("text"), CommitMachine()
    mark = boundary.mark()
    fence: str | None = None
    for char in "One. Two. Three.\n```py\nx = 1\ny = 2\n```\nFour. Five. ":
        machine.text(char)
        chars = boundary.feed(char)
        if not chars:
            continue
        # As if it were rejected: all since the mark is pending again, and then is said anew.
        boundary.back(mark, machine.fragment)
        assert (boundary.pending, boundary.in_fence) == (machine.fragment, fence)
        boundary.rewind(0)
        assert sum(boundary.feed(one) for one in machine.fragment) == chars
        machine.commit(chars)
        mark, fence = boundary.mark(), boundary.in_fence
    assert machine.boundaries > 6
