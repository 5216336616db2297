"""A Cluster whose slots move, and whose nodes die, under live writers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from record_kit import BINARY, MakeStore, Streams, new_head
from redis import asyncio as aioredis
from support.redis_fleets import Cluster, Member, Move, killed_at_the_end, tell

from router.errors import RecordNotFound, RecordNotYet, RecordUnavailable
from router.store import make_shared
from router.store.base import RecordHead
from router.store.circuit import MAX_FAILURES
from router.store.ledger_redis import KEY
from router.store.notices import Notice
from router.store.redis import RedisRecordStore
from router.store.scripts import keys

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if BINARY is None:
        pytest.skip("no redis-server binary: a Cluster is not tested here")
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    with killed_at_the_end(cluster):
        cluster.start()
        yield cluster


@pytest.fixture
async def store(cluster: Cluster, make_redis_store: MakeStore) -> RedisRecordStore:
    return await make_redis_store(cluster.url)


async def on_each_node(cluster: Cluster) -> list[RecordHead]:
    """A head for each node."""
    found: dict[int, RecordHead] = {}
    while len(found) < len(cluster.nodes):
        head = new_head()
        found.setdefault((await cluster.serves(keys(head.stream_id)[0])).port, head)
    return [found[node.port] for node in cluster.nodes]


async def neighbours(cluster: Cluster, head: RecordHead) -> tuple[Member, Member]:
    """Who serves a stream, and somebody else."""
    source = await cluster.serves(keys(head.stream_id)[0])
    return source, next(node for node in cluster.nodes if node is not source)


async def written(store: RedisRecordStore, head: RecordHead, text: str) -> None:
    """Wait until a record holds a text."""
    found = None
    while found != text:
        with contextlib.suppress(RecordNotFound, RecordNotYet):
            found = (await store.load(head.stream_id)).text


async def test_streams_on_every_node(cluster: Cluster, store: RedisRecordStore) -> None:
    heads = [new_head() for _ in range(100)]
    for head in heads:
        store.open(head).commit("Known.", at_chars=0)
    await store.flushed()
    for head in heads:
        record, writer = await store.takeover(head.stream_id, expected_epoch=1)
        assert record.text == "Known."
        writer.close("completed", keep_s=0)
    await store.flushed()
    assert store.stats["failures"] == store.stats["deferred"] == 0
    left = [await tell(node.port, "KEYS", "*") for node in cluster.nodes]
    assert all(left), "every node has some of the tombstones"
    tombstones = {keys(head.stream_id)[0].encode() for head in heads}
    assert {key for one in left for key in one} == tombstones


async def test_a_record_whose_slot_moves_step_by_step(
    cluster: Cluster, store: RedisRecordStore, make_redis_store: MakeStore
) -> None:
    head = new_head()
    source, target = await neighbours(cluster, head)
    move = Move(cluster, keys(head.stream_id)[0], source, target)
    state, text = keys(head.stream_id)
    writer = store.open(head)
    writer.commit("One.", at_chars=0)
    await store.flushed()
    other = await make_redis_store(cluster.url)

    await move.begin()
    writer.commit(" Two.", at_chars=4)
    await store.flushed()
    assert (await other.load(head.stream_id)).text == "One. Two."

    await move.carry([state])  # its two keys are on two nodes: TRYAGAIN
    writer.commit(" Three.", at_chars=9)
    with pytest.raises(RecordUnavailable, match=r"(?i)multiple keys"):
        await other.load(head.stream_id)
    assert store.stats["commits_sent"] == 2

    await move.carry([text])  # ASK
    await store.flushed()
    for _ in range(3):
        assert (await other.load(head.stream_id)).text == "One. Two. Three."
    # Together, so that connections are many: ASKING is for the very next command of its own.
    for record in await asyncio.gather(*(other.load(head.stream_id) for _ in range(20))):
        assert record.text == "One. Two. Three."
    writer.commit(" Four.", at_chars=16)
    await store.flushed()

    await move.end()  # MOVED
    writer.commit(" Five.", at_chars=22)
    await store.flushed()
    record, new = await other.takeover(head.stream_id, expected_epoch=1)
    assert (record.text, record.stale) == ("One. Two. Three. Four. Five.", False)
    new.commit(" Six.", at_chars=28)
    await other.flushed()
    writer.commit(" Old.", at_chars=28)
    await store.flushed()
    assert writer.fenced
    assert (await store.load(head.stream_id)).text == "One. Two. Three. Four. Five. Six."


async def test_a_stream_that_begins_in_a_slot_that_moves(
    cluster: Cluster, store: RedisRecordStore
) -> None:
    head = new_head()
    source, target = await neighbours(cluster, head)
    move = Move(cluster, keys(head.stream_id)[0], source, target)
    await move.begin()
    neighbour = new_head()
    writer = store.open(head)
    writer.commit("One.", at_chars=0)
    store.open(neighbour).commit("Other.", at_chars=0)
    await written(store, neighbour, "Other.")  # its slot is nobody's concern
    await move.end()
    await store.flushed()
    assert (await store.load(head.stream_id)).text == "One."


async def test_resharded_under_live_writers(
    cluster: Cluster, store: RedisRecordStore, make_redis_store: MakeStore
) -> None:
    streams = Streams(store, 100)
    await store.flushed()
    ids = await cluster.ids()
    first, second, _ = cluster.nodes
    sizes = {node.port: await tell(node.port, "DBSIZE") for node in cluster.nodes}
    await asyncio.to_thread(
        cluster.cli,
        "reshard", f"127.0.0.1:{first.port}", "--cluster-yes", "--cluster-slots", 2000,
        "--cluster-from", ids[first.port], "--cluster-to", ids[second.port],
    )  # fmt: skip
    await streams.stop()
    after = {node.port: await tell(node.port, "DBSIZE") for node in cluster.nodes}
    assert after[first.port] < sizes[first.port], "none of their slots has moved"
    await streams.check(store)
    await streams.check(await make_redis_store(cluster.url))
    assert store.stats["stale"] == store.stats["commits_dropped"] == 0


async def test_one_node_is_away_and_the_others_go_on(
    cluster: Cluster,
    store: RedisRecordStore,
    make_redis_store: MakeStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a replica nobody takes its place; it comes back, and its data are gone."""
    heads = await on_each_node(cluster)
    writers = [store.open(head) for head in heads]
    text = "One. Two."
    for writer in writers:
        writer.source = lambda: text
        writer.commit("One.", at_chars=0)
    await store.flushed()
    cluster.nodes[2].kill()
    for writer in writers:
        writer.commit(" Two.", at_chars=4)
    for head in heads[:2]:
        await written(store, head, text)
    with pytest.raises(RecordUnavailable):
        await store.load(heads[2].stream_id)
    assert store.stats["commits_sent"] == 5
    (line,) = [one.getMessage() for one in caplog.records if "not written" in one.getMessage()]
    assert str(cluster.nodes[2].port) in line
    # Who only reads refuses at once what that node has, and nothing else.
    reader = await make_redis_store(cluster.url)
    for _ in range(MAX_FAILURES + 1):
        with pytest.raises(RecordUnavailable):
            await reader.load(heads[2].stream_id)
    assert (reader.stats["reads_refused"], reader.stats["circuit_open"]) == (1, 1)
    for head in heads[:2]:
        assert (await reader.load(head.stream_id)).text == text
    cluster.nodes[2].start()
    await store.flushed()
    for head in heads:
        record = await store.load(head.stream_id)
        assert (record.text, record.stale) == (text, False)
    assert store.stats["recovered"] == 1


