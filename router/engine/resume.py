"""A stream that another writer began, as it is taken over, and what a writer leaves for the next.

Beside the text, a record holds a few facts. Here is the one place that writes and reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from router.core.resumption import Resumption
from router.errors import RecordCorrupt
from router.store.base import Record, RecordWriter

MAX_GAP_CHARS = 200
"""Bound on white space that is kept: deeper is no line of code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a router that takes a stream over must know besides its text.

    Args:
        epoch: of the writer that wrote this.
        part: name of that writer's response, whose delivered offsets `superseded` speaks of.
        start: delivered offset from which it went on: what its client had up to there is true.
        superseded: delivered ranges that are no part of the text.
        tool_call: a part of a tool call was delivered, or the provider ran a tool.
        sealed: something was delivered that no other provider can take up.
        target: the first producing target, "" if nothing was delivered.
        model: the model that the client was told, the same.
        finish: how the answer ended, "" if it did not: a completed one is kept for `retain_s`.
        gap: white space behind the committed text. No boundary ends in any, and without it a
            provider that begins its continuation with words would take a line of code its depth.
    """

    epoch: int = 1
    part: str = ""
    start: int = 0
    superseded: Sequence[tuple[int, int]] = ()
    tool_call: bool = False
    sealed: bool = False
    target: str = ""
    model: str = ""
    finish: str = ""
    gap: str = ""

    def known(self, received: int, *, part: str | None, epoch: int) -> int:
        """How much of what a client has these facts speak of.

        They are one writer's. Did the client's last response come from another, they say nothing of
        what came with that: the one that wrote them never reached the client, or the record has
        lost what a later one wrote, or never got it. What their writer went on from is common to
        all.

        Args:
            received: characters that the client has.
            part: name of the last response that reached it, or None if it does not say.
            epoch: of the record.

        Returns:
            At most `received`.
        """
        ours = part == self.part if part is not None else epoch == self.epoch
        return received if ours else min(received, self.start)

    def to_meta(self) -> dict[str, object]:
        """As a record's meta."""
        rare = {"finish": self.finish, "gap": self.gap}
        return {
            "epoch": self.epoch,
            "part": self.part,
            "start": self.start,
            "superseded": [list(span) for span in self.superseded],
            "tool_call": self.tool_call,
            "sealed": self.sealed,
            "target": self.target,
            "model": self.model,
            **{name: value for name, value in rare.items() if value},
        }


def facts_of(record: Record) -> Facts:
    """The facts of a record.

    Args:
        record: as it was read.

    Raises:
        RecordCorrupt: they are none of ours, or cannot be true.
    """
    meta = record.meta
    try:
        facts = Facts(
            epoch=_count(meta, "epoch", 1),
            part=str(meta.get("part", "")),
            start=_count(meta, "start", 0),
            superseded=tuple((int(start), int(end)) for start, end in meta.get("superseded", ())),
            tool_call=bool(meta.get("tool_call")),
            sealed=bool(meta.get("sealed")),
            target=str(meta.get("target", "")),
            model=str(meta.get("model", "")),
            finish=str(meta.get("finish", "")),
            gap=str(meta.get("gap", "")) if record.text else "",
        )
    except (TypeError, ValueError) as error:
        raise RecordCorrupt(f"record {record.head.stream_id}: its facts cannot be read") from error
    edges = [0, *(edge for span in facts.superseded for edge in span)]
    if edges != sorted(edges):
        raise RecordCorrupt(f"record {record.head.stream_id}: its superseded ranges overlap")
    if facts.gap.strip():
        raise RecordCorrupt(f"record {record.head.stream_id}: there is text in its white space")
    return facts


def gap_of(pending: str) -> str:
    """The white space that text behind a boundary begins with.

    Args:
        pending: that text.

    Returns:
        "" also for more than is worth keeping.
    """
    gap = pending[: len(pending) - len(pending.lstrip())]
    return gap if len(gap) <= MAX_GAP_CHARS else ""


def _count(meta: Mapping[str, Any], name: str, default: int) -> int:
    value = meta.get(name, default)
    if type(value) is not int or value < 0:
        raise ValueError(name)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """What was taken over.

    Args:
        record: as it was read.
        facts: what it says besides the text.
        writer: ours now, under a new epoch.
        plan: where the stream goes on.
    """

    record: Record
    facts: Facts
    writer: RecordWriter
    plan: Resumption
