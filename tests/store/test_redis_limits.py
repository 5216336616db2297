"""Places that are given back though Redis was away just then, or hung: each once, and none kept."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable

import pytest
from record_kit import QUICK, RedisServer, raw
from redis import asyncio as aioredis

from router.core.limits import Allowance, Limit
from router.store import limits_redis
from router.store.limits_redis import RedisLimiter
from router.store.link import RedisLink
from router.store.writebehind import QueueLimits

pytestmark = pytest.mark.redis

LEASE_S = 600.0
IMPATIENT_S = 0.2
"""Command timeout: it passes a few times in a test. Longer than `ADMIT_TIMEOUT_S`."""
ONE = Allowance(concurrent_streams=1, tokens_per_minute=1_000_000)

Make = Callable[..., RedisLimiter]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes limiters, and closes them at the end."""
    async with contextlib.AsyncExitStack() as stack:

        def one(
            server: RedisServer, allowance: Allowance = ONE, *, limits: QueueLimits = QUICK
        ) -> RedisLimiter:
            link = RedisLink(server.url, command_timeout_s=IMPATIENT_S, connect_timeout_s=1)
            limiter = RedisLimiter(
                link, allowance, lease_s=LEASE_S, clock=lambda: 0.0, limits=limits
            )
            stack.push_async_callback(limiter.aclose)
            return limiter

        yield one


@pytest.fixture
async def client(own_redis: RedisServer) -> AsyncIterator[aioredis.Redis]:
    async with aioredis.Redis.from_url(own_redis.url, protocol=2) as client:
        yield client


async def known(limiter: RedisLimiter) -> None:
    """Its scripts are known to the server, so that one command is all that each needs."""
    assert await limiter.admit("me", "known") is None
    await limiter.release("me", "known", 0)


async def settled(limiter: RedisLimiter) -> None:
    async with asyncio.timeout(20):
        await limiter.settled()


async def spent(client: aioredis.Redis) -> float:
    """Tokens that the key has used."""
    left = await raw(client, "HGET", f"{limits_redis.PREFIX}{{me}}:spent", "tokens")
    assert isinstance(left, bytes)
    return 1_000_000 - float(left)


async def test_a_place_comes_free_after_redis_was_away(
    own_redis: RedisServer, make: Make, client: aioredis.Redis
) -> None:
    """It dies with the stream's place written to its disk, and comes back with it."""
    limiter, other = make(own_redis), make(own_redis)
    assert await limiter.admit("me", "first") is None
    await raw(client, "SAVE")
    own_redis.kill()
    await limiter.release("me", "first", 30)
    own_redis.start()
    await settled(limiter)
    assert await spent(client) == 30
    assert await other.admit("me", "second") is None
    refusal = await other.admit("me", "third")
    assert refusal is not None
    assert refusal.limit is Limit.CONCURRENT_STREAMS


async def test_many_places_come_free_and_each_costs_what_it_cost(
    own_redis: RedisServer, make: Make, client: aioredis.Redis
) -> None:
    many = Allowance(concurrent_streams=50, tokens_per_minute=1_000_000)
    limiter = make(own_redis, many)
    for number in range(50):
        assert await limiter.admit("me", f"stream-{number}") is None
    assert await limiter.admit("me", "one more") is not None
    await raw(client, "SAVE")
    own_redis.kill()
    for number in range(50):
        await limiter.release("me", f"stream-{number}", number)
    own_redis.start()
    await settled(limiter)
    assert await spent(client) == sum(range(50))
    for number in range(50):
        assert await limiter.admit("me", f"next-{number}") is None


async def test_a_release_whose_answer_was_lost_costs_once(
    own_redis: RedisServer, make: Make, client: aioredis.Redis
) -> None:
    """What was sent to a server that hangs is done when it wakes up, and so is what was sent
    again."""
    limiter = make(own_redis)
    await known(limiter)
    assert await limiter.admit("me", "first") is None
    own_redis.signal(signal.SIGSTOP)
    await limiter.release("me", "first", 30)
    await failures(limiter, 2)
    own_redis.signal(signal.SIGCONT)
    await settled(limiter)
    assert await spent(client) == 30
    assert await limiter.admit("me", "second") is None


