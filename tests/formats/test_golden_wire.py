"""The bytes that a client gets, against golden ones that were read by a person.

After a wanted change: `PYTHONPATH=.:tests python tests/formats/test_golden_wire.py` writes them
anew; read the diff. Ids and times are other ones in every run; here they all look alike.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from support.pairs import PAIRS, house

from router.core.events import ToolCall
from router.simulate import Script

GOLDEN: Final = Path(__file__).parent / "golden"

ANSWER: Final = Script(
    reasoning="Let me see.",
    text="One is paid. “Two”, says Zoë, is\nnot 😀.",
    tool_calls=(
        ToolCall(index=0, id="call_a", name="pay", arguments='{"to": "Zoë", "amount": 36}'),
        ToolCall(index=1, id="call_b", name="look", arguments="{}"),
    ),
)
TALK: Final = Script(text="One is whole. Two is cut in the middle of it.")
PARAMETERS: Final = {"type": "object", "properties": {"to": {"type": "string"}}}
ASKED: Final[Mapping[str, dict[str, Any]]] = {
    "chat": {
        "reasoning_effort": "high",
        "stream_options": {"include_usage": True},
        "tools": [
            {"type": "function", "function": {"name": name, "parameters": PARAMETERS}}
            for name in ("pay", "look")
        ],
    },
    "messages": {
        "thinking": {"type": "enabled", "budget_tokens": 2_048},
        "tools": [{"name": name, "input_schema": PARAMETERS} for name in ("pay", "look")],
    },
}
STREAM: Final[dict[str, Any]] = {"stream": True}


async def _answer(client: str, family: str) -> httpx.Response:
    """Reasoning, text and two calls."""
    async with house(family, script=ANSWER) as place:
        return await place.client(client).post(**ASKED[client], **STREAM)


async def _whole(client: str, family: str) -> httpx.Response:
    """The same without a stream."""
    fields = {name: value for name, value in ASKED[client].items() if name != "stream_options"}
    async with house(family, script=ANSWER) as place:
        return await place.client(client).post(**fields)


async def _failover(client: str, family: str) -> httpx.Response:
    """Cut in the second sentence; the next provider of the same kind goes on."""
    async with house(family, family, script=TALK) as place:
        place.faults("cut@8")
        return await place.client(client).post(**STREAM)


async def _broken(client: str, family: str) -> httpx.Response:
    """Cut, and nobody goes on."""
    async with house(family, family, script=TALK, route={"max_attempts": 2}) as place:
        place.faults("cut@8", "status=500")
        return await place.client(client).post(**STREAM)


async def _refused(client: str, family: str) -> httpx.Response:
    """A verdict on the request, before any output."""
    async with house(family, script=TALK) as place:
        place.faults("context_length")
        return await place.client(client).post(**STREAM)


CASES: Final = {
    "answer": _answer,
    "whole": _whole,
    "failover": _failover,
    "broken": _broken,
    "refused": _refused,
}

_ALIKE: Final = (
    (re.compile(r'(_ms":)[\d.]+'), r"\g<1>0"),
    (re.compile(r'("created":)\d+'), r"\g<1>0"),
)
HEADERS: Final = ("content-type", "x-router-target", "x-should-retry")


def golden(response: httpx.Response) -> str:
    """A response with what differs from run to run made alike."""
    stream_id = response.headers["x-router-stream-id"]
    text = response.content.decode().replace(stream_id, "STREAM_ID")
    for pattern, alike in _ALIKE:
        text = pattern.sub(alike, text)
    head = [f"{name}: {response.headers[name]}" for name in HEADERS if name in response.headers]
    return "\n".join([f"HTTP {response.status_code}", *head, "", text])


def path_of(client: str, family: str, case: str) -> Path:
    """Where the golden response is."""
    return GOLDEN / f"{client}-{family}-{case}.txt"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_response_is_the_golden_one(client: str, family: str, case: str) -> None:
    response = await CASES[case](client, family)
    assert golden(response) == path_of(client, family, case).read_text("utf-8")


def test_every_golden_file_belongs_to_a_case() -> None:
    known = {path_of(*pair, case) for pair in PAIRS for case in CASES}
    assert set(GOLDEN.glob("*")) == known


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for pair in PAIRS:
        for name, make in CASES.items():
            path_of(*pair, name).write_text(golden(asyncio.run(make(*pair))), "utf-8")
