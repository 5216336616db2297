"""A tool that must never run twice, a model that calls it, and everything that goes wrong between.

A run is one conversation: the model asks for payments, a client makes them and hands the results
back, the model thanks. Both providers of a run misbehave at random, by a seed; each payment of each
run has a number of its own, so that the till sees what was paid twice, or wrongly.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from router.core.events import ToolCall
from router.simulate import RawAnswer, Script, SimulatedProvider, tokenize
from support.pairs import FAMILIES, base_url
from support.routers import Router, routed, running_router
from support.toolcalls import DONE, begun, chunk, more, text

THANKS = "It is paid. Thank you for your patience."
TALK = ("", "I will pay. ", "One moment. I look")

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "payment": {"type": "integer"},
        "amount": {"type": "number"},
        "to": {"type": "string"},
    },
    "required": ["payment", "amount", "to"],
    "additionalProperties": False,
}
PAY_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "pay", "strict": True, "parameters": PARAMETERS},
}

FAULTS = (
    *("cut@{k}", "rst@{k}", "error@{k}", "error_then_done@{k}", "no_finish@{k}", "done_early@{k}"),
    *("finish_error@{k}", "malformed@{k}", "error@{k},form=choices", "error@{k},form=event"),
    *("cut_byte@{n}", "cut_byte@{n},form=end", "cut_byte@{n},form=rst", "finish_error@{k}"),
    *("status=503", "status=429", "status=500", "reset", "close", "html", "json", "done_only"),
    *("cut_after_finish", "no_done", "gzip", "bad_length", "unauthorized", "-"),
)
"""What a provider may do; `k` pieces are sent before it, or `n` bytes of the body."""

STALL = "stall@{k}"
"""Takes its time, so it is rarer than the others."""


class Till:
    """Counts what is paid."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._due: dict[str, None] = {}
        self._on_paid: Callable[[], None] = lambda: None

    def expect(self, due: Sequence[Mapping[str, Any]], on_paid: Callable[[], None]) -> None:
        """A run begins.

        Args:
            due: arguments of the calls that the model will make.
            on_paid: called when one was made.
        """
        self.paid.clear()
        self._due = dict.fromkeys(map(_canonical, due))
        self._on_paid = on_paid

    def pay(self, arguments: Mapping[str, Any] | str) -> str:
        """The tool.

        Args:
            arguments: as a client understood them, parsed or as text.

        Returns:
            The result for the model.
        """
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                self.wrong.append(str(arguments))
                return "no"
        what = _canonical(arguments)
        self.paid[what] += 1
        if what not in self._due:
            self.wrong.append(what)
        self._on_paid()
        return "paid"

    def check(self, *, whole: bool) -> None:
        """Nothing was paid twice or wrongly.

        Args:
            whole: the client saw a success, so that everything must be paid.
        """
        assert self.wrong == []
        assert all(times == 1 for times in self.paid.values()), self.paid
        if whole:
            assert self.paid.keys() == self._due.keys()


def _canonical(arguments: Any) -> str:  # noqa: ANN401 - JSON is anything
    return json.dumps(arguments, sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One conversation.

    Args:
        number: of it.
        headers: of the client's requests.
        due: arguments of the calls.
    """

    number: int
    headers: Mapping[str, str]
    due: tuple[dict[str, Any], ...]


@dataclass(kw_only=True)
class Shop:
    """A router over two providers that misbehave, and the till.

    Args:
        router: running.
        providers: in priority order.
        families: of the providers.
        till: counts.
        random: of the seed.
        tally: how the runs ended.
    """

    router: Router
    providers: list[SimulatedProvider]
    families: Sequence[str]
    till: Till
    random: random.Random
    tally: Counter[str] = field(default_factory=Counter)

    def run(self, number: int) -> Run:
        """Begin the next conversation.

        Args:
            number: of it.
        """
        due = tuple(
            {
                "payment": number * 10 + at,
                "amount": self.random.choice([5, 36, 7.25, 1200]),
                "to": self.random.choice(["Ada", 'a "b" {c}', "李雷", "x" * 60]),
            }
            for at in range(self.random.choice([1, 1, 2, 3]))
        )
        talk = self.random.choice(TALK)
        for at, provider in enumerate(self.providers):
            calls = _calls(due, f"{number}_{at}")
            provider.manner.script = Script(text=talk, tool_calls=calls)
            early = self._early_finish(talk, calls)
            provider.manner.raw = early if self.families[at] == "openai" else None
            provider.set_faults(self._fault(talk, calls) if not at or self._one_in(4) else None)
        self.till.expect(due, self._thank)
        mode = self.random.choice(["stream", "atomic"])
        return Run(number=number, headers={"X-Router-Tool-Calls": mode}, due=due)

    def ended(self, *, whole: bool) -> None:
        """The client has its answer, or an error.

        Args:
            whole: it is an answer.
        """
        self.till.check(whole=whole)
        self.tally["whole" if whole else "error"] += 1
        self.tally["paid"] += sum(self.till.paid.values())

    def _thank(self) -> None:
        """A call was made: the model's next answer is text, from providers that fail again."""
        for at, provider in enumerate(self.providers):
            provider.manner.script = Script(text=THANKS)
            provider.manner.raw = None
            provider.set_faults(self._fault(THANKS, ()) if not at else None)

    def _fault(self, talk: str, calls: Sequence[ToolCall]) -> str:
        pieces = len(tokenize(talk)) + sum(1 + len(tokenize(one.arguments)) for one in calls)
        fault = STALL if self._one_in(60) else self.random.choice(FAULTS)
        size = 200 * (pieces + 3)
        return fault.format(k=self.random.randrange(pieces + 1), n=self.random.randrange(size))

    def _early_finish(self, talk: str, calls: Sequence[ToolCall]) -> RawAnswer | None:
        """A provider that says `tool_calls` in mid-arguments."""
        if not self._one_in(12):
            return None
        call = calls[0]
        half = call.arguments[: self.random.randrange(1, len(call.arguments))]
        said = text(talk) if talk else b""
        body = said + begun(call) + more(call, half) + chunk(finish="tool_calls") + DONE
        return RawAnswer(body=body)

    def _one_in(self, times: int) -> bool:
        return self.random.randrange(times) == 0


def _calls(due: Sequence[Mapping[str, Any]], mark: str) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(at, f"call_{mark}_{at}", "pay", json.dumps(arguments, ensure_ascii=False))
        for at, arguments in enumerate(due)
    )


@asynccontextmanager
async def shop(seed: int, families: Sequence[str] = ("openai", "openai")) -> AsyncIterator[Shop]:
    """Open one.

    Args:
        seed: of everything that goes wrong.
        families: of the two providers.
    """
    async with (
        SimulatedProvider(keep_requests=20) as first,
        SimulatedProvider(keep_requests=20) as second,
    ):
        config = routed(
            *map(base_url, (first, second), families),
            types=[FAMILIES[family] for family in families],
            route={
                "timeouts": {"idle_s": 0.3, "first_output_s": 2, "total_s": 20},
                "retry": {"same_target": 0},
            },
            health={"eject_after": 1000},
        )
        async with running_router(config) as router:
            yield Shop(
                router=router,
                providers=[first, second],
                families=families,
                till=Till(),
                random=random.Random(seed),  # noqa: S311 - it is to be repeatable
            )


@asynccontextmanager
async def counter(till: Till) -> AsyncIterator[str]:
    """The till as an HTTP server, for clients in another process; `POST /` with the arguments.

    Args:
        till: that counts.

    Yields:
        Its URL.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            )
            result = till.pay((await reader.readexactly(length)).decode()).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(result), result))
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
