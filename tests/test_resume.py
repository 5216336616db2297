"""A client that comes back: whatever was cut, and when, it ends with the answer of an uncut stream.

The sockets are real, the Redis is real, and the replica that a client comes back to is another one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.continuity import FULL
from support.redis_servers import BINARY, RedisServer, free_port
from support.resuming import Comer, Holds, Replica, replicas
from support.texts import Sample, moments, seeded

from router.core.structured import Structured
from router.simulate import Conduct, Pace, Script, SimulatedProvider, tokenize

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(BINARY is None, reason="no redis-server binary on this machine"),
]

SAMPLES = [one for one in seeded(chars=600) if one.name in {"mixed", "code", "german", "japanese"}]
CUTS = 120 if FULL else 8


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"), free_port())
    server.start()
    yield server
    server.kill()


def tokens_in(text: str, count: int) -> str:
    return "".join(tokenize(text)[:count])


def cuts_of(text: str, count: int = CUTS, seed: int = 1) -> list[int]:
    """Numbers of tokens, the first and the last but one among them."""
    last = len(tokenize(text)) - 1
    rng = random.Random(seed)  # noqa: S311 - seeded on purpose
    return [1, last, *(rng.randint(2, last - 1) for _ in range(count - 2))]


def longest_fragment(sample: Sample) -> int:
    return max(len(one.fragment) for one in moments(sample))


async def cut_short(comer: Comer, replica: Replica, chars: int) -> None:
    """Listen until so many characters are there, and leave; the record is then at rest."""
    before = len(replica.reports)
    assert await comer.listen(replica.url, chars=chars) == "left"
    await replica.ended(before + 1)


# -- a lost connection -----------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
async def test_a_cut_connection_is_resumed_on_the_other_replica(
    redis: RedisServer, sample: Sample
) -> None:
    text, holds = sample.text, Holds()
    async with (
        SimulatedProvider(script=Script(text=text), gate=holds) as provider,
        replicas(redis, provider, route={"language": sample.language}) as (one, two),
    ):
        for number, tokens in enumerate(cuts_of(text)):
            holds.hold(2 * number, before=tokens)
            comer = Comer()
            received = tokens_in(text, tokens)
            await cut_short(comer, one, len(received))
            assert comer.text == received
            assert await comer.listen(two.url) == "finished"
            assert comer.canonical == comer.shown == text, (tokens, comer.metadata)
            assert comer.repeated <= longest_fragment(sample)
            assert len(comer.ids) == len(comer.created) == 1
            assert comer.metadata["resumed_from"] == int(comer.heads[1]["x-router-resume-from"])
            assert comer.heads[0]["x-router-part"] != comer.heads[1]["x-router-part"]


@pytest.mark.parametrize("behaviour", ["strip", "preamble_stripped"])
async def test_a_line_of_code_keeps_its_depth(redis: RedisServer, behaviour: str) -> None:
    """The provider goes on without the white space that belongs between, as many do."""
    (sample,) = (one for one in SAMPLES if one.name == "code")
    text, holds, conduct = sample.text, Holds(), Conduct(instruct=behaviour)
    async with (
        SimulatedProvider(script=Script(text=text), conduct=conduct, gate=holds) as provider,
        replicas(redis, provider) as (one, two),
    ):
        for number, tokens in enumerate(cuts_of(text, seed=2)):
            holds.hold(2 * number, before=tokens)
            comer = Comer()
            await cut_short(comer, one, len(tokens_in(text, tokens)))
            assert await comer.listen(two.url) == "finished"
            assert comer.canonical == comer.shown == text, (tokens, comer.metadata)


async def test_what_was_on_its_way_when_the_connection_broke_comes_again(
    redis: RedisServer,
) -> None:
    """The router has delivered more than the client ever got."""
    sample, holds = SAMPLES[0], Holds()
    text, tokens = sample.text, 100
    async with (
        SimulatedProvider(script=Script(text=text), gate=holds) as provider,
        replicas(redis, provider) as (one, two),
    ):
        for number, received in enumerate(range(0, len(tokens_in(text, tokens)), 23)):
            holds.hold(2 * number, before=tokens)
            comer = Comer()
            await cut_short(comer, one, len(tokens_in(text, tokens)))
            comer.lose(received)
            assert await comer.listen(two.url) == "finished"
            assert comer.canonical == comer.shown == text
            committed = moments(sample)[tokens - 1].committed
            # What is committed is not repeated, wherever the client is in it.
            assert comer.repeated <= max(0, received - len(committed))


async def test_resumed_again_and_again(redis: RedisServer) -> None:
    """Mostly before the next boundary, so that what was replaced is replaced again."""
    text, rng = SAMPLES[0].text, random.Random(5)  # noqa: S311 - as above
    async with (
        SimulatedProvider(script=Script(text=text), pace=Pace(tokens_per_s=3000)) as provider,
        replicas(redis, provider) as both,
    ):
        for _ in range(60 if FULL else 4):
            comer, turn = Comer(), 0
            while len(comer.text) < len(text) - 150:
                chars = len(comer.text) + rng.choice((0, 1, 5, 20, 90))
                await cut_short(comer, both[turn % 2], chars)
                turn += 1
            assert turn > 3
            assert await comer.listen(both[turn % 2].url) == "finished"
            assert comer.canonical == comer.shown == text
            assert len(comer.metadata["superseded"]) <= turn


async def test_while_nothing_is_committed_it_begins_anew(redis: RedisServer) -> None:
    text, holds = "A sentence that has no end yet, however long it may be. And another.", Holds()
    holds.hold(0, before=5)
    async with (
        SimulatedProvider(script=Script(text=text), gate=holds) as provider,
        replicas(redis, provider) as (one, two),
    ):
        comer = Comer()
        await cut_short(comer, one, len(tokens_in(text, 5)))
        assert await comer.listen(two.url) == "finished"
        assert comer.heads[1]["x-router-resume-from"] == "0"
        assert comer.canonical == comer.shown == text
        assert provider.requests[1].body["messages"] == provider.requests[0].body["messages"]


# -- with failovers --------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", ["continue", "strip", "echo", "preamble"])
async def test_failovers_before_and_after(redis: RedisServer, behaviour: str) -> None:
    """The first provider is cut, then the connection, then the first provider again."""
    text, rng = SAMPLES[0].text, random.Random(7)  # noqa: S311 - as above
    script = Script(text=text)
    async with (
        SimulatedProvider(script=script) as first,
        SimulatedProvider(
            script=script, conduct=Conduct(instruct=behaviour), pace=Pace(tokens_per_s=3000)
        ) as second,
        replicas(redis, first, second) as (one, two),
    ):
        for _ in range(40 if FULL else 4):
            comer = Comer()
            first.set_faults([f"cut@{rng.randint(0, 60)}", f"rst@{rng.randint(0, 60)}"])
            await cut_short(comer, one, rng.randint(1, len(text) - 150))
            assert await comer.listen(two.url) == "finished"
            assert comer.canonical == text
            assert [one["fault"] for one in comer.metadata["failovers"]] == ["cut"]


async def test_received_anywhere_around_a_reworded_sentence(redis: RedisServer) -> None:
    """The second provider says the rest in other words: a range of what was delivered is no part of
    the answer, and the client's text may end before it, inside it, or behind it."""
    sample = SAMPLES[0]
    text, holds = sample.text, Holds()
    script = Script(text=text)
    tokens = next(
        at for at, one in enumerate(moments(sample)) if at > 60 and len(one.fragment) > 25
    )
    moment = moments(sample)[tokens - 1]
    tail = 40
    async with (
        SimulatedProvider(script=script) as first,
        SimulatedProvider(script=script, conduct=Conduct(instruct="differ"), gate=holds) as second,
        replicas(redis, first, second) as (one, two),
    ):
        seen = len(moment.committed) + len(moment.fragment)
        offsets = range(seen - len(moment.fragment) - 8, seen + 90, 1 if FULL else 11)
        for number, received in enumerate(offsets):
            first.set_faults([f"cut@{tokens}", "status=500"])
            holds.hold(2 * number, before=tail)
            comer = Comer()
            await cut_short(comer, one, seen + 100)
            report = one.reports[-1]
            ((start, end),) = report.superseded
            assert report.committed_chars > start, "the rest has got a boundary of its own"
            before = comer.text
            comer.lose(received)
            assert await comer.listen(two.url) == "finished"
            # The answer is what the first replica had committed, and its rest.
            answer = before[:start] + before[end:]
            assert comer.canonical.startswith(answer[: report.committed_chars]), received
            assert comer.canonical.endswith(script.other_text)
            assert comer.canonical.count(script.other_text) == 1


