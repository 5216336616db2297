"""The record in Redis: written behind the streams' backs, read when one is resumed.

A Redis that is slow, hung or away delays no caller: `open`, `commit` and `close` queue, and `load`
and `takeover` give up in time, at once where nobody was answered for a while.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from router.errors import (
    RecordConflict,
    RecordCorrupt,
    RecordNotFound,
    RecordNotYet,
    RecordUnavailable,
)
from router.store.advice import COMMANDS, Ours, advise
from router.store.backlog import Backlog, Tally, Write, new_writer
from router.store.base import Record, RecordHead
from router.store.circuit import Circuits
from router.store.codec import checked_id, decode_record, is_stream_id
from router.store.envelope import Envelope, Envelopes, PlainEnvelopes
from router.store.link import RedisLink
from router.store.memory import TTL_S
from router.store.options import COMMAND_TIMEOUT_S, CONNECT_TIMEOUT_S, RedisOptions
from router.store.scripts import LOAD, TAKEOVER, Script
from router.store.weather import Weather
from router.store.writebehind import LATER, QueueLimits, Sent, WriteQueue

__all__ = [
    "COMMAND_TIMEOUT_S", "CONNECT_TIMEOUT_S", "RedisLink", "RedisRecordStore", "RedisRecordWriter",
]  # fmt: skip

RETRY_MIN_S = 0.25
RETRY_MAX_S = 5.0
"""Pauses between tries to reach a Redis that does not answer reads, in seconds: the first, and the
longest."""


class RedisRecordWriter:
    """One stream's writer; see `RecordWriter`.

    Args:
        backlog: what the stream has to say.
        queue: where it waits.
    """

    __slots__ = ("_backlog", "_queue")

    def __init__(self, backlog: Backlog, queue: WriteQueue) -> None:
        self._backlog = backlog
        self._queue = queue

    @property
    def epoch(self) -> int:
        """The epoch this writer holds."""
        return self._backlog.epoch

    @property
    def fenced(self) -> bool:
        """A newer epoch was seen."""
        return self._backlog.fenced

    @property
    def on_fenced(self) -> Callable[[], None] | None:
        """Called once, from the event loop, when a newer epoch is seen."""
        return self._backlog.on_fenced

    @on_fenced.setter
    def on_fenced(self, callback: Callable[[], None] | None) -> None:
        self._backlog.on_fenced = callback

    @property
    def source(self) -> Callable[[], str] | None:
        """Gives the whole committed text, for a record that lost some of it."""
        return self._backlog.source

    @source.setter
    def source(self, source: Callable[[], str] | None) -> None:
        self._backlog.source = source

    def commit(self, delta: str, *, at_chars: int, meta: Mapping[str, Any] | None = None) -> None:
        """Move the record to the next boundary; see `RecordWriter.commit`."""
        self._backlog.commit(delta, at_chars, meta)
        self._queue.touch(self._backlog)

    async def settled(self) -> None:
        """Wait until all was answered; see `RecordWriter.settled`."""
        await self._queue.settled(self._backlog)

    def close(self, outcome: str, *, keep_s: float) -> None:
        """The stream ended; see `RecordWriter.close`."""
        self._backlog.close(outcome, keep_s)
        self._queue.touch(self._backlog)


class RedisRecordStore:
    """Records in Redis.

    Args:
        url: in one of the forms of `config/redis_url.py`.
        ttl_s: seconds that an open record outlives its last commit. Longer than any pause between
            two commits of a live stream, or its record is lost under it.
        command_timeout_s: longest wait for answers, in seconds.
        connect_timeout_s: longest wait for a connection, in seconds.
        options: both of these and more, in their place.
        envelopes: wrap what is stored.
        weather: what the process's other links have seen, and are to hear of.
        limits: bounds and times of the queue.
        rng: where the jitter of reconnection comes from.

    Raises:
        ValueError: a URL of another kind.
    """

    def __init__(
        self,
        url: str,
        *,
        ttl_s: float = TTL_S,
        command_timeout_s: float = COMMAND_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        options: RedisOptions | None = None,
        envelopes: Envelopes | None = None,
        weather: Weather | None = None,
        limits: QueueLimits | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._ttl_ms = round(ttl_s * 1000)
        self._tally = Tally()
        self._load = Script(LOAD)
        self._takeover = Script(TAKEOVER)
        self._link = RedisLink(
            url,
            command_timeout_s=command_timeout_s,
            connect_timeout_s=connect_timeout_s,
            options=options,
            weather=weather,
        )
        self._envelopes = envelopes or PlainEnvelopes()
        self._rng = rng or random.Random()  # noqa: S311 - jitter, no secret
        self._queue = WriteQueue(self._send, limits or QueueLimits(), self._tally, self._rng)
        self._circuits = Circuits(self._tally)
        self._log = logging.getLogger("router.store")
        self._advice: tuple[str, ...] = ()
        self._inspecting: asyncio.Task[None] | None = None
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._stopped = False

    async def start(self) -> None:
        """Begin to write; connects when there is something to say. How Redis is set up is asked
        meanwhile."""
        if self._inspecting is None:
            self._inspecting = asyncio.create_task(self._inspect(), name="record-inspector")
        self._queue.start()

    async def aclose(self) -> None:
        """Send what is queued, for `close_timeout_s` at most, and close every connection."""
        self._stopped = True
        for task in (self._inspecting, *self._probing.values()):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._queue.aclose()
        await self._link.aclose()

    async def flushed(self) -> None:
        """Wait until everything queued has been answered: with Redis away, until it is back."""
        await self._queue.flushed()

    @property
    def lasting(self) -> bool:
        """They live in Redis."""
        return True

    @property
    def stats(self) -> Mapping[str, int]:
        """The counts (`Tally`), what waits (`queue_streams`, `queue_bytes`), and of how many
        servers reads are refused just now (`circuit_open`)."""
        return {**self._queue.stats, "circuit_open": self._circuits.open_count}

    @property
    def advice(self) -> Sequence[str]:
        """What should be set up otherwise in Redis, as sentences; empty until it was asked."""
        return self._advice

    def open(self, head: RecordHead) -> RedisRecordWriter:
        """Begin a record; see `RecordStore.open`.

        Raises:
            ValueError: the head's id is no stream id.
        """
        envelope = self._envelopes.new(checked_id(head.stream_id))
        return self._writer(Backlog(head, self._tally, envelope=envelope))

    async def load(self, stream_id: str) -> Record:
        """Read a record back; see `RecordStore.load`."""
        fields, raw = await self._read(self._load, stream_id)
        return self._decode(stream_id, fields, raw)[0]

    async def takeover(
        self, stream_id: str, *, expected_epoch: int
    ) -> tuple[Record, RedisRecordWriter]:
        """Become the owner; see `RecordStore.takeover`.

        A `RecordUnavailable` may come after the epoch was raised: load the record and try again.
        """
        writer = new_writer()
        seals = f" {' '.join(self._envelopes.seals)} "
        fields, raw, taken = await self._read(
            self._takeover, stream_id, expected_epoch, writer, seals, self._ttl_ms
        )
        record, envelope = self._decode(stream_id, fields, raw)
        if not taken:
            raise RecordConflict(f"record {stream_id} is at epoch {record.epoch}")
        record = replace(record, epoch=expected_epoch + 1)
        backlog = Backlog(
            record.head, self._tally, envelope=envelope, writer=writer, resumed=record
        )
        return record, self._writer(backlog)

    def _writer(self, backlog: Backlog) -> RedisRecordWriter:
        self._queue.touch(backlog)
        return RedisRecordWriter(backlog, self._queue)

    def _decode(
        self, stream_id: str, fields: Sequence[bytes], raw: bytes | None
    ) -> tuple[Record, Envelope]:
        state = dict(zip(fields[::2], fields[1::2], strict=True))
        if not state and self._link.settling(stream_id):
            raise RecordNotYet(
                "Redis was away until a moment ago, and the stream is not on record (again)"
            )
        if not state or b"gone" in state:
            raise RecordNotFound(f"no record of stream {stream_id}")
        return decode_record(stream_id, state, raw or b"", self._envelopes)

    async def _send(self, writes: Sequence[Write]) -> Sent:
        sent = await self._link.send(writes, self._ttl_ms)
        if self._circuits.failing:
            for write, answer in zip(writes, sent.answers, strict=True):
                if answer != LATER:
                    self._circuits.answered(self._link.place(write.stream_id))
        return sent

    # Reads, and how one that is hopeless costs nothing.

    async def _read(self, script: Script, stream_id: str, *args: int | str) -> list[Any]:
        if not is_stream_id(stream_id):
            raise RecordNotFound("no record can have such an id")
        self._circuits.check(self._link.place(stream_id))
        try:
            reply = await self._link.call(script, stream_id, *args)
        except RecordUnavailable as error:
            server = self._failed(stream_id, error)
            if self._circuits.is_open(server) and server not in self._probing and not self._stopped:
                self._log.warning("record: reads are refused for now: %s", error)
                probing = self._probe(server, stream_id)
                self._probing[server] = asyncio.create_task(probing, name="record-probe")
            raise
        self._circuits.answered(self._link.place(stream_id))
        return reply

    def _failed(self, stream_id: str, error: RecordUnavailable) -> str:
        """A read was not answered: by which server, as far as that is known by now."""
        server = self._link.place(stream_id)
        self._circuits.failed(server, str(error))
        return server

    async def _probe(self, server: str, stream_id: str) -> None:
        """Repeat a read that failed, until it succeeds, there or elsewhere, or a write does."""
        try:
            async for _ in self._pauses():
                if not self._circuits.is_open(server) or await self._reaches(stream_id):
                    break
            self._circuits.answered(server)
            self._log.warning("record: reads are served again")
        finally:
            del self._probing[server]

    async def _reaches(self, stream_id: str) -> bool:
        try:
            await self._link.call(self._load, stream_id)
        except RecordUnavailable as error:
            self._failed(stream_id, error)
            return False
        except RecordCorrupt:
            pass
        self._circuits.answered(self._link.place(stream_id))
        return True

    async def _inspect(self) -> None:
        """Ask how Redis is set up, as soon as it answers; what is to be said about it is logged."""
        async for _ in self._pauses(at_once=True):
            try:
                found = await self._link.survey(*COMMANDS)
            except RecordUnavailable:
                continue
            ours = Ours(sealed=self._envelopes.seals != ("",), cluster=self._link.redirects)
            self._advice = advise(found, ours)
            for sentence in self._advice:
                self._log.warning("record: %s", sentence)
            return

    async def _pauses(self, *, at_once: bool = False) -> AsyncIterator[None]:
        pause_s = RETRY_MIN_S
        if at_once:
            yield
        while True:
            await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.0))
            yield
            pause_s = min(2 * pause_s, RETRY_MAX_S)
