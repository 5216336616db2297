"""What a router's owner may ask, and who is taken for one."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from support.caller import called
from support.reading import ask
from support.redis_servers import BINARY, RedisServer, free_port
from support.routers import Router, routed, running_router

from router.api.admin import authorize_admin
from router.api.asgi import Scope
from router.api.serving import Generation, Settings
from router.books import OUTCOMES, Books, Row, Wanted, row_of
from router.books.rows import MAX_ROW_BYTES, encode
from router.books.search import search
from router.core.faults import Fault, FaultKind, Verdict
from router.engine import failures
from router.engine.observe import StreamEnded, TargetEjected
from router.engine.report import AttemptReport, FailoverReport, StreamReport
from router.errors import RequestError
from router.metrics import CONTENT_TYPE, OTHER, Metrics, Present
from router.simulate import Script, SimulatedProvider, seeded_text
from router.store.ledger import MemoryLedger

TEXT = seeded_text(5, 400)
_ids = itertools.count()


def attempt(**changes: Any) -> AttemptReport:  # noqa: ANN401 - any field
    plain: dict[str, Any] = {
        "number": 1, "target": "p1/m", "model": "m", "style": "", "started_ms": 0.0,
        "first_output_ms": 12.34, "last_output_ms": 50.0, "duration_ms": 60.0, "output_chars": 100,
        "chunks": 20, "reasoning_chars": 0, "fault": None, "usage_estimated": False,
        "usage": {"prompt_tokens": 5, "completion_tokens": 25},
    }  # fmt: skip
    return AttemptReport(**{**plain, **changes})


def report(**changes: Any) -> StreamReport:  # noqa: ANN401 - any field
    plain: dict[str, Any] = {
        "stream_id": f"stream-{next(_ids)}", "route": "chat", "outcome": "completed",
        "started_unix_s": 1_700_000_000.0, "duration_ms": 1_000.0, "first_output_ms": 20.0,
        "attempts": (attempt(),), "failovers": (), "superseded": (), "delivered_chars": 100,
        "committed_chars": 90, "boundaries": 3, "usage": {"total_tokens": 30}, "finish": "stop",
    }  # fmt: skip
    return StreamReport(**{**plain, **changes})


class Owner:
    """Who asks a router about itself."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self._root = router.base_url.removesuffix("/v1")

    async def get(
        self, path: str, *, key: str | None = None, method: str = "GET"
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            return await client.request(method, self._root + path, headers=headers)

    async def rows(self, query: str = "") -> list[dict[str, Any]]:
        answer = await self.get(f"/router/requests{query}")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["data"]
        return found

    async def ids(self, query: str = "") -> list[str]:
        return [row["stream_id"] for row in await self.rows(query)]

    def enter(self, *reports: StreamReport) -> None:
        for one in reports:
            self.router.serving.books(StreamEnded(report=one))


@asynccontextmanager
async def owned(**sections: Any) -> AsyncIterator[Owner]:  # noqa: ANN401 - of the configuration
    config = routed("http://127.0.0.1:9/v1", "http://127.0.0.1:9/v2", **sections)
    async with running_router(config) as router:
        yield Owner(router)


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    async with owned() as made:
        yield made


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    if BINARY is None:
        pytest.skip("no redis-server binary: the shared books are not tested here")
    server = RedisServer(tmp_path, free_port())
    server.start()
    yield server
    server.kill()


def complaint(answer: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()["error"]
    assert answer.status_code >= 400
    assert set(found) >= {"message", "type", "param", "code"}
    return found


# --- who is let in --------------------------------------------------------------------------------

PATHS = ("/router/requests", "/router/requests/x", "/router/targets", "/metrics", "/router/none")


@pytest.mark.parametrize("path", PATHS)
async def test_the_owners_keys_open_it_and_a_clients_does_not(path: str) -> None:
    async with owned(server={"api_keys": ["client"], "admin_keys": ["owner", "deputy"]}) as one:
        for key in (None, "client", "owne", "wrong"):
            answer = await one.get(path, key=key)
            assert answer.status_code == 401
            assert complaint(answer)["code"] == "invalid_api_key"
            assert "server.admin_keys" in complaint(answer)["message"]
            assert answer.headers["www-authenticate"] == "Bearer"
        wanted = 404 if path in ("/router/requests/x", "/router/none") else 200
        for key in ("owner", "deputy"):
            assert (await one.get(path, key=key)).status_code == wanted
        assert (await one.get("/v1/models", key="owner")).status_code == 401


@pytest.mark.parametrize("path", PATHS)
async def test_without_keys_of_its_own_a_clients_key_opens_it(path: str) -> None:
    async with owned(server={"api_keys": ["client"]}) as one:
        assert (await one.get(path)).status_code == 401
        assert (await one.get(path, key="client")).status_code in (200, 404)


@pytest.mark.parametrize("path", PATHS)
async def test_without_any_keys_only_this_machine_is_let_in(path: str) -> None:
    async with owned() as one:
        assert (await one.get(path)).status_code in (200, 404)


@pytest.mark.parametrize(
    ("client", "let_in"),
    [
        (("127.0.0.1", 5), True), (("127.9.9.9", 5), True), (("::1", 5), True),
        (("::ffff:127.0.0.1", 5), True), (("::ffff:10.0.0.1", 5), False), (("10.0.0.1", 5), False),
        (("testclient", 5), False), (("", 5), False), (None, False),
    ],
)  # fmt: skip
async def test_what_counts_as_this_machine(client: tuple[str, int] | None, let_in: bool) -> None:
    generation = Generation(settings=Settings(), routes={}, upstreams=(), created_unix_s=0)
    scope: Scope = {"type": "http", "path": "/metrics", "headers": [], "client": client}
    if let_in:
        authorize_admin(generation, scope)
    else:
        with pytest.raises(RequestError) as caught:
            authorize_admin(generation, scope)
        assert caught.value.status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_nothing_can_be_changed(owner: Owner, method: str) -> None:
    for path in ("/router/requests", "/router/targets", "/metrics"):
        assert (await owner.get(path, method=method)).status_code == 405


async def test_nothing_is_kept_by_a_cache(owner: Owner) -> None:
    for path in ("/router/requests", "/router/targets", "/metrics"):
        assert (await owner.get(path)).headers["cache-control"] == "no-store"


# --- rows -----------------------------------------------------------------------------------------


async def test_a_request_becomes_a_row_without_its_text() -> None:
    async with (
        SimulatedProvider(script=Script(text=TEXT), faults="cut@40") as first,
        SimulatedProvider(script=Script(text=TEXT)) as second,
        running_router(routed(first, second, server={"api_keys": ["secret-client"]})) as router,
    ):
        answer = await ask(
            router.base_url,
            content="What is so secret?",
            headers={"authorization": "Bearer secret-client"},
        )
        one = Owner(router)
        listed = await one.get("/router/requests", key="secret-client")
        (row,) = listed.json()["data"]
        stream_id = answer.headers["x-router-stream-id"]
        single = await one.get(f"/router/requests/{stream_id}", key="secret-client")
        everything = listed.text + (await one.get("/metrics", key="secret-client")).text
        everything += (await one.get("/router/targets", key="secret-client")).text
    assert single.json()["data"] == [row]
    assert (row["stream_id"], row["route"], row["outcome"]) == (stream_id, "chat", "completed")
    assert row["delivered_chars"] == len(answer.delivered)
    assert row["ended_unix_s"] >= row["started_unix_s"] > 1_600_000_000
    assert row["replica"]
    dead, alive = row["attempts"]
    assert (dead["target"], dead["outcome"], dead["fault"]) == ("p1/model-p1", "failed", "cut")
    assert dead["condition"] == "provider"
    assert dead["chunks"] == 40
    assert dead["usage_estimated"]
    assert (alive["target"], alive["outcome"], alive["fault"]) == ("p2/model-p2", "completed", None)
    assert alive["style"]
    assert not alive["usage_estimated"]
    assert alive["first_output_ms"] <= alive["last_output_ms"] <= alive["duration_ms"]
    (change,) = row["failovers"]
    assert (change["from"], change["to"]) == ("p1/model-p1", "p2/model-p2")
    assert change["pause_ms"] >= 0
    for word in ("secret", *(TEXT[at : at + 24] for at in range(0, 300, 24))):
        assert word not in everything


def some() -> list[StreamReport]:
    """Five requests, the oldest first."""
    cut, limit = Fault(kind=FaultKind.CUT), Fault(kind=FaultKind.STATUS, status=429)
    two = (attempt(fault=cut), attempt(number=2, target="p2/m"))
    return [
        report(stream_id="a", started_unix_s=1_000.0),
        report(stream_id="b", started_unix_s=2_000.0, attempts=two, route="other"),
        report(stream_id="c", started_unix_s=3_000.0, outcome="client_gone", finish=""),
        report(
            stream_id="d",
            started_unix_s=4_000.0,
            outcome="all_targets_failed",
            finish="",
            attempts=(attempt(fault=limit), attempt(number=2, target="p2/m", fault=cut)),
        ),
        report(stream_id="e", started_unix_s=5_000.0),
    ]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", "edcba"),
        ("?limit=2", "ed"),
        ("?route=other", "b"),
        ("?route=nobody", ""),
        ("?target=p2/m", "db"),
        ("?target=p2%2Fm", "db"),
        ("?fault=cut", "db"),
        ("?fault=status", "d"),
        ("?target=p2/m&fault=cut", "d"),
        ("?target=p1/m&fault=cut", "b"),
        ("?outcome=completed", "eba"),
        ("?outcome=client_gone", "c"),
        ("?outcome=completed&route=chat&limit=1", "e"),
        ("?since=2001", "edcb"),
        ("?since=2001.1", "edc"),
        ("?until=2001", "a"),
        ("?since=2001&until=4001", "cb"),
        ("?since=1970-01-01T01:00:00Z", "ed"),
        ("?since=1970-01-01T02:00:00%2B01:00", "ed"),
        ("?since=1970-01-01T02:00:00+01:00", "ed"),
        ("?stream_id=c", "c"),
        ("?stream_id=c&outcome=completed", ""),
    ],
)
async def test_filters(owner: Owner, query: str, found: str) -> None:
    owner.enter(*some())
    assert "".join(await owner.ids(query)) == found


