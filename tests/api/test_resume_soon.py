"""A client may be back before its stream is on record: that is waited for, a little."""

from __future__ import annotations

import asyncio

import pytest

from router.api.resume import NOT_YET_S, Asker, take_over
from router.errors import RecordNotFound, RecordNotYet, RequestError
from router.store.base import Record, RecordHead
from router.store.memory import MemoryRecordStore

HEAD = RecordHead(
    stream_id="soon", kind="text", route="chat", request_digest="d", owner="o", created=1.0
)
ASKER = Asker(digest="d", owner="o", kind="text", stream=True, several=False, continuable=True)
HEADERS = {"x-router-resume": "soon", "x-router-received": "4"}


class LateStore(MemoryRecordStore):
    """Opens the record only after so many looks for it."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    async def load(self, stream_id: str) -> Record:
        if self.looks == 0:
            self.open(HEAD).commit("One. ", at_chars=0)
        self.looks -= 1
        return await super().load(stream_id)


@pytest.mark.parametrize("looks", range(len(NOT_YET_S) + 1))
async def test_a_record_that_is_late_is_found(looks: int) -> None:
    waited: list[float] = []
    store = LateStore(looks)

    async def sleep(delay_s: float) -> None:
        waited.append(delay_s)
        await asyncio.sleep(0)

    resumed = await take_over(HEADERS, store, ASKER, sleep=sleep)
    assert resumed is not None
    assert (resumed.record.text, resumed.plan.replay) == ("One. ", " ")
    assert waited == list(NOT_YET_S[:looks])
    await store.aclose()


async def test_one_that_never_comes_is_unknown() -> None:
    store = LateStore(len(NOT_YET_S) + 1)
    with pytest.raises(RequestError) as refused:
        await take_over(HEADERS, store, ASKER, sleep=lambda _: asyncio.sleep(0))
    assert (refused.value.status, refused.value.code) == (404, "resume_unknown")
    await store.aclose()


class StormyStore(LateStore):
    """Has been away until a moment ago."""

    async def load(self, stream_id: str) -> Record:
        try:
            return await super().load(stream_id)
        except RecordNotFound:
            raise RecordNotYet("Redis was away until a moment ago") from None


async def test_after_an_outage_a_record_is_waited_for_and_never_said_to_be_unknown() -> None:
    store = StormyStore(len(NOT_YET_S))
    resumed = await take_over(HEADERS, store, ASKER, sleep=lambda _: asyncio.sleep(0))
    assert resumed is not None
    assert resumed.record.text == "One. "
    await store.aclose()

    store = StormyStore(len(NOT_YET_S) + 1)
    with pytest.raises(RequestError, match="a moment ago") as refused:
        await take_over(HEADERS, store, ASKER, sleep=lambda _: asyncio.sleep(0))
    assert (refused.value.status, refused.value.code) == (503, "resume_unavailable")
    await store.aclose()
