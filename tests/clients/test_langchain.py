"""LangChain, over its clients of both formats, through 500 conversations with random faults. It
repairs arguments that stop in mid-value, so whatever looks like an end to it must be one."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest
from support.till import PAY_TOOL, Run, Shop, shop

RUNS = 500

langchain_openai = pytest.importorskip(
    "langchain_openai", reason="LangChain is not installed: make test-clients"
)
langchain_anthropic = pytest.importorskip("langchain_anthropic")
messages = pytest.importorskip("langchain_core.messages")


async def converse(model: Any, place: Shop, run: Run) -> bool:  # noqa: ANN401 - a chat model
    """One conversation; calls run as LangChain's own agents run them, off the folded message.

    Returns:
        Whether it came to its end.
    """
    history: list[Any] = [messages.HumanMessage("Pay.")]
    asked = model.bind(extra_headers=run.headers)
    try:
        while True:
            folded = None
            async for piece in asked.astream(history):
                folded = piece if folded is None else folded + piece
            assert folded is not None
            if not folded.tool_calls:
                return not folded.invalid_tool_calls
            history.append(folded)
            for call in folded.tool_calls:
                result = place.till.pay(call["args"])
                history.append(messages.ToolMessage(result, tool_call_id=call["id"]))
    except (openai.APIError, anthropic.APIError):
        return False


async def through(place: Shop, model: Any) -> None:  # noqa: ANN401 - a chat model
    """All conversations."""
    for number in range(RUNS):
        run = place.run(number)
        place.ended(whole=await converse(model, place, run))
    assert place.tally["whole"] > RUNS / 2, place.tally
    assert place.tally["error"] > RUNS / 20, place.tally


async def test_no_call_runs_twice_or_unfinished() -> None:
    async with (
        shop(seed=1) as place,
        openai.DefaultAsyncHttpxClient(trust_env=False) as http_client,
    ):
        model = langchain_openai.ChatOpenAI(
            model="chat",
            base_url=place.router.base_url,
            api_key="none",
            streaming=True,
            http_async_client=http_client,
        )
        await through(place, model.bind_tools([PAY_TOOL]))


@pytest.mark.parametrize("families", [("anthropic", "gemini"), ("openai", "anthropic")])
async def test_nor_does_one_over_messages(families: tuple[str, str]) -> None:
    async with shop(1, families) as place:
        model = langchain_anthropic.ChatAnthropic(
            model="chat",
            anthropic_api_url=place.router.base_url.removesuffix("/v1"),
            anthropic_api_key="none",
            max_retries=0,
            max_tokens=2_000,
        )
        await through(place, model.bind_tools([PAY_TOOL]))
