"""A master that dies or hangs under live writers, and the Sentinels that name another one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from record_kit import BINARY, MakeStore, Streams, new_head
from support.redis_fleets import SERVICE, Guarded, killed_at_the_end, tell

from router.errors import RecordNotFound, RecordNotYet, RecordUnavailable

pytestmark = pytest.mark.redis


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Guarded]:
    if BINARY is None:
        pytest.skip("no redis-server binary: Sentinels are not tested here")
    fleet = Guarded(tmp_path)
    with killed_at_the_end(fleet):
        await fleet.start()
        yield fleet


@pytest.mark.parametrize("death", ["killed", "hung"])
async def test_a_failover_under_live_writers(
    fleet: Guarded, make_redis_store: MakeStore, death: str
) -> None:
    store = await make_redis_store(fleet.url)
    other = await make_redis_store(fleet.url)
    streams = Streams(store, 20)
    await streams.store.flushed()
    with pytest.raises(RecordNotFound):
        await other.load("stream-unknown")
    async with fleet.switching():
        if death == "killed":
            fleet.master.kill()
        else:
            fleet.master.signal(signal.SIGSTOP)
    if death == "hung":
        # It wakes up, and believes for a moment that it is still the master.
        fleet.master.signal(signal.SIGCONT)
    with pytest.raises(RecordNotYet):  # the new master may know less, and be told any moment
        await other.load("stream-unknown")
    await streams.stop()
    assert not any(writer.fenced for writer in streams.writers)
    await streams.check(other)
    assert await tell(fleet.replica.port, "EXISTS", f"router:{{{streams.heads[0].stream_id}}}:text")
    record, new = await other.takeover(streams.heads[0].stream_id, expected_epoch=1)
    new.commit("New.", at_chars=len(record.text))
    streams.commit()
    await other.flushed()
    await store.flushed()
    assert streams.writers[0].fenced
    assert (await other.load(streams.heads[0].stream_id)).text == record.text + "New."


async def test_what_is_no_master_is_not_believed(
    fleet: Guarded, make_redis_store: MakeStore
) -> None:
    """The newest configuration counts, and a Sentinel that is gone costs nothing."""
    fleet.sentinels[0].kill()
    store = await make_redis_store(fleet.url)
    head = new_head()
    store.open(head).commit("One.", at_chars=0)
    await store.flushed()
    assert (await store.load(head.stream_id)).text == "One."
    # One that was cut off and knows only the past.
    await tell(fleet.sentinels[1].port, "SENTINEL", "REMOVE", SERVICE)
    host, port = "127.0.0.1", fleet.replica.port
    await tell(fleet.sentinels[1].port, "SENTINEL", "MONITOR", SERVICE, host, port, 2)
    while b"slave" not in await tell(fleet.sentinels[1].port, "SENTINEL", "MASTER", SERVICE):  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.01)
    fresh = await make_redis_store(fleet.url)
    assert (await fresh.load(head.stream_id)).text == "One."


async def test_nobody_who_knows(fleet: Guarded, make_redis_store: MakeStore) -> None:
    wrong = await make_redis_store(fleet.url.replace(SERVICE, "nobody"))
    with pytest.raises(RecordUnavailable, match="No such master"):
        await wrong.load("stream-1")
    for one in fleet.sentinels:
        one.kill()
    store = await make_redis_store(fleet.url)
    with pytest.raises(RecordUnavailable, match="no Sentinel names a server"):
        await store.load("stream-1")
