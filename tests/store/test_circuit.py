"""Reads of a Redis that does not answer: a few wait, the next are refused at once."""

from __future__ import annotations

import asyncio
import signal

import pytest
from record_kit import MakeStore, RedisServer, new_head

from router.errors import RecordNotFound, RecordNotYet, RecordUnavailable
from router.store.backlog import Tally
from router.store.circuit import MAX_FAILURES, Circuit, Circuits
from router.store.link import RedisLink
from router.store.redis import RedisRecordStore
from router.store.weather import SETTLING_S, Weather


def test_it_opens_after_some_failures_in_a_row_and_shuts_at_an_answer() -> None:
    tally = Tally()
    circuit = Circuit(tally)
    for _ in range(3):
        for n in range(MAX_FAILURES - 1):
            circuit.failed(f"reason {n}")
            circuit.check()
        circuit.answered()
    for n in range(MAX_FAILURES + 2):
        circuit.failed(f"reason {n}")
    assert circuit.open
    with pytest.raises(RecordUnavailable, match=f"reason {MAX_FAILURES + 1}"):
        circuit.check()
    circuit.answered()
    circuit.check()
    assert (tally.circuit_trips, tally.reads_refused) == (1, 1)
    assert tally.reads_failed == 3 * (MAX_FAILURES - 1) + MAX_FAILURES + 2


def test_each_server_has_its_own() -> None:
    circuits = Circuits(Tally())
    assert not circuits.failing
    for n in range(1, MAX_FAILURES + 1):
        circuits.failed("one", "away")
        circuits.check("other")
        assert (circuits.failing, circuits.open_count) == (True, n == MAX_FAILURES)
    circuits.failed("other", "late")
    with pytest.raises(RecordUnavailable, match="away"):
        circuits.check("one")
    circuits.check("other")
    circuits.answered("one")
    circuits.check("one")
    assert (circuits.failing, circuits.is_open("one"), circuits.open_count) == (True, False, 0)
    circuits.answered("other")
    assert not circuits.failing


def test_weather_is_forgotten() -> None:
    weather = Weather()
    assert not weather.settling("one", 0.0)
    weather.struck("one", 10.0)
    weather.struck("other", 11.0)
    weather.struck("one", 12.0)
    now_s = 11.0 + SETTLING_S
    assert [weather.settling(name, now_s) for name in ("one", "other")] == [True, False]
    weather.struck("third", now_s)
    assert set(weather._struck_s) == {"one", "third"}
    assert weather.settling("one", now_s)
    assert not weather.settling("one", 12.0 + SETTLING_S)


async def tire(store: RedisRecordStore) -> None:
    """Let reads fail until they are refused."""
    for _ in range(MAX_FAILURES):
        with pytest.raises(RecordUnavailable):
            await store.load("stream-1")
    assert store.stats["circuit_open"] == 1


@pytest.mark.redis
async def test_a_hung_redis_costs_a_few_reads_only(
    own_redis: RedisServer, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(own_redis.url, command_timeout_s=0.1)
    own_redis.signal(signal.SIGSTOP)
    await tire(store)
    for read in (store.load("stream-1"), store.takeover("stream-1", expected_epoch=1)):
        with pytest.raises(RecordUnavailable, match="not tried again"):
            read.send(None)  # without a single pause
    assert store.stats["reads_refused"] == 2
    (probe,) = store._probing.values()
    own_redis.signal(signal.SIGCONT)
    await probe
    with pytest.raises(RecordNotYet):  # nobody knows what others have still to write
        await store.load("stream-1")
    assert (store.stats["circuit_open"], store.stats["circuit_trips"]) == (0, 1)


@pytest.mark.redis
async def test_a_write_that_is_answered_shuts_it(
    own_redis: RedisServer, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(own_redis.url)
    own_redis.kill()
    await tire(store)
    head = new_head()
    store.open(head).commit("One.", at_chars=0)
    own_redis.start()
    await store.flushed()
    assert (await store.load(head.stream_id)).text == "One."
    assert store.stats["circuit_open"] == 0


@pytest.mark.redis
async def test_a_store_that_is_closed_leaves_no_probe(
    own_redis: RedisServer, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(own_redis.url)
    own_redis.kill()
    await tire(store)
    await store.aclose()
    with pytest.raises(RecordUnavailable):
        await store.load("stream-1")
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("record-")]


@pytest.mark.redis
async def test_a_restart_between_two_reads_is_not_noticed(
    own_redis: RedisServer, make_redis_store: MakeStore
) -> None:
    """Connections that were left open are dead; the read goes out once more on another."""
    store = await make_redis_store(own_redis.url)
    with pytest.raises(RecordNotFound):
        await store.load("stream-1")
    for _ in range(3):
        own_redis.kill()
        own_redis.start()
        with pytest.raises(RecordNotYet):
            await store.load("stream-1")
    assert store.stats["reads_failed"] == 0


@pytest.mark.redis
async def test_a_store_that_was_idle_hears_of_an_outage_from_another_link(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Redis that hung closes no connection; whoever asked nothing meanwhile would not know."""
    weather = Weather()
    store = RedisRecordStore(own_redis.url, weather=weather)
    link = RedisLink(own_redis.url, command_timeout_s=0.1, weather=weather)
    with pytest.raises(RecordNotFound):
        await store.load("stream-1")
    own_redis.signal(signal.SIGSTOP)
    with pytest.raises(RecordUnavailable):
        await link.ask(("GET", "anything"))
    own_redis.signal(signal.SIGCONT)
    with pytest.raises(RecordNotYet):
        await store.load("stream-1")
    monkeypatch.setattr("router.store.weather.SETTLING_S", 0)
    with pytest.raises(RecordNotFound):
        await store.load("stream-1")
    await store.aclose()
    await link.aclose()
