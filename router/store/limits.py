"""Where the limits per API key are counted: in Redis for all replicas together, else in memory.

A Redis that does not answer within `ADMIT_TIMEOUT_S` never keeps a client waiting or out: this
process's own count stands in for it, which is each replica's share of the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from router.core.limits import Account, Allowance, Limit, Refusal
from router.errors import RecordError
from router.store.scripts import Script

if TYPE_CHECKING:  # redis takes 0.1 s to import, which a count in memory need not pay
    from router.store.redis import RedisLink

ADMIT_TIMEOUT_S = 0.1
"""Longest wait for Redis before a request is let in by this process's own count."""

MAX_ACCOUNTS = 100_000
"""Keys that are counted at once in this process; idle ones are forgotten first."""

PREFIX = "router:limit:"
"""Before each key's count; the key itself is there only as its digest."""

ADMIT = """
local spent, live = KEYS[1], KEYS[2]
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local stream, streams, rpm, tpm, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]),
    tonumber(ARGV[4]), tonumber(ARGV[5])
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
so that a router that dies gives it back."""

RELEASE = """
redis.call('ZREM', KEYS[2], ARGV[1])
local tokens = redis.call('HGET', KEYS[1], 'tokens')
if tokens then redis.call('HSET', KEYS[1], 'tokens', tostring(tokens - tonumber(ARGV[2]))) end
return 0
"""


class Limiter(Protocol):
    """Lets requests in, and counts them."""

    async def admit(self, owner: str, stream_id: str) -> Refusal | None:
        """A request comes.

        Args:
            owner: digest of its API key.
            stream_id: its stream's id.

        Returns:
            None if it is let in, else why not.
        """
        ...

    async def release(self, owner: str, stream_id: str, tokens: int) -> None:
        """A stream that was let in is over.

        Args:
            owner: digest of its API key.
            stream_id: its id.
            tokens: what it cost.
        """
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...


class MemoryLimiter:
    """Counts in this process.

    Args:
        allowance: of each key.
        clock: seconds, monotonic.
    """

    def __init__(self, allowance: Allowance, clock: Callable[[], float]) -> None:
        self._allowance = allowance
        self._clock = clock
        self._accounts: dict[str, Account] = {}

    async def admit(self, owner: str, stream_id: str) -> Refusal | None:  # noqa: ARG002 - as asked
        """A request comes."""
        now_s = self._clock()
        account = self._accounts.get(owner)
        if account is None:
            self._forget(now_s)
            account = self._accounts[owner] = Account(self._allowance, now_s)
        return account.admit(now_s)

    async def release(self, owner: str, stream_id: str, tokens: int) -> None:  # noqa: ARG002
        """A stream is over."""
        account = self._accounts.get(owner)
        if account is not None:
            account.release(tokens)

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def _forget(self, now_s: float) -> None:
        if len(self._accounts) >= MAX_ACCOUNTS:
            for owner in [o for o, account in self._accounts.items() if account.idle(now_s)]:
                del self._accounts[owner]


class RedisLimiter:
    """Counts for all replicas together.

    Args:
        link: connections to Redis.
        allowance: of each key.
        lease_s: longest life of a stream: a place that is not given back by then is free.
        clock: seconds, monotonic.
    """

    def __init__(
        self, link: RedisLink, allowance: Allowance, *, lease_s: float, clock: Callable[[], float]
    ) -> None:
        self._link = link
        self._allowance = allowance
        self._lease_ms = round(lease_s * 1000)
        self._own = MemoryLimiter(allowance, clock)
        self._admit = Script(ADMIT)
        self._release = Script(RELEASE)
        self._by_itself: set[str] = set()

    async def admit(self, owner: str, stream_id: str) -> Refusal | None:
        """A request comes."""
        allowed = self._allowance
        try:
            async with asyncio.timeout(ADMIT_TIMEOUT_S):
                word, wait_ms = await self._link.run(
                    self._admit,
                    _keys(owner),
                    stream_id,
                    allowed.concurrent_streams or 0,
                    allowed.requests_per_minute or 0,
                    allowed.tokens_per_minute or 0,
                    self._lease_ms,
                )
        except (RecordError, TimeoutError):
            refusal = await self._own.admit(owner, stream_id)
            if refusal is None:
                self._by_itself.add(stream_id)
            return refusal
        return Refusal(Limit(word.decode()), wait_ms / 1000) if word else None

    async def release(self, owner: str, stream_id: str, tokens: int) -> None:
        """A stream is over."""
        if stream_id in self._by_itself:
            self._by_itself.discard(stream_id)
            await self._own.release(owner, stream_id, tokens)
        with contextlib.suppress(RecordError, TimeoutError):
            async with asyncio.timeout(ADMIT_TIMEOUT_S):
                await self._link.run(self._release, _keys(owner), stream_id, tokens)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._link.aclose()


def _keys(owner: str) -> tuple[str, str]:
    """Both on one slot of a Cluster."""
    return f"{PREFIX}{{{owner or 'everyone'}}}:spent", f"{PREFIX}{{{owner or 'everyone'}}}:live"
