"""Hours in minutes: routers under everything that can go wrong at once, as fast as it goes.

    python -m benchmarks.soak --minutes 30 [--replicas 2] [--clients N] [--redis URL] [--json FILE]

Providers that fail at random (`soak_provider.py`), clients that leave and come back at random
(`soak_client.py`), a Redis that is held still now and then; text, structured output and tool calls,
streams and whole answers. What must hold at the end:

- every completed answer is the text that it should be, character for character; no silent end;
- the books, the counters and the clients' log say the same of every single request;
- memory, open files, tasks and keys in Redis do not rise, and all is let go of when it is over.

Without --clients the number is tuned: as many as bring nine tenths of the highest rate. Every part
is a process of its own; on Linux, as it reads /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis.asyncio as aioredis

from benchmarks.common import (
    RESULTS,
    Child,
    Server,
    how_it_was_measured,
    real_router,
    redis_server,
    run,
    table,
    write_json,
)
from benchmarks.soak_client import MAX_WRONG, Client, Log
from benchmarks.soak_provider import TOPICS
from benchmarks.soak_watch import (
    KEPT_ROWS,
    MIB,
    Audit,
    Slope,
    ask,
    keys_of,
    labelled,
    memory_of,
    metrics_of,
    plain_of,
    trouble,
)
from router.engine.upstream import KEEPALIVE_S
from router.store.topology import MAX_READERS

KEY, ADMIN_KEY = "sk-soak-0123456789", "sk-soak-admin-0123456789"

VENDORS = {
    "one": ("vllm", "continue"),
    "two": ("mistral", "echo"),
    "three": ("openai-compatible", "continue"),
}
"""Name to provider type, which decides the continuation style, and what it does with a prefix."""

MAX_RISE = {"rss_mib": 4.0, "fds": 10.0, "tasks": 10.0, "keys": 100.0, "redis_mib": 4.0}
"""What may rise from the end of the warm-up to the end, beyond its noise, and is no leak yet."""

MIN_HOURS = 1 / 60
"""Less than that says nothing of what rises."""

LINKS = 3
"""Parts of a router that speak with Redis: the record, the books with what replicas tell each
other, the limits."""

MAX_LEFT = {"fds": float(LINKS * (1 + MAX_READERS)), "tasks": 3.0}
"""What a router may have more at rest than before its first request: connections to Redis, opened
when they are first needed, and kept."""

MAX_NOT_FOUND = 0.01
"""Share of those who left that may find no record: they came back before a Redis that was held
still had heard of it."""

MAX_TWO_ENDS = 0.02
"""Share of those who came back twice at once that may get an end of its own from each router: the
end of a stream that was resumed does not wait for a Redis that is held still for long."""

PAUSES_S = (0.05, 0.3, 1.5)
"""How long Redis is held still, in turn; a resume waits for it one second."""


POINTS = 120
"""Of each series in the result's file, at most."""

START_S = 120.0
"""For everything to be there: seven processes start at once, perhaps on one core."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long everything takes, in seconds.

    Args:
        run_s: of the load, warm-up included.
        warm_up_s: samples before that count for nothing.
        sample_every_s: between two samples.
        pause_every_s: between two pauses of Redis.
        tune_s: each step of the tuning.
        rest_s: from the end of the load until all must be let go of; an upstream connection may
            live twice `KEEPALIVE_S` after its last request, so less says nothing of files.
        resume_window_s: so short that what clients leave behind is forgotten many times over.
    """

    run_s: float
    warm_up_s: float
    sample_every_s: float = 1.0
    pause_every_s: float = 10.0
    tune_s: float = 5.0
    rest_s: float = 2 * KEEPALIVE_S + 10
    resume_window_s: float = 10.0


QUICK = Plan(
    run_s=4.0,
    warm_up_s=1.0,
    sample_every_s=0.3,
    pause_every_s=2.0,
    rest_s=4.0,
    resume_window_s=2.0,
)


