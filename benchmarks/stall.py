"""What a stall costs: a provider falls silent after 30 tokens at 50 a second, and the router judges
that silence by its fixed limit, by what is usual for the target, or by asking the next target while
it still listens (`stall: fixed | adaptive | hedge`).

Each rule has a router and a first provider of its own, all in processes of their own; the first
provider answers `HEALTHY` times, so that its usual gaps are known, and then stalls every time. The
second provider is one for all. The pause is what the client's socket shows: the longest time
between two tokens.

    python -m benchmarks.stall [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common import (
    Answer,
    Server,
    Spread,
    ask,
    how_it_was_measured,
    read,
    real_router,
    run,
    simulated_provider,
    table,
    write_json,
)

RULES = ("fixed", "adaptive", "hedge")
HEALTHY = 12
"""Answers before the first stall; the limit is learnt from eight."""

TOKENS_PER_S = 50
FIRST_TOKEN_MS = 50
STALL_AFTER = 30
IDLE_S = 5.0
"""The fixed limit: the router's own default."""

RESULTS = Path(__file__).parent / "results" / "stall.json"


@dataclass(frozen=True, slots=True)
class Cell:
    """One rule.

    Args:
        rule: value of the route key `stall`.
        pauses_ms: longest time between two tokens of each stalled answer.
        second_calls: attempts at the second provider, of all answers.
    """

    rule: str
    pauses_ms: tuple[float, ...]
    second_calls: int


async def measure(rule: str, router: Server, stalls: int) -> Cell:
    """Warm up, then stall.

    Args:
        rule: for the table.
        router: with that rule.
        stalls: how many answers.
    """
    for _ in range(HEALTHY):
        _whole(read(await ask(router, model="chat")))
    answers = [_whole(read(await ask(router, model="chat"))) for _ in range(stalls)]
    return Cell(rule, tuple(_pause_ms(one) for one in answers), sum(map(_second, answers)))


def _whole(answer: Answer) -> Answer:
    if not answer.whole:
        raise ValueError(f"an answer is not whole: {answer.text[-200:]!r}")
    return answer


def _pause_ms(answer: Answer) -> float:
    times_s = [piece.at_s for piece in answer.pieces]
    return 1000 * max(after - before for before, after in pairwise(times_s))


def _second(answer: Answer) -> int:
    attempts = (answer.router or {}).get("attempts", [])
    return sum(one["target"].startswith("second") for one in attempts)


def configuration(rule: str, first: Server, second: Server) -> dict[str, Any]:
    """A router that judges silence by one rule."""
    return {
        "health": {"eject_after": 1000, "eject_rate": 1},
        "providers": {
            "first": {"type": "vllm", "base_url": first.base_url},
            "second": {"type": "vllm", "base_url": second.base_url},
        },
        "routes": {
            "chat": {
                "targets": [
                    {"provider": "first", "model": "sim"},
                    {"provider": "second", "model": "sim"},
                ],
                "timeouts": {"idle_s": IDLE_S},
                "stall": rule,
            }
        },
    }


def everything(stalls: int) -> list[Cell]:
    """Start all, and measure the rules side by side."""
    pace = ["--tokens-per-s", str(TOKENS_PER_S), "--first-token-ms", str(FIRST_TOKEN_MS)]
    says = ["--seed", "7", "--chars", "250", *pace]
    script = ["--script", *["-"] * HEALTHY, *[f"stall@{STALL_AFTER}"] * stalls]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        second = stack.enter_context(simulated_provider("second", *says))
        routers = {
            rule: stack.enter_context(
                real_router(
                    rule,
                    configuration(
                        rule,
                        stack.enter_context(simulated_provider(f"first-{rule}", *says, *script)),
                        second,
                    ),
                    folder,
                )
            )
            for rule in RULES
        }

        async def side_by_side() -> list[Cell]:
            return list(await asyncio.gather(*(measure(r, routers[r], stalls) for r in RULES)))

        return run(side_by_side())


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write.

    Args:
        argv: arguments, None takes the process's own.
    """
    parser = argparse.ArgumentParser(description="What a stall costs a client.")
    parser.add_argument("--quick", action="store_true", help="show that it works")
    parser.add_argument("--json", type=Path, default=None, help="where the results go")
    args = parser.parse_args(argv)
    stalls = 2 if args.quick else 12
    cells = everything(stalls)
    rows = [
        [
            cell.rule,
            len(cell.pauses_ms),
            f"{Spread.of(cell.pauses_ms).median:.0f}",
            f"{max(cell.pauses_ms):.0f}",
            cell.second_calls,
        ]
        for cell in cells
    ]
    header = ["stall", "n", "pause, median ms", "longest", "second asked"]
    print(table(header, rows))
    content = {
        "how": how_it_was_measured(),
        "idle_s": IDLE_S,
        "cells": [asdict(cell) for cell in cells],
    }
    write_json(args.json or RESULTS, content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
