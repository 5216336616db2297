"""One stream's backlog against the real script, in every order that a network allows.

Two writers, of which one takes over from the other; batches whose reply is lost; commands that
arrive long after they were given up; a store that forgets; a queue that drops. Whatever happens,
the record's text is a prefix of what the owner of its epoch wrote, and a record that is not marked
stale, with nothing waiting, is the whole of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from record_kit import RedisServer, new_head

from router.errors import RecordCorrupt
from router.store.backlog import Backlog, Tally, Write
from router.store.base import Record
from router.store.codec import decode_record
from router.store.redis import RedisLink
from router.store.scripts import LOAD, TAKEOVER, Script, keys

pytestmark = pytest.mark.redis

PIECES = st.text(st.sampled_from(["a", "é", "終", "😀", "\u0301", "\ud83d", "."]), max_size=4)


class Owner:
    """A backlog, and what its stream really committed."""

    def __init__(self, backlog: Backlog, text: str) -> None:
        self.backlog = backlog
        self.text = text
        self.ended = False

    def whole(self) -> str:
        return self.text


class TwoWriters(RuleBasedStateMachine):
    """The steps."""

    url: str
    loop: asyncio.AbstractEventLoop
    link: RedisLink

    def __init__(self) -> None:
        super().__init__()
        self.owners: list[Owner] = []
        self.late: list[Write] = []
        self.tally = Tally()
        self.head = new_head()

    def send(self, write: Write) -> int:
        return self.loop.run_until_complete(self.link.send([write], 60_000))[0]

    def load(self) -> Record | None:
        reply = self.loop.run_until_complete(self.link.call(Script(LOAD), self.head.stream_id))
        state = dict(zip(reply[0][::2], reply[0][1::2], strict=True))
        if not state or b"gone" in state:
            return None
        try:
            return decode_record(self.head.stream_id, state, reply[1] or b"")
        except RecordCorrupt:  # its text was made to vanish, and nobody has written since
            return None

    @initialize(with_source=st.booleans())
    def begin(self, with_source: bool) -> None:
        self.with_source = with_source
        self.add(Owner(Backlog(self.head, self.tally), ""))

    def add(self, owner: Owner) -> None:
        if self.with_source:
            owner.backlog.source = owner.whole
        self.owners.append(owner)

    def pick(self, which: int) -> Owner:
        return self.owners[which % len(self.owners)]

    @rule(which=st.integers(0, 3), pieces=st.lists(PIECES, min_size=1, max_size=3))
    def commit(self, which: int, pieces: list[str]) -> None:
        owner = self.pick(which)
        for piece in pieces:
            if not owner.ended and not owner.backlog.over:
                at_chars = len(owner.text)
                owner.text += piece
                owner.backlog.commit(piece, at_chars, {"at": at_chars})

    @rule(which=st.integers(0, 3), fate=st.sampled_from(["answered", "lost", "unsent", "late"]))
    def step(self, which: int, fate: str) -> None:
        backlog = self.pick(which).backlog
        write = backlog.take()
        if write is None:
            return
        if fate == "late":
            self.late.append(write)
        elif fate != "unsent":
            answer = self.send(write)
            if fate == "answered":
                backlog.settle(answer)

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 9))
    def arrive_late(self, which: int) -> None:
        self.send(self.late.pop(which % len(self.late)))

    @rule(which=st.integers(0, 3))
    def overflow(self, which: int) -> None:
        self.pick(which).backlog.drop()

    @precondition(lambda self: len(self.owners) < 4)
    @rule()
    def take_over(self) -> None:
        record = self.load()
        if record is None:
            return
        call = self.link.call(Script(TAKEOVER), self.head.stream_id, record.epoch, 60_000)
        assert self.loop.run_until_complete(call)[2] == 1
        resumed = replace(record, epoch=record.epoch + 1)
        self.add(Owner(Backlog(self.head, self.tally, resumed=resumed), record.text))

    @rule(text_only=st.booleans())
    def forget(self, text_only: bool) -> None:
        names = keys(self.head.stream_id)
        delete = self.link._reader.delete(*(names[1:] if text_only else names))
        self.loop.run_until_complete(delete)

    @rule(which=st.integers(0, 3), keep_s=st.sampled_from([0.0, 60.0]))
    def close(self, which: int, keep_s: float) -> None:
        owner = self.pick(which)
        if which == 3:  # rarely: little is left to try after it
            owner.ended = True
            owner.backlog.close("interrupted", keep_s)

    def settle_all(self, owner: Owner) -> None:
        for _ in range(20):
            write = owner.backlog.take()
            if write is None:
                return
            owner.backlog.settle(self.send(write))
        raise AssertionError("it never comes to rest")

    @rule()
    def come_to_rest(self) -> None:
        owner = self.owners[-1]
        self.settle_all(owner)
        record = self.load()
        if record is None or owner.ended or record.epoch != owner.backlog.epoch:
            return
        if not record.stale:
            assert record.text == owner.text
        if self.with_source and owner.backlog.source is not None:
            assert not record.stale or owner.backlog._mends
            assert record.text == owner.text

    @invariant()
    def the_text_is_a_prefix_of_what_its_owner_wrote(self) -> None:
        if not self.owners:
            return
        reply = self.loop.run_until_complete(self.link.call(Script(LOAD), self.head.stream_id))
        state = dict(zip(reply[0][::2], reply[0][1::2], strict=True))
        text = (reply[1] or b"").decode("utf-8", "surrogatepass")
        if b"gone" in state or not state or len(text) != int(state[b"chars"]):
            return  # deleted, or a text that was made to vanish: load says so
        epoch = int(state[b"epoch"])
        assert any(
            owner.backlog.epoch == epoch and owner.text.startswith(text) for owner in self.owners
        )


def test_two_writers_in_any_order(redis_server: RedisServer) -> None:
    loop = asyncio.new_event_loop()
    link = RedisLink(redis_server.url, command_timeout_s=5, connect_timeout_s=5)
    machine = type("Machine", (TwoWriters,), {"loop": loop, "link": link})
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=150,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        loop.run_until_complete(link.aclose())
        loop.close()
