"""Letting requests in: the limits per API key, as the HTTP face sees them."""

from __future__ import annotations

import math

from router.core.limits import Limit, Refusal
from router.engine.report import StreamReport
from router.errors import RequestError
from router.store.limits import Limiter

_WORDS = {
    Limit.CONCURRENT_STREAMS: "as many streams at once as it may",
    Limit.REQUESTS_PER_MINUTE: "made as many requests in this minute as it may",
    Limit.TOKENS_PER_MINUTE: "used as many tokens in this minute as it may",
}


class Permit:
    """A request that was let in, until it is over.

    Args:
        limiter: counts it, or None where nothing is limited.
        owner: digest of its API key.
        permit_id: its name among the owner's.
    """

    def __init__(self, limiter: Limiter | None, owner: str, permit_id: str) -> None:
        self._limiter = limiter
        self._owner = owner
        self._id = permit_id
        self._tokens = 0

    async def obtain(self) -> None:
        """Ask to be let in.

        Raises:
            RequestError: 429, with the time after which a new try makes sense.
        """
        if self._limiter is not None:
            refusal = await self._limiter.admit(self._owner, self._id)
            if refusal is not None:
                raise _too_many(refusal)

    def spent(self, report: StreamReport) -> None:
        """The stream is over.

        Args:
            report: how it went, and what it cost.
        """
        tokens = report.usage.get("total_tokens")
        self._tokens = tokens if isinstance(tokens, int) else 0

    async def give_back(self) -> None:
        """The request is over."""
        if self._limiter is not None:
            await self._limiter.release(self._owner, self._id, self._tokens)


def _too_many(refusal: Refusal) -> RequestError:
    verb = "has" if refusal.limit is not Limit.CONCURRENT_STREAMS else "has open"
    return RequestError(
        f"This API key {verb} {_WORDS[refusal.limit]} ({refusal.limit.value}). "
        f"Ask again in {math.ceil(refusal.retry_after_s)} s.",
        status=429,
        type="rate_limit_error",
        code="rate_limit_exceeded",
        headers=(("retry-after", str(max(1, math.ceil(refusal.retry_after_s)))),),
    )