@pytest.mark.parametrize(
    ("query", "param", "word"),
    [
        ("?outcom=completed", "outcom", "outcome"),
        ("?outcome=complete", "outcome", "completed"),
        ("?outcome=", "outcome", "completed"),
        ("?fault=cut&fault=status", "fault", "once"),
        ("?fault=burnt", "fault", "idle_timeout"),
        ("?limit=0", "limit", "1000"),
        ("?limit=1001", "limit", "1000"),
        ("?limit=-1", "limit", "1000"),
        ("?limit=1e2", "limit", "1000"),
        ("?limit=%D9%A1", "limit", "1000"),
        ("?since=yesterday", "since", "zone"),
        ("?since=2026-01-01T00:00:00", "since", "zone"),
        ("?until=", "until", "zone"),
        ("?since=20&until=10", "since", "until"),
        ("?since=10&until=10", "since", "until"),
        ("?route=", "route", "name"),
        ("?target=" + "x" * 600, "target", "name"),
        ("?cursor=12", "cursor", "next_cursor"),
        ("?cursor=own:x", "cursor", "next_cursor"),
        ("?cursor=own:", "cursor", "next_cursor"),
        ("?cursor=all:1-1", "cursor", "next_cursor"),
        ("?cursor=own:" + "9" * 30, "cursor", "next_cursor"),
    ],
)
async def test_a_query_that_is_wrong_is_told_what_is_right(
    owner: Owner, query: str, param: str, word: str
) -> None:
    answer = await owner.get(f"/router/requests{query}")
    error = complaint(answer)
    assert answer.status_code == 400
    assert (error["code"], error["param"]) == ("invalid_parameter", param)
    assert word in error["message"]


