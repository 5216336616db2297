"""A stream that another writer began, as it is taken over."""

from __future__ import annotations

from dataclasses import dataclass

from router.core.resumption import Resumption
from router.store.base import Record, RecordWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """What was taken over.

    Args:
        record: as it was read.
        writer: ours now, under a new epoch.
        plan: where the stream goes on.
    """

    record: Record
    writer: RecordWriter
    plan: Resumption

    @property
    def target(self) -> str:
        """The first producing target, as the client knows it, "" if nothing was committed."""
        return str(self.record.meta.get("target", ""))

    @property
    def model(self) -> str:
        """The model that the client was told, "" if nothing was committed."""
        return str(self.record.meta.get("model", ""))

    @property
    def finish(self) -> str:
        """How the answer ended, "" if it did not: a completed answer is kept for `retain_s`."""
        return str(self.record.meta.get("finish", ""))
