"""The demo's cast in one process, each on a real socket: two providers and a whole router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from router.api.app import App
from router.api.server import Lifespan, Server, listen
from router.build import build
from router.config import parse_config
from router.demo.story import Story
from router.engine.observe import Observer
from router.simulate import Directives, FaultSpec, Pace, Script, SimulatedProvider

HOST: Final = "127.0.0.1"
MODEL: Final = "chat"
PRIMARY: Final = "primary/model-a"
FALLBACK: Final = "fallback/model-b"

_CONFIG: Final = """\
server: {{host: {host}, port: 0, drain_s: 1}}
health: {{eject_after: 1000}}  # each act begins with the primary again
providers:
  primary: {{type: vllm, base_url: "{primary}"}}
  fallback: {{type: vllm, base_url: "{fallback}"}}
routes:
  {model}:
    targets:
      - {{provider: primary, model: model-a}}
      - {{provider: fallback, model: model-b}}
    timeouts: {{first_output_s: {patience_s:g}, idle_s: {patience_s:g}, total_s: 600}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tempo:
    """How fast the providers are, and how patient the router is.

    Args:
        tokens_per_s: None is as fast as it goes.
        fallback_first_token_s: the fallback's own time to its first token.
        patience_s: the router's limits on first output and on silence.
    """

    tokens_per_s: float | None
    fallback_first_token_s: float
    patience_s: float


WATCHABLE: Final = Tempo(tokens_per_s=40.0, fallback_first_token_s=0.4, patience_s=2.0)
FAST: Final = Tempo(tokens_per_s=None, fallback_first_token_s=0.0, patience_s=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What runs.

    Args:
        base_url: root of the router's API, `/v1` included.
        primary: the provider that is asked first.
        fallback: the one that is asked next.
    """

    base_url: str
    primary: SimulatedProvider
    fallback: SimulatedProvider

    def set(self, story: Story, fault: FaultSpec) -> None:
        """Give the next request's answer out, and the primary its misfortune.

        Args:
            story: what both will say.
            fault: what happens to the primary.
        """
        self.primary.manner.script = Script(text=story.text)
        self.fallback.manner.script = Script(text=story.other_text)
        self.primary.set_faults(Directives(faults=(fault,)))


@asynccontextmanager
async def running_stage(tempo: Tempo, observer: Observer) -> AsyncIterator[Stage]:
    """Run everything until the block is left; then nothing of it is left open.

    Args:
        tempo: how fast.
        observer: is told what the router does.

    Raises:
        OSError: no socket can be had.
    """
    pace = Pace(tokens_per_s=tempo.tokens_per_s)
    late = Pace(tokens_per_s=tempo.tokens_per_s, first_token_delay_s=tempo.fallback_first_token_s)
    async with AsyncExitStack() as stack:
        primary = await stack.enter_async_context(SimulatedProvider(pace=pace))
        fallback = await stack.enter_async_context(SimulatedProvider(pace=late))
        config = _CONFIG.format(
            host=HOST,
            model=MODEL,
            primary=primary.base_url,
            fallback=fallback.base_url,
            patience_s=tempo.patience_s,
        )
        root = await stack.enter_async_context(_running_router(config, observer))
        yield Stage(base_url=f"{root}/v1", primary=primary, fallback=fallback)


@asynccontextmanager
async def _running_router(config: str, observer: Observer) -> AsyncIterator[str]:
    parsed = parse_config(config, "demo.yaml", {})
    serving = build(parsed, observers=(observer,))
    sock = listen(HOST, 0)
    port = sock.getsockname()[1]
    server = Server(
        Lifespan(App(serving), serving.engine.store.start, serving.engine.store.aclose),
        host=HOST,
        port=port,
        max_header_bytes=parsed.server.max_header_bytes,
        drain_s=parsed.server.drain_s,
    )
    # `Server.serve` would take the signals of this process, which belong to the person watching.
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    try:
        await server.startup(sockets=[sock])
        loop = asyncio.create_task(server.main_loop())
        try:
            yield f"http://{HOST}:{port}"
        finally:
            server.should_exit = True
            await loop
            await server.shutdown(sockets=[sock])
    finally:
        sock.close()
        await serving.aclose()