async def test_paging_gives_every_row_once(owner: Owner) -> None:
    owner.enter(*(report(stream_id=str(number)) for number in range(250)))
    ids: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = (await owner.get(f"/router/requests?limit=60{cursor}")).json()
        ids += [row["stream_id"] for row in answer["data"]]
        owner.enter(report(stream_id="newer"))  # moves nothing
        cursor = answer["next_cursor"] and f"&cursor={answer['next_cursor']}"
    assert ids == [str(number) for number in reversed(range(250))]


async def test_a_search_that_finds_little_is_bounded_and_goes_on() -> None:
    ledger = MemoryLedger()
    for number in range(1_000):
        ledger.add(encode(row_of(report(stream_id=str(number), route=f"r{number % 500}"))))
    wanted = Wanted(route="r7")
    page = await search(ledger, wanted, before=None, limit=10, max_scanned=300)
    assert (page.rows, page.scanned) == ((), 300)
    found = list(page.rows)
    while page.next is not None:
        page = await search(ledger, wanted, before=page.next, limit=10, max_scanned=300)
        assert page.scanned <= 300
        found += page.rows
    assert [json.loads(row)["stream_id"] for row in found] == ["507", "7"]


async def test_a_row_of_another_version_is_passed_over() -> None:
    ledger = MemoryLedger()
    for data in (b'{"stream_id":"x"}', b"", b"[]", encode(row_of(report(stream_id="y")))):
        ledger.add(data)
    page = await search(ledger, Wanted(), before=None, limit=10)
    assert [json.loads(row)["stream_id"] for row in page.rows] == ["y"]


