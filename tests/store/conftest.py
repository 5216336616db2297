"""A real redis-server for the store's tests: one per session, and one of its own for a test that
kills it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from record_kit import BINARY, QUICK, MakeStore, RedisServer, free_port, new_head
from redis import asyncio as aioredis

from router.store.base import RecordHead
from router.store.envelope import Envelopes
from router.store.redis import RedisRecordStore
from router.store.writebehind import QueueLimits


@contextlib.contextmanager
def _server(directory: Path) -> Iterator[RedisServer]:
    if BINARY is None:
        pytest.skip("no redis-server binary: the Redis half of the record is not tested here")
    server = RedisServer(directory, free_port())
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The session's server. Tests use ids of their own, and do not harm it."""
    with _server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that this test may kill, stop and pause."""
    with _server(tmp_path) as server:
        yield server


@pytest.fixture
async def redis_client(redis_server: RedisServer) -> AsyncIterator[aioredis.Redis]:
    """A plain client of the session's server."""
    client = aioredis.Redis.from_url(redis_server.url, protocol=2)
    yield client
    await client.aclose()


@pytest.fixture
async def make_redis_store() -> AsyncIterator[MakeStore]:
    """Makes started stores, and closes them at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(
            url: str,
            *,
            limits: QueueLimits = QUICK,
            ttl_s: float = 60,
            command_timeout_s: float = 1,
            envelopes: Envelopes | None = None,
        ) -> RedisRecordStore:
            store = RedisRecordStore(
                url,
                limits=limits,
                ttl_s=ttl_s,
                command_timeout_s=command_timeout_s,
                envelopes=envelopes,
            )
            await store.start()
            stack.push_async_callback(store.aclose)
            return store

        yield make


@pytest.fixture
def head() -> RecordHead:
    """A head of a stream that nobody else has."""
    return new_head()


@pytest.fixture
def heads() -> Callable[[], RecordHead]:
    """Makes such heads."""
    return new_head
