"""A whole router on a real socket, inside the test's own event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from router.api.app import App
from router.api.server import Lifespan, Server, listen
from router.api.serving import Serving
from router.build import build
from router.config import parse_config
from router.engine.clock import Clock
from router.engine.observe import Observer
from router.simulate import SimulatedProvider


@dataclass(frozen=True)
class Router:
    """A running router.

    Args:
        base_url: root of its API, `/v1` included.
        serving: its insides.
    """

    base_url: str
    serving: Serving


@asynccontextmanager
async def running_router(
    config: dict[str, Any],
    *,
    clock: Clock | None = None,
    observers: Sequence[Observer] = (),
    random_number: Callable[[], float] = lambda: 0.0,
) -> AsyncIterator[Router]:
    """Run a router until the block is left; then nothing of it is left open."""
    parsed = parse_config(yaml.safe_dump(config), "test.yaml", {})
    serving = build(parsed, clock=clock, observers=observers, random_number=random_number)
    sock = listen("127.0.0.1", 0)
    server = Server(
        Lifespan(App(serving), serving.start, serving.engine.store.aclose),
        host="127.0.0.1",
        port=0,
        max_header_bytes=parsed.server.max_header_bytes,
        drain_s=1,
        clock=serving.engine.clock,
        late=serving.interrupt,
    )
    config_ = server.config
    config_.load()
    server.lifespan = config_.lifespan_class(config_)
    await server.startup(sockets=[sock])
    await server.on_tick(0)  # the rest of its loop would only wait for a signal
    try:
        yield Router(f"http://127.0.0.1:{sock.getsockname()[1]}/v1", serving)
    finally:
        await server.shutdown(sockets=[sock])
        await serving.aclose()


def routed(
    *providers: SimulatedProvider | str,
    route: dict[str, Any] | None = None,
    targets: Sequence[dict[str, Any]] = (),
    types: Sequence[str] = (),
    **sections: Any,  # noqa: ANN401 - of a configuration
) -> dict[str, Any]:
    """A configuration with one route `chat` over some providers, in their order.

    Args:
        providers: simulated ones, or base URLs.
        route: further keys of the route.
        targets: further keys of each target, by position.
        types: provider types, by position; `openai-compatible` where none is given.
        sections: further top-level sections.
    """
    urls = [one if isinstance(one, str) else f"{one.base_url}" for one in providers]
    named = {
        f"p{at}": {
            "type": types[at - 1] if at <= len(types) else "openai-compatible",
            "base_url": url,
        }
        for at, url in enumerate(urls, 1)
    }
    listed = [
        {"provider": name, "model": f"model-{name}", **(targets[at] if at < len(targets) else {})}
        for at, name in enumerate(named)
    ]
    health = sections.get("health")
    if health and health.get("eject_after", 0) >= 1000:
        # Whoever wants no ejection wants none by rate either, or the cuts would soon be nobody's.
        sections["health"] = {"eject_rate": 1, **health}
    return {
        "providers": named,
        "routes": {"chat": {"targets": listed, **(route or {})}},
        **sections,
    }
