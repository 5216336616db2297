"""What the Redis store sends, what Redis then holds, and what is found under foreign keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from record_kit import QUICK, MakeStore, RedisServer, new_head, node_of, raw
from redis import asyncio as aioredis

from router.errors import RecordCorrupt, RecordNotFound
from router.store.backlog import FENCED, FOREIGN, MISMATCH, MISSING, WHEREVER, Write
from router.store.base import RecordHead
from router.store.codec import FORMAT
from router.store.redis import RedisLink, RedisRecordStore
from router.store.scripts import WRITE, Script, keys
from router.store.writebehind import Sent

pytestmark = pytest.mark.redis


class Monitor:
    """What a server is told, from `MONITOR`, without what scripts do inside."""

    def __init__(self, url: str, port: int) -> None:
        self._url = url
        self._port = port

    async def start(self) -> None:
        """Begin to listen."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(b"MONITOR\r\n")
        assert await self._reader.readline() == b"+OK\r\n"

    async def stop(self) -> list[str]:
        """Everything since the beginning, up to now."""
        async with aioredis.Redis.from_url(self._url, protocol=2) as client:
            await raw(client, "ECHO", "that is all")
        lines = []
        while True:
            line = (await self._reader.readline()).decode()
            if "that is all" in line:
                break
            if " lua] " not in line:
                lines.append(line)
        return lines

    async def aclose(self) -> None:
        """Let go."""
        self._writer.close()
        await self._writer.wait_closed()


@pytest.fixture
async def monitor(own_redis: RedisServer) -> AsyncIterator[Monitor]:
    monitor = Monitor(own_redis.url, own_redis.port)
    await monitor.start()
    yield monitor
    await monitor.aclose()


def commands(lines: list[str], *words: str) -> list[str]:
    return [line for line in lines if any(f'"{word}"' in line for word in words)]


