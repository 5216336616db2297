"""What cannot be resumed is refused with its own error, and nothing upstream is asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from redis import asyncio as aioredis
from support.redis_servers import BINARY, RedisServer, free_port
from support.resuming import Comer, Holds, Replica, replicas

from router.core.events import ToolCall
from router.engine.engine import STREAM_ID_BYTES
from router.simulate import Script, SimulatedProvider, seeded_text, tokenize

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(BINARY is None, reason="no redis-server binary on this machine"),
]

TEXT = seeded_text(23, 900)
TOKENS = 120
HAD = "".join(tokenize(TEXT)[:TOKENS])
KEYS = ("key-number-one-0123456789", "key-number-two-0123456789")
BEARER, OTHER = ({"authorization": f"Bearer {key}"} for key in KEYS)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"), free_port())
    server.start()
    yield server
    server.kill()


class Broken:
    """A stream whose client has lost it."""

    def __init__(
        self, comer: Comer, one: Replica, two: Replica, provider: SimulatedProvider, redis: str
    ) -> None:
        self.comer = comer
        self.one = one
        self.two = two
        self._provider = provider
        self._redis = redis

    @property
    def state(self) -> str:
        """Its record's hash."""
        return f"router:{{{self.comer.stream_id}}}:state"

    @property
    def text(self) -> str:
        """Its record's text."""
        return f"router:{{{self.comer.stream_id}}}:text"

    async def redis(self, *command: str | int | bytes) -> None:
        """Meddle with the record."""
        async with aioredis.Redis.from_url(self._redis, protocol=2) as client:
            await client.execute_command(*command)  # type: ignore[no-untyped-call] # the client's

    async def refused(self, **headers: str | None) -> str:
        """Come back, with some headers other than they should be; the error's code."""
        mine = {**self.comer.coming_back, "authorization": BEARER["authorization"]}
        for name, value in headers.items():
            mine[name.replace("_", "-")] = value or ""
        sent = {name: value for name, value in mine.items() if value}
        asked = self._provider._journal.count
        code = await self.comer.listen(self.two.url, headers=sent)
        head, error = self.comer.heads[-1], self.comer.errors[-1]
        assert head["status"] in {"400", "403", "404", "409", "503"}, error
        assert head["x-should-retry"] == "false"
        assert len(error["message"]) > 30
        assert self._provider._journal.count == asked, "a provider was asked"
        return f"{head['status']} {code}"

    async def goes_on(self) -> None:
        """All the same it is there, and its owner may have it."""
        assert await self.comer.listen(self.two.url) == "finished"
        assert self.comer.canonical == TEXT


@asynccontextmanager
async def broken(
    redis: RedisServer, script: Script | None = None, tokens: int = TOKENS, **fields: object
) -> AsyncIterator[Broken]:
    holds = Holds()
    holds.hold(0, before=tokens)
    async with (
        SimulatedProvider(script=script or Script(text=TEXT), gate=holds) as provider,
        replicas(redis, provider, server={"api_keys": [*KEYS]}) as (one, two),
    ):
        comer = Comer(headers=BEARER, **fields)  # type: ignore[arg-type] # of a request
        listening = asyncio.create_task(comer.listen(one.url))
        await provider.wait_tokens(tokens)
        chars = len("".join(tokenize((script or Script(text=TEXT)).text)[:tokens]))
        await comer.until(lambda one: len(one.text) >= chars)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await one.ended(1)
        yield Broken(comer, one, two, provider, redis.url)


async def test_another_key(redis: RedisServer) -> None:
    async with broken(redis) as it:
        assert await it.refused(**OTHER) == "403 resume_wrong_key"
        await it.goes_on()


async def test_another_body(redis: RedisServer) -> None:
    async with broken(redis) as it:
        body = it.comer.body
        it.comer.body = body + b" "
        assert await it.refused() == "409 resume_wrong_body"
        it.comer.body = body
        await it.goes_on()


async def test_an_id_that_nobody_has(redis: RedisServer) -> None:
    async with broken(redis) as it:
        for name in ("nobody", "a" * 24, "a" * 129, "../x", "{x}", "x:state", "x y", "é", "*"):
            assert await it.refused(x_router_resume=name) == "404 resume_unknown"


async def test_ids_cannot_be_guessed(redis: RedisServer) -> None:
    async with broken(redis) as it:
        assert STREAM_ID_BYTES * 8 >= 128
        assert len(it.comer.stream_id) == STREAM_ID_BYTES * 4 // 3


async def test_no_number_received(redis: RedisServer) -> None:
    async with broken(redis) as it:
        for received in (None, "", "-1", "1.5", "ten", "³", "1" * 16, "0x10", "1 2"):
            assert await it.refused(x_router_received=received) == "400 resume_offset"
            error = it.comer.errors[-1]
            assert error["param"] == "x-router-received"
            assert ("no number" in error["message"]) == bool(received)
        await it.goes_on()


@pytest.mark.parametrize("prefix", ["chatcmpl-", "msg_", "req_"])
async def test_an_id_as_it_stands_elsewhere_is_the_id(redis: RedisServer, prefix: str) -> None:
    async with broken(redis) as it:
        named = f"{prefix}{it.comer.stream_id}"
        assert await it.refused(x_router_resume=named, **OTHER) == "403 resume_wrong_key"
        assert await it.refused(x_router_resume=f"{prefix}{prefix}") == "404 resume_unknown"
        await it.goes_on()


