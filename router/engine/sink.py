"""Where a stream goes: what the engine needs of a client-facing format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from router.core.events import Event, Finish
from router.engine.report import StreamReport


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHead:
    """What is fixed when the first output is at hand.

    Args:
        stream_id: id of the stream and of its record.
        target: the first producing target.
        model: as that target reports it.
    """

    stream_id: str
    target: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A stream that cannot go on, or never began.

    Args:
        status: HTTP status, should nothing have been sent yet.
        message: a sentence a person can act on.
        type: OpenAI's error type.
        code: why, as a stable word.
        param: the request field at fault, or None.
        retry_after_s: seconds until a new try makes sense, or None if not known.
        begun: something was delivered already, so the error goes in band.
        report: how it went.
        partial: the client wanted what was delivered to stand: it is no error to it.
        closers: what closes a delivered document so that it parses, "" for text.
    """

    status: int
    message: str
    type: str
    code: str | None
    param: str | None
    retry_after_s: float | None
    begun: bool
    report: StreamReport
    partial: bool = False
    closers: str = ""


class Sink(Protocol):
    """One client. Calls come one at a time; each returns when the client's socket has taken it."""

    async def open(self, head: StreamHead) -> None:
        """The first output is at hand; always before `deliver`."""
        ...

    async def deliver(self, events: Sequence[Event]) -> None:
        """Send output on.

        Args:
            events: text, reasoning, refusals, tool calls and extras, in order.
        """
        ...

    async def reassure(self) -> None:
        """Nothing to deliver for a while, and all is well: a sign of life, if there is one."""
        ...

    async def reset(self, reason: str) -> None:
        """The client, which asked for that, is told to forget what it has.

        Args:
            reason: a stable word.
        """
        ...

    async def finish(
        self, finishes: Sequence[Finish], usage: Mapping[str, Any], report: StreamReport
    ) -> None:
        """The answer is whole.

        Args:
            finishes: one per choice, by choice.
            usage: the usage object for the client.
            report: how it went.
        """
        ...

    async def fail(self, failure: Failure) -> None:
        """The stream ends without a finish.

        Args:
            failure: why, and what to tell.
        """
        ...
