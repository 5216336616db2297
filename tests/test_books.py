"""The books against two other accounts of the same requests: the clients' and the providers'.

A thousand requests over real sockets, against providers that fail in every way the simulator knows,
from clients of whom some leave. Every draw is seeded; what happens then is compared, not predicted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from support.caller import Call, calling
from support.reading import Answer, check_contract
from support.redis_servers import BINARY, RedisServer, free_port
from support.routers import Router, running_router

from router.books import OUTCOMES, Row
from router.core.faults import FaultKind
from router.engine.observe import Detail, StreamEnded
from router.logs import LogObserver
from router.simulate import Script, SimulatedProvider, seeded_text

TEXT = seeded_text(23, 500)
AT_ONCE = 24
"""Requests under way together."""

FAULTS = (
    *("{}@{}".format(kind, "{n}") for kind in ("cut", "rst", "stall", "error", "error_then_done")),
    *("{}@{}".format(kind, "{n}") for kind in ("no_finish", "done_early", "finish_error")),
    "malformed@{n}", "error@{n},form=string", "error@{n},form=event", "cut_byte@{bytes}",
    "error@{n},status=429", "error@{n},status=401,code=invalid_api_key",
    "status=500", "status=503", "status=429,retry_after=30", "status=418",
    "unauthorized", "no_model", "context_length", "content_policy",
    "status=400,code=completed,message=No.", "status=422,code=%s" % ("x" * 150),
    "reset", "close", "silent", "role_then_silence", "slow_header", "keepalive_forever",
    "html", "done_only", "bad_length", "redirect",
)  # fmt: skip
HARMLESS = (
    "json",
    "no_done",
    "cut_after_finish",
    "gzip",
    "after_done_forever",
    "tokens_per_s=2000",
)

UNSEEN = {
    FaultKind.HEDGED,
    FaultKind.CLIENT_GONE,
    FaultKind.CONNECT,
    FaultKind.FIRST_OUTPUT_TIMEOUT,
    FaultKind.DEADLINE,
}
"""An attempt that ended so, without output, need not have reached its provider: on a machine that
is busy enough it is given up before its request is taken off the socket."""


@dataclass(kw_only=True)
class Said:
    """What one client can tell of its request."""

    question: str
    route: str
    outcome: str
    code: str = ""
    stream_id: str = ""
    delivered: str | None = None
    told: dict[str, Any] = field(default_factory=dict)
    status: int = 200


def draw_target(rng: random.Random, provider: str) -> dict[str, Any]:
    """A target that fails in its own way, or does not."""
    kind = rng.choice(FAULTS) if rng.random() < 0.6 else rng.choice((*HARMLESS, "", "", ""))
    orders = kind.format(n=rng.randint(1, 90), bytes=rng.randint(1, 20_000))
    return {"provider": provider, "model": f"sim!{orders}" if orders else "sim"}


def draw_routes(rng: random.Random, count: int) -> dict[str, Any]:
    """Routes of one to three targets, each judged in its own way."""
    routes = {}
    for number in range(count):
        names = rng.sample(["p1", "p2", "p3", "dead"], rng.randint(1, 3))
        routes[f"r{number}"] = {
            "targets": [draw_target(rng, name) for name in names],
            "timeouts": {"first_output_s": 0.4, "idle_s": 0.4, "total_s": 6},
            "retry": {"same_target": rng.randint(0, 1), "max_wait_s": 0.05},
            "max_attempts": rng.randint(1, 4),
            "stall": rng.choice(("fixed", "adaptive", "hedge")),
        }
    return routes


SPECIAL: dict[str, Any] = {
    "overtaken": {
        "targets": [
            {"provider": "p1", "model": "sim!stall@25"},
            {"provider": "p2", "model": "sim"},
        ],
        "timeouts": {"idle_s": 5},
        "stall": "hedge",
    },
    "recovered": {
        "targets": [
            {"provider": "p2", "model": "sim!stall@25,for_s=0.4"},
            {"provider": "p3", "model": "sim!silent"},
        ],
        "timeouts": {"idle_s": 5},
        "stall": "hedge",
    },
    "late": {
        "targets": [{"provider": "p3", "model": "sim!tokens_per_s=30"}],
        "timeouts": {"first_output_s": 0.5, "idle_s": 0.5, "total_s": 0.8},
    },
}
"""What chance would bring too seldom: two kinds of hedge, and a deadline."""


def patient(orders: str) -> dict[str, Any]:
    """A route on which nothing happens until the client leaves."""
    return {
        "targets": [{"provider": "p1", "model": f"sim!{orders}"}],
        "timeouts": {"first_output_s": 60, "idle_s": 60},
    }


@dataclass
class Stage:
    """Everything of one run."""

    router: Router
    providers: dict[str, SimulatedProvider]
    rows: list[Row]
    lines: list[dict[str, Any]]
    ended: asyncio.Condition
    ends: int = 0

    async def all_over(self, count: int) -> None:
        """Wait until so many requests are over for the router too."""
        async with asyncio.timeout(20), self.ended:
            await self.ended.wait_for(lambda: self.ends >= count)


class Lines(logging.Handler):
    """What the log says at the ends of streams."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "stream ended":
            self.fields.append(getattr(record, "fields", {}))


