"""What the router costs: CPU per chunk, time to the first token, memory per stream, and growth.

    python -m benchmarks.overhead [--quick] [--json FILE]

Everything is compared within one run, in turns: the router, a direct connection, and three
proxies that do almost nothing (`floor.py`). CPU time is what the kernel booked for the process. The
simulated provider, each proxy, Redis and this client are processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import (
    RESULTS,
    Answer,
    Heard,
    Server,
    Spread,
    ask,
    how_it_was_measured,
    open_stream,
    read,
    real_router,
    redis_server,
    run,
    served,
    simulated_provider,
    table,
    write_json,
)

FLOORS = ("copy", "parse", "stack")
KINDS = "prose,dialogue,facts,list,code"
CHARS_PER_TOKEN = 7
"""Above what the simulated text has, so that no answer is too short."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is run.

    Args:
        streams: at once, where the cost of a chunk is measured.
        tokens: of each answer there.
        pace: tokens a second of each.
        rounds: how often each takes its turn.
        probes: requests one after another, for the first token.
        growth_streams: numbers of streams for the growth, and their pace.
        growth_seconds: length of each of these.
        lengths: tokens of an answer, for the growth; the longest is run once, others as often as
            it takes to have as many tokens.
        length_streams: streams at once there, and their pace.
        held: numbers of streams held open, for the memory.
        variants: the router with Redis and with `sentences: fast` as well, and memory measured
            in a fresh process.
    """

    streams: int
    tokens: int
    pace: int
    rounds: int
    probes: int
    growth_streams: tuple[tuple[int, int], ...]
    growth_seconds: float
    lengths: tuple[int, ...]
    length_streams: tuple[int, int]
    held: tuple[int, ...]
    variants: bool


FULL = Plan(
    streams=50,
    tokens=200,
    pace=50,
    rounds=4,
    probes=60,
    growth_streams=((1, 50), (10, 50), (25, 50), (50, 50), (100, 25), (200, 12)),
    growth_seconds=4,
    lengths=(1_000, 4_000, 16_000),
    length_streams=(3, 1000),
    held=(100, 200, 400),
    variants=True,
)
QUICK = Plan(
    streams=3,
    tokens=30,
    pace=100,
    rounds=1,
    probes=2,
    growth_streams=((1, 100), (3, 100)),
    growth_seconds=0.2,
    lengths=(50, 200),
    length_streams=(2, 500),
    held=(4, 8),
    variants=False,
)


class Broken(Exception):
    """An answer was not whole: then its cost says nothing."""


def paced(rate: float, answer: str = "short") -> str:
    """The model's name, which tells the simulated provider how fast to go.

    Args:
        rate: tokens a second.
        answer: `short` or `long`; the long one has a provider of its own, since a provider that has
            much to say takes longer to begin.
    """
    return f"{answer}!tokens_per_s={rate}"


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU of one process during one wave of streams.

    Args:
        chunks: that the client read while it was measured.
        cpu_s: for them.
    """

    chunks: int
    cpu_s: float

    @property
    def per_chunk_us(self) -> float:
        """Microseconds of CPU per chunk."""
        return 1e6 * self.cpu_s / self.chunks


# --- what is measured -----------------------------------------------------------------------------


async def wave(
    server: Server, *, streams: int, tokens: int, rate: float, answer: str = "short"
) -> list[Answer]:
    """Streams at once, begun within one token's time.

    Args:
        server: whom to ask.
        streams: how many.
        tokens: length of each answer.
        rate: tokens a second of each.
        answer: as of `paced`.
    """

    async def one(number: int) -> Heard:
        await asyncio.sleep(number / streams / rate)
        return await ask(server, model=paced(rate, answer), max_tokens=tokens)

    answers = [read(one) for one in await asyncio.gather(*(one(n) for n in range(streams)))]
    for got in answers:
        if not got.whole or len(got.pieces) != tokens:
            raise Broken(f"{server.name}: {len(got.pieces)} of {tokens} tokens")
    return answers