@dataclass
class House:
    """All that runs.

    Args:
        routers: the replicas.
        redis_url: of their Redis.
        redis: a client of it.
        samples: by name of what was sampled, pairs of time and value.
    """

    routers: Sequence[Server]
    redis_url: str
    redis: aioredis.Redis
    samples: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    async def sample(self) -> dict[str, float]:
        """Look at everything once."""
        found: dict[str, float] = {}
        for router in self.routers:
            for name, value in memory_of(router.child).items():
                found[f"{router.name} {name}"] = value
            series = await metrics_of(router, ADMIN_KEY)
            found[f"{router.name} tasks"] = plain_of(series, "router_tasks")
            found[f"{router.name} streams"] = plain_of(series, "router_streams_in_flight")
        found["Redis keys"] = float(await self.redis.dbsize())
        found["Redis redis_mib"] = (await self.redis.info("memory"))["used_memory"] / MIB
        return found

    async def keep_sampling(self, every_s: float) -> None:
        """For ever."""
        while True:
            now_s = time.monotonic()
            for name, value in (await self.sample()).items():
                self.samples.setdefault(name, []).append((now_s, value))
            await asyncio.sleep(every_s)


# --- putting it up --------------------------------------------------------------------------------


@contextlib.contextmanager
def vendor(seed: int, prefix: str) -> Iterator[dict[str, str]]:
    """A process of failing providers; gives topic to base URL.

    Args:
        seed: of its faults.
        prefix: what it does with one.
    """
    command = [sys.executable, "-m", "benchmarks.soak_provider"]
    child = Child([*command, "--seed", str(seed), "--prefix", prefix], None)
    with contextlib.closing(child):
        urls: dict[str, str] = json.loads(child.first_line() or "{}")
        if not urls:
            raise RuntimeError("the failing providers did not start")
        yield urls


def configuration(
    vendors: dict[str, dict[str, str]], redis_url: str, window_s: float
) -> dict[str, Any]:
    """The routers' file: a route per topic, each with a target at each vendor.

    Args:
        vendors: topic to base URL of each.
        redis_url: of the record.
        window_s: how long a stream can be resumed.
    """
    lots = {"concurrent_streams": 1_000_000, "requests_per_minute": 10_000_000}
    return {
        "server": {
            "api_keys": [KEY],
            "admin_keys": [ADMIN_KEY],
            "limits": {**lots, "tokens_per_minute": 10_000_000_000},
        },
        "record": {"url": redis_url, "resume_window_s": window_s},
        "books": {"max_rows": KEPT_ROWS},
        "health": {"eject_after": 8, "eject_rate": 1, "cool_down_s": 0.5, "max_cool_down_s": 2},
        "providers": {
            f"{name}-{topic}": {"type": VENDORS[name][0], "base_url": url}
            for name, urls in vendors.items()
            for topic, url in urls.items()
        },
        "routes": {
            topic.name: {
                "targets": [{"provider": f"{name}-{topic.name}", "model": "m"} for name in vendors],
                "max_attempts": 6,
                "stall": stall,
                "timeouts": {"first_output_s": 2, "idle_s": 1, "total_s": 30},
            }
            for topic, stall in zip(
                TOPICS, itertools.cycle(["fixed", "adaptive", "hedge"]), strict=False
            )
        },
    }


@contextlib.contextmanager
def house(
    folder: Path, replicas: int, redis_url: str | None, seed: int, window_s: float
) -> Iterator[House]:
    """Everything, until the block is left.

    Args:
        folder: for files and logs.
        replicas: how many routers.
        redis_url: of a Redis that is there, or None to start one.
        seed: of the faults.
        window_s: how long a stream can be resumed.
    """
    with ExitStack() as stack:
        url = redis_url or stack.enter_context(redis_server(folder))
        if url is None:
            raise SystemExit("there is no redis-server; --redis URL names one")
        vendors = {
            name: stack.enter_context(vendor(seed + at, prefix))
            for at, (name, (_, prefix)) in enumerate(VENDORS.items())
        }
        config = configuration(vendors, url, window_s)
        routers = [
            stack.enter_context(real_router(f"router-{at}", config, folder))
            for at in range(1, replicas + 1)
        ]
        yield House(routers, url, aioredis.Redis.from_url(url))


