"""An answer that is cut after any token, at any byte: the client gets it whole, as if uncut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import httpx
import pytest
from support.continuity import FULL, MESSAGES, Heard, House, house
from support.texts import Sample, seeded, written

from router.simulate import Conduct, Script, SimulatedProvider, tokenize

CHARS = 400 if FULL else 240
SHORT = seeded(chars=CHARS)
WRITTEN_STEP = 1 if FULL else 29
"""Every so many tokens of the long texts."""


def prefix_of(text: str, tokens: int) -> str:
    return "".join(tokenize(text)[:tokens])


def whole_and_untouched(heard: Heard, text: str) -> None:
    """What a client must see of an answer whose continuation agrees: nothing at all happened."""
    assert heard.error is None
    assert heard.canonical == text
    assert heard.delivered == text
    assert heard.superseded == []
    assert heard.finishes == ["stop"]
    assert heard.roles == ["assistant"]
    assert len(heard.ids) == len(heard.models) == 1
    assert all(finish == "stop" for finish, _ in heard.metadata)
    assert len(heard.metadata) <= 1


async def sweep(place: House, faults: Sequence[str], check: Callable[[Heard, int], None]) -> None:
    """Ask once under each fault of the primary; say under which ones a check fails."""
    wrong = []
    for at, fault in enumerate(faults):
        place.providers[0].set_faults(fault)
        asked = place.asked()
        heard = await place.hear()
        try:
            assert place.asked() == asked + 1, "the primary was not asked"
            check(heard, at)
        except AssertionError as error:
            wrong.append(f"{fault}: {error}\n  {heard.facts}")
    assert not wrong, f"{len(wrong)} of {len(faults)}:\n" + "\n".join(wrong[:5])


def kinds(at: int) -> tuple[str, ...]:
    return ("cut", "rst") if FULL else (("cut", "rst")[at % 2],)


# -- after every token -----------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SHORT, ids=lambda sample: sample.name)
async def test_cut_after_every_token(sample: Sample) -> None:
    text = sample.text
    count = len(tokenize(text))
    faults = [f"{kind}@{at}" for at in range(count + 1) for kind in kinds(at)]

    def check(heard: Heard, at: int) -> None:
        whole_and_untouched(heard, text)
        assert len(heard.facts["attempts"]) == 2
        assert heard.facts["attempts"][0]["fault"] == "cut"
        failovers = heard.facts["failovers"]
        assert len(failovers) == 1
        committed = failovers[0]["committed_chars"]
        assert committed <= len(text)
        assert failovers[0]["style"] == ("instruct" if committed else "original"), at

    async with house(text, Conduct(), route={"language": sample.language}) as place:
        await sweep(place, faults, check)


@pytest.mark.parametrize("sample", written(), ids=lambda sample: sample.name)
async def test_cut_in_long_texts(sample: Sample) -> None:
    text = sample.text
    first = sum(map(ord, sample.name)) % WRITTEN_STEP
    tokens = range(first, len(tokenize(text)) + 1, WRITTEN_STEP)
    faults = [f"{('cut', 'rst')[at % 2]}@{at}" for at in tokens]
    async with house(text, Conduct(), route={"language": sample.language}) as place:
        await sweep(place, faults, lambda heard, _: whole_and_untouched(heard, text))


# -- at every byte ---------------------------------------------------------------------------------


async def bodies(text: str) -> bytes:
    """The body that the primary sends."""
    async with (
        SimulatedProvider(script=Script(text=text)) as provider,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        response = await client.post(
            f"{provider.base_url}/chat/completions",
            json={
                "model": "model-p1",
                "messages": MESSAGES,
                "stream": True,
                "stream_options": {"include_usage": True},
            },
        )
        return response.content


BYTE_TEXTS = {
    "latin": "One sentence is whole. “Two”, says Zoë, is coming now; three follows.",
    "japanese": "駅前の古い時計。町の人はみな知っていた。困ったのは田村さんだけである。",
    "emoji": "It is done. 🌊 The sea 👩‍👩‍👧 rises again. So be it.",
    "code": "So:\n\n```python\nfor x in y:\n    print(x)\n```\n\nThat is all.",
}


@pytest.mark.parametrize("form", ["fin", "rst"])
@pytest.mark.parametrize("name", BYTE_TEXTS)
async def test_cut_at_every_byte_of_a_chunk(name: str, form: str) -> None:
    text = BYTE_TEXTS[name]
    body = await bodies(text)
    events = body.split(b"\n\n")
    middle = len(events) // 2
    start = len(b"\n\n".join(events[:middle])) + 2
    end = start + len(events[middle]) + 2
    step = 1 if FULL or (name == "japanese" and form == "fin") else 5
    faults = [f"cut_byte@{at},form={form}" for at in range(start, end + 1, step)]
    async with house(text, Conduct()) as place:
        await sweep(place, faults, lambda heard, _: whole_and_untouched(heard, text))


async def test_cut_at_every_byte_of_the_last_chunks() -> None:
    """From the last text to the last byte: whatever the client gets, it gets all of it, once."""
    text = BYTE_TEXTS["latin"]
    body = await bodies(text)
    start = body.rindex(b'"content"')
    faults = [f"cut_byte@{at},form=fin" for at in range(start, len(body) + 1, 1 if FULL else 3)]
    async with house(text, Conduct()) as place:
        await sweep(place, faults, lambda heard, _: whole_and_untouched(heard, text))


@pytest.mark.parametrize("write_bytes", [1, 7])
async def test_any_split_of_the_bytes_gives_the_same_answer(write_bytes: int) -> None:
    text = BYTE_TEXTS["emoji"]
    faults = [f"cut@{at};write_bytes={write_bytes}" for at in range(len(tokenize(text)) + 1)]
    async with house(text, Conduct()) as place:
        await sweep(place, faults, lambda heard, _: whole_and_untouched(heard, text))


# -- many at once ----------------------------------------------------------------------------------


async def test_many_cut_at_once_do_not_mix() -> None:
    """Each of many streams is cut elsewhere while the others run."""
    text = SHORT[-1].text
    count = len(tokenize(text))
    async with house(text, Conduct(prefix="echo", instruct="echo")) as place:
        place.providers[0].set_faults([f"cut@{at}" for at in range(0, count, 2)])
        heard = await asyncio.gather(*(place.hear() for _ in range(0, count, 2)))
    for one in heard:
        whole_and_untouched(one, text)
    assert len({next(iter(one.ids)) for one in heard}) == len(heard)
    # every request met a cut of its own
    assert {one.facts["attempts"][0]["output_chars"] for one in heard} == {
        len(prefix_of(text, at)) for at in range(0, count, 2)
    }


# -- before the first token ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "seen_as"),
    [
        ("cut@0", "cut"),
        ("rst@0", "cut"),
        ("no_finish@0", "truncated"),
        ("done_early@0", "truncated"),
        ("done_only", "truncated"),
        ("error@0", "stream_error"),
        ("error_then_done@0", "stream_error"),
        ("malformed@0", "malformed"),
        ("html", "malformed"),
        ("finish_error@0", "stream_error"),
        ("reset", "connect"),
        ("close", "connect"),
        ("status=500", "status"),
        ("status=429,retry_after=30", "status"),
        ("unauthorized", "status"),
        ("role_then_silence", "first_output_timeout"),
        ("silent", "first_output_timeout"),
    ],
)
async def test_a_failure_before_the_first_token_is_never_seen(fault: str, seen_as: str) -> None:
    text = SHORT[0].text
    silent = seen_as == "first_output_timeout"
    targets = [{"timeouts": {"first_output_s": 0.2}}] if silent else []
    async with house(text, Conduct(), targets=targets) as place:
        place.providers[0].set_faults(fault)
        heard = await place.hear()
        whole_and_untouched(heard, text)
        attempts = heard.facts["attempts"]
        assert {one["fault"] for one in attempts[:-1]} == {seen_as}
        assert attempts[-1]["fault"] is None
        (asked,) = place.providers[1].requests
        assert asked.style is None  # the original question: opening a stream is not a commit
        assert asked.body["messages"] == MESSAGES
