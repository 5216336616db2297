"""The store that keeps nothing."""

from __future__ import annotations

import pytest

from router.errors import RecordNotKept
from router.store import make_store
from router.store.base import RecordHead
from router.store.memory import MemoryRecordStore
from router.store.nothing import NothingStore


@pytest.mark.parametrize("url", [None, "redis://127.0.0.1:1/0"])
async def test_whatever_is_said_to_it_is_forgotten(url: str | None, head: RecordHead) -> None:
    store = make_store(url, retains=False)
    assert isinstance(store, NothingStore)
    await store.start()
    writer = store.open(head)
    writer.source = lambda: "One."
    writer.commit("One.", at_chars=0, meta={"n": 1})
    writer.close("interrupted", keep_s=60)
    await store.flushed()
    assert (writer.epoch, writer.fenced, store.advice) == (1, False, ())
    for call in (store.load(head.stream_id), store.takeover(head.stream_id, expected_epoch=1)):
        with pytest.raises(RecordNotKept):
            await call
    assert set(store.stats) <= set(MemoryRecordStore().stats)
    assert not any(store.stats.values())
    await store.aclose()
