"""An answer that is cut anywhere, from any provider to any other: every client gets it whole.

The promise does not depend on formats: the text is that of the uncut answer, its envelope is one,
and what one provider thought is never handed to another.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from support.continuity import FULL
from support.heard import QUESTION, Client, Taken, check_whole
from support.messages import MessageAnswer
from support.pairs import CLIENTS, FAMILIES, House, house
from support.received import received
from support.texts import OTHER

from router.core.continuation import Style
from router.simulate import Conduct, RequestRecord, Script, seeded_text, tokenize
from router.simulate.seals import is_sealed
from router.wire.anthropic.signature import UNSIGNED_SIGNATURE_PREFIX

SECRET: Final = "SECRETLY"
"""A word of every thought, so that one which reaches another provider shows."""
THOUGHT: Final = f"{SECRET} so."
SHORT: Final = "“Go,” said Dr. No. It is.\n\n```py\nf(3.5)\n```\nDone."
"""Dialogue, an abbreviation, code and a decimal."""
TEXTS: Final = [
    seeded_text(5, 900 if FULL else 170, kinds=kinds)
    for kinds in (("dialogue",), ("code",), ("facts", "list"), ("dialogue", "code", "prose"))
]
PAIRS: Final = list(itertools.product(FAMILIES, repeat=2))
AGREEING: Final = ("continue", "echo", "preamble", "afresh", "strip", "refence")
"""What a provider may do with a prefix whose text it agrees with."""
DRAWS: Final = 60 if FULL else 2
"""Random cases per ordered pair of families, for each client."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way of asking a provider to go on.

    Args:
        name: for messages.
        target: further keys of the target.
        style: what the provider sees in the end.
        refuses: it answers 400 to a prefix first; Claude and Gemini do so by their models' names.
        exact: it is documented to give the rest and nothing else, so nothing else is looked for.
        thinking: what a client of Messages asks for.
    """

    name: str
    target: dict[str, Any] = field(default_factory=dict)
    style: Style = Style.INSTRUCT
    refuses: bool = False
    exact: bool = False
    thinking: dict[str, Any] = field(
        default_factory=lambda: {"type": "enabled", "budget_tokens": 1_024}
    )


PREFIXED: Final = (
    *(Style.ASSISTANT_TAIL, Style.PREFIX_FLAG, Style.PARTIAL_FLAG, Style.CONTINUE_FINAL),
)
"""Styles of chat completions that end with the answer's beginning."""


def styled(style: Style) -> dict[str, Any]:
    """A target whose configuration asks for a style."""
    return {"continuation": {"style": style.value}}


ADAPTIVE: Final = {"type": "adaptive"}
TAIL: Final = styled(Style.ASSISTANT_TAIL)
WAYS: Final[dict[str, Sequence[Way]]] = {
    "openai": (
        Way(name="default"),
        *(Way(name=style.value, target=styled(style), style=style) for style in PREFIXED),
        Way(
            name="refused",
            target=styled(Style.CONTINUE_FINAL),
            refuses=True,
        ),
    ),
    "anthropic": (
        Way(name="default"),
        Way(
            name="older",
            target={"model": "claude-3-7-sonnet-20250219"},
            style=Style.ASSISTANT_TAIL,
            exact=True,
        ),
        Way(name="newer", target={"model": "claude-opus-4-7"}, thinking=ADAPTIVE),
        Way(
            name="refused",
            target={"model": "claude-opus-4-7", **TAIL},
            refuses=True,
            thinking=ADAPTIVE,
        ),
    ),
    "gemini": (
        Way(name="default"),
        Way(name="older", target={"model": "gemini-2.5-flash"}, style=Style.ASSISTANT_TAIL),
        Way(name="newer", target={"model": "gemini-3.6-flash"}),
        Way(name="refused", target={"model": "gemini-3.6-flash", **TAIL}, refuses=True),
    ),
}
"""How each family may be asked to go on."""


def thinking(client: str, way: Way) -> dict[str, Any]:
    """What a client says to see thoughts."""
    return {"reasoning_effort": "low"} if client == "chat" else {"thinking": way.thinking}


# -- what is right ---------------------------------------------------------------------------------


def check_signatures(answer: MessageAnswer) -> None:
    """Every thought ends with the signature of whoever thought all of it, or with the mark."""
    for block in answer.blocks:
        if block.kind == "thinking":
            signature = block.joined("signature")
            if signature != UNSIGNED_SIGNATURE_PREFIX:
                assert is_sealed(signature, block.joined("thinking"))


def check_untouched(answer: Taken, text: str) -> dict[str, Any]:
    """What a client must see of an answer whose continuation agrees: nothing at all happened.

    Returns:
        The failover metadata.
    """
    check_whole(answer)
    assert answer.delivered == text
    facts = answer.metadata
    assert facts is not None
    assert facts["superseded"] == []
    if isinstance(answer, MessageAnswer):
        check_signatures(answer)
        # Whatever was thought, and thought again before any text came, the text is one block.
        assert [block.kind for block in answer.blocks].count("text") == 1
        assert answer.stop is not None
        assert answer.stop["stop_reason"] == "end_turn"
    else:
        assert answer.finish_reasons == ["stop"]
    return facts