async def test_offsets_behind_a_range_that_the_client_never_got(redis: RedisServer) -> None:
    """What the first writer superseded far ahead says nothing of the second writer's offsets, also
    where the second dies before it has committed anything."""
    sample = SAMPLES[0]
    script, holds = Script(text=sample.text), Holds()
    tokens = next(
        at for at, one in enumerate(moments(sample)) if at > 60 and len(one.fragment) > 25
    )
    async with (
        SimulatedProvider(script=script) as first,
        SimulatedProvider(script=script, conduct=Conduct(instruct="differ"), gate=holds) as second,
        replicas(redis, first, second, count=3) as (one, two, three),
    ):
        first.set_faults([f"cut@{tokens}", *["status=500"] * 9])
        holds.hold(0, before=60)
        comer = Comer()
        await cut_short(comer, one, len(moments(sample)[tokens].committed) + 180)
        (report,) = one.reports
        ((start, end),) = report.superseded
        assert report.committed_chars > end + 30
        comer.lose(start - 20)
        second.set_faults("silent")
        await cut_short(comer, two, end + 30)
        second.set_faults(None)
        assert two.reports[0].boundaries == report.boundaries, "the second has committed nothing"
        assert await comer.listen(three.url) == "finished"
        assert comer.repeated == 0
        assert comer.text == comer.canonical == comer.shown
        assert comer.text.startswith(sample.text[:start])
        assert comer.text.endswith(script.other_text)