async def test_no_such_stream(owner: Owner) -> None:
    owner.enter(*some())
    error = complaint(await owner.get("/router/requests/abc"))
    assert (error["code"], error["param"]) == ("stream_not_found", "stream_id")
    assert len((await owner.get("/router/requests/a")).json()["data"]) == 1


async def test_the_books_forget_the_oldest() -> None:
    async with owned(books={"max_rows": 3}) as one:
        one.enter(*some())
        assert "".join(await one.ids()) == "edc"


# --- what a row is --------------------------------------------------------------------------------


def test_a_providers_own_word_is_no_outcome_of_ours() -> None:
    verdict = Fault(kind=FaultKind.STATUS, verdict=Verdict.REQUEST, status=400, code="completed")
    for word in ("completed", "bad_thing", "x" * 5_000):
        row = row_of(report(outcome=word, finish="", attempts=(attempt(fault=verdict),)))
        assert row.outcome == "refused"
        assert row.code == word[:100]
    assert row_of(report()).outcome == "completed"


def test_every_code_that_the_engine_ends_a_stream_with_is_an_outcome() -> None:
    codes = set(re.findall(r'"([a-z]+(?:_[a-z]+)+)"', inspect.getsource(failures)))
    codes -= {"invalid_request_error", "server_error", "rate_limit_error"}  # types
    assert {"stream_interrupted", "tool_call_interrupted", "deadline_exceeded"} <= codes
    assert codes <= OUTCOMES.keys()


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [(None, "completed"), (FaultKind.CUT, "failed"), (FaultKind.HEDGED, "hedged"),
     (FaultKind.CLIENT_GONE, "abandoned")],
)  # fmt: skip
def test_an_attempt_has_its_own_outcome(kind: FaultKind | None, outcome: str) -> None:
    row = row_of(report(attempts=(attempt(fault=kind and Fault(kind=kind)),)))
    assert row.attempts[0].outcome == outcome


def test_of_usage_only_the_numbers_are_kept() -> None:
    usage = {
        "prompt_tokens": 5, "completion_tokens": True, "total_tokens": -3,
        "prompt_tokens_details": {"cached_tokens": 2, "note": "secret"},
        "completion_tokens_details": "none", "secret": {"text": "x" * 100_000},
    }  # fmt: skip
    row = row_of(report(attempts=(attempt(usage=usage),), usage=usage))
    assert row.usage == row.attempts[0].usage == {"prompt_tokens": 5, "cached_tokens": 2}