async def cost_of_chunks(server: Server, *, streams: int, tokens: int, rate: float) -> Cost:
    """The cost of the chunks alone: from when all streams run until the first one ends.

    Args:
        server: whose.
        streams: how many at once.
        tokens: length of each answer.
        rate: tokens a second of each.
    """
    began_s = time.perf_counter()
    running = asyncio.create_task(wave(server, streams=streams, tokens=tokens, rate=rate))
    length_s = tokens / rate
    await asyncio.sleep(max(0.15 * length_s, 1.5 / rate))
    from_s, from_cpu_s = time.perf_counter(), server.child.cpu_s()
    await asyncio.sleep(began_s + 0.95 * length_s - time.perf_counter())
    to_s, to_cpu_s = time.perf_counter(), server.child.cpu_s()
    answers = await running
    chunks = sum(from_s <= piece.at_s < to_s for one in answers for piece in one.pieces)
    return Cost(chunks, to_cpu_s - from_cpu_s)


async def chunk_costs(servers: Sequence[Server], plan: Plan) -> dict[str, list[Cost]]:
    """Each in turn, several times.

    Args:
        servers: whose cost.
        plan: what is run.
    """
    costs: dict[str, list[Cost]] = {server.name: [] for server in servers}
    for turn in range(plan.rounds):
        first = turn % len(servers)
        for server in (*servers[first:], *servers[:first]):
            costs[server.name].append(
                await cost_of_chunks(
                    server, streams=plan.streams, tokens=plan.tokens, rate=plan.pace
                )
            )
    return costs


async def first_tokens(servers: Sequence[Server], probes: int) -> dict[str, list[float]]:
    """Milliseconds to the first token of a provider that does not think, request by request.

    Args:
        servers: each asked in turn.
        probes: how often.
    """
    times: dict[str, list[float]] = {server.name: [] for server in servers}
    for _ in range(probes):
        for server in servers:
            answer = read(await ask(server, model=paced(1000), max_tokens=2))
            times[server.name].append(1000 * answer.first_token_s)
    return times


