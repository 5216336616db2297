"""Where the failover record lives."""

from __future__ import annotations

import time
from collections.abc import Callable

from router.store.base import RecordStore
from router.store.memory import TTL_S, MemoryRecordStore


def make_store(
    url: str | None, *, ttl_s: float = TTL_S, clock: Callable[[], float] = time.monotonic
) -> RecordStore:
    """The store that the configuration asks for.

    Args:
        url: of a Redis, or None to keep records in this process's memory.
        ttl_s: seconds that an open record outlives its last commit: the longest request plus the
            window in which it may be resumed.
        clock: seconds, monotonic; for the store in memory.

    Raises:
        ValueError: a URL of no kind that is known.
    """
    if url is None:
        return MemoryRecordStore(ttl_s=ttl_s, clock=clock)
    from router.store.redis import RedisRecordStore  # noqa: PLC0415 - 0.1 s that memory need not pay

    return RedisRecordStore(url, ttl_s=ttl_s)
