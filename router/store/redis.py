"""The record in Redis: written behind the streams' backs, read when one is resumed.

The only place that knows the Redis client and its exceptions. A Redis that is slow, hung or away
delays no caller: `open`, `commit` and `close` queue, and `load` and `takeover` give up in time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from redis import asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from router.errors import RecordConflict, RecordCorrupt, RecordNotFound, RecordUnavailable
from router.store.backlog import REFUSED, Backlog, Tally, Write
from router.store.base import Record, RecordHead
from router.store.codec import checked_id, decode_record, is_stream_id
from router.store.memory import TTL_S
from router.store.scripts import (
    FOREIGN_TYPE,
    LOAD,
    TAKEOVER,
    WRITE,
    Script,
    keys,
    write_args,
)
from router.store.writebehind import LATER, QueueLimits, WriteQueue

COMMAND_TIMEOUT_S = 1.0
"""Longest wait for a batch's answers, or for one read, in seconds: a healthy Redis needs a
thousandth of it, and a client that resumes should not wait long for a refusal."""

CONNECT_TIMEOUT_S = 1.0
"""Longest wait for a connection, in seconds."""

MAX_READERS = 16
"""Connections for reads; many clients that resume at once share them."""

_PASSING = (ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
"""Errors of a server that will write again; every other one is a verdict."""

_PASSING_CODES = ("BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED")
"""The same, for which the client has no class (of the others it takes the code off the message)."""


class RedisLink:
    """Connections to one Redis, and the seam at which its exceptions become the router's.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        command_timeout_s: longest wait for answers.
        connect_timeout_s: longest wait for a connection.

    Raises:
        ValueError: a URL of another kind.
    """

    def __init__(self, url: str, *, command_timeout_s: float, connect_timeout_s: float) -> None:
        self._timeout_s = command_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._writer = self._client(url, 1)
        self._reader = self._client(url, MAX_READERS)
        self._write_script = Script(WRITE)
        self._primed = False

    def _client(self, url: str, connections: int) -> aioredis.Redis:
        pool = aioredis.BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=self._timeout_s,
            protocol=2,
            decode_responses=False,
            socket_connect_timeout=self._connect_timeout_s,
            # Every use is under one deadline for the whole of it; a second per read costs CPU.
            socket_timeout=None,
            # A retry inside the client would be blind to what was already written.
            retry=Retry(NoBackoff(), 0),
        )
        return aioredis.Redis.from_pool(pool)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._writer.aclose()
        await self._reader.aclose()

    async def send(self, writes: Sequence[Write], ttl_ms: int) -> list[int]:
        """Send writes in one pipeline.

        Args:
            writes: of distinct streams.
            ttl_ms: life of an open record, in milliseconds.

        Returns:
            Each one's answer: the script's, or `LATER` or `REFUSED`.

        Raises:
            RecordUnavailable: no answers, or not in time; any of the writes may have been done.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._prime()
                return await self._pipeline(writes, ttl_ms)
        except (RedisError, OSError, TimeoutError) as exc:
            self._primed = False
            raise _unavailable(exc) from exc

    async def call(self, script: Script, stream_id: str, *args: str | int) -> list[Any]:
        """Run one script on a record.

        Raises:
            RecordUnavailable: no answer, or not in time.
            RecordCorrupt: a foreign type under our key.
        """
        reply: list[Any] = await self.run(script, keys(stream_id), *args)
        return reply

    async def run(self, script: Script, on: Sequence[str], *args: str | int | bytes) -> Any:  # noqa: ANN401 - whatever the script answers
        """Run one script.

        Args:
            script: of ours.
            on: its keys, on one slot of a Cluster.
            args: its arguments.

        Raises:
            RecordUnavailable: no answer, or not in time; it may have been done.
            RecordCorrupt: a foreign type under our key.
        """
        target = (len(on), *on, *args)
        try:
            async with asyncio.timeout(self._timeout_s):
                try:
                    return await self._read("EVALSHA", script.sha, *target)
                except NoScriptError:
                    return await self._read("EVAL", script.source, *target)
        except ResponseError as exc:
            if str(exc).startswith(FOREIGN_TYPE):
                raise RecordCorrupt(f"a foreign value under {on[0]}") from exc
            raise _unavailable(exc) from exc
        except (RedisError, OSError, TimeoutError) as exc:
            raise _unavailable(exc) from exc

    async def ask(self, *commands: Sequence[str | int | bytes]) -> list[Any]:
        """Send plain commands in one pipeline.

        Args:
            commands: as words.

        Returns:
            Each one's answer.

        Raises:
            RecordUnavailable: no answers, or not in time, or one of them is an error; any of the
                commands may have been done.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                async with self._reader.pipeline(transaction=False) as pipeline:
                    for command in commands:
                        pipeline.execute_command(*command)
                    return await pipeline.execute()
        except (RedisError, OSError, TimeoutError) as exc:
            raise _unavailable(exc) from exc

    async def _read(self, *command: str | int | bytes) -> Any:  # noqa: ANN401 - the same
        return await self._reader.execute_command(*command)  # type: ignore[no-untyped-call] # the client's

    async def _prime(self) -> None:
        # Loaded ahead on every fresh connection, so that text never travels twice only because the
        # server had forgotten the script.
        if not self._primed:
            await self._writer.script_load(self._write_script.source)
            self._primed = True

    async def _pipeline(self, writes: Sequence[Write], ttl_ms: int) -> list[int]:
        script = self._write_script
        commands = [write_args(write, ttl_ms) for write in writes]
        replies = await self._execute("EVALSHA", script.sha, commands)
        unknown = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            again = await self._execute("EVAL", script.source, [commands[i] for i in unknown])
            for i, reply in zip(unknown, again, strict=True):
                replies[i] = reply
        return [_answer(reply) for reply in replies]

    async def _execute(
        self, verb: str, script: str, commands: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        async with self._writer.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(verb, script, 2, *command)
            return await pipeline.execute(raise_on_error=False)


def _answer(reply: object) -> int:
    if isinstance(reply, int):
        return reply
    passing = isinstance(reply, _PASSING) or str(reply).startswith(_PASSING_CODES)
    return LATER if passing else REFUSED


def _unavailable(exc: BaseException) -> RecordUnavailable:
    # The client's messages name host and port, never the password.
    return RecordUnavailable(f"Redis does not answer: {exc or type(exc).__name__}")


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

    def close(self, outcome: str, *, keep_s: float) -> None:
        """The stream ended; see `RecordWriter.close`."""
        self._backlog.close(outcome, keep_s)
        self._queue.touch(self._backlog)


class RedisRecordStore:
    """Records in Redis.

    Args:
        url: `redis://[user:password@]host:port/db`, `rediss://…` or `unix://…`.
        ttl_s: seconds that an open record outlives its last commit. Longer than any pause between
            two commits of a live stream, or its record is lost under it.
        command_timeout_s: longest wait for answers, in seconds.
        connect_timeout_s: longest wait for a connection, in seconds.
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
        limits: QueueLimits | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._ttl_ms = round(ttl_s * 1000)
        self._tally = Tally()
        self._load = Script(LOAD)
        self._takeover = Script(TAKEOVER)
        self._link = RedisLink(
            url, command_timeout_s=command_timeout_s, connect_timeout_s=connect_timeout_s
        )
        rng = rng or random.Random()  # noqa: S311 - jitter, no secret
        self._queue = WriteQueue(self._send, limits or QueueLimits(), self._tally, rng)

    async def start(self) -> None:
        """Begin to write; connects when there is something to say."""
        self._queue.start()

    async def aclose(self) -> None:
        """Send what is queued, for `close_timeout_s` at most, and close every connection."""
        await self._queue.aclose()
        await self._link.aclose()

    async def flushed(self) -> None:
        """Wait until everything queued has been answered: with Redis away, until it is back."""
        await self._queue.flushed()

    @property
    def stats(self) -> Mapping[str, int]:
        """The counts (`Tally`), and what waits: `queue_streams`, `queue_bytes`."""
        return self._queue.stats

    def open(self, head: RecordHead) -> RedisRecordWriter:
        """Begin a record; see `RecordStore.open`.

        Raises:
            ValueError: the head's id is no stream id.
        """
        checked_id(head.stream_id)
        return self._writer(Backlog(head, self._tally))

    async def load(self, stream_id: str) -> Record:
        """Read a record back; see `RecordStore.load`."""
        fields, raw = await self._call(self._load, stream_id)
        return _record(stream_id, fields, raw)

    async def takeover(
        self, stream_id: str, *, expected_epoch: int
    ) -> tuple[Record, RedisRecordWriter]:
        """Become the owner; see `RecordStore.takeover`.

        A `RecordUnavailable` may come after the epoch was raised: load the record and try again.
        """
        fields, raw, taken = await self._call(
            self._takeover, stream_id, expected_epoch, self._ttl_ms
        )
        record = _record(stream_id, fields, raw)
        if not taken:
            raise RecordConflict(f"record {stream_id} is at epoch {record.epoch}")
        record = replace(record, epoch=expected_epoch + 1)
        return record, self._writer(Backlog(record.head, self._tally, resumed=record))

    def _writer(self, backlog: Backlog) -> RedisRecordWriter:
        self._queue.touch(backlog)
        return RedisRecordWriter(backlog, self._queue)

    async def _send(self, writes: Sequence[Write]) -> list[int]:
        return await self._link.send(writes, self._ttl_ms)

    async def _call(self, script: Script, stream_id: str, *args: int) -> list[Any]:
        if not is_stream_id(stream_id):
            raise RecordNotFound("no record can have such an id")
        return await self._link.call(script, stream_id, *args)


def _record(stream_id: str, fields: Sequence[bytes], raw: bytes | None) -> Record:
    state = dict(zip(fields[::2], fields[1::2], strict=True))
    if not state or b"gone" in state:
        raise RecordNotFound(f"no record of stream {stream_id}")
    return decode_record(stream_id, state, raw or b"")
