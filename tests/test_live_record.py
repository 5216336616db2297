"""The failover record of a live stream, in a real Redis: what is in it, when, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import asyncio as aioredis
from support.reading import Answer, ask, check_contract
from support.redis_servers import BINARY, RedisServer, free_port
from support.routers import Router, routed, running_router

from router.core.boundary import make_boundary
from router.engine.observe import Committed, Detail
from router.simulate import Script, SimulatedProvider, Turnstile, seeded_text, tokenize

TEXT = seeded_text(11, 900)

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(BINARY is None, reason="no redis-server binary on this machine"),
]


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, free_port())
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[aioredis.Redis]:
    client = aioredis.Redis.from_url(redis_server.url, protocol=2)
    yield client
    await client.aclose()


def boundaries_of(text: str) -> set[int]:
    """Every committed length that the boundary allows when the text comes token by token."""
    boundary = make_boundary("text")
    at, allowed = 0, set()
    for token in tokenize(text):
        chars = boundary.feed(token)
        at += chars
        if chars:
            allowed.add(at)
    return allowed


async def kept(client: aioredis.Redis) -> list[str]:
    return sorted([key.decode() async for key in client.scan_iter("router:{*}:*")])


async def text_of(client: aioredis.Redis, key: str) -> str:
    value = await client.get(key) or b""
    assert isinstance(value, bytes)
    return value.decode()


async def record_settled(router: Router) -> None:
    """Everything the router wanted to tell Redis is told."""
    await router.serving.engine.store.flushed()


async def test_the_record_advances_only_at_boundaries_and_is_gone_after_completion(
    redis_server: RedisServer, client: aioredis.Redis
) -> None:
    allowed = boundaries_of(TEXT)
    assert len(allowed) > 5
    gate = Turnstile(0)
    lengths = set()
    async with (
        SimulatedProvider(script=Script(text=TEXT), gate=gate) as provider,
        running_router(routed(provider, record={"url": redis_server.url})) as router,
    ):
        running = asyncio.create_task(ask(router.base_url))
        for sent in range(1, len(tokenize(TEXT)) + 1):
            await gate.held()
            gate.move(1)
            await provider.wait_tokens(sent)
            await record_settled(router)
            for key in await kept(client):
                if key.endswith(":text"):
                    stored = await text_of(client, key)
                    assert TEXT.startswith(stored)
                    lengths.add(len(stored))
        gate.open()
        answer = await running
        check_contract(answer)
        await record_settled(router)
        assert await kept(client) == []
    assert answer.delivered == TEXT
    assert lengths - {0} <= allowed
    assert len(lengths) > 5


async def test_monitor_shows_one_command_per_commit_and_no_text_twice(
    redis_server: RedisServer,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", redis_server.port)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    commits: list[Committed] = []
    gate = Turnstile(0)

    def watch(detail: Detail) -> None:
        if isinstance(detail, Committed):
            commits.append(detail)

    async with (
        SimulatedProvider(script=Script(text=TEXT), gate=gate) as provider,
        running_router(
            routed(provider, record={"url": redis_server.url}), observers=(watch,)
        ) as router,
    ):
        running = asyncio.create_task(ask(router.base_url))
        for sent in range(1, len(tokenize(TEXT)) + 1):
            await gate.held()
            gate.move(1)
            await provider.wait_tokens(sent)
            await record_settled(router)
        gate.open()
        answer = await running
        await record_settled(router)
    assert answer.delivered == TEXT
    async with aioredis.Redis.from_url(redis_server.url, protocol=2) as ping:
        await ping.execute_command("ECHO", "that is all")  # type: ignore[no-untyped-call]
    told = []
    while "that is all" not in (line := (await reader.readline()).decode()):
        if " lua] " not in line and '"EVALSHA"' in line and "router-{books}" not in line:
            told.append(line)
    writer.close()
    await writer.wait_closed()
    # One command each for the boundaries; opening and closing may cost one more each.
    assert len(commits) > 5
    assert len(commits) <= len(told) <= len(commits) + 2
    for commit in commits:
        words = commit.delta.strip()
        if words.isascii() and '"' not in words and "\n" not in words and len(words) > 20:
            assert sum(words in line for line in told) == 1, words


@pytest.mark.parametrize("cut", [60, 120])
async def test_redis_killed_in_mid_stream_is_not_noticed_and_failover_still_works(
    redis_server: RedisServer, cut: int
) -> None:
    gate = Turnstile(0)
    async with (
        SimulatedProvider(script=Script(text=TEXT), gate=gate, faults=f"cut@{cut}") as first,
        SimulatedProvider(script=Script(text=TEXT)) as second,
        running_router(routed(first, second, record={"url": redis_server.url})) as router,
    ):
        running = asyncio.create_task(ask(router.base_url))
        for sent in range(1, 40):
            await gate.held()
            gate.move(1)
            await first.wait_tokens(sent)
        redis_server.kill()
        gate.open()
        answer = await running
        check_contract(answer)
        assert answer.delivered == TEXT
        assert answer.metadata is not None
        assert answer.metadata["failovers"][0]["fault"] == "cut"
        again: Answer = await ask(router.base_url)
        assert again.delivered == TEXT


async def test_a_redis_that_was_never_there_changes_nothing() -> None:
    async with (
        SimulatedProvider(script=Script(text=TEXT), faults="cut@50") as first,
        SimulatedProvider(script=Script(text=TEXT)) as second,
        running_router(
            routed(first, second, record={"url": f"redis://127.0.0.1:{free_port()}/0"})
        ) as router,
    ):
        answer = await ask(router.base_url)
        check_contract(answer)
        assert answer.delivered == TEXT


async def test_an_interrupted_stream_keeps_its_text_for_the_resume_window(
    redis_server: RedisServer, client: aioredis.Redis
) -> None:
    async with (
        SimulatedProvider(script=Script(text=TEXT), faults="cut@80") as only,
        running_router(
            routed(
                only,
                record={"url": redis_server.url, "resume_window_s": 77},
                route={"max_attempts": 1},
            )
        ) as router,
    ):
        answer = await ask(router.base_url)
        assert answer.error is not None
        assert answer.error["code"] == "stream_interrupted"
        assert answer.done == 0
        assert answer.finish_reasons == []
        await record_settled(router)
        text_key = f"router:{{{answer.headers['x-router-stream-id']}}}:text"
        stored = await text_of(client, text_key)
        assert stored
        assert answer.delivered.startswith(stored)
        assert 0 < await client.ttl(text_key) <= 77
