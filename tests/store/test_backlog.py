"""One stream's backlog against the real script, in every order that a network allows.

Writers of which one takes over from the other; batches whose reply is lost; commands that arrive
long after they were given up; writers that wake up long after they were fenced out; a store that
forgets, or that goes back to what it was (a failover to a replica that lagged: a takeover may be
lost, and its epoch given away twice); a queue that drops. As it is, and sealed frame by frame.
Whatever happens, the record's text is a prefix of what its writer wrote, and a record that is not
marked stale, with nothing waiting, is the whole of it.
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
from record_kit import RedisServer, new_head, node_of

from router.errors import RecordCorrupt
from router.store.backlog import Backlog, Fit, Tally, Write, new_writer
from router.store.base import Record
from router.store.cipher import SealedEnvelopes
from router.store.codec import decode_record
from router.store.envelope import Envelope, Envelopes, PlainEnvelopes
from router.store.link import RedisLink
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


class Writers(RuleBasedStateMachine):
    """The steps."""

    loop: asyncio.AbstractEventLoop
    link: RedisLink
    envelopes: Envelopes

    def __init__(self) -> None:
        super().__init__()
        self.owners: list[Owner] = []
        self.late: list[Write] = []
        self.saved: list[bytes | None] | None = None
        self.went_back = False
        self.tally = Tally()
        self.head = new_head()

    def send(self, write: Write) -> int:
        return self.loop.run_until_complete(self.link.send([write], 60_000)).answers[0]

    def held(self) -> tuple[dict[bytes, bytes], bytes]:
        reply = self.loop.run_until_complete(self.link.call(Script(LOAD), self.head.stream_id))
        return dict(zip(reply[0][::2], reply[0][1::2], strict=True)), reply[1] or b""

    def load(self) -> tuple[Record, Envelope] | None:
        state, text = self.held()
        if not state or b"gone" in state:
            return None
        try:
            return decode_record(self.head.stream_id, state, text, self.envelopes)
        except RecordCorrupt:
            # Its text was made to vanish, and nobody has written since. Nothing else is forgiven.
            assert len(text) != int(state[b"bytes"])
            return None

    @initialize(with_source=st.booleans())
    def begin(self, with_source: bool) -> None:
        self.with_source = with_source
        envelope = self.envelopes.new(self.head.stream_id)
        self.add(Owner(Backlog(self.head, self.tally, envelope=envelope), ""))

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

    @rule(which=st.integers(0, 3), out=st.booleans())
    def overflow(self, which: int, out: bool) -> None:
        backlog = self.pick(which).backlog
        if out:
            backlog.put_out()
        else:
            backlog.drop()

    @precondition(lambda self: len(self.owners) < 4)
    @rule(times=st.integers(1, 2))
    def take_over(self, times: int) -> None:
        loaded = self.load()
        if loaded is None:
            return
        record, envelope = loaded
        writer = new_writer()
        seals = f" {' '.join(self.envelopes.seals)} "
        for _ in range(times):  # its answer is lost, and it is sent again
            call = self.link.call(
                Script(TAKEOVER), self.head.stream_id, record.epoch, writer, seals, 60_000
            )
            assert self.loop.run_until_complete(call)[2] == 1
        resumed = replace(record, epoch=record.epoch + 1)
        backlog = Backlog(self.head, self.tally, envelope=envelope, writer=writer, resumed=resumed)
        self.add(Owner(backlog, record.text))

    @precondition(lambda self: len(self.owners) < 3)
    @rule()
    def take_over_twice(self) -> None:
        """The first takeover is lost with the server that knew of it; its epoch is given again."""
        self.save()
        self.take_over(1)
        self.go_back()
        self.take_over(1)

    @rule(text_only=st.booleans())
    def forget(self, text_only: bool) -> None:
        names = keys(self.head.stream_id)
        delete = node_of(self.link).reader.delete(*(names[1:] if text_only else names))
        self.loop.run_until_complete(delete)
        self.went_back = True

    @rule()
    def save(self) -> None:
        self.saved = [
            self.loop.run_until_complete(node_of(self.link).reader.dump(name))
            for name in keys(self.head.stream_id)
        ]

    @precondition(lambda self: self.saved is not None)
    @rule()
    def go_back(self) -> None:
        """Both keys are again what they were."""
        assert self.saved is not None
        client = node_of(self.link).reader
        for name, value in zip(keys(self.head.stream_id), self.saved, strict=True):
            self.loop.run_until_complete(client.delete(name))
            if value is not None:
                self.loop.run_until_complete(client.restore(name, 60_000, value))
        self.went_back = True

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
        if self.went_back and not owner.ended and not owner.backlog.over:
            # What the store lost is noticed at the next commit, if its writer has one.
            owner.backlog.commit("!", len(owner.text), None)
            owner.text += "!"
        self.settle_all(owner)
        loaded = self.load()
        if loaded is None or owner.ended or owner.backlog.over:
            return
        record = loaded[0]
        # Who has marked its record and cannot mend it says no more until it ends; then once more.
        lost_mark = self.went_back and owner.backlog._fit is Fit.MARKED
        self.went_back = lost_mark
        if lost_mark:
            return
        assert record.epoch == owner.backlog.epoch
        if not record.stale:
            assert record.text == owner.text
        if self.with_source and owner.backlog.source is not None:
            assert not record.stale or owner.backlog._mends
            assert record.text == owner.text

    @invariant()
    def the_text_is_a_prefix_of_what_its_writer_wrote(self) -> None:
        if not self.owners:
            return
        state, _ = self.held()
        loaded = self.load()
        if loaded is None:
            return
        written = {owner.backlog.writer.encode(): owner.text for owner in self.owners}
        assert written[state[b"writer"]].startswith(loaded[0].text)

    @invariant()
    def it_is_known_how_many_are_behind(self) -> None:
        backlogs = [owner.backlog for owner in self.owners]
        behind = [one for one in backlogs if one._fit is not Fit.FOLLOWS and not one.over]
        assert self.tally.records_behind == len(behind)

    @invariant()
    def nothing_of_it_is_plain(self) -> None:
        state, text = self.held()
        if self.envelopes.seals != ("",) and state and b"gone" not in state:
            assert self.head.request_digest.encode() not in b"".join(state.values())
            loaded = self.load()
            if loaded is not None and len(loaded[0].text) > 1:
                assert loaded[0].text.encode("utf-8", "surrogatepass") not in text


@pytest.mark.parametrize(
    "envelopes",
    [PlainEnvelopes(), SealedEnvelopes([bytes(range(32)), bytes(32)])],
    ids=["plain", "sealed"],
)
def test_writers_in_any_order(redis_server: RedisServer, envelopes: Envelopes) -> None:
    loop = asyncio.new_event_loop()
    link = RedisLink(redis_server.url, command_timeout_s=5, connect_timeout_s=5)
    machine = type("Machine", (Writers,), {"loop": loop, "link": link, "envelopes": envelopes})
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=60,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        loop.run_until_complete(link.aclose())
        loop.close()
