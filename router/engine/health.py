"""Who is well enough to be asked: ejection, cool-down, and the single probe that ends it.

One `Health` per process; a target is known by its name. The rules:

- `eject_after` faults in a row, or a share of `eject_rate` among the last `RATE_WINDOW` attempts,
  eject a target for `cool_down_s`, doubled at each further ejection up to `max_cool_down_s`. A
  fault that only a person can mend ejects at once, and is an alarm.
- When the cool-down is over, one request is let through as a probe, and others go elsewhere until
  it is decided: by its first output, which restores the target, or by a fault, which ejects it
  again, for longer. Only a whole answer makes the next cool-down short again.
- What another replica has found out holds here for as long as it holds there (`heard`). It is no
  fault of our own: taken back there, it is taken back here (`unheard`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from router.core.faults import Fault, FaultKind, Verdict
from router.engine.clock import Clock
from router.engine.observe import Observers, TargetEjected, TargetRestored

# What a client asks for may suit no model at all: its schema must not cost others a target.
_NOT_THE_TARGETS = frozenset(
    {
        FaultKind.SCHEMA_VIOLATION,
        FaultKind.BOUNDARY_REJECTED,
        FaultKind.DEADLINE,
        FaultKind.CLIENT_GONE,
        FaultKind.ABANDONED,
        FaultKind.HEDGED,
        FaultKind.CONTEXT_LENGTH,
        FaultKind.CONTENT_POLICY,
    }
)
_REQUEST_VERDICTS = frozenset({Verdict.REQUEST, Verdict.PREFIX_REFUSED})


RATE_WINDOW = 20
"""Attempts over which the share of faults is taken."""

MIN_RATE_ATTEMPTS = 10
"""With fewer attempts a share says nothing."""

HEARSAY_MARGIN_S = 0.5
"""A notice that is gone this shortly before its end, in seconds, has run out and was not taken
back: a probe decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """When a target is left alone.

    Args:
        eject_after: faults in a row.
        eject_rate: share of faults among the last attempts, 0 to 1; 1 leaves it to `eject_after`.
        cool_down_s: first cool-down, in seconds.
        max_cool_down_s: longest one.
    """

    eject_after: int = 3
    eject_rate: float = 0.5
    cool_down_s: float = 10.0
    max_cool_down_s: float = 30.0


class Standing(StrEnum):
    """How a target stands."""

    WELL = "well"
    EJECTED = "ejected"
    PROBING = "probing"


@dataclass(slots=True)
class _Condition:
    standing: Standing = Standing.WELL
    faults_in_a_row: int = 0
    ejections_in_a_row: int = 0
    until_s: float = 0.0
    hearsay: bool = False
    last_fault: Fault | None = None
    outcomes: deque[bool] = field(default_factory=lambda: deque(maxlen=RATE_WINDOW))

    def fault_share(self) -> float:
        """Share of faults among the last attempts, 0 while they are too few."""
        if len(self.outcomes) < MIN_RATE_ATTEMPTS:
            return 0.0
        return self.outcomes.count(False) / len(self.outcomes)


