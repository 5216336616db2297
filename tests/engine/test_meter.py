"""What an attempt cost: as reported, or estimated where less was reported than it said."""

from __future__ import annotations

from typing import Any

import pytest
from support.clock import FakeClock

from router.core.events import Usage
from router.core.faults import Fault, FaultKind
from router.engine.meter import CHARS_PER_TOKEN, Meter

CUT = Fault(kind=FaultKind.CUT, message="the connection broke")


def metered(usage: dict[str, Any] | None, chars: int, *, late: bool = False) -> Meter:
    meter = Meter(
        FakeClock(), origin_s=0, number=1, target="t", model="m", style="", prompt_chars=400
    )
    if chars and late:
        meter.output(1, chars)
    if usage is not None:
        asked, said = usage["prompt_tokens"], usage["completion_tokens"]
        meter.counted(Usage(input_tokens=asked, output_tokens=said, raw=usage))
    if chars and not late:
        meter.output(1, chars)
    return meter


def usage_of(asked: int, said: int) -> dict[str, Any]:
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


def test_a_whole_answer_costs_what_was_reported() -> None:
    report = metered(usage_of(25, 3), 80).report(None)
    assert (report.usage, report.usage_estimated) == (usage_of(25, 3), False)


@pytest.mark.parametrize("said", [0, 1])
def test_what_was_counted_before_the_answer_is_too_little(said: int) -> None:
    told = usage_of(25, said) | {"prompt_tokens_details": {"cached_tokens": 20}}
    report = metered(told, 10 * CHARS_PER_TOKEN).report(CUT)
    details = {"prompt_tokens_details": {"cached_tokens": 20}}
    assert (report.usage, report.usage_estimated) == (usage_of(25, 10) | details, True)


def test_a_count_that_kept_up_is_kept() -> None:
    report = metered(usage_of(25, 7), 10 * CHARS_PER_TOKEN, late=True).report(CUT)
    assert (report.usage, report.usage_estimated) == (usage_of(25, 7), False)


def test_without_any_report_both_are_estimated() -> None:
    report = metered(None, 10 * CHARS_PER_TOKEN - 1).report(CUT)
    assert (report.usage, report.usage_estimated) == (usage_of(100, 10), True)


def test_an_attempt_that_never_answered_cost_nothing() -> None:
    report = metered(None, 0).report(CUT)
    assert (report.usage, report.usage_estimated) == (usage_of(0, 0), True)
