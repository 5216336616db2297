"""JavaScript clients (openai, the AI SDK) read structured output, through a failover in its middle.

Each reads by its own partial parser, which closes what is open: half a number would be shown.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pytest
from support.json_texts import Json, same, within
from support.node import Ask, needs, script
from support.routers import routed, running_router

from router.simulate import Script, SimulatedProvider, tokenize

needs("openai", "ai", "@ai-sdk/openai-compatible", "zod")

STREAMING = ("openai stream", "ai streamObject", "ai streamText")
READERS = ("openai parse", *STREAMING)

# As `structured.mjs` asks for it.
TALE = {
    "title": 'A "tale" of 😀',
    "people": [{"name": "Ann", "age": 36}, {"name": "Bo", "age": 120}],
    "rating": -4.25,
    "year": 1987,
    "pages": 120450,
    "truth": None,
}
TEXT = json.dumps(TALE, ensure_ascii=False)
AGAIN = json.dumps(dict(reversed(TALE.items())), indent=1)
BAD_FIFTH = TEXT.replace("120450", '"many"')
BAD_FIRST = '{"title": 7}'

STYLES = {"continue_final": ("vllm", TEXT), "restart": ("openai", AGAIN)}
"""How the second model goes on: its provider's type, and the document as it would write it.
One takes the raw prefix, one begins anew and has the keys in another order."""


def cuts() -> Sequence[int]:
    """Numbers of tokens after which something is delivered and something is missing."""
    lengths = list(accumulate(map(len, tokenize(TEXT))))
    first = TEXT.index(', "people"')
    return [count for count, chars in enumerate(lengths, 1) if first < chars < len(TEXT)]


@dataclass(frozen=True)
class Scene:
    """A router over two providers, and a script that reads from it.

    Args:
        one: the first provider.
        two: the second.
        base_url: of the router's API.
        ask: the script.
    """

    one: SimulatedProvider
    two: SimulatedProvider
    base_url: str
    ask: Ask

    async def read(self, reader: str) -> Json:
        """What a reader of `structured.mjs` makes of the router's answer."""
        return await self.ask({"reader": reader, "baseURL": self.base_url})


@asynccontextmanager
async def scene(first: str, second: str, kind: str) -> AsyncIterator[Scene]:
    """Open one.

    Args:
        first: the document that the first provider writes.
        second: the one that the second provider writes.
        kind: type of the second provider.
    """
    async with (
        SimulatedProvider(script=Script(text=first)) as one,
        SimulatedProvider(script=Script(text=second)) as two,
    ):
        config = routed(
            one,
            two,
            types=["openai", kind],
            route={"max_attempts": 2},
            health={"eject_after": 1000},
        )
        async with running_router(config) as it, script("structured.mjs") as ask:
            yield Scene(one, two, it.base_url, ask)


def only_whole_values(partials: Sequence[Json], final: Json) -> None:
    """Each partial object is the final one without some of its values, and none is taken back."""
    for part, more in pairwise([*partials, final]):
        assert within(part, more)


def told(read: Json) -> Json:
    """The one failover that a client was told of, with the finish of an answer like any other."""
    assert read["raised"] is None
    assert read["errors"] == []
    assert same(read["value"], TALE)
    (news,) = read["news"]
    assert news["finish"] == read["finish"] == "stop"
    assert news["router"]["outcome"] == "completed"
    (failover,) = news["router"]["failovers"]
    assert (failover["from"], failover["to"]) == ("p1/model-p1", "p2/model-p2")
    return failover


def shown(read: Json, reader: str) -> None:
    """A client that streams had whole values on the way, and not only at the end."""
    only_whole_values(read["partials"], TALE)
    grew = [part for part in read["partials"] if 0 < len(part) < len(TALE)]
    assert bool(grew) == (reader in STREAMING)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("reader", READERS)
async def test_a_cut_in_mid_document_goes_by_unseen(reader: str, style: str) -> None:
    kind, second = STYLES[style]
    async with scene(TEXT, second, kind) as it:
        for cut in cuts():
            it.one.set_faults(f"cut@{cut}")
            read = await it.read(reader)
            failover = told(read)
            assert (failover["fault"], failover["style"]) == ("cut", style)
            assert 0 < failover["committed_chars"] < len(TEXT)
            shown(read, reader)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("reader", READERS)
async def test_a_fifth_field_that_breaks_the_schema_comes_from_the_second_model(
    reader: str, style: str
) -> None:
    kind, second = STYLES[style]
    async with scene(BAD_FIFTH, second, kind) as it:
        read = await it.read(reader)
    failover = told(read)
    assert (failover["fault"], failover["style"]) == ("schema_violation", style)
    assert failover["committed_chars"] == TEXT.index(', "pages"')
    shown(read, reader)


ENDINGS = {
    # what the first provider writes and does, then the second; the code of the error, and whether
    # a client that streams has something by then
    "cut": (TEXT, f"cut@{cuts()[9]}", TEXT, "cut@3", "stream_interrupted", True),
    "broken schema": (BAD_FIFTH, "-", BAD_FIFTH, "-", "schema_violation", True),
    "nothing of use": (BAD_FIRST, "-", BAD_FIRST, "-", "schema_violation", False),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("reader", READERS)
async def test_an_error_is_raised_where_nobody_can_go_on(
    reader: str, style: str, ending: str
) -> None:
    first, fault, second, next_fault, code, begun = ENDINGS[ending]
    async with scene(first, second, STYLES[style][0]) as it:
        it.one.set_faults(fault)
        it.two.set_faults(next_fault)
        read = await it.read(reader)
        assert len(it.two.requests) == 1
    assert "value" not in read
    assert read["raised"] is not None
    # The AI SDK may raise one that says just that there is no object, and report ours beside it.
    assert code in {error["code"] for error in [read["raised"], *read["errors"]]}
    only_whole_values(read["partials"], TALE)
    assert all(len(part) < len(TALE) for part in read["partials"])
    assert bool(read["partials"]) == (begun and reader in STREAMING)


@pytest.mark.parametrize("reader", STREAMING)
async def test_a_client_shows_half_values_where_nobody_holds_them_back(reader: str) -> None:
    async with (
        SimulatedProvider(script=Script(text=TEXT)) as provider,
        script("structured.mjs") as ask,
    ):
        read = await ask({"reader": reader, "baseURL": provider.base_url})
    assert same(read["value"], TALE)
    assert not all(within(part, TALE) for part in read["partials"])
