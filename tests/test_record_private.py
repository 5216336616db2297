"""What a whole router leaves in Redis: nothing that can be read with keys, nothing at all without
retention; and what a client is told of either."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from redis import asyncio as aioredis
from support.reading import ask
from support.redis_servers import BINARY, RedisServer, free_port
from support.resuming import MESSAGES, Comer, Holds, Replica
from support.routers import routed, running_router

from router.simulate import Script, SimulatedProvider, seeded_text, tokenize

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(BINARY is None, reason="no redis-server binary on this machine"),
]

TEXT = seeded_text(5, 900)
OLD, NEW = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "/" * 42 + "8="
RECEIVED = "".join(tokenize(TEXT)[:120])


@pytest.fixture
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"), free_port())
    server.start()
    yield server
    server.kill()


@asynccontextmanager
async def routers(
    provider: SimulatedProvider, *records: dict[str, Any]
) -> AsyncIterator[list[Replica]]:
    """One for each `record` section."""
    async with AsyncExitStack() as stack:
        found = [Replica() for _ in records]
        for one, record in zip(found, records, strict=True):
            config = routed(provider, record=record, health={"eject_after": 1000})
            one.router = await stack.enter_async_context(running_router(config, observers=(one,)))
        yield found


HOW: dict[object, tuple[str, ...]] = {
    b"string": ("GET",),
    b"hash": ("HGETALL",),
    b"stream": ("XRANGE", "-", "+"),
    b"zset": ("ZRANGE", "0", "-1"),
}
"""How a value of each type is read."""


async def raw(client: aioredis.Redis, *words: str | bytes) -> object:
    """Any command."""
    reply: object = await client.execute_command(*words)  # type: ignore[no-untyped-call] # the client's
    return reply


async def everything(redis: RedisServer) -> bytes:
    """Every key and value."""
    async with aioredis.Redis.from_url(redis.url, protocol=2) as client:
        found = []
        async for key in client.scan_iter():
            verb, *rest = HOW[await raw(client, "TYPE", key)]
            found.append(repr((key, await raw(client, verb, key, *rest))).encode())
        return b"\n".join(found)


def words(text: str) -> list[bytes]:
    """What would be told apart if it showed; as it is and as `repr` writes it."""
    pieces = [text[at : at + 12] for at in range(0, len(text) - 12, 7)]
    return [
        form for piece in pieces for form in (piece.encode(), repr(piece.encode())[2:-1].encode())
    ]


async def test_encrypted_and_resumed_across_a_rotation(redis: RedisServer) -> None:
    holds = Holds()
    holds.hold(0, before=120)
    async with (
        SimulatedProvider(script=Script(text=TEXT), gate=holds) as provider,
        routers(
            provider,
            {"url": redis.url, "encryption_key": OLD},
            {"url": redis.url, "encryption_key": NEW},
            {"url": redis.url, "encryption_keys": [NEW, OLD]},
            {"url": redis.url},
        ) as (old, new, both, none),
    ):
        comer = Comer()
        assert await comer.listen(old.url, chars=len(RECEIVED)) == "left"
        await old.ended(1)
        held = await everything(redis)
        assert comer.stream_id.encode() in held
        assert not [word for word in words(TEXT) if word in held]
        prompt = MESSAGES[0]["content"]
        assert prompt.encode() not in held
        assert await comer.listen(new.url) == "resume_corrupt"
        assert "which this router does not have" in comer.errors[-1]["message"]
        assert await comer.listen(none.url) == "resume_corrupt"
        assert "this router has no key" in comer.errors[-1]["message"]
        assert await comer.listen(both.url) == "finished"
        assert comer.canonical == TEXT
        await both.ended(1)
        assert b":text" not in await everything(redis)


async def test_plain_text_would_have_been_found(redis: RedisServer) -> None:
    """The search above finds what there is to find."""
    holds = Holds()
    holds.hold(0, before=120)
    async with (
        SimulatedProvider(script=Script(text=TEXT), gate=holds) as provider,
        routers(provider, {"url": redis.url}) as (one,),
    ):
        comer = Comer()
        assert await comer.listen(one.url, chars=len(RECEIVED)) == "left"
        await one.ended(1)
        held = await everything(redis)
        assert len([word for word in words(TEXT) if word in held]) > 10


async def test_nothing_is_retained_and_the_client_is_told(redis: RedisServer) -> None:
    holds = Holds()
    holds.hold(0, before=120)
    async with (
        SimulatedProvider(script=Script(text=TEXT), gate=holds) as provider,
        routers(provider, *2 * [{"url": redis.url, "retain": "none"}]) as (one, two),
    ):
        comer = Comer()
        assert await comer.listen(one.url, chars=len(RECEIVED)) == "left"
        report = await one.ended(1)
        assert not report.resumable
        assert report.to_wire()["resumable"] is False
        held = await everything(redis)
        assert b"router:{" not in held
        assert not [word for word in words(TEXT) if word in held]
        assert await comer.listen(two.url) == "resume_not_kept"
        assert comer.heads[-1]["status"] == "409"
        assert comer.heads[-1]["x-should-retry"] == "false"
        answer = await ask(two.url, headers={"x-router-metadata": "always"})
        assert (answer.delivered, answer.metadata) == (TEXT, answer.metadata)
        assert answer.metadata is not None
        assert answer.metadata["resumable"] is False


async def test_failover_goes_on_without_a_record(redis: RedisServer) -> None:
    async with (
        SimulatedProvider(script=Script(text=TEXT)) as first,
        SimulatedProvider(script=Script(text=TEXT)) as second,
        running_router(
            routed(first, second, record={"url": redis.url, "retain": "none"})
        ) as router,
    ):
        first.set_faults("cut@100")
        answer = await ask(router.base_url)
        assert answer.canonical == TEXT
        assert answer.metadata is not None
        assert answer.metadata["resumable"] is False
        assert len(answer.metadata["failovers"]) == 1
        first.set_faults("cut@100")
        second.set_faults("cut@20")
        broken = await ask(router.base_url)
        assert broken.error is not None
        assert broken.error["router"]["resumable"] is False


async def test_readiness_tells_how_redis_is_set_up(redis: RedisServer) -> None:
    async with aioredis.Redis.from_url(redis.url, protocol=2) as client:
        await client.config_set("maxmemory-policy", "volatile-lru")
    async with (
        SimulatedProvider(script=Script(text=TEXT)) as provider,
        running_router(routed(provider, record={"url": redis.url})) as router,
        httpx.AsyncClient(trust_env=False) as client_,
    ):
        store = router.serving.engine.store
        await store._inspecting  # type: ignore[attr-defined] # for tests
        ready = await client_.get(router.base_url.removesuffix("/v1") + "/ready")
        assert ready.status_code == 200
        (advice,) = ready.json()["record"]["advice"]
        assert "noeviction" in advice
        assert ready.json()["record"]["circuit_open"] == 0
