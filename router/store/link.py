"""Commands to Redis, wherever the key lies, and the seam at which its exceptions become ours.

Commands go out in pipelines, one to each server that is concerned. What a server sends elsewhere
(`MOVED`, `ASK`), or does not know (a script), goes out again; what one server does not answer costs
the others nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redis.exceptions import (
    AskError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import TimeoutError as ConnectTimeout

from router.config.redis_url import parse_redis_url
from router.errors import RecordCorrupt, RecordUnavailable
from router.store.backlog import REFUSED, Write
from router.store.options import COMMAND_TIMEOUT_S, CONNECT_TIMEOUT_S, RedisOptions
from router.store.scripts import FOREIGN_TYPE, WRITE, Script, keys, write_args
from router.store.topology import WEATHER, Node, make_topology
from router.store.weather import Weather
from router.store.writebehind import LATER, Sent

MAX_ROUNDS = 6
"""How often a command goes out: to the wrong node, to one that lacks the script, to the right one,
and the same once more where slots are moving just then."""

TRY_AGAIN_S = 0.05
"""Pause before a read of a record whose slot is just being moved goes out again."""

REST_S = 1.0
"""How long a server that let us wait in vain is left out of batches that concern others too."""

_PASSING = (
    ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError, AskError,
)  # fmt: skip
"""Errors of a server that will write again; every other one is a verdict."""

_PASSING_CODES = ("BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED")
"""The same, for which the client has no class (of the others it takes the code off the message)."""

_MISTAKEN = (ClusterDownError, MasterDownError, ReadOnlyError)
"""Errors that say that another server may be the right one by now."""


class Call(NamedTuple):
    """One command.

    Args:
        key: where it goes.
        words: the command; of a script's, what follows its name.
        script: what is called, or None for a plain command.
    """

    key: str
    words: Sequence[Any]
    script: Script | None = None


class _Way(NamedTuple):
    """How a command goes out."""

    node: Node
    asking: bool = False
    by_source: bool = False


class _Lost(NamedTuple):
    """In an answer's place: there is none, and the command may have been done."""

    error: BaseException