def check_asked(record: RequestRecord, way: Way, committed: int, text: str) -> None:
    """The continuation was asked for as its way says, and nothing foreign came with it."""
    assert SECRET.encode() not in record.raw
    assert UNSIGNED_SIGNATURE_PREFIX.encode() not in record.raw
    if not committed:
        assert record.style is None
        assert received(record).turns == [("user", [("text", QUESTION)])]
        return
    assert record.style is way.style
    assert record.found
    assert record.prefix == text[:committed].rstrip() or record.prefix == text[:committed]


async def ask(place: House, client: Client, way: Way, fault: str, text: str) -> int:
    """One request, cut once and continued; what was committed at the cut, in characters."""
    place.faults(fault)
    place.forget_refusals()
    before = place.asked(), place.asked(1)
    answer = await client.raw(**thinking(client.name, way))
    facts = check_untouched(answer, text)
    (failover,) = facts["failovers"][-1:]
    committed: int = failover["committed_chars"]
    refused = way.refuses and committed > 0
    assert (place.asked() - before[0], place.asked(1) - before[1]) == (1, 1 + refused)
    assert facts["attempts"][0]["fault"] in {"cut", "truncated"}
    check_asked(place.last(1), way, committed, text)
    return committed


async def sweep(
    place: House, way: Way, cases: Iterator[tuple[str, str]], text: str
) -> list[tuple[str, str, int]]:
    """Ask once for each case; say under which ones a check fails.

    Args:
        place: two providers.
        way: the second one's.
        cases: a client, and the first provider's fault.
        text: the answer.

    Returns:
        Each case with what was committed at its cut.
    """
    done, wrong = [], []
    for name, fault in cases:
        try:
            done.append((name, fault, await ask(place, place.client(name), way, fault, text)))
        except AssertionError as error:
            wrong.append(f"{name} {fault}: {error}")
    assert not wrong, f"{len(wrong)} of {len(wrong) + len(done)}:\n" + "\n".join(wrong[:4])
    return done


# -- every cut of a short answer -------------------------------------------------------------------


def pieces(text: str) -> int:
    """How many pieces an answer has, its thought included."""
    return len(tokenize(THOUGHT)) + len(tokenize(text))


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_cut_after_every_token(first: str, second: str) -> None:
    """In the thought, between it and the answer, in the answer, before its end."""
    way = WAYS[second][0]
    script = Script(text=SHORT, reasoning=THOUGHT)
    turn = PAIRS.index((first, second))
    cases = (
        (name, f"{('cut', 'rst')[at // 2 % 2]}@{at}")
        for at in range(pieces(SHORT) + 1)
        for name in (CLIENTS if FULL else [CLIENTS[(at + turn) % 2]])
    )
    async with house(first, second, script=script) as place:
        done = await sweep(place, way, cases, SHORT)
    committed = {chars for _, _, chars in done}
    assert len(committed) > 4  # at the beginning, after each sentence and each line of code
    assert 0 in committed


# -- random cuts, every way of going on ------------------------------------------------------------


def drawn(seed: str, sizes: dict[str, int], text: str) -> Iterator[tuple[str, str]]:
    """Random cuts: after a token, or at a byte of the body, in each of the ways to break off."""
    dice = random.Random(seed)  # noqa: S311 - repeatable on purpose
    for _ in range(DRAWS):
        for name in CLIENTS:
            token = dice.randrange(pieces(text) + 1)
            faults = [
                f"cut@{token}",
                f"rst@{token}",
                f"no_finish@{token}",
                f"cut_byte@{dice.randrange(sizes[name])},form={dice.choice(('fin', 'rst'))}",
                f"cut@{token};write_bytes={dice.choice((1, 7, 64))}",
            ]
            yield name, dice.choice(faults)


COMBINATIONS: Final = [
    pytest.param(first, second, way, id=f"{first}-{second}-{way.name}")
    for first, second in PAIRS
    for way in WAYS[second]
]
"""Each way of each family, behind each family."""


def conduct_of(way: Way, number: int) -> Conduct:
    """What a provider does with a prefix: one of what its way of going on allows for."""
    said = "continue" if way.exact else AGREEING[number % len(AGREEING)]
    refused = way.refuses and "model" not in way.target  # others refuse by their model's name
    return Conduct(prefix="refuse" if refused else said, instruct=said)


