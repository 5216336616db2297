"""The ways to come back: by id, through an SDK, to a whole answer, to a writer that still lives."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import openai
import pytest
from redis import asyncio as aioredis
from support.continuity import without
from support.raw import CHAT, connected
from support.redis_servers import BINARY, RedisServer, free_port
from support.resuming import MESSAGES, Comer, Holds, Replica, replicas
from support.routers import Router, routed, running_router
from support.texts import moments, seeded

from router.simulate import (
    Conduct,
    Dialect,
    Ended,
    Pace,
    Script,
    SimulatedProvider,
    seeded_text,
    tokenize,
)

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(BINARY is None, reason="no redis-server binary on this machine"),
]

TEXT = seeded_text(31, 900)
TOKENS = 120
HAD = "".join(tokenize(TEXT)[:TOKENS])
SAME = Script(text=TEXT)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"), free_port())
    server.start()
    yield server
    server.kill()


async def cut_short(comer: Comer, replica: Replica, chars: int) -> None:
    """Listen until so many characters are there, and leave; the record is then at rest."""
    before = len(replica.reports)
    assert await comer.listen(replica.url, chars=chars) == "left"
    await replica.ended(before + 1)


def held(*tokens: int) -> Holds:
    """A gate that holds the first requests, one after another, before these tokens."""
    holds = Holds()
    for request, before in enumerate(tokens):
        holds.hold(request, before=before)
    return holds


# -- a writer that still lives ---------------------------------------------------------------------


async def test_the_old_writer_is_fenced_out(redis: RedisServer) -> None:
    holds = held(TOKENS, 2)
    async with (
        SimulatedProvider(script=SAME, gate=holds) as provider,
        replicas(redis, provider) as (one, two),
    ):
        old = Comer()
        reading = asyncio.create_task(old.listen(one.url))
        await old.until(lambda it: it.text == HAD)
        await one.written()
        new = Comer()
        new.text, new.stream_id, new.part = old.text, old.stream_id, old.part
        resuming = asyncio.create_task(new.listen(two.url))
        await provider.wait_requests(2)
        holds.release(0)  # it knows nothing yet, and writes its next sentence
        assert await reading == "record_fenced"
        assert (await provider.wait_ended(0)).ended is Ended.CLIENT_CLOSED
        assert old.errors[-1]["router"]["outcome"] == "record_fenced"
        assert (await one.ended(1)).outcome == "record_fenced"
        assert one.router.serving.engine.store.stats["fenced"] == 1
        holds.release(1)
        assert await resuming == "finished"
        assert new.canonical == TEXT
        await two.ended(1)
        assert await keys_of(redis, new.stream_id) <= {f"router:{{{new.stream_id}}}:state"}


async def test_the_old_writer_wakes_up_after_the_end(redis: RedisServer) -> None:
    """It changes nothing, and ends, though there is no record any more."""
    holds = held(TOKENS)
    async with (
        SimulatedProvider(script=SAME, gate=holds) as provider,
        replicas(redis, provider) as (one, two),
    ):
        old = Comer()
        reading = asyncio.create_task(old.listen(one.url))
        await old.until(lambda it: it.text == HAD)
        await one.written()
        new = Comer()
        new.text, new.stream_id, new.part = old.text, old.stream_id, old.part
        assert await new.listen(two.url) == "finished"
        await two.ended(1)
        holds.release(0)
        how = await reading
        await one.ended(1)
        assert how == "record_fenced"
        assert not any("text" in key for key in await keys_of(redis, new.stream_id))


async def keys_of(redis: RedisServer, stream_id: str) -> set[str]:
    async with aioredis.Redis.from_url(redis.url, protocol=2) as client:
        pattern = f"router:{{{stream_id}}}:*"
        return {key.decode() async for key in client.scan_iter(pattern)}


async def test_it_is_fenced_wherever_it_waits() -> None:
    """In one process, so that it is told at once: it waits for a provider's first output."""
    async with (
        SimulatedProvider(script=SAME) as first,
        SimulatedProvider(script=SAME) as second,
        running_router(routed(first, second, health={"eject_after": 1000})) as router,
    ):
        first.set_faults([f"cut@{TOKENS}"])
        second.set_faults("silent")
        old = Comer()
        reading = asyncio.create_task(old.listen(router.base_url))
        await second.wait_requests(1)
        await old.until(lambda it: it.text == HAD)
        new = Comer()
        new.text, new.stream_id, new.part = old.text, old.stream_id, old.part
        assert await new.listen(router.base_url) == "finished"
        assert new.canonical == TEXT
        assert await reading == "record_fenced"
        assert (await second.wait_ended(0)).ended is Ended.CLIENT_CLOSED


