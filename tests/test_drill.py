"""`router drill`: the relay cuts where it should, and the verdicts say what really happened."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import httpx
import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.routers import routed

from router.cli import main
from router.config import parse_config
from router.core.events import Text
from router.core.faults import Fault, FaultKind, Verdict
from router.drill import show
from router.drill.advice import Fix
from router.drill.books import Witnessed, check_books
from router.drill.command import _pairs
from router.drill.judge import Behaviour, JoinFacts, Manner, Mark, alike, behaviour
from router.drill.question import Question, estimate, make_question
from router.drill.relay import Cut, End, Relay
from router.drill.rounds import PairResult, drill
from router.drill.scissors import Scissors
from router.engine.upstream import Upstream
from router.providers.base import StreamReader
from router.providers.make import make_provider
from router.simulate import (
    Conduct,
    Dialect,
    Ended,
    RawAnswer,
    Script,
    SimulatedProvider,
    parse_directives,
    seeded_text,
)
from router.simulate.cli import add_arguments as simulate_arguments
from router.simulate.cli import build as simulate_build

AFTER = 60
PROSE = seeded_text("drill", 2_500, kinds=("prose",))
OTHER = seeded_text("quite another", 2_500, kinds=("facts",))


def reader() -> StreamReader:
    """A fresh reader of an OpenAI-compatible body."""
    return make_provider(
        type="openai-compatible", base_url="http://x/v1", api_key=None, model="m"
    ).reader()


def texts_in(body: bytes) -> list[str]:
    fresh = reader()
    events = [*fresh.feed(body), *fresh.close()]
    return [event.text for event in events if isinstance(event, Text)]


def body_of(tokens: list[str], line_end: str = "\n") -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": token} for token in tokens]
    events = [
        "data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas
    ]
    events[1:1] = [": keep-alive"]
    return (line_end * 2).join([*events, "data: [DONE]", ""]).encode()


# --- the scissors ---------------------------------------------------------------------------------


@given(
    tokens=st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=12),
    after=st.integers(1, 12),
    splits=st.lists(st.integers(0, 2_000), max_size=20),
    line_end=st.sampled_from(["\n", "\r\n"]),
)
def test_the_cut_lies_behind_the_nth_token_however_the_body_is_split(
    tokens: list[str], after: int, splits: list[int], line_end: str
) -> None:
    body = body_of(tokens, line_end)
    edges = sorted({0, len(body), *(at % (len(body) + 1) for at in splits)})
    scissors = Scissors(reader(), after)
    passed = b""
    for start, end in pairwise(edges):
        count = scissors.feed(body[start:end])
        passed += body[start : start + count]
        if scissors.struck:
            break
    else:
        scissors.close()
    assert scissors.struck is (len(tokens) >= after)
    assert body.startswith(passed)
    assert texts_in(passed) == texts_in(body)[:after]
    assert scissors.texts == len(texts_in(passed))
    assert scissors.chars == len("".join(texts_in(passed)))
    # It is the first such place: the event's last line end is needed.
    assert not scissors.struck or len(texts_in(passed.rstrip(b"\r\n")[:-1])) == after - 1


def test_before_the_first_token_not_a_byte_of_the_body_passes() -> None:
    scissors = Scissors(reader(), 0)
    assert scissors.feed(body_of(["a", "b"])) == 0
    assert scissors.struck


# --- the relay ------------------------------------------------------------------------------------

BROKEN = (httpx.RemoteProtocolError, httpx.ReadError)
ASK = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


@asynccontextmanager
async def relayed(provider: SimulatedProvider) -> AsyncIterator[Relay]:
    upstream = Upstream()
    origin = provider.base_url.removesuffix("/v1")
    try:
        async with Relay(origin, upstream=upstream, make_reader=reader, connect_s=2) as relay:
            yield relay
    finally:
        await upstream.aclose()


async def post(url: str, path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
        return await client.post(url + path, json=ASK, headers=headers)


async def until_broken(url: str) -> tuple[int, bytes]:
    """Read until the connection breaks; a body that ends in order fails the test."""
    got = b""
    async with (
        httpx.AsyncClient(timeout=10, trust_env=False) as client,
        client.stream("POST", url + "/v1/chat/completions", json=ASK) as response,
    ):
        try:
            async for data in response.aiter_raw():
                got += data
        except BROKEN:
            return response.status_code, got
    raise AssertionError("the body ended in order")


@pytest.mark.parametrize("dialect", [Dialect(), Dialect(line_end="\r\n", comment_every=3)])
async def test_what_passes_is_exactly_what_the_provider_sent(dialect: Dialect) -> None:
    provider = SimulatedProvider(script=Script(text=PROSE[:400]), dialect=dialect)
    async with provider, relayed(provider) as relay:
        direct = await post(provider.base_url.removesuffix("/v1"))
        through = await post(relay.url, "/v1/chat/completions?api-version=1", Authorization="B x")
        (seen,) = await relay.settled()
        asked = provider.requests[1]
    number = b"sim000001"
    assert through.content == direct.content.replace(b"sim000000", number)
    assert through.headers["content-type"] == direct.headers["content-type"]
    assert (asked.body, asked.headers["authorization"]) == (ASK, "B x")
    assert asked.headers["user-agent"] == direct.request.headers["user-agent"]
    assert (seen.end, seen.status) == (End.WHOLE, 200)
    assert seen.body_bytes == len(direct.content)
    assert (seen.texts, seen.chars) == (len(texts_in(direct.content)), 400)


@pytest.mark.parametrize("how", ["rst", "fin"])
async def test_a_body_is_cut_behind_the_nth_token_and_then_the_provider_is_dead(
    how: Literal["rst", "fin"],
) -> None:
    async with SimulatedProvider(script=Script(text=PROSE)) as provider, relayed(provider) as relay:
        relay.arm(Cut(after_texts=7, how=how))
        status, got = await until_broken(relay.url)
        assert status == 200
        assert len(texts_in(got)) == 7
        assert (await provider.wait_ended()).ended in (Ended.CLIENT_CLOSED, Ended.COMPLETED)
        with pytest.raises(BROKEN):
            await post(relay.url)
        first, second = await relay.settled()
        assert (first.end, first.texts, second.end) == (End.CUT, 7, End.DEAD)
        assert len(provider.requests) == 1
        relay.arm(None)
        assert (await post(relay.url)).status_code == 200


async def test_before_the_first_token_the_head_passes_and_one_accident_may_be_all() -> None:
    async with SimulatedProvider(script=Script(text=PROSE)) as provider, relayed(provider) as relay:
        relay.arm(Cut(after_texts=0, how="fin", returns=True))
        assert await until_broken(relay.url) == (200, b"")
        assert (await post(relay.url)).content.endswith(b"data: [DONE]\n\n")
        assert [seen.end for seen in await relay.settled()] == [End.CUT, End.WHOLE]


async def test_an_error_of_the_provider_passes_whatever_was_ordered() -> None:
    provider = SimulatedProvider(faults=parse_directives("status=429,retry_after=7"))
    async with provider, relayed(provider) as relay:
        relay.arm(Cut(after_texts=0))
        answer = await post(relay.url)
        (seen,) = await relay.settled()
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert (seen.status, seen.end) == (429, End.WHOLE)


async def test_a_provider_that_breaks_off_breaks_off_for_the_router_and_says_why() -> None:
    provider = SimulatedProvider(script=Script(text=PROSE), faults=parse_directives("rst@5"))
    async with provider, relayed(provider) as relay:
        await until_broken(relay.url)
        (seen,) = await relay.settled()
        assert seen.end is End.UPSTREAM
        assert seen.reason
        provider.go_down()
        with pytest.raises(BROKEN):
            await post(relay.url)
        _, refused = await relay.settled()
        assert (refused.end, refused.status) == (End.UPSTREAM, 0)


async def test_a_client_that_leaves_takes_the_provider_with_it() -> None:
    provider = SimulatedProvider(script=Script(text=PROSE), faults=parse_directives("stall@3"))
    async with provider, relayed(provider) as relay:
        task = asyncio.create_task(post(relay.url))
        await provider.wait_tokens(3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED
        (seen,) = await relay.settled()
        assert seen.end is End.GONE


async def test_an_idle_connection_holds_nothing_up_and_is_closed_with_the_relay() -> None:
    async with SimulatedProvider() as provider, relayed(provider) as relay:
        host, port = relay.url.removeprefix("http://").split(":")
        streams, writer = await asyncio.open_connection(host, int(port))
        assert await relay.settled() == ()
    assert await streams.read() == b""
    writer.close()


# --- the judgement --------------------------------------------------------------------------------

COMMITTED = "The harbour lay quiet in the morning. Nobody had seen the ship arrive at the pier."
FRAGMENT = " When the bell rang, old"
FACTS = JoinFacts(
    committed=COMMITTED,
    fragment=FRAGMENT,
    came=FRAGMENT + " Marsh put on his hat.",
    afresh="Once there was a lighthouse keeper who counted the waves all night long.",
    outcome="agrees",
)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (Behaviour.CONTINUED, {}),
        (Behaviour.CONTINUED, {"fragment": " ", "came": " In the end they left."}),
        (Behaviour.ECHOED, {"came": COMMITTED + FRAGMENT, "dropped": ("echo",)}),
        (Behaviour.ECHO_KEPT, {"came": COMMITTED + FRAGMENT, "outcome": "differs"}),
        (Behaviour.RESTARTED, {"came": FACTS.afresh + " And so on.", "outcome": "differs"}),
        (Behaviour.RESTARTED, {"came": FACTS.afresh.upper(), "outcome": "differs"}),
        (
            Behaviour.RESTARTED,
            {"came": COMMITTED.replace("quiet", "still")[:60] + " x", "outcome": "differs"},
        ),
        # White space agrees with everything, so a restart must not hide behind it.
        (Behaviour.RESTARTED, {"fragment": "\n", "came": FACTS.afresh}),
        (Behaviour.REPEATED, {"came": COMMITTED[38:] + " More.", "outcome": "differs"}),
        (Behaviour.REMARKED, {"came": "It looks like you stopped.", "outcome": "differs"}),
        (Behaviour.REWORDED, {"came": " Then somebody rang.", "outcome": "differs"}),
        (Behaviour.ORIGINAL, {"committed": "", "came": "Quite new.", "outcome": "differs"}),
        (Behaviour.EMPTY, {"came": "", "outcome": "empty"}),
        (
            Behaviour.EMPTY,
            {"came": " ", "outcome": "", "fault": Fault(kind=FaultKind.TRUNCATED)},
        ),
        (
            Behaviour.EMPTY,
            {"came": COMMITTED, "outcome": "", "fault": Fault(kind=FaultKind.TRUNCATED)},
        ),
        (Behaviour.FAILED, {"came": "", "outcome": "", "fault": Fault(kind=FaultKind.CONNECT)}),
        (Behaviour.DIVERGED, {"outcome": "", "fault": Fault(kind=FaultKind.DIVERGED)}),
    ],
)
def test_what_the_fallback_did_is_read_off_what_came(
    name: Behaviour, change: dict[str, Any]
) -> None:
    assert behaviour(replace(FACTS, **change)) is name


def test_beginnings_are_alike_by_most_of_their_characters_and_never_when_short() -> None:
    assert alike("The harbour lay quiet in the morning.", "  the harbour lay still in the morning")
    assert not alike(PROSE, OTHER)
    assert not alike("The harbour", "The harbour")
    assert not alike("", PROSE)


# --- the books ------------------------------------------------------------------------------------


LIES: Mapping[str, Callable[[Witnessed], Witnessed]] = {
    "a cut is no error": lambda told: with_entry(told, outcome="completed", fault=None),
    "more characters than passed": lambda told: with_entry(told, output_chars=10_000),
    "a success that the client did not see": lambda told: replace(told, finished=False),
    "an error that the client did not see": lambda told: with_row(told, outcome="refused"),
    "other characters delivered": lambda told: replace(told, delivered_chars=1),
    "an attempt that nobody made": lambda told: replace(told, seen=()),
    "no row": lambda told: replace(told, rows=()),
    "two rows": lambda told: replace(told, rows=(*told.rows, *told.rows)),
    "fewer characters than passed to the end": lambda told: replace(
        told, seen=[replace(told.seen[0], end=End.WHOLE, chars=told.seen[0].chars + 1)]
    ),
}


def with_row(told: Witnessed, **changes: object) -> Witnessed:
    return replace(told, rows=[msgspec.structs.replace(told.rows[0], **changes)])


def with_entry(told: Witnessed, **changes: object) -> Witnessed:
    first, *others = told.rows[0].attempts
    return with_row(told, attempts=(msgspec.structs.replace(first, **changes), *others))


async def test_books_that_lie_are_found_out() -> None:
    async with two(Conduct()) as (one, other):
        result = await drilled(one, other, types=["vllm", "vllm"])
    told = result.rounds["killed after"]
    honest = Witnessed(
        name="killed",
        rows=told.rows,
        target="p1/model-p1",
        seen=told.seen,
        delivered_chars=len(told.delivered),
        finished=told.finished,
    )
    assert all(check.good for check in check_books(honest))
    for name, lie in LIES.items():
        assert [check.good for check in check_books(lie(honest))].count(False) == 1, name


# --- what is asked --------------------------------------------------------------------------------


def test_the_plan_counts_the_uncut_answer_of_a_target_once() -> None:
    cost = estimate([("a", "b"), ("a", "c"), ("b", "a")], "x" * 40, 100)
    assert cost.calls == {"a": 7, "b": 5, "c": 2}
    assert cost.tokens_in == 14 * 10 + 3 * 100
    assert cost.tokens_out == 300 * (3 + 2 + 3)


def test_newer_families_are_asked_by_the_newer_name() -> None:
    assert make_question("x", 10, ["openai", "azure-openai"]).request("r").max_tokens == 210
    assert make_question("x", 10, ["openai"]).budget_field == "max_completion_tokens"
    assert make_question("x", 10, ["openai", "vllm"]).budget_field == "max_tokens"


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        ("Unsupported value: 'temperature' does not support 0.", {"temperature": False}),
        (
            "Use 'max_completion_tokens', not 'max_tokens'.",
            {"budget_field": "max_completion_tokens"},
        ),
        ("The model is overloaded.", None),
    ],
)
def test_a_field_that_is_refused_is_left_out(message: str, changed: dict[str, Any] | None) -> None:
    question = Question(prompt="x", max_tokens=1)
    fault = Fault(kind=FaultKind.STATUS, status=400, verdict=Verdict.REQUEST, message=message)
    other = question.reworded([None, fault])
    assert other == (replace(question, **changed) if changed else None)
    assert other is None or other.reworded([fault]) is None
    assert question.reworded([replace_verdict(fault)]) is None


def replace_verdict(fault: Fault) -> Fault:
    return Fault(kind=fault.kind, verdict=Verdict.TRANSIENT, message=fault.message)


@pytest.mark.parametrize(
    ("count", "target", "every", "expected"),
    [
        (1, None, False, [(0, 0)]),
        (3, None, False, [(0, 1), (1, 2)]),
        (3, 2, False, [(1, 2)]),
        (3, 3, False, [(2, 0)]),
        (3, None, True, [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]),
    ],
)
def test_pairs(count: int, target: int | None, every: bool, expected: list[Any]) -> None:
    assert _pairs(count, target, every=every) == expected


# --- whole drills ---------------------------------------------------------------------------------


async def drilled(
    *providers: SimulatedProvider,
    pair: tuple[int, int] = (0, 1),
    **config: Any,  # noqa: ANN401 - as `routed` takes them
) -> PairResult:
    """Drill one pair of a configuration."""
    parsed = parse_config(yaml.safe_dump(routed(*providers, **config)), "test.yaml", {})
    question = make_question("Tell me.", AFTER, ["vllm"])
    results = [one async for one in drill(parsed, "chat", [pair], question, AFTER)]
    (result,) = results
    return result


def marks(result: PairResult) -> list[Mark]:
    return [finding.mark for finding in result.findings]


def yaml_of(fixes: tuple[Fix, ...]) -> list[Any]:
    return [yaml.safe_load(fix.yaml) for fix in fixes]


def for_second_target(**keys: Mapping[str, object]) -> dict[str, Any]:
    """A fix of the second target, as it stands in the file."""
    target = {"provider": "p2", "model": "model-p2", **keys}
    return {"routes": {"chat": {"targets": [target]}}}


def instead(**keys: str) -> list[dict[str, Any]]:
    return [for_second_target(continuation=keys)]


@asynccontextmanager
async def two(
    conduct: Conduct,
    *,
    text: str = PROSE,
    first: str = PROSE,
    dialect: Dialect | None = None,
    raw: Sequence[RawAnswer] | None = None,
) -> AsyncIterator[tuple[SimulatedProvider, SimulatedProvider]]:
    one = SimulatedProvider(script=Script(text=first), dialect=dialect, raw=raw)
    other = SimulatedProvider(script=Script(text=text), conduct=conduct)
    async with one, other:
        yield one, other


async def test_a_fallback_that_continues_passes_and_the_join_is_shown_as_it_was() -> None:
    async with two(Conduct()) as (one, other):
        result = await drilled(one, other, types=["vllm", "vllm"])
        asked = other.requests[1]
        await one.wait_connections(0)
    assert marks(result) == [Mark.PASS] * 3
    seam = result.findings[1].seam
    assert seam is not None
    assert (seam.done, seam.manner, seam.style) == (
        Behaviour.CONTINUED,
        Manner.PLAIN,
        "continue_final",
    )
    assert seam.committed == asked.prefix
    assert PROSE.startswith(seam.committed + seam.fragment)
    assert PROSE.startswith(seam.committed + seam.came)
    assert (seam.superseded_chars, seam.like_uncut) == (0, True)
    assert [one.pause_ms is not None for one in result.findings] == [True, True, False]
    second = result.rounds["killed after"]
    assert second.seen[0].texts == AFTER
    assert [one.fault.kind if one.fault else None for one in second.report.attempts] == [
        FaultKind.CUT,
        None,
    ]
    assert len(one.requests) == 3
    assert len(other.requests) == 2


CASES: Mapping[str, tuple[Conduct, str, str, dict[str, Any], Behaviour, Mark, list[Any]]] = {
    # name: conduct, its text, type, target keys, behaviour, mark, fixes
    "refuses": (
        Conduct(prefix="refuse"),
        PROSE,
        "groq",
        {},
        Behaviour.CONTINUED,
        Mark.WARN,
        instead(style="instruct"),
    ),
    "echoes, and it is known": (
        Conduct(prefix="echo"),
        PROSE,
        "mistral",
        {},
        Behaviour.ECHOED,
        Mark.PASS,
        [],
    ),
    "echoes, and it is noticed": (
        Conduct(prefix="echo"),
        PROSE,
        "groq",
        {},
        Behaviour.ECHOED,
        Mark.PASS,
        instead(echo="always"),
    ),
    "echoes where it should never": (
        Conduct(prefix="echo"),
        PROSE,
        "vllm",
        {},
        Behaviour.ECHO_KEPT,
        Mark.FAIL,
        instead(echo="always"),
    ),
    "answers afresh after a prefill": (
        Conduct(prefix="afresh"),
        OTHER,
        "groq",
        {"continuation": {"rstrip_prefix": True}},
        Behaviour.RESTARTED,
        Mark.FAIL,
        [for_second_target(continuation={"rstrip_prefix": True, "style": "instruct"})],
    ),
    "answers afresh when asked in words": (
        Conduct(prefix="afresh"),
        OTHER,
        "openai-compatible",
        {},
        Behaviour.RESTARTED,
        Mark.FAIL,
        instead(style="none"),
    ),
    "words it differently": (
        Conduct(prefix="differ"),
        PROSE,
        "vllm",
        {},
        Behaviour.REWORDED,
        Mark.PASS,
        [],
    ),
    "says nothing": (
        Conduct(prefix="empty"),
        PROSE,
        "vllm",
        {},
        Behaviour.EMPTY,
        Mark.FAIL,
        instead(style="instruct"),
    ),
    "says nothing when it is asked in words, by configuration": (
        Conduct(instruct="empty"),
        PROSE,
        "vllm",
        {"continuation": {"style": "instruct"}},
        Behaviour.EMPTY,
        Mark.FAIL,
        instead(style="continue_final"),
    ),
    "begins with a preamble": (
        Conduct(prefix="preamble"),
        PROSE,
        "openai-compatible",
        {},
        Behaviour.CONTINUED,
        Mark.PASS,
        [],
    ),
    "may not continue": (
        Conduct(),
        PROSE,
        "vllm",
        {"continuation": {"style": "none"}},
        Behaviour.FAILED,
        Mark.FAIL,
        instead(style="instruct"),
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_a_fallback_does_with_a_real_prefix(case: str) -> None:
    conduct, text, kind, keys, done, mark, fixes = CASES[case]
    async with two(conduct, text=text) as (one, other):
        result = await drilled(one, other, types=["vllm", kind], targets=[{}, keys])
    finding = result.findings[1]
    assert marks(result) == [Mark.PASS, mark, Mark.PASS]
    assert yaml_of(finding.fixes) == fixes
    if finding.seam is None:
        assert done is Behaviour.FAILED
        return
    assert finding.seam.done is done
    assert (finding.seam.manner is Manner.REFUSED) is (conduct.prefix == "refuse")
    assert finding.seam.superseded_chars <= len(finding.seam.fragment) + 2
    said = "\n".join(show.told(result))
    assert f"{mark}" in said
    assert all(line in said for fix in finding.fixes for line in fix.yaml.splitlines())


async def test_a_cut_at_the_end_of_a_short_answer_lies_in_its_middle() -> None:
    async with two(Conduct(), text=PROSE[:200], first=PROSE[:200]) as (one, other):
        result = await drilled(one, other, types=["vllm", "vllm"])
    tokens = len(result.control.report.attempts) and result.control.seen[-1].texts
    assert result.rounds["killed after"].seen[0].texts == tokens // 2
    assert f"cut after {tokens // 2}" in result.findings[1].words[0]


async def test_an_answer_in_one_piece_has_no_middle() -> None:
    dialect = Dialect(tokens_per_chunk=1_000)
    async with two(Conduct(), dialect=dialect) as (one, other):
        result = await drilled(one, other)
    assert marks(result) == [Mark.PASS, Mark.WARN, Mark.PASS]


async def test_one_target_is_asked_again_and_a_second_one_is_advised() -> None:
    async with SimulatedProvider(script=Script(text=PROSE)) as only:
        result = await drilled(only, pair=(0, 0), types=["vllm"])
    assert marks(result)[2] is Mark.PASS
    assert Mark.PASS not in marks(result)[:2]
    fix = yaml.safe_load(result.findings[0].fixes[0].yaml)
    assert [one["provider"] for one in fix["routes"]["chat"]["targets"]] == [
        "p1",
        "another-provider",
    ]
    assert "model-p1 ─" in next(show.told(result))


async def test_a_primary_that_does_not_answer_is_not_drilled() -> None:
    async with two(Conduct()) as (one, other):
        one.set_faults(parse_directives("status=401"))
        result = await drilled(one, other)
        assert len(one.requests) == 1
    assert marks(result) == [Mark.FAIL, Mark.FAIL, Mark.PASS]
    assert "gave no uncut answer (status 401" in result.findings[0].words[0]
    assert yaml_of(result.findings[0].fixes) == [
        {"providers": {"p1": {"api_key": "${ANOTHER_KEY}"}}}
    ]


async def test_a_primary_that_cannot_be_reached_says_why() -> None:
    async with two(Conduct()) as (one, other):
        one.go_down()
        result = await drilled(one, other)
    assert "onnect" in result.findings[0].words[0]
    assert result.control.seen[0].end is End.UPSTREAM


async def test_a_fallback_that_is_too_slow_gets_more_time_advised() -> None:
    async with two(Conduct()) as (one, other):
        other.set_faults(parse_directives("stall@0"))
        result = await drilled(
            one,
            other,
            targets=[{}, {"timeouts": {"first_output_s": 0.3}}],
            types=["vllm", "vllm"],
            route={"max_attempts": 2},
        )
    assert marks(result) == [Mark.FAIL, Mark.FAIL, Mark.PASS]
    for finding in result.findings[:2]:
        assert yaml_of(finding.fixes) == [for_second_target(timeouts={"first_output_s": 1})]


async def test_a_refused_field_is_left_out_and_everything_is_asked_again() -> None:
    message = "Unsupported parameter: 'temperature'."
    refusal = RawAnswer(
        body=json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode(),
        status=400,
        headers=(("Content-Type", "application/json"),),
    )
    async with two(Conduct(), raw=[refusal]) as (one, other):
        result = await drilled(one, other, types=["vllm", "vllm"])
        bodies = [request.body for request in one.requests]
    assert marks(result) == [Mark.PASS] * 3
    assert ["temperature" in body for body in bodies] == [True, False, False, False]


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def in_file(tmp_path: Path) -> Callable[[dict[str, Any]], str]:
    def write(config: dict[str, Any]) -> str:
        path = tmp_path / "router.yaml"
        path.write_text(yaml.safe_dump(config), "utf-8")
        return str(path)

    return write


async def run_drill(*argv: str, env: Mapping[str, str] | None = None) -> int:
    """The command has an event loop of its own, so it gets a thread."""
    return await asyncio.to_thread(main, ["drill", *argv], env or {})


async def test_the_command_tells_the_price_first_and_never_a_key(
    in_file: Callable[[dict[str, Any]], str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(Conduct()) as (one, other):
        config = routed(one, other, types=["vllm", "vllm"])
        config["providers"]["p1"]["api_key"] = "${KEY}"
        status = await run_drill(
            in_file(config),
            "--route",
            "chat",
            "--after-tokens",
            "60",
            env={"KEY": "sk-very-secret"},
        )
        keys = [request.headers.get("authorization") for request in one.requests]
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    assert keys == ["Bearer sk-very-secret"] * 3
    assert "secret" not in out
    lines = out.splitlines()
    assert lines[0].startswith("Drill: p1/model-p1 is killed, p2/model-p2 goes on")
    assert lines[1].startswith("It makes 5 calls (3 to p1/model-p1, 2 to p2/model-p2)")
    assert lines[-1] == "Verdict: PASS (3 PASS)"


async def test_the_command_fails_for_a_script_and_speaks_json(
    in_file: Callable[[dict[str, Any]], str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(Conduct(prefix="afresh"), text=OTHER) as (one, other):
        path = in_file(routed(one, other, types=["vllm", "groq"]))
        status = await run_drill(path, "--after-tokens", "60", "--json")
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert status == 1
    assert err.startswith("Drill: ")
    assert told["verdict"] == "FAIL"
    (pair,) = told["pairs"]
    assert [one["verdict"] for one in pair["questions"]] == ["PASS", "FAIL", "PASS"]
    assert pair["questions"][1]["join"]["behaviour"] == "restarted"
    assert [one["name"] for one in pair["requests"]] == ["uncut", "killed before", "killed after"]
    assert pair["requests"][2]["failovers"][0]["fault"] == "cut"


@pytest.mark.parametrize(
    "argv", [["--route", "absent"], ["--target", "3"], ["--after-tokens", "0"], ["--prompt", ""]]
)
def test_a_command_line_that_does_not_fit_is_refused(
    argv: list[str],
    in_file: Callable[[dict[str, Any]], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = in_file(routed("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"))
    assert main(["drill", path, *argv], {}) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("router drill: ")


def test_a_provider_cannot_move_the_cursor() -> None:
    assert show.shown("a\x1b[2J\nb\u202ec\t") == "a\\x1b[2J⏎b\\u202ec\\t"


# --- the page -------------------------------------------------------------------------------------

PAGE = Path(__file__).parent.parent / "docs" / "drill.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def simulated(command: str) -> SimulatedProvider:
    """The provider that a line of the page starts, as fast as it can, on a free port."""
    parser = argparse.ArgumentParser()
    simulate_arguments(parser)
    words = command.removeprefix("router simulate ").removesuffix("&").split()
    args = parser.parse_args(words)
    args.tokens_per_s, args.first_token_ms = None, 0.0
    args.port = 0
    return simulate_build(args)


def timeless(text: str) -> list[str]:
    """Lines without what depends on the machine."""
    return [re.sub(r" +", " ", re.sub(r"[\d,]+ ms", "N ms", line)) for line in text.splitlines()]


async def test_the_page_shows_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = _BLOCK.findall(PAGE.read_text("utf-8"))
    commands = [line for _, text in blocks for line in text.splitlines() if "simulate" in line]
    (config,) = (text for kind, text in blocks if kind == "yaml")
    shown = [text for kind, text in blocks if kind == "text"]
    async with AsyncExitStack() as stack:
        for command in commands:
            provider = await stack.enter_async_context(simulated(command))
            (port,) = re.findall(r"--port (\d+)", command)
            config = config.replace(port, str(provider.port))
        path = tmp_path / "drill.yaml"
        path.write_text(config, "utf-8")
        routes = list(yaml.safe_load(config)["routes"])
        assert len(shown) == len(routes) == 3
        for route, expected, status in zip(routes, shown, (0, 0, 1), strict=True):
            assert await run_drill(str(path), "--route", route) == status
            assert timeless(capsys.readouterr().out.rstrip()) == timeless(expected.rstrip())