def test_no_peer_decides_how_long_a_row_is() -> None:
    fault = Fault(kind=FaultKind.STATUS, message="\x01" * 90_000, code="\x02" * 90_000)
    many = tuple(
        attempt(number=n, fault=fault, model="\x03" * 90_000, target="t" * 320)
        for n in range(1, 101)
    )
    change = FailoverReport(
        from_target="t" * 320, to_target="u" * 320, fault=fault, style="", committed_chars=1,
        join="", pause_ms=None,
    )  # fmt: skip
    ranges = tuple((n, n + 1) for n in range(100))
    data = encode(row_of(report(attempts=many, failovers=(change,) * 100, superseded=ranges)))
    assert len(data) <= MAX_ROW_BYTES
    row = msgspec.json.decode(data, type=Row)
    assert row.attempts[-1].number == 100
    short = encode(row_of(report(attempts=(attempt(fault=fault),))))
    assert msgspec.json.decode(short, type=Row).attempts[0].reason == "\x01" * 500


async def test_a_row_is_counted_whole_even_if_it_is_kept_short() -> None:
    fault = Fault(kind=FaultKind.CUT, message="\x01" * 500)
    many = tuple(attempt(number=n, fault=fault, model="\x03" * 250) for n in range(1, 101))
    metrics = Metrics()
    books = Books(counters=(metrics.count,))
    books(StreamEnded(report=report(attempts=many)))
    assert b'router_attempts_total{target="p1/m",outcome="failed",fault="cut"} 100\n' in (
        metrics.text(Present())
    )


# --- targets --------------------------------------------------------------------------------------


async def test_every_target_says_how_it_stands() -> None:
    async with owned(health={"eject_after": 1, "cool_down_s": 30}) as one:
        health = one.router.serving.engine.health
        fault = Fault(
            kind=FaultKind.STATUS, verdict=Verdict.ACCOUNT, status=401, message="Wrong key."
        )
        health.failed("p1/model-p1", fault)
        route = one.router.serving.generation.routes["chat"]
        for _ in range(8):
            route.targets[1].gaps.add(0.2)
        first, second = (await one.get("/router/targets")).json()["data"]
    assert (first["target"], first["standing"], first["available"]) == (
        "p1/model-p1", "ejected", False,
    )  # fmt: skip
    assert 0 < first["cool_down_left_s"] <= 30
    assert first["last_fault"]["condition"] == "account"
    assert first["last_fault"]["message"] == "Wrong key."
    assert (second["target"], second["standing"]) == ("p2/model-p2", "well")
    assert second["routes"] == [
        {"route": "chat", "priority": 2, "stall": "fixed", "idle_s": 5.0, "learnt_stall_s": 1.0}
    ]


async def test_a_target_of_several_routes_is_told_once() -> None:
    config = routed("http://127.0.0.1:9/v1")
    config["routes"]["again"] = config["routes"]["chat"]
    async with running_router(config) as router:
        (only,) = (await Owner(router).get("/router/targets")).json()["data"]
    assert [place["route"] for place in only["routes"]] == ["again", "chat"]


# --- metrics --------------------------------------------------------------------------------------


async def test_metrics_are_prometheus_text(owner: Owner) -> None:
    owner.enter(*some())
    answer = await owner.get("/metrics")
    assert answer.headers["content-type"] == CONTENT_TYPE
    lines = answer.text.splitlines()
    assert 'router_requests_total{route="chat",outcome="completed"} 2' in lines
    assert 'router_attempts_total{target="p1/m",outcome="failed",fault="status"} 1' in lines
    assert 'router_target_up{target="p1/model-p1"} 1' in lines
    assert "router_streams_in_flight 0" in lines
    assert "router_books_held_rows 5" in lines
    assert 'router_books_events_total{event="rows_written"} 5' in lines
    assert 'router_record_events_total{event="commits_queued"} 0' in lines
    assert "router_record_queue_bytes 0" in lines
    assert 'router_first_output_seconds_bucket{route="chat",le="+Inf"} 4' in lines


