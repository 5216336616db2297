"""Ordinary citations must not hold the event loop.

pysbd's own pattern for numbered references is exponential in their number: 12 of them take seconds,
40 take longer than anybody waits. So here the tests do not measure time; they end, or they do not.
"""

from __future__ import annotations

import pytest
from support.reading import ask, check_contract
from support.routers import routed, running_router

from router.simulate import Dialect, Script, SimulatedProvider

CITATIONS = f"x.[{', '.join(str(3 * n) for n in range(4, 44))}] the rest"
TEXT = f"First a sentence. Then {CITATIONS} of it, and {CITATIONS} again. The end of it."


@pytest.mark.parametrize("tokens_per_chunk", [1, 4096], ids=["token by token", "whole"])
async def test_an_answer_full_of_citations_ends(tokens_per_chunk: int) -> None:
    dialect = Dialect(tokens_per_chunk=tokens_per_chunk)
    async with (
        SimulatedProvider(script=Script(text=TEXT), dialect=dialect) as provider,
        running_router(routed(provider)) as router,
    ):
        answer = await ask(router.base_url)
    check_contract(answer)
    assert answer.delivered == TEXT
