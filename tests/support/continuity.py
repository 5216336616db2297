"""Two or three simulated providers behind a router, asked through `openai`, and what must come."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai

from router.engine.observe import Observer
from router.simulate import Conduct, Script, SimulatedProvider
from support.reading import Answer, read_stream
from support.routers import Router, routed, running_router

FULL = os.environ.get("SEAM_FULL") == "1"
"""Every cell at every cut, which takes many minutes; else a sample that CI can afford."""

MESSAGES: Any = [{"role": "user", "content": "Tell me something long."}]


@dataclass(kw_only=True)
class Heard:
    """What a client made of one answer.

    Args:
        delivered: all text.
        finishes: every finish reason.
        ids: of the chunks.
        models: of the chunks.
        roles: of the deltas.
        metadata: the `router` objects, each with the finish reason of its chunk.
        error: the error it raised, or None.
    """

    delivered: str = ""
    finishes: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    roles: list[str] = field(default_factory=list)
    metadata: list[tuple[str | None, dict[str, Any]]] = field(default_factory=list)
    error: openai.APIError | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The metadata, wherever it came; empty if nothing happened."""
        if self.error is not None:
            body = self.error.body
            assert isinstance(body, dict)
            facts = body["router"]
            assert isinstance(facts, dict)
            return facts
        return self.metadata[0][1] if self.metadata else {}

    @property
    def superseded(self) -> list[list[int]]:
        """Ranges of the delivered text that a continuation replaced."""
        found: list[list[int]] = self.facts.get("superseded", [])
        return found

    @property
    def canonical(self) -> str:
        """The delivered text without them."""
        return without(self.delivered, self.superseded)


def without(delivered: str, ranges: Sequence[Sequence[int]]) -> str:
    """The delivered text without the superseded ranges."""
    kept, at = [], 0
    for start, end in ranges:
        assert at <= start < end <= len(delivered)
        kept.append(delivered[at:start])
        at = end
    return "".join((*kept, delivered[at:]))


class House:
    """A router over some providers.

    Args:
        router: running.
        providers: in priority order.
        client: openai's, of this router.
        raw: a plain HTTP client.
    """

    def __init__(
        self,
        router: Router,
        providers: Sequence[SimulatedProvider],
        client: openai.AsyncOpenAI,
        raw: httpx.AsyncClient,
    ) -> None:
        self.router = router
        self.providers = providers
        self.client = client
        self._raw = raw

    def asked(self, provider: int = 0) -> int:
        """How many requests a provider has seen."""
        return self.providers[provider]._journal.count

    def forget_refusals(self) -> None:
        """Let the next request meet a refused prefix again, as the first one did."""
        self.router.serving.engine.health._instructed.clear()

    async def hear(self, **fields: Any) -> Heard:  # noqa: ANN401 - of the request
        """One streamed request through `openai`."""
        heard = Heard()
        try:
            stream = await self.client.chat.completions.create(
                model="chat", messages=MESSAGES, stream=True, **fields
            )
            pieces = []
            async for chunk in stream:
                heard.ids.add(chunk.id)
                heard.models.add(chunk.model)
                finish = None
                for choice in chunk.choices:
                    if choice.delta.role:
                        heard.roles.append(choice.delta.role)
                    if choice.delta.content:
                        pieces.append(choice.delta.content)
                    if choice.finish_reason:
                        finish = choice.finish_reason
                        heard.finishes.append(finish)
                router = (chunk.model_extra or {}).get("router")
                if router is not None:
                    heard.metadata.append((finish, router))
                heard.delivered = "".join(pieces) if finish else heard.delivered
        except openai.APIError as error:
            heard.error = error
        heard.delivered = "".join(pieces)
        return heard

    async def read(self, **fields: Any) -> Answer:  # noqa: ANN401 - of the request
        """One streamed request, its bytes taken apart."""
        response = await self._raw.post(
            f"{self.router.base_url}/chat/completions",
            json={"model": "chat", "messages": MESSAGES, "stream": True, **fields},
        )
        return read_stream(response.status_code, response.headers, response.content)

    async def whole(self) -> dict[str, Any]:
        """One blocking request."""
        response = await self._raw.post(
            f"{self.router.base_url}/chat/completions",
            json={"model": "chat", "messages": MESSAGES},
        )
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found


@asynccontextmanager
async def house(
    text: str,
    *conducts: Conduct | Script,
    targets: Sequence[dict[str, Any]] = (),
    route: Mapping[str, Any] | None = None,
    observers: Sequence[Observer] = (),
    primary: Script | None = None,
) -> AsyncIterator[House]:
    """A primary that says a text, and fallbacks that know it too (or, with a script, another).

    Args:
        text: the answer.
        conducts: what each fallback does with a prefix, or what it says instead.
        targets: further keys of each target, the primary's first.
        route: further keys of the route.
        observers: of the engine.
        primary: what the primary says, if more than the text.
    """
    async with AsyncExitStack() as stack:
        providers = [SimulatedProvider(script=primary or Script(text=text), keep_requests=200)]
        for one in conducts:
            if isinstance(one, Script):
                providers.append(SimulatedProvider(script=one, keep_requests=200))
            else:
                script = Script(text=text)
                providers.append(SimulatedProvider(script=script, conduct=one, keep_requests=200))
        for provider in providers:
            await stack.enter_async_context(provider)
        config = routed(
            *providers,
            targets=targets,
            route=dict(route or {}),
            health={"eject_after": 1000, "eject_rate": 1},  # it is made to fail at every request
        )
        router = await stack.enter_async_context(running_router(config, observers=observers))
        raw = await stack.enter_async_context(httpx.AsyncClient(timeout=30, trust_env=False))
        client = await stack.enter_async_context(
            openai.AsyncOpenAI(
                base_url=router.base_url,
                api_key="none",
                max_retries=0,
                http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
            )
        )
        yield House(router, providers, client, raw)
