"""The protocol between routers, Redis and a client, explored whole for small sizes.

No order of what may happen gives a client a text that nobody wrote, lets an old writer change a
record, or takes a commit back. And each rule of the protocol is needed: without it, the search
finds the way to what it prevents.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis import asyncio as aioredis
from resume_model import HEAD, TTL_MS, Broken, Budget, Model, Rules, Stored, explore, write_redis
from support.continuity import FULL
from support.redis_servers import BINARY, RedisServer, free_port

from router.store.backlog import WHEREVER, Write
from router.store.codec import encode_head
from router.store.redis import RedisRecordStore
from router.store.scripts import keys, write_args

SMALL = [
    Budget(resumptions=1, crashes=1, rewordings=1),
    Budget(resumptions=1, late=1, rewordings=1),
    Budget(resumptions=2),
    Budget(resumptions=1, losses=1, rewordings=1),
]
LARGE = [
    Budget(resumptions=2, rewordings=1),
    Budget(resumptions=2, crashes=1, lost_answers=1),
    Budget(resumptions=2, losses=1),
    Budget(resumptions=2, late=1),
]


@pytest.mark.parametrize("budget", SMALL + (LARGE if FULL else []), ids=str)
def test_a_client_has_what_one_writer_wrote_or_is_refused(budget: Budget) -> None:
    seen = explore(Model(), budget)
    assert seen.states > 200
    assert seen.whole > 100


RECORDS = [Budget(resumptions=1, ghosts=1), Budget(resumptions=1, crashes=1)]
LARGE_RECORDS = [Budget(resumptions=2), Budget(resumptions=1, ghosts=1, losses=1)]


@pytest.mark.parametrize("budget", RECORDS + (LARGE_RECORDS if FULL else []), ids=str)
def test_an_old_writer_changes_nothing(budget: Budget) -> None:
    seen = explore(Model(to_the_end=True), budget)
    assert seen.states > 500
    assert seen.whole > 100


def test_one_of_those_who_resume_writes_the_end() -> None:
    """Another one gets it from the record, or is refused."""
    seen = explore(Model(1, to_the_end=True), Budget(resumptions=2))
    assert seen.states > 500
    assert seen.whole > 100


NEEDED: dict[str, tuple[Budget, bool, int, str]] = {
    "epochs": (Budget(resumptions=1), True, 2, "an old writer changed the record"),
    "writers": (Budget(resumptions=2, losses=1), True, 1, "past what its owner delivered"),
    "parts": (Budget(resumptions=2, losses=1), False, 2, "a client that cuts"),
    "graves": (Budget(resumptions=2), False, 2, "an old writer changed the record: None"),
    "claims": (Budget(resumptions=2), True, 1, "more than one has written the end"),
}
"""By rule: what must go wrong for it to be needed, and what then happens."""


@pytest.mark.parametrize("rule", NEEDED)
def test_without_a_rule_it_breaks(rule: str) -> None:
    budget, to_the_end, sentences, how = NEEDED[rule]
    model = Model(sentences, Rules(**{rule: False}), to_the_end=to_the_end)
    with pytest.raises(Broken, match=how) as caught:
        explore(model, budget)
    assert "w0's command arrives" in str(caught.value), "the way there is told"


@pytest.mark.skipif(not FULL, reason="takes long")
def test_without_parts_a_record_that_went_back_gives_a_text_that_nobody_wrote() -> None:
    model = Model(rules=Rules(parts=False), to_the_end=True)
    with pytest.raises(Broken, match=r"minus \[\] is not"):
        explore(model, Budget(resumptions=2, losses=1))


# -- the modelled script and the real one ----------------------------------------------------------


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[tuple[RedisRecordStore, aioredis.Redis]]:
    if BINARY is None:
        pytest.skip("no redis-server binary: the model is not held to the real script")
    server = RedisServer(tmp_path, free_port())
    server.start()
    store = RedisRecordStore(server.url)
    async with aioredis.Redis.from_url(server.url, protocol=2) as client:
        yield store, client
    await store.aclose()
    server.kill()


def some_write(rng: random.Random) -> Write:
    """Any command that a writer may send, whatever it fits to."""
    at = rng.choice((WHEREVER, 0, 0, 2, 2, 4))
    delta = b"" if at == WHEREVER else rng.choice((b"", b"ab", b"ab", b"cd"))
    anew = bool(delta) and rng.random() < 0.2
    outcome = rng.choice(("", "", "", "", "completed", "client_gone"))
    return Write(
        stream_id=HEAD.stream_id,
        epoch=rng.choice((1, 1, 2, 2, 3)),
        writer=rng.choice("aab"),
        head=encode_head(HEAD) if rng.random() < 0.6 else b"",
        seal="",
        at_chars=at,
        at_bytes=max(0, at),
        delta=delta,
        plain=delta,
        anew=anew,
        chars=rng.choice((0, 4, 6)) if at == WHEREVER else len(delta) + (0 if anew else at),
        boundaries=rng.choice((1, 1, 2)),
        meta=rng.choice((b"", b"{}")),
        outcome=outcome,
        keep_ms=rng.choice((0, 50_000)) if outcome else 0,
        mends=rng.random() < 0.3,
        repeated=rng.random() < 0.3,
        commits=1,
    )


@pytest.mark.redis
async def test_the_modelled_script_is_the_real_one(
    real: tuple[RedisRecordStore, aioredis.Redis],
) -> None:
    store, client = real
    rng = random.Random(11)  # noqa: S311 - seeded on purpose
    answers = set()
    for _ in range(4000 if FULL else 100):
        await client.delete(*keys(HEAD.stream_id))
        held: Stored | None = None
        for _ in range(7):
            write = some_write(rng)
            held, answer = write_redis(held, write_args(write, TTL_MS), Rules())
            assert (await store._link.send([write], TTL_MS)).answers == [answer], (write, held)
            assert await stored(client) == held, write
            answers.add(answer)
    assert {-1, -2, 0, 2, 4} <= answers
    assert min(answers) <= -10


async def stored(client: aioredis.Redis) -> Stored | None:
    """What is really there."""
    state, text = keys(HEAD.stream_id)
    found: Any = await client.hgetall(state)
    raw: Any = await client.get(text)
    if not found:
        assert raw is None
        return None
    return Stored(
        epoch=int(found[b"epoch"]),
        writer=found.get(b"writer", b"").decode(),
        text=raw or b"",
        boundaries=int(found.get(b"boundaries", b"0")),
        stale=found.get(b"stale") == b"1",
        meta=found.get(b"meta", b""),
        outcome=found.get(b"outcome", b"").decode(),
        gone=b"gone" in found,
    )
