"""Bad input: an OpenAI error with the right status, bounded memory, and no upstream call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from support.clock import FakeClock
from support.raw import CHAT, RawReply, connected, post
from support.routers import Router, routed, running_router

from router.api.asgi import BODY_IDLE_S
from router.api.endpoint import PARSE_ASIDE_BYTES
from router.api.protocol import HEAD_S, LINGER_S
from router.simulate import SimulatedProvider

MEGA = 1_000_000
SERVER = {"max_body_bytes": 2 * MEGA, "max_header_bytes": 8_192}
ASK = {"role": "user", "content": "Go."}
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
HEAD = POST + b"content-length: 2\r\n"


@pytest.fixture
async def provider() -> AsyncIterator[SimulatedProvider]:
    async with SimulatedProvider() as one:
        yield one
        assert one.requests == []  # whatever was wrong, nobody upstream heard of it
        assert one.connections_accepted == 0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def router(provider: SimulatedProvider, clock: FakeClock) -> AsyncIterator[Router]:
    async with running_router(routed(provider, server=SERVER), clock=clock) as it:
        yield it


async def replied(router: Router, data: bytes) -> RawReply:
    """Send bytes, read one response."""
    async with connected(router.base_url) as client:
        await client.send(data)
        return await client.reply()


# --- bodies ---------------------------------------------------------------------------------------

BODIES: dict[str, tuple[object, int, str | None, str]] = {
    "no JSON": (b"{", 400, None, "invalid_json"),
    "nothing": (b"", 400, None, "invalid_json"),
    "no UTF-8": (b'{"model": "\xff"}', 400, None, "invalid_json"),
    "gzip": (b"\x1f\x8b\x08\x00\x00", 400, None, "invalid_json"),
    "an array": ([], 400, None, "invalid_type"),
    "null": (b"null", 400, None, "invalid_type"),
    "too deep": (b'{"a":' * 5_000, 400, None, "nested_too_deep"),
    "no model": ({"messages": [ASK]}, 400, "model", "missing_required_parameter"),
    "a number as model": ({"model": 3, "messages": [ASK]}, 400, "model", "invalid_type"),
    "an unknown model": ({"model": "gpt-9", "messages": [ASK]}, 404, "model", "model_not_found"),
    "no messages": ({"model": "chat"}, 400, "messages", "missing_required_parameter"),
    "empty messages": ({"model": "chat", "messages": []}, 400, "messages", "empty_array"),
    "messages as text": ({"model": "chat", "messages": "Go."}, 400, "messages", "invalid_type"),
    "a role unheard of": (
        {"model": "chat", "messages": [{"role": "wizard", "content": "x"}]},
        400,
        "messages[0].role",
        "invalid_value",
    ),
    "stream as text": ({**CHAT, "stream": "yes"}, 400, "stream", "invalid_type"),
    "no tokens": ({**CHAT, "max_tokens": 0}, 400, "max_tokens", "integer_below_min_value"),
    "temperature as text": ({**CHAT, "temperature": "hot"}, 400, "temperature", "invalid_type"),
    "tools as an object": ({**CHAT, "tools": {}}, 400, "tools", "invalid_type"),
}


async def test_bad_bodies(router: Router) -> None:
    for name, (body, status, param, code) in BODIES.items():
        reply = await replied(router, post(body))
        assert reply.status == status, name
        error = reply.error
        assert (error["param"], error["code"]) == (param, code), name
        assert error["type"] == "invalid_request_error", name
        assert reply.headers["content-type"] == "application/json"
        assert reply.how == "end"


async def test_a_bad_body_that_is_parsed_aside(router: Router) -> None:
    body = json.dumps({**CHAT, "messages": [], "pad": "x" * PARSE_ASIDE_BYTES})
    reply = await replied(router, post(body.encode()))
    assert (reply.status, reply.error["code"]) == (400, "empty_array")


async def test_the_connection_is_kept_after_an_error(router: Router) -> None:
    async with connected(router.base_url) as client:
        for _ in range(3):
            await client.post(b"{")
            assert (await client.reply()).status == 400
        await client.send(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await client.reply()).status == 200


# --- paths and methods ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_line", "status", "code"),
    [
        ("GET /v1/chat/completions", 405, "method_not_allowed"),
        ("PUT /v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE /v1/models", 405, "method_not_allowed"),
        ("POST /health", 405, "method_not_allowed"),
        ("GET /", 404, "not_found"),
        ("GET /v1", 404, "not_found"),
        ("POST /v1/completions", 404, "not_found"),
        ("POST /v1/chat/completions/", 404, "not_found"),
        ("GET /health/", 404, "not_found"),
        ("GET /v1/models/gpt-9", 404, "model_not_found"),
        ("GET /v1/models/", 404, "model_not_found"),
        ("GET /docs", 404, "not_found"),
        ("GET /redoc", 404, "not_found"),
        ("GET /openapi.json", 404, "not_found"),
        ("GET /%ff%00%2e%2e/etc", 404, "not_found"),
        (f"GET /{'a' * 5000}", 404, "not_found"),
        ("CONNECT example.org:443", 405, "method_not_allowed"),
    ],
)
async def test_wrong_paths_and_methods(
    router: Router, request_line: str, status: int, code: str
) -> None:
    head = f"{request_line} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    reply = await replied(router, head.encode())
    assert (reply.status, reply.error["code"]) == (status, code)
    assert len(reply.body) < 1_000
    if status == 405 and "CONNECT" not in request_line:
        assert "POST" in reply.headers["allow"] or "GET" in reply.headers["allow"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/v1/messages", "Did you mean /v1/messages? Leave one /v1 out of the base URL."),
        ("/v1/v1/chat/completions", "Did you mean /v1/chat/completions? Leave one /v1 out"),
        ("/chat/completions", "Did you mean /v1/chat/completions? Add /v1 to the base URL."),
        ("/messages", "Did you mean /v1/messages? Add /v1 to the base URL."),
        ("/messages/count_tokens", "Did you mean /v1/messages/count_tokens? Add /v1"),
        ("/models", "Did you mean /v1/models? Add /v1 to the base URL."),
        ("/v1/chat/completions/", "Did you mean /v1/chat/completions?"),
        ("/v1/responses", "POST /v1/responses: Not Found."),
    ],
)
@pytest.mark.parametrize("version", ["", "anthropic-version: 2023-06-01\r\n"])
async def test_a_wrong_path_is_told_the_right_one(
    router: Router, path: str, hint: str, version: str
) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{version}content-length: 0\r\n\r\n"
    reply = await replied(router, head.encode())
    assert reply.status == 404
    told = json.loads(reply.body)
    assert hint in told["error"]["message"]
    assert ("Did you mean" in told["error"]["message"]) == ("Did you mean" in hint)
    assert ("type" in told) == (bool(version) and not path.startswith("/v1/chat/"))


@pytest.mark.parametrize(
    ("request_line", "status", "kind"),
    [
        ("GET /v1/models/absent", 404, "not_found_error"),
        ("GET /v1/absent", 404, "not_found_error"),
        ("DELETE /v1/models", 405, "invalid_request_error"),
        ("GET /v1/messages", 405, "invalid_request_error"),
        ("POST /v1/messages/batches", 404, "not_found_error"),
    ],
)
async def test_anthropics_clients_are_told_in_their_own_shape(
    router: Router, request_line: str, status: int, kind: str
) -> None:
    version = "anthropic-version: 2023-06-01\r\n"
    head = f"{request_line} HTTP/1.1\r\nhost: x\r\n{version}content-length: 0\r\n\r\n"
    reply = await replied(router, head.encode())
    assert reply.status == status
    told = json.loads(reply.body)
    assert (told["type"], told["error"]["type"]) == ("error", kind)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS, at a door without
        b"HELLO\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        POST + b"content-length: -1\r\n\r\n",
        POST + b"content-length: " + b"9" * 30,
        POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        POST + b"content-length: 2\r\n\r\n{}GARBAGE\r\n\r\n",
    ],
)
async def test_what_is_no_http(router: Router, data: bytes) -> None:
    async with connected(router.base_url) as client:
        await client.send(data + b"\r\n\r\n")
        reply = await client.reply()
        assert (reply.status, reply.error["code"]) == (400, "invalid_http")
        assert reply.headers["connection"] == "close"
        assert await client.closed() == "fin"


# --- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"x-big: " + b"a" * 9_000 + b"\r\n\r\n{}",
        HEAD + b"".join(b"x-%d: a\r\n" % n for n in range(2_000)) + b"\r\n{}",
        b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n",
        HEAD + b"x-endless: " + b"a" * 500_000,
        b"GET /" + b"a" * 500_000,
    ],
    ids=["one", "many", "target", "endless", "endless target"],
)
async def test_headers_that_are_too_large(router: Router, head: bytes) -> None:
    async with connected(router.base_url) as client:
        await client.send(head)
        reply = await client.reply()
        assert (reply.status, reply.error["code"]) == (431, "headers_too_large")
        assert reply.headers["connection"] == "close"
        assert await client.closed() == "fin"  # half-closed: what still comes meets no reset


async def test_headers_as_large_as_allowed(router: Router) -> None:
    reply = await replied(router, post(b"{", x_big="a" * 7_000))
    assert reply.status == 400


async def test_a_head_in_pieces_is_a_head(router: Router) -> None:
    async with connected(router.base_url) as client:
        for byte in post(b"{"):
            await client.send(bytes([byte]))
        assert (await client.reply()).status == 400


@pytest.mark.parametrize("began", [b"GET /", HEAD, HEAD + b"x-slow: a"])
async def test_a_head_that_never_ends(router: Router, clock: FakeClock, began: bytes) -> None:
    async with connected(router.base_url) as client:
        await client.send(began)
        for _ in range(int(HEAD_S)):
            await client.send(b"a" if began != HEAD else b"x-slow: a\r\n")
            await clock.advance(1)
        reply = await client.reply()
        assert (reply.status, reply.error["code"]) == (408, "request_timeout")
        assert await client.closed() == "fin"


async def test_a_head_that_never_ends_on_a_connection_in_use(
    router: Router, clock: FakeClock
) -> None:
    async with connected(router.base_url) as client:
        await client.post(b"{")
        assert (await client.reply()).status == 400
        await client.send(HEAD)
        await clock.advance(HEAD_S + 1)
        assert (await client.reply()).status == 408


async def test_a_connection_that_says_nothing(router: Router, clock: FakeClock) -> None:
    async with connected(router.base_url) as client:
        await clock.advance(HEAD_S - 1)
        await client.send(b"\r\n")  # an empty line is nothing yet
        await clock.advance(2)
        assert await client.closed() in {"fin", "rst"}


async def test_a_body_that_stands_still(router: Router, clock: FakeClock) -> None:
    async with connected(router.base_url) as client:
        await client.send(post(b"{" * 100)[:-10])
        await clock.advance(BODY_IDLE_S - 1)
        await client.send(b"{")
        await clock.advance(BODY_IDLE_S - 1)
        await client.send(b"{")
        await clock.advance(BODY_IDLE_S + 1)
        reply = await client.reply()
        assert (reply.status, reply.error["code"]) == (408, "request_timeout")
        assert await client.closed() == "fin"


# --- a body that is too large ---------------------------------------------------------------------


async def flood(size: int) -> AsyncIterator[bytes]:
    piece = b"a" * 65_536
    for _ in range(size // len(piece)):
        yield piece


@pytest.mark.parametrize("chunked", [False, True])
async def test_fifty_megabytes_through_httpx(router: Router, *, chunked: bool) -> None:
    size = 50 * MEGA
    content: Any = flood(size) if chunked else b"a" * size
    async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
        answer = await client.post(f"{router.base_url}/chat/completions", content=content)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    assert str(SERVER["max_body_bytes"]) in answer.json()["error"]["message"]
    assert answer.headers["connection"] == "close"


async def test_fifty_megabytes_through_openai(router: Router) -> None:
    client = openai.AsyncOpenAI(
        base_url=router.base_url,
        api_key="none",
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
    )
    async with client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(
                model="chat", messages=[{"role": "user", "content": "a" * 50 * MEGA}], stream=True
            )
    assert caught.value.status_code == 413
    assert caught.value.code == "request_too_large"


@pytest.mark.parametrize("length", [{"content_length": str(50 * MEGA)}, {"expect": "100-continue"}])
async def test_a_body_announced_too_large_is_refused_unread(
    router: Router, length: dict[str, str]
) -> None:
    head = post(b"", **{"content_length": str(50 * MEGA), **length})
    reply = await replied(router, head)
    assert (reply.status, reply.error["code"]) == (413, "request_too_large")


async def test_a_client_that_never_stops_is_listened_to_for_a_while(
    router: Router, clock: FakeClock
) -> None:
    async with connected(router.base_url) as client:
        await client.send(post(b"", transfer_encoding="chunked") + b"10000000\r\n")
        sent = 0
        while sent <= 2 * MEGA:
            await client.send(b"a" * 65_536)
            sent += 65_536
        reply = await client.reply()
        assert reply.status == 413
        assert await client.closed() == "fin"  # its side; ours is still open
        await client.send(b"a" * MEGA)
        await clock.advance(LINGER_S + 1)
        with pytest.raises(ConnectionError):  # noqa: PT012 - which of them meets it is the kernel's
            while True:
                await client.send(b"a" * 65_536)
                await asyncio.sleep(0)


async def test_a_body_that_nobody_wants_is_read_past(router: Router) -> None:
    async with connected(router.base_url) as client:
        await client.send(post(b"a" * 5 * MEGA, path="/v1/nothing"))
        assert (await client.reply()).status == 404
        await client.send(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await client.reply()).status == 200


async def test_a_body_that_nobody_wants_is_read_past_for_a_while(
    router: Router, clock: FakeClock
) -> None:
    async with connected(router.base_url) as client:
        await client.send(post(b"a", path="/v1/nothing", content_length="1000"))
        assert (await client.reply()).status == 404
        for _ in range(int(LINGER_S)):
            await client.send(b"a")
            await clock.advance(1)
        assert await client.closed() in {"fin", "rst"}
