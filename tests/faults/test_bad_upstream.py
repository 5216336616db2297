"""What no provider should send: bounded memory, the right fault, nothing hangs, nothing leaks."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from fault_kit import TALK, TEXT, Stage, finished, route, staged, unfinished
from support.caller import called
from support.routers import routed, running_router

from router.core.faults import FaultKind, Verdict
from router.engine.upstream import MAX_CODED_BODY_BYTES, READ_BUFFER_BYTES
from router.simulate import RawAnswer, SimulatedProvider
from router.wire.streams import MAX_BODY_BYTES

pytestmark = pytest.mark.asyncio(loop_scope="module")

MB = 1024 * 1024
STREAM = (("Content-Type", "text/event-stream"),)
GZIP = (*STREAM, ("Content-Encoding", "gzip"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Stage]:
    routes = {"chat": route(1, 2), "alone": route(1, max_attempts=1)}
    async with staged(routes=routes) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="module")
async def stage(shared: Stage) -> Stage:
    await shared.rest()
    return shared


def fault_of(stage: Stage) -> FaultKind | None:
    fault = stage.report.attempts[0].fault
    return fault.kind if fault else None


async def is_well(stage: Stage) -> None:
    """The next request to the same provider is answered by it."""
    stage.providers[0].manner.raw = None
    stage.faults("-")
    answer, _ = await stage.ask(model="alone")
    finished(answer)


# --- size ----------------------------------------------------------------------------------------


@asynccontextmanager
async def flooding(head: bytes, piece: bytes, total: int) -> AsyncIterator[str]:
    """A server that answers everything with `head`, then `piece` again and again.

    Args:
        head: status line and headers, and perhaps the begin of the body.
        piece: sent until `total` bytes are out, or the client is gone.
        total: in bytes.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            for _ in range(total // len(piece)):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has had enough, or only wanted to keep a connection warm
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


HTTP_200 = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "piece", "kind", "bound_mb"),
    [
        (HTTP_200 + b"data: ", b"x" * 65_536, "malformed", 40),
        (HTTP_200 + b'data: {"choices":[{"delta":{"content":"', b"x" * 65_536, "malformed", 40),
        (HTTP_200 + b"data: x\n", b"data: x\n" * 8_192, "malformed", 60),
        (HTTP_200 + b": ", b"x" * 65_536, "truncated", 10),
        (HTTP_200, (b": " + b"x" * 60 + b"\n\n") * 1_000, "truncated", 10),
        (HTTP_200, b"\n" * 65_536, "truncated", 10),
        (HTTP_200 + b'{"choices": "', b"x" * 65_536, "malformed", 3 * MAX_BODY_BYTES // MB + 20),
        (HTTP_200 + b"<html>", b"x" * 65_536, "malformed", 10),
        (b"HTTP/1.1 200 OK\r\nX-Endless: ", b"x" * 65_536, "connect", 10),
        (b"HTTP/1.1 200 OK\r\n", b"X-Another: header\r\n" * 3_449, "connect", 10),
        (b"HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n", b"<p>" * 21_845, "status", 10),
    ],
    ids=[
        "a line",
        "a line of JSON",
        "an event of many lines",
        "a comment",
        "comments",
        "blank lines",
        "a JSON body",
        "a page",
        "a header",
        "headers",
        "an error's body",
    ],
)
async def test_a_hundred_megabytes_are_not_held(
    head: bytes, piece: bytes, kind: str, bound_mb: int
) -> None:
    many = piece.count(b"\n") > 1  # short lines cost time, and show the same with fewer
    size = (10 if many else 100) * MB
    async with flooding(head, piece, size) as bad, SimulatedProvider(script=TALK) as good:
        config = routed(bad, good, route={"retry": {"same_target": 0}})
        async with running_router(config) as router:
            await called(router.base_url, model="none")  # whatever is made once is made now
            tracemalloc.start()
            try:
                answer, _ = await called(router.base_url)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    finished(answer)
    assert answer.metadata is not None
    assert [one["fault"] for one in answer.metadata["attempts"]] == [kind, None]
    assert peak < bound_mb * MB, peak / MB


# --- framing that lies ---------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [-1_000, -3, 1_000])
async def test_a_length_that_lies(stage: Stage, delta: int) -> None:
    """Too short is a breach that the connection does not outlive; too long only promises more."""
    stage.faults(f"bad_length,delta={delta}")
    answer, _ = await stage.ask()
    finished(answer)
    assert (fault_of(stage) is None) == (delta > 0)
    assert stage.asked == (1, int(delta < 0), 0)
    await is_well(stage)


@pytest.mark.parametrize(
    ("wire", "kinds"),
    [
        (b"Content-Length: 100000\r\n\r\ndata: {}\n\n", ("cut",)),
        (b"Content-Length: 10\r\n\r\ndata: {}\n\n", ("truncated",)),
        # What follows a body is noticed with the head, or after the body, as the reads fall.
        (b"Content-Length: 10\r\n\r\ndata: {}\n\nmore", ("connect", "truncated")),
        (b"Content-Length: 0\r\n\r\ndata: {}\n\n", ("connect", "truncated")),
        (b"Content-Length: -5\r\n\r\ndata: {}\n\n", ("connect",)),
        (b"Content-Length: ten\r\n\r\ndata: {}\n\n", ("connect",)),
        (
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\ndata: {}\n\n\r\n0\r\n\r\n",
            ("connect", "cut"),
        ),
        # The size of a chunk swallows the framing after it, which is no line of a stream.
        (
            b"Transfer-Encoding: chunked\r\n\r\nff\r\ndata: {}\n\n\r\n0\r\n\r\n",
            ("malformed",),
        ),
        (b"Transfer-Encoding: chunked\r\n\r\na\r\ndata: {}\n\n\r\n", ("cut",)),
    ],
)
async def test_framing_that_is_wrong(wire: bytes, kinds: tuple[str, ...]) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    async with raw(head + wire) as bad:
        await bad_then_good(bad, *kinds)


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (b"", "connect"),
        (b"\x16\x03\x01\x02\x00\x01", "connect"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "connect"),
        (b"HTTP/1.1 two hundred\r\n\r\n", "connect"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "truncated"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "truncated"),
        (b"HTTP/1.0 200 OK\r\n\r\ndata: {}\n\n", "truncated"),
    ],
)
async def test_what_is_hardly_http(wire: bytes, kind: str) -> None:
    async with raw(wire) as bad:
        await bad_then_good(bad, kind)