async def test_a_stream_in_flight_is_counted() -> None:
    async with (
        SimulatedProvider(script=Script(text=TEXT), faults="stall@10") as provider,
        running_router(routed(provider)) as router,
    ):
        running = asyncio.create_task(ask(router.base_url))
        await provider.wait_tokens(10)
        assert "router_streams_in_flight 1" in (await Owner(router).get("/metrics")).text
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_request_that_is_none_is_counted_and_makes_no_row(owner: Owner) -> None:
    await called(owner.router.base_url, model="none")
    await called(owner.router.base_url, messages=[])
    text = (await owner.get("/metrics")).text
    assert 'router_requests_refused_total{status="404"} 1\n' in text
    assert 'router_requests_refused_total{status="400"} 1\n' in text
    assert await owner.rows() == []


def test_labels_are_escaped_and_closed() -> None:
    metrics = Metrics({"worker": "1"})
    fault = Fault(kind=FaultKind.CUT)
    metrics(TargetEjected(target='a"b\\c\nd', fault=fault, cool_down_s=1, alarm=False))
    metrics.count(msgspec.structs.replace(row_of(report()), outcome="whatever"))
    text = metrics.text(Present()).decode()
    assert r'router_ejections_total{target="a\"b\\c\nd",fault="cut",worker="1"} 1' in text
    assert f'router_requests_total{{route="chat",outcome="{OTHER}",worker="1"}} 1' in text
    assert "whatever" not in text
    assert all(word in OUTCOMES for word in ("completed", "client_gone", "refused"))


def test_buckets_hold_what_is_not_above_them() -> None:
    metrics = Metrics()
    for first_ms in (50.0, 50.1, 60_000.0, 60_001.0):
        metrics.count(row_of(report(first_output_ms=first_ms)))
    lines = metrics.text(Present()).decode().splitlines()
    name = 'router_first_output_seconds_bucket{route="chat",le='
    assert f'{name}"0.05"}} 1' in lines
    assert f'{name}"0.1"}} 2' in lines
    assert f'{name}"60"}} 3' in lines
    assert f'{name}"+Inf"}} 4' in lines
    assert 'router_first_output_seconds_count{route="chat"} 4' in lines


# --- several replicas -----------------------------------------------------------------------------


async def flushed(router: Router) -> None:
    shared: Any = router.serving.books._shared
    async with asyncio.timeout(10):
        await shared.flushed()


async def test_an_owner_of_any_replica_sees_all_rows(redis_server: RedisServer) -> None:
    record = {"url": redis_server.url}
    async with owned(record=record) as one, owned(record=record) as other:
        one.enter(report(stream_id="a"))
        await flushed(one.router)
        other.enter(report(stream_id="b"))
        await flushed(other.router)
        for owner in (one, other):
            assert await owner.ids() == ["b", "a"]
            assert (await owner.get("/router/requests")).json()["books"] == "all"
            assert (await owner.get("/router/requests/a")).status_code == 200
        rows = await one.rows()
        assert rows[0]["replica"] != rows[1]["replica"]


async def test_with_redis_away_an_owner_sees_the_rows_of_this_process(
    redis_server: RedisServer,
) -> None:
    async with owned(record={"url": redis_server.url}) as one:
        one.enter(*(report(stream_id=str(number)) for number in range(3)))
        await flushed(one.router)
        first = (await one.get("/router/requests?limit=1")).json()
        redis_server.kill()
        one.enter(report(stream_id="3"))
        answer = (await one.get("/router/requests?limit=1")).json()
        assert answer["books"] == "this process"
        assert [row["stream_id"] for row in answer["data"]] == ["3"]
        assert await one.ids(f"?cursor={answer['next_cursor']}") == ["2", "1", "0"]
        away = await one.get(f"/router/requests?cursor={first['next_cursor']}")
        assert away.status_code == 503
        assert complaint(away)["code"] == "books_unavailable"
        redis_server.start()  # empty
        await flushed(one.router)
        assert await one.ids() == ["3"]


async def test_a_redis_that_is_away_delays_no_stream(redis_server: RedisServer) -> None:
    async with (
        SimulatedProvider(script=Script(text=TEXT)) as provider,
        running_router(routed(provider, record={"url": redis_server.url})) as router,
    ):
        redis_server.kill()
        answer = await ask(router.base_url)
        assert answer.delivered == TEXT
        rows = await Owner(router).rows()
        assert [row["outcome"] for row in rows] == ["completed"]
