"""The configured route in this process, narrowed to two targets, the first behind a relay.

Everything but the accident is the owner's own: the request that a target is sent is the one that
the configuration makes of it, only its origin is the relay's. What the drill must not touch is
kept out: records stay in memory, and no other router hears of a target's faults.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from router.api.serving import Serving
from router.books import Row, Wanted
from router.build import build
from router.config import Config
from router.config.schema import Health, Record
from router.core.continuation import Continuation, ContinuationStyle
from router.core.conversation import Loss
from router.core.events import Event, Finish, Text
from router.core.faults import Fault
from router.core.request import ChatRequest, Format
from router.drill.question import Question
from router.drill.relay import Cut, Relay, Seen
from router.engine.observe import Detail, Joined
from router.engine.options import Options
from router.engine.report import StreamReport
from router.engine.route import Route, Target
from router.engine.sink import Failure, StreamHead
from router.engine.upstream import Upstream, make_tls
from router.providers.base import Sent, StreamReader, UpstreamRequest

MAX_HEARD_CHARS: Final = 100_000
"""Bound on the text that is kept of one attempt; the drill's questions bound it far below."""

MAX_BOOKED_ROWS: Final = 10
"""Bound on rows that are read of one request; there should be one."""

_UNSHAKEN = Health(eject_after=1000, eject_rate=1)
"""The drill's own accidents must not take a target out of its next question."""


