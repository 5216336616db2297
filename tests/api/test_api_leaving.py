"""A client that leaves, or reads slowly: its upstream notices, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.caller import calling
from support.clock import FakeClock
from support.raw import CHAT, RawClient, connected, post
from support.reading import read_stream
from support.routers import routed, running_router

from router.api.endpoint import STALL_GRACE_S
from router.api.protocol import LINGER_S
from router.api.server import UNSENT_BYTES
from router.engine.observe import Detail, StreamEnded
from router.engine.upstream import READ_BUFFER_BYTES, RECEIVE_BUFFER_BYTES
from router.errors import RecordNotFound
from router.simulate import Ended, RawAnswer, Script, SimulatedProvider, Turnstile, seeded_text

TEXT = seeded_text(3, 3_000)
SAME = Script(text=TEXT)


class Ends:
    """An observer that waits for streams to end."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.ids: list[str] = []
        self._changed = asyncio.Event()

    def __call__(self, detail: Detail) -> None:
        if isinstance(detail, StreamEnded):
            self.outcomes.append(detail.report.outcome)
            self.ids.append(detail.report.stream_id)
            self._changed.set()

    async def wait(self, count: int = 1) -> None:
        async with asyncio.timeout(10):
            while len(self.ids) < count:
                self._changed.clear()
                await self._changed.wait()


def of_the_router() -> set[asyncio.Task[Any]]:
    """Tasks that run the router's code; the providers run in this loop too."""

    def file(task: asyncio.Task[Any]) -> str:
        return str(getattr(getattr(task.get_coro(), "cr_code", None), "co_filename", ""))

    return {
        one
        for one in asyncio.all_tasks()
        if re.search(r"/router/(?!simulate)|/uvicorn/|/aiohttp/", file(one))
    }


@asynccontextmanager
async def nothing_stays() -> AsyncIterator[None]:
    """After the block there is no task that was not there before it."""
    before = of_the_router()
    yield
    async with asyncio.timeout(10):
        # A finished task is there until the loop has called its callbacks.
        while of_the_router() - before:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)


# --- leaving --------------------------------------------------------------------------------------


async def test_leaving_before_the_first_output() -> None:
    gate, ends, clock = Turnstile(0), Ends(), FakeClock()
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        async with running_router(routed(provider), observers=[ends], clock=clock) as it:
            async with nothing_stays():
                async with calling(it.base_url):
                    await gate.held()
                assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED
                await ends.wait()
            assert clock.pending == 0
        assert ends.outcomes == ["client_gone"]
        await provider.wait_connections(0)


async def test_leaving_in_mid_stream_keeps_the_record_for_a_while() -> None:
    gate, ends = Turnstile(200), Ends()
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        config = routed(provider, record={"resume_window_s": 60})
        async with running_router(config, observers=[ends]) as it:
            async with nothing_stays(), calling(it.base_url) as call:
                await gate.held()
                await call.read()
                await call.leave()
                assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED
                await ends.wait()
            await provider.wait_connections(0)
            record = await it.serving.engine.store.load(ends.ids[0])
            assert record.outcome == "client_gone"
            assert record.text
            assert TEXT.startswith(record.text)


async def test_leaving_while_a_retry_is_waited_for() -> None:
    ends, clock = Ends(), FakeClock()
    async with SimulatedProvider(script=SAME) as provider:
        provider.set_faults("status=503,retry_after=1")
        async with running_router(routed(provider), observers=[ends], clock=clock) as it:
            async with nothing_stays():
                async with calling(it.base_url):
                    await provider.wait_ended()
                    await clock.settle()
                await ends.wait()
            assert clock.pending == 0
        assert ends.outcomes == ["client_gone"]
        assert len(provider.requests) == 1


async def test_leaving_during_a_failover() -> None:
    gate, ends = Turnstile(0), Ends()
    async with (
        SimulatedProvider(script=SAME) as one,
        SimulatedProvider(script=SAME, gate=gate) as two,
    ):
        one.set_faults("cut@40")
        config = routed(one, two, types=["vllm", "vllm"])
        async with running_router(config, observers=[ends]) as it:
            async with calling(it.base_url) as call:
                await gate.held()  # the continuation was asked for, and nothing has come of it
                assert call.elapsed_s >= 0
            assert (await two.wait_ended()).ended is Ended.CLIENT_CLOSED
            await ends.wait()
            record = await it.serving.engine.store.load(ends.ids[0])
            assert TEXT.startswith(record.text)
        assert ends.outcomes == ["client_gone"]


