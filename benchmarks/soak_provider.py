"""A vendor for the soak: a process of simulated providers that fail at random.

    python -m benchmarks.soak_provider --seed 1 --prefix continue

Each topic (`TOPICS`) is a provider of its own with one answer, so that a text in a wrong stream
would be seen. What goes wrong with a request is drawn anew for each one. The first line of output
says where they listen, as JSON: topic to base URL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from router.core.events import ToolCall
from router.simulate import (
    Conduct,
    Directives,
    Pace,
    Script,
    SimulatedProvider,
    parse_directives,
    seeded_text,
    tokenize,
)

HEALTHY = 0.7
"""Share of requests that nothing happens to."""

DRAWN_EVERY_S = 1.0
DRAWN_AT_ONCE = 1_000
"""Requests of one topic in that time, at most; more would be healthy."""

KEPT_REQUESTS = 50
"""A provider's memory of its requests; the soak asks for none of it."""


@dataclass(frozen=True, kw_only=True)
class Topic:
    """One answer, and the route under its name.

    Args:
        name: of the route.
        text: the whole text.
        fields: further fields of a request for it.
        calls: tool calls after the text.
        tokens_per_s: pace, or None for as fast as it goes.
    """

    name: str
    text: str
    fields: Mapping[str, object] = field(default_factory=dict)
    calls: tuple[ToolCall, ...] = ()
    tokens_per_s: float | None = None

    @property
    def structured(self) -> bool:
        """A JSON document is asked for."""
        return "response_format" in self.fields


def _document(seed: int, rows: int) -> str:
    rng = random.Random(seed)
    items = [
        {
            "id": rng.randint(1, 10**9),
            "price": rng.randint(1, 99_999) / 100,
            "open": rng.random() < 0.5,
            "note": seeded_text(f"{seed} {row}", 60, kinds=("dialogue", "german")),
            "tags": [rng.choice(["a", "bb", "ccc"]) for _ in range(rng.randint(0, 3))],
        }
        for row in range(rows)
    ]
    return json.dumps({"version": seed, "items": items, "total": None})


_SCHEMA = {
    "type": "object",
    "properties": {"version": {"type": "integer"}, "items": {"type": "array"}, "total": {}},
    "required": ["version", "items", "total"],
}
_JSON = {"response_format": {"type": "json_object"}}
_STRICT = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "o", "schema": _SCHEMA}}
}
_ARGUMENTS = json.dumps({"amount": 36.5, "to": 'Ann \u00d8. "quoted"', "when": [2026, 11, 30]})
_TOOL = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
_TOOLS = {"tools": [{"type": "function", "function": {"name": "pay", "parameters": _TOOL}}]}

TOPICS: Sequence[Topic] = (
    Topic(name="short", text=seeded_text("short", 400)),
    Topic(name="long", text=seeded_text("long", 4_000)),
    Topic(name="slow", text=seeded_text("slow", 900), tokens_per_s=300),
    Topic(name="slower", text=seeded_text("slower", 700, kinds=("prose",)), tokens_per_s=120),
    Topic(name="japanese", text=seeded_text("ja", 800, kinds=("japanese",)), tokens_per_s=600),
    Topic(name="document", text=_document(1, 12), fields=_JSON),
    Topic(name="form", text=_document(2, 6), fields=_STRICT, tokens_per_s=400),
    Topic(
        name="call",
        text=seeded_text("call", 200, kinds=("prose",)),
        fields=_TOOLS,
        calls=(ToolCall(index=0, id="call_1", name="pay", arguments=_ARGUMENTS),),
    ),
)

FAULTS: Sequence[tuple[float, str]] = (
    (6, "cut@{at}"),
    (6, "rst@{at}"),
    (4, "error@{at}"),
    (2, "error_then_done@{at}"),
    (3, "malformed@{at}"),
    (3, "no_finish@{at}"),
    (2, "done_early@{at}"),
    (2, "finish_error@{at}"),
    (4, "stall@{at},for_s=0.1"),  # shorter than the idle limit: no fault
    (2, "stall@{at}"),
    (4, "status=503"),
    (2, "status=429,retry_after=0"),
    (2, "status=500,retry_after=30"),
    (1, "silent"),
    (1, "role_then_silence"),
    (2, "reset"),
    (2, "close"),
    (1, "html"),
    (1, "done_only"),
    (1, "no_done"),
    (1, "cut_after_finish"),
    (1, "cut_byte@{byte}"),
    (0.3, "refuse,for_s=0.2"),
)
"""Weight, and what goes wrong; `router/simulate/faults.py` has the words."""


def draw(rng: random.Random, tokens: int) -> Directives:
    """What happens to one request.

    Args:
        rng: where chance comes from.
        tokens: of the answer.
    """
    if rng.random() < HEALTHY:
        return Directives()
    (spec,) = rng.choices([spec for _, spec in FAULTS], [weight for weight, _ in FAULTS])
    return parse_directives(
        spec.format(at=rng.randint(0, tokens), byte=rng.randint(0, 200 * tokens))
    )


async def _misbehave(provider: SimulatedProvider, tokens: int, rng: random.Random) -> None:
    while True:
        provider.set_faults([draw(rng, tokens) for _ in range(DRAWN_AT_ONCE)])
        await asyncio.sleep(DRAWN_EVERY_S)


async def _serve(seed: int, prefix: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    urls: dict[str, str] = {}
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        tasks = []
        for topic in TOPICS:
            provider = SimulatedProvider(
                script=Script(text=topic.text, json_text=topic.text, tool_calls=topic.calls),
                conduct=Conduct(prefix=prefix),
                pace=Pace(tokens_per_s=topic.tokens_per_s),
                keep_requests=KEPT_REQUESTS,
            )
            await stack.enter_async_context(provider)
            urls[topic.name] = provider.base_url
            rng = random.Random(f"{seed} {topic.name}")
            tokens = len(tokenize(topic.text)) + 10 * len(topic.calls)
            tasks.append(group.create_task(_misbehave(provider, tokens, rng)))
        print(json.dumps(urls), flush=True)
        await stop.wait()
        for task in tasks:
            task.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--prefix", default="continue", help="what it does with a prefix")
    args = parser.parse_args()
    asyncio.run(_serve(args.seed, args.prefix))


if __name__ == "__main__":
    main()