# -- documents -------------------------------------------------------------------------------------

DOCUMENT = {
    "title": "A tale “of” two", "year": 1987, "tags": ["a", "b", "c d"], "ok": True, "none": None,
    "nested": {"x": 1.5e3, "y": [{"k": "v"}, {"k": 'w"\\é😀'}], "empty": {}}, "駅": "前の古い時計",
}  # fmt: skip
JSON: Any = {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize("conduct", ["continue", "afresh"])
async def test_documents(redis: RedisServer, conduct: str) -> None:
    text, holds = json.dumps(DOCUMENT, ensure_ascii=False), Holds()
    script = Script(text=text)
    types = ["vllm" if conduct == "continue" else "openai"]
    async with (
        SimulatedProvider(script=script, gate=holds) as provider,
        replicas(redis, provider, types=types) as (one, two),
    ):
        for number, (tokens, values) in enumerate(whole_values(text)):
            holds.hold(2 * number, before=tokens)
            comer = Comer(**JSON)
            await cut_short(comer, one, len(values))
            assert comer.text == values
            comer.lose(len(values) // (1 + number % 2))  # or in the middle of a value
            assert await comer.listen(two.url) == "finished"
            assert comer.text == comer.canonical == comer.shown == text
            assert comer.metadata["superseded"] == []


def whole_values(text: str) -> list[tuple[int, str]]:
    """After some numbers of tokens: what a client has of a document."""
    found, seen, gate = [], "", Structured(openers="{")
    for at, token in enumerate(tokenize(text), 1):
        new = gate.feed(token).text
        seen += new
        if new and not gate.complete:
            found.append((at, seen))
    return found if FULL else found[::3]
