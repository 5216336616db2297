"""What the simulated provider remembers of its requests, and how a test waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from router.core.continuation import Style
from router.simulate.faults import Misdeed

MAX_RECORDS = 10_000
"""Requests remembered; a provider that runs for days forgets the oldest."""


class Ended(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    """Everything was sent."""
    FAILED = "failed"
    """A clean end of something that was no answer, on purpose."""
    REJECTED = "rejected"
    """An HTTP error status."""
    CUT = "cut"
    """The connection was closed or reset, on purpose."""
    CLIENT_CLOSED = "client_closed"
    """The client went away first."""
    SERVER_CLOSED = "server_closed"
    """The provider was shut down first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request for an answer. Times are readings of the provider's clock, in seconds.

    Args:
        number: from 0, in order of arrival.
        path: of the URL.
        query: of the URL.
        headers: names in lower case.
        raw: the body's bytes.
        body: as parsed; empty if it was no JSON object.
        model: the name asked for, without directives.
        stream: a stream was asked for; False while the request is not read.
        messages: how many messages (turns, contents) it holds, in whatever format.
        tools: names of the tools that it offers.
        thinking: it switches reasoning on, or off; None where it says nothing of it.
        received_at: the request was read.
        style: how it asked to continue a prefix, or None.
        prefix: that prefix, or "".
        behaviour: what was done with it, or "".
        found: the prefix was found in what there is to say; None if there was none.
        fault: the misdeed that struck, or None.
        status: HTTP status sent, 0 while none was.
        tokens_sent: pieces handed to the socket whole.
        bytes_sent: bytes of the body handed to the socket.
        first_token_at: None while none was sent.
        last_token_at: None while none was sent.
        finish_sent: the finish was handed to the socket.
        ended_at: None while it runs.
        ended: None while it runs.
    """

    number: int
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    received_at: float
    query: str = ""
    raw: bytes = b""
    model: str = ""
    stream: bool = False
    messages: int = 0
    tools: tuple[str, ...] = ()
    thinking: bool | None = None
    style: Style | None = None
    prefix: str = ""
    behaviour: str = ""
    found: bool | None = None
    fault: Misdeed | None = None
    status: int = 0
    tokens_sent: int = 0
    bytes_sent: int = 0
    first_token_at: float | None = None
    last_token_at: float | None = None
    finish_sent: bool = False
    ended_at: float | None = None
    ended: Ended | None = None


@dataclass(slots=True)
class LiveRecord:
    """The growing form of one record; `snapshot` is what others get to see."""

    facts: RequestRecord
    clock: Callable[[], float]
    journal: Journal
    tokens_sent: int = 0
    bytes_sent: int = 0
    first_token_at: float | None = None
    last_token_at: float | None = None
    finish_sent: bool = False
    closing: Ended | None = None  # the last bytes are on their way, and this is what they make it
    ended: Ended | None = None
    ended_at: float | None = None

    def note(self, **changes: object) -> None:
        """Set fields that are decided once."""
        self.facts = replace(self.facts, **changes)  # type: ignore[arg-type]  # names are checked by replace
        self.journal.changed()

    def sent(self, tokens: int) -> None:
        """So many more pieces are with the socket."""
        if tokens == 0:
            return
        now = self.clock()
        if self.first_token_at is None:
            self.first_token_at = now
        self.last_token_at = now
        self.tokens_sent += tokens
        self.journal.changed()

    def end(self, how: Ended) -> None:
        """It is over; the first word counts."""
        if self.ended is None:
            self.ended, self.ended_at = how, self.clock()
            self.journal.changed()

    def snapshot(self) -> RequestRecord:
        """The record as it stands."""
        return replace(
            self.facts,
            tokens_sent=self.tokens_sent,
            bytes_sent=self.bytes_sent,
            first_token_at=self.first_token_at,
            last_token_at=self.last_token_at,
            finish_sent=self.finish_sent,
            ended=self.ended,
            ended_at=self.ended_at,
        )


@dataclass(slots=True)
class Journal:
    """All live records, and the futures of those who wait for a change in them."""

    kept: int = MAX_RECORDS
    forgotten: int = 0
    records: list[LiveRecord] = field(default_factory=list)
    _waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Requests seen so far."""
        return self.forgotten + len(self.records)

    def add(self, record: LiveRecord) -> None:
        """A request came in."""
        self.records.append(record)
        if len(self.records) > self.kept:
            del self.records[0]
            self.forgotten += 1
        self.changed()

    def get(self, number: int) -> LiveRecord | None:
        """The record of a request, or None if it has not come or is forgotten."""
        index = number - self.forgotten
        return self.records[index] if 0 <= index < len(self.records) else None

    def changed(self) -> None:
        """Wake those whose wait is over. Costs nothing while nobody waits."""
        if not self._waiting:
            return
        for condition, future in self._waiting:
            if not future.done() and condition():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the records holds; it is asked at every change."""
        if condition():
            return
        entry = (condition, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            await entry[1]
        finally:
            self._waiting.remove(entry)