@pytest.mark.parametrize(("first", "second", "way"), COMBINATIONS)
async def test_random_cuts(first: str, second: str, way: Way) -> None:
    """Who goes on gives the rest alone, or repeats some or all, or says something before it."""
    seed = f"{first} {second} {way.name}"
    conduct = conduct_of(way, sum(map(ord, seed)))
    for text in TEXTS if FULL else [TEXTS[sum(map(ord, seed)) % len(TEXTS)]]:
        async with house(
            first,
            second,
            script=Script(text=text, reasoning=THOUGHT),
            conducts=[Conduct(), conduct],
            targets=[{}, way.target],
        ) as place:
            sizes = {name: await body_bytes(place, first, name, way, text) for name in CLIENTS}
            await sweep(place, way, drawn(seed, sizes, text), text)


_SIZES: Final[dict[tuple[str, str, str], int]] = {}


async def body_bytes(place: House, family: str, client: str, way: Way, text: str) -> int:
    """Where in the body of a first provider's answer its last piece has surely not come yet."""
    key = family, client, text
    if key not in _SIZES:
        place.faults(None)
        check_whole(await place.client(client).raw(**thinking(client, way)))
        record = place.last()
        _SIZES[key] = record.bytes_sent * (record.tokens_sent - 2) // (record.tokens_sent + 4)
    return _SIZES[key]


# -- more than one cut -----------------------------------------------------------------------------


@pytest.mark.parametrize("families", list(itertools.permutations(FAMILIES)))
async def test_two_cuts_and_three_families(families: tuple[str, str, str]) -> None:
    text = TEXTS[3]
    dice = random.Random("".join(families))  # noqa: S311 - repeatable on purpose
    three = 0
    async with house(*families, script=Script(text=text, reasoning=THOUGHT)) as place:
        for turn in range(DRAWS * 3):
            client = place.client(CLIENTS[turn % 2])
            cuts = dice.randrange(1, pieces(text)), dice.randrange(pieces(text))
            place.faults(f"cut@{cuts[0]}", f"rst@{cuts[1]}")
            answer = await client.raw(**thinking(client.name, WAYS[families[0]][0]))
            facts = check_untouched(answer, text)
            three += len(facts["attempts"]) == 3
            for at in (1, 2):
                for record in place.providers[at].requests:
                    assert SECRET.encode() not in record.raw
    assert three


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_another_wording_replaces_at_most_the_sentence_that_was_cut(
    first: str, second: str
) -> None:
    text = TEXTS[0]
    replaced = 0
    async with house(
        first,
        second,
        scripts=[Script(text=text), Script(text=text, other_text=OTHER)],
        conducts=[Conduct(), Conduct(prefix="differ")],
    ) as place:
        for turn, cut in enumerate(range(1, len(tokenize(text)), 3 if FULL else 11)):
            client = place.client(CLIENTS[turn % 2])
            place.faults(f"cut@{cut}")
            answer = await client.raw()
            check_whole(answer)
            facts = answer.metadata
            assert facts is not None
            committed = facts["failovers"][-1]["committed_chars"]
            rest = text[committed:]
            gap = rest[: len(rest) - len(rest.lstrip())]
            wanted = text[:committed] + gap + OTHER if committed and rest else text
            assert answer.canonical == wanted, (client.name, cut)
            assert len(facts["superseded"]) <= 1
            replaced += len(facts["superseded"])
            whole = await client.whole()
            assert whole.delivered == answer.canonical
            assert whole.facts["superseded"] == []
    assert replaced


# -- through the SDKs ------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_an_sdk_sees_one_answer(first: str, second: str) -> None:
    """As a stream and as a whole; the finish is one, and so are the id and the model."""
    text = SHORT
    way = WAYS[second][0]
    async with house(first, second, script=Script(text=text, reasoning=THOUGHT)) as place:
        for name in CLIENTS:
            place.faults(f"cut@{pieces(text) // 2}")
            heard = await place.client(name).stream(**thinking(name, way))
            whole = await place.client(name).whole(**thinking(name, way))
            for one in (heard, whole):
                assert one.error is None
                assert one.delivered == text
                assert one.finishes == ["stop"]
                assert len(one.ids) == 1
                assert one.models == {"model-p1"}
                assert len(one.metadata) == 1
                assert one.facts["outcome"] == "completed"
            # What an application keeps of it and sends with its next question.
            await check_history(place, name, heard.message, way)


async def check_history(place: House, client: str, message: dict[str, Any], way: Way) -> None:
    """Thoughts of an answer that two providers gave go to nobody but who has signed them."""
    history = [
        {"role": "user", "content": QUESTION},
        message,
        {"role": "user", "content": "And?"},
    ]
    for at in (0, 1):
        place.faults("status=500" if at else None)
        again = await place.client(client).stream(messages=history, **thinking(client, way))
        assert again.error is None, again.error
        asked = received(place.last(at))
        said = [part for role, parts in asked.turns if role == "assistant" for part in parts]
        assert "".join(part[1] for part in said if part[0] == "text") == SHORT
        for part in said:
            if part[0] == "thought" and client == "messages":
                assert is_sealed(part[2], part[1])
        own = {"chat": "/chat/completions", "messages": "/messages"}[client]
        if not place.last(at).path.endswith(own):
            assert SECRET.encode() not in place.last(at).raw
