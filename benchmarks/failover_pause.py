"""How long a client waits when the provider dies in the middle of an answer.

    python -m benchmarks.failover_pause [--quick] [--json FILE] [--plot FILE]

The pause is the time between two reads of the client's socket: the last token of the dead provider
and the first new token of the next. It is measured beside what it cannot be shorter than, in the
same run: the time the second provider itself needs to say that token when asked directly. That
time has two parts: its first token, and the broken sentence, which it says again from the last
committed boundary on (the client does not see that, it waits for it). What remains is the router's.

Two simulated providers, Redis, the router and this client are processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks.common import (
    IMAGES,
    RESULTS,
    Answer,
    Heard,
    Server,
    Spread,
    ask,
    how_it_was_measured,
    read,
    real_router,
    redis_server,
    run,
    simulated_provider,
    table,
    write_json,
)
from router.simulate import seeded_text, tokenize

SEED_HEADLINE_MS = 340
"""The median failover pause that this project set out to beat."""

FAULTS = {"cut": "cut@{at}", "rst": "rst@{at}", "error": "error@{at}", "stall": "stall@{at}"}
"""Name in the tables to what the first provider is told; see `router/simulate/faults.py`."""

SEED = "pause 3"
KINDS = "prose,dialogue,facts"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is run.

    Args:
        tokens_per_s: pace of both providers.
        first_token_ms: of both.
        chars: length of the answer.
        cuts: the fault strikes after so many tokens: from, up to.
        idle_s: the idle limit, which is all that ends a stall.
        alone: streams of each fault and store, one after another.
        together: streams of each fault and store at once.
        waves: how often.
    """

    tokens_per_s: float
    first_token_ms: float
    chars: int
    cuts: range
    idle_s: float
    alone: int
    together: int
    waves: int


FULL = Plan(
    tokens_per_s=50,
    first_token_ms=50,
    chars=300,
    cuts=range(20, 55),
    idle_s=0.5,
    alone=12,
    together=50,
    waves=1,
)
QUICK = Plan(
    tokens_per_s=400,
    first_token_ms=20,
    chars=120,
    cuts=range(10, 20),
    idle_s=0.3,
    alone=1,
    together=3,
    waves=1,
)


@dataclass(frozen=True, slots=True)
class Pause:
    """One failover, as the client saw it. Milliseconds.

    Args:
        pause_ms: last token of the dead provider to the first new one.
        resaid_tokens: what the second provider said again before it.
        floor_ms: what the second provider itself needs to that token, asked directly.
        router_ms: the rest, an idle limit taken off.
    """

    pause_ms: float
    resaid_tokens: int
    floor_ms: float
    router_ms: float


@dataclass(frozen=True)
class Cell:
    """All failovers of one kind.

    Args:
        store: where the record is.
        streams: how many at a time.
        fault: what happened to the first provider.
        pauses: each of them.
        second: the second provider's own token times, measured beside them.
    """

    store: str
    streams: int
    fault: str
    pauses: tuple[Pause, ...]
    second: Reference

    def summary(self, idle_s: float) -> dict[str, Any]:
        """Its numbers.

        Args:
            idle_s: the idle limit.
        """
        pause = Spread.of([one.pause_ms for one in self.pauses], digits=1)
        waited_ms = 1000 * idle_s if self.fault == "stall" else 0.0
        own = Spread.of(self.second.first_ms, digits=1)
        floor_ms = statistics.median(one.floor_ms for one in self.pauses)
        return {
            "store": self.store,
            "streams": self.streams,
            "fault": self.fault,
            "pause_ms": pause,
            "pause_less_idle_limit_ms": round(pause.median - waited_ms, 1),
            "second_first_token_ms": own,
            "ratio_to_first_token": round((pause.median - waited_ms) / own.median, 2),
            "resaid_tokens": round(statistics.mean(one.resaid_tokens for one in self.pauses), 1),
            "second_to_that_token_ms": round(floor_ms, 1),
            "ratio_to_that_token": round(
                statistics.median((one.pause_ms - waited_ms) / one.floor_ms for one in self.pauses),
                3,
            ),
            "router_ms": Spread.of([one.router_ms for one in self.pauses], digits=2),
            "pauses_ms": [round(one.pause_ms, 1) for one in self.pauses],
        }


@dataclass(frozen=True)
class Reference:
    """The second provider asked directly.

    Args:
        first_ms: request to first token, of each stream.
        to_token_ms: request to each token, medians over the streams.
    """

    first_ms: tuple[float, ...]
    to_token_ms: tuple[float, ...]

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Reference:
        """Sum up direct answers."""
        rows = [[1000 * (p.at_s - one.sent_s) for p in one.pieces] for one in answers]
        columns = zip(*rows, strict=True)
        return cls(tuple(row[0] for row in rows), tuple(map(statistics.median, columns)))