@dataclass(slots=True)
class Heard:
    """What one attempt was asked and said, before the router made anything of it.

    Args:
        target: whom it asked.
        sent: what was made of the committed text; None for the original question.
        text: the answer as it came, its head if it is long.
    """

    target: str
    sent: Sent | None
    text: str = ""

    def take(self, events: Sequence[Event]) -> None:
        """Note the text among some events."""
        for event in events:
            if isinstance(event, Text) and len(self.text) < MAX_HEARD_CHARS:
                self.text += event.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One question asked through the router, told by everybody who was there.

    Args:
        report: how it went, with every fault as it was.
        rows: what the books have of it.
        delivered: all text that the client got.
        finished: the client got a finish.
        error: the error that it got, or "".
        joins: the seams.
        heard: what each attempt said, in the order of their requests.
        seen: what the relay saw.
    """

    report: StreamReport
    rows: tuple[Row, ...]
    delivered: str
    finished: bool
    error: str
    joins: tuple[Joined, ...]
    heard: tuple[Heard, ...]
    seen: tuple[Seen, ...]

    @property
    def canonical(self) -> str:
        """The delivered text without what was superseded."""
        kept, at = [], 0
        for start, end in self.report.superseded:
            kept.append(self.delivered[at:start])
            at = end
        return "".join((*kept, self.delivered[at:]))

    @property
    def faults(self) -> list[Fault | None]:
        """Of the attempts."""
        return [one.fault for one in self.report.attempts]


@dataclass(slots=True)
class _Notes:
    """What is written down while a question is answered."""

    heard: list[Heard] = field(default_factory=list)
    joins: list[Joined] = field(default_factory=list)

    def observe(self, detail: Detail) -> None:
        """An observer of the router."""
        if isinstance(detail, Joined):
            self.joins.append(detail)


class Stage:
    """Two targets, ready to be asked.

    Args:
        serving: the router.
        route: narrowed to the two.
        relay: in front of the first.
        notes: filled while a question is answered.
    """

    def __init__(self, serving: Serving, route: Route, relay: Relay, notes: _Notes) -> None:
        self._serving = serving
        self._route = route
        self._relay = relay
        self._notes = notes

    async def ask(self, question: Question, cut: Cut | None = None) -> Round:
        """Ask, through the router, with an accident or without.

        Args:
            question: what.
            cut: the accident.

        Returns:
            How it went.
        """
        self._relay.arm(cut)
        self._notes.heard, self._notes.joins = [], []
        client, engine = _Client(), self._serving.engine
        report = await engine.run(
            question.request(self._route.name),
            self._route,
            client,
            stream_id=engine.new_stream_id(),
            digest=secrets.token_hex(),  # nobody can resume a drill
            owner="",
            options=Options(think_tags=self._route.think_tags),
        )
        return Round(
            report=report,
            rows=await self._booked(report.stream_id),
            delivered="".join(client.texts),
            finished=client.finished,
            error=client.error,
            joins=tuple(self._notes.joins),
            heard=tuple(self._notes.heard),
            seen=await self._relay.settled(),
        )

    async def _booked(self, stream_id: str) -> tuple[Row, ...]:
        """Read from the books as an owner does."""
        wanted = Wanted(stream_id=stream_id)
        found = await self._serving.books.find(wanted, cursor=None, limit=MAX_BOOKED_ROWS)
        return tuple(msgspec.json.decode(row, type=Row) for row in found.rows)


@asynccontextmanager
async def set_stage(config: Config, route: str, cut: int, goes_on: int) -> AsyncIterator[Stage]:
    """Put a router up; when the block is left, nothing of it is left open.

    Args:
        config: the owner's.
        route: the public model name.
        cut: position of the target behind the relay, from 0.
        goes_on: position of the one that is asked next; the same if there is only one.
    """
    own = config.model_copy(update={"record": Record(), "health": _UNSHAKEN})
    notes = _Notes()
    serving = build(own, observers=(notes.observe,))
    upstream = Upstream(verify=make_tls())
    try:
        await serving.start()
        whole = serving.generation.routes[route]
        first = whole.targets[cut]
        relay = Relay(
            "{0.scheme}://{0.netloc}".format(urlsplit(first.provider.url)),
            upstream=upstream,
            make_reader=first.provider.reader,
            connect_s=first.connect_s,
        )
        async with relay:
            targets = [_tapped(first, notes, relay.url)]
            if goes_on != cut:
                targets.append(_tapped(whole.targets[goes_on], notes, None))
            yield Stage(serving, replace(whole, targets=tuple(targets)), relay, notes)
    finally:
        await serving.aclose()
        await serving.engine.store.aclose()
        await upstream.aclose()


def _tapped(target: Target, notes: _Notes, origin: str | None) -> Target:
    return replace(target, provider=_Tapped(target, notes, origin))


class _Tapped:
    """A provider whose answers are overheard, and whose requests may go to another origin.

    Args:
        target: whose provider it is.
        notes: gets what each attempt says.
        origin: scheme, host and port that requests go to; None leaves them.
    """

    def __init__(self, target: Target, notes: _Notes, origin: str | None) -> None:
        self._name = target.name
        self._provider = target.provider
        self._notes = notes
        self._origin = origin

    @property
    def url(self) -> str:
        """The provider's own, at the other origin."""
        return self._rerouted(self._provider.url)

    @property
    def continuation(self) -> ContinuationStyle:
        """The provider's own."""
        return self._provider.continuation

    def build(
        self, request: ChatRequest, continuation: Continuation | None, *, first: bool = True
    ) -> UpstreamRequest:
        """The provider's own request; with it an attempt begins."""
        sent = self._provider.sends(request, continuation) if continuation else None
        self._notes.heard.append(Heard(self._name, sent))
        built = self._provider.build(request, continuation, first=first)
        return replace(built, url=self._rerouted(built.url))

    def _rerouted(self, url: str) -> str:
        if self._origin is None:
            return url
        _, _, path, query, _ = urlsplit(url)
        scheme, _, place = self._origin.partition("://")
        return urlunsplit((scheme, place, path, query, ""))

    def sends(self, request: ChatRequest, continuation: Continuation) -> Sent:
        """The provider's own."""
        return self._provider.sends(request, continuation)

    @property
    def format(self) -> Format:
        """The provider's own."""
        return self._provider.format

    def losses(self, request: ChatRequest, *, first: bool = True) -> tuple[Loss, ...]:
        """The provider's own."""
        return self._provider.losses(request, first=first)

    def reader(self, *, continuing: bool = False) -> StreamReader:
        """The provider's own, overheard: it is asked for right after the request it reads for."""
        return _Tap(self._provider.reader(continuing=continuing), self._notes.heard[-1])

    def classify(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """The provider's own."""
        return self._provider.classify(status, headers, body)

    def count_request(self, request: ChatRequest) -> UpstreamRequest | None:
        """The provider's own; a drill counts nothing."""
        return self._provider.count_request(request)

    def read_count(self, body: bytes) -> int:
        """The provider's own."""
        return self._provider.read_count(body)


class _Tap:
    """A reader that is overheard."""

    def __init__(self, reader: StreamReader, heard: Heard) -> None:
        self._reader = reader
        self._heard = heard

    def feed(self, data: bytes) -> list[Event]:
        events = self._reader.feed(data)
        self._heard.take(events)
        return events

    def close(self) -> list[Event]:
        events = self._reader.close()
        self._heard.take(events)
        return events


class _Client:
    """The sink: a client that keeps what it gets."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.finished = False
        self.error = ""

    async def open(self, head: StreamHead) -> None:
        """Nothing to keep of it."""

    async def deliver(self, events: Sequence[Event]) -> None:
        """Keep the text."""
        self.texts += [event.text for event in events if isinstance(event, Text)]

    async def reassure(self) -> None:
        """It waits as long as it takes."""

    async def reset(self, reason: str) -> None:
        """A drill never asks for answers that begin anew."""

    async def finish(
        self, finishes: Sequence[Finish], usage: Mapping[str, Any], report: StreamReport
    ) -> None:
        """The answer is whole."""
        del usage, report  # `run` returns the report
        self.finished = bool(finishes)

    async def fail(self, failure: Failure) -> None:
        """It is not."""
        self.error = failure.message
