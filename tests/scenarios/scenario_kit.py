"""What the sixteen scenarios share: a router between a client and two providers, and a judge.

The same play runs in fake time (as a test) and in real time (`make scenarios`): all its waits are
taken from `World.clock`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

from support.caller import Call, called, error_of
from support.clock import FakeClock
from support.reading import Answer
from support.routers import Router, routed, running_router

from router.engine.clock import Clock, LoopClock
from router.simulate import Conduct, Pace, RequestRecord, Script, SimulatedProvider
from router.simulate.text import seeded_text, tokenize

TOKENS = 60
TEXT = "".join(tokenize(seeded_text("scenarios", 1_000))[:TOKENS])
"""The canonical answer, of sixty tokens; its first sentence ends within the first twenty."""

PACE = Pace(tokens_per_s=50)
LIMITS = {"first_output_s": 8, "idle_s": 5, "total_s": 120}
"""One set of limits for all sixteen, in seconds."""

PRIMARY, FALLBACK = "model-p1", "model-p2"


class Verdict(StrEnum):
    """How a scenario is scored."""

    PASS = "pass"
    """The whole answer (or the right refusal), with good conduct and what is advised."""
    PARTIAL = "partial"
    """The same, but conduct or advice is wanting."""
    SAFE = "safe"
    """A clean, bounded error in place of the answer."""
    FAIL = "fail"
    """A success that did not happen, doubled or lost text, or no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What the fallback does with an answer that was begun elsewhere.

    Args:
        name: for the table.
        style: how the router is told to ask it.
        conduct: what it does.
    """

    name: str
    style: str | None = None
    conduct: Conduct = field(default_factory=Conduct)


PLAIN = Variant(name="")
CONTINUES = Variant(
    name="continues",
    style="assistant_tail",
    conduct=Conduct(prefix="continue", instruct="afresh"),
)
AFRESH = Variant(name="afresh", conduct=Conduct(prefix="continue", instruct="afresh"))
BOTH = (CONTINUES, AFRESH)
REFUSES = (
    Variant(
        name="continues",
        style="assistant_tail",
        conduct=Conduct(prefix="refuse", instruct="continue"),
    ),
    Variant(
        name="afresh",
        style="assistant_tail",
        conduct=Conduct(prefix="refuse", instruct="afresh"),
    ),
)


@dataclass(slots=True, kw_only=True)
class Judge:
    """Collects what was wanting.

    Args:
        lies: a success that did not happen; any of them is a fail.
        wanting: conduct, or what is only advised.
        unanswered: a clean error stood where an answer was wanted.
        figures: for the table.
    """

    lies: list[str] = field(default_factory=list)
    wanting: list[str] = field(default_factory=list)
    unanswered: bool = False
    figures: dict[str, str] = field(default_factory=dict)

    def conduct(self, held: bool, rule: str) -> None:
        """A rule of good conduct, or an advice."""
        if not held:
            self.wanting.append(rule)

    def whole(self, answer: Answer) -> None:
        """The answer must be whole and equal to the canonical text, to the letter."""
        if answer.status != 200 or answer.error is not None:
            self.unanswered = True
            return
        if answer.delivered != TEXT:
            self.lies.append(f"delivered {answer.delivered[-60:]!r}")
        if answer.finish_reasons != ["stop"] or answer.done != 1:
            self.lies.append(f"ends with {answer.finish_reasons}, {answer.done} [DONE]")

    def refused(self, answer: Answer, *, code: str) -> None:
        """A clean error with the provider's own code must stand in place of an answer."""
        if answer.status == 200 and answer.error is None:
            self.lies.append("an answer where a refusal was wanted")
            return
        error = error_of(answer)
        self.conduct(error["code"] == code, f"the code is {error['code']}")
        self.conduct(bool(error["message"]), "the reason is told")
        self.conduct(400 <= answer.status < 500, f"the status is {answer.status}")

    @property
    def verdict(self) -> Verdict:
        """The score."""
        if self.lies:
            return Verdict.FAIL
        if self.unanswered:
            return Verdict.SAFE
        return Verdict.PARTIAL if self.wanting else Verdict.PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A router between a client and two providers.

    Args:
        clock: where all waits are taken from.
        primary: the first provider.
        fallback: the second one.
        router: between them and the client.
        judge: of what happens.
    """

    clock: Clock
    primary: SimulatedProvider
    fallback: SimulatedProvider
    router: Router
    judge: Judge

    async def ask(self, **fields: Any) -> tuple[Answer, Call]:  # noqa: ANN401 - of a request
        """One streamed request of the client, read to the end of its connection."""
        fields = {"stream_options": {"include_usage": True}, **fields}
        answer, call = await called(self.router.base_url, now_s=self.clock.now_s, **fields)
        self.judge.conduct(call.whole and not call.reset, "the connection ends in order")
        return answer, call

    def asked(self, provider: SimulatedProvider, *, within_s: float = 1e9) -> int:
        """How often a provider was asked, within so many seconds of its first request."""
        times = [request.received_at for request in provider.requests]
        return sum(at - times[0] <= within_s for at in times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One of the sixteen.

    Args:
        id: S01 to S16.
        fault: in a few words.
        faults: what the primary does.
        play: acts, and tells the judge.
        variants: of the fallback.
        windows: context windows of primary and fallback.
    """

    id: str
    fault: str
    faults: str
    play: Callable[[World], Awaitable[None]]
    variants: tuple[Variant, ...] = (PLAIN,)
    windows: tuple[int, int] | None = None