async def test_an_end_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection to where the client was is dead: its writer can tell it nothing."""
    monkeypatch.setattr("router.api.endpoint.FENCED_GRACE_S", 0.05)
    text = "".join(f"This is line number {number}.\n" for number in range(60_000))
    async with (
        SimulatedProvider(
            script=Script(text=text), dialect=Dialect(tokens_per_chunk=300), send_buffer_bytes=9_000
        ) as provider,
        running_router(routed(provider)) as router,
        connected(router.base_url, receive_buffer=4_096) as client,
    ):
        await client.post(CHAT)
        head = (await client.reader.readuntil(b"\r\n\r\n")).decode()
        await full(provider)
        new = Comer()
        new.body = json.dumps(CHAT).encode()
        new.stream_id = head.partition("x-router-stream-id: ")[2].split()[0]
        provider.set_faults("status=400")
        assert await new.listen(router.base_url) == "stream_interrupted"
        assert text.startswith(new.text)
        assert (await provider.wait_ended(0)).ended is Ended.CLIENT_CLOSED
        assert router.serving.in_flight <= 1


async def full(provider: SimulatedProvider) -> None:
    """Wait until the router takes no more, since its client takes none."""
    sent = -1
    while sent < (now := provider.requests[0].tokens_sent):
        sent = now
        await asyncio.sleep(0.15)
    assert provider.requests[0].ended is None


# -- a whole answer --------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [TEXT, "", "Short."])
async def test_a_completed_answer_is_kept_and_given_again(redis: RedisServer, text: str) -> None:
    async with (
        SimulatedProvider(script=Script(text=text)) as provider,
        replicas(redis, provider, record={"retain_s": 60}) as (one, two),
    ):
        comer = Comer(stream_options={"include_usage": True})
        assert await comer.listen(one.url) == "finished"
        await one.ended(1)
        for received in (0, len(text) // 2, len(text)):
            comer.lose(received)
            comer.finish = ""
            assert await comer.listen(two.url) == "finished"
            assert comer.text == text
            assert comer.finish == "stop"
            comer.part = comer.heads[-1]["x-router-part"]
            await two.written()
        assert provider._journal.count == 1
        assert len(comer.ids) == 1


async def test_a_kept_answer_that_broke_again(redis: RedisServer) -> None:
    async with (
        SimulatedProvider(script=SAME) as provider,
        replicas(redis, provider, record={"retain_s": 60}) as (one, two),
    ):
        comer = Comer()
        assert await comer.listen(one.url) == "finished"
        await one.ended(1)
        comer.lose(0)
        await comer.listen(two.url, chars=1)  # it leaves before the finish, or has it
        await two.ended(1)
        assert await comer.listen(one.url) == "finished"
        assert comer.canonical == TEXT
        assert provider._journal.count == 1


# -- other forms -----------------------------------------------------------------------------------


async def test_the_blocking_form_is_given_whole(redis: RedisServer) -> None:
    """Its client has nothing before it has all, whatever it says."""
    holds = held(TOKENS)
    body = {"model": "chat", "messages": MESSAGES}
    async with (
        SimulatedProvider(script=SAME, gate=holds) as provider,
        replicas(redis, provider) as (one, two),
        httpx.AsyncClient(trust_env=False, timeout=20) as client,
    ):
        asking = asyncio.create_task(client.post(f"{one.url}/chat/completions", json=body))
        await provider.wait_tokens(TOKENS)
        one.router.serving.interrupt()  # the only way in which such a client learns an id
        stopped = await asking
        assert stopped.status_code == 503
        stream_id = stopped.headers["x-router-stream-id"]
        await one.ended(1)
        for more in ({}, {"x-router-received": "77"}):
            answer = await client.post(
                f"{two.url}/chat/completions",
                json=body,
                headers={"x-router-resume": stream_id, **more},
            )
            if not more:
                assert answer.status_code == 200, answer.text
                assert answer.json()["choices"][0]["message"]["content"] == TEXT
                assert answer.json()["router"]["superseded"] == []
                assert answer.json()["id"] == f"chatcmpl-{stream_id}"
                assert answer.headers["x-router-resume-from"] == "0"
                await two.ended(1)
            else:
                assert answer.json()["error"]["code"] == "resume_unknown"


async def test_in_memory_it_works_within_the_process() -> None:
    holds = held(TOKENS)
    async with (
        SimulatedProvider(script=SAME, gate=holds) as provider,
        running_router(routed(provider)) as router,
    ):
        comer = Comer()
        assert await comer.listen(router.base_url, chars=len(HAD)) == "left"
        assert await comer.listen(router.base_url) == "finished"
        assert comer.canonical == comer.shown == TEXT


async def test_event_ids(redis: RedisServer) -> None:
    holds = held(TOKENS)
    async with (
        SimulatedProvider(script=SAME, gate=holds) as provider,
        replicas(redis, provider) as (one, two),
    ):
        comer = Comer(by_id=True)
        ids = watched(comer)
        await cut_short(comer, one, len(HAD))
        assert await comer.listen(two.url) == "finished"
        assert comer.canonical == comer.shown == TEXT
        assert {one.split(":")[0] for one, _ in ids} == {comer.stream_id}
        # Each says what has come with its event, over both connections.
        assert all(int(one.rpartition(":")[2]) == had for one, had in ids)
        assert all(a <= b for (_, a), (_, b) in pairwise(ids))
        assert len({one.split(":")[1] for one, _ in ids}) == 2


def watched(comer: Comer) -> list[tuple[str, int]]:
    """Each id, with the characters that have come by the end of its event."""
    found: list[tuple[str, int]] = []
    take = comer._take

    def taking(line: str) -> str:
        how = take(line)
        if line.startswith("data: {") and comer.last_id:
            if found and found[-1][0] == comer.last_id:
                found.pop()
            found.append((comer.last_id, len(comer.text)))
        return how

    comer._take = taking  # type: ignore[method-assign] # a test listens in
    return found


@pytest.mark.parametrize("last", ["", "12", "abc:12", "a:b:c:d", ":a:1"])
async def test_an_id_of_somebody_else_begins_a_stream(last: str) -> None:
    async with (
        SimulatedProvider(script=Script(text="Hello there.")) as provider,
        running_router(routed(provider)) as router,
    ):
        comer = Comer()
        assert await comer.listen(router.base_url, headers={"last-event-id": last}) == "finished"
        assert comer.text == "Hello there."


async def test_headers_that_go_out_early_say_where_it_starts(redis: RedisServer) -> None:
    text = "A sentence without an end, so that nothing is committed yet. The next one."
    holds = held(5, 0)
    async with (
        SimulatedProvider(script=Script(text=text), gate=holds) as provider,
        replicas(redis, provider, server={"commit_headers_after_s": 0.05}) as (one, two),
    ):
        comer = Comer()
        await cut_short(comer, one, len("".join(tokenize(text)[:5])))
        reading = asyncio.create_task(comer.listen(two.url))
        await comer.until(lambda it: len(it.heads) == 2)
        assert comer.heads[1]["x-router-resume-from"] == "0"
        assert comer.holes == [(0, len(comer.text))]
        holds.release(1)
        assert await reading == "finished"
        assert comer.canonical == comer.shown == text


async def test_a_target_that_cannot_continue_is_passed_over(redis: RedisServer) -> None:
    none = {"continuation": {"style": "none"}}
    async with (
        SimulatedProvider(script=SAME, gate=held(TOKENS)) as first,
        SimulatedProvider(script=SAME) as second,
        replicas(redis, first, second, targets=[none, {}]) as (one, two),
    ):
        comer = Comer()
        await cut_short(comer, one, len(HAD))
        assert await comer.listen(two.url) == "finished"
        assert comer.canonical == TEXT
        assert (first._journal.count, second._journal.count) == (1, 1)


async def test_where_no_target_can_continue_it_is_said(redis: RedisServer) -> None:
    none = {"continuation": {"style": "none"}}
    async with (
        SimulatedProvider(script=SAME, gate=held(TOKENS)) as provider,
        replicas(redis, provider, targets=[none]) as (one, two),
    ):
        comer = Comer()
        await cut_short(comer, one, len(HAD))
        assert await comer.listen(two.url) == "resume_impossible"


async def test_a_resumption_that_finds_no_provider_may_be_tried_again(redis: RedisServer) -> None:
    async with (
        SimulatedProvider(script=SAME, gate=held(TOKENS)) as provider,
        replicas(redis, provider, route={"max_attempts": 1}) as (one, two),
    ):
        comer = Comer()
        await cut_short(comer, one, len(HAD))
        provider.set_faults("status=503")
        assert await comer.listen(two.url) == "stream_interrupted"
        await two.ended(1)
        provider.set_faults(None)
        assert await comer.listen(one.url) == "finished"
        assert comer.canonical == comer.shown == TEXT


# -- answers that were lost, and a record that went back -------------------------------------------


async def test_an_answer_that_never_arrived(redis: RedisServer) -> None:
    """The stream was resumed, written on and committed, and the client heard nothing of it."""
    async with (
        SimulatedProvider(script=SAME, gate=held(TOKENS)) as provider,
        replicas(redis, provider) as (one, two),
    ):
        comer = Comer()
        await cut_short(comer, one, len(HAD))
        lost = Comer()
        lost.text, lost.stream_id, lost.part = comer.text, comer.stream_id, comer.part
        await cut_short(lost, two, len(lost.text) + 200)
        assert two.reports[0].committed_chars > one.reports[0].committed_chars
        assert await comer.listen(one.url) == "finished"
        assert comer.canonical == comer.shown == TEXT


async def test_a_request_that_came_late(redis: RedisServer) -> None:
    """An earlier request to resume is served after a later one: whoever listens to that later one
    has text of which the last writer knows nothing, and it comes again."""
    async with (
        SimulatedProvider(script=SAME, gate=held(TOKENS), pace=Pace(tokens_per_s=3000)) as provider,
        replicas(redis, provider) as (one, two),
    ):
        comer = Comer()
        await cut_short(comer, one, len(HAD))
        late = comer.coming_back
        await cut_short(comer, two, len(HAD) + 150)
        nobody = Comer()
        nobody.text = HAD
        await nobody.listen(one.url, chars=len(HAD) + 250, headers=late)
        await one.ended(2)
        assert await comer.listen(two.url) == "finished"
        assert int(comer.heads[-1]["x-router-resume-from"]) <= len(HAD)
        assert comer.canonical == comer.shown == TEXT


async def test_a_record_that_went_back(redis: RedisServer) -> None:
    """Redis failed over to a copy that had heard nothing of the second writer, whose offsets are
    others than the first one's."""
    (sample,) = (one for one in seeded(chars=600) if one.name == "mixed")
    script, holds = Script(text=sample.text), Holds()
    tokens = next(at for at, it in enumerate(moments(sample)) if at > 60 and len(it.fragment) > 25)
    async with (
        SimulatedProvider(script=script) as first,
        SimulatedProvider(script=script, conduct=Conduct(instruct="differ"), gate=holds) as second,
        replicas(redis, first, second, count=3) as (one, two, three),
    ):
        first.set_faults([f"cut@{tokens}", *["status=500"] * 9])
        holds.hold(0, before=60)
        comer = Comer()
        await cut_short(comer, one, len(moments(sample)[tokens].committed) + 180)
        ((start, end),) = one.reports[0].superseded
        copy = await copied(redis, comer.stream_id)
        comer.lose(start - 20)
        second.set_faults("silent")
        await cut_short(comer, two, end + 30)
        second.set_faults(None)
        await restored(redis, copy)
        assert await comer.listen(three.url) == "finished"
        assert comer.canonical == comer.shown
        assert comer.canonical.startswith(sample.text[:start])
        assert comer.canonical.endswith(script.other_text)
        assert comer.canonical.count(script.other_text) == 1


