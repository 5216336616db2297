"""What the store's tests are made with: a redis-server that can be killed, and heads."""

from __future__ import annotations

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
    "BINARY", "QUICK", "MakeStore", "RedisServer", "free_port", "new_head", "node_of", "raw",
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
