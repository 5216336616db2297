"""Where the failover record lives, and what replicas share besides."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from router.core.limits import Allowance
from router.store.base import RecordStore
from router.store.envelope import Envelopes, PlainEnvelopes
from router.store.limits import Limiter, MemoryLimiter
from router.store.memory import TTL_S, MemoryRecordStore
from router.store.nothing import NothingStore
from router.store.options import RedisOptions
from router.store.weather import Weather

if TYPE_CHECKING:
    from router.store.ledger_redis import RedisLedger
    from router.store.notices import Notices


def make_store(
    url: str | None,
    *,
    ttl_s: float = TTL_S,
    clock: Callable[[], float] = time.monotonic,
    options: RedisOptions | None = None,
    keys: Sequence[bytes] = (),
    retains: bool = True,
    weather: Weather | None = None,
) -> RecordStore:
    """The store that the configuration asks for.

    Args:
        url: of a Redis, or None to keep records in this process's memory.
        ttl_s: seconds that an open record outlives its last commit: the longest request plus the
            window in which it may be resumed.
        clock: seconds, monotonic; for the store in memory.
        options: how Redis is connected to.
        keys: what records are encrypted with in Redis: the first encrypts, each decrypts; none
            leaves them as they are.
        retains: records are kept at all.
        weather: what is known of Redis's troubles, shared with `make_shared`.

    Raises:
        ValueError: a URL of no kind that is known, or a key of another size.
    """
    if not retains:
        return NothingStore()
    if url is None:
        return MemoryRecordStore(ttl_s=ttl_s, clock=clock)
    from router.store.redis import RedisRecordStore  # noqa: PLC0415 - 0.1 s that memory need not pay

    return RedisRecordStore(
        url, ttl_s=ttl_s, options=options, envelopes=_envelopes(keys), weather=weather
    )


def _envelopes(keys: Sequence[bytes]) -> Envelopes:
    if not keys:
        return PlainEnvelopes()
    from router.store.cipher import SealedEnvelopes  # noqa: PLC0415 - as above

    return SealedEnvelopes(keys)


class Shared(NamedTuple):
    """What replicas share besides records.

    Args:
        ledger: everybody's rows; closes the connections of both.
        notices: what one tells the others.
    """

    ledger: RedisLedger
    notices: Notices


def make_shared(
    url: str | None,
    *,
    max_rows: int,
    keep_s: float,
    options: RedisOptions | None = None,
    weather: Weather | None = None,
) -> Shared | None:
    """What the configuration's Redis lets replicas share.

    On connections of its own: a long search of the books holds up no record.

    Args:
        url: of a Redis, or None where there is nothing to share.
        max_rows: bound on the rows.
        keep_s: how long a row is kept, in seconds.
        options: how Redis is connected to.
        weather: what is known of Redis's troubles, shared with `make_store`.

    Raises:
        ValueError: a URL of no kind that is known.
    """
    if url is None:
        return None
    from router.store import ledger_redis, notices, redis  # noqa: PLC0415 - as above

    link = redis.RedisLink(url, options=options, weather=weather)
    ledger = ledger_redis.RedisLedger(link, max_rows=max_rows, keep_s=keep_s)
    return Shared(ledger, notices.Notices(link))


def make_limiter(
    url: str | None,
    allowance: Allowance,
    *,
    lease_s: float,
    clock: Callable[[], float],
    options: RedisOptions | None = None,
) -> Limiter | None:
    """Where the limits per API key are counted.

    Args:
        url: of a Redis, in which all replicas count together, or None for this process alone.
        allowance: of each key.
        lease_s: longest life of a stream, in seconds.
        clock: seconds, monotonic.
        options: how Redis is connected to.

    Returns:
        None where nothing is limited.
    """
    if allowance.boundless:
        return None
    if url is None:
        return MemoryLimiter(allowance, clock)
    from router.store import limits_redis, redis  # noqa: PLC0415 - as above

    link = redis.RedisLink(url, options=options)
    return limits_redis.RedisLimiter(link, allowance, lease_s=lease_s, clock=clock)
