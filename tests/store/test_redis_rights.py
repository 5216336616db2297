"""The rights that `docs/operation.md` asks for are enough, and they are few."""

from __future__ import annotations

import pytest
from record_kit import QUICK, RedisServer, new_head, node_of, raw
from redis import asyncio as aioredis
from redis.exceptions import NoPermissionError
from support.redis_servers import rights

from router.core.limits import Allowance
from router.store import make_limiter, make_shared
from router.store.limits_redis import RedisLimiter
from router.store.notices import Notice
from router.store.redis import RedisRecordStore

pytestmark = pytest.mark.redis


@pytest.fixture
async def url(own_redis: RedisServer) -> str:
    async with aioredis.Redis.from_url(own_redis.url, protocol=2) as client:
        await raw(client, "ACL", "SETUSER", "router", "reset", "on", ">pw", *rights())
    return f"redis://router:pw@127.0.0.1:{own_redis.port}/0"


async def test_everything_works_with_them(url: str) -> None:
    store = RedisRecordStore(url, limits=QUICK)
    await store.start()
    head = new_head()
    store.open(head).commit("One.", at_chars=0, meta={"n": 1})
    await store.flushed()
    record, writer = await store.takeover(head.stream_id, expected_epoch=1)
    assert record.text == "One."
    writer.close("completed", keep_s=0)
    await store.flushed()
    assert store.stats["foreign"] == store.stats["failures"] == 0
    assert store._inspecting is not None
    await store._inspecting
    assert store.advice == ()
    await store.aclose()

    shared = make_shared(url, max_rows=10, keep_s=60)
    assert shared is not None
    shared.ledger.add(b"{}")
    await shared.ledger.flushed()
    assert len(await shared.ledger.page(None, 5)) == 1
    await shared.notices.post({"one": Notice(b"1", 60), "two": None})
    assert set(await shared.notices.read(["one", "two"])) == {"one"}
    await shared.ledger.aclose()

    limiter = make_limiter(url, Allowance(concurrent_streams=1), lease_s=60, clock=lambda: 0.0)
    assert isinstance(limiter, RedisLimiter)
    assert await limiter.admit("me", "one") is None
    assert await limiter.admit("me", "two") is not None
    await limiter.release("me", "one", 5)
    assert await limiter.admit("me", "two") is None
    await limiter.aclose()


async def test_nothing_else_does(url: str) -> None:
    store = RedisRecordStore(url, limits=QUICK)
    client = node_of(store._link).reader
    for words in (("GET", "other"), ("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "SET", "save", "")):
        with pytest.raises(NoPermissionError):
            await raw(client, *words)
    await store.aclose()
