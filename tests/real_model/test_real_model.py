"""A real model dies in mid-sentence, another server of it goes on, and the client has the answer
that it would have had.

The servers are llama.cpp's own, set so that a continued answer is exact (`llama_server.py`):
whatever differs was spoilt by the router.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from real_model.llama_kit import PATIENCE_S, PROMPTS, LlamaServer, Uncut, body, count_texts
from support.reading import Answer, check_contract, read_stream
from support.routers import routed, running_router

pytestmark = pytest.mark.real_model

MOMENTS = 60
IDLE_S = 1.0
"""When a stopped server is given up; its tokens come every 10 to 30 ms."""

TRIES = 3
"""All of an answer may be in the sockets before the blow falls: then the moment is repeated."""

ECHO = {"echo": True}
"""A field of llama.cpp's that makes it repeat the prefix. Continuations carry what is configured as
`disable_thinking`, whatever it is, so no other server is needed."""

Pair = tuple[LlamaServer, LlamaServer]


def routes(
    one: LlamaServer, other: LlamaServer, continuation: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """A configuration in which each server can be the first: `chat` and `tahc`.

    Args:
        one: first of `chat`.
        other: first of `tahc`; the fallback of `chat`.
        continuation: of the other's target.
    """
    config = routed(
        one.base_url,
        other.base_url,
        types=("llama.cpp", "llama.cpp"),
        targets=({}, {"continuation": dict(continuation or {})}),
        route={"timeouts": {"first_output_s": PATIENCE_S, "idle_s": IDLE_S}},
        health={"eject_after": 1000},
    )
    forth = config["routes"]["chat"]
    config["routes"]["tahc"] = {**forth, "targets": forth["targets"][::-1]}
    return config


async def struck(
    base_url: str, prompt: str, chunk: int, strike: Callable[[], None], route: str = "chat"
) -> Answer:
    """Ask, and do something when so many chunks of text have arrived.

    Args:
        base_url: of the router.
        prompt: the question.
        chunk: after how many.
        strike: what to do then.
        route: whom to ask.
    """
    raw = bytearray()
    waiting = True
    async with (
        httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client,
        client.stream("POST", f"{base_url}/chat/completions", json=body(prompt, route)) as response,
    ):
        async for piece in response.aiter_raw():
            raw += piece
            if waiting and count_texts(raw) >= chunk:
                waiting = False
                strike()
    return read_stream(response.status_code, response.headers, bytes(raw))


@dataclass(frozen=True)
class Moment:
    """When and how a server is struck.

    Args:
        prompt: in the answer to which.
        chunk: after how many chunks of text.
        kill: by SIGKILL, else by SIGSTOP.
    """

    prompt: str
    chunk: int
    kill: bool


def moments(uncut: dict[str, Uncut]) -> list[Moment]:
    """Sixty: three of each prompt with each signal, in any order; the same in every run."""
    dice = random.Random(135)  # noqa: S311 - it is to be the same in every run
    drawn = [
        Moment(prompt, dice.randint(1, uncut[prompt].chunks - 3), kill=turn % 2 == 0)
        for turn in range(MOMENTS // len(PROMPTS))
        for prompt in PROMPTS
    ]
    dice.shuffle(drawn)
    return drawn


async def strike_at(base_url: str, moment: Moment, pair: Pair, *, first: int = 0) -> Answer:
    """Ask, strike the server that answers, and bring it back.

    Args:
        base_url: of the router.
        moment: when and how.
        pair: the two servers; both are up before.
        first: whom of them to ask and to strike.
    """
    victim = pair[first]
    strike = victim.restart if moment.kill else victim.stop
    for _ in range(TRIES):
        for server in pair:
            await asyncio.to_thread(server.wait_ready)
        answer = await struck(
            base_url, moment.prompt, moment.chunk, strike, ("chat", "tahc")[first]
        )
        if not moment.kill:
            victim.go_on()
        if answer.metadata or answer.error:
            break
    return answer


def differences(answer: Answer, moment: Moment, whole: str) -> list[str]:
    """What is not as if nothing had happened; a stream outside the wire contract fails at once.

    Args:
        answer: what the client got.
        moment: what happened.
        whole: the uncut answer.
    """
    check_contract(answer)
    facts = answer.metadata or {}
    faults = [one["fault"] for one in facts.get("attempts", ())]
    found = []
    if answer.canonical != whole:
        found.append(f"{moment}: the text is {answer.canonical!r}")
    if answer.delivered != answer.canonical:
        found.append(f"{moment}: {facts['superseded']} is superseded")
    if answer.finish_reasons != ["stop"]:
        found.append(f"{moment}: the finish is {answer.finish_reasons}")
    if faults != ["cut" if moment.kill else "idle_timeout", None]:
        found.append(f"{moment}: the attempts ended by {faults}")
    return found


async def test_sixty_deaths_at_random_moments_leave_no_trace(
    pair: Pair, uncut: dict[str, Uncut]
) -> None:
    wrong: list[str] = []
    equal = 0
    async with running_router(routes(*pair)) as router:
        for at, moment in enumerate(moments(uncut)):
            # The two take turns: while one is restarted the other, which went on, is asked next.
            answer = await strike_at(router.base_url, moment, pair, first=at % 2)
            whole = uncut[moment.prompt].text
            equal += answer.canonical == whole
            wrong += differences(answer, moment, whole)
    assert not wrong, "\n".join(wrong)
    assert equal == MOMENTS


@dataclass(frozen=True)
class Fallback:
    """A second server that does not simply go on.

    Args:
        continuation: what the configuration says of it.
        prefill: it takes an assistant prefix.
        says_all: its answer has the committed text in it again.
    """

    continuation: dict[str, Any]
    prefill: bool = True
    says_all: bool = True


FALLBACKS = {
    "echoes": Fallback({"disable_thinking": ECHO}),
    "echoes, and it is known": Fallback({"disable_thinking": ECHO, "echo": "always"}),
    "restarts, and it is known": Fallback({"style": "restart"}, prefill=False),
    "restarts unless flagged": Fallback({}, prefill=False, says_all=False),
}


@pytest.mark.parametrize("name", FALLBACKS)
async def test_a_second_server_that_does_not_simply_go_on(
    name: str, pair: Pair, no_prefill: LlamaServer, uncut: dict[str, Uncut]
) -> None:
    fallback = FALLBACKS[name]
    two = (pair[0], pair[1] if fallback.prefill else no_prefill)
    wrong: list[str] = []
    async with running_router(routes(*two, continuation=fallback.continuation)) as router:
        for prompt in PROMPTS[::3]:
            whole = uncut[prompt]
            moment = Moment(prompt, whole.chunks * 2 // 3, kill=True)
            answer = await strike_at(router.base_url, moment, two)
            wrong += differences(answer, moment, whole.text)
            wrong += said_otherwise(answer, moment, fallback, whole.text)
    assert not wrong, "\n".join(wrong)


def said_otherwise(answer: Answer, moment: Moment, fallback: Fallback, whole: str) -> list[str]:
    """The second server did not behave as the test wants it to: then the test shows nothing."""
    facts = answer.metadata or {"failovers": [{"committed_chars": 0}], "attempts": [{}]}
    committed = facts["failovers"][0]["committed_chars"]
    said = facts["attempts"][-1].get("output_chars")
    expected = len(whole) - (0 if fallback.says_all else committed)
    if committed and said == expected:
        return []
    return [f"{moment}: {said} characters were said and not {expected}, {committed} committed"]


async def test_a_new_turn_of_another_wording_is_joined_to_what_is_committed(
    pair: Pair, no_prefill: LlamaServer, uncut: dict[str, Uncut]
) -> None:
    """Configured as one that takes a bare prefix, which it does not: nobody can make its words the
    uncut answer, but what was committed stays, once, and the stream is whole."""
    prompt = "What is an atom?"
    moment = Moment(prompt, uncut[prompt].chunks * 2 // 3, kill=True)
    two = (pair[0], no_prefill)
    async with running_router(routes(*two, continuation={"style": "assistant_tail"})) as router:
        answer = await strike_at(router.base_url, moment, two)
    check_contract(answer)
    assert answer.metadata is not None
    (failover,) = answer.metadata["failovers"]
    committed = uncut[prompt].text[: failover["committed_chars"]]
    assert committed
    assert answer.canonical.startswith(committed)
    assert answer.canonical.count(committed) == 1
    assert answer.canonical != uncut[prompt].text
    ((start, _end),) = answer.metadata["superseded"]
    assert start >= len(committed)