async def test_what_replicas_share_lies_in_a_cluster_too(cluster: Cluster) -> None:
    shared = make_shared(cluster.url, max_rows=10, keep_s=60)
    assert shared is not None
    shared.ledger.add(b'{"row": 1}')
    await shared.ledger.flushed()
    (leaf,) = await shared.ledger.page(None, 5)
    assert leaf.row == b'{"row": 1}'
    await shared.notices.post({"one": Notice(b"1", 60), "two": Notice(b"2", 60)})
    await shared.notices.post({"two": None})
    assert set(await shared.notices.read(["one", "two", "three"])) == {"one"}
    assert await tell((await cluster.serves(KEY)).port, "EXISTS", KEY)
    await shared.ledger.aclose()


async def test_a_single_server_url_for_a_cluster_is_told_of(
    cluster: Cluster, make_redis_store: MakeStore
) -> None:
    heads = await on_each_node(cluster)
    store = await make_redis_store(f"redis://127.0.0.1:{cluster.nodes[0].port}")
    assert store._inspecting is not None
    await store._inspecting
    assert any("redis+cluster://" in sentence for sentence in store.advice)
    with pytest.raises(RecordUnavailable, match=f"{cluster.nodes[1].port}"):
        await store.load(heads[1].stream_id)


async def test_a_node_that_serves_nothing_leads_to_the_others(
    cluster: Cluster, make_redis_store: MakeStore, tmp_path: Path
) -> None:
    """Hosts of the URL that are dead, or no part of the Cluster."""
    alone = Member(tmp_path / "alone")
    alone.start()
    try:
        hosts = f"127.0.0.1:1,127.0.0.1:{alone.port},127.0.0.1:{cluster.nodes[1].port}"
        store = await make_redis_store(f"redis+cluster://{hosts}")
        heads = await on_each_node(cluster)
        for head in heads:
            store.open(head).commit("One.", at_chars=0)
        await store.flushed()
        for head in heads:
            assert (await store.load(head.stream_id)).text == "One."
    finally:
        alone.kill()


async def test_slots_that_nobody_serves(cluster: Cluster, make_redis_store: MakeStore) -> None:
    head = new_head()
    store = await make_redis_store(cluster.url)
    owner = await cluster.serves(keys(head.stream_id)[0])
    slot = await tell(owner.port, "CLUSTER", "KEYSLOT", keys(head.stream_id)[0])
    for node in cluster.nodes:
        await tell(node.port, "CLUSTER", "DELSLOTS", slot)
    other = new_head()
    store.open(head).commit("One.", at_chars=0)
    store.open(other).commit("Other.", at_chars=0)
    with pytest.raises(RecordUnavailable, match="serve"):
        await store.load(head.stream_id)
    await written(store, other, "Other.")
    await tell(owner.port, "CLUSTER", "ADDSLOTS", slot)
    await store.flushed()
    assert (await store.load(head.stream_id)).text == "One."
    async with aioredis.Redis(host="127.0.0.1", port=owner.port, protocol=2) as client:
        assert await client.exists(keys(head.stream_id)[0])
