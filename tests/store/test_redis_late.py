"""Commands that arrive late, and marks that must stand: each order written out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from record_kit import RedisServer, node_of
from redis import asyncio as aioredis

from router.store.backlog import FENCED, MISMATCH, MISSING, Backlog, Tally, Write
from router.store.base import Record, RecordHead
from router.store.codec import decode_record
from router.store.envelope import PlainEnvelopes
from router.store.link import RedisLink
from router.store.scripts import LOAD, Script, keys

pytestmark = pytest.mark.redis


class Bench:
    """One stream's backlog, and a hand on each command it gives."""

    def __init__(self, link: RedisLink, head: RecordHead) -> None:
        self.link = link
        self.head = head
        self.tally = Tally()
        self.backlog = Backlog(head, self.tally)
        self.text = ""

    def commit(self, delta: str) -> None:
        self.backlog.commit(delta, len(self.text), None)
        self.text += delta

    def take(self) -> Write:
        write = self.backlog.take()
        assert write is not None
        return write

    async def send(self, write: Write) -> int:
        return (await self.link.send([write], 60_000)).answers[0]

    async def settle(self) -> None:
        while (write := self.backlog.take()) is not None:
            self.backlog.settle(await self.send(write))

    async def record(self) -> Record:
        fields, raw = await self.link.call(Script(LOAD), self.head.stream_id)
        state = dict(zip(fields[::2], fields[1::2], strict=True))
        return decode_record(self.head.stream_id, state, raw or b"", PlainEnvelopes())[0]


@pytest.fixture
async def bench(redis_server: RedisServer, head: RecordHead) -> AsyncIterator[Bench]:
    link = RedisLink(redis_server.url, command_timeout_s=5, connect_timeout_s=5)
    yield Bench(link, head)
    await link.aclose()


async def test_a_repetition_is_recognised_and_its_end_is_still_done(bench: Bench) -> None:
    bench.commit("One.")
    write = bench.take()
    assert await bench.send(write) == 4
    assert await bench.send(write) == 4
    bench.commit(" Two.")
    bench.backlog.settle(await bench.send(write))
    write = bench.take()
    await bench.send(write)
    bench.backlog.close("interrupted", 60)
    await bench.settle()
    record = await bench.record()
    assert (record.text, record.boundaries) == ("One. Two.", 2)
    assert record.outcome == "interrupted"


async def test_a_late_commit_changes_nothing(bench: Bench) -> None:
    bench.commit("One.")
    late = bench.take()
    await bench.settle()
    bench.commit(" Two.")
    await bench.settle()
    assert await bench.send(late) == MISMATCH - 9
    record = await bench.record()
    assert (record.text, record.stale) == ("One. Two.", False)


async def test_a_late_commit_does_not_take_off_the_mark(bench: Bench) -> None:
    await bench.settle()
    bench.commit("One.")
    late = bench.take()
    bench.backlog.drop()
    bench.commit(" Two.")
    await bench.settle()
    assert (await bench.record()).stale
    assert await bench.send(late) == 4
    record = await bench.record()
    assert (record.text, record.stale) == ("One.", True)


async def test_a_mark_that_found_nothing_missing_is_set_when_there_is(bench: Bench) -> None:
    bench.commit("One.")
    await bench.send(bench.take())
    bench.backlog.drop()
    await bench.settle()
    record = await bench.record()
    assert (record.text, record.stale) == ("One.", False)
    bench.commit(" Two.")
    await bench.settle()
    record = await bench.record()
    assert (record.text, record.stale) == ("One.", True)


async def test_a_late_command_finds_a_tombstone(bench: Bench) -> None:
    bench.commit("Secret.")
    late = bench.take()
    again = bench.take()
    assert again is late
    bench.backlog.settle(await bench.send(again))
    bench.backlog.close("completed", 0)
    await bench.settle()
    assert await bench.send(late) == FENCED
    assert await node_of(bench.link).reader.exists(keys(bench.head.stream_id)[1]) == 0
    fields, _ = await bench.link.call(Script(LOAD), bench.head.stream_id)
    assert set(fields[::2]) == {b"v", b"epoch", b"gone"}