@asynccontextmanager
async def raw(wire: bytes) -> AsyncIterator[str]:
    """A server that answers everything with these bytes and closes."""
    async with flooding(wire, b"-", 0) as url:
        yield url


async def bad_then_good(bad: str, *kinds: str) -> None:
    """The first of two providers sends what is bad: the second answers, and the books say why."""
    async with SimulatedProvider(script=TALK) as good, running_router(routed(bad, good)) as router:
        answer, call = await called(router.base_url)
    assert call.whole
    finished(answer)
    assert answer.metadata is not None
    first, second = (one["fault"] for one in answer.metadata["attempts"])
    assert first in kinds
    assert second is None


# --- compression, which nobody asked for ---------------------------------------------------------


async def test_a_compressed_answer_is_read_all_the_same(stage: Stage) -> None:
    stage.faults("gzip")
    answer, _ = await stage.ask()
    finished(answer)
    assert stage.asked == (1, 0, 0)


def chunk(text: str, finish: str = "null") -> bytes:
    choice = f'{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":{finish}}}'
    return f'data: {{"model":"m","choices":[{choice}]}}\n\n'.encode()


WHOLE = chunk("All ") + chunk("of it.") + chunk("", '"stop"') + b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("coding", "body", "kind"),
    [
        ("gzip", gzip.compress(WHOLE), None),
        ("x-gzip", gzip.compress(WHOLE), None),
        ("deflate", zlib.compress(WHOLE), None),
        ("GZip", gzip.compress(WHOLE), None),
        ("gzip", gzip.compress(WHOLE)[:-20], FaultKind.TRUNCATED),
        ("gzip", gzip.compress(WHOLE) + b"what is this?", None),
        ("gzip", WHOLE, FaultKind.MALFORMED),
        ("gzip", b"\x1f\x8b" + bytes(range(256)), FaultKind.MALFORMED),
        ("br", WHOLE, FaultKind.MALFORMED),
        ("gzip, gzip", gzip.compress(gzip.compress(WHOLE)), FaultKind.MALFORMED),
    ],
)
async def test_codings(stage: Stage, coding: str, body: bytes, kind: FaultKind | None) -> None:
    headers = (*STREAM, ("Content-Encoding", coding))
    splits = tuple(range(1, len(body), 7))
    stage.providers[0].manner.raw = RawAnswer(body=body, headers=headers, splits=splits)
    answer, _ = await stage.ask()
    finished(answer, "All of it." if kind is None else TEXT)
    assert fault_of(stage) is kind


@pytest.mark.parametrize(
    ("begin", "filling"), [(b": ", b"\0"), (b"data: ", b"x"), (b"<html>", b"\0")]
)
async def test_a_bomb_is_defused(stage: Stage, begin: bytes, filling: bytes) -> None:
    """A hundred kilobytes that become a hundred megabytes."""
    packer = zlib.compressobj(wbits=31)
    body = packer.compress(begin)
    for _ in range(100):
        body += packer.compress(filling * MB)
    body += packer.flush()
    assert len(body) < 200_000
    stage.providers[0].manner.raw = RawAnswer(body=body, headers=GZIP)
    tracemalloc.start()
    try:
        answer, _ = await stage.ask()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    finished(answer)
    assert fault_of(stage) is FaultKind.MALFORMED
    assert peak < 40 * MB, peak / MB
    assert READ_BUFFER_BYTES < MAX_CODED_BODY_BYTES < 100 * MB
    await is_well(stage)


async def test_an_error_in_disguise_is_read_all_the_same(stage: Stage) -> None:
    body = b'{"error":{"message":"No such thing.","type":"invalid_request_error","code":"nope"}}'
    headers = (("Content-Type", "application/json"), ("Content-Encoding", "gzip"))
    stage.providers[0].manner.raw = RawAnswer(body=gzip.compress(body), status=400, headers=headers)
    answer, _ = await stage.ask()
    assert answer.status == 400
    assert unfinished(answer, code="nope")["message"] == "No such thing."


# --- redirects -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_never_followed(stage: Stage, status: int) -> None:
    third = f"{stage.providers[2].base_url}/chat/completions"
    stage.providers[0].manner.raw = RawAnswer(
        body=b"", status=status, headers=(("Location", third),)
    )
    answer, _ = await stage.ask()
    finished(answer)
    assert stage.asked == (1, 1, 0)
    fault = stage.report.attempts[0].fault
    assert fault is not None
    assert (fault.kind, fault.verdict, fault.code) == (
        FaultKind.STATUS,
        Verdict.ACCOUNT,
        "redirected",
    )
    assert third in fault.message
