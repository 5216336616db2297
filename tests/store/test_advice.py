"""What is said about how a Redis is set up: of made-up ones, and of a real one."""

from __future__ import annotations

import logging

import pytest
from record_kit import MakeStore, RedisServer, raw
from redis import asyncio as aioredis
from redis.exceptions import NoPermissionError

from router.store.advice import COMMANDS, Ours, advise
from router.store.redis import RedisRecordStore

FORBIDDEN = NoPermissionError("no")
GOOD = {"redis_version": "7.2.4", "redis_mode": "standalone", "role": "master",
        "maxmemory_policy": "noeviction", "aof_enabled": 0, "connected_slaves": 0}  # fmt: skip


def said(
    info: object, *config: tuple[str, str], sealed: bool = False, cluster: bool = False
) -> str:
    settings = [[name.encode(), value.encode()] for name, value in config]
    ours = Ours(sealed=sealed, cluster=cluster)
    return "\n".join(advise({"h:1": [info, *settings]}, ours))


def test_nothing_is_said_of_what_is_right() -> None:
    assert said(GOOD, ("save", ""), ("appendfsync", "everysec")) == ""
    assert said({**GOOD, "connected_slaves": 1}, ("min-replicas-to-write", "1")) == ""
    assert said({**GOOD, "redis_mode": "cluster"}, cluster=True) == ""


@pytest.mark.parametrize(
    ("facts", "config", "words"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, (), "maxmemory-policy allkeys-lru"),
        ({"aof_enabled": 1}, (), "to its disk (appendonly yes)"),
        ({}, (("save", "3600 1"),), "to its disk (save 3600 1)"),
        ({"aof_enabled": 1}, (("appendfsync", "always"),), "waits for its disk"),
        ({"redis_version": "5.0.7"}, (), "version 5.0.7"),
        ({"redis_mode": "sentinel"}, (), "redis+sentinel://"),
        ({"redis_mode": "cluster"}, (), "redis+cluster://"),
        ({"role": "slave"}, (), "is a replica"),
        ({"connected_slaves": 2}, (("min-replicas-to-write", "0"),), "min-replicas-to-write 1"),
    ],
)
def test_what_is_not_right_is_said(
    facts: dict[str, object], config: tuple[tuple[str, str], ...], words: str
) -> None:
    assert words in said({**GOOD, **facts}, *config)


def test_text_that_is_sealed_may_lie_on_a_disk() -> None:
    assert said({**GOOD, "aof_enabled": 1}, ("save", "3600 1"), sealed=True) == ""


@pytest.mark.parametrize("answer", [FORBIDDEN, None, b"bytes", 3, [b"odd"], {"redis_version": "?"}])
def test_a_server_that_says_little(answer: object) -> None:
    words = said(answer)
    assert ("INFO is forbidden" in words) is not isinstance(answer, dict)


def test_each_thing_is_said_once_for_each_server() -> None:
    bad = [{**GOOD, "role": "slave"}]
    ours = Ours(sealed=False, cluster=False)
    assert len(advise({"h:1": [*bad, *bad], "h:2": bad}, ours)) == 2


@pytest.mark.redis
async def test_a_real_server_is_asked_at_the_start(
    own_redis: RedisServer, make_redis_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with aioredis.Redis.from_url(own_redis.url, protocol=2) as client:
        good = await make_redis_store(own_redis.url)
        await inspected(good)
        assert good.advice == ()
        await client.config_set("maxmemory-policy", "allkeys-lru")
        await client.config_set("save", "3600 1")
        with caplog.at_level(logging.WARNING, "router.store"):
            bad = await make_redis_store(own_redis.url)
            await inspected(bad)
        assert len(bad.advice) == 2
        assert [record.getMessage() for record in caplog.records] == [
            f"record: {sentence}" for sentence in bad.advice
        ]
        # What ours may not ask: nothing of it stands in the way of a record.
        await raw(client, "ACL", "SETUSER", "poor", "on", ">pw", "~*", "+@all", "-config", "-info")
    poor = await make_redis_store(f"redis://poor:pw@127.0.0.1:{own_redis.port}/0")
    await inspected(poor)
    assert len(poor.advice) == 1
    assert "INFO is forbidden" in poor.advice[0]


@pytest.mark.redis
async def test_a_server_that_comes_late_is_asked_then(
    own_redis: RedisServer, make_redis_store: MakeStore
) -> None:
    own_redis.kill()
    store = await make_redis_store(own_redis.url)
    assert store._inspecting is not None
    assert not store._inspecting.done()
    own_redis.start()
    await inspected(store)


async def inspected(store: RedisRecordStore) -> None:
    assert store._inspecting is not None
    await store._inspecting


def test_config_is_asked_for_one_by_one() -> None:
    """Redis before 7 takes one name for each CONFIG GET."""
    assert all(len(words) == 3 for words in COMMANDS if words[0] == "CONFIG")
