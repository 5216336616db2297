"""The AI SDK (JavaScript) through 500 conversations with random faults. It runs a call as soon as
its arguments parse, while the stream still goes on."""

from __future__ import annotations

import pytest
from support.node import needs, script
from support.till import counter, shop

RUNS = 500

needs("ai", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic")


@pytest.mark.parametrize(
    ("client", "families"),
    [
        ("chat", ("openai", "openai")),
        ("messages", ("anthropic", "openai")),
        ("messages", ("gemini", "anthropic")),
    ],
)
async def test_no_call_runs_twice_or_unfinished(client: str, families: tuple[str, str]) -> None:
    async with (
        shop(3, families) as place,
        counter(place.till) as till,
        script("conversation.mjs") as ask,
    ):
        base_url = place.router.base_url
        for number in range(RUNS):
            run = place.run(number)
            asked = {
                "client": client,
                "baseURL": base_url,
                "till": till,
                "headers": dict(run.headers),
                # Its own retries come after seconds; a part of the runs is enough for them.
                "maxRetries": 2 if number % 10 == 0 else 0,
            }
            told = await ask(asked)
            place.ended(whole=told["whole"])
    assert place.tally["whole"] > RUNS / 2, place.tally
    assert place.tally["error"] > RUNS / 20, place.tally
