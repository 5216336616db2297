"""The sixteen scenarios in fake time: every one is a pass, in every variant."""

from __future__ import annotations

import pytest
from scenario_kit import Scenario, Variant, Verdict, scored
from scenarios16 import SCENARIOS
from support.clock import FakeClock

CASES = [(scenario, variant) for scenario in SCENARIOS for variant in scenario.variants]


def test_there_are_sixteen() -> None:
    assert [scenario.id for scenario in SCENARIOS] == [f"S{at:02}" for at in range(1, 17)]


@pytest.mark.parametrize(
    ("scenario", "variant"),
    CASES,
    ids=[f"{scenario.id}{variant.name and '-'}{variant.name}" for scenario, variant in CASES],
)
async def test_scenario(scenario: Scenario, variant: Variant) -> None:
    judge = await scored(scenario, variant, FakeClock())
    assert judge.verdict is Verdict.PASS, judge