@asynccontextmanager
async def staged(routes: dict[str, Any], **sections: object) -> AsyncIterator[Stage]:
    """Three providers, one that nobody listens at, and a router."""
    ended, lines = asyncio.Condition(), Lines()
    log = logging.getLogger("test.books")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.handlers[:] = [lines]
    wakers: set[asyncio.Task[None]] = set()

    def count(detail: Detail) -> None:
        if isinstance(detail, StreamEnded):
            stage.ends += 1
            wakers.add(waker := asyncio.get_running_loop().create_task(wake()))
            waker.add_done_callback(wakers.discard)

    async def wake() -> None:
        async with ended:
            ended.notify_all()

    async with AsyncExitStack() as stack:
        providers = {
            name: await stack.enter_async_context(
                SimulatedProvider(script=Script(text=TEXT), faults=faults)
            )
            for name, faults in (("p1", None), ("p2", None), ("p3", None), ("dead", "refuse"))
        }
        config = {
            "providers": {
                name: {"type": kind, "base_url": providers[name].base_url}
                for name, kind in zip(
                    providers, ("vllm", "openai-compatible", "mistral", "vllm"), strict=True
                )
            },
            "routes": routes,
            **sections,
        }
        router = await stack.enter_async_context(
            running_router(config, observers=(LogObserver(log), count))
        )
        stage = Stage(router, providers, [], lines.fields, ended)
        yield stage


# --- the clients ----------------------------------------------------------------------------------


async def reads(stage: Stage, question: str, route: str, *, stream: bool) -> Said:
    """A client that stays to the end."""
    headers = {"X-Router-Metadata": "always"}
    async with calling(
        stage.router.base_url, model=route, content=question, stream=stream, headers=headers
    ) as call:
        answer = await call.answer()
    said = Said(question=question, route=route, outcome="completed", status=answer.status)
    said.stream_id = answer.headers.get("x-router-stream-id", "")
    if answer.status == 200 and stream and answer.error is None:
        check_contract(answer)
        said.told = answer.metadata or {}
        said.delivered = answer.delivered
        if answer.finish_reasons == ["stop"]:
            assert answer.canonical == TEXT
        return said
    if answer.status == 200 and not stream:
        body = json.loads(answer.raw)
        assert body["choices"][0]["finish_reason"]
        said.told = body["router"]
        return said
    error = answer.error if answer.status == 200 else json.loads(answer.raw)["error"]
    assert error is not None
    assert not answer.finish_reasons
    assert not answer.done
    said.code = error["code"] or "refused"
    said.outcome = said.code if said.code in OUTCOMES and said.code != "completed" else "refused"
    said.told = error.get("router", {})
    said.delivered = answer.delivered if answer.status == 200 else None
    return said