async def busy_first_tokens(
    servers: Sequence[Server], direct: Server, plan: Plan
) -> dict[str, list[float]]:
    """The same while each carries its paced streams; the direct connection is asked beside them.

    Args:
        servers: each loaded in turn.
        direct: the provider.
        plan: what is run.
    """
    times: dict[str, list[float]] = {}
    for server in servers:
        load = asyncio.create_task(
            wave(server, streams=plan.streams, tokens=plan.tokens, rate=plan.pace)
        )
        await asyncio.sleep(0.2 * plan.tokens / plan.pace)
        found = await first_tokens([direct, server], plan.probes // 2)
        for name, values in found.items():
            times.setdefault(name, []).extend(values)
        await load
    return times


async def request_cost_us(server: Server, count: int) -> float:
    """CPU of a request with two tokens: everything that is paid once per stream.

    Args:
        server: whose.
        count: how many, one after another.
    """
    before_s = server.child.cpu_s()
    for _ in range(count):
        await ask(server, model=paced(1000), max_tokens=2)
    return 1e6 * (server.child.cpu_s() - before_s) / count


async def by_streams(servers: Sequence[Server], plan: Plan) -> list[dict[str, Any]]:
    """How the cost of a chunk changes with the number of streams.

    Args:
        servers: each in turn, for each number.
        plan: what is run.
    """
    found: list[dict[str, Any]] = []
    for streams, rate in plan.growth_streams:
        tokens = round(plan.growth_seconds * rate)
        row: dict[str, Any] = {"streams": streams, "tokens_per_s": rate}
        for server in servers:
            cost = await cost_of_chunks(server, streams=streams, tokens=tokens, rate=rate)
            row[server.name] = round(cost.per_chunk_us, 1)
        found.append(row)
    return found


async def by_length(servers: Sequence[Server], plan: Plan) -> list[dict[str, Any]]:
    """How the cost of a whole answer changes with its length, everything included.

    Args:
        servers: each in turn, for each length.
        plan: what is run.
    """
    streams, rate = plan.length_streams
    found: list[dict[str, Any]] = []
    for tokens in plan.lengths:
        row: dict[str, Any] = {"tokens": tokens, "answers": 0}
        for server in servers:
            before_s = server.child.cpu_s()
            waves = max(plan.lengths) // tokens
            for _ in range(waves):
                await wave(server, streams=streams, tokens=tokens, rate=rate, answer="long")
            answers = waves * streams
            cpu_s = server.child.cpu_s() - before_s
            row["answers"] = answers
            row[f"{server.name}_ms_per_answer"] = round(1000 * cpu_s / answers, 2)
            row[f"{server.name}_us_per_token"] = round(1e6 * cpu_s / answers / tokens, 1)
        found.append(row)
    return found


@contextlib.asynccontextmanager
async def held_open(server: Server, streams: int) -> AsyncIterator[None]:
    """Streams that are open, have said something, and say no more.

    Args:
        server: whose.
        streams: how many.
    """
    opened = [await open_stream(server, model="short!stall@40") for _ in range(streams)]
    give_up_s = time.monotonic() + 30
    while any(one.heard.raw.count(b'"content":"') < 40 for one in opened):
        if time.monotonic() > give_up_s:
            raise Broken(f"{server.name}: {streams} streams do not open")
        await asyncio.sleep(0.05)
    try:
        yield
    finally:
        await asyncio.gather(*(one.abandon() for one in opened))


async def memory(server: Server, held: Sequence[int]) -> dict[str, Any]:
    """Memory per open stream: the slope over growing numbers of them, in a fresh process.

    Args:
        server: whose.
        held: the numbers.
    """
    await ask(server, model=paced(1000), max_tokens=2)
    points: list[tuple[int, int]] = []
    async with contextlib.AsyncExitStack() as stack:
        open_now = 0
        for count in held:
            await stack.enter_async_context(held_open(server, count - open_now))
            open_now = count
            points.append((count, server.child.memory_bytes()))
    slope = statistics.linear_regression(*zip(*points, strict=True)).slope
    return {
        "bytes": dict(points),
        "kib_per_stream": round(slope / 1024, 1),
    }


# --- the run --------------------------------------------------------------------------------------


def configuration(
    providers: Mapping[str, Server], plan: Plan, redis: str | None, sentences: str
) -> dict[str, Any]:
    """Routes named as their target's model, so that one request suits every server.

    Args:
        providers: of the short and of the long answer.
        plan: what is run.
        redis: URL for the record, or None for memory.
        sentences: who decides where a sentence ends.
    """
    rates = {1000, plan.pace, plan.length_streams[1], *(rate for _, rate in plan.growth_streams)}
    models = [*(paced(rate) for rate in sorted(rates)), "short!stall@40"]
    models.append(paced(plan.length_streams[1], "long"))
    return {
        "record": {"url": redis} if redis else {},
        "providers": {
            name: {"type": "vllm", "base_url": one.base_url} for name, one in providers.items()
        },
        "routes": {
            model: {
                "targets": [{"provider": model.partition("!")[0], "model": model}],
                "timeouts": {"idle_s": 600},
                "sentences": sentences,
            }
            for model in models
        },
    }


@dataclass(frozen=True, kw_only=True)
class Stage:
    """All that runs.

    Args:
        direct: the provider, asked directly.
        floors: the three proxies.
        routers: in memory, with Redis, and with `sentences: fast`, as far as they can be had.
        parse_long: the proxy that parses, before the provider of the long answer.
        fresh: a router that was asked nothing yet.
    """

    direct: Server
    floors: tuple[Server, ...]
    routers: tuple[Server, ...]
    parse_long: Server
    fresh: Server


@contextlib.contextmanager
def everything(plan: Plan) -> Iterator[Stage]:
    """Start it all, and end it all.

    Args:
        plan: what is run.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def provider(name: str, tokens: float) -> Server:
            chars = str(round(CHARS_PER_TOKEN * tokens))
            options = ("--seed", "cost", "--chars", chars, "--kinds", KINDS)
            return stack.enter_context(simulated_provider(name, *options))

        rates = (plan.pace, *(rate for _, rate in plan.growth_streams))
        direct = provider("direct", max(plan.tokens, plan.growth_seconds * max(rates)))
        providers = {"short": direct, "long": provider("long", max(plan.lengths))}

        def floor(kind: str, upstream: Server = direct) -> Server:
            command = [sys.executable, "-m", "benchmarks.floor", kind]
            command += ["--upstream", str(upstream.port)]
            log = folder / f"{kind}-{upstream.name}.log"
            return stack.enter_context(served(kind, command, log))

        def router(name: str, redis: str | None = None, sentences: str = "pysbd") -> Server:
            config = configuration(providers, plan, redis, sentences)
            return stack.enter_context(real_router(name, config, folder))

        routers = [router("router")]
        url = stack.enter_context(redis_server(folder)) if plan.variants else None
        if url:
            routers.append(router("router, Redis", url))
        if plan.variants and importlib.util.find_spec("sentencex"):
            routers.append(router("router, fast", sentences="fast"))
        yield Stage(
            direct=direct,
            floors=tuple(floor(kind) for kind in FLOORS),
            routers=tuple(routers),
            parse_long=floor("parse", providers["long"]),
            fresh=router("fresh-router") if plan.variants else routers[0],
        )


async def measure(stage: Stage, plan: Plan) -> dict[str, Any]:
    """All of it.

    Args:
        stage: what runs.
        plan: what is run.
    """
    proxies = (*stage.floors, *stage.routers)
    for server in (stage.direct, *proxies):  # warm
        await wave(server, streams=plan.streams, tokens=20, rate=plan.pace)
    costs = await chunk_costs(proxies, plan)
    return {
        "cpu_per_chunk": {
            name: {
                "us": Spread.of([one.per_chunk_us for one in ones], digits=1),
                "chunks": sum(one.chunks for one in ones),
            }
            for name, ones in costs.items()
        },
        "cpu_per_request_us": {
            server.name: round(await request_cost_us(server, plan.probes)) for server in proxies
        },
        "first_token_ms": {
            name: Spread.of(values)
            for name, values in (await first_tokens((stage.direct, *proxies), plan.probes)).items()
        },
        "first_token_ms_busy": {
            name: Spread.of(values)
            for name, values in (await busy_first_tokens(proxies, stage.direct, plan)).items()
        },
        "by_streams_us_per_chunk": await by_streams((stage.floors[1], stage.routers[0]), plan),
        "by_length": await by_length((stage.parse_long, stage.routers[0]), plan),
        "memory": await memory(stage.fresh, plan.held),
    }


def show(found: dict[str, Any]) -> None:
    """The tables.

    Args:
        found: what was measured.
    """
    chunk = {name: one["us"].median for name, one in found["cpu_per_chunk"].items()}
    idle, busy = found["first_token_ms"], found["first_token_ms_busy"]
    rows = [
        [
            name,
            us,
            round(us / chunk["copy"], 2),
            round(us / chunk["parse"], 2),
            round(us / chunk["stack"], 2),
            found["cpu_per_request_us"][name],
            round(idle[name].median - idle["direct"].median, 2),
            round(busy[name].median - busy["direct"].median, 2),
        ]
        for name, us in chunk.items()
    ]
    header = ("", "CPU per chunk, us", "x copy", "x parse", "x stack", "per request, us")
    print(table((*header, "first token, +ms", "the same, busy"), rows))
    print(
        f"\nFirst token asked directly: {idle['direct'].median} ms, busy {busy['direct'].median} ms"
    )
    for name in ("by_streams_us_per_chunk", "by_length"):
        print(f"\n{name}\n")
        print(table(tuple(found[name][0]), [tuple(row.values()) for row in found[name]]))
    print(f"\nMemory per open stream: {found['memory']['kib_per_stream']} KiB")


def main(argv: Sequence[str] | None = None) -> int:
    """Run it.

    Args:
        argv: arguments; None takes the process's own.

    Returns:
        0, or 1 if an answer was not whole.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tiny run that only shows it works")
    parser.add_argument("--json", type=Path, default=RESULTS / "overhead.json")
    args = parser.parse_args(argv)
    plan = QUICK if args.quick else FULL
    how = how_it_was_measured()
    began_s = time.monotonic()
    try:
        with everything(plan) as stage:
            found = run(measure(stage, plan))
    except Broken as broken:
        print(broken, file=sys.stderr)
        return 1
    show(found)
    how["took_s"] = round(time.monotonic() - began_s, 1)
    write_json(args.json, {"measured": how, "plan": plan, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
