"""A coding agent's session over models of three families, which die between its turns and in them.

The models are as strict as their vendors: Claude takes back the thoughts that it signed and no
others, and wants one before the calls whose results it is handed. No request of a session may be
one that a vendor refuses.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pytest
from support.agent import ADAPTIVE, BETAS, SYSTEM, USER, Agent, Broken, Message, for_claude
from support.continuity import FULL
from support.pairs import House, house
from support.work import FINAL, SECRET, TOOLS, WORK, Step, Workshop

from router.simulate import RequestRecord

FAMILIES: Final = ("anthropic", "openai", "gemini")
ORDERS: Final = (
    FAMILIES,
    ("openai", "anthropic", "gemini"),
    ("gemini", "openai", "anthropic"),
)
MODELS: Final = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-5.2", "gemini": "gemini-3-pro"}
IDS: Final = {"anthropic": "toolu_", "openai": "call_", "gemini": "gem-"}
"""What the ids of a model's calls begin with."""
STYLES: Final[Mapping[str, Mapping[str, Any]]] = {
    MODELS["anthropic"]: {},
    "claude-opus-4-8": ADAPTIVE,
}
"""A Claude, and how an agent asks it."""
ATOMIC: Final = {"X-Router-Tool-Calls": "atomic"}
MAX_TURNS: Final = 60
"""Bound of a session: one that does not come to its end fails."""
SESSIONS: Final = 300 if FULL else 20
"""With each order of the families, and each Claude."""
STRIDE: Final = 1 if FULL else 4
"""Of the points at which an answer is cut."""

Faults: TypeAlias = Callable[[int, Step], Sequence[str | None]]
"""What each provider does, by the number of the turn and what there is to say in it."""


@dataclass
class Floor:
    """A router over three models, and the sessions that run there.

    Args:
        house: it.
        families: of the models, in priority order.
    """

    house: House
    families: Sequence[str]

    def agent(self, **how: Any) -> Agent:  # noqa: ANN401 - as of an `Agent`
        """Begin a session: a fresh agent, and work of which nothing is done."""
        marks = [IDS[family] for family in self.families]
        workshop = Workshop(list(zip(self.house.providers, marks, strict=True)))
        return Agent(self.house.messages.sdk, workshop, **how)

    def asked(self) -> list[int]:
        """How many requests each model has seen."""
        return [self.house.asked(at) for at in range(len(self.families))]

    async def turn(self, agent: Agent, *faults: str | None) -> bool:
        """One turn; whatever any model was asked in it is looked at.

        Args:
            agent: whose.
            faults: what each provider does; nothing bad where none is given.

        Returns:
            Whether the work is at its end.

        Raises:
            Broken: as of `Agent.turn`.
        """
        step = agent.workshop.next_turn()
        self.house.faults(*faults, *[None] * len(self.families))
        begun, history = self.asked(), [*agent.history]
        try:
            done = await agent.turn()
        finally:
            for provider, family, first in zip(
                self.house.providers, self.families, begun, strict=True
            ):
                for record in provider.requests:
                    if record.number >= first:
                        CHECKS[family](record, agent, history)
        assert text_of(agent) == step.text
        # One block, whoever went on with it: Claude Code prints the last one alone.
        assert [block["type"] for block in agent.answer].count("text") <= 1
        return done

    def _said(self, agent: Agent) -> Step:
        """What the first model will say: after a turn of another one Claude thinks no more, where
        the agent asks for it in the old way."""
        step = agent.workshop.next_turn()
        silent = self.families[0] == "anthropic" and not agent.thinks_on(agent.history)
        return replace(step, thought="") if silent else step

    async def session(self, agent: Agent, faults: Faults) -> list[dict[str, Any]]:
        """All turns, and a turn again where it broke off, until the work is done.

        Returns:
            The errors of the turns that broke off.
        """
        errors: list[dict[str, Any]] = []
        for number in range(MAX_TURNS):
            try:
                done = await self.turn(agent, *faults(number, self._said(agent)))
            except Broken as broken:
                errors.append(broken.fields)
                continue
            if done:
                agent.workshop.check()
                assert text_of(agent) == FINAL
                return errors
        raise AssertionError(f"no end after {MAX_TURNS} turns: {errors}")


@asynccontextmanager
async def floor(*families: str, claude: str = MODELS["anthropic"]) -> AsyncIterator[Floor]:
    """Open one, over models of these families in that order."""
    async with house(
        *families,
        targets=[{"model": {**MODELS, "anthropic": claude}[family]} for family in families],
        route={"retry": {"same_target": 0}},
    ) as it:
        yield Floor(it, families)