async def test_beyond_anything_that_was_sent(redis: RedisServer) -> None:
    async with broken(redis) as it:
        assert await it.refused(x_router_received="250000") == "400 resume_offset"
        await it.goes_on()


async def test_expired(redis: RedisServer) -> None:
    async with broken(redis) as it:
        for key in (it.state, it.text):
            await it.redis("PEXPIRE", key, 0)
        assert await it.refused() == "404 resume_unknown"


async def test_completed(redis: RedisServer) -> None:
    async with broken(redis) as it:
        await it.goes_on()
        await it.two.ended(1)
        assert await it.refused() == "404 resume_unknown"


CALL = ToolCall(0, "call_1", "pay", '{"amount": 36, "to": "somebody"}')


async def test_a_tool_call_was_delivered(redis: RedisServer) -> None:
    script = Script(text="I will pay. ", tool_calls=(CALL,))
    tool = {"type": "function", "function": {"name": "pay", "parameters": {"type": "object"}}}
    tokens = len(tokenize(script.text)) + 1
    async with broken(redis, script, tokens, tools=[tool]) as it:
        assert await it.refused() == "409 tool_call_interrupted"


async def test_several_choices(redis: RedisServer) -> None:
    async with broken(redis, n=2) as it:
        assert await it.refused() == "409 resume_impossible"


async def test_log_probabilities(redis: RedisServer) -> None:
    async with broken(redis, logprobs=True) as it:
        assert await it.refused() == "409 resume_impossible"


async def test_redis_is_away(redis: RedisServer) -> None:
    async with broken(redis) as it:
        await it.redis("CLIENT", "PAUSE", 1500, "ALL")
        assert await it.refused() == "503 resume_unavailable"
        message = it.comer.errors[-1]["message"]
    assert "127.0.0.1" not in message, "where the record is kept is none of a client's business"
    assert str(redis.port) not in message


# -- records that are none -------------------------------------------------------------------------

MEDDLING: dict[str, list[tuple[str | int | bytes, ...]]] = {
    "a foreign type under its state": [("DEL", "S"), ("SET", "S", "something")],
    "a foreign type under its text": [("DEL", "T"), ("RPUSH", "T", "something")],
    "a foreign hash": [("DEL", "S"), ("HSET", "S", "colour", "red")],
    "a newer version": [("HSET", "S", "v", "2")],
    "a truncated text": [("SETRANGE", "T", 0, ""), ("SET", "T", TEXT[:40])],
    "no text": [("DEL", "T")],
    "text that is no UTF-8": [("SETRANGE", "T", 0, b"\xff")],
    "a length that is none": [("HSET", "S", "chars", "many")],
    "an epoch that is none": [("HSET", "S", "epoch", "x")],
    "a head of another": [("HSET", "S", "head", "{}")],
    "facts that are no JSON": [("HSET", "S", "meta", "{")],
    "facts that are a list": [("HSET", "S", "meta", "[]")],
    "ranges that are none": [("HSET", "S", "meta", '{"superseded": [[1]]}')],
    "ranges that overlap": [("HSET", "S", "meta", '{"superseded": [[1, 9], [4, 12]]}')],
    "a range turned round": [("HSET", "S", "meta", '{"superseded": [[9, 1]]}')],
    "words in its white space": [("HSET", "S", "meta", '{"gap": " x "}')],
    "a count below zero": [("HSET", "S", "meta", '{"start": -1}')],
}


@pytest.mark.parametrize("name", MEDDLING)
async def test_a_record_that_cannot_be_read(redis: RedisServer, name: str) -> None:
    async with broken(redis) as it:
        for command in MEDDLING[name]:
            keys: dict[object, str] = {"S": it.state, "T": it.text}
            await it.redis(*(keys.get(word, word) for word in command))
        assert await it.refused() == "409 resume_corrupt"
        assert TEXT[:20] not in it.comer.errors[-1]["message"]


async def test_a_record_that_says_it_is_stale_is_a_true_prefix(redis: RedisServer) -> None:
    async with broken(redis) as it:
        await it.redis("HSET", it.state, "stale", "1")
        await it.goes_on()


# -- two at once -----------------------------------------------------------------------------------


async def test_two_replicas_at_once(redis: RedisServer) -> None:
    """One has the stream; the other is told so, at once or as soon as it would write."""
    seen: set[str] = set()
    for _ in range(6):
        async with broken(redis) as it:
            again = Comer(headers=BEARER)
            again.text, again.part = it.comer.text, it.comer.part
            again.stream_id = it.comer.stream_id
            both = await asyncio.gather(it.comer.listen(it.one.url), again.listen(it.two.url))
            assert sorted(both) in (
                ["finished", "resume_conflict"],
                ["finished", "record_fenced"],
                ["finished", "resume_unknown"],  # the first had finished when the second came
            )
            seen.update(both)
            winner = (it.comer, again)[both.index("finished")]
            assert winner.canonical == TEXT
            loser = (again, it.comer)[both.index("finished")]
            assert loser.heads[-1]["status"] in {"409", "404"} or "router" in loser.errors[-1]
    assert seen & {"resume_conflict", "record_fenced"}
