"""Real clients read structured output, through a failover in its middle."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from pydantic import BaseModel, ConfigDict
from support.json_texts import within
from support.routers import routed, running_router

from router.simulate import Script, SimulatedProvider, tokenize


class Person(BaseModel):
    """A part of the document."""

    model_config = ConfigDict(extra="forbid")

    name: str
    age: int


class Tale(BaseModel):
    """What is asked for."""

    model_config = ConfigDict(extra="forbid")

    title: str
    year: int
    people: list[Person]
    truth: bool | None


TALE = Tale(
    title='A "tale" of 😀',
    year=1987,
    people=[Person(name="Ann", age=36), Person(name="Bo", age=120)],
    truth=None,
)
TEXT = TALE.model_dump_json()
MESSAGES: Any = [{"role": "user", "content": "Tell me a tale."}]


CUTS = [f"cut@{token}" for token in range(1, len(tokenize(TEXT)), 9)]


@asynccontextmanager
async def served(fault: str, kind: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        SimulatedProvider(script=Script(text=TEXT)) as one,
        SimulatedProvider(script=Script(text=TEXT)) as two,
    ):
        one.set_faults(fault)
        config = routed(one, two, types=["openai", kind], health={"eject_after": 1000})
        async with (
            running_router(config) as it,
            openai.AsyncOpenAI(base_url=it.base_url, api_key="none", max_retries=0) as client,
        ):
            yield client


@pytest.mark.parametrize("fault", CUTS)
async def test_openai_parses_a_blocking_answer(fault: str) -> None:
    async with served(fault, "openai") as client:
        answer = await client.chat.completions.parse(
            model="chat", messages=MESSAGES, response_format=Tale
        )
    assert answer.choices[0].message.parsed == TALE
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("kind", ["openai", "vllm"])
@pytest.mark.parametrize("fault", CUTS)
async def test_openai_streams_into_a_model(fault: str, kind: str) -> None:
    partial: list[object] = []
    async with (
        served(fault, kind) as client,
        client.chat.completions.stream(
            model="chat", messages=MESSAGES, response_format=Tale
        ) as stream,
    ):
        partial += [
            event.parsed
            async for event in stream
            if event.type == "content.delta" and event.parsed is not None
        ]
        final = await stream.get_final_completion()
    message = final.choices[0].message
    assert message.parsed == TALE
    assert json.loads(message.content or "") == json.loads(TEXT)
    # What a partial parser sees on the way are whole values only, each of them the final one.
    assert partial
    for seen in partial:
        assert within(seen, json.loads(TEXT))


async def test_openai_raises_the_router_s_own_error_when_nobody_keeps_to_the_schema() -> None:
    bad = Script(text='{"title": "x", "year": "late"}')
    async with SimulatedProvider(script=bad) as one, SimulatedProvider(script=bad) as two:
        config = routed(one, two, route={"max_attempts": 2}, health={"eject_after": 1000})
        async with (
            running_router(config) as it,
            openai.AsyncOpenAI(base_url=it.base_url, api_key="none", max_retries=0) as client,
            client.chat.completions.stream(
                model="chat", messages=MESSAGES, response_format=Tale
            ) as stream,
        ):
            with pytest.raises(openai.APIError) as caught:
                await stream.get_final_completion()
    assert caught.value.code == "schema_violation"
    assert "at /year (" in caught.value.message