async def test_leaving_releases_the_probe() -> None:
    """The one request that may try an ejected target gives that right back."""
    gate, ends, clock = Turnstile(0), Ends(), FakeClock()
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        provider.set_faults("status=503,times=1")
        config = routed(
            provider,
            route={"retry": {"same_target": 0}, "max_attempts": 1},
            health={"eject_after": 1, "cool_down_s": 5},
        )
        async with running_router(config, observers=[ends], clock=clock) as it:
            health = it.serving.engine.health
            async with calling(it.base_url) as call:
                assert (await clock.run(call.answer())).status == 502
            assert not health.available("p1/model-p1")
            await clock.advance(6)
            async with calling(it.base_url):
                await gate.held()
                assert not health.available("p1/model-p1")  # somebody is trying already
            await ends.wait(2)
            assert health.available("p1/model-p1")


async def test_a_client_that_sends_no_more_is_taken_to_have_left() -> None:
    gate, ends = Turnstile(50), Ends()
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        async with (
            running_router(routed(provider), observers=[ends]) as it,
            connected(it.base_url) as client,
        ):
            await client.post(CHAT)
            await gate.held()
            client.writer.write_eof()
            assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED
            await ends.wait()
        assert ends.outcomes == ["client_gone"]


async def test_leaving_in_the_middle_of_its_own_request() -> None:
    async with SimulatedProvider() as provider:
        async with (
            running_router(routed(provider)) as it,
            nothing_stays(),
            connected(it.base_url) as client,
        ):
            await client.send(post(CHAT)[:-10])
        assert provider.requests == []