async def copied(redis: RedisServer, stream_id: str) -> dict[str, bytes]:
    async with aioredis.Redis.from_url(redis.url, protocol=2) as client:
        names = sorted(await keys_of(redis, stream_id))
        return {name: await client.dump(name) for name in names}  # type: ignore[misc] # bytes


async def restored(redis: RedisServer, copy: dict[str, bytes]) -> None:
    async with aioredis.Redis.from_url(redis.url, protocol=2) as client:
        for name, value in copy.items():
            await client.restore(name, 60_000, value, replace=True)


async def test_a_model_that_has_nothing_to_add_after_a_space(redis: RedisServer) -> None:
    """The white space behind the last boundary is the answer's, and is all that is not on record
    when the end is claimed."""
    text = "The bridge was old. It stood."
    tokens = tokenize(text)
    begun = len(tokenize("The bridge was old. It"))
    async with (
        SimulatedProvider(
            script=Script(text=text), faults=[None, "empty"], gate=held(begun)
        ) as provider,
        replicas(redis, provider) as (one, two),
    ):
        comer = Comer()
        await cut_short(comer, one, len("The bridge was old. It"))
        assert begun < len(tokens)
        assert await comer.listen(two.url) == "finished"
        assert comer.canonical.rstrip() == "The bridge was old."