def pause_of(answer: Answer, second: Reference, waited_ms: float) -> Pause:
    """Find the seam in what a client received.

    Args:
        answer: a whole stream with one failover in it.
        second: the second provider's own times.
        waited_ms: an idle limit that had to pass first.

    Raises:
        ValueError: there was no failover, or more than one, or text was replaced.
    """
    router = answer.router or {}
    if len(router.get("failovers", ())) != 1 or router["superseded"]:
        raise ValueError(f"not one clean failover: {router}")
    ends = list(accumulate(len(piece.text) for piece in answer.pieces))
    # By the characters that the first attempt brought: a reset may swallow its last token.
    last = ends.index(router["attempts"][0]["output_chars"])
    first_kept = router["failovers"][0]["committed_chars"]
    resaid = sum(1 for end in ends[: last + 1] if end > first_kept)
    pause_ms = 1000 * (answer.pieces[last + 1].at_s - answer.pieces[last].at_s)
    floor_ms = second.to_token_ms[resaid]
    return Pause(pause_ms, resaid, floor_ms, pause_ms - waited_ms - floor_ms)


# --- the run --------------------------------------------------------------------------------------


def configuration(plan: Plan, first: Server, second: Server, redis: str | None) -> dict[str, Any]:
    """One route for each fault and place, so that one router serves all cells.

    Args:
        plan: what is run.
        first: the provider that dies.
        second: the provider that goes on.
        redis: URL for the record, or None for memory.
    """
    return {
        "record": {"url": redis} if redis else {},
        "health": {"eject_after": 1000},  # dying is the first provider's job here
        "providers": {
            "first": {"type": "vllm", "base_url": first.base_url},
            "second": {"type": "vllm", "base_url": second.base_url},
        },
        "routes": {
            f"{fault}-{at}": {
                "targets": [
                    {"provider": "first", "model": f"sim!{order.format(at=at)}"},
                    {"provider": "second", "model": "sim"},
                ],
                "timeouts": {"idle_s": plan.idle_s},
            }
            for fault, order in FAULTS.items()
            for at in plan.cuts
        },
    }