class LateEnd:
    """A provider whose body ends after its `[DONE]`, by itself, when it is told to."""

    CHUNK = (
        b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )

    def __init__(self) -> None:
        self.connections = 0
        self.end = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n"
                    % (len(self.CHUNK), self.CHUNK)
                )
                await self.end.wait()
                self.end.clear()
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def test_the_end_of_an_answer_is_no_leaving() -> None:
    """The upstream connection goes back to its pool, even if its body ends a little late."""
    ends, clock, provider = Ends(), FakeClock(), LateEnd()
    server = await asyncio.start_server(provider, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server, running_router(routed(url), observers=[ends], clock=clock) as it:
        for _ in range(3):
            async with connected(it.base_url) as client:
                await client.post(CHAT)
                reply = await client.reply()
                assert reply.body.endswith(b"data: [DONE]\n\n")
                await clock.settle()
                provider.end.set()
                await clock.settle()
        assert ends.outcomes == ["completed"] * 3
        assert provider.connections == 1


# --- a second request while the first is answered -------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
async def test_a_pipelined_request_is_dropped_and_leaving_still_noticed(*, together: bool) -> None:
    gate = Turnstile(20)
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        async with running_router(routed(provider)) as it, connected(it.base_url) as client:
            await client.send(post(CHAT) + (post(CHAT) if together else b""))
            await gate.held()
            if not together:
                await client.send(post(CHAT) + b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000)
            client.writer.transport.abort()
            assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED
        assert len(provider.requests) == 1


@pytest.mark.parametrize("together", [True, False])
async def test_a_pipelined_request_leaves_the_answer_whole(*, together: bool) -> None:
    gate, clock = Turnstile(20), FakeClock()
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        async with running_router(routed(provider), clock=clock) as it:
            async with connected(it.base_url) as client:
                await client.send(post(CHAT) + (post(CHAT) if together else b""))
                await gate.held()
                if not together:
                    await client.send(post(CHAT) + b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000)
                gate.open()
                reply = await client.reply()
                answer = read_stream(reply.status, reply.headers, reply.body)  # type: ignore[arg-type]
                assert (answer.delivered, answer.done) == (TEXT, 1)
                assert await client.closed() == "fin"
                await clock.advance(LINGER_S + 1)
            assert clock.pending == 0
        assert len(provider.requests) == 1


async def test_an_empty_line_behind_a_body_is_nothing() -> None:
    gate = Turnstile(20, request=0)
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        async with running_router(routed(provider)) as it, connected(it.base_url) as client:
            await client.post(CHAT)
            await gate.held()
            await client.send(b"\r\n")
            gate.open()
            assert (await client.reply()).body.endswith(b"data: [DONE]\n\n")
            await client.post(CHAT)
            assert (await client.reply()).body.endswith(b"data: [DONE]\n\n")
        assert len(provider.requests) == 2


# --- reading slowly -------------------------------------------------------------------------------

PIECE_CHARS = 16_000
PIECES = 200


def big_answer() -> RawAnswer:
    """Three megabytes of text, a chunk of a stream per write."""
    piece = b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    piece += b'[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
    piece %= b"Some words. " * (PIECE_CHARS // 12)
    end = b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    end += b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    splits = tuple(len(piece) * at for at in range(1, PIECES + 1))
    return RawAnswer(body=piece * PIECES + end, splits=splits)


async def until_still(provider: SimulatedProvider) -> int:
    """Wait until the provider has sent nothing for half a second; its bytes until then.

    What is asserted of them is an upper bound, so a wait that was too short cannot fail a test.
    """
    await provider.wait_requests()
    before, quiet = -1, 0
    while quiet < 10:
        (record,) = provider.requests
        quiet = quiet + 1 if record.bytes_sent == before else 0
        before = record.bytes_sent
        await asyncio.sleep(0.05)
    return before


async def drained(client: RawClient) -> bytes:
    """Read on, and no longer through a needle's eye."""
    sock: Any = client.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    reply = await client.reply()
    assert reply.how == "end"
    return reply.body


async def test_reading_slowly_slows_the_provider_and_is_no_fault() -> None:
    answer, ends = big_answer(), Ends()
    async with SimulatedProvider(raw=answer, send_buffer_bytes=16_384) as provider:
        config = routed(provider, route={"timeouts": {"idle_s": 0.2, "first_output_s": 5}})
        async with (
            running_router(config, observers=[ends]) as it,
            connected(it.base_url, receive_buffer=4_096) as client,
        ):
            await client.post(CHAT)
            sent = await until_still(provider)  # longer than `idle_s`
            # Ours: what aiohttp holds, what waits for the socket and one delivery. The
            # kernel's: what it may not send yet, and the receive buffer of our own socket.
            ours = 2 * READ_BUFFER_BYTES + 65_536 + 3 * READ_BUFFER_BYTES
            kernels = UNSENT_BYTES + 2 * RECEIVE_BUFFER_BYTES + 2 * 16_384 + 65_536
            assert sent < ours + kernels < len(answer.body) / 2
            assert ends.outcomes == []
            body = await drained(client)
        assert ends.outcomes == ["completed"]
        assert len(provider.requests) == 1
    got = read_stream(200, {}, body)  # type: ignore[arg-type]
    assert got.done == 1
    assert len(got.delivered) == PIECES * 12 * (PIECE_CHARS // 12)
    assert got.metadata is None  # nothing happened that would be worth telling


@pytest.mark.parametrize("how", ["reset", "half"])
async def test_leaving_while_blocked_in_a_slow_read(how: str) -> None:
    ends = Ends()
    async with SimulatedProvider(raw=big_answer(), send_buffer_bytes=16_384) as provider:
        async with (
            running_router(routed(provider), observers=[ends]) as it,
            nothing_stays(),
            connected(it.base_url, receive_buffer=4_096) as client,
        ):
            await client.post(CHAT)
            await until_still(provider)
            sock: Any = client.writer.get_extra_info("socket")
            if how == "half":
                sock.shutdown(socket.SHUT_WR)
            else:
                client.writer.transport.abort()
            assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED
            await ends.wait()
        assert ends.outcomes == ["client_gone"]


async def test_a_client_that_never_reads_is_let_go_after_the_deadline() -> None:
    ends, clock = Ends(), FakeClock()
    async with SimulatedProvider(raw=big_answer(), send_buffer_bytes=16_384) as provider:
        config = routed(provider, route={"timeouts": {"total_s": 20}})
        async with (
            running_router(config, observers=[ends], clock=clock) as it,
            nothing_stays(),
            connected(it.base_url, receive_buffer=4_096) as client,
        ):
            await client.post(CHAT)
            await until_still(provider)
            await clock.advance(20 + STALL_GRACE_S + 1)
            assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED
            await ends.wait()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await client.reader.readexactly(1 << 30)
        assert ends.outcomes == ["client_gone"]


async def test_a_window_of_nothing_keeps_nothing() -> None:
    gate, ends = Turnstile(200), Ends()
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        config = routed(provider, record={"resume_window_s": 0})
        async with running_router(config, observers=[ends]) as router:
            async with calling(router.base_url) as call:
                await gate.held()
                await call.read()
            await ends.wait()
            with pytest.raises(RecordNotFound):
                await router.serving.engine.store.load(ends.ids[0])
