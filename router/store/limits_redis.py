"""The limits per API key, counted in Redis for all replicas together.

A Redis that does not answer within `ADMIT_TIMEOUT_S` never keeps a client waiting or out: this
process's own count stands in for it, which is each replica's share of the truth. A place that could
not be given back meanwhile is owed, and given back as soon as Redis answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from router.core.limits import Allowance, Limit, Refusal
from router.errors import RecordCorrupt, RecordError, RecordUnavailable
from router.store.limits import MemoryLimiter
from router.store.redis import RedisLink
from router.store.scripts import Script
from router.store.writebehind import QueueLimits, pause

ADMIT_TIMEOUT_S = 0.1
"""Longest wait for Redis before a request is let in by this process's own count."""

OWED = QueueLimits(max_streams=20_000, close_timeout_s=1.0)
"""Bound on the places that are owed (its `max_streams`), some 7 MB of them; beyond it the oldest
comes free with its lease. And how soon each is tried again."""

PREFIX = "router:limit:"
"""Before each key's count; the key itself is there only as its digest."""

ADMIT = """
local spent, live, over = KEYS[1], KEYS[2], KEYS[3]
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local stream, streams, rpm, tpm, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]),
    tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('EXISTS', over) == 1 then return {'', 0} end
local had = redis.call('HMGET', spent, 'requests', 'tokens', 'at')
local passed = math.max(0, now - tonumber(had[3] or now))
local requests = math.min(rpm, tonumber(had[1] or rpm) + passed * rpm / 60000)
local tokens = math.min(tpm, tonumber(had[2] or tpm) + passed * tpm / 60000)
redis.call('ZREMRANGEBYSCORE', live, '-inf', now)
if streams > 0 and redis.call('ZCARD', live) >= streams then return {'concurrent_streams', 1000} end
if tpm > 0 and tokens < 1 then
    return {'tokens_per_minute', math.ceil((1 - tokens) * 60000 / tpm)}
end
if rpm > 0 and requests < 1 then
    return {'requests_per_minute', math.ceil((1 - requests) * 60000 / rpm)}
end
redis.call('HSET', spent, 'requests', tostring(requests - (rpm > 0 and 1 or 0)),
    'tokens', tostring(tokens), 'at', tostring(now))
redis.call('PEXPIRE', spent, 120000)
redis.call('ZADD', live, now + lease, stream)
redis.call('PEXPIRE', live, lease)
return {'', 0}
"""
"""Refill, judge and count in one step, by the time of Redis. A stream holds its place by a lease,
so that a router that dies gives it back. An admission that arrives when its stream is over takes
none."""

RELEASE = """
local spent, live, over = KEYS[1], KEYS[2], KEYS[3]
local stream, cost, again, late_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local had = redis.call('ZREM', live, stream)
if late_ms ~= '0' then redis.call('SET', over, '1', 'PX', late_ms) end
local tokens = redis.call('HGET', spent, 'tokens')
if tokens and (had == 1 or again == '') then
  redis.call('HSET', spent, 'tokens', tostring(tokens - cost))
end
return 0
"""
"""A repetition costs only what an earlier one that was lost would have: who has no place any more
has paid. Where the admission is still to be expected, a mark keeps it from taking a place."""


@dataclass(frozen=True, slots=True)
class _Debt:
    """A place that is to be given back.

    Args:
        owner: digest of the API key.
        tokens: what the stream cost.
        unsure: Redis did not answer its admission, which may still arrive.
        again: it was tried before, and may have been done.
    """

    owner: str
    tokens: int
    unsure: bool
    again: bool = False