class Bench:
    """One run.

    Args:
        plan: what is run.
        second: the provider that goes on.
        routers: one for each store.
    """

    def __init__(self, plan: Plan, second: Server, routers: Sequence[Server]) -> None:
        self._plan = plan
        self._second = second
        self._routers = routers
        self.broken: list[str] = []
        """Answers that were not whole, or not the canonical text."""

    async def cells(self) -> list[Cell]:
        """Everything. The stores take turns, and so do the faults."""
        await asyncio.gather(*(self._warm_up(server) for server in self._routers))
        return [*await self._alone(), *await self._together()]

    async def _warm_up(self, server: Server) -> None:
        """Connections, caches and byte code; whoever starts a router does not measure this."""
        for fault in FAULTS:
            await ask(server, model=f"{fault}-{self._plan.cuts[0]}")

    async def _alone(self) -> list[Cell]:
        """One stream at a time in each router; the routers side by side, for the time's sake."""
        heard: dict[tuple[str, str], list[Heard]] = {}
        direct: list[Heard] = []
        for place in self._places():
            direct.append(await ask(self._second, model="sim"))
            for fault in FAULTS:
                model = f"{fault}-{place}"
                answers = await asyncio.gather(*(ask(r, model=model) for r in self._routers))
                for router, one in zip(self._routers, answers, strict=True):
                    heard.setdefault((router.name, fault), []).append(one)
        second = Reference.of([self._read(one) for one in direct])
        return [self._cell(*key, 1, ones, second) for key, ones in heard.items()]

    def _places(self) -> list[int]:
        """Even over the range and the same for every fault, in random order."""
        cuts, count = self._plan.cuts, self._plan.alone
        places = [cuts[at * len(cuts) // count] for at in range(count)]
        random.Random(SEED).shuffle(places)
        return places

    async def _together(self) -> list[Cell]:
        heard: dict[tuple[str, str], list[Heard]] = {}
        direct: list[Heard] = []
        for _ in range(self._plan.waves):
            for fault in FAULTS:
                direct += await self._wave(self._second, ["sim"])
                models = [f"{fault}-{at}" for at in self._plan.cuts]
                for router in self._routers:
                    key = (router.name, fault)
                    heard.setdefault(key, []).extend(await self._wave(router, models))
        second = Reference.of([self._read(one) for one in direct])
        return [self._cell(*key, self._plan.together, ones, second) for key, ones in heard.items()]

    async def _wave(self, server: Server, models: Sequence[str]) -> list[Heard]:
        """Streams at once. Those that fail begin together, and their failovers are spread over the
        time between the first place of a cut and the last; so those that are only asked for their
        own times are spread alike, lest the provider be busier then than it is in a failover."""
        count, pace = self._plan.together, self._plan.tokens_per_s
        spread_s = (len(self._plan.cuts) if server is self._second else 1) / pace

        async def one(number: int) -> Heard:
            await asyncio.sleep(number * spread_s / count)
            return await ask(server, model=models[number % len(models)])

        return list(await asyncio.gather(*(one(number) for number in range(count))))

    def _cell(
        self, store: str, fault: str, streams: int, heard: Sequence[Heard], second: Reference
    ) -> Cell:
        waited_ms = 1000 * self._plan.idle_s if fault == "stall" else 0.0
        pauses: list[Pause] = []
        for one in heard:
            answer = self._read(one)
            try:
                pauses.append(pause_of(answer, second, waited_ms))
            except ValueError as error:
                self.broken.append(f"{store}, {fault}: {error}")
        return Cell(store, streams, fault, tuple(pauses), second)

    def _read(self, heard: Heard) -> Answer:
        answer = read(heard)
        if not answer.whole or answer.text != text_of(self._plan):
            self.broken.append(f"not the canonical text: {answer.text[-200:]!r}")
        return answer


def text_of(plan: Plan) -> str:
    """The canonical answer.

    Args:
        plan: what is run.
    """
    return seeded_text(SEED, plan.chars, kinds=KINDS.split(","))


@contextlib.contextmanager
def everything(plan: Plan) -> Iterator[Bench]:
    """Start it all, and end it all.

    Args:
        plan: what is run.
    """
    manner = ["--tokens-per-s", str(plan.tokens_per_s)]
    manner += ["--first-token-ms", str(plan.first_token_ms)]
    manner += ["--seed", SEED, "--chars", str(plan.chars), "--kinds", KINDS]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        first = stack.enter_context(simulated_provider("first", *manner))
        second = stack.enter_context(simulated_provider("second", *manner))
        url = stack.enter_context(redis_server(folder))
        stores = {"memory": None} if url is None else {"memory": None, "redis": url}
        routers = [
            stack.enter_context(
                real_router(name, configuration(plan, first, second, redis), folder)
            )
            for name, redis in stores.items()
        ]
        yield Bench(plan, second, routers)


# --- what is shown --------------------------------------------------------------------------------


def rows(summaries: Sequence[dict[str, Any]]) -> list[list[object]]:
    """The table's rows.

    Args:
        summaries: of the cells.
    """
    return [
        [
            one["fault"],
            one["store"],
            one["streams"],
            one["pause_ms"].n,
            one["pause_ms"].median,
            one["pause_ms"].p95,
            one["pause_less_idle_limit_ms"],
            one["ratio_to_first_token"],
            one["resaid_tokens"],
            one["ratio_to_that_token"],
            one["router_ms"].median,
            one["router_ms"].p95,
        ]
        for one in summaries
    ]


HEADER = (
    "fault",
    "record",
    "streams",
    "n",
    "pause ms",
    "p95",
    "less idle limit",
    "x first token",
    "tokens said again",
    "x same token",
    "router's share ms",
    "p95",
)


def headline(cells: Sequence[Cell]) -> dict[str, Any]:
    """The numbers for the first page: faults that show themselves (all but the stall).

    Args:
        cells: all of them.
    """
    seen = [(cell, one) for cell in cells if cell.fault != "stall" for one in cell.pauses]
    pauses = [one.pause_ms for _, one in seen]
    first_ms = [ms for cell in cells for ms in cell.second.first_ms]
    median = statistics.median(pauses)
    return {
        "pause_ms": Spread.of(pauses, digits=1),
        "second_first_token_ms": round(statistics.median(first_ms), 1),
        "ratio_to_first_token": round(median / statistics.median(first_ms), 2),
        "ratio_to_that_token": round(
            statistics.median(one.pause_ms / one.floor_ms for _, one in seen), 3
        ),
        "router_ms": Spread.of([one.router_ms for _, one in seen], digits=2),
        "seed_headline_ms": SEED_HEADLINE_MS,
    }


def plot(file: Path, cells: Sequence[Cell], plan: Plan) -> None:
    """Each failover as a dot: its pause, and beside it what the second provider itself needs.

    Args:
        file: where to; its ending says the format.
        cells: all of them.
        plan: what was run.
    """
    import matplotlib as mpl  # noqa: PLC0415 - a second of start that only this function needs

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.6), gridspec_kw={"width_ratios": (3, 2)}
    )
    _plot_pauses(left, cells, plan)
    _plot_share(right, cells)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
    plt.close(figure)