async def leaves_early(stage: Stage, question: str, route: str) -> Said:
    """A client that leaves before it has heard anything."""
    provider = stage.providers["p1"]
    async with calling(stage.router.base_url, model=route, content=question):
        await provider.until(lambda: any(question in str(r.body) for r in provider.requests))
    return Said(question=question, route=route, outcome="client_gone", code="client_gone")


async def leaves_midway(stage: Stage, question: str, route: str) -> Said:
    """A client that leaves with part of the answer, which nobody is going to finish."""
    async with calling(stage.router.base_url, model=route, content=question) as call:
        while '"content":"' not in text_so_far(call):
            assert await call.read()
        headers = call.so_far().headers
    said = Said(question=question, route=route, outcome="client_gone", code="client_gone")
    said.stream_id = headers["x-router-stream-id"]
    return said


def text_so_far(call: Call) -> str:
    return bytes(call._raw).decode()


async def refused(stage: Stage, number: int) -> int:
    """A client whose request is none."""
    what: tuple[dict[str, Any], int] = (
        ({"model": "none-such"}, 404),
        ({"messages": []}, 400),
        ({"temperature": "warm", "messages": "hello"}, 400),
    )[number % 3]
    async with calling(stage.router.base_url, **{"model": "r0", **what[0]}) as call:
        answer: Answer = await call.answer()
    assert answer.status == what[1]
    return answer.status


async def crowd(stage: Stage, rng: random.Random, count: int, routes: Sequence[str]) -> list[Said]:
    """All of them, some at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> Said:
        question, kind = f"question-{number:04}", kinds[number]
        async with slots:
            if kind == "early":
                return await leaves_early(stage, question, f"gone{number}")
            if kind == "midway":
                return await leaves_midway(stage, question, "left")
            return await reads(stage, question, chosen[number], stream=kind == "stream")

    kinds = rng.choices(("stream", "block", "midway", "early"), (76, 14, 6, 4), k=count)
    chosen = rng.choices(routes, k=count)
    return list(await asyncio.gather(*(one(number) for number in range(count))))


def early_routes(count: int) -> dict[str, Any]:
    """A route of its own for each client that will never learn the id of its stream."""
    return {f"gone{number}": patient("silent") for number in range(count)}


# --- the comparison -------------------------------------------------------------------------------


async def asked(stage: Stage, path: str, **query: str | int) -> Any:  # noqa: ANN401 - JSON
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        root = stage.router.base_url.removesuffix("/v1")
        response = await client.get(f"{root}{path}", params=query)
    assert response.status_code == 200, response.text
    return response.text if path == "/metrics" else response.json()


async def all_rows(stage: Stage, books: str) -> list[Row]:
    """Page by page, as an owner reads them."""
    rows: list[Row] = []
    cursor: dict[str, str | int] = {}
    while True:
        page = await asked(stage, "/router/requests", limit=170, **cursor)
        assert page["books"] == books
        assert len(page["data"]) <= 170
        rows += [msgspec.convert(row, Row) for row in page["data"]]
        if page["next_cursor"] is None:
            return rows
        cursor = {"cursor": page["next_cursor"]}


def series(text: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Prometheus's text format, read strictly."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    kinds: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("#"):
            _, what, name, rest = line.split(" ", 3)
            assert what in ("HELP", "TYPE")
            if what == "TYPE":
                assert name not in kinds
                assert rest in ("counter", "gauge", "histogram")
                kinds[name] = rest
            continue
        whole = re.fullmatch(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)', line)
        assert whole is not None, line
        base = re.sub(r"_(bucket|sum|count)$", "", whole[1])
        assert whole[1] in kinds or kinds[base] == "histogram"
        labels = frozenset(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', whole[2] or ""))
        assert labels not in found.setdefault(whole[1], {})
        found[whole[1]][labels] = float(whole[3])
    return found


def by(counted: dict[frozenset[tuple[str, str]], float], *names: str) -> Counter[tuple[str, ...]]:
    """Sums over all other labels; series that stand at 0 say nothing."""
    sums: Counter[tuple[str, ...]] = Counter()
    for labels, value in counted.items():
        sums[tuple(dict(labels)[name] for name in names)] += int(value)
    return +sums


def check_against_clients(rows: Sequence[Row], log: Sequence[Said]) -> dict[str, Row]:
    """Every row's outcome is what its client says. Gives the row of each question."""
    by_id = {row.stream_id: row for row in rows}
    by_route = {row.route: row for row in rows}
    assert len(by_id) == len(rows) == len(log)
    found = {}
    for said in log:
        row = by_id[said.stream_id] if said.stream_id else by_route[said.route]
        found[said.question] = row
        assert (row.outcome, row.route) == (said.outcome, said.route), said
        assert row.code == said.code[:100], said
        assert bool(row.finish) == (said.outcome == "completed")
        if said.delivered is not None:
            assert row.delivered_chars == len(said.delivered)
        if said.told:
            told = [(one["target"], one["fault"]) for one in said.told["attempts"]]
            assert [(one.target, one.fault) for one in row.attempts] == told
            assert len(row.failovers) == len(said.told["failovers"])
    assert len({id(row) for row in found.values()}) == len(rows)
    return found


