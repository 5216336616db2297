"""What the store's tests are made with: a redis-server that can be killed, and heads."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable

from redis import asyncio as aioredis
from support.redis_servers import BINARY, RedisServer, free_port

from router.store.base import RecordHead
from router.store.link import RedisLink
from router.store.redis import RedisRecordStore
from router.store.topology import Alone, Node
from router.store.writebehind import QueueLimits


async def raw(client: aioredis.Redis, *command: str | int) -> object:
    """Any command, as words."""
    reply: object = await client.execute_command(*command)  # type: ignore[no-untyped-call] # the client's
    return reply


def node_of(link: RedisLink) -> Node:
    """The one server of a link that has one."""
    assert isinstance(link._topology, Alone)
    return link._topology._node


__all__ = [
    "BINARY", "QUICK", "MakeStore", "RedisServer", "Streams", "free_port", "new_head", "node_of",
    "raw",
]  # fmt: skip

QUICK = QueueLimits(linger_s=0, backoff_min_s=0.01, backoff_max_s=0.05, close_timeout_s=0.5)
"""Limits that keep a test short; what they bound is tested as it is."""

MakeStore = Callable[..., Awaitable[RedisRecordStore]]
"""The type of the fixture `make_redis_store`."""

_ids = itertools.count()


def new_head(stream_id: str | None = None) -> RecordHead:
    """A head with an id that no other test has."""
    return RecordHead(
        stream_id=stream_id or f"stream-{os.getpid()}-{next(_ids)}",
        kind="text",
        route="chat",
        request_digest="ab" * 32,
        owner="cd" * 32,
        created=1_700_000_000.5,
    )


class Streams:
    """Streams that commit without end."""

    def __init__(self, store: RedisRecordStore, count: int) -> None:
        self.store = store
        self.heads = [new_head() for _ in range(count)]
        self.texts = [""] * count
        self.writers = [store.open(head) for head in self.heads]
        for n, writer in enumerate(self.writers):
            writer.source = lambda n=n: self.texts[n]
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.commit()
            await asyncio.sleep(0.01)

    def commit(self) -> None:
        for n, writer in enumerate(self.writers):
            piece = f"{n}:{len(self.texts[n])}é. "
            at_chars = len(self.texts[n])
            self.texts[n] += piece
            writer.commit(piece, at_chars=at_chars)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.commit()
        await self.store.flushed()

    async def check(self, store: RedisRecordStore) -> None:
        for head, text in zip(self.heads, self.texts, strict=True):
            record = await store.load(head.stream_id)
            assert (record.text, record.stale) == (text, False)
