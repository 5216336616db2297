"""Two routers, as processes, over three providers and a Redis: who is live, and what they tell."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from router.simulate import Script, SimulatedProvider
from support.processes import WAIT_S, Served, served
from support.routers import routed

ROUTES = {"steady": (2,), "once": (0, 2), "twice": (0, 1, 2)}
"""Which providers a route has: with the first provider dead, and then the second, its streams have
failed over so often."""

API_KEY, ADMIN_KEY, PROVIDER_KEY = "sk-client-9f3b7a", "sk-admin-77aa01", "sk-upstream-5c2e8d"
MINE = {"authorization": f"Bearer {API_KEY}"}

FLOWING = 20
"""Tokens after which an answer is under way."""

HELD = 120
"""Tokens of each request after which it stands still until it is let go, so that no stream ends
before."""


class Flow:
    """A provider's gate: so many tokens a second, up to `HELD`; once open, nothing waits any more.

    Args:
        tokens_per_s: so many.
    """

    def __init__(self, tokens_per_s: float) -> None:
        self._gap_s = 1 / tokens_per_s
        self._open = asyncio.Event()

    async def __call__(self, _: int, token: int) -> None:
        """Called by the provider before each token."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if token >= HELD else self._gap_s):
                await self._open.wait()

    def open(self) -> None:
        """Let all go on."""
        self._open.set()


class House:
    """All of it, running.

    Args:
        replicas: the routers.
        urls: of their APIs.
        providers: in the order in which they die.
        gate: theirs.
    """

    def __init__(
        self,
        replicas: Sequence[Served],
        urls: Sequence[str],
        providers: Sequence[SimulatedProvider],
        gate: Flow,
    ) -> None:
        self.replicas, self.urls = replicas, urls
        self.clients: list[asyncio.Task[Any]] = []
        """Whoever listens; let go of at the end, if a test fails before."""
        self._providers, self._gate = providers, gate
        self._live: Counter[str] = Counter()
        self._asked = [0] * len(providers)
        self._dead: set[int] = set()

    # -- streams -------------------------------------------------------------------------------

    def came(self, route: str) -> None:
        """A stream begins."""
        self._live[route] += 1
        self._asked[self._next(route)] += 1

    def left(self, route: str) -> None:
        """A stream's client is gone."""
        self._live[route] -= 1

    async def flowing(self) -> None:
        """Wait until every answer that was asked for is under way."""
        for provider, count in zip(self._providers, self._asked, strict=True):
            for request in range(count):
                await provider.wait_tokens(FLOWING, request=request)

    async def dies(self, provider: int) -> None:
        """A provider dies; wait until all of its streams go on elsewhere."""
        moved = [route for route in self._live.elements() if self._next(route) == provider]
        assert moved
        self._dead.add(provider)
        self._asked[provider] = 0
        for route in moved:
            self._asked[self._next(route)] += 1
        await self._providers[provider].close()
        await self.flowing()

    def go_on(self) -> None:
        """Nothing stands still any more."""
        self._gate.open()

    def _next(self, route: str) -> int:
        return next(one for one in ROUTES[route] if one not in self._dead)

    # -- what the routers tell -----------------------------------------------------------------

    async def get(self, path: str) -> list[str]:
        """The same of each router, as their owner."""
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        async with httpx.AsyncClient(trust_env=False, headers=headers) as client:
            answers = [await client.get(url.removesuffix("/v1") + path) for url in self.urls]
        assert {one.status_code for one in answers} == {200}
        return [one.text for one in answers]

    async def records(self) -> list[dict[str, Any]]:
        """What `/ready` tells of the record; nothing that befalls it makes a router unready."""
        found = [json.loads(text) for text in await self.get("/ready")]
        assert {one["status"] for one in found} == {"ready"}
        return [one["record"] for one in found]

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until what `/ready` tells of the record meets a condition, at each router."""
        async with asyncio.timeout(WAIT_S):
            while not all(map(condition, await self.records())):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    async def metrics(self) -> list[dict[str, float]]:
        """Every series of `/metrics`, by its name and labels."""
        return [
            {
                name: float(number)
                for name, _, number in (line.rpartition(" ") for line in text.splitlines())
                if not name.startswith("#")
            }
            for text in await self.get("/metrics")
        ]


@asynccontextmanager
async def house(
    folder: Path, *, text: str, tokens_per_s: float, record: dict[str, Any]
) -> AsyncIterator[House]:
    """Run it all.

    Args:
        folder: for the configuration.
        text: what each provider says.
        tokens_per_s: how fast.
        record: that section of the configuration.
    """
    gate = Flow(tokens_per_s)
    providers = [
        SimulatedProvider(
            script=Script(text=text), gate=gate, api_key=PROVIDER_KEY, keep_requests=1_000
        )
        for _ in range(3)
    ]
    async with AsyncExitStack() as stack:
        for one in providers:
            await stack.enter_async_context(one)
        file = folder / "router.yaml"
        file.write_text(yaml.safe_dump(_configured(providers, record)))
        replicas = [await stack.enter_async_context(served(file)) for _ in range(2)]
        urls = [await one.base_url() for one in replicas]
        it = House(replicas, urls, providers, gate)
        try:
            yield it
        finally:
            for client in it.clients:
                client.cancel()
            await asyncio.gather(*it.clients, return_exceptions=True)


def _configured(providers: Iterable[SimulatedProvider], record: dict[str, Any]) -> dict[str, Any]:
    config = routed(
        *providers,
        server={"api_keys": [API_KEY], "admin_keys": [ADMIN_KEY]},
        record=record,
        health={"eject_after": 1000},
        # They are made to stand still, and a stream that is resumed meets two that are dead.
        route={"timeouts": {"first_output_s": 30, "idle_s": 60}, "max_attempts": 8},
    )
    for one in config["providers"].values():
        one["api_key"] = PROVIDER_KEY
    chat = config["routes"].pop("chat")
    for name, places in ROUTES.items():
        config["routes"][name] = {**chat, "targets": [chat["targets"][one] for one in places]}
    return config