async def ready(routers: Sequence[Server]) -> None:
    """Wait until each takes requests. Their sockets listen from the first moment on."""
    async with asyncio.timeout(START_S):
        for router in routers:
            answer = b""
            while not answer:
                with contextlib.suppress(TimeoutError):
                    answer = await ask(router, "/ready", ADMIN_KEY)


# --- the load -------------------------------------------------------------------------------------


class Crowd:
    """The clients.

    Args:
        routers: whom they ask.
        log: gets what they saw.
        seed: of their moods.
    """

    def __init__(self, routers: Sequence[Server], log: Log, seed: int) -> None:
        self._routers = routers
        self._log = log
        self._seed = seed
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []

    def grow(self, count: int) -> None:
        """Let there be so many.

        Args:
            count: not fewer than there are.
        """
        for number in range(len(self._clients), count):
            rng = random.Random(f"{self._seed} {number}")
            client = Client(self._routers, KEY, self._log, rng)
            self._clients.append(client)
            self._tasks.append(asyncio.create_task(client.run()))

    async def rate(self, for_s: float) -> float:
        """Requests a second, by watching for a while.

        Args:
            for_s: how long, in seconds.
        """
        before = self._log.seen.total()
        await asyncio.sleep(for_s)
        return (self._log.seen.total() - before) / for_s

    async def leave(self, count: int) -> None:
        """All but so many finish what they do, and stop.

        Args:
            count: how many stay.
        """
        gone, self._tasks = self._tasks[count:], self._tasks[:count]
        for client in self._clients[count:]:
            client.stop_s = 0.0
        del self._clients[count:]
        await asyncio.gather(*gone)


async def tune(crowd: Crowd, step_s: float) -> tuple[int, dict[int, float]]:
    """As many clients as bring nine tenths of the highest rate.

    Args:
        crowd: nobody yet.
        step_s: how long each number is watched, in seconds.

    Returns:
        How many, and the rates.
    """
    rates: dict[int, float] = {}
    for count in (8, 16, 32, 64, 128, 256):
        crowd.grow(count)
        await asyncio.sleep(step_s / 4)
        rates[count] = await crowd.rate(step_s)
        if rates[count] < 1.05 * max([0.0, *list(rates.values())[:-1]]):
            break
    enough = next(count for count, rate in rates.items() if rate >= 0.9 * max(rates.values()))
    await crowd.leave(enough)
    return enough, rates


async def keep_auditing(audit: Audit, router: Server) -> None:
    """For ever."""
    while True:
        await asyncio.sleep(1)
        await audit.look(router)


