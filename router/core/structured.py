"""The structured answer of one stream: a gate, the schema behind it, and the join after a failover.

Delivered equals committed, so there is never a fragment and nothing is ever superseded: what a dead
attempt had begun and not completed is forgotten, and the next one goes on after the last value.
"""

from __future__ import annotations

from router.core.json_gate import JsonGate, Passed
from router.core.json_join import JsonJoin
from router.core.json_schema import Schema, SchemaViolation
from router.core.json_values import JsonFault, JsonReader

__all__ = ["JsonFault", "Passed", "SchemaViolation", "Structured"]


class Structured:
    """One document across all attempts.

    Args:
        schema: what it must be, or None for any JSON.
        openers: what it may begin with (see `JsonGate`), where no schema says so.
    """

    def __init__(self, schema: Schema | None = None, *, openers: str = "{[") -> None:
        self._schema = schema
        self._openers = schema.openers if schema is not None else openers
        self._committed = ""
        self._gate = self._make_gate()
        self._join: JsonJoin | None = None

    @property
    def complete(self) -> bool:
        """The document is whole and delivered."""
        return self._gate.complete

    @property
    def delivered(self) -> str:
        """All that was let out."""
        return self._gate.committed

    @property
    def stripped(self) -> tuple[str, ...]:
        """What was taken off around the document."""
        return tuple(self._gate.stripped)

    @property
    def closers(self) -> str:
        """What closes the delivered text so that it parses, "" where nothing was delivered."""
        committed = self._gate.committed
        return JsonReader.after(committed).closers if committed else ""

    def resume(self, committed: str) -> None:
        """Another router began the document.

        Args:
            committed: what it delivered.
        """
        self._committed = committed
        self._gate = self._make_gate()

    def restart(self) -> None:
        """The client forgets what it has: the document begins anew."""
        self._committed = ""
        self._gate = self._make_gate()

    def take_back(self, chars: int) -> None:
        """The end of what was let out is not delivered after all; the attempt is over.

        Args:
            chars: what stays of the document.
        """
        self._committed = self._gate.committed[:chars]
        self._gate = self._make_gate()
        self._join = None

    def expect(self, *, raw: bool) -> None:
        """Another attempt begins.

        Args:
            raw: it was given the committed text to go on from, so it may send only the rest.
        """
        self._committed = self._gate.committed
        self._gate = self._make_gate()
        self._join = JsonJoin(self._committed, raw=raw) if self._committed else None

    def feed(self, text: str) -> Passed:
        """Take an attempt's next text.

        Args:
            text: any piece.

        Returns:
            What may be delivered now, and why nothing more can come of this attempt, if so.
        """
        if self._join is None:
            return self._gate.feed(text)
        joined = self._join.feed(text)
        passed = self._gate.feed(joined.text)
        return Passed(passed.text, passed.fault or joined.fault, passed.ends)

    def finish(self) -> Passed:
        """The attempt says that its answer is whole.

        Returns:
            What may still be delivered, and a fault if the document is not whole.
        """
        if self._join is not None:
            joined = self._join.finish()
            if joined.fault is not None and not self._gate.complete:
                return Passed("", joined.fault)
        return self._gate.finish()

    def _make_gate(self) -> JsonGate:
        schema = self._schema
        return JsonGate(
            check=schema.check if schema is not None else None,
            committed=self._committed,
            openers=self._openers,
        )
