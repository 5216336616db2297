"""The program that `docs/resume.md` gives to client authors, run as it stands there."""

from __future__ import annotations

import asyncio
import contextlib
import re
import urllib.error
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.redis_servers import BINARY, RedisServer, free_port
from support.resuming import MESSAGES, replicas
from support.texts import seeded

from router.simulate import Pace, Script, SimulatedProvider

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(BINARY is None, reason="no redis-server binary on this machine"),
]

PAGE = Path(__file__).parents[1] / "docs" / "resume.md"
KEY = "a-key-of-a-client-0123456789"
BODY = {"model": "chat", "messages": MESSAGES}
(SAMPLE,) = (one for one in seeded(chars=900) if one.name == "mixed")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, free_port())
    server.start()
    yield server
    server.kill()


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Iterator[str]]:
    monkeypatch.setenv("no_proxy", "*")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    found: Callable[..., Iterator[str]] = names["stream"]
    return found


@asynccontextmanager
async def breaking(base_url: str, *, after: list[int]) -> AsyncIterator[str]:
    """A way to a router that breaks connections after so many bytes of answer, one after another.

    Args:
        base_url: of the router.
        after: bytes; later connections hold.
    """
    where = urlsplit(base_url)
    cuts = iter(after)
    pumps: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = next(cuts, 1 << 30)
        back, on = await asyncio.open_connection(where.hostname, where.port)
        pumps.add(asking := asyncio.create_task(pump(reader, on)))
        with contextlib.suppress(ConnectionError):
            while left > 0 and (data := await back.read(min(left, 4096))):
                writer.write(data)
                await writer.drain()
                left -= len(data)
        asking.cancel()
        (writer.transport.abort if left <= 0 else writer.close)()
        on.close()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4096):
                writer.write(data)

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}{where.path}/chat/completions"
    await asyncio.gather(*pumps, return_exceptions=True)


async def test_it_comes_back_until_the_answer_is_whole(
    redis: RedisServer, program: Callable[..., Iterator[str]]
) -> None:
    text = SAMPLE.text
    async with (
        SimulatedProvider(script=Script(text=text), pace=Pace(tokens_per_s=2000)) as provider,
        replicas(redis, provider, server={"api_keys": [KEY]}) as (one, two),
        breaking(one.url, after=[0, 9_000, 14_000]) as first,
        breaking(two.url, after=[3_000, 11_000]) as second,
    ):
        shown = await asyncio.to_thread(lambda: [*program([first, second], BODY, KEY)])
        assert shown[-1] == text
        assert provider._journal.count >= 4
        # What it shows is at all times the answer's beginning, but for an unfinished sentence.
        assert all(text.startswith(one) for one in shown)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            await asyncio.to_thread(lambda: [*program([first], BODY, "another")])


async def test_a_router_that_is_stopped(
    redis: RedisServer, program: Callable[..., Iterator[str]]
) -> None:
    text = SAMPLE.text
    async with (
        SimulatedProvider(script=Script(text=text), pace=Pace(tokens_per_s=500)) as provider,
        replicas(redis, provider) as (one, two),
    ):
        urls = [f"{replica.url}/chat/completions" for replica in (one, two)]
        running = asyncio.create_task(
            asyncio.to_thread(lambda: [*program(urls, BODY, KEY)]),
        )
        await provider.wait_tokens(60)
        one.router.serving.interrupt()
        assert (await running)[-1] == text
        assert provider._journal.count == 2