async def test_no_tombstone_without_need(bench: Bench) -> None:
    bench.commit("Secret.")
    await bench.settle()
    bench.backlog.close("completed", 0)
    await bench.settle()
    assert await node_of(bench.link).reader.exists(*keys(bench.head.stream_id)) == 0


async def test_a_stream_that_was_taken_over_leaves_a_tombstone(bench: Bench) -> None:
    """Its old writer knows nothing of all that, and may be asleep."""
    bench.commit("Secret.")
    await bench.settle()
    asleep, taken = bench.backlog, replace(await bench.record(), epoch=2)
    bench.backlog = Backlog(bench.head, bench.tally, writer=asleep.writer, resumed=taken)
    await node_of(bench.link).reader.hset(keys(bench.head.stream_id)[0], "epoch", "2")
    bench.backlog.close("completed", 0)
    await bench.settle()
    state, text = keys(bench.head.stream_id)
    assert await node_of(bench.link).reader.exists(text) == 0
    assert 0 < await node_of(bench.link).reader.pttl(state) <= 60_000
    fields, _ = await bench.link.call(Script(LOAD), bench.head.stream_id)
    assert set(fields[::2]) == {b"v", b"epoch", b"gone"}
    bench.backlog, asleep.source = asleep, lambda: bench.text
    bench.commit(" More.")
    await bench.settle()
    assert asleep.fenced
    assert await node_of(bench.link).reader.exists(text) == 0


async def test_an_end_that_was_dropped_unsent_is_sent_if_its_opening_may_have_been(
    bench: Bench,
) -> None:
    bench.commit("Secret.")
    late = bench.take()
    bench.backlog.drop()
    bench.backlog.close("completed", 0)
    assert bench.backlog.has_work
    assert await bench.send(late) == 7
    await bench.settle()
    assert bench.backlog.over
    assert await node_of(bench.link).reader.exists(keys(bench.head.stream_id)[1]) == 0


async def test_a_commit_to_nothing_makes_nothing(bench: Bench) -> None:
    await bench.settle()
    await node_of(bench.link).reader.delete(*keys(bench.head.stream_id))
    bench.commit("One.")
    write = bench.take()
    assert await bench.send(write) == MISSING
    assert await node_of(bench.link).reader.exists(*keys(bench.head.stream_id)) == 0
    bench.backlog.settle(MISSING)
    await bench.settle()
    assert (await bench.record()).text == "One."


async def test_catching_up_stops_when_the_store_never_agrees(bench: Bench) -> None:
    bench.backlog.source = lambda: bench.text
    bench.commit("One.")
    for _ in range(20):
        write = bench.backlog.take()
        if write is None:
            break
        bench.backlog.settle(MISMATCH - 1)
    assert not bench.backlog.has_work
    assert bench.tally.commits_dropped == 1


async def test_the_queue_never_holds_what_was_confirmed(bench: Bench) -> None:
    for n in range(50):
        bench.commit(f"{n}. ")
        assert bench.backlog.waiting_bytes == len(f"{n}. ")
        await bench.settle()
        assert bench.backlog.waiting_bytes == 0
    assert (await bench.record()).text == bench.text


async def test_a_record_taken_over_and_lost_is_made_again_by_its_new_owner(
    bench: Bench, redis_client: aioredis.Redis
) -> None:
    bench.commit("One.")
    await bench.settle()
    resumed = replace(await bench.record(), epoch=2)
    await redis_client.delete(*keys(bench.head.stream_id))
    new = Backlog(bench.head, bench.tally, resumed=resumed)
    new.source = lambda: "One. Two."
    new.commit(" Two.", 4, None)
    while (write := new.take()) is not None:
        new.settle(await bench.send(write))
    record = await bench.record()
    assert (record.text, record.epoch, record.stale) == ("One. Two.", 2, False)
    bench.commit(" Old.")
    await bench.settle()
    assert bench.backlog.fenced