def text_of(agent: Agent) -> str:
    """What the last answer says."""
    return "".join(block["text"] for block in agent.answer if block["type"] == "text")


# -- What a model may be asked ---------------------------------------------------------------------


def check_claude(record: RequestRecord, agent: Agent, history: Sequence[Message]) -> None:
    """Every word of the agent's, and the thoughts of Claude as it signed them, and no others."""
    check_other(record, agent, history)
    body, mine = record.body, for_claude(history)
    assert body["messages"][: len(mine)] == mine
    assert (body["system"], body["tools"], body["metadata"]) == (SYSTEM, TOOLS, USER)
    assert {name: body.get(name) for name in agent.more} == agent.more
    assert record.headers["anthropic-beta"] == ",".join(BETAS)
    if record.style is not None:
        return
    assert len(body["messages"]) == len(mine)
    assert body.get("thinking") == (agent.thinking if agent.thinks_on(mine) else None)


def check_foreign(record: RequestRecord, agent: Agent, history: Sequence[Message]) -> None:
    """Nobody's thoughts."""
    check_other(record, agent, history)
    assert SECRET.encode() not in record.raw
    assert b"cache_control" not in record.raw


def check_other(record: RequestRecord, _agent: Agent, _history: Sequence[Message]) -> None:
    """Nothing that its vendor refuses, and no mark of the router's."""
    assert record.status != 400, record.body
    assert record.tools == tuple(tool["name"] for tool in TOOLS)
    assert b"seam-router" not in record.raw


CHECKS: Final = {"anthropic": check_claude, "openai": check_foreign, "gemini": check_foreign}


# -- One fault -------------------------------------------------------------------------------------


def overloaded(_: Step) -> str:
    return "status=529"


def no_output(_: Step) -> str:
    return "cut@0"


def in_thought(step: Step) -> str:
    return f"cut@{step.size[0] // 2}"


def after_thought(step: Step) -> str:
    return f"cut@{step.size[0]}"


def in_text(step: Step) -> str:
    return f"cut@{step.size[0] + step.size[1] // 2}"


def before_white_space(step: Step) -> str:
    """Before the last piece of the text, which is a blank in the first step."""
    return f"cut@{max(sum(step.size[:2]) - 1, 0)}"


def said_all_but_calls(step: Step) -> str:
    return f"cut@{sum(step.size[:2])}"


def overloaded_in_text(step: Step) -> str:
    return f"error@{step.size[0] + step.size[1] // 2},status=529"


SURVIVED: Final = (
    *(overloaded, no_output, in_thought, after_thought, in_text, said_all_but_calls),
    *(overloaded_in_text, before_white_space),
)


async def test_a_session_in_which_nobody_dies_is_claudes_alone() -> None:
    async with floor(*FAMILIES) as it:
        agent = it.agent()
        sizes, done = [], False
        while not done:
            sizes.append(await agent.count())
            done = await it.turn(agent)
        agent.workshop.check()
        assert it.asked() == [2 * len(WORK), 0, 0]
        assert sizes == sorted(set(sizes))
        thoughts = [step.thought for step in WORK]
        assert [b["thinking"] for b in _blocks(agent, "thinking")] == thoughts


def _blocks(agent: Agent, kind: str) -> list[Message]:
    return [
        block for message in agent.history for block in message["content"] if block["type"] == kind
    ]


async def test_a_prompt_is_counted_by_who_can_and_is_there() -> None:
    async with floor(*FAMILIES) as it:
        agent = it.agent()
        it.house.faults("status=529", None, None)
        assert await agent.count() > 0
        assert it.asked() == [1, 0, 1]
        assert it.house.last(2).path.endswith(":countTokens")


@pytest.mark.parametrize("fault", SURVIVED)
@pytest.mark.parametrize("claude", STYLES)
async def test_a_session_outlives_a_fault_in_one_turn_or_in_each(
    claude: str, fault: Callable[[Step], str]
) -> None:
    async with floor(*FAMILIES, claude=claude) as it:
        for struck in (None, *range(len(WORK))):

            def faults(number: int, step: Step, struck: int | None = struck) -> list[str | None]:
                return [fault(step)] if struck in (None, number) else []

            before = it.asked()
            assert await it.session(it.agent(**STYLES[claude]), faults) == []
            first, second, third = (a - b for a, b in zip(it.asked(), before, strict=True))
            assert (first, third) == (len(WORK), 0)
            assert second == (len(WORK) if struck is None else 1)


