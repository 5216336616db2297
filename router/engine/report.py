"""What happened, as frozen facts: the same for the client's metadata, the log and every counter.

`StreamReport.to_wire` is the `router` object of the wire contract (`docs/wire.md`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from router.core.faults import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReport:
    """One upstream call.

    Args:
        number: position in its stream, from 1.
        target: name of the target.
        model: as the provider reported it, else as it was asked for.
        style: continuation style, or "" for an original request.
        started_ms: since the stream began.
        first_output_ms: from the attempt's start to its first text, reasoning or tool call; None
            if there was none.
        last_output_ms: the same for its last.
        duration_ms: from its start to its end.
        output_chars: characters of text it sent, whatever became of them.
        chunks: events with output it sent.
        reasoning_chars: characters of reasoning it sent.
        fault: why it ended badly, or None.
        usage: the provider's own usage object, or the estimate.
        usage_estimated: the provider reported none.
    """

    number: int
    target: str
    model: str
    style: str
    started_ms: float
    first_output_ms: float | None
    last_output_ms: float | None
    duration_ms: float
    output_chars: int
    chunks: int
    reasoning_chars: int
    fault: Fault | None
    usage: dict[str, Any]
    usage_estimated: bool

    def to_wire(self) -> dict[str, Any]:
        """As it stands in the client's metadata."""
        return {
            "target": self.target,
            "model": self.model,
            "fault": self.fault.kind.value if self.fault else None,
            "first_output_ms": _ms(self.first_output_ms),
            "duration_ms": _ms(self.duration_ms),
            "output_chars": self.output_chars,
            **({"reasoning_chars": self.reasoning_chars} if self.reasoning_chars else {}),
            "usage": self.usage,
            "usage_estimated": self.usage_estimated,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverReport:
    """One change of target, or one new try, after output.

    Args:
        from_target: who failed.
        to_target: who went on.
        fault: why.
        style: continuation style, "original" if nothing was committed.
        committed_chars: length of the prefix.
        join: how the seam was explained, "" if it never came to one.
        pause_ms: from the last output of the one to the first new text of the other, as the client
            saw it; None if none came.
    """

    from_target: str
    to_target: str
    fault: Fault
    style: str
    committed_chars: int
    join: str
    pause_ms: float | None

    def to_wire(self) -> dict[str, Any]:
        """As it stands in the client's metadata."""
        return {
            "from": self.from_target,
            "to": self.to_target,
            "fault": self.fault.kind.value,
            "style": self.style,
            "committed_chars": self.committed_chars,
            "pause_ms": _ms(self.pause_ms),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """One whole request.

    Args:
        stream_id: its id.
        route: the public model name.
        outcome: "completed", or the code of the error it ended in, or "client_gone", or
            "router_stopped".
        started_unix_s: wall-clock time.
        duration_ms: from the request to the end.
        first_output_ms: from the request to the first output; None if there was none.
        attempts: every upstream call, in order.
        failovers: every change after output, in order.
        superseded: ranges of the delivered text that are not part of the answer.
        delivered_chars: length of the delivered text.
        committed_chars: length of the committed text.
        boundaries: number of commits.
        usage: sum over the attempts.
        finish: the finish reason, or "".
        resumed_from: of a resumed stream, the delivered offset at which it started, else None.
        resumable: it was broken off, and its record is kept so that it can be resumed.
        retained: text is kept at all; where none is, clients are told.
    """

    stream_id: str
    route: str
    outcome: str
    started_unix_s: float
    duration_ms: float
    first_output_ms: float | None
    attempts: tuple[AttemptReport, ...]
    failovers: tuple[FailoverReport, ...]
    superseded: tuple[tuple[int, int], ...]
    delivered_chars: int
    committed_chars: int
    boundaries: int
    usage: dict[str, Any]
    finish: str
    resumed_from: int | None = None
    resumable: bool = False
    retained: bool = True

    @property
    def eventful(self) -> bool:
        """There is something to tell: a failover or a retry."""
        return len(self.attempts) > 1 or self.resumed_from is not None

    def to_wire(self) -> dict[str, Any]:
        """The `router` object."""
        resumed = {} if self.resumed_from is None else {"resumed_from": self.resumed_from}
        return {
            **resumed,
            "stream_id": self.stream_id,
            "outcome": self.outcome,
            **({} if self.retained else {"resumable": False}),
            "attempts": [one.to_wire() for one in self.attempts],
            "failovers": [one.to_wire() for one in self.failovers],
            "superseded": [list(span) for span in self.superseded],
        }


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