_COLOURS = {"memory": "#2b6cb0", "redis": "#c05621"}


def _plot_pauses(axes: Any, cells: Sequence[Cell], plan: Plan) -> None:  # noqa: ANN401 - untyped
    rng = random.Random(0)
    groups = [(fault, streams) for fault in FAULTS for streams in (1, plan.together)]
    for at, (fault, streams) in enumerate(groups):
        idle_ms = 1000 * plan.idle_s if fault == "stall" else 0
        for cell in cells:
            if (cell.fault, cell.streams) != (fault, streams):
                continue
            side = -0.18 if cell.store == "memory" else 0.18
            xs = [at + side + rng.uniform(-0.12, 0.12) for _ in cell.pauses]
            ys = [one.pause_ms for one in cell.pauses]
            axes.plot(xs, ys, ".", color=_COLOURS[cell.store], alpha=0.45, markersize=5)
            floor = idle_ms + statistics.median(one.floor_ms for one in cell.pauses)
            for y, style in ((statistics.median(ys), "-"), (floor, ":")):
                axes.plot([at + side - 0.15, at + side + 0.15], [y, y], style, color="black")
    own = statistics.median(ms for cell in cells for ms in cell.second.first_ms)
    axes.axhline(own, color="#2f855a", linewidth=1, label="second provider's own first token")
    axes.axhline(
        SEED_HEADLINE_MS, color="#9b2c2c", linewidth=1, linestyle="--", label="to beat: 340 ms"
    )
    for store, colour in _COLOURS.items():
        axes.plot([], [], ".", color=colour, label=f"record: {store}")
    axes.plot([], [], "-", color="black", label="median")
    axes.plot([], [], ":", color="black", label="second provider itself, to the same token")
    axes.set_xticks(
        range(len(groups)), [f"{fault}\n{count} at once" for fault, count in groups], fontsize=8
    )
    axes.set_ylabel("failover pause, ms")
    axes.set_ylim(bottom=0)
    axes.set_title(f"What a client waits (stall: the idle limit is {1000 * plan.idle_s:.0f} ms)")
    axes.legend(fontsize=7, loc="upper left")


def _plot_share(axes: Any, cells: Sequence[Cell]) -> None:  # noqa: ANN401 - untyped
    for cell in cells:
        values = sorted(one.router_ms for one in cell.pauses)
        shares = [(at + 1) / len(values) for at in range(len(values))]
        style = "-" if cell.streams == 1 else "--"
        axes.step(values, shares, style, color=_COLOURS[cell.store], linewidth=1, alpha=0.8)
    axes.set_xlim(-5, 20)
    axes.set_xlabel("pause less the second provider's own time, ms")
    axes.set_ylabel("share of failovers")
    axes.set_title("The router's share (dashed: many streams)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run it.

    Args:
        argv: arguments; None takes the process's own.

    Returns:
        0, or 1 if an answer was not whole.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tiny run that only shows it works")
    parser.add_argument("--json", type=Path, default=RESULTS / "failover_pause.json")
    parser.add_argument("--plot", type=Path, default=IMAGES / "failover_pause.png")
    args = parser.parse_args(argv)
    plan = QUICK if args.quick else FULL
    how = how_it_was_measured()
    began_s = time.monotonic()
    with everything(plan) as bench:
        cells = run(bench.cells())
    for line in bench.broken:
        print(line, file=sys.stderr)
    if bench.broken:
        return 1
    summaries = [cell.summary(plan.idle_s) for cell in cells]
    summaries.sort(key=lambda one: (one["streams"], list(FAULTS).index(one["fault"])))
    head = headline(cells)
    print(table(HEADER, rows(summaries)))
    print(
        f"\nMedian pause {head['pause_ms'].median} ms (to beat: {SEED_HEADLINE_MS} ms), "
        f"{head['ratio_to_first_token']} times the second provider's own first token "
        f"({head['second_first_token_ms']} ms); {head['ratio_to_that_token']} times what it itself "
        f"needs to the same token; the router's share is {head['router_ms'].median} ms."
    )
    how["took_s"] = round(time.monotonic() - began_s, 1)
    how["tokens"] = len(tokenize(text_of(plan)))
    content = {"measured": how, "plan": {**vars(plan), "cuts": [*plan.cuts]}}
    write_json(args.json, {**content, "headline": head, "cells": summaries})
    plot(args.plot, cells, plan)
    return 0


if __name__ == "__main__":
    sys.exit(main())
