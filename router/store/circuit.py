"""When reads of a store that does not answer are not even tried: a counter, no clock."""

from __future__ import annotations

from router.errors import RecordUnavailable
from router.store.backlog import Tally

MAX_FAILURES = 3
"""Reads that fail in a row before the next ones are refused at once."""


class Circuit:
    """Counts failures; open after a few in a row, until anything is answered.

    Args:
        tally: the store's counts.
        max_failures: how many are a few.
    """

    __slots__ = ("_failures", "_max_failures", "_reason", "_tally")

    def __init__(self, tally: Tally, max_failures: int = MAX_FAILURES) -> None:
        self._tally = tally
        self._max_failures = max_failures
        self._failures = 0
        self._reason = ""

    @property
    def open(self) -> bool:
        """Reads are refused."""
        return self._failures >= self._max_failures

    def check(self) -> None:
        """A read is wanted.

        Raises:
            RecordUnavailable: it would only fail like those before it.
        """
        if self.open:
            self._tally.reads_refused += 1
            raise RecordUnavailable(f"{self._reason} (this was not tried again just now)")

    def failed(self, reason: str) -> None:
        """A read was not answered.

        Args:
            reason: why, one sentence.
        """
        self._tally.reads_failed += 1
        self._failures += 1
        self._reason = reason
        if self._failures == self._max_failures:
            self._tally.circuit_trips += 1

    def answered(self) -> None:
        """The store answers, if only that it will not."""
        self._failures = 0