# -- this router stops -----------------------------------------------------------------------------


async def test_a_drained_stream_is_told_how_to_go_on(redis: RedisServer) -> None:
    async with (
        SimulatedProvider(script=SAME, gate=held(TOKENS)) as provider,
        replicas(redis, provider) as (one, two),
    ):
        comer = Comer()
        reading = asyncio.create_task(comer.listen(one.url))
        await comer.until(lambda it: it.text == HAD)
        one.router.serving.interrupt()
        assert await reading == "stream_interrupted"
        (error,) = comer.errors
        for word in (comer.stream_id, comer.part, "x-router-resume", "x-router-received"):
            assert word in error["message"]
        assert error["router"]["stream_id"] == comer.stream_id
        assert error["router"]["outcome"] == "router_stopped"
        assert without(comer.text, error["router"]["superseded"]) == HAD
        assert comer.finish == ""
        # Nothing is waited for: who was told so may come back at once, and finds all of it.
        async with aioredis.Redis.from_url(redis.url, protocol=2) as client:
            outcome = await client.hget(f"router:{{{comer.stream_id}}}:state", "outcome")
        assert outcome == b"router_stopped"
        assert await comer.listen(two.url) == "finished"
        assert comer.canonical == comer.shown == TEXT


async def test_a_redis_that_does_not_answer_holds_no_drained_stream_up(redis: RedisServer) -> None:
    async with (
        SimulatedProvider(script=SAME, gate=held(TOKENS)) as provider,
        replicas(redis, provider) as (one, two),
    ):
        comer = Comer()
        reading = asyncio.create_task(comer.listen(one.url))
        await comer.until(lambda it: it.text == HAD)
        redis.signal(signal.SIGSTOP)
        try:
            one.router.serving.interrupt()
            assert await reading == "stream_interrupted"
        finally:
            redis.signal(signal.SIGCONT)
        await one.ended(1)
        assert await comer.listen(two.url) == "finished"
        assert comer.canonical == comer.shown == TEXT


