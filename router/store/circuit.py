"""When reads of a server that does not answer are not even tried: counters, no clock."""

from __future__ import annotations

from router.errors import RecordUnavailable
from router.store.backlog import Tally

MAX_FAILURES = 3
"""Reads that fail in a row before the next ones are refused at once."""


class Circuits:
    """A circuit for each server: of a Cluster one may be down, and the others' records are read.

    Args:
        tally: the store's counts.
    """

    __slots__ = ("_circuits", "_tally")

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._circuits: dict[str, Circuit] = {}  # of those whose last read failed

    @property
    def failing(self) -> bool:
        """Some server's last read was not answered."""
        return bool(self._circuits)

    @property
    def open_count(self) -> int:
        """Servers whose reads are refused."""
        return sum(circuit.open for circuit in self._circuits.values())

    def is_open(self, server: str) -> bool:
        """Whether reads of a server are refused."""
        return server in self._circuits and self._circuits[server].open

    def check(self, server: str) -> None:
        """A read of a server is wanted; see `Circuit.check`."""
        if server in self._circuits:
            self._circuits[server].check()

    def failed(self, server: str, reason: str) -> None:
        """A server did not answer a read; see `Circuit.failed`."""
        self._circuits.setdefault(server, Circuit(self._tally)).failed(reason)

    def answered(self, server: str) -> None:
        """A server answers, if only that it will not."""
        self._circuits.pop(server, None)


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