@pytest.mark.parametrize("families", ORDERS)
@pytest.mark.parametrize("fault", SURVIVED)
async def test_a_session_outlives_two_models(
    families: Sequence[str], fault: Callable[[Step], str]
) -> None:
    async with floor(*families) as it:
        others = itertools.cycle(["status=529", "cut@0", "error@0", "reset"])
        errors = await it.session(it.agent(), lambda _, step: [fault(step), next(others)])
        assert errors == []
        assert it.asked() == [len(WORK)] * 3


# -- Tool calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, ATOMIC], ids=["stream", "atomic"])
async def test_at_every_point_a_call_that_was_delivered_decides(headers: dict[str, str]) -> None:
    async with floor(*FAMILIES) as it:
        thought, text, calls = it.agent().workshop.next_turn().size
        # As a stream a call is out with its first piece, else when it is whole.
        last = thought + text + (calls[0] - 1 if headers else 0)
        total = thought + text + sum(calls)
        for point in sorted({*range(0, total + 1, STRIDE), last, last + 1, total}):
            agent, before = it.agent(headers=headers), it.asked()
            if point <= last:
                assert not await it.turn(agent, f"cut@{point}")
                assert _blocks(agent, "tool_use")[0]["id"].startswith(IDS["openai"])
                another = 1
            else:
                with pytest.raises(Broken) as broken:
                    await it.turn(agent, f"cut@{point}")
                assert broken.value.fields["code"] == "tool_call_interrupted"
                assert not agent.workshop.ran
                another = 0
            asked = [a - b for a, b in zip(it.asked(), before, strict=True)]
            assert asked == [1, another, 0]


@pytest.mark.parametrize("eager", [False, True], ids=["lazy", "eager"])
async def test_after_a_refusal_the_agent_asks_again_and_nothing_runs_twice(eager: bool) -> None:
    async with floor(*FAMILIES) as it:
        agent = it.agent(eager=eager)

        def faults(number: int, step: Step) -> list[str | None]:
            whole = sum(step.size[:2]) + sum(step.size[2][:1])  # and a piece of the next call
            return [f"cut@{whole + 1}"] if number == 0 else []

        (error,) = await it.session(agent, faults)
        assert error["code"] == "tool_call_interrupted"
        assert "`Read` (arguments complete)" in error["message"]
        assert it.asked() == [1 + len(WORK), 0, 0]
        history = [message["role"] for message in agent.history]
        assert history == ["user", "assistant"] * (len(history) // 2)


@pytest.mark.parametrize("families", ORDERS)
async def test_a_call_that_is_held_back_until_it_is_whole_may_be_cut(
    families: Sequence[str],
) -> None:
    async with floor(*families) as it:

        def faults(_: int, step: Step) -> list[str | None]:
            cut = f"cut@{sum(step.size[:2]) + 3}"
            return [cut] if families[0] != "gemini" else []  # whose calls come whole

        assert await it.session(it.agent(headers=ATOMIC), faults) == []


# -- Anything, anywhere ----------------------------------------------------------------------------

ANYTHING: Final = (
    *("cut@{k}", "rst@{k}", "error@{k}", "error@{k},status=529", "no_finish@{k}", "malformed@{k}"),
    *("cut_byte@{n}", "cut_byte@{n},form=end", "cut_byte@{n},form=rst", "finish_error@{k}"),
    *("status=529", "status=503", "status=429", "reset", "close", "html", "json", "done_only"),
    *("cut_after_finish", "no_done", "gzip", "bad_length", "-"),
)
"""What a provider may do; `k` pieces are sent before it, or `n` bytes of the body."""


@pytest.mark.parametrize("claude", STYLES)
@pytest.mark.parametrize("families", ORDERS)
async def test_whatever_happens_the_session_comes_to_its_end(
    families: Sequence[str], claude: str
) -> None:
    """Only a call that was delivered breaks off a turn, as long as one model lives."""
    dice = random.Random(f"{families} {claude}")  # noqa: S311 - it is to be repeatable

    def struck(step: Step) -> str:
        pieces = sum(step.size[:2]) + sum(step.size[2])
        k, n = dice.randrange(pieces + 1), dice.randrange(150 * pieces)
        return dice.choice(ANYTHING).format(k=k, n=n)

    def faults(_: int, step: Step) -> list[str | None]:
        return [struck(step), struck(step) if dice.random() < 0.4 else None]

    survived, broken = 0, 0
    async with floor(*families, claude=claude) as it:
        for _ in range(SESSIONS):
            headers, eager = dice.choice([{}, ATOMIC]), dice.choice([False, True])
            agent = it.agent(headers=headers, eager=eager, **STYLES[claude])
            errors = await it.session(agent, faults)
            assert {error["code"] for error in errors} <= {"tool_call_interrupted"}
            survived, broken = survived + len(WORK), broken + len(errors)
        assert all(it.asked())
    assert 0 < broken < survived