async def failures(limiter: RedisLimiter, count: int) -> None:
    """Wait until so many more tries have failed."""
    failed, reasons = limiter._failed, asyncio.Queue[str]()

    def notice(reason: str) -> None:
        failed(reason)
        reasons.put_nowait(reason)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limiter, "_failed", notice)
        async with asyncio.timeout(20):
            for _ in range(count):
                await reasons.get()


async def test_an_admission_that_was_not_answered_takes_no_place_in_the_end(
    own_redis: RedisServer, make: Make
) -> None:
    """Refused by this process's own count, or let in by it: Redis has done what it was asked."""
    limiter = make(own_redis)
    await known(limiter)
    own_redis.signal(signal.SIGSTOP)
    assert await limiter.admit("me", "first") is None
    assert await limiter.admit("me", "second") is not None
    await limiter.release("me", "first", 30)
    own_redis.signal(signal.SIGCONT)
    await settled(limiter)
    assert await limiter.admit("me", "third") is None


async def test_who_is_refused_has_no_place_in_the_end(own_redis: RedisServer, make: Make) -> None:
    limiter = make(own_redis)
    await known(limiter)
    assert await limiter._own.admit("me", "another") is None
    own_redis.signal(signal.SIGSTOP)
    assert await limiter.admit("me", "first") is not None, "by this process's own count"
    own_redis.signal(signal.SIGCONT)
    await settled(limiter)
    assert await limiter.admit("me", "second") is None


async def test_an_admission_that_arrives_after_the_end_takes_no_place(
    own_redis: RedisServer, make: Make
) -> None:
    """On another connection, so nothing keeps the two in order."""
    limiter = make(own_redis)
    own_redis.signal(signal.SIGSTOP)
    assert await limiter.admit("me", "first") is None
    await limiter.release("me", "first", 30)
    own_redis.signal(signal.SIGCONT)
    await settled(limiter)
    assert await limiter.admit("me", "first") is None, "late"
    assert await limiter.admit("me", "second") is None


async def test_beyond_the_bound_the_oldest_waits_for_its_lease(
    own_redis: RedisServer, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    tight = QueueLimits(max_streams=2, backoff_min_s=0.01, backoff_max_s=0.05, close_timeout_s=0.5)
    limiter = make(own_redis, Allowance(concurrent_streams=3), limits=tight)
    for name in ("first", "second", "third"):
        assert await limiter.admit("me", name) is None
    async with aioredis.Redis.from_url(own_redis.url, protocol=2) as client:
        await raw(client, "SAVE")
    own_redis.kill()
    for name in ("first", "second", "third"):
        await limiter.release("me", name, 0)
    assert set(limiter._owed) == {"second", "third"}
    own_redis.start()
    await settled(limiter)
    assert [await limiter.admit("me", f"next-{n}") is None for n in range(3)] == [True, True, False]
    said = [one.message for one in caplog.records if one.name == "router.store"]
    assert sum("leases end them" in one for one in said) == 1
    assert sum("not given back for now" in one for one in said) == 1
    assert sum("answers again" in one for one in said) == 1


async def test_what_is_owed_at_the_end_is_tried_once_more(
    own_redis: RedisServer, make: Make
) -> None:
    limiter, other = make(own_redis), make(own_redis)
    assert await limiter.admit("me", "first") is None
    own_redis.signal(signal.SIGSTOP)
    await limiter.release("me", "first", 0)
    own_redis.signal(signal.SIGCONT)
    await limiter.aclose()
    assert await other.admit("me", "second") is None


async def test_a_redis_that_stays_away_holds_up_no_end(
    own_redis: RedisServer, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = make(own_redis)
    assert await limiter.admit("me", "first") is None
    own_redis.kill()
    await limiter.release("me", "first", 0)
    async with asyncio.timeout(20):
        await limiter.aclose()
    assert limiter._task is None
    assert "1 places not given back" in caplog.text


async def test_a_foreign_value_under_the_key_is_no_debt(
    own_redis: RedisServer, make: Make, client: aioredis.Redis
) -> None:
    limiter = make(own_redis)
    assert await limiter.admit("me", "first") is None
    await raw(client, "SET", f"{limits_redis.PREFIX}{{me}}:live", "hello")
    await limiter.release("me", "first", 0)
    assert not limiter._owed
