"""Where rows are kept: one contract for memory and Redis, and what only Redis can do wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from record_kit import QUICK, RedisServer, raw
from redis import asyncio as aioredis

from router.errors import RecordUnavailable
from router.store import make_shared
from router.store.ledger import Leaf, Ledger, MemoryLedger
from router.store.ledger_redis import KEY, RedisLedger
from router.store.redis import RedisLink
from router.store.scripts import Script
from router.store.writebehind import QueueLimits

Make = Callable[..., RedisLedger]


def row(number: int, size: int = 0) -> bytes:
    return b'{"number":%d%s}' % (number, b" " * size)


async def everything(ledger: Ledger, count: int = 3) -> list[Leaf]:
    """All rows, page by page."""
    leaves: list[Leaf] = []
    before = None
    while page := await ledger.page(before, count):
        leaves += page
        before = page[-1].at
        if len(page) < count:
            break
    return leaves


def link_to(url: str, kind: type[RedisLink] = RedisLink) -> RedisLink:
    return kind(url, command_timeout_s=1, connect_timeout_s=1)


@pytest.fixture
async def make(redis_client: aioredis.Redis) -> AsyncIterator[Make]:
    """Makes ledgers over an empty stream of rows, and closes them at the end."""
    await redis_client.delete(KEY)
    async with AsyncExitStack() as stack:

        def one(url: str, *, link: RedisLink | None = None, **options: Any) -> RedisLedger:  # noqa: ANN401 - passed on
            ledger = RedisLedger(link or link_to(url), **{"limits": QUICK, **options})
            stack.push_async_callback(ledger.aclose)
            return ledger

        yield one


@pytest.fixture(params=["memory", "redis"])
def ledger(request: pytest.FixtureRequest) -> Ledger:
    if request.param == "memory":
        return MemoryLedger()
    made: Make = request.getfixturevalue("make")
    server: RedisServer = request.getfixturevalue("redis_server")
    return made(server.url)


async def settled(ledger: Ledger) -> None:
    if isinstance(ledger, RedisLedger):
        async with asyncio.timeout(10):
            await ledger.flushed()


# --- the contract ---------------------------------------------------------------------------------


async def test_an_empty_ledger_has_an_empty_page(ledger: Ledger) -> None:
    assert list(await ledger.page(None, 5)) == []


@pytest.mark.parametrize("count", [1, 3, 7, 100])
async def test_rows_come_newest_first_whatever_the_page(ledger: Ledger, count: int) -> None:
    rows = [row(number) for number in range(20)]
    for one in rows:
        ledger.add(one)
    await settled(ledger)
    leaves = await everything(ledger, count)
    assert [leaf.row for leaf in leaves] == rows[::-1]
    assert len({leaf.at for leaf in leaves}) == 20


async def test_a_place_stays_one_while_rows_are_added(ledger: Ledger) -> None:
    for number in range(6):
        ledger.add(row(number))
    await settled(ledger)
    first = await ledger.page(None, 3)
    ledger.add(row(6))
    await settled(ledger)
    rest = await ledger.page(first[-1].at, 9)
    assert [leaf.row for leaf in rest] == [row(2), row(1), row(0)]


@pytest.mark.parametrize("place", ["x", "-1", "1-", "١", "9" * 40, "1-2-3", "+", "(1-1"])
async def test_what_is_no_place_is_refused(ledger: Ledger, place: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        await ledger.page(place, 1)


# --- memory ---------------------------------------------------------------------------------------


async def test_memory_forgets_the_oldest_beyond_its_rows() -> None:
    ledger = MemoryLedger(max_rows=4)
    for number in range(10):
        ledger.add(row(number))
    assert [leaf.row for leaf in await everything(ledger)] == [row(n) for n in (9, 8, 7, 6)]
    assert ledger.stats["rows_written"] == 10
    assert ledger.stats["rows_forgotten"] == 6
    assert await ledger.page("3", 5) == []  # a place that was forgotten


async def test_memory_forgets_the_oldest_beyond_its_bytes() -> None:
    ledger = MemoryLedger(max_bytes=1_000)
    for number in range(10):
        ledger.add(row(number, 300))
    assert ledger.stats["held_bytes"] <= 1_000
    assert [leaf.row for leaf in await everything(ledger)] == [row(n, 300) for n in (9, 8, 7)]
    ledger.add(row(10, 5_000))
    assert [leaf.row for leaf in await everything(ledger)] == [row(10, 5_000)]


# --- Redis ----------------------------------------------------------------------------------------


async def test_every_process_reads_everybodys_rows(make: Make, redis_server: RedisServer) -> None:
    one, other = make(redis_server.url), make(redis_server.url)
    one.add(row(1))
    await settled(one)
    other.add(row(2))
    await settled(other)
    for ledger in (one, other):
        assert [leaf.row for leaf in await everything(ledger)] == [row(2), row(1)]


async def test_redis_keeps_so_many_rows_and_so_long(
    make: Make, redis_server: RedisServer, redis_client: aioredis.Redis
) -> None:
    ledger = make(redis_server.url, max_rows=100, keep_s=50)
    for number in range(1_000):
        ledger.add(row(number))
    await settled(ledger)
    assert 100 <= await redis_client.xlen(KEY) <= 200  # by whole nodes of a hundred
    assert 0 < await redis_client.pttl(KEY) <= 50_000
    assert (await ledger.page(None, 1))[0].row == row(999)


async def test_rows_that_are_too_old_go(
    make: Make, redis_server: RedisServer, redis_client: aioredis.Redis
) -> None:
    for number in range(300):
        await redis_client.xadd(KEY, {"row": row(number)}, id=f"{1_000 + number}-0")
    ledger = make(redis_server.url, keep_s=60)
    ledger.add(row(300))
    await settled(ledger)
    assert await redis_client.xlen(KEY) <= 101  # all whole nodes are gone


class Deaf(RedisLink):
    """A link that loses some answers: what was asked for is done."""

    lose = 0

    async def run(self, script: Script, on: Any, *args: str | int | bytes) -> Any:  # noqa: ANN401 - as there
        answer = await super().run(script, on, *args)
        if self.lose:
            self.lose -= 1
            raise RecordUnavailable("the answer was lost")
        return answer


async def test_a_lost_answer_writes_no_row_twice(make: Make, redis_server: RedisServer) -> None:
    link = link_to(redis_server.url, Deaf)
    assert isinstance(link, Deaf)
    link.lose = 3
    ledger = make(redis_server.url, link=link)
    for number in range(150):
        ledger.add(row(number))
    await settled(ledger)
    rows = [leaf.row for leaf in await everything(ledger, 100)]
    assert rows == [row(number) for number in reversed(range(150))]
    assert ledger.stats["shared_failures"] == 3
    assert ledger.stats["shared_rows_written"] == 150


async def test_with_redis_away_rows_wait_bounded_and_the_lost_are_counted(
    own_redis: RedisServer,
) -> None:
    limits = QueueLimits(
        linger_s=0, backoff_min_s=0.01, backoff_max_s=0.05, close_timeout_s=0.5, max_streams=50
    )
    ledger = RedisLedger(link_to(own_redis.url), limits=limits)
    own_redis.kill()
    for number in range(200):
        ledger.add(row(number))
    assert ledger.stats["waiting_rows"] <= 50
    with pytest.raises(RecordUnavailable):
        await ledger.page(None, 1)
    own_redis.start()
    await settled(ledger)
    rows = [leaf.row for leaf in await everything(ledger)]
    assert rows == [row(number) for number in reversed(range(150, 200))]
    assert ledger.stats["shared_rows_dropped"] == 150
    await ledger.aclose()


async def test_what_waits_is_bounded_in_bytes_too(own_redis: RedisServer) -> None:
    limits = QueueLimits(linger_s=0, close_timeout_s=0.5, max_bytes=10_000)
    ledger = RedisLedger(link_to(own_redis.url), limits=limits)
    own_redis.kill()
    for number in range(100):
        ledger.add(row(number, 1_000))
    assert ledger.stats["waiting_bytes"] <= 10_000
    await ledger.aclose()
    assert ledger.stats["shared_rows_dropped"] == 100
    ledger.add(row(1))  # too late, and counted
    assert ledger.stats["shared_rows_dropped"] == 101


async def test_closing_sends_what_waits(make: Make, redis_server: RedisServer) -> None:
    ledger, reader = make(redis_server.url), make(redis_server.url)
    for number in range(200):
        ledger.add(row(number))
    await ledger.aclose()
    assert len(await everything(reader, 100)) == 200


async def test_a_foreign_value_under_the_key_harms_nobody(
    make: Make, redis_server: RedisServer, redis_client: aioredis.Redis
) -> None:
    await redis_client.set(KEY, "not ours")
    ledger = make(redis_server.url)
    ledger.add(row(1))
    with pytest.raises(RecordUnavailable):
        await ledger.page(None, 1)
    await redis_client.delete(KEY)
    await settled(ledger)
    assert [leaf.row for leaf in await everything(ledger)] == [row(1)]


async def test_a_foreign_entry_is_an_empty_row(
    make: Make, redis_server: RedisServer, redis_client: aioredis.Redis
) -> None:
    await raw(redis_client, "XADD", KEY, "*", "other", "thing")
    ledger = make(redis_server.url)
    assert [leaf.row for leaf in await everything(ledger)] == [b""]


def test_without_redis_nothing_is_shared() -> None:
    assert make_shared(None, max_rows=1, keep_s=1) is None