async def test_a_drained_stream_that_cannot_go_on_is_not_told_to() -> None:
    async with (
        SimulatedProvider(script=SAME, gate=held(TOKENS)) as provider,
        running_router(routed(provider)) as router,
    ):
        comer = Comer(n=2)
        reading = asyncio.create_task(comer.listen(router.base_url))
        await comer.until(lambda it: it.text != "")
        router.serving.interrupt()
        assert await reading == "stream_interrupted"
        assert "cannot be resumed" in comer.errors[0]["message"]
        assert "x-router-resume" not in comer.errors[0]["message"]


# -- through an SDK --------------------------------------------------------------------------------


async def test_openai_python(redis: RedisServer) -> None:
    """What a program does that knows OpenAI's client and two headers."""
    async with (
        SimulatedProvider(script=SAME, gate=held(TOKENS)) as provider,
        replicas(redis, provider) as (one, two),
    ):
        text, head = await heard(one.router, {}, chars=len(HAD))
        assert text == HAD
        await one.ended(1)
        back = {
            "X-Router-Resume": head["x-router-stream-id"],
            "X-Router-Part": head["x-router-part"],
            "X-Router-Received": str(len(text)),
        }
        rest, head = await heard(two.router, back)
        assert text[: int(head["x-router-resume-from"])] + rest == TEXT

        with pytest.raises(openai.NotFoundError) as caught:
            await heard(two.router, back)
        assert caught.value.code == "resume_unknown"


async def heard(
    router: Router, headers: dict[str, str], *, chars: int | None = None
) -> tuple[str, httpx.Headers]:
    """What `openai` makes of one response, and its headers."""
    async with openai.AsyncOpenAI(
        base_url=router.base_url,
        api_key="none",
        max_retries=2,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
    ) as client:
        messages: Any = MESSAGES
        raw = await client.chat.completions.with_raw_response.create(
            model="chat", messages=messages, stream=True, extra_headers=headers
        )
        text = ""
        async with raw.parse() as stream:
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
                if chars is not None and len(text) >= chars:
                    break
        return text, httpx.Headers([*raw.headers.items()])
