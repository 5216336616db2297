"""Limits per API key: pure arithmetic, one count for all replicas, and what a client is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from support.reading import ask, check_contract
from support.redis_servers import BINARY, RedisServer, free_port
from support.routers import routed, running_router

from router.core.limits import Account, Allowance, Limit
from router.simulate import Script, SimulatedProvider, Turnstile
from router.store.limits_redis import RedisLimiter

TEXT = "One sentence. And another one."
MINUTE_S = 60.0

needs_redis = pytest.mark.skipif(BINARY is None, reason="no redis-server binary on this machine")


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, free_port())
    server.start()
    yield server
    server.kill()


@given(
    per_minute=st.integers(1, 50),
    gaps_s=st.lists(st.floats(0, 20, allow_nan=False), min_size=1, max_size=200),
)
def test_no_minute_sees_more_than_twice_the_allowance(per_minute: int, gaps_s: list[float]) -> None:
    """A bucket that is full at first and refills evenly: its own size more, at the very most."""
    account = Account(Allowance(requests_per_minute=per_minute), 0.0)
    now_s, let_in = 0.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        refusal = account.admit(now_s)
        if refusal is None:
            let_in.append(now_s)
            account.release(0)
        else:
            assert refusal.limit is Limit.REQUESTS_PER_MINUTE
            assert 0 < refusal.retry_after_s <= MINUTE_S / per_minute + 1e-6
            # Whoever waits as long as it is told is let in.
            again = Account(Allowance(requests_per_minute=per_minute), 0.0)
            again.requests.level, again.requests.at_s = account.requests.level, now_s
            assert again.admit(now_s + refusal.retry_after_s + 1e-6) is None
    for at in let_in:
        inside = sum(at <= one < at + MINUTE_S for one in let_in)
        assert inside <= 2 * per_minute


def test_a_refusal_counts_nothing() -> None:
    account = Account(Allowance(concurrent_streams=1, requests_per_minute=60), 0.0)
    assert account.admit(0.0) is None
    level = account.requests.level
    refusal = account.admit(0.0)
    assert refusal is not None
    assert refusal.limit is Limit.CONCURRENT_STREAMS
    assert account.requests.level == level
    account.release(0)
    assert account.admit(0.0) is None


def test_tokens_are_debt_that_time_pays() -> None:
    account = Account(Allowance(tokens_per_minute=600), 0.0)
    assert account.admit(0.0) is None
    account.release(900)
    refusal = account.admit(0.0)
    assert refusal is not None
    assert refusal.limit is Limit.TOKENS_PER_MINUTE
    assert refusal.retry_after_s == pytest.approx(30.1)
    assert account.admit(31.0) is None


async def test_a_client_beyond_its_requests_is_told_when_to_come_back() -> None:
    async with (
        SimulatedProvider(script=Script(text=TEXT)) as provider,
        running_router(routed(provider, server={"limits": {"requests_per_minute": 2}})) as router,
    ):
        for _ in range(2):
            check_contract(await ask(router.base_url))
        refused = await ask_raw(router.base_url)
        assert refused[0] == 429
        assert 1 <= int(refused[1]) <= 30
        assert "rate_limit_exceeded" in refused[2]
        assert len(provider.requests) == 2


async def test_a_stream_gives_its_place_back_however_it_ends() -> None:
    gate = Turnstile(0)
    async with (
        SimulatedProvider(script=Script(text=TEXT), gate=gate) as provider,
        running_router(
            routed(
                provider,
                server={"limits": {"concurrent_streams": 1}},
                route={"max_attempts": 1},
                health={"eject_after": 1000},
            )
        ) as router,
    ):
        first = asyncio.create_task(ask(router.base_url))
        await gate.held()
        assert (await ask_raw(router.base_url))[0] == 429
        gate.open()
        check_contract(await first)
        provider.set_faults("cut@3")
        broken = await ask(router.base_url)
        assert broken.error is not None
        provider.set_faults(None)
        check_contract(await ask(router.base_url))


@needs_redis
async def test_replicas_count_together(redis_server: RedisServer) -> None:
    async with SimulatedProvider(script=Script(text=TEXT)) as provider:
        config = routed(
            provider,
            server={"limits": {"requests_per_minute": 3, "tokens_per_minute": 100_000}},
            record={"url": redis_server.url},
        )
        async with running_router(config) as one, running_router(config) as two:
            for router in (one, two, one):
                check_contract(await ask(router.base_url))
            assert (await ask_raw(two.base_url))[0] == 429
            # A Redis that is away keeps nobody out: each counts for itself then.
            redis_server.kill()
            check_contract(await ask(two.base_url))


@needs_redis
async def test_a_place_comes_free_though_redis_was_away_at_the_end(
    redis_server: RedisServer,
) -> None:
    """Redis dies under a stream, which ends meanwhile; it comes back with what it had on its disk,
    the stream's place among it."""
    gate = Turnstile(0)
    async with SimulatedProvider(script=Script(text=TEXT), gate=gate) as provider:
        config = routed(
            provider,
            server={"limits": {"concurrent_streams": 1}},
            record={"url": redis_server.url},
        )
        async with running_router(config) as one, running_router(config) as two:
            first = asyncio.create_task(ask(one.base_url))
            await gate.held()
            async with Redis.from_url(redis_server.url, protocol=2) as client:
                await client.save()
            redis_server.kill()
            gate.open()
            check_contract(await first)
            redis_server.start()
            limiter = one.serving.limiter
            assert isinstance(limiter, RedisLimiter)
            async with asyncio.timeout(30):
                await limiter.settled()
            check_contract(await ask(two.base_url))


async def ask_raw(base_url: str) -> tuple[int, str, str]:
    """Status, `Retry-After` and body of one request."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "x"}]}
    async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
        response = await client.post(f"{base_url}/chat/completions", json=body)
    return response.status_code, response.headers.get("retry-after", "0"), response.text