def check_against_providers(stage: Stage, rows: dict[str, Row]) -> int:
    """Every attempt that a provider saw is in the row of its question, and in no other."""
    seen: Counter[tuple[str, str]] = Counter()
    for name, provider in stage.providers.items():
        for record in provider.requests:
            named = re.search(r"question-\d{4}", str(record.body["messages"]))
            assert named is not None
            seen[named[0], f"{name}/{record.body['model']}"] += 1
    booked: Counter[tuple[str, str]] = Counter()
    given_up: Counter[tuple[str, str]] = Counter()
    for question, row in rows.items():
        assert [entry.number for entry in row.attempts] == list(range(1, len(row.attempts) + 1))
        for entry in row.attempts:
            key = question, entry.target
            if entry.target.startswith("dead/"):
                assert entry.fault in ("connect", "hedged")
            elif entry.fault in UNSEEN and not entry.chunks:
                given_up[key] += 1
            else:
                booked[key] += 1
    for key in seen.keys() | booked.keys():
        assert booked[key] <= seen[key] <= booked[key] + given_up[key], str(rows[key[0]].attempts)
    return sum(seen.values())


def check_against_counters(text: str, rows: Sequence[Row], refusals: Sequence[int]) -> None:
    """The counters add up to the rows."""
    counted = series(text)
    entries = [entry for row in rows for entry in row.attempts]
    changes = [change for row in rows for change in row.failovers]
    assert by(counted["router_requests_total"], "route", "outcome") == Counter(
        (row.route, row.outcome) for row in rows
    )
    assert by(counted["router_requests_refused_total"], "status") == Counter(
        (str(status),) for status in refusals
    )
    assert by(counted["router_attempts_total"], "target", "outcome", "fault") == Counter(
        (one.target, one.outcome, one.fault or "none") for one in entries
    )
    assert by(counted["router_failovers_total"], "from", "to", "fault") == Counter(
        (one.from_target, one.to_target, one.fault) for one in changes
    )
    tokens = by(counted["router_tokens_total"], "direction")
    for direction, name in (("input", "prompt_tokens"), ("output", "completion_tokens")):
        assert tokens[direction,] == sum(one.usage.get(name, 0) for one in entries)
    pauses = [change.pause_ms for change in changes if change.pause_ms is not None]
    assert by(counted["router_failover_pause_seconds_count"]) == Counter({(): len(pauses)})
    total_s = sum(counted["router_failover_pause_seconds_sum"].values())
    assert total_s == pytest.approx(sum(pauses) / 1000)
    firsts = [row for row in rows if row.first_output_ms is not None]
    assert by(counted["router_first_output_seconds_count"]) == Counter({(): len(firsts)})
    for name in ("delivered_chars", "superseded_chars"):
        wanted = sum(getattr(row, name) for row in rows)
        assert sum(counted[f"router_{name}_total"].values()) == wanted
    assert counted["router_streams_in_flight"] == {frozenset(): 0}
    assert sum(counted["router_ejections_total"].values()) > 0


