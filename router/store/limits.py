"""Where the limits per API key are counted: for this process alone, or (`limits_redis.py`) in Redis
for all replicas together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from router.core.limits import Account, Allowance, Refusal

MAX_ACCOUNTS = 100_000
"""Keys that are counted at once in this process; idle ones are forgotten first."""


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
