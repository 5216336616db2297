"""Limits per API key: how many streams at once, requests a minute, tokens a minute.

Requests and tokens are leaky buckets that refill evenly, so there is no minute at whose turn
everybody starts again. Tokens are known only afterwards: a stream is let in while the bucket is not
in debt, and what it cost is taken out at its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MINUTE_S = 60.0


class Limit(StrEnum):
    """What was exceeded."""

    CONCURRENT_STREAMS = "concurrent_streams"
    REQUESTS_PER_MINUTE = "requests_per_minute"
    TOKENS_PER_MINUTE = "tokens_per_minute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one key may use; None sets no limit.

    Args:
        concurrent_streams: streams at once.
        requests_per_minute: requests that are let in.
        tokens_per_minute: tokens of prompts and answers.
    """

    concurrent_streams: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    @property
    def boundless(self) -> bool:
        """Nothing is limited, so nothing need be counted."""
        return self == Allowance()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that is not let in.

    Args:
        limit: which was exceeded.
        retry_after_s: when a new try makes sense, in seconds.
    """

    limit: Limit
    retry_after_s: float


STREAM_RETRY_S = 1.0
"""When a place among the concurrent streams comes free is not known: soon."""


@dataclass(slots=True)
class Bucket:
    """What is left of an allowance per minute.

    Args:
        level: how much; negative is debt.
        at_s: monotonic time at which that was so.
    """

    level: float
    at_s: float

    def refill(self, per_minute: int, now_s: float) -> None:
        """Time has passed.

        Args:
            per_minute: the allowance, and the most that the bucket holds.
            now_s: monotonic time.
        """
        gained = max(0.0, now_s - self.at_s) * per_minute / MINUTE_S
        self.level = min(float(per_minute), self.level + gained)
        self.at_s = now_s

    def wait_s(self, wanted: float, per_minute: int) -> float:
        """Time until so much is there, 0 if it is.

        Args:
            wanted: how much.
            per_minute: the allowance.
        """
        return max(0.0, (wanted - self.level) * MINUTE_S / per_minute)


class Account:
    """What one key has used.

    Args:
        allowance: what it may use.
        now_s: monotonic time.
    """

    __slots__ = ("_allowance", "requests", "streams", "tokens")

    def __init__(self, allowance: Allowance, now_s: float) -> None:
        self._allowance = allowance
        self.streams = 0
        self.requests = Bucket(float(allowance.requests_per_minute or 0), now_s)
        self.tokens = Bucket(float(allowance.tokens_per_minute or 0), now_s)

    def admit(self, now_s: float) -> Refusal | None:
        """A request comes. If it is let in, it is counted.

        Args:
            now_s: monotonic time.

        Returns:
            None, or why it is not let in: then nothing was counted.
        """
        allowed = self._allowance
        if allowed.concurrent_streams is not None and self.streams >= allowed.concurrent_streams:
            return Refusal(Limit.CONCURRENT_STREAMS, STREAM_RETRY_S)
        if allowed.tokens_per_minute is not None:
            self.tokens.refill(allowed.tokens_per_minute, now_s)
            wait_s = self.tokens.wait_s(1, allowed.tokens_per_minute)
            if wait_s > 0:
                return Refusal(Limit.TOKENS_PER_MINUTE, wait_s)
        if allowed.requests_per_minute is not None:
            self.requests.refill(allowed.requests_per_minute, now_s)
            wait_s = self.requests.wait_s(1, allowed.requests_per_minute)
            if wait_s > 0:
                return Refusal(Limit.REQUESTS_PER_MINUTE, wait_s)
            self.requests.level -= 1
        self.streams += 1
        return None

    def release(self, tokens: int) -> None:
        """A stream is over.

        Args:
            tokens: what it cost.
        """
        self.streams = max(0, self.streams - 1)
        if self._allowance.tokens_per_minute is not None:
            self.tokens.level -= tokens

    def idle(self, now_s: float) -> bool:
        """Nothing of it need be remembered.

        Args:
            now_s: monotonic time.
        """
        allowed = self._allowance
        self.requests.refill(allowed.requests_per_minute or 1, now_s)
        self.tokens.refill(allowed.tokens_per_minute or 1, now_s)
        full = self.requests.level >= (allowed.requests_per_minute or 0)
        return not self.streams and full and self.tokens.level >= (allowed.tokens_per_minute or 0)
