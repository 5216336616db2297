"""A router over providers of any format, with a client of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import anthropic
import httpx
import openai

from router.engine.clock import Clock
from router.engine.observe import Observer
from router.simulate import Conduct, RequestRecord, Script, SimulatedProvider
from support.heard import ChatClient, Client, Heard, MessagesClient
from support.received import received
from support.routers import Router, routed, running_router

FAMILIES: Final[Mapping[str, str]] = {
    "openai": "openai-compatible",
    "anthropic": "anthropic",
    "gemini": "gemini",
}
"""Format of a provider to its `type` in the configuration."""
CLIENTS: Final = ("chat", "messages")
"""Formats of clients: chat completions and Messages."""
OWN: Final[Mapping[str, str]] = {"chat": "openai", "messages": "anthropic"}
"""The family that speaks a client's own format."""
PAIRS: Final = [(client, family) for client in CLIENTS for family in FAMILIES]
HEALTHY: Final = {"eject_after": 1000, "eject_rate": 1}
"""Nobody is ejected: providers are made to fail at every request."""


class House:
    """A router over some providers, with a client of each format.

    Args:
        router: running.
        providers: in priority order.
        chat: a client of chat completions.
        messages: a client of Messages.
    """

    def __init__(
        self,
        router: Router,
        providers: Sequence[SimulatedProvider],
        chat: ChatClient,
        messages: MessagesClient,
    ) -> None:
        self.router = router
        self.providers = providers
        self.chat = chat
        self.messages = messages

    def client(self, name: str) -> Client:
        """The client of a format, by one of `CLIENTS`."""
        return self.chat if name == "chat" else self.messages

    def asked(self, provider: int = 0) -> int:
        """How many requests a provider has seen."""
        return self.providers[provider]._journal.count

    def last(self, provider: int = 0) -> RequestRecord:
        """The last of them."""
        return self.providers[provider].requests[-1]

    def faults(self, *faults: str | None) -> None:
        """What the providers do from now on, in order."""
        for provider, fault in zip(self.providers, faults, strict=False):
            provider.set_faults(fault)

    def forget_refusals(self) -> None:
        """Let the next request meet a refused prefix again, as the first one did."""
        self.router.serving.engine.health._instructed.clear()


@asynccontextmanager
async def house(
    *families: str,
    script: Script | None = None,
    scripts: Sequence[Script] = (),
    conducts: Sequence[Conduct] = (),
    targets: Sequence[dict[str, Any]] = (),
    route: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    observers: Sequence[Observer] = (),
    **sections: Any,  # noqa: ANN401 - of a configuration
) -> AsyncIterator[House]:
    """Providers behind a router, which all know the same answer unless told otherwise.

    Args:
        families: format of each provider, by a name in `FAMILIES`, in priority order.
        script: what there is to say.
        scripts: the same, for each provider.
        conducts: what each does with a prefix.
        targets: further keys of each target.
        route: further keys of the route.
        clock: of the router.
        observers: of the engine.
        sections: further top-level sections of the configuration.
    """
    async with AsyncExitStack() as stack:
        providers = [
            SimulatedProvider(
                script=scripts[at] if scripts else script or Script(),
                conduct=conducts[at] if conducts else None,
                keep_requests=200,
            )
            for at in range(len(families))
        ]
        for provider in providers:
            await stack.enter_async_context(provider)
        config = routed(
            *map(base_url, providers, families),
            types=[FAMILIES[family] for family in families],
            targets=targets,
            route=dict(route or {}),
            **{"health": HEALTHY, **sections},
        )
        router = await stack.enter_async_context(
            running_router(config, clock=clock, observers=observers)
        )
        yield House(router, providers, *await _clients(stack, router))


def base_url(provider: SimulatedProvider, family: str) -> str:
    """What the configuration of a provider of that format says."""
    return provider.base_url if family == "openai" else provider.origin


async def _clients(stack: AsyncExitStack, router: Router) -> tuple[ChatClient, MessagesClient]:
    # There is no TLS here, and to load its certificates for each client takes longer than a test.
    plain: dict[str, Any] = {"trust_env": False, "verify": False}
    http = await stack.enter_async_context(httpx.AsyncClient(timeout=30, **plain))
    chat = await stack.enter_async_context(
        openai.AsyncOpenAI(
            base_url=router.base_url,
            api_key="none",
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(**plain),
        )
    )
    messages = await stack.enter_async_context(
        anthropic.AsyncAnthropic(
            base_url=router.base_url.removesuffix("/v1"),
            api_key="none",
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(**plain),
        )
    )
    return (
        ChatClient(chat, http, router.base_url),
        MessagesClient(messages, http, router.base_url),
    )


async def both(place: House, client: str, request: Mapping[str, Any]) -> Heard:
    """Ask for a stream and for a whole answer: they are one. What the stream said."""
    asker = place.client(client)
    heard, whole = await asker.stream(**request), await asker.whole(**request)
    assert heard.error is None, heard.error
    assert whole.error is None, whole.error
    assert heard.content == whole.content
    assert (heard.usage, heard.cached) == (whole.usage, whole.cached)
    assert (heard.matched, heard.signatures) == (whole.matched, whole.signatures)
    assert heard.models == whole.models == {"model-p1"}
    assert len(heard.ids) == len(whole.ids) == 1
    assert heard.metadata == whole.metadata == []
    streamed, blocking = map(received, place.providers[0].requests[-2:])
    assert streamed == blocking
    return heard
