"""One attempt as the loop holds it, from its request to its report."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.core.continuation import ContinuationStyle, Style
from router.core.events import Event
from router.core.failover import Ask
from router.engine.attempt import Attempt
from router.engine.meter import Meter
from router.engine.route import Target
from router.providers.base import Sent


@dataclass(slots=True, kw_only=True)
class Asked:
    """One attempt, from its request to its report.

    Args:
        ask: the decision that led to it.
        target: whom it asks.
        attempt: the upstream call.
        meter: counts it.
        how: the target's continuation style.
        sent: what was made of it, None for the original question.
        opened: its body is being read already.
        first: events that were read already.
    """

    ask: Ask
    target: Target
    attempt: Attempt
    meter: Meter
    how: ContinuationStyle
    sent: Sent | None
    opened: bool = False
    first: list[Event] = field(default_factory=list)

    @property
    def instructed(self) -> bool:
        """No prefix that could be refused was sent."""
        return self.sent is None or self.sent.style in (Style.INSTRUCT, Style.RESTART)
