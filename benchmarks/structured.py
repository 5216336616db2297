"""What structured output costs: per token and per KB, beside the same text passed through.

    python -m benchmarks.structured [--quick] [--json FILE]

Two views. `parts` times the rooms alone, in this process: reading a document, letting whole values
out, judging them, going on with a document that another model began. `router` asks a router in a
process of its own for the same document as text, as any JSON and by a schema, in turns, and takes
the CPU time that the kernel booked; the simulated provider sends as fast as it can.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.common import (
    RESULTS,
    Server,
    Spread,
    ask,
    how_it_was_measured,
    read,
    real_router,
    run,
    simulated_provider,
    table,
    write_json,
)
from router.core.boundary import make_boundary
from router.core.json_gate import JsonGate
from router.core.json_schema import Schemas
from router.core.json_values import JsonReader
from router.core.structured import Structured
from router.simulate import tokenize

Feed: TypeAlias = Callable[[str], object]

ITEM = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string", "maxLength": 100},
        "text": {"type": "string"},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
        "score": {"type": "number", "minimum": 0},
        "more": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/more"}]},
    },
    "required": ["id", "name", "text"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
    "required": ["items"],
    "additionalProperties": False,
    "$defs": {
        "item": ITEM,
        "more": {"type": "object", "properties": {"seen": {"type": "boolean"}}},
    },
}
FORMATS: dict[str, dict[str, Any]] = {
    "text": {"model": "chat"},
    "text, `sentences: fast`": {"model": "fast"},
    "any JSON": {"model": "chat", "response_format": {"type": "json_object"}},
    "by a schema": {
        "model": "chat",
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    },
}
PLAIN = "text, `sentences: fast`"
"""What the others are compared with: the least that passing text through costs."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is run.

    Args:
        sizes: of the documents, in characters.
        rounds: how often each is done.
        router_sizes: of those that a router is asked for.
        asked_chars: how much of each kind and size it is asked for, in characters.
    """

    sizes: tuple[int, ...]
    rounds: int
    router_sizes: tuple[int, ...]
    asked_chars: int


FULL = Plan(
    sizes=(1_000, 10_000, 100_000, 1_000_000),
    rounds=3,
    router_sizes=(1_000, 10_000, 100_000, 1_000_000),
    asked_chars=300_000,
)
QUICK = Plan(sizes=(1_000, 10_000), rounds=1, router_sizes=(1_000,), asked_chars=2_000)


def document(chars: int) -> str:
    """A document of about that length: short values and some prose.

    Args:
        chars: its length.
    """
    items: list[dict[str, Any]] = []
    size = 0
    while size < chars:
        at = len(items)
        items.append(
            {
                "id": at,
                "name": f"The item “{at}”, Inc.",
                "text": "It was e.g. no. 5, as Dr. Who said: \\o/. Nobody minded. " * (at % 3),
                "tags": ["red", "blue"][: at % 3],
                "score": at / 7,
                "more": {"seen": True} if at % 5 == 0 else None,
            }
        )
        size += len(json.dumps(items[-1])) + 2
    return json.dumps({"items": items}, ensure_ascii=False)


def parts() -> dict[str, Callable[[str], Feed]]:
    """What is timed, by name: each gives a function that takes a document's tokens."""
    schema = Schemas().compile(SCHEMA)

    def going_on(*, raw: bool) -> Callable[[str], Feed]:
        def make(text: str) -> Feed:
            structured = Structured(schema)
            structured.feed(text[: len(text) // 2])
            structured.expect(raw=raw)
            return structured.feed

        return make

    return {
        "text: where sentences end": lambda _: make_boundary("text").feed,
        "reading": lambda _: JsonReader().feed,
        "whole values": lambda _: JsonGate().feed,
        "whole values by a schema": lambda _: Structured(schema).feed,
        "a second document, aligned": going_on(raw=False),
    }


def time_parts(plan: Plan) -> list[dict[str, Any]]:
    """Each part with each size, in turns.

    Args:
        plan: what is run.
    """
    rows = []
    for name, make in parts().items():
        for size in plan.sizes:
            text = document(size)
            tokens = tokenize(text)
            took = [_time(make(text), tokens) for _ in range(plan.rounds)]
            best = min(took)
            rows.append(
                {
                    "part": name,
                    "KB": round(len(text) / 1000, 1),
                    "µs per token": round(1e6 * best / len(tokens), 2),
                    "µs per KB": round(1e9 * best / len(text), 1),
                }
            )
    return rows


def _time(feed: Feed, tokens: Sequence[str]) -> float:
    began = time.perf_counter()
    for token in tokens:
        feed(token)
    return time.perf_counter() - began


@contextlib.contextmanager
def asked(size: int, folder: Path) -> Iterator[tuple[Server, str]]:
    """A router in front of a provider that answers with a document.

    Args:
        size: of the document.
        folder: for files.
    """
    text = document(size)
    file = folder / f"{size}.json"
    file.write_text(text)
    with simulated_provider(f"provider-{size}", "--text", str(file)) as provider:
        route = {"targets": [{"provider": "p", "model": "m"}]}
        config = {
            "server": {"port": 0},
            "providers": {"p": {"type": "openai-compatible", "base_url": provider.base_url}},
            "routes": {"chat": route, "fast": {**route, "sentences": "fast"}},
        }
        with real_router(f"router-{size}", config, folder) as router:
            yield router, text


async def cpu_of_answers(router: Server, text: str, plan: Plan) -> list[dict[str, Any]]:
    """CPU time of one answer in each format, in turns.

    Args:
        router: asked.
        text: what it answers.
        plan: what is run.
    """
    times = max(2, plan.asked_chars // len(text))
    took: dict[str, list[float]] = {name: [] for name in FORMATS}
    for turn in range(times + 1):
        for name, fields in FORMATS.items():
            before = router.child.cpu_s()
            answer = read(await ask(router, **fields))
            if not answer.whole or answer.text != text:
                raise ValueError(f"{name}: the answer is not whole")
            if turn:  # the first one warms up
                took[name].append(router.child.cpu_s() - before)
    plain = statistics.median(took[PLAIN])
    tokens = len(tokenize(text))
    return [
        {
            "KB": round(len(text) / 1000, 1),
            "asked for": name,
            "ms per answer": Spread.of([1000 * one for one in ones]),
            "µs per token": round(1e6 * statistics.median(ones) / tokens, 2),
            "µs per KB": round(1e9 * statistics.median(ones) / len(text), 1),
            "×": round(statistics.median(ones) / plain, 2),
        }
        for name, ones in took.items()
    ]


def ask_routers(plan: Plan) -> list[dict[str, Any]]:
    """The router's view.

    Args:
        plan: what is run.
    """
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in plan.router_sizes:
            with asked(size, Path(folder)) as (router, text):
                rows += run(cpu_of_answers(router, text, plan))
    return rows


def show(found: dict[str, Any]) -> None:
    """The tables.

    Args:
        found: what was measured.
    """
    for name in ("parts", "router"):
        rows = [
            [one.median if isinstance(one, Spread) else one for one in row.values()]
            for row in found[name]
        ]
        print(table(tuple(found[name][0]), rows), end="\n\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run it.

    Args:
        argv: arguments; None takes the process's own.

    Returns:
        0.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tiny run that only shows it works")
    parser.add_argument("--json", type=Path, default=RESULTS / "structured.json")
    args = parser.parse_args(argv)
    plan = QUICK if args.quick else FULL
    how = how_it_was_measured()
    found = {"parts": time_parts(plan), "router": ask_routers(plan)}
    show(found)
    write_json(args.json, {"measured": how, "plan": plan, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
