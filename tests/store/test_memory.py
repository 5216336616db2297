"""The bounds and the clock of the record in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_kit import new_head

from router.errors import RecordNotFound
from router.store.base import RecordHead
from router.store.memory import MemoryRecordStore


class Clock:
    """Time that moves when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


async def held(store: MemoryRecordStore, heads: list[RecordHead]) -> list[bool]:
    found = []
    for head in heads:
        try:
            await store.load(head.stream_id)
        except RecordNotFound:
            found.append(False)
        else:
            found.append(True)
    return found


async def test_an_open_record_outlives_its_last_commit_by_the_ttl() -> None:
    clock = Clock()
    store = MemoryRecordStore(ttl_s=10, clock=clock)
    head = new_head()
    writer = store.open(head)
    for n in range(5):
        clock.now += 9
        writer.commit("x", at_chars=n)
    clock.now += 9.9
    assert (await store.load(head.stream_id)).text == "xxxxx"
    clock.now += 0.2
    with pytest.raises(RecordNotFound):
        await store.load(head.stream_id)
    assert store.stats["records"] == store.stats["record_bytes"] == 0
    writer.commit("y", at_chars=5)
    writer.close("interrupted", keep_s=10)
    assert store.stats["records"] == 0


@pytest.mark.parametrize("keep_s", [1.0, 500.0])
async def test_a_closed_record_is_kept_as_long_as_was_said(keep_s: float) -> None:
    clock = Clock()
    store = MemoryRecordStore(ttl_s=50, clock=clock)
    head = new_head()
    writer = store.open(head)
    writer.commit("x", at_chars=0)
    writer.close("interrupted", keep_s=keep_s)
    clock.now += keep_s * 0.99
    assert (await store.load(head.stream_id)).outcome == "interrupted"
    clock.now += keep_s * 0.02
    store.open(new_head())
    assert store.stats["records"] == 1
    with pytest.raises(RecordNotFound):
        await store.load(head.stream_id)


async def test_too_many_records_the_one_untouched_longest_goes() -> None:
    store = MemoryRecordStore(max_records=3)
    heads = [new_head() for _ in range(4)]
    writers = [store.open(head) for head in heads[:3]]
    writers[0].commit("x", at_chars=0)
    store.open(heads[3])
    assert await held(store, heads) == [True, False, True, True]
    assert store.stats["evicted"] == 1
    writers[1].commit("gone", at_chars=0)
    assert store.stats["commits_dropped"] == 1


async def test_too_much_text_the_one_untouched_longest_goes() -> None:
    store = MemoryRecordStore(max_bytes=100)
    heads = [new_head() for _ in range(3)]
    writers = [store.open(head) for head in heads]
    for writer in writers:
        writer.commit("ä" * 20, at_chars=0)
    assert await held(store, heads) == [False, True, True]
    writers[1].commit("b" * 200, at_chars=20)
    assert await held(store, heads) == [False, False, False]
    assert store.stats["record_bytes"] == 0


async def test_an_id_that_is_opened_again_is_another_record() -> None:
    store = MemoryRecordStore()
    head = new_head()
    first = store.open(head)
    first.commit("first", at_chars=0)
    store.open(head)
    first.commit(" more", at_chars=5)
    first.close("completed", keep_s=0)
    assert (await store.load(head.stream_id)).text == ""


async def test_deadlines_of_records_that_are_gone_are_swept() -> None:
    store = MemoryRecordStore()
    for _ in range(5_000):
        store.open(new_head()).close("completed", keep_s=0)
    assert len(store._deadlines) < 1_100
    assert store.stats["records"] == 0


STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40), st.sampled_from("ocxk")))


@given(steps=STEPS)
def test_the_bounds_hold_whatever_is_done(steps: list[tuple[int, int, str]]) -> None:
    clock = Clock()
    store = MemoryRecordStore(max_records=3, max_bytes=90, ttl_s=60, clock=clock)
    heads = [new_head() for _ in range(6)]
    writers = {n: store.open(head) for n, head in enumerate(heads)}
    chars = dict.fromkeys(range(6), 0)
    acts: dict[str, Callable[[int, int], None]] = {
        "x": lambda n, _: writers[n].close("completed", keep_s=0),
        "k": lambda n, size: writers[n].close("interrupted", keep_s=size),
    }
    for n, size, act in steps:
        clock.now += size / 4
        if act == "o":
            writers[n], chars[n] = store.open(heads[n]), 0
        elif act == "c":
            writers[n].commit("x" * size, at_chars=chars[n])
            chars[n] += size
        else:
            acts[act](n, size)
        entries = store._entries.values()
        assert len(entries) <= 3
        assert store.stats["record_bytes"] == sum(entry.size for entry in entries) <= 90
        assert all(len("".join(entry.parts)) == entry.size for entry in entries)
