"""Encrypted records in a real Redis: what it holds, and what is done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from record_kit import MakeStore, RedisServer, new_head
from redis import asyncio as aioredis

from router.errors import RecordConflict, RecordCorrupt
from router.store.base import RecordHead
from router.store.cipher import SealedEnvelopes, key_name
from router.store.envelope import PlainEnvelopes
from router.store.redis import RedisRecordStore
from router.store.scripts import keys

pytestmark = pytest.mark.redis

OLD, NEW = bytes(range(32)), bytes(range(32, 64))

Sealed = Callable[..., Awaitable[RedisRecordStore]]


@pytest.fixture
def sealed(redis_server: RedisServer, make_redis_store: MakeStore) -> Sealed:
    """Makes stores with keys."""

    async def make(*key: bytes) -> RedisRecordStore:
        envelopes = SealedEnvelopes(key) if key else PlainEnvelopes()
        return await make_redis_store(redis_server.url, envelopes=envelopes)

    return make


async def test_nothing_shows_through(
    sealed: Sealed, redis_client: aioredis.Redis, head: RecordHead
) -> None:
    store = await sealed(NEW)
    writer = store.open(head)
    meta = {"target": "openai/gpt", "model": "gpt"}
    writer.commit("Attack at dawn. Grüße.", at_chars=0, meta=meta)
    await store.flushed()
    writer.commit(" Retreat at dusk.", at_chars=22)
    await store.flushed()
    state, text = keys(head.stream_id)
    fields = await redis_client.hgetall(state)
    assert set(fields) == {
        b"v", b"seal", b"head", b"epoch", b"writer", b"chars", b"bytes", b"boundaries", b"stale",
        b"meta",
    }  # fmt: skip
    stored = (*fields.values(), await redis_client.get(text))
    held = b"".join(value for value in stored if isinstance(value, bytes))
    assert len(held) > 200
    secrets = ("Attack", "dawn", "Retreat", "openai", "gpt", head.request_digest, head.owner)
    assert not [word for word in secrets if word.encode() in held]
    assert (fields[b"chars"], fields[b"seal"]) == (b"39", key_name(NEW).encode())
    record = await store.load(head.stream_id)
    assert (record.text, record.boundaries) == ("Attack at dawn. Grüße. Retreat at dusk.", 2)
    assert (record.head, record.meta, record.stale) == (head, meta, False)


async def test_a_takeover_across_a_rotation(sealed: Sealed, head: RecordHead) -> None:
    before, between, after = await sealed(OLD), await sealed(NEW, OLD), await sealed(NEW)
    old = before.open(head)
    old.commit("One.", at_chars=0)
    await before.flushed()
    with pytest.raises(RecordCorrupt, match=key_name(OLD)):
        await after.load(head.stream_id)
    with pytest.raises(RecordCorrupt, match=key_name(OLD)):
        await after.takeover(head.stream_id, expected_epoch=1)
    old.commit(" Two.", at_chars=4)  # who cannot read it has fenced nobody out
    await before.flushed()
    record, new = await between.takeover(head.stream_id, expected_epoch=1)
    assert record.text == "One. Two."
    new.commit(" Three.", at_chars=9, meta={"n": 3})
    await between.flushed()
    old.commit(" Old.", at_chars=9)
    await before.flushed()
    assert old.fenced
    record = await before.load(head.stream_id)
    assert (record.text, record.epoch, record.meta) == ("One. Two. Three.", 2, {"n": 3})
    fresh = new_head()
    between.open(fresh).commit("New key.", at_chars=0)
    await between.flushed()
    assert (await after.load(fresh.stream_id)).text == "New key."


async def test_switching_it_on_and_off(sealed: Sealed) -> None:
    plain, keyed = await sealed(), await sealed(NEW)
    open_one, closed_one = new_head(), new_head()
    plain.open(open_one).commit("One.", at_chars=0)
    keyed.open(closed_one).commit("One.", at_chars=0)
    await plain.flushed()
    await keyed.flushed()
    for call in (
        keyed.load(open_one.stream_id),
        keyed.takeover(open_one.stream_id, expected_epoch=1),
    ):
        with pytest.raises(RecordCorrupt, match="is not encrypted, and this router has a key"):
            await call
    for call in (
        plain.load(closed_one.stream_id),
        plain.takeover(closed_one.stream_id, expected_epoch=1),
    ):
        with pytest.raises(RecordCorrupt, match="and this router has no key"):
            await call
    assert (await plain.load(open_one.stream_id)).epoch == 1
    assert (await keyed.load(closed_one.stream_id)).epoch == 1


Harm = Callable[[aioredis.Redis, str, str, str, str], Awaitable[object]]


async def _truncate(client: aioredis.Redis, text: str, state: str, size: int, chars: int) -> None:
    stored = await client.get(text)
    assert isinstance(stored, bytes)
    await client.set(text, stored[:size])
    await client.hset(state, mapping={"bytes": str(len(stored[:size])), "chars": str(chars)})


async def _swap(client: aioredis.Redis, text: str) -> None:
    stored = await client.get(text)
    assert isinstance(stored, bytes)
    length = 4 + int.from_bytes(stored[:4], "big")
    await client.set(text, stored[length : 2 * length] + stored[:length] + stored[2 * length :])


async def _copy(client: aioredis.Redis, source: str, target: str) -> None:
    await client.copy(source, target, replace=True)


HARMS: dict[str, tuple[str, Harm]] = {
    "cut in the middle of a frame": (
        "cut off at byte 36",
        lambda c, state, text, *_: _truncate(c, text, state, -3, 4),
    ),
    "frames of equal length swapped": ("from byte 0 on", lambda c, _, text, *__: _swap(c, text)),
    "another stream's text": ("byte 0", lambda c, _, text, __, other: _copy(c, other, text)),
    "another stream's state": ("its head", lambda c, state, _, other, __: _copy(c, other, state)),
    "a plain text of the right length": (
        "cut off",
        lambda c, _, text, *__: c.set(text, b"x" * 72),
    ),
    "a plain head": ("its head", lambda c, state, *_: c.hset(state, "head", '{"stream_id": ""}')),
    "a plain meta": ("its meta", lambda c, state, *_: c.hset(state, "meta", "{}")),
    "no seal": ("is not encrypted", lambda c, state, *_: c.hdel(state, "seal")),
    "an unknown seal": ("'abcd'", lambda c, state, *_: c.hset(state, "seal", "abcd")),
    "a seal that is no name": (
        "does not have",
        lambda c, state, *_: c.hset(state, "seal", b"\xff"),
    ),
    "a newer version": ("a newer version", lambda c, state, *_: c.hset(state, "v", "2")),
    "a much newer version": ("a newer", lambda c, state, *_: c.hset(state, "v", "9" * 4000)),
    "another version": ("another version", lambda c, state, *_: c.hset(state, "v", "0.9")),
}


@pytest.mark.parametrize("harm", HARMS)
async def test_what_was_tampered_with_is_corrupt(
    sealed: Sealed, redis_client: aioredis.Redis, harm: str
) -> None:
    store = await sealed(NEW)
    head, other = new_head(), new_head()
    for one in (head, other):
        writer = store.open(one)
        writer.commit("One.", at_chars=0, meta={"n": 1})
        await store.flushed()
        writer.commit("Two!", at_chars=4)
        await store.flushed()
    why, do = HARMS[harm]
    await do(redis_client, *keys(head.stream_id), *keys(other.stream_id))
    with pytest.raises(RecordCorrupt, match=why):
        await store.load(head.stream_id)
    with pytest.raises(RecordCorrupt, match=why):
        await store.takeover(head.stream_id, expected_epoch=1)
    assert (await store.load(other.stream_id)).text == "One.Two!"


async def test_whole_frames_cut_off_leave_a_true_prefix(
    sealed: Sealed, redis_client: aioredis.Redis, head: RecordHead
) -> None:
    """Which nobody can tell from the moment before; what is written next is then refused."""
    store = await sealed(NEW)
    writer = store.open(head)
    writer.source = lambda: "One.Two!Three"
    for at_chars, piece in ((0, "One."), (4, "Two!")):
        writer.commit(piece, at_chars=at_chars)
        await store.flushed()
    state, text = keys(head.stream_id)
    await _truncate(redis_client, text, state, 36, 4)
    assert (await store.load(head.stream_id)).text == "One."
    writer.commit("Three", at_chars=8)
    await store.flushed()
    record = await store.load(head.stream_id)
    assert (record.text, record.stale) == ("One.Two!Three", False)


@pytest.mark.parametrize("lost", ["everything", "the text"])
async def test_a_sealed_record_catches_up(
    sealed: Sealed, redis_client: aioredis.Redis, head: RecordHead, lost: str
) -> None:
    store = await sealed(NEW)
    writer = store.open(head)
    text = "One."
    writer.source = lambda: text
    writer.commit("One.", at_chars=0, meta={"n": 1})
    await store.flushed()
    await redis_client.delete(*keys(head.stream_id)[lost == "the text" :])
    for piece in (" Two.", " Three.", " Four."):
        writer.commit(piece, at_chars=len(text))
        text += piece
        await store.flushed()
    record = await store.load(head.stream_id)
    assert (record.text, record.stale, record.meta) == (text, False, {"n": 1})
    assert store.stats["recovered"] == 1


@pytest.mark.parametrize("key", [(), (NEW,)], ids=["plain", "sealed"])
async def test_one_epoch_given_twice(
    own_redis: RedisServer, make_redis_store: MakeStore, head: RecordHead, key: tuple[bytes, ...]
) -> None:
    """A takeover is lost with the server that knew of it, and another router makes the same one:
    two writers of epoch 2, and pieces of equal length."""
    envelopes = SealedEnvelopes(key) if key else PlainEnvelopes()
    first, second, third = [
        await make_redis_store(own_redis.url, envelopes=envelopes) for _ in range(3)
    ]
    first.open(head).commit("One.", at_chars=0)
    await first.flushed()
    async with aioredis.Redis.from_url(own_redis.url, protocol=2) as client:
        saved = {name: await client.dump(name) for name in keys(head.stream_id)}
        _, lost = await second.takeover(head.stream_id, expected_epoch=1)
        lost.commit(" Lost", at_chars=4)
        await second.flushed()
        for name, value in saved.items():
            assert value is not None
            await client.restore(name, 60_000, value, replace=True)
    _, kept = await third.takeover(head.stream_id, expected_epoch=1)
    assert (lost.epoch, kept.epoch) == (2, 2)
    kept.commit(" Kept", at_chars=4)
    await third.flushed()
    lost.commit(" text", at_chars=9)
    await second.flushed()
    kept.commit(" here", at_chars=9)
    await third.flushed()
    record = await first.load(head.stream_id)
    assert (record.text, record.stale) == ("One. Kept here", False)
    assert (lost.fenced, kept.fenced) == (True, False)


class Lossy:
    """A way to Redis on which an answer can get lost."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.loses = False
        self.lost = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        asking = asyncio.create_task(self._ask(reader, back))
        while answer := await there.read(65_536):
            if self.loses:
                self.loses, self.lost = False, self.lost + 1
                break
            writer.write(answer)
        asking.cancel()
        for end in (back, writer):
            end.close()

    async def _ask(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        while asked := await reader.read(65_536):
            back.write(asked)
        back.write_eof()


async def test_a_takeover_whose_answer_is_lost_is_repeated(
    redis_server: RedisServer, make_redis_store: MakeStore, head: RecordHead
) -> None:
    owner = await make_redis_store(redis_server.url)
    owner.open(head).commit("One.", at_chars=0)
    await owner.flushed()
    way = Lossy(redis_server.port)
    async with await asyncio.start_server(way.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        store = await make_redis_store(f"redis://127.0.0.1:{port}")
        await store.load(head.stream_id)
        way.loses = True
        record, new = await store.takeover(head.stream_id, expected_epoch=1)
        assert (way.lost, record.text, new.epoch) == (1, "One.", 2)
        new.commit(" Two.", at_chars=4)
        await store.flushed()
        with pytest.raises(RecordConflict):
            await store.takeover(head.stream_id, expected_epoch=1)
        await store.aclose()
    record = await owner.load(head.stream_id)
    assert (record.text, record.epoch) == ("One. Two.", 2)
