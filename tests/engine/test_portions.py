"""Large events are cut into portions, and nothing is lost or told twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.reading import ask, check_contract
from support.routers import routed, running_router

from router.core.events import Event, Finish, Reasoning, Text, ToolCall
from router.engine.portions import PORTION_CHARS, portion
from router.simulate import Dialect, RawAnswer, Script, SimulatedProvider, seeded_text

EVENTS = st.lists(
    st.one_of(
        st.builds(Text, st.integers(1, 3 * PORTION_CHARS).map("x".__mul__)),
        st.builds(Reasoning, st.integers(1, 3 * PORTION_CHARS).map("y".__mul__)),
        st.builds(
            lambda size: ToolCall(0, "id", "name", "z" * size), st.integers(0, 3 * PORTION_CHARS)
        ),
        st.just(Finish("stop")),
    ),
    max_size=5,
)


def size_of(event: Event) -> int:
    return len(getattr(event, "text", "") or getattr(event, "arguments", ""))


@given(EVENTS)
def test_nothing_is_lost_and_nothing_is_large(events: list[Event]) -> None:
    portions, waiting = [], events
    while waiting:
        now, waiting = portion(waiting)
        assert sum(size_of(one) > PORTION_CHARS for one in now) == 0
        portions += now
    for kind in (Text, Reasoning):
        joined = "".join(one.text for one in portions if isinstance(one, kind))
        assert joined == "".join(one.text for one in events if isinstance(one, kind))
    calls = [one for one in portions if isinstance(one, ToolCall)]
    assert "".join(one.arguments for one in calls) == "".join(
        one.arguments for one in events if isinstance(one, ToolCall)
    )
    named = [one for one in calls if one.name]
    assert len(named) == sum(isinstance(one, ToolCall) for one in events)
    assert sum(isinstance(one, Finish) for one in portions) == sum(
        isinstance(one, Finish) for one in events
    )


async def test_a_whole_answer_in_one_event_and_a_cut_in_it() -> None:
    text = seeded_text(5, 40_000)
    async with (
        SimulatedProvider(
            script=Script(text=text), dialect=Dialect(tokens_per_chunk=6_000), faults="cut@6000"
        ) as first,
        SimulatedProvider(script=Script(text=text)) as second,
        running_router(routed(first, second)) as router,
    ):
        answer = await ask(router.base_url)
    check_contract(answer)
    assert answer.canonical == text


def chunk(index: int, content: str, finish: str = "null") -> bytes:
    return (
        b'data: {"model":"m","choices":[{"index":%d,"delta":{"content":"%s"},'
        b'"finish_reason":%s}]}\n\n' % (index, content.encode(), finish.encode())
    )


async def test_a_choice_that_nobody_asked_for_is_dropped() -> None:
    body = chunk(0, "Good.") + chunk(1, "Stray.") + chunk(1, "", '"stop"')
    async with (
        SimulatedProvider(raw=RawAnswer(body=body)) as first,
        SimulatedProvider(script=Script(text="Good. The rest of it.")) as second,
        running_router(routed(first, second)) as router,
    ):
        answer = await ask(router.base_url)
    check_contract(answer)
    assert "Stray" not in answer.delivered
    assert answer.canonical == "Good. The rest of it."


async def test_a_word_that_means_not_yet_is_no_finish() -> None:
    words = ('"null"', '"None"', '" "', "0.5", "true", '["x"]', '{"a":1}')
    body = b"".join(chunk(0, f"Part {at}. ", word) for at, word in enumerate(words))
    whole = "".join(f"Part {at}. " for at in range(len(words))) + "And the end."
    async with (
        SimulatedProvider(raw=RawAnswer(body=body)) as first,
        SimulatedProvider(script=Script(text=whole)) as second,
        running_router(routed(first, second)) as router,
    ):
        answer = await ask(router.base_url)
    check_contract(answer)
    assert answer.canonical == whole
    assert answer.metadata is not None
    assert answer.metadata["attempts"][0]["fault"] == "truncated"