class Health:
    """The condition of every target.

    Args:
        policy: when a target is left alone.
        clock: where time comes from.
        tell: observers of ejections.
    """

    def __init__(self, policy: HealthPolicy, clock: Clock, tell: Observers) -> None:
        self._policy = policy
        self._clock = clock
        self._tell = tell
        self._conditions: dict[str, _Condition] = {}
        self._instructed: set[str] = set()

    def available(self, target: str) -> bool:
        """May it be asked now? Does not claim the probe.

        Args:
            target: its name.
        """
        one = self._conditions.get(target)
        if one is None or one.standing is Standing.WELL:
            return True
        return one.standing is Standing.EJECTED and self._clock.now_s() >= one.until_s

    def asked(self, target: str) -> None:
        """It is being asked: after a cool-down this is the probe.

        Args:
            target: its name.
        """
        one = self._conditions.get(target)
        if one is not None and one.standing is Standing.EJECTED and self.available(target):
            one.standing = Standing.PROBING

    def answering(self, target: str) -> None:
        """It sent output: a probe has succeeded.

        Args:
            target: its name.
        """
        one = self._conditions.get(target)
        if one is not None and one.standing is not Standing.WELL:
            one.standing = Standing.WELL
            one.hearsay = False
            one.outcomes.clear()
            self._tell(TargetRestored(target=target))

    def released(self, target: str) -> None:
        """The attempt ended without a verdict (the client left): a probe may be made again.

        Args:
            target: its name.
        """
        one = self._conditions.get(target)
        if one is not None and one.standing is Standing.PROBING:
            one.standing = Standing.EJECTED

    def succeeded(self, target: str) -> None:
        """It gave a whole answer.

        Args:
            target: its name.
        """
        self.answering(target)
        one = self._conditions.setdefault(target, _Condition())
        one.outcomes.append(True)
        one.faults_in_a_row = 0
        one.ejections_in_a_row = 0

    def failed(self, target: str, fault: Fault) -> None:
        """It did not.

        Args:
            target: its name.
            fault: why; one that is not the target's own is ignored.
        """
        if fault.kind in _NOT_THE_TARGETS or fault.verdict in _REQUEST_VERDICTS:
            self.released(target)
            return
        one = self._conditions.setdefault(target, _Condition())
        one.last_fault = fault
        one.faults_in_a_row += 1
        one.outcomes.append(False)
        alarm = fault.verdict is Verdict.ACCOUNT
        if (
            alarm
            or one.standing is Standing.PROBING
            or one.faults_in_a_row >= self._policy.eject_after
            or (self._policy.eject_rate < 1 and one.fault_share() >= self._policy.eject_rate)
        ):
            self._eject(target, one, fault, alarm=alarm)

    def heard(self, target: str, *, for_s: float) -> None:
        """Another replica ejected it.

        Args:
            target: its name.
            for_s: what is left of its cool-down, in seconds.
        """
        one = self._conditions.setdefault(target, _Condition())
        until_s = self._clock.now_s() + for_s
        if one.standing is Standing.WELL:
            one.standing = Standing.EJECTED
            one.hearsay = True
            one.until_s = until_s
        elif one.standing is Standing.EJECTED and one.hearsay:
            one.until_s = max(one.until_s, until_s)

    def unheard(self, target: str) -> None:
        """The other replica took it back; does nothing if we have found a fault ourselves.

        Args:
            target: its name.
        """
        one = self._conditions.get(target)
        if one is None or one.standing is not Standing.EJECTED or not one.hearsay:
            return
        if one.until_s - self._clock.now_s() > HEARSAY_MARGIN_S:
            one.standing = Standing.WELL
            one.hearsay = False

    def prefers_instruct(self, target: str) -> bool:
        """It refused an assistant prefix before.

        Args:
            target: its name.
        """
        return target in self._instructed

    def refused_prefix(self, target: str) -> None:
        """It refused an assistant prefix: from now on it is asked in the style `instruct`.

        Args:
            target: its name.
        """
        self._instructed.add(target)

    def summary(self, target: str) -> Mapping[str, Any]:
        """How a target stands, for people.

        Args:
            target: its name.
        """
        one = self._conditions.get(target, _Condition())
        left_s = one.until_s - self._clock.now_s()
        fault = one.last_fault
        return {
            "standing": one.standing.value,
            "available": self.available(target),
            "heard_of": one.hearsay,
            "cool_down_left_s": round(max(0.0, left_s), 1)
            if one.standing is Standing.EJECTED
            else 0.0,
            "faults_in_a_row": one.faults_in_a_row,
            "ejections_in_a_row": one.ejections_in_a_row,
            "recent_attempts": len(one.outcomes),
            "recent_faults": one.outcomes.count(False),
            "last_fault": None
            if fault is None
            else {
                "kind": fault.kind.value,
                "verdict": fault.verdict.value,
                "condition": fault.condition,
                "status": fault.status,
                "message": fault.message,
            },
            "prefix_refused": self.prefers_instruct(target),
        }

    def _eject(self, target: str, one: _Condition, fault: Fault, *, alarm: bool) -> None:
        cool_down_s = min(
            self._policy.cool_down_s * 2.0**one.ejections_in_a_row, self._policy.max_cool_down_s
        )
        one.ejections_in_a_row += 1
        one.faults_in_a_row = 0
        one.standing = Standing.EJECTED
        one.hearsay = False
        one.until_s = self._clock.now_s() + cool_down_s
        self._tell(TargetEjected(target=target, fault=fault, cool_down_s=cool_down_s, alarm=alarm))
