"""Plays the sixteen scenarios and prints the table; exits with 1 unless all are passes.

With `SEAM_REAL_TIME=1` (as `make scenarios` does) every wait is waited: about a minute and a half,
as all are played at once. Without it, time is moved by hand.
"""

from __future__ import annotations

import asyncio
import os
import sys

from scenario_kit import Judge, Scenario, Variant, Verdict, scored
from scenarios16 import SCENARIOS
from support.clock import FakeClock


async def _all(*, real: bool) -> list[tuple[Scenario, Variant, Judge]]:
    cases = [(scenario, variant) for scenario in SCENARIOS for variant in scenario.variants]
    if real:
        judges = await asyncio.gather(*(scored(*case) for case in cases))
    else:
        judges = [await scored(*case, FakeClock()) for case in cases]
    return [(*case, judge) for case, judge in zip(cases, judges, strict=True)]


def _line(scenario: Scenario, variant: Variant, judge: Judge) -> str:
    fault = f"{scenario.fault} [{variant.name}]" if variant.name else scenario.fault
    figures = ", ".join(f"{name} {value}" for name, value in judge.figures.items())
    wanting = "".join(f" !! {what}" for what in (*judge.lies, *judge.wanting))
    return f"{scenario.id}  {fault:<42} {judge.verdict:<8} {figures}{wanting}"


def main() -> int:
    """Play, print, and tell by the exit status whether all passed."""
    played = asyncio.run(_all(real=os.environ.get("SEAM_REAL_TIME") == "1"))
    worst: dict[str, Verdict] = {}
    order = list(Verdict)
    for scenario, variant, judge in played:
        print(_line(scenario, variant, judge))
        known = worst.get(scenario.id, Verdict.PASS)
        worst[scenario.id] = max(known, judge.verdict, key=order.index)
    counts = ", ".join(f"{sum(v is one for v in worst.values())} {one}" for one in Verdict)
    print(f"\n{len(worst)} scenarios: {counts}")
    return 0 if all(verdict is Verdict.PASS for verdict in worst.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
