"""pydantic-ai through 500 conversations with random faults. It runs what it has of a call when a
stream just ends, so a stream must never just end."""

from __future__ import annotations

import openai
import pytest
from support.till import Run, Shop, shop

RUNS = 500

pydantic_ai = pytest.importorskip(
    "pydantic_ai", reason="pydantic-ai is not installed: make test-clients"
)
models = pytest.importorskip("pydantic_ai.models.openai")
providers = pytest.importorskip("pydantic_ai.providers.openai")
exceptions = pytest.importorskip("pydantic_ai.exceptions")


async def converse(client: openai.AsyncOpenAI, place: Shop, run: Run) -> bool:
    """One conversation of an agent, which runs its tools by itself.

    Returns:
        Whether it came to its end.
    """
    provider = providers.OpenAIProvider(openai_client=client)
    agent = pydantic_ai.Agent(models.OpenAIChatModel("chat", provider=provider), retries=0)

    def pay(payment: int, amount: float, to: str) -> str:
        """Pay."""
        whole = int(amount) if amount == int(amount) else amount
        return place.till.pay({"payment": payment, "amount": whole, "to": to})

    agent.tool_plain(pay)
    settings = {"extra_headers": dict(run.headers)}
    try:
        async with agent.run_stream("Pay.", model_settings=settings) as result:
            async for _ in result.stream_text():
                pass
    except exceptions.AgentRunError:
        return False
    return True


async def test_no_call_runs_twice_or_unfinished() -> None:
    async with (
        shop(seed=2) as place,
        openai.AsyncOpenAI(
            base_url=place.router.base_url,
            api_key="none",
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        ) as client,
    ):
        for number in range(RUNS):
            run = place.run(number)
            place.ended(whole=await converse(client, place, run))
    assert place.tally["whole"] > RUNS / 2, place.tally
    assert place.tally["error"] > RUNS / 20, place.tally