async def test_one_command_per_commit_and_no_text_twice(
    own_redis: RedisServer, monitor: Monitor, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(own_redis.url)
    heads = [new_head() for _ in range(3)]
    writers = [store.open(head) for head in heads]
    await store.flushed()
    words = [[f"Stream-{n}-piece-{i}." for i in range(5)] for n in range(3)]
    for i in range(5):
        for n, writer in enumerate(writers):
            writer.commit(words[n][i], at_chars=sum(map(len, words[n][:i])))
        await store.flushed()
    for writer in writers:
        writer.close("completed", keep_s=0)
    await store.flushed()
    lines = await monitor.stop()
    evals = commands(lines, "EVALSHA", "EVAL")
    assert len(evals) == 3 + 15 + 3
    assert len(commands(lines, "SCRIPT")) == 1
    everything = "".join(lines)
    for word in (word for stream in words for word in stream):
        assert everything.count(word) == 1


async def test_what_waits_is_one_command(
    own_redis: RedisServer, monitor: Monitor, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(own_redis.url)
    head = new_head()
    writer = store.open(head)
    for n in range(50):
        writer.commit("abcd", at_chars=4 * n, meta={"n": n})
    writer.close("interrupted", keep_s=30)
    await store.flushed()
    assert len(commands(await monitor.stop(), "EVALSHA")) == 1
    record = await store.load(head.stream_id)
    assert (record.text, record.boundaries, record.meta) == ("abcd" * 50, 50, {"n": 49})
    assert store.stats["commands"] == 1


async def test_a_stream_that_comes_and_goes_within_a_flush_costs_nothing(
    own_redis: RedisServer, monitor: Monitor, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(own_redis.url)
    writer = store.open(new_head())
    writer.commit("All of it.", at_chars=0)
    writer.close("completed", keep_s=0)
    await store.flushed()
    lines = await monitor.stop()
    assert not commands(lines, "EVALSHA", "SCRIPT")
    assert store.stats["commits_moot"] == 1
    assert store.stats["queue_bytes"] == store.stats["queue_streams"] == 0


def spy_on(store: RedisRecordStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many writes went in each pipeline."""
    sizes: list[int] = []
    send = store._link.send

    async def spy(writes: Sequence[Write], ttl_ms: int) -> Sent:
        sizes.append(len(writes))
        return await send(writes, ttl_ms)

    monkeypatch.setattr(store._link, "send", spy)
    return sizes


async def test_many_streams_go_in_pipelines_of_64(
    redis_server: RedisServer, make_redis_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await make_redis_store(redis_server.url)
    sizes = spy_on(store, monkeypatch)
    heads = [new_head() for _ in range(150)]
    for head in heads:
        store.open(head).commit(head.stream_id, at_chars=0)
    await store.flushed()
    assert sizes == [64, 64, 22]
    for head in heads:
        assert (await store.load(head.stream_id)).text == head.stream_id


async def test_large_texts_are_spread_over_pipelines(
    redis_server: RedisServer, make_redis_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await make_redis_store(redis_server.url)
    sizes = spy_on(store, monkeypatch)
    heads = [new_head() for _ in range(6)]
    for head in heads:
        store.open(head).commit("ж" * 400_000, at_chars=0)
    await store.flushed()
    assert sizes == [2, 2, 2]
    assert (await store.load(heads[5].stream_id)).text == "ж" * 400_000


async def test_a_server_that_forgot_the_script_is_told_again(
    own_redis: RedisServer, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(own_redis.url)
    first, second = new_head(), new_head()
    writers = [store.open(first), store.open(second)]
    await store.flushed()
    async with aioredis.Redis.from_url(own_redis.url, protocol=2) as client:
        await client.script_flush()
    for writer in writers:
        writer.commit("After.", at_chars=0)
    await store.flushed()
    assert (await store.load(first.stream_id)).text == "After."
    assert (await store.load(second.stream_id)).text == "After."
    assert store.stats["failures"] == 0


async def test_what_redis_holds(
    redis_server: RedisServer, redis_client: aioredis.Redis, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(redis_server.url, ttl_s=60)
    head = new_head()
    state, text = keys(head.stream_id)
    assert state == f"router:{{{head.stream_id}}}:state"
    writer = store.open(head)
    await store.flushed()
    assert await redis_client.exists(text) == 0
    writer.commit("Grüße.", at_chars=0, meta={"tried": ["a"]})
    await store.flushed()
    assert await redis_client.get(text) == "Grüße.".encode()
    fields = await redis_client.hgetall(state)
    assert set(fields) == {
        b"v", b"head", b"epoch", b"writer", b"chars", b"bytes", b"boundaries", b"stale", b"meta",
    }  # fmt: skip
    assert (fields[b"chars"], fields[b"bytes"], fields[b"meta"]) == (b"6", b"8", b'{"tried":["a"]}')
    for key in (state, text):
        assert 50_000 < await redis_client.pttl(key) <= 60_000
    writer.close("interrupted", keep_s=5)
    await store.flushed()
    for key in (state, text):
        assert 0 < await redis_client.pttl(key) <= 5_000


async def test_each_commit_refreshes_both_lives(
    redis_server: RedisServer, redis_client: aioredis.Redis, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(redis_server.url, ttl_s=60)
    head = new_head()
    writer = store.open(head)
    writer.commit("One.", at_chars=0)
    await store.flushed()
    for key in keys(head.stream_id):
        await redis_client.pexpire(key, 1_000)
    writer.commit("Two.", at_chars=4)
    await store.flushed()
    for key in keys(head.stream_id):
        assert await redis_client.pttl(key) > 50_000


async def test_who_takes_over_gets_a_whole_life_and_the_old_end_does_not_shorten_it(
    redis_server: RedisServer, redis_client: aioredis.Redis, make_redis_store: MakeStore
) -> None:
    one = await make_redis_store(redis_server.url, ttl_s=60)
    two = await make_redis_store(redis_server.url, ttl_s=60)
    heads = [new_head() for _ in range(2)]
    old = [one.open(head) for head in heads]
    for writer in old:
        writer.commit("One.", at_chars=0)
    old[0].close("client_gone", keep_s=5)
    await one.flushed()
    for head in heads:
        await two.takeover(head.stream_id, expected_epoch=1)
    old[1].commit(" Two.", at_chars=4)
    old[1].close("client_gone", keep_s=5)
    await one.flushed()
    for head in heads:
        assert (await two.load(head.stream_id)).text == "One."
        for key in keys(head.stream_id):
            assert await redis_client.pttl(key) > 50_000


async def test_nothing_is_left_of_a_completed_stream(
    own_redis: RedisServer, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(own_redis.url)
    writer = store.open(new_head())
    writer.commit("One.", at_chars=0)
    await store.flushed()
    writer.close("completed", keep_s=0)
    await store.flushed()
    async with aioredis.Redis.from_url(own_redis.url, protocol=2) as client:
        assert await client.dbsize() == 0


Harm = Callable[[aioredis.Redis, str, str], Awaitable[object]]

HARMS: dict[str, Harm] = {
    "a string where the state is": lambda c, state, _: _replace(c, state, "SET", "hello"),
    "a list where the state is": lambda c, state, _: _replace(c, state, "LPUSH", "hello"),
    "a foreign hash": lambda c, state, _: _replace(c, state, "HSET", "name", "hello"),
    "a list where the text is": lambda c, _, text: _replace(c, text, "LPUSH", "hello"),
    "a newer format": lambda c, state, _: c.hset(state, "v", "2"),
    "a truncated text": lambda c, _, text: c.set(text, "On", keepttl=True),
    "no text": lambda c, _, text: c.delete(text),
    "a longer text": lambda c, _, text: c.append(text, "x"),
    "half a character": lambda c, _, text: c.set(text, b"One\xc3"),
    "an epoch that is none": lambda c, state, _: c.hset(state, "epoch", "one"),
    "a length that is none": lambda c, state, _: c.hset(state, "chars", "-4"),
    "no head": lambda c, state, _: c.hdel(state, "head"),
    "another's head": lambda c, state, _: c.hset(state, "head", '{"stream_id": "other"}'),
    "meta that is no object": lambda c, state, _: c.hset(state, "meta", "[1]"),
    "meta that is no JSON": lambda c, state, _: c.hset(state, "meta", "{"),
}


async def _replace(client: aioredis.Redis, key: str, verb: str, *args: str) -> None:
    await client.delete(key)
    await raw(client, verb, key, *args)


@pytest.mark.parametrize("harm", HARMS)
async def test_what_is_not_ours_is_corrupt(
    redis_server: RedisServer,
    redis_client: aioredis.Redis,
    make_redis_store: MakeStore,
    harm: str,
) -> None:
    store = await make_redis_store(redis_server.url)
    head = new_head()
    store.open(head).commit("One.", at_chars=0)
    await store.flushed()
    await HARMS[harm](redis_client, *keys(head.stream_id))
    with pytest.raises(RecordCorrupt, match=head.stream_id):
        await store.load(head.stream_id)
    with pytest.raises(RecordCorrupt, match=head.stream_id):
        await store.takeover(head.stream_id, expected_epoch=1)


async def test_another_stream_head_is_corrupt(
    redis_server: RedisServer, redis_client: aioredis.Redis, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(redis_server.url)
    one, two = new_head(), new_head()
    store.open(one)
    store.open(two)
    await store.flushed()
    foreign = await redis_client.hget(keys(two.stream_id)[0], "head")
    await redis_client.hset(keys(one.stream_id)[0], "head", foreign)
    with pytest.raises(RecordCorrupt, match="names another stream"):
        await store.load(one.stream_id)


@pytest.mark.parametrize(
    "harm", ["a string where the state is", "a foreign hash", "a newer format",
             "a list where the text is"],
)  # fmt: skip
async def test_a_writer_leaves_foreign_values_alone(
    redis_server: RedisServer,
    redis_client: aioredis.Redis,
    make_redis_store: MakeStore,
    harm: str,
) -> None:
    store = await make_redis_store(redis_server.url)
    head, other = new_head(), new_head()
    writer, neighbour = store.open(head), store.open(other)
    writer.commit("One.", at_chars=0)
    await store.flushed()
    await HARMS[harm](redis_client, *keys(head.stream_id))
    before = [await redis_client.dump(key) for key in keys(head.stream_id)]
    writer.commit("Two.", at_chars=4)
    neighbour.commit("Other.", at_chars=0)
    await store.flushed()
    writer.commit("Three.", at_chars=8)
    await store.flushed()
    assert [await redis_client.dump(key) for key in keys(head.stream_id)] == before
    assert (await store.load(other.stream_id)).text == "Other."
    assert store.stats["foreign"] == 1
    assert not writer.fenced


async def test_a_text_without_a_state_is_no_record(
    redis_server: RedisServer, redis_client: aioredis.Redis, make_redis_store: MakeStore
) -> None:
    store = await make_redis_store(redis_server.url)
    head = new_head()
    await redis_client.set(keys(head.stream_id)[1], "left over")
    with pytest.raises(RecordNotFound):
        await store.load(head.stream_id)
    store.open(head).commit("One.", at_chars=0)
    await store.flushed()
    assert (await store.load(head.stream_id)).text == "One."


@pytest.mark.parametrize("with_source", [True, False])
async def test_a_text_that_was_evicted_under_a_live_stream(
    redis_server: RedisServer,
    redis_client: aioredis.Redis,
    make_redis_store: MakeStore,
    with_source: bool,
) -> None:
    store = await make_redis_store(redis_server.url)
    head = new_head()
    writer = store.open(head)
    if with_source:
        writer.source = lambda: "One.Two."
    writer.commit("One.", at_chars=0)
    await store.flushed()
    await redis_client.delete(keys(head.stream_id)[1])
    writer.commit("Two.", at_chars=4)
    await store.flushed()
    record = await store.load(head.stream_id)
    expected = ("One.Two.", False, 2) if with_source else ("", True, 0)
    assert (record.text, record.stale, record.boundaries) == expected


async def test_hiredis_parses(redis_server: RedisServer) -> None:
    link = RedisLink(redis_server.url, command_timeout_s=1, connect_timeout_s=1)
    pool = node_of(link).writer.connection_pool
    connection = await pool.get_connection()  # type: ignore[no-untyped-call] # the client's
    assert "Hiredis" in type(connection._parser).__name__
    await pool.release(connection)
    await link.aclose()


async def test_the_script_speaks_the_codec_s_version() -> None:
    codes = f"= {FENCED}, {MISSING}, {FOREIGN}, {MISMATCH}"
    assert f"FENCED, MISSING, FOREIGN, MISMATCH {codes}" in WRITE
    assert f"at_chars == '{WHEREVER}'" in WRITE
    assert f"'v', '{FORMAT}'" in WRITE
    assert len(Script(WRITE).sha) == 40


async def test_aclose_twice_and_without_start(redis_server: RedisServer, head: RecordHead) -> None:
    store = RedisRecordStore(redis_server.url, limits=QUICK)
    store.open(head)
    await store.aclose()
    await store.aclose()
    other = RedisRecordStore(redis_server.url, limits=QUICK)
    await other.start()
    await other.start()
    other.open(head).commit("Sent by aclose.", at_chars=0)
    await other.aclose()
    reader = RedisRecordStore(redis_server.url)
    assert (await reader.load(head.stream_id)).text == "Sent by aclose."
    await reader.aclose()