class RedisLimiter:
    """Counts for all replicas together.

    Args:
        link: connections to Redis; closed with the limiter.
        allowance: of each key.
        lease_s: longest life of a stream: a place that is not given back by then is free.
        clock: seconds, monotonic.
        limits: bounds and times of what is owed.
        rng: where jitter comes from.
    """

    def __init__(
        self,
        link: RedisLink,
        allowance: Allowance,
        *,
        lease_s: float,
        clock: Callable[[], float],
        limits: QueueLimits = OWED,
        rng: random.Random | None = None,
    ) -> None:
        self._link = link
        self._allowance = allowance
        self._lease_ms = round(lease_s * 1000)
        self._own = MemoryLimiter(allowance, clock)
        self._limits = limits
        self._rng = rng or random.Random()  # noqa: S311 - jitter, no secret
        self._log = logging.getLogger("router.store")
        self._admit = Script(ADMIT)
        self._release = Script(RELEASE)
        self._by_itself: set[str] = set()
        self._owed: dict[str, _Debt] = {}
        self._failures = 0
        self._overflowing = False
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def admit(self, owner: str, stream_id: str) -> Refusal | None:
        """A request comes; see `Limiter.admit`."""
        allowed = self._allowance
        try:
            async with asyncio.timeout(ADMIT_TIMEOUT_S):
                word, wait_ms = await self._link.run(
                    self._admit,
                    _keys(owner, stream_id),
                    stream_id,
                    allowed.concurrent_streams or 0,
                    allowed.requests_per_minute or 0,
                    allowed.tokens_per_minute or 0,
                    self._lease_ms,
                )
        except (RecordError, TimeoutError):
            return await self._admit_by_itself(owner, stream_id)
        return Refusal(Limit(word.decode()), wait_ms / 1000) if word else None

    async def _admit_by_itself(self, owner: str, stream_id: str) -> Refusal | None:
        refusal = await self._own.admit(owner, stream_id)
        if refusal is None:
            self._by_itself.add(stream_id)
        elif len(self._owed) < self._limits.max_streams:
            # Redis may have let it in, and not have been heard.
            self._owe(stream_id, _Debt(owner, 0, unsure=True, again=True))
        return refusal

    async def release(self, owner: str, stream_id: str, tokens: int) -> None:
        """A stream is over; see `Limiter.release`. Tried at once, and if that fails until it is
        done."""
        debt = _Debt(owner, tokens, unsure=stream_id in self._by_itself)
        if debt.unsure:
            self._by_itself.discard(stream_id)
            await self._own.release(owner, stream_id, tokens)
        if self._owed:  # Redis is away: those who wait there know when it is back
            self._owe(stream_id, debt)
            return
        paid = False
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ADMIT_TIMEOUT_S):
                    paid = await self._pay(stream_id, debt)
        finally:
            if not paid:
                self._owe(stream_id, replace(debt, again=True))

    async def settled(self) -> None:
        """Wait until nothing is owed: with Redis away, until it is back."""
        while self._task is not None:
            await asyncio.wait((self._task,))

    async def aclose(self) -> None:
        """Pay what is owed, for `close_timeout_s` at most and with one try; then stop, and close
        the connections."""
        self._stop.set()
        task = self._task
        if task is not None:
            await asyncio.wait((task,), timeout=self._limits.close_timeout_s)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._owed:
            self._log.warning("limits: %d places not given back at the end", len(self._owed))
        await self._link.aclose()

    # What is owed.

    def _owe(self, stream_id: str, debt: _Debt) -> None:
        self._owed[stream_id] = debt
        if len(self._owed) > self._limits.max_streams:
            del self._owed[next(iter(self._owed))]
            if not self._overflowing:
                self._overflowing = True
                self._log.warning("limits: too many places wait to be given back, leases end them")
        if self._task is None and not self._stop.is_set():
            self._task = asyncio.create_task(self._run(), name="limits-releaser")

    async def _run(self) -> None:
        try:
            while self._owed:
                stream_id, debt = next(iter(self._owed.items()))
                if await self._pay(stream_id, debt):
                    self._owed.pop(stream_id, None)
                    self._answered()
                    continue
                if self._stop.is_set():
                    return
                # To the end of the line: of a Cluster only one node may be down.
                if self._owed.pop(stream_id, None) is not None:
                    self._owed[stream_id] = replace(debt, again=True)
                await pause(self._limits, self._failures, self._rng, self._stop)
        finally:
            self._task = None

    async def _pay(self, stream_id: str, debt: _Debt) -> bool:
        """Give one place back.

        Returns:
            Nothing more is to be done about it.
        """
        try:
            await self._link.run(
                self._release,
                _keys(debt.owner, stream_id),
                stream_id,
                debt.tokens,
                "1" if debt.again else "",
                self._lease_ms if debt.unsure else 0,
            )
        except RecordCorrupt:
            return True  # somebody else's value under our key: there is no place
        except RecordUnavailable as error:
            self._failed(str(error))
            return False
        except Exception as error:  # noqa: BLE001 - it outlives any surprise: try again
            self._failed(repr(error))
            return False
        return True

    def _answered(self) -> None:
        if self._failures:
            self._log.warning("limits: the store answers again, %d places wait", len(self._owed))
        self._failures = 0
        self._overflowing = False

    def _failed(self, reason: str) -> None:
        self._failures += 1
        if self._failures == 1:
            self._log.warning("limits: places are not given back for now: %s", reason)


def _keys(owner: str, stream_id: str) -> Sequence[str]:
    """All on one slot of a Cluster."""
    name = f"{PREFIX}{{{owner or 'everyone'}}}"
    return f"{name}:spent", f"{name}:live", f"{name}:over:{stream_id}"
