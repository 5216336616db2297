"""How long a target's silences usually are: what tells a stall from a slow model.

A histogram of every gap would cost something per token; the longest gap of each attempt costs one
comparison, and is already a high quantile of that attempt. So the limit is learnt from the last
`SAMPLES` attempts: the median of their longest gaps, times a factor, with a floor.

The median, because a silence that was cut short counts too, as long as it lasted: a target that has
become slow must be able to teach that, and a row of stalls must not. Up to half of the attempts may
stall before the limit moves.
"""

from __future__ import annotations

from collections import deque

SAMPLES = 64
"""Attempts that are remembered per target."""

MIN_SAMPLES = 8
"""With fewer, nothing is known and the fixed limit holds."""

QUANTILE = 0.5
FACTOR = 5.0
"""Between a usual answer's longest silence and the one that is called a stall."""
FLOOR_S = 0.25
"""Shorter silences are the network's, not the model's."""


class Gaps:
    """The silences of one target."""

    __slots__ = ("_longest_s",)

    def __init__(self) -> None:
        self._longest_s: deque[float] = deque(maxlen=SAMPLES)

    def add(self, longest_s: float) -> None:
        """An attempt is over.

        Args:
            longest_s: its longest silence between two outputs, in seconds.
        """
        self._longest_s.append(longest_s)

    def limit_s(self) -> float | None:
        """Silence past which this target has probably stalled.

        Returns:
            Seconds, or None while too little is known.
        """
        if len(self._longest_s) < MIN_SAMPLES:
            return None
        ranked = sorted(self._longest_s)
        return max(FLOOR_S, FACTOR * ranked[int(QUANTILE * (len(ranked) - 1))])