async def soak(plan: Plan, it: House, clients: int | None, seed: int) -> dict[str, Any]:
    """Run it all.

    Args:
        plan: how long.
        it: what runs.
        clients: how many, or None to find out.
        seed: of the clients' moods.

    Returns:
        Everything that was found, for the result's file.
    """
    log = Log()
    audit = Audit(log, ADMIN_KEY)
    await ready(it.routers)
    before = await it.sample()
    crowd = Crowd(it.routers, log, seed)
    pauses = itertools.cycle(PAUSES_S)
    async with asyncio.TaskGroup() as group:
        watchers = [
            group.create_task(keep_auditing(audit, it.routers[0])),
            group.create_task(trouble(it.redis, pauses, every_s=plan.pause_every_s)),
        ]
        count, rates = (clients, {}) if clients else await tune(crowd, plan.tune_s)
        crowd.grow(count)
        started_s, asked_before = time.monotonic(), log.seen.total()
        watchers.append(group.create_task(it.keep_sampling(plan.sample_every_s)))
        await asyncio.sleep(plan.run_s)
        asked, took_s = log.seen.total() - asked_before, time.monotonic() - started_s
        await crowd.leave(0)
        for watcher in watchers:
            watcher.cancel()
    after = await rest(plan, it, audit)
    return {
        "clients": count,
        "tuning_requests_per_s": rates,
        "seconds": round(took_s, 1),
        "requests": log.seen.total(),
        "requests_per_s": round(asked / took_s, 1),
        "delivered_chars": log.chars,
        "seen": dict(log.seen.most_common()),
        "refused": dict(log.refused),
        "wrong": dict(log.wrong),
        "examples": log.examples,
        "not_found": audit.forgotten[:MAX_WRONG],
        # Books that fill rise like a leak.
        "slopes": slopes(it.samples, max(started_s + plan.warm_up_s, audit.full_s)),
        "series": series(it.samples, started_s),
        "before": before,
        "after": after,
        "rested_s": plan.rest_s,
        "keys": dict(await keys_of(it.redis)),
        "books": await books(it, audit),
    }


async def rest(plan: Plan, it: House, audit: Audit) -> dict[str, float]:
    """Nobody asks any more: wait until all is let go of.

    Returns:
        The last sample.
    """
    until_s = time.monotonic() + plan.rest_s
    while time.monotonic() < until_s:
        await asyncio.sleep(1)
        await audit.look(it.routers[0])
    return await it.sample()


def slopes(samples: dict[str, list[tuple[float, float]]], since_s: float) -> dict[str, Slope]:
    """A line through each series after the warm-up.

    Args:
        samples: pairs of time and value.
        since_s: end of the warm-up.
    """
    warm = {name: [one for one in pairs if one[0] >= since_s] for name, pairs in samples.items()}
    return {
        name: Slope.through(*zip(*pairs, strict=True))
        for name, pairs in warm.items()
        if len(pairs) > 2
    }