class RedisLink:
    """Connections to one Redis.

    Args:
        url: in one of the forms of `config/redis_url.py`.
        command_timeout_s: longest wait for answers.
        connect_timeout_s: longest wait for a connection.
        options: both of these and more, in their place.
        weather: what the process's other links have seen, and are to hear of.

    Raises:
        ValueError: a URL of another kind.
    """

    def __init__(
        self,
        url: str,
        *,
        command_timeout_s: float = COMMAND_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        options: RedisOptions | None = None,
        weather: Weather | None = None,
    ) -> None:
        options = options or RedisOptions(
            command_timeout_s=command_timeout_s, connect_timeout_s=connect_timeout_s
        )
        rng = random.Random()  # noqa: S311 - an order, no secret
        self._timeout_s = options.command_timeout_s
        self._weather = weather or Weather()
        self._topology = make_topology(parse_redis_url(url), options, rng, self._weather)
        self._write = Script(WRITE)

    @property
    def redirects(self) -> bool:
        """It is a Cluster."""
        return self._topology.redirects

    async def aclose(self) -> None:
        """Close every connection."""
        await self._topology.aclose()

    def place(self, stream_id: str) -> str:
        """Where a record is, as far as that is known.

        Args:
            stream_id: whose record.

        Returns:
            A server's name, "" for nobody's.
        """
        try:
            return self._topology.node(keys(stream_id)[0]).name
        except ClusterDownError:
            return ""

    def settling(self, stream_id: str) -> bool:
        """Whether the server of a record was in trouble a moment ago, so that a record which it
        does not know may still come.

        Args:
            stream_id: whose record.
        """
        return self._weather.settling(self.place(stream_id), asyncio.get_running_loop().time())

    async def send(self, writes: Sequence[Write], ttl_ms: int) -> Sent:
        """Send writes, in one pipeline to each server.

        Args:
            writes: of distinct streams.
            ttl_ms: life of an open record, in milliseconds.

        Returns:
            Each one's answer: the script's, or `LATER` or `REFUSED`.

        Raises:
            RecordUnavailable: no answers, or not in time; any of the writes may have been done.
        """
        calls = [
            Call(names[0], (2, *names, *write_args(write, ttl_ms)), self._write)
            for write in writes
            for names in (keys(write.stream_id),)
        ]
        replies = await self._exchange(calls, self._deadline(), writing=True)
        answers = [_answer(reply) for reply in replies]
        if answers and all(answer == LATER for answer in answers):
            _given(replies[0])
        why = next((_why(reply) for reply in replies if _answer(reply) == LATER), "")
        return Sent(answers, why)

    async def call(self, script: Script, stream_id: str, *args: str | int) -> list[Any]:
        """Run one script on a record, once more if the server that was believed is not there.

        Args:
            script: of ours; a repetition does no harm.
            stream_id: whose record.
            args: its arguments.

        Raises:
            RecordUnavailable: no answer, or not in time.
            RecordCorrupt: a foreign type under our key.
        """
        on = keys(stream_id)
        calls = [Call(on[0], (2, *on, *args), script)]
        deadline = self._deadline()
        replies = await self._exchange(calls, deadline)
        if isinstance(replies[0], _Lost):
            replies = await self._exchange(calls, deadline)
        reply: list[Any] = _checked(replies[0], on[0])
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
        calls = [Call(on[0], (len(on), *on, *args), script)]
        (reply,) = await self._exchange(calls, self._deadline())
        return _checked(reply, on[0])

    async def ask(self, *commands: Sequence[str | int | bytes]) -> list[Any]:
        """Send plain commands.

        Args:
            commands: as words, of which the second is the key.

        Returns:
            Each one's answer.

        Raises:
            RecordUnavailable: no answers, or not in time, or one of them is an error; any of the
                commands may have been done.
        """
        calls = [Call(str(words[1]), words) for words in commands]
        replies = await self._exchange(calls, self._deadline())
        return [_given(reply) for reply in replies]

    async def survey(self, *commands: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        """Ask every server that takes writes the same.

        Args:
            commands: as words.

        Returns:
            By server, each command's answer, or its exception.

        Raises:
            RecordUnavailable: nobody answers, or not in time.
        """
        calls = [Call("", words) for words in commands]
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._topology.ready()
        except WEATHER as error:
            raise _unavailable(error) from error
        found = {}
        for node in self._topology.nodes():
            replies: list[Any] = [None] * len(calls)
            ways = dict.fromkeys(range(len(calls)), _Way(node))
            await self._batch(node, calls, ways, replies, self._deadline())
            if isinstance(replies[0], _Lost):
                raise _unavailable(replies[0].error) from replies[0].error
            found[node.name] = replies
        return found

    # Out and back.

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_s

    async def _exchange(
        self, calls: Sequence[Call], deadline: float, *, writing: bool = False
    ) -> list[Any]:
        """Each one's reply, or the exception that a server answered, or that it is lost."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._topology.ready()
        except WEATHER as error:
            return [_Lost(error)] * len(calls)
        replies: list[Any] = [None] * len(calls)
        ways = self._first(calls, replies)
        for _ in range(MAX_ROUNDS):
            await self._round(calls, ways, replies, deadline, writing=writing)
            ways = {
                i: again
                for i, way in ways.items()
                if (again := self._again(way, replies[i], patient=not writing)) is not None
            }
            if not ways:
                break
            if any(isinstance(replies[i], TryAgainError) for i in ways):
                await asyncio.sleep(TRY_AGAIN_S)
        return replies

    def _first(self, calls: Sequence[Call], replies: list[Any]) -> dict[int, _Way]:
        ways = {}
        for i, call in enumerate(calls):
            try:
                ways[i] = _Way(self._topology.node(call.key))
            except ClusterDownError as error:
                replies[i] = error
        return ways

    async def _round(
        self,
        calls: Sequence[Call],
        ways: Mapping[int, _Way],
        replies: list[Any],
        deadline: float,
        *,
        writing: bool,
    ) -> None:
        groups: dict[Node, dict[int, _Way]] = {}
        for i, way in ways.items():
            groups.setdefault(way.node, {})[i] = way
        if not groups:
            return
        if len(groups) == 1:
            ((node, group),) = groups.items()
            await self._batch(node, calls, group, replies, deadline, writing=writing)
            return
        now_s = asyncio.get_running_loop().time()
        for node in [node for node in groups if node.rests_until_s > now_s]:
            _lose(groups.pop(node), replies, TimeoutError(f"{node.name} has not answered"))
        await asyncio.gather(
            *(
                self._batch(node, calls, group, replies, deadline, writing=writing)
                for node, group in groups.items()
            )
        )

    async def _batch(
        self,
        node: Node,
        calls: Sequence[Call],
        ways: Mapping[int, _Way],
        replies: list[Any],
        deadline: float,
        *,
        writing: bool = False,
    ) -> None:
        """One server's part; what goes wrong with it is in `replies`."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._pipeline(node, calls, ways, replies, writing=writing)
        except WEATHER as error:
            node.primed = False
            now_s = asyncio.get_running_loop().time()
            self._weather.struck(node.name, now_s)
            if isinstance(error, (TimeoutError, ConnectTimeout)):
                node.rests_until_s = now_s + REST_S
            self._topology.doubt(node)
            _lose(ways, replies, error)

    async def _pipeline(
        self,
        node: Node,
        calls: Sequence[Call],
        ways: Mapping[int, _Way],
        replies: list[Any],
        *,
        writing: bool,
    ) -> None:
        client = node.writer if writing else node.reader
        if writing and not node.primed:
            # Loaded ahead on every fresh connection, so that text never travels twice only because
            # the server had forgotten the script.
            await client.script_load(self._write.source)
            node.primed = True
        async with client.pipeline(transaction=False) as pipeline:
            for i, way in ways.items():
                if way.asking:
                    pipeline.execute_command("ASKING")
                pipeline.execute_command(*_words(calls[i], way))
            heard = iter(await pipeline.execute(raise_on_error=False))
        for i, way in ways.items():
            if way.asking:
                next(heard)
            replies[i] = next(heard)

    def _again(self, way: _Way, reply: object, *, patient: bool) -> _Way | None:
        """How a command goes out once more, if it does."""
        if isinstance(reply, TryAgainError):
            # Its slot is on the move. A write has the queue to wait in.
            return way if patient else None
        if isinstance(reply, NoScriptError):
            return None if way.by_source else way._replace(by_source=True)
        if isinstance(reply, _MISTAKEN):
            self._topology.doubt(way.node)
        if not (isinstance(reply, AskError) and self._topology.redirects):
            return None
        # A node that does not know the other's name sends its port alone: it is the same host.
        host = (reply.host or (way.node.host or ("", 0))[0], reply.port)
        if isinstance(reply, MovedError):
            self._topology.moved(reply.slot_id, host)
            return _Way(self._topology.at(host))
        return _Way(self._topology.at(host), asking=True)


def _words(call: Call, way: _Way) -> Sequence[Any]:
    if call.script is None:
        return call.words
    if way.by_source:
        return ("EVAL", call.script.source, *call.words)
    return ("EVALSHA", call.script.sha, *call.words)


def _lose(ways: Mapping[int, _Way], replies: list[Any], error: BaseException) -> None:
    for i in ways:
        replies[i] = _Lost(error)


def _answer(reply: object) -> int:
    if isinstance(reply, int):
        return reply
    passing = isinstance(reply, (_Lost, *_PASSING)) or str(reply).startswith(_PASSING_CODES)
    return LATER if passing else REFUSED


def _why(reply: object) -> str:
    """Why there is no answer, for the log."""
    error = reply.error if isinstance(reply, _Lost) else reply
    return str(error) or type(error).__name__


def _checked(reply: object, key: str) -> Any:  # noqa: ANN401 - whatever was answered
    if isinstance(reply, ResponseError) and str(reply).startswith(FOREIGN_TYPE):
        raise RecordCorrupt(f"a foreign value under {key}") from reply
    return _given(reply)


def _given(reply: object) -> Any:  # noqa: ANN401 - whatever was answered
    if isinstance(reply, _Lost):
        raise _unavailable(reply.error) from reply.error
    if isinstance(reply, RedisError):
        raise _unavailable(reply) from reply
    return reply


def _unavailable(exc: BaseException) -> RecordUnavailable:
    # The client's messages name host and port, never the password.
    return RecordUnavailable(f"Redis does not answer: {_why(exc)}")