async def check_filters(stage: Stage, rows: Sequence[Row]) -> None:
    """A filter finds what counting by hand finds."""
    for outcome in {row.outcome for row in rows}:
        page = await asked(stage, "/router/requests", outcome=outcome, limit=1000)
        ids = [row["stream_id"] for row in page["data"]]
        assert ids == [row.stream_id for row in rows if row.outcome == outcome]
    entry = next(one for row in rows for one in row.attempts if one.fault == "cut")
    page = await asked(stage, "/router/requests", target=entry.target, fault="cut", limit=1000)
    assert [row["stream_id"] for row in page["data"]] == [
        row.stream_id
        for row in rows
        if any((one.target, one.fault) == (entry.target, "cut") for one in row.attempts)
    ]


def check_against_log(lines: Sequence[dict[str, Any]], rows: Sequence[Row]) -> None:
    """The log says the same, field by field."""
    said = {line["stream_id"]: line for line in lines}
    assert len(said) == len(lines) == len(rows)
    for row in rows:
        kept = msgspec.to_builtins(row)
        del kept["replica"]
        assert msgspec.json.decode(msgspec.json.encode(said[row.stream_id])) == msgspec.json.decode(
            msgspec.json.encode(kept)
        )


@pytest.fixture
def redis_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | None]:
    if request.param is None:
        yield None
        return
    if BINARY is None:
        pytest.skip("no redis-server binary: the books in Redis are not tested here")
    server = RedisServer(tmp_path, free_port())
    server.start()
    yield server.url
    server.kill()


@pytest.mark.parametrize(
    ("redis_url", "count"),
    [pytest.param(None, 1000, id="memory"), pytest.param("redis", 150, id="redis")],
    indirect=["redis_url"],
)
async def test_the_books_agree_with_clients_providers_log_and_counters(
    redis_url: str | None, count: int
) -> None:
    rng = random.Random(20 + count)  # noqa: S311 - seeded on purpose
    drawn = {**draw_routes(rng, 90), **SPECIAL}
    routes = {**drawn, "left": patient("stall@20"), **early_routes(count)}
    sections: dict[str, Any] = {"health": {"cool_down_s": 0.5, "max_cool_down_s": 1}}
    if redis_url is not None:
        sections["record"] = {"url": redis_url}
    async with staged(routes, **sections) as stage:
        for route in stage.router.serving.generation.routes.values():
            for target in route.targets if route.stall.value == "hedge" else ():
                for _ in range(8):
                    target.gaps.add(0.01)  # what a day of traffic would have taught
        log = await crowd(stage, rng, count, list(drawn))
        refusals = [await refused(stage, number) for number in range(30)]
        await stage.all_over(count)
        shared: Any = stage.router.serving.books._shared
        if shared is not None:
            await shared.flushed()

        rows = await all_rows(stage, "all" if redis_url else "this process")
        found = check_against_clients(rows, log)
        seen = check_against_providers(stage, found)
        text = await asked(stage, "/metrics")
        check_against_counters(text, rows, refusals)
        await check_filters(stage, rows)
        check_against_log(stage.lines, rows)
    # The draw was worth it: nothing of this was compared with nothing.
    faults = {entry.fault for row in rows for entry in row.attempts}
    assert {row.outcome for row in rows} >= {
        "completed", "client_gone", "refused", "all_targets_failed", "stream_interrupted",
    }  # fmt: skip
    if count == 1000:
        elsewhere = {
            FaultKind.DIVERGED,
            FaultKind.SCHEMA_VIOLATION,
            FaultKind.BOUNDARY_REJECTED,
            FaultKind.ABANDONED,
        }
        assert {kind for kind in FaultKind if kind not in faults} <= elsewhere
    assert seen > count
    assert sum(row.outcome == "completed" for row in rows) > count / 3
    assert sum(len(row.failovers) for row in rows) > count / 20
