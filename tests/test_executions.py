"""500 conversations with tools through `openai`, and random faults in all of them: no call runs
twice, and none runs with arguments that the model did not finish."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest
from support.till import PAY_TOOL, Run, Shop, shop

RUNS = 170
"""By each of the three ways to read: more than 500 together."""


def calls_of(message: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - of any of its shapes
    return [(call.id, call.function.arguments) for call in message.tool_calls or ()]


async def by_helper(client: openai.AsyncOpenAI, place: Shop, fields: dict[str, Any]) -> Any:  # noqa: ANN401
    """The stream helper: calls run when the answer is whole."""
    async with client.chat.completions.stream(**fields) as stream:
        message = (await stream.get_final_completion()).choices[0].message
    results = {id_: place.till.pay(arguments) for id_, arguments in calls_of(message)}
    return message, results


async def by_event(client: openai.AsyncOpenAI, place: Shop, fields: dict[str, Any]) -> Any:  # noqa: ANN401
    """The stream helper: each call runs as soon as the helper says that it is done."""
    async with client.chat.completions.stream(**fields) as stream:
        paid = [
            place.till.pay(event.arguments)
            async for event in stream
            if event.type == "tool_calls.function.arguments.done"
        ]
        message = (await stream.get_final_completion()).choices[0].message
    return message, dict(zip([id_ for id_, _ in calls_of(message)], paid, strict=True))


async def by_hand(client: openai.AsyncOpenAI, place: Shop, fields: dict[str, Any]) -> Any:  # noqa: ANN401
    """Deltas folded by the user's own code, run at the end of the stream, whatever it was."""
    calls: dict[int, list[str]] = {}
    said = ""
    async for one in await client.chat.completions.create(stream=True, **fields):
        for choice in one.choices:
            said += choice.delta.content or ""
            for delta in choice.delta.tool_calls or ():
                call = calls.setdefault(delta.index, ["", ""])
                call[0] += delta.id or ""
                assert delta.function is not None
                call[1] += delta.function.arguments or ""
    message = {"role": "assistant", "content": said}
    if calls:
        message["tool_calls"] = [  # type: ignore[assignment]  # a message holds both
            {"id": id_, "type": "function", "function": {"name": "pay", "arguments": arguments}}
            for id_, arguments in calls.values()
        ]
    return message, {id_: place.till.pay(arguments) for id_, arguments in calls.values()}


async def converse(
    client: openai.AsyncOpenAI, place: Shop, run: Run, turn: Callable[..., Awaitable[Any]]
) -> bool:
    """One conversation, as an application has it.

    Returns:
        Whether it came to its end.
    """
    messages: list[Any] = [{"role": "user", "content": "Pay."}]
    fields = {"model": "chat", "tools": [PAY_TOOL], "extra_headers": run.headers}
    try:
        while True:
            message, results = await turn(client, place, {**fields, "messages": messages})
            if not results:
                return True
            messages.append(message)
            messages += [
                {"role": "tool", "tool_call_id": id_, "content": result}
                for id_, result in results.items()
            ]
    except openai.APIError:
        return False


@pytest.mark.parametrize("turn", [by_helper, by_event, by_hand])
async def test_no_call_runs_twice_or_unfinished(turn: Callable[..., Awaitable[Any]]) -> None:
    async with (
        shop(seed=len(turn.__name__)) as place,
        openai.AsyncOpenAI(
            base_url=place.router.base_url,
            api_key="none",  # and its own retries as they are by default
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        ) as client,
    ):
        for number in range(RUNS):
            run = place.run(number)
            place.ended(whole=await converse(client, place, run, turn))
    # Neither vacuous: most come to an end in spite of the faults, and some must be refused.
    assert place.tally["whole"] > RUNS / 2, place.tally
    assert place.tally["error"] > RUNS / 20, place.tally