def fake_provider(clock: Clock, **settings: Any) -> SimulatedProvider:  # noqa: ANN401
    """A provider that lives by a clock of ours."""
    return SimulatedProvider(
        script=Script(text=TEXT), pace=PACE, clock=clock.now_s, sleep=clock.sleep, **settings
    )


@asynccontextmanager
async def world_of(scenario: Scenario, variant: Variant, clock: Clock) -> AsyncIterator[World]:
    """Set the stage; afterwards nothing of it is left open.

    Args:
        scenario: which.
        variant: which fallback.
        clock: where time comes from.
    """
    targets: list[dict[str, Any]] = [{}, {}]
    if variant.style is not None:
        targets[1]["continuation"] = {"style": variant.style}
    for target, window in zip(targets, scenario.windows or (), strict=False):
        target["context_window"] = window
    async with (
        fake_provider(clock, faults=scenario.faults) as primary,
        fake_provider(clock, conduct=variant.conduct) as fallback,
        running_router(
            routed(primary, fallback, targets=targets, route={"timeouts": LIMITS}),
            clock=clock,
            random_number=lambda: 0.5,
        ) as router,
    ):
        yield World(clock=clock, primary=primary, fallback=fallback, router=router, judge=Judge())


async def scored(scenario: Scenario, variant: Variant, clock: Clock | None = None) -> Judge:
    """Play a scenario, in real time unless a fake clock is given.

    Args:
        scenario: which.
        variant: which fallback.
        clock: fake, or None.

    Returns:
        Its judge.
    """
    began_s = time.monotonic()
    async with world_of(scenario, variant, clock or LoopClock()) as world:
        if isinstance(clock, FakeClock):
            await clock.run(scenario.play(world), within_s=300)
        else:
            await asyncio.wait_for(scenario.play(world), 300)
    world.judge.figures["real"] = f"{time.monotonic() - began_s:.1f} s"
    return world.judge


def gaps_s(requests: list[RequestRecord]) -> list[float]:
    """Seconds between one request and the next."""
    times = [request.received_at for request in requests]
    return [b - a for a, b in pairwise(times)]


def models(answer: Answer) -> set[str]:
    """Every `model` that an answer names."""
    return {chunk["model"] for chunk in answer.chunks if "model" in chunk}


def usage(answer: Answer) -> Mapping[str, Any]:
    """The usage chunk's object."""
    found = [chunk["usage"] for chunk in answer.chunks if chunk.get("usage")]
    return found[0] if len(found) == 1 else {}
