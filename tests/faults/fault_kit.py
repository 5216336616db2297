"""A whole router over real sockets in fake time, three providers behind it, and what both saw."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from support.caller import Call, called, error_of
from support.clock import FakeClock
from support.reading import Answer, check_contract
from support.routers import Router, routed, running_router

from router.core.events import ToolCall
from router.engine.observe import Detail, StreamEnded
from router.engine.report import StreamReport
from router.simulate import Ended, Faults, Pace, RequestRecord, Script, SimulatedProvider
from router.simulate.text import seeded_text, tokenize

TOKENS = tokenize(seeded_text("scenarios", 1_000))[:60]
TEXT = "".join(TOKENS)
"""Sixty tokens; the first sentence ends before the twentieth."""

CALL = ToolCall(index=0, id="call_1", name="pay", arguments='{"amount": 36, "to": "Ada Lovelace"}')
TALK = Script(text=TEXT)
ACT = Script(text="".join(TOKENS[:30]), tool_calls=(CALL,))
"""Thirty tokens of text, then a call."""

AFTER_TEXT = 40
"""Pieces of `TALK` after which a fault strikes once text was delivered and some is committed."""
AFTER_CALL = 34
"""Pieces of `ACT` after which a part of the call was delivered."""

LIMITS = {"connect_s": 2, "first_output_s": 15, "idle_s": 5, "total_s": 120}
"""In seconds."""

REST_S = 60.0
"""After this long nobody is ejected any more: longer than the longest cool-down."""


def route(*providers: int, **keys: Any) -> dict[str, Any]:  # noqa: ANN401 - of a YAML file
    """A route over some of the providers, by number from 1.

    Args:
        providers: in priority order.
        keys: further keys of the route; `windows` are its targets' context windows, `styles` the
            continuation styles of some, by number.
    """
    windows = keys.pop("windows", (None,) * len(providers))
    styles = keys.pop("styles", {})
    targets = [
        {"provider": f"p{number}", "model": f"model-p{number}"}
        | ({} if window is None else {"context_window": window})
        | ({"continuation": {"style": styles[number]}} if number in styles else {})
        for number, window in zip(providers, windows, strict=True)
    ]
    return {"targets": targets, "timeouts": LIMITS, **keys}


@dataclass(kw_only=True)
class Stage:
    """A router, its providers, and what was seen on either side.

    Args:
        clock: fake.
        providers: from the first to the last.
        router: in front of them.
        details: all that the observers were told.
    """

    clock: FakeClock
    providers: list[SimulatedProvider]
    router: Router
    details: list[Detail] = field(default_factory=list)
    _seen: list[int] = field(default_factory=list)

    async def rest(self) -> None:
        """Everyone is well, behaves, and is counted from here on."""
        for provider in self.providers:
            provider.set_faults(None)
            provider.manner.script = TALK
            provider.manner.raw = None
            provider.manner.pace = Pace()
            await provider.come_back()
        await self.clock.advance(REST_S)
        for number in range(1, len(self.providers) + 1):
            self.router.serving.engine.health.succeeded(f"p{number}/model-p{number}")
        self.details.clear()
        self._seen = [len(provider.requests) for provider in self.providers]

    def faults(self, *faults: Faults | None, script: Script | None = None) -> None:
        """What the providers do from now on, in order."""
        for provider, fault in zip(self.providers, faults, strict=False):
            provider.set_faults(fault)
        for provider in self.providers:
            provider.manner.script = script or provider.manner.script

    def requests(self, number: int) -> list[RequestRecord]:
        """The requests that a provider saw since the last rest, by its number from 1."""
        return self.providers[number - 1].requests[self._seen[number - 1] :]

    @property
    def asked(self) -> tuple[int, ...]:
        """How often each provider was asked since the last rest."""
        return tuple(len(self.requests(number + 1)) for number in range(len(self.providers)))

    def sent(self, number: int) -> int:
        """How many pieces of its last answer a provider has sent so far."""
        requests = self.requests(number)
        return requests[-1].tokens_sent if requests else 0

    async def ask(self, **fields: Any) -> tuple[Answer, Call]:  # noqa: ANN401 - of a request
        """One request of the client, read to the end of its connection, with the time it takes."""
        answer, call = await self.clock.run(
            called(self.router.base_url, now_s=self.clock.now_s, **fields)
        )
        assert not call.reset
        assert call.whole, "the connection did not end in order"
        return answer, call

    async def heard(self, call: Call, text: str) -> None:
        """Read what a client gets until these characters are in."""

        async def reading() -> None:
            while not call.has(text):
                assert await call.read(), "the connection ended first"

        await self.clock.run(reading())

    def told(self, kind: type[Any]) -> list[Any]:
        """What the observers were told of one kind since the last rest."""
        return [detail for detail in self.details if isinstance(detail, kind)]

    @property
    def report(self) -> StreamReport:
        """The books of the last request."""
        last: StreamEnded = self.told(StreamEnded)[-1]
        return last.report

    async def ended(self, number: int, request: int = -1) -> Ended | None:
        """How a provider's request ended, once everything has come to rest."""
        await self.clock.settle()
        return self.requests(number)[request].ended


@asynccontextmanager
async def staged(
    *,
    routes: dict[str, Any] | None = None,
    providers: int = 3,
    health: dict[str, Any] | None = None,
    server: dict[str, Any] | None = None,
    **sections: Any,  # noqa: ANN401 - of a YAML file
) -> AsyncIterator[Stage]:
    """Set the stage.

    Args:
        routes: by name; without them, `chat` goes over all providers.
        providers: how many there are.
        health: of the configuration; by default faults in a row eject nobody.
        server: of the configuration; by default a long wait does not send the headers.
        sections: further ones of the configuration.
    """
    clock = FakeClock()
    made = [
        SimulatedProvider(script=TALK, clock=clock.now_s, sleep=clock.sleep)
        for _ in range(providers)
    ]
    details: list[Detail] = []
    try:
        for provider in made:
            await provider.start()
        sections["health"] = health or {"eject_after": 1000, "eject_rate": 1}
        sections["server"] = server or {"commit_headers_after_s": 100}
        config = routed(*made, **sections)
        config["routes"] = routes or {"chat": route(*range(1, providers + 1))}
        async with running_router(config, clock=clock, observers=[details.append]) as router:
            stage = Stage(clock=clock, providers=made, router=router, details=details)
            await stage.rest()
            yield stage
    finally:
        for provider in made:
            await provider.close()


def finished(answer: Answer, text: str = TEXT) -> None:
    """The client has the whole answer, once, by the wire contract."""
    check_contract(answer)
    assert answer.canonical == text


def unfinished(answer: Answer, *, code: str | None) -> dict[str, Any]:
    """The client has an error, and nothing that could be taken for a success.

    Returns:
        The error object.
    """
    error = error_of(answer)
    assert error["code"] == code, error
    assert error["message"]
    assert answer.finish_reasons == []
    assert answer.done == 0
    assert b"[DONE]" not in answer.raw
    return error
