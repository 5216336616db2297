"""Who is well enough to be asked: ejection, cool-down, and the single probe that ends it.

One `Health` per process; a target is known by its name. The rules:

- `eject_after` faults in a row eject a target for `cool_down_s`, doubled at each further ejection
  up to `max_cool_down_s`. A fault that only a person can mend ejects at once.
- When the cool-down is over, one request is let through as a probe, and others go elsewhere until
  it is decided. Success restores the target, a fault ejects it again, for longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from router.core.faults import Fault, FaultKind, Verdict
from router.engine.clock import Clock
from router.engine.observe import Observers, TargetEjected, TargetRestored

_NOT_THE_TARGETS = frozenset(
    {FaultKind.DEADLINE, FaultKind.CLIENT_GONE, FaultKind.CONTEXT_LENGTH, FaultKind.CONTENT_POLICY}
)
_REQUEST_VERDICTS = frozenset({Verdict.REQUEST, Verdict.PREFIX_REFUSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """When a target is left alone.

    Args:
        eject_after: faults in a row.
        cool_down_s: first cool-down, in seconds.
        max_cool_down_s: longest one.
    """

    eject_after: int = 3
    cool_down_s: float = 10.0
    max_cool_down_s: float = 300.0


@dataclass(slots=True)
class _Condition:
    faults: int = 0
    ejections: int = 0
    until_s: float = 0.0
    probing: bool = False


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
        if one is None or one.ejections == 0:
            return True
        return not one.probing and self._clock.now_s() >= one.until_s

    def asked(self, target: str) -> None:
        """It is being asked: after a cool-down this is the probe.

        Args:
            target: its name.
        """
        one = self._conditions.get(target)
        if one is not None and one.ejections and self._clock.now_s() >= one.until_s:
            one.probing = True

    def released(self, target: str) -> None:
        """The attempt ended without a verdict (the client left): a probe may be made again.

        Args:
            target: its name.
        """
        one = self._conditions.get(target)
        if one is not None:
            one.probing = False

    def succeeded(self, target: str) -> None:
        """It answered.

        Args:
            target: its name.
        """
        one = self._conditions.pop(target, None)
        if one is not None and one.ejections:
            self._tell(TargetRestored(target=target))

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
        one.faults += 1
        alarm = fault.verdict is Verdict.ACCOUNT
        if alarm or one.probing or one.faults >= self._policy.eject_after:
            self._eject(target, one, fault, alarm=alarm)

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

    def _eject(self, target: str, one: _Condition, fault: Fault, *, alarm: bool) -> None:
        cool_down_s = min(
            self._policy.cool_down_s * 2.0**one.ejections, self._policy.max_cool_down_s
        )
        one.ejections += 1
        one.faults = 0
        one.probing = False
        one.until_s = self._clock.now_s() + cool_down_s
        self._tell(TargetEjected(target=target, fault=fault, cool_down_s=cool_down_s, alarm=alarm))
