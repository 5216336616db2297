"""What one attempt did, while it does it; becomes an `AttemptReport` when it is over."""

from __future__ import annotations

from typing import Any

from router.core.events import Usage
from router.core.faults import Fault
from router.engine.clock import Clock
from router.engine.report import AttemptReport

CHARS_PER_TOKEN = 4
"""The usual estimate for European text, used only where a provider reported no usage."""


class Meter:
    """Counts one attempt.

    Args:
        clock: where time comes from.
        origin_s: monotonic time at which the stream began.
        number: position in the stream, from 1.
        target: name of the target.
        model: as it was asked for.
        style: continuation style, or "".
        prompt_chars: size of the question, for an estimate.
    """

    __slots__ = (
        "_clock",
        "_counted_chars",
        "_first_s",
        "_last_s",
        "_origin_s",
        "_prompt_chars",
        "_start_s",
        "chars",
        "chunks",
        "model",
        "number",
        "reasoning_chars",
        "style",
        "target",
        "usage",
    )

    def __init__(
        self,
        clock: Clock,
        *,
        origin_s: float,
        number: int,
        target: str,
        model: str,
        style: str,
        prompt_chars: int,
    ) -> None:
        self._clock = clock
        self._origin_s = origin_s
        self._start_s = clock.now_s()
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._prompt_chars = prompt_chars
        self.number = number
        self.target = target
        self.model = model
        self.style = style
        self.chars = 0
        self.chunks = 0
        self.reasoning_chars = 0
        self.usage: Usage | None = None
        self._counted_chars = 0

    def output(self, chunks: int, chars: int) -> None:
        """Output came.

        Args:
            chunks: number of events.
            chars: characters of text in them.
        """
        now_s = self._clock.now_s()
        if self._first_s is None:
            self._first_s = now_s
        self._last_s = now_s
        self.chunks += chunks
        self.chars += chars

    def counted(self, usage: Usage) -> None:
        """The provider said what it cost so far.

        Args:
            usage: a later one replaces an earlier.
        """
        self.usage = usage
        self._counted_chars = self.chars

    def report(self, fault: Fault | None) -> AttemptReport:
        """The attempt is over.

        Args:
            fault: why it ended badly, or None.
        """
        reported = self.usage.raw if self.usage is not None else None
        usage = self._estimate() if reported is None else self._completed(reported, fault)
        return AttemptReport(
            number=self.number,
            target=self.target,
            model=self.model,
            style=self.style,
            started_ms=1000 * (self._start_s - self._origin_s),
            first_output_ms=self._since_start_ms(self._first_s),
            last_output_ms=self._since_start_ms(self._last_s),
            duration_ms=1000 * (self._clock.now_s() - self._start_s),
            output_chars=self.chars,
            chunks=self.chunks,
            reasoning_chars=self.reasoning_chars,
            fault=fault,
            usage=usage,
            usage_estimated=usage is not reported,
        )

    def _since_start_ms(self, when_s: float | None) -> float | None:
        return None if when_s is None else 1000 * (when_s - self._start_s)

    def _estimate(self) -> dict[str, Any]:
        # An attempt that never answered is not billed by anyone.
        asked = self._prompt_chars // CHARS_PER_TOKEN if self._first_s is not None else 0
        return _usage(asked, self._said())

    def _said(self) -> int:
        return -(-self.chars // CHARS_PER_TOKEN)

    def _completed(self, reported: dict[str, Any], fault: Fault | None) -> dict[str, Any]:
        """Of an attempt that broke off, a count from before the answer is too little: some
        providers count the prompt at the beginning, and the answer at an end that never came."""
        if fault is None or not self.chars or self._counted_chars:
            return reported
        return reported | _usage(_tokens(reported, "prompt_tokens"), self._said())


def add_usage(attempts: tuple[AttemptReport, ...]) -> dict[str, Any]:
    """The usage of a whole stream.

    Args:
        attempts: its attempts.

    Returns:
        The provider's own object if only one attempt cost anything, else the sums.
    """
    costly = [one.usage for one in attempts if _tokens(one.usage, "total_tokens")]
    if len(costly) == 1:
        return costly[0]
    asked = sum(_tokens(one, "prompt_tokens") for one in costly)
    return _usage(asked, sum(_tokens(one, "completion_tokens") for one in costly))


def _usage(asked: int, said: int) -> dict[str, Any]:
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


def _tokens(usage: dict[str, Any], field: str) -> int:
    value = usage.get(field)
    if field == "total_tokens" and not isinstance(value, int):
        return _tokens(usage, "prompt_tokens") + _tokens(usage, "completion_tokens")
    return value if isinstance(value, int) else 0