def series(
    samples: dict[str, list[tuple[float, float]]], started_s: float
) -> dict[str, list[list[float]]]:
    """The samples, thinned: seconds since the start, and the value.

    Args:
        samples: pairs of time and value.
        started_s: the start.
    """
    return {
        name: [[round(t - started_s), round(v, 2)] for t, v in pairs[:: 1 + len(pairs) // POINTS]]
        for name, pairs in samples.items()
    }


async def books(it: House, audit: Audit) -> dict[str, Any]:
    """Whether rows, counters and the clients' log say the same."""
    told: Counter[str] = Counter()
    for router in it.routers:
        told.update(await metrics_of(router, ADMIN_KEY))
    events = labelled(told, "router_record_events_total", "event")
    return {
        "rows": audit.rows,
        "outcomes": dict(audit.outcomes.most_common()),
        "counted": dict(labelled(told, "router_requests_total", "outcome").most_common()),
        "refused": dict(labelled(told, "router_requests_refused_total", "status")),
        "faults": dict(labelled(told, "router_attempts_total", "fault").most_common()),
        "attempts": labelled(told, "router_attempts_total", "outcome").total(),
        "failovers": labelled(told, "router_failovers_total", "fault").total(),
        "record": {name: count for name, count in events.items() if count},
        "nameless": audit.log.nameless,
        **audit.close(),
    }


# --- the verdict ----------------------------------------------------------------------------------


def verdicts(found: dict[str, Any]) -> list[tuple[str, bool, str]]:
    """What must hold: its name, whether it does, the numbers.

    Args:
        found: by `soak`.
    """
    told, before, after = found["books"], found["before"], found["after"]
    wrong = sum(found["wrong"].values())
    seen = found["seen"]
    lists = [
        (
            "every answer is right, no silent end",
            not wrong,
            f"{seen.get('completed', 0)} completed, {wrong} wrong {found['wrong'] or ''}",
        ),
        (
            "a row for every request",
            not told["requests without a row"] and not told["rows without a request"],
            "{rows} rows; without one {requests without a row}, "
            "too many {rows without a request}".format_map(told),
        ),
        (
            "rows and counters agree",
            told["outcomes"] == told["counted"],
            f"{sum(told['counted'].values())} counted",
        ),
        (
            "refusals are counted",
            # Of a refusal that was left before its head came, only the router knows.
            0 <= _total(told["refused"]) - _total(found["refused"]) <= told["nameless"],
            f"{found['refused']} seen, {told['refused']} counted",
        ),
        (
            "no bug of the router's",
            not told["counted"].get("internal_error"),
            f"{told['counted'].get('internal_error', 0)} internal errors",
        ),
        (
            "who comes back in time finds the record",
            told["interrupted and not found"] <= 1 + MAX_NOT_FOUND * seen.get("left", 0),
            "{interrupted and not found} not found, "
            "{resumed too late, as it was completed} completed by then".format_map(told),
        ),
        (
            "of two who come back at once, one writes the end",
            seen.get("two wrote the end", 0) <= 1 + MAX_TWO_ENDS * _raced(seen),
            f"{seen.get('two wrote the end', 0)} of {_raced(seen)} wrote another",
        ),
        ("no record is left", *_no_record_left(found["keys"])),
    ]
    for name, line in found["slopes"].items():
        unit = name.split()[-1]
        if unit in MAX_RISE and line.hours > MIN_HOURS:
            noise = 2 * line.error_per_hour
            text = f"{line.first:.1f} to {line.last:.1f}, {line.per_hour:+.1f} ± {noise:.1f} per h"
            lists.append((f"{name} does not rise", line.rise <= MAX_RISE[unit], text))
    for name, value in after.items():
        unit = name.split()[-1]
        if unit in MAX_LEFT and (unit != "fds" or found["rested_s"] > 2 * KEEPALIVE_S):
            fine = value - before[name] <= MAX_LEFT[unit]
            lists.append((f"{name} let go of", fine, f"{before[name]:g} before, {value:g} after"))
    return lists


def _total(counts: dict[str, int]) -> int:
    return sum(counts.values())


def _raced(seen: dict[str, int]) -> int:
    """Those who came back twice at once, and met each other."""
    ways = ("record_fenced", "resume_conflict", "two were given the end", "two wrote the end")
    return sum(seen.get(one, 0) for one in ways)


def _no_record_left(keys: dict[str, int]) -> tuple[bool, str]:
    left = {name: count for name, count in keys.items() if "router:{*}" in name}
    return not left, f"keys: {keys}"


# --- the command ----------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--clients", type=int, help="by default it is tuned")
    parser.add_argument("--redis", metavar="URL", help="an empty one; by default one is started")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="seconds, to see that it works")
    parser.add_argument("--json", type=Path, default=RESULTS / "soak.json")
    parser.add_argument("--logs", type=Path, help="a folder that keeps the routers' logs")
    args = parser.parse_args()
    run_s = 60 * args.minutes
    plan = Plan(run_s=run_s, warm_up_s=run_s / 3 if run_s < 300 else 120)
    if args.quick:
        plan = QUICK
        args.clients = args.clients or 6
    measured = how_it_was_measured()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.logs or Path(scratch)
        with house(folder, args.replicas, args.redis, args.seed, plan.resume_window_s) as it:
            found = run(soak(plan, it, args.clients, args.seed))
    held = verdicts(found)
    print(table(["must hold", "", "numbers"], [[a, "yes" if b else "NO", c] for a, b, c in held]))
    for example in found["examples"]:
        print(example, file=sys.stderr)
    write_json(args.json, {"measured": measured, "plan": plan, **found, "held": held})
    return 0 if all(ok for _, ok, _ in held) else 1


if __name__ == "__main__":
    sys.exit(main())
