"""Two requests for one stream at once: in whatever order their commands reach Redis, one of them
generates the end of the answer, and the other one is told so or gets it from the record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from support.raw import CHAT, connected
from support.redis_servers import BINARY, RedisServer, free_port
from support.resuming import WAIT_S, Comer, Holds, Replica, replicas

from router.core.events import ToolCall
from router.simulate import Script, SimulatedProvider, seeded_text, tokenize
from router.store.backlog import Write
from router.store.scripts import LOAD, TAKEOVER
from router.store.scripts import Script as LuaScript

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(BINARY is None, reason="no redis-server binary on this machine"),
]

TEXT = seeded_text(31, 900)
TOKENS = 120
HAD, HALF = ("".join(tokenize(TEXT)[:count]) for count in (TOKENS, TOKENS // 2))

LOADS, TAKES, WRITES, ENDS = "loads", "takes over", "writes", "ends"
"""What a router tells Redis: it reads the record, takes it over, writes to it, and closes it."""


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"), free_port())
    server.start()
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for the store's word waits for as long as a test holds it back."""
    monkeypatch.setattr("router.engine.stream.CLAIM_S", WAIT_S)


class Line:
    """A replica's connection to Redis, on which commands of some kinds stand still until they are
    let go.

    Args:
        replica: whose.
        kinds: of commands that stand still.
    """

    def __init__(self, replica: Replica, *kinds: str) -> None:
        link = replica.router.serving.engine.store._link  # type: ignore[attr-defined] # for tests
        self._call, self._send = link.call, link.send
        self._waits, self._free, self._done = (
            {kind: asyncio.Event() for kind in kinds} for _ in range(3)
        )
        link.call, link.send = self.call, self.send

    async def waits(self, kind: str) -> None:
        """Wait until a command of a kind stands still."""
        async with asyncio.timeout(WAIT_S):
            await self._waits[kind].wait()

    async def let_go(self, kind: str) -> None:
        """Commands of a kind go on, this one and later ones; wait until one was answered."""
        self._free[kind].set()
        async with asyncio.timeout(WAIT_S):
            await self._done[kind].wait()

    async def call(self, script: LuaScript, stream_id: str, *args: str | int) -> Any:  # noqa: ANN401 - as the link's
        """In the place of the link's."""
        kind = {LOAD: LOADS, TAKEOVER: TAKES}[script.source]
        return await self._pass(kind, partial(self._call, script, stream_id, *args))

    async def send(self, writes: Sequence[Write], ttl_ms: int) -> Any:  # noqa: ANN401 - as the link's
        """In the place of the link's."""
        kind = ENDS if any(write.outcome for write in writes) else WRITES
        return await self._pass(kind, partial(self._send, writes, ttl_ms))

    async def _pass(self, kind: str, command: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - as the link's
        if kind not in self._free:
            return await command()
        self._waits[kind].set()
        await self._free[kind].wait()
        answer = await command()
        self._done[kind].set()
        return answer


@dataclass
class Race:
    """A stream whose client has lost it, and comes back twice.

    Args:
        provider: asked once so far.
        holds: its gate.
        one: a replica, which wrote the stream's first response.
        two: another one.
        first: comes back at `one`.
        second: comes back at `two`.
    """

    provider: SimulatedProvider
    holds: Holds
    one: Replica
    two: Replica
    first: Comer
    second: Comer

    @property
    def asked(self) -> int:
        """Requests that the provider got."""
        return self.provider._journal.count


@asynccontextmanager
async def racing(
    redis: RedisServer,
    script: Script | None = None,
    **fields: Any,  # noqa: ANN401 - of a request
) -> AsyncIterator[Race]:
    holds = Holds()
    holds.hold(0, before=TOKENS)
    async with (
        SimulatedProvider(script=script or Script(text=TEXT), gate=holds) as provider,
        replicas(redis, provider) as (one, two),
    ):
        comer = Comer(**fields)
        assert await comer.listen(one.url, chars=len(HAD)) == "left"
        await one.ended(1)
        first, second = (Comer(**fields) for _ in range(2))
        for it in (first, second):
            it.text, it.stream_id, it.part = comer.text, comer.stream_id, comer.part
        yield Race(provider, holds, one, two, first, second)


# -- a writer that is behind -----------------------------------------------------------------------


@pytest.mark.parametrize("late", [WRITES, ENDS])
async def test_what_the_first_writer_still_had_to_say_harms_nobody(
    redis: RedisServer, late: str
) -> None:
    """Its last commits, or how it ended, reach Redis when another one has taken the stream over, or
    has completed it. The record is not lost by that, and not brought back."""
    holds = Holds()
    holds.hold(0, before=TOKENS // 2)
    holds.hold(1, before=60)
    async with (
        SimulatedProvider(script=Script(text=TEXT), gate=holds) as provider,
        replicas(redis, provider, count=3) as (one, two, three),
    ):
        comer = Comer()
        reading = asyncio.create_task(comer.listen(one.url))
        await comer.until(lambda it: it.text == HALF)
        await one.written()
        line = Line(one, late)
        holds.release(0)
        holds.hold(0, before=TOKENS)
        await comer.until(lambda it: it.text == HAD)
        if late == WRITES:
            await line.waits(WRITES)
        reading.cancel()  # the client is gone
        await asyncio.gather(reading, return_exceptions=True)
        if late == ENDS:
            await line.waits(ENDS)
        assert await comer.listen(two.url, chars=len(HAD) + 100) == "left"
        await two.ended(1)
        await line.let_go(late)
        await one.ended(1)
        assert await comer.listen(three.url) == "finished"
        assert comer.canonical == comer.shown == TEXT
        await three.ended(1)
        assert one.router.serving.engine.store.stats["fenced"] == 1


# -- two that come back ----------------------------------------------------------------------------


async def test_both_have_looked_before_either_takes_it_over(redis: RedisServer) -> None:
    async with racing(redis) as it:
        it.holds.hold(1, before=2)
        one, two = Line(it.one, TAKES), Line(it.two, TAKES)
        reading = asyncio.create_task(it.first.listen(it.one.url))
        refused = asyncio.create_task(it.second.listen(it.two.url))
        await one.waits(TAKES)
        await two.waits(TAKES)
        await one.let_go(TAKES)
        await two.let_go(TAKES)
        assert await refused == "resume_conflict"
        it.holds.release(1)
        assert await reading == "finished"
        assert it.first.canonical == TEXT
        assert it.asked == 2


FENCED = ("record_fenced", "finished")
BOTH = ("finished", "finished")
UNKNOWN = ("finished", "resume_unknown")
MOMENTS = ("before the first claims its end", "after that", "after its end")
ORDERS = [
    (0, 0, FENCED, 3),
    (0, 1, BOTH, 2),
    (0, 2, UNKNOWN, 2),
    (1, 1, BOTH, 2),
    (1, 2, UNKNOWN, 2),
    (2, 2, UNKNOWN, 2),
]
"""When the second looks at the record, when it takes it over, how both end, and how often the
provider was asked in all: once for what the client lost, and once by whoever wrote the end."""


@pytest.mark.parametrize(
    ("looks", "takes", "ends", "asked"),
    ORDERS,
    ids=[f"looks {MOMENTS[a]}, takes over {MOMENTS[b]}" for a, b, _, _ in ORDERS],
)
async def test_one_writes_the_end(
    redis: RedisServer, looks: int, takes: int, ends: tuple[str, str], asked: int
) -> None:
    """The first has taken the stream over, and its provider sends the rest."""
    async with racing(redis) as it:
        it.holds.hold(1, before=2)
        reading = asyncio.create_task(it.first.listen(it.one.url))
        await it.provider.wait_requests(2)
        await it.one.written()
        one, two = Line(it.one, WRITES, ENDS), Line(it.two, LOADS, TAKES)
        again = asyncio.create_task(it.second.listen(it.two.url))
        await two.waits(LOADS)

        async def second_moves(moment: int) -> None:
            if looks == moment:
                await two.let_go(LOADS)
            if takes == moment and looks < 2:
                await two.let_go(TAKES)

        it.holds.release(1)
        await one.waits(WRITES)
        await it.first.until(lambda comer: comer.canonical.endswith(TEXT[-20:]))
        assert not it.first.finish, "nobody has said yet that the end is the first one's"
        await second_moves(0)
        await one.let_go(WRITES)
        if ends is not FENCED:
            await one.waits(ENDS)
            await second_moves(1)
            await one.let_go(ENDS)
            await it.one.written()
            await second_moves(2)
        assert (await reading, await again) == ends
        for comer in (it.first, it.second):
            if comer.finish:
                assert comer.canonical == TEXT
        assert it.asked == asked


async def test_a_store_that_says_nothing_holds_up_no_end(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.engine.stream.CLAIM_S", 0.02)
    async with racing(redis) as it:
        it.holds.hold(1, before=2)
        reading = asyncio.create_task(it.first.listen(it.one.url))
        await it.provider.wait_requests(2)
        await it.one.written()
        line = Line(it.one, WRITES)
        it.holds.release(1)
        await line.waits(WRITES)
        assert await reading == "finished"
        assert it.first.canonical == TEXT
        await line.let_go(WRITES)


async def test_who_takes_over_looks_again(redis: RedisServer) -> None:
    """A tool call goes out between the second one's look at the record and its turn."""
    call = ToolCall(index=0, id="call_1", name="pay", arguments='{"amount": 36}')
    tool = {"type": "function", "function": {"name": "pay", "parameters": {"type": "object"}}}
    async with racing(redis, Script(text=TEXT, tool_calls=(call,)), tools=[tool]) as it:
        it.holds.hold(1, before=2)
        reading = asyncio.create_task(it.first.listen(it.one.url))
        await it.provider.wait_requests(2)
        two = Line(it.two, TAKES)
        again = asyncio.create_task(it.second.listen(it.two.url))
        await two.waits(TAKES)
        one = Line(it.one, ENDS)
        it.holds.release(1)
        await one.waits(ENDS)
        await two.let_go(TAKES)
        assert await again == "tool_call_interrupted"
        await one.let_go(ENDS)
        assert await reading == "finished"
        assert it.asked == 2


async def test_a_connection_is_not_dropped_for_a_stream_that_was_over(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first response ends while the stream is being taken over: its writer learns of that when
    its client has its finish, and asks for something else on the same connection."""
    monkeypatch.setattr("router.api.endpoint.FENCED_GRACE_S", 0)
    holds = Holds()
    holds.hold(0, before=TOKENS)
    holds.hold(2, before=2)
    async with (
        SimulatedProvider(script=Script(text=TEXT), gate=holds) as provider,
        replicas(redis, provider) as (one, two),
        connected(one.url) as client,
    ):
        await client.post(CHAT)
        await provider.wait_tokens(TOKENS)
        await one.written()
        line = Line(one, WRITES)
        holds.release(0)
        first = await client.reply()
        assert b"[DONE]" in first.body
        await line.waits(WRITES)
        new = Comer()
        new.body = json.dumps(CHAT).encode()
        new.stream_id = first.headers["x-router-stream-id"]
        assert await new.listen(two.url) == "finished"
        await client.post(CHAT)
        await provider.wait_requests(3)
        await line.let_go(WRITES)
        await one.written()
        assert one.router.serving.engine.store.stats["fenced"] == 1
        holds.release(2)
        second = await client.reply()
        assert second.how == "end"
        assert b"[DONE]" in second.body
