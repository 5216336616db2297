"""Clients of chat completions and of Messages, over providers of every pair of families.

The first provider of a pair dies, the second goes on. Whatever the client speaks and whoever
answers, it has a whole answer, or an error that it raises.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import pytest
import pytest_asyncio
from support.json_texts import same
from support.node import Ask, needs, script
from support.pairs import FAMILIES, House, house
from support.till import Till, counter

from router.core.events import ToolCall
from router.simulate import Script, tokenize

needs("openai", "@anthropic-ai/sdk", "ai", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic", "zod")

from support import python_clients  # noqa: E402 - skips where LangChain is not installed

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # LangChain's, of a stream with a parsed document.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]

IN_JAVASCRIPT: Final = ("openai", "anthropic", "ai chat", "ai messages")
CLIENTS: Final = (*python_clients.CLIENTS, *IN_JAVASCRIPT)
HIDDEN: Final = {"langchain chat": (True, False), "langchain messages": (True,)}
"""Clients that drop the `router` object: of streams, of whole answers."""
PAIRS: Final = tuple(product(FAMILIES, repeat=2))

TEXT: Final = "One sentence stands here. Another one follows it, and a third. Then the end."
THANKS: Final = "It is paid. Thank you for your patience."
TALK: Final = "I will pay. It takes just a moment."
TALE: Final = {
    "title": 'A "tale" of 😀',
    "people": [{"name": "Ann", "age": 36}, {"name": "Bo", "age": 120}],
    "rating": -4.25,
    "year": 1987,
    "pages": 120450,
    "truth": None,
}
DUE: Final = {"payment": 7, "amount": 7.25, "to": 'a "b" {c}'}
IMAGE: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
GOOD: Final = {"stop", "end_turn"}
"""Finishes of an answer that is whole."""


@dataclass(frozen=True)
class Reader:
    """Every client, and a router over every pair.

    Args:
        script: runs those in JavaScript.
        houses: a router by the families of its providers.
    """

    script: Ask
    houses: Mapping[tuple[str, ...], House]

    def each(self, said: Script) -> Iterator[House]:
        """The routers in turn, their providers saying this.

        Args:
            said: what there is to say; the ids of calls become those of each provider.
        """
        for it in self.houses.values():
            for mark, provider in zip("ab", it.providers, strict=True):
                calls = (
                    ToolCall(call.index, call.id + mark, call.name, call.arguments)
                    for call in said.tool_calls
                )
                provider.manner.script = replace(said, tool_calls=tuple(calls))
            it.faults(None, None)
            yield it

    async def read(self, client: str, it: House, **wanted: Any) -> Any:  # noqa: ANN401 - JSON
        """One reading; no provider may have been asked what its vendor refuses."""
        asked = {
            "client": client,
            "origin": it.router.base_url.removesuffix("/v1"),
            **dict.fromkeys(("stream", "image", "till", "document")),
            **wanted,
        }
        ask = self.script if client in IN_JAVASCRIPT else python_clients.read
        read = await ask(asked)
        for provider in it.providers:
            assert all(record.status != 400 for record in provider.requests)
        return read


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader() -> AsyncIterator[Reader]:
    async with AsyncExitStack() as stack:
        ask = await stack.enter_async_context(script("families.mjs"))
        houses = {
            pair: await stack.enter_async_context(
                house(*pair, route={"retry": {"same_target": 0}, "max_attempts": 2})
            )
            for pair in PAIRS
        }
        yield Reader(ask, houses)


by_client = pytest.mark.parametrize("client", CLIENTS)
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def went_on(read: Any, client: str, *, stream: bool) -> None:  # noqa: ANN401 - JSON
    """A whole answer, and the client was told of the one failover where it shows such things."""
    assert read["raised"] is None, read
    assert read["errors"] == []
    assert read["finish"] in GOOD
    if stream in HIDDEN.get(client, ()):
        assert read["routers"] == []
        return
    (router,) = read["routers"]
    assert router["outcome"] == "completed"
    (failover,) = router["failovers"]
    assert (failover["from"], failover["to"]) == ("p1/model-p1", "p2/model-p2")
    assert failover["fault"] == "cut"


def failed(read: Any, code: str) -> None:  # noqa: ANN401 - JSON
    """An error, and nothing that looks like a success."""
    raised = [error for error in (read["raised"], *read["errors"]) if error is not None]
    assert code in {error["code"] for error in raised}, read
    assert read.get("finish") not in {*GOOD, "tool-calls", "tool_calls", "tool_use"}


@both_ways
@by_client
async def test_a_text_goes_on_in_another_family(reader: Reader, client: str, stream: bool) -> None:
    for it in reader.each(Script(text=TEXT, reasoning="Hm. I see.")):
        it.faults(f"cut@{len(tokenize('Hm. I see.')) + 9}", None)
        read = await reader.read(client, it, stream=stream)
        went_on(read, client, stream=stream)
        assert read["text"] == TEXT


@both_ways
@by_client
async def test_a_picture_reaches_both(reader: Reader, client: str, stream: bool) -> None:
    for it in reader.each(Script(text=TEXT)):
        it.faults("cut@9", None)
        read = await reader.read(client, it, stream=stream, image=IMAGE)
        went_on(read, client, stream=stream)
        assert read["text"] == TEXT
        assert all(IMAGE.encode() in it.last(at).raw for at in (0, 1))


@both_ways
@by_client
async def test_a_tool_runs_once_whoever_calls_it_and_whoever_is_told(
    reader: Reader, client: str, stream: bool
) -> None:
    """The first provider dies before its call, the second makes it, the first has the result."""
    call = ToolCall(0, "call_1", "pay", json.dumps(DUE))
    till = Till()
    async with counter(till) as address:
        for it in reader.each(Script(text=TALK, tool_calls=(call,))):

            def paid(it: House = it) -> None:
                it.faults(None, None)
                for provider in it.providers:
                    provider.manner.script = Script(text=THANKS)

            till.expect([DUE], paid)
            it.faults("cut@5", None)
            before = [it.asked(0), it.asked(1)]
            read = await reader.read(client, it, stream=stream, till=address)
            assert read["raised"] is None, read
            assert (read["text"], read["errors"]) == (THANKS, [])
            till.check(whole=True)
            asked = [it.asked(0) - before[0], it.asked(1) - before[1]]
            assert asked == [2, 1]
            assert b"paid" in it.last().raw


@both_ways
@by_client
async def test_a_document_goes_on_in_another_family(
    reader: Reader, client: str, stream: bool
) -> None:
    text = json.dumps(TALE, ensure_ascii=False)
    for it in reader.each(Script(text="No document was asked for.", json_text=text)):
        it.faults(f"cut@{len(tokenize(text)) // 2}", None)
        read = await reader.read(client, it, stream=stream, document=True)
        went_on(read, client, stream=stream)
        assert same(read["value"], TALE)


@both_ways
@by_client
async def test_an_error_is_raised_where_nobody_answers(
    reader: Reader, client: str, stream: bool
) -> None:
    for it in reader.each(Script(text=TEXT)):
        it.faults("status=503", "reset")
        failed(await reader.read(client, it, stream=stream), "all_targets_failed")


@both_ways
@by_client
async def test_an_error_is_raised_where_nobody_can_go_on(
    reader: Reader, client: str, stream: bool
) -> None:
    for it in reader.each(Script(text=TEXT)):
        it.faults("cut@9", "cut@2")
        failed(await reader.read(client, it, stream=stream), "stream_interrupted")


@both_ways
@by_client
async def test_a_call_that_broke_off_is_an_error_and_asks_nobody_else(
    reader: Reader, client: str, stream: bool
) -> None:
    call = ToolCall(0, "call_1", "pay", json.dumps(DUE))
    till = Till()
    async with counter(till) as address:
        for it in reader.each(Script(text=TALK, tool_calls=(call,))):
            till.expect([DUE], lambda: None)
            it.faults(f"cut@{len(tokenize(TALK)) + 1}", None)
            before = it.asked(1)
            read = await reader.read(client, it, stream=stream, till=address)
            failed(read, "tool_call_interrupted")
            assert it.asked(1) == before
            till.check(whole=False)  # a call of Gemini's comes whole, and may have run
