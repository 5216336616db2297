"""The store that keeps nothing (`record.retain: none`): a stream survives its provider, no more.

In-process failover goes by the stream's own copy and never reads a record, so nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from router.errors import RecordNotKept
from router.store.backlog import Tally
from router.store.base import RecordHead


class NothingWriter:
    """A writer of nothing; see `RecordWriter`."""

    __slots__ = ("on_fenced", "source")

    epoch = 1
    fenced = False

    def __init__(self) -> None:
        self.on_fenced: Callable[[], None] | None = None
        self.source: Callable[[], str] | None = None

    def commit(self, delta: str, *, at_chars: int, meta: Mapping[str, Any] | None = None) -> None:
        """Nothing is written."""

    async def settled(self) -> None:
        """Nothing ever waits here."""

    def close(self, outcome: str, *, keep_s: float) -> None:
        """Nothing is there to be kept."""


class NothingStore:
    """No records."""

    advice: Sequence[str] = ()

    @property
    def lasting(self) -> bool:
        """They end with it."""
        return False

    @property
    def stats(self) -> Mapping[str, int]:
        """Nothing ever happens here."""
        return {**Tally().as_dict(), "queue_streams": 0, "queue_bytes": 0}

    async def start(self) -> None:
        """Nothing to begin."""

    async def aclose(self) -> None:
        """Nothing to let go of."""

    async def flushed(self) -> None:
        """Nothing ever waits here."""

    def open(self, head: RecordHead) -> NothingWriter:
        """A writer of nothing."""
        del head
        return NothingWriter()

    async def load(self, stream_id: str) -> NoReturn:
        """There is nothing.

        Raises:
            RecordNotKept: always.
        """
        raise RecordNotKept(f"no text of stream {stream_id[:128]!r} was kept")

    async def takeover(self, stream_id: str, *, expected_epoch: int) -> NoReturn:
        """There is nothing.

        Raises:
            RecordNotKept: always.
        """
        del expected_epoch
        await self.load(stream_id)
