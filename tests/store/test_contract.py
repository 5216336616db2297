"""What every record store does, held to by each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import pytest
from record_kit import MakeStore, RedisServer
from redis import asyncio as aioredis

from router.errors import RecordConflict, RecordNotFound
from router.store import make_store
from router.store.base import RecordHead, RecordStore
from router.store.memory import MemoryRecordStore
from router.store.redis import RedisRecordStore


class FlushedStore(RecordStore, Protocol):
    """A store that can say when everything is done."""

    async def flushed(self) -> None: ...


TEXTS = [
    "plain.",
    "Zähne, naïve, ﬁ. ",
    "😀👩‍👩‍👧 and 🇩🇪.",
    "e\u0301 and a mark alone: ",
    "\u0301\u0327",
    "終わりです。\u2028next",
    "\x00\r\n\t",
    "half a pair: \ud83d",
    "\ude00 and its rest",
]


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def store(
    request: pytest.FixtureRequest, redis_server: RedisServer, make_redis_store: MakeStore
) -> AsyncIterator[FlushedStore]:
    if request.param == "memory":
        memory = MemoryRecordStore()
        await memory.start()
        yield memory
        await memory.aclose()
    else:
        yield await make_redis_store(redis_server.url)


async def test_an_opened_record_is_empty(store: FlushedStore, head: RecordHead) -> None:
    writer = store.open(head)
    await store.flushed()
    record = await store.load(head.stream_id)
    assert record.head == head
    assert (record.epoch, record.text, record.boundaries) == (1, "", 0)
    assert (record.outcome, record.stale, record.meta) == ("", False, {})
    assert (writer.epoch, writer.fenced) == (1, False)


@pytest.mark.parametrize("at_once", [True, False])
async def test_commits_append(store: FlushedStore, head: RecordHead, at_once: bool) -> None:
    writer = store.open(head)
    text = ""
    for piece in TEXTS:
        writer.commit(piece, at_chars=len(text))
        text += piece
        if not at_once:
            await store.flushed()
            record = await store.load(head.stream_id)
            assert record.text == text
    await store.flushed()
    record = await store.load(head.stream_id)
    assert record.text == text
    assert record.boundaries == len(TEXTS)
    assert store.stats["commits_sent"] == len(TEXTS)


async def test_meta_is_replaced_and_is_a_snapshot(store: FlushedStore, head: RecordHead) -> None:
    writer = store.open(head)
    meta: dict[str, Any] = {"superseded": [[1, 2]], "tried": ["a"], "word": "é\ud83d"}
    writer.commit("One.", at_chars=0, meta=meta)
    meta["superseded"].append("later")
    writer.commit(" Two.", at_chars=4)
    await store.flushed()
    record = await store.load(head.stream_id)
    assert record.meta == {"superseded": [[1, 2]], "tried": ["a"], "word": "é\ud83d"}
    writer.commit("", at_chars=9, meta={"tool": True})
    await store.flushed()
    record = await store.load(head.stream_id)
    assert (record.meta, record.text, record.boundaries) == ({"tool": True}, "One. Two.", 2)


async def test_completed_text_is_deleted(store: FlushedStore, head: RecordHead) -> None:
    writer = store.open(head)
    writer.commit("All of it.", at_chars=0)
    await store.flushed()
    writer.close("completed", keep_s=0)
    await store.flushed()
    with pytest.raises(RecordNotFound):
        await store.load(head.stream_id)


@pytest.mark.parametrize("at_once", [True, False])
async def test_interrupted_text_is_kept(
    store: FlushedStore, head: RecordHead, at_once: bool
) -> None:
    writer = store.open(head)
    writer.commit("Some of it.", at_chars=0)
    if not at_once:
        await store.flushed()
    writer.close("interrupted", keep_s=60)
    await store.flushed()
    record = await store.load(head.stream_id)
    assert (record.text, record.outcome) == ("Some of it.", "interrupted")


async def test_a_closed_writer_writes_no_more(store: FlushedStore, head: RecordHead) -> None:
    writer = store.open(head)
    writer.commit("Some.", at_chars=0)
    writer.close("client_gone", keep_s=60)
    writer.commit(" More.", at_chars=5)
    writer.close("completed", keep_s=0)
    await store.flushed()
    record = await store.load(head.stream_id)
    assert (record.text, record.outcome) == ("Some.", "client_gone")


@pytest.mark.parametrize("at_chars", [0, 3, 5, 99])
async def test_a_commit_that_does_not_fit_changes_no_text(
    store: FlushedStore, head: RecordHead, at_chars: int
) -> None:
    writer = store.open(head)
    writer.commit("Four", at_chars=0)
    await store.flushed()
    writer.commit("wrong", at_chars=at_chars)
    for further in (4, 5, 9, at_chars + 5):
        writer.commit("after", at_chars=further)
    await store.flushed()
    record = await store.load(head.stream_id)
    assert (record.text, record.stale) == ("Four", True)
    assert store.stats["commits_refused"] >= 1
    assert store.stats["stale"] == 1


async def test_takeover_raises_the_epoch_and_goes_on(store: FlushedStore, head: RecordHead) -> None:
    writer = store.open(head)
    writer.commit("Ein Satz. ß😀", at_chars=0, meta={"n": 1})
    writer.close("client_gone", keep_s=60)
    await store.flushed()
    record, second = await store.takeover(head.stream_id, expected_epoch=1)
    assert (record.epoch, record.text, record.outcome) == (2, "Ein Satz. ß😀", "client_gone")
    assert (record.meta, second.epoch) == ({"n": 1}, 2)
    second.commit(" Noch einer.", at_chars=12)
    await store.flushed()
    record = await store.load(head.stream_id)
    assert (record.text, record.boundaries) == ("Ein Satz. ß😀 Noch einer.", 2)
    assert (record.epoch, record.outcome) == (2, "")


async def test_an_old_writer_changes_nothing(store: FlushedStore, head: RecordHead) -> None:
    old = store.open(head)
    fenced: list[str] = []
    old.on_fenced = lambda: fenced.append("now")
    old.commit("First.", at_chars=0)
    await store.flushed()
    _, new = await store.takeover(head.stream_id, expected_epoch=1)
    old.commit(" Old goes on.", at_chars=6, meta={"from": "old"})
    new.commit(" New goes on.", at_chars=6, meta={"from": "new"})
    await store.flushed()
    old.commit(" Again.", at_chars=19)
    old.close("completed", keep_s=0)
    await store.flushed()
    record = await store.load(head.stream_id)
    assert (record.text, record.meta) == ("First. New goes on.", {"from": "new"})
    assert (record.epoch, record.outcome, record.stale) == (2, "", False)
    assert (old.fenced, new.fenced, fenced) == (True, False, ["now"])
    assert store.stats["fenced"] == 1


async def test_an_old_writer_that_only_closes_is_fenced_too(
    store: FlushedStore, head: RecordHead
) -> None:
    old = store.open(head)
    old.commit("First.", at_chars=0)
    await store.flushed()
    await store.takeover(head.stream_id, expected_epoch=1)
    old.close("completed", keep_s=0)
    await store.flushed()
    record = await store.load(head.stream_id)
    assert (record.text, record.epoch) == ("First.", 2)
    assert old.fenced


async def test_an_old_writer_that_wakes_up_after_the_end_is_fenced_too(
    store: FlushedStore, head: RecordHead
) -> None:
    old = store.open(head)
    old.source = lambda: "First. Old goes on."
    old.commit("First.", at_chars=0)
    await store.flushed()
    _, new = await store.takeover(head.stream_id, expected_epoch=1)
    new.commit(" New goes on.", at_chars=6)
    new.close("completed", keep_s=0)
    await store.flushed()
    old.commit(" Old goes on.", at_chars=6)
    await store.flushed()
    assert (old.fenced, new.fenced) == (True, False)
    with pytest.raises(RecordNotFound):
        await store.load(head.stream_id)
    for epoch in (1, 2):
        with pytest.raises(RecordNotFound):
            await store.takeover(head.stream_id, expected_epoch=epoch)


async def test_what_is_settled_is_certain(store: FlushedStore, head: RecordHead) -> None:
    old = store.open(head)
    old.commit("First.", at_chars=0)
    await old.settled()
    await old.settled()  # with nothing to wait for
    record, new = await store.takeover(head.stream_id, expected_epoch=1)
    assert record.text == "First."
    await new.settled()
    new.commit(" New goes on.", at_chars=6)
    old.commit(" Old goes on.", at_chars=6)
    await new.settled()
    await old.settled()
    assert (old.fenced, new.fenced) == (True, False)
    assert (await store.load(head.stream_id)).text == "First. New goes on."


async def test_one_of_two_takes_over(store: FlushedStore, head: RecordHead) -> None:
    store.open(head)
    await store.flushed()
    await store.takeover(head.stream_id, expected_epoch=1)
    with pytest.raises(RecordConflict, match="epoch 2"):
        await store.takeover(head.stream_id, expected_epoch=1)
    record, _ = await store.takeover(head.stream_id, expected_epoch=2)
    assert record.epoch == 3


@pytest.mark.parametrize("stream_id", ["unknown-1", "", "a}b", "x" * 200, "é", "a b", "a\n"])
async def test_unknown_and_impossible_ids_are_not_found(
    store: FlushedStore, stream_id: str
) -> None:
    with pytest.raises(RecordNotFound):
        await store.load(stream_id)
    with pytest.raises(RecordNotFound):
        await store.takeover(stream_id, expected_epoch=1)


@pytest.mark.parametrize("stream_id", ["", "a}b", "{}", "x" * 200, "é", "a b", "a\n"])
async def test_an_impossible_id_is_not_opened(
    store: FlushedStore, heads: Callable[[str], RecordHead], stream_id: str
) -> None:
    bad = RecordHead(
        stream_id=stream_id, kind="text", route="r", request_digest="", owner="", created=0
    )
    with pytest.raises(ValueError, match="stream id"):
        store.open(bad)
    assert heads("good-id_1").stream_id == "good-id_1"


async def test_stale_is_taken_off_by_the_next_owner(store: FlushedStore, head: RecordHead) -> None:
    writer = store.open(head)
    writer.commit("One.", at_chars=0)
    writer.commit("wrong", at_chars=77)
    await store.flushed()
    held = (await store.load(head.stream_id)).text
    record, second = await store.takeover(head.stream_id, expected_epoch=1)
    assert record.stale
    assert (await store.load(head.stream_id)).stale
    second.commit(" Two.", at_chars=len(held))
    await store.flushed()
    record = await store.load(head.stream_id)
    assert (record.text, record.stale) == (held + " Two.", False)


async def test_facts_about_facts_that_are_no_json(store: FlushedStore, head: RecordHead) -> None:
    writer = store.open(head)
    with pytest.raises(TypeError):
        writer.commit("One.", at_chars=0, meta={"bad": object()})
    writer.commit("One.", at_chars=0, meta={"good": 1})
    await store.flushed()
    record = await store.load(head.stream_id)
    assert (record.text, record.meta) == ("One.", {"good": 1})


async def test_nothing_moves_after_aclose(store: FlushedStore, head: RecordHead) -> None:
    writer = store.open(head)
    await store.aclose()
    writer.commit("One.", at_chars=0)
    writer.close("completed", keep_s=0)
    await store.aclose()


@pytest.mark.redis
async def test_make_store(redis_client: aioredis.Redis, redis_server: RedisServer) -> None:
    assert isinstance(make_store(None), MemoryRecordStore)
    store = make_store(redis_server.url)
    assert isinstance(store, RedisRecordStore)
    await store.aclose()
    with pytest.raises(ValueError, match="scheme"):
        make_store("http://127.0.0.1/")
    assert await redis_client.ping()


async def test_both_stores_count_the_same_things(redis_server: RedisServer) -> None:
    redis = RedisRecordStore(redis_server.url)
    assert set(redis.stats) <= set(MemoryRecordStore().stats)
    await redis.aclose()
