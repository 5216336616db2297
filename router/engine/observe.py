"""What the engine tells the world, and to whom. It knows its observers only by this protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from router.core.faults import Fault
from router.engine.report import AttemptReport, FailoverReport, StreamReport


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """An upstream call begins.

    Args:
        stream_id: whose.
        number: position in the stream, from 1.
        target: name of the target.
        style: continuation style, or "".
    """

    stream_id: str
    number: int
    target: str
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """An upstream call is over.

    Args:
        stream_id: whose.
        report: how it went.
    """

    stream_id: str
    report: AttemptReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A continuation was spliced on.

    Args:
        stream_id: whose.
        report: the failover.
        fragment_chars: what the client had seen beyond the committed text.
        superseded_chars: how much of that was replaced, the separator included.
        dropped: what was removed at the seam: "echo", "preamble", "fence".
    """

    stream_id: str
    report: FailoverReport
    fragment_chars: int
    superseded_chars: int
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The record was moved to a boundary.

    Args:
        stream_id: whose.
        committed_chars: its new length.
        delta: the text that was appended.
    """

    stream_id: str
    committed_chars: int
    delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFailed:
    """A route's own check gave no verdict.

    Args:
        stream_id: whose.
        route: the public model name.
        reason: what it did instead, a clause.
        rejected: that counts as a rejection.
        error: what it raised, or None.
    """

    stream_id: str
    route: str
    reason: str
    rejected: bool
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEjected:
    """A target is left alone for a while.

    Args:
        target: name of the target.
        fault: the last straw.
        cool_down_s: for how long, in seconds.
        alarm: a person must act (the key, the quota, the model's name).
    """

    target: str
    fault: Fault
    cool_down_s: float
    alarm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRestored:
    """A probe succeeded: the target is used again.

    Args:
        target: name of the target.
    """

    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnded:
    """A request is over.

    Args:
        report: how it went.
    """

    report: StreamReport


Detail: TypeAlias = (
    AttemptStarted
    | AttemptEnded
    | Joined
    | Committed
    | CheckFailed
    | TargetEjected
    | TargetRestored
    | StreamEnded
)
Observer: TypeAlias = Callable[[Detail], None]


class Observers:
    """Tells every observer; one that raises is reported and never harms a stream.

    Args:
        observers: in the order in which they are told.
        on_error: is given what an observer raised.
    """

    def __init__(
        self,
        observers: Sequence[Observer] = (),
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._observers = tuple(observers)
        self._on_error = on_error

    def __call__(self, detail: Detail) -> None:
        """Tell.

        Args:
            detail: what happened.
        """
        for observer in self._observers:
            try:
                observer(detail)
            except Exception as error:  # noqa: BLE001 - not the stream's fault
                if self._on_error is not None:
                    self._on_error(error)
