"""Many streams at once over real processes: a router is killed, replicas are restarted in turn,
Redis is away; every client that comes back has the answer of an uncut stream.

With `SEAM_FULL=1` as many streams, and as long outages, as an operator would fear.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis import asyncio as aioredis
from support.continuity import FULL
from support.processes import Served, served
from support.redis_servers import BINARY, RedisServer, free_port
from support.resuming import Comer, always, simulated, to_the_end
from support.routers import routed
from support.texts import Sample, moments

from router.simulate import seeded_text

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(BINARY is None, reason="no redis-server binary on this machine"),
]

SEED, CHARS = 41, 1_200
TEXT = seeded_text(str(SEED), CHARS)
LONGEST = max(len(one.fragment) for one in moments(Sample("it", TEXT, "en")))
"""What a client can have beyond the last boundary."""

STREAMS = 200 if FULL else 30
TOKENS_PER_S = 20 if FULL else 120
SPREAD_S = 6.0 if FULL else 0.8
"""Over how long the streams begin, so that no two are at the same place."""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, free_port())
    server.start()
    yield server
    server.kill()


def saying(*more: str) -> tuple[str, ...]:
    """The options of a provider."""
    answer = ("--seed", str(SEED), "--chars", str(CHARS), "--tokens-per-s", str(TOKENS_PER_S))
    return (*answer, *more)


class Fleet:
    """Replicas, as processes, over one Redis."""

    def __init__(self, file: Path, stack: AsyncExitStack) -> None:
        self._file = file
        self._stack = stack
        self.replicas: list[Served] = []
        self.urls: list[str] = []

    async def begin(self, count: int) -> None:
        """Start so many, at once."""
        for _ in range(count):
            self.replicas.append(await self._stack.enter_async_context(served(self._file)))
        self.urls += await asyncio.gather(*(one.base_url() for one in self.replicas))

    async def replace(self, index: int) -> None:
        """Drain one, and start another in its place."""
        old = self.replicas[index]
        old.process.send_signal(signal.SIGTERM)
        assert await old.ended() == 0
        self.replicas[index] = await self._stack.enter_async_context(served(self._file))
        self.urls[index] = await self.replicas[index].base_url()


@asynccontextmanager
async def fleet(
    folder: Path,
    redis: RedisServer,
    *providers: Sequence[str],
    replicas: int = 2,
    **sections: Any,  # noqa: ANN401 - of a configuration
) -> AsyncIterator[Fleet]:
    """Run providers and replicas.

    Args:
        folder: for the configuration.
        redis: what the replicas share.
        providers: options of each, in priority order.
        replicas: how many.
        sections: further ones.
    """
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(simulated(*one)) for one in providers]
        record = {"url": redis.url}
        health = {"eject_after": 1000}
        file = folder / "router.yaml"
        file.write_text(yaml.safe_dump(routed(*urls, record=record, health=health, **sections)))
        it = Fleet(file, stack)
        await it.begin(replicas)
        yield it


async def later(delay_s: float, comer: Comer, url: str, **how: Any) -> str:  # noqa: ANN401 - of `listen`
    """Begin a stream in a while."""
    await asyncio.sleep(delay_s)
    return await comer.listen(url, **how)


def begun(comers: Sequence[Comer], url: str) -> list[asyncio.Task[str]]:
    """All streams, one after another."""
    gap_s = SPREAD_S / len(comers)
    return [
        asyncio.create_task(later(number * gap_s, comer, url))
        for number, comer in enumerate(comers)
    ]


def judge(comers: Sequence[Comer], how: Sequence[str], *, lag: int = 0) -> Counter[str]:
    """Every answer is whole, and hardly anything came twice.

    Args:
        comers: the clients.
        how: how each ended.
        lag: sentences that the record may be behind.
    """
    assert [*how] == ["finished"] * len(comers), Counter(how)
    seen: Counter[str] = Counter()
    for comer in comers:
        assert comer.canonical == TEXT, comer.metadata
        assert comer.shown == TEXT
        assert len(comer.ids) == 1
        connections = len(comer.heads)
        assert comer.repeated <= (connections - 1) * (1 + lag) * LONGEST
        seen["resumed"] += connections > 1
        seen["repeated more than a sentence"] += comer.repeated > (connections - 1) * LONGEST
        seen["characters repeated"] += comer.repeated
    return seen


# -- connections break, and a router is killed -----------------------------------------------------


async def test_connections_break_then_a_replica_is_killed(
    tmp_path: Path, redis: RedisServer
) -> None:
    async with fleet(tmp_path, redis, saying()) as it:
        await connections_break(it)
        await one_is_killed(it)


async def connections_break(it: Fleet) -> None:
    """At random, again and again; each client comes back to whichever replica it likes."""
    rng = random.Random(3)  # noqa: S311 - seeded on purpose
    comers = [Comer() for _ in range(STREAMS)]

    async def live(number: int, comer: Comer) -> str:
        await asyncio.sleep(number * SPREAD_S / STREAMS)
        for cut in sorted(rng.sample(range(1, len(TEXT) - 100), rng.randint(1, 3))):
            if len(comer.text) < cut:
                place = always(it.urls[number % 2])
                assert await to_the_end(comer, place, chars=cut) == "left"
                number += 1
        return await to_the_end(comer, lambda turn: it.urls[(number + turn) % 2])

    how = await asyncio.gather(*(live(*one) for one in enumerate(comers)))
    seen = judge(comers, how, lag=1)
    assert seen["resumed"] == STREAMS
    print(f"\nconnections broke: {STREAMS} streams, {dict(seen)}")


async def one_is_killed(it: Fleet) -> None:
    """All its streams go on at the other."""
    comers = [Comer() for _ in range(STREAMS)]
    listening = begun(comers, it.urls[0])
    await asyncio.gather(*(comer.until(lambda one: len(one.text) > 60) for comer in comers))
    it.replicas[0].process.kill()
    broken = await asyncio.gather(*listening)
    cut = sum(one == "broken" for one in broken)
    assert cut > STREAMS // 2
    how = await asyncio.gather(
        *(
            to_the_end(comer, lambda _: it.urls[1], first=one)
            for comer, one in zip(comers, broken, strict=True)
        )
    )
    seen = judge(comers, how, lag=1)
    assert seen["resumed"] == cut
    # A sentence that was whole in the last few milliseconds may not have been written down.
    assert seen["repeated more than a sentence"] <= STREAMS // 10
    print(f"killed: {STREAMS} streams, {cut} of them cut, {dict(seen)}")


# -- a rolling restart -----------------------------------------------------------------------------


async def test_a_rolling_restart_loses_no_stream(tmp_path: Path, redis: RedisServer) -> None:
    """Each replica is drained for less time than a stream takes; clients go where somebody is."""
    comers: list[Comer] = []
    ends: list[str] = []
    over = asyncio.Event()

    async def live(number: int) -> None:
        await asyncio.sleep(number * SPREAD_S / STREAMS)
        while not over.is_set():
            comers.append(comer := Comer())
            ends.append(await to_the_end(comer, lambda turn: it.urls[(number + turn) % 2]))

    async with fleet(tmp_path, redis, saying(), server={"drain_s": 0.2}) as it:
        living = [asyncio.create_task(live(number)) for number in range(STREAMS)]
        await asyncio.sleep(SPREAD_S)
        for index in range(2):
            await it.replace(index)
        over.set()
        await asyncio.gather(*living)
    seen = judge(comers, ends)
    assert seen["resumed"] >= STREAMS // 4
    told = [error for comer in comers for error in comer.errors]
    # On a machine that is short of time a read may be late.
    assert {error["code"] for error in told} <= {
        "stream_interrupted",
        "draining",
        "resume_unavailable",
    }
    broken_off = [error for error in told if error["code"] == "stream_interrupted"]
    assert all("x-router-resume" in error["message"] for error in broken_off)
    assert all(error["router"]["outcome"] == "router_stopped" for error in broken_off)
    print(f"\nrolling restart: {len(comers)} streams, {dict(seen)}")


# -- Redis is away ---------------------------------------------------------------------------------

OUTAGE_S = 5.0 if FULL else 0.7


async def killed(redis: RedisServer) -> None:
    """It loses everything."""
    redis.kill()
    await asyncio.sleep(OUTAGE_S)
    await asyncio.to_thread(redis.start)


async def paused(redis: RedisServer) -> None:
    async with aioredis.Redis.from_url(redis.url, protocol=2) as client:
        await client.client_pause(round(1000 * OUTAGE_S), all=True)
    await asyncio.sleep(OUTAGE_S)


async def asleep(redis: RedisServer) -> None:
    async with aioredis.Redis.from_url(redis.url, protocol=2, socket_timeout=60) as client:
        await client.execute_command("DEBUG", "SLEEP", OUTAGE_S)  # type: ignore[no-untyped-call]


async def test_redis_is_away_and_no_stream_notices(tmp_path: Path, redis: RedisServer) -> None:
    """The first provider is cut in every answer, and live streams go on by what they know."""
    first = saying("--fault", "cut@60")
    async with fleet(tmp_path, redis, first, saying()) as it:
        for outage in (paused, asleep, killed):
            await under(outage, redis, it)


async def under(
    outage: Callable[[RedisServer], Awaitable[None]], redis: RedisServer, it: Fleet
) -> None:
    """Most clients stay; some lose their connection while Redis is away, or before, or after, and
    come back when it is there again."""
    count = 100 if FULL else 16
    staying = [Comer() for _ in range(count)]
    leaving = [Comer() for _ in range(count // 4)]
    rng = random.Random(9)  # noqa: S311 - seeded on purpose
    back = asyncio.Event()

    async def lose(number: int, comer: Comer) -> str:
        await asyncio.sleep(number * SPREAD_S / len(leaving))
        cut = rng.randint(100, len(TEXT) - 300)
        assert await comer.listen(it.urls[0], chars=cut) == "left"
        await back.wait()
        return await to_the_end(comer, lambda _: it.urls[1])

    living = begun(staying, it.urls[0])
    losing = [asyncio.create_task(lose(*one)) for one in enumerate(leaving)]
    await staying[0].until(lambda one: len(one.text) > 80)
    await outage(redis)
    back.set()
    judge(staying, await asyncio.gather(*living))
    how = await asyncio.gather(*losing)
    for comer, one in zip(leaving, how, strict=True):
        # Of a Redis that came back empty nothing can be expected but honesty.
        assert one == "finished" or (one == "resume_unknown" and outage is killed), one
        if one == "finished":
            assert comer.canonical == comer.shown == TEXT
        else:
            assert TEXT.startswith(comer.text)
    print(f"\n{outage.__name__}: {count} streams stayed, of those who left: {Counter(how)}")
