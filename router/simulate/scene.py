"""One performance: all that is needed to play one answer into one outlet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from router.simulate.answer import Answer
from router.simulate.dialect import Dialect, Encoder, Wire
from router.simulate.faults import FaultSpec, Misdeed
from router.simulate.records import Ended, LiveRecord
from router.simulate.transport import Outlet

Gate: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Awaited before each token: number of the request, index of the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """A response given byte by byte, for fixtures.

    Args:
        body: all of it.
        splits: offsets at which a new write begins.
        status: HTTP status.
        headers: without framing.
        after: `end` (clean), `fin`, `rst` or `stall`.
    """

    body: bytes
    splits: tuple[int, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/event-stream"),)
    after: str = "end"

    def pieces(self) -> list[bytes]:
        """The body, cut at the splits."""
        edges = [0, *sorted(self.splits), len(self.body)]
        return [self.body[a:b] for a, b in pairwise(edges) if a < b]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast it goes.

    Args:
        tokens_per_s: None is as fast as it can.
        first_token_delay_s: from the request to the first token.
    """

    tokens_per_s: float | None = None
    first_token_delay_s: float = 0.0

    def due_s(self, token: int) -> float:
        """When a token is due, in seconds after the request."""
        return self.first_token_delay_s + (token / self.tokens_per_s if self.tokens_per_s else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that one performance needs.

    Args:
        answer: what is said.
        stream: as a stream.
        wire: the format, for errors.
        encoder: the format, for the answer.
        dialect: its quirks.
        outlet: where the bytes go.
        pace: how fast.
        fault: what goes wrong, or None.
        record: what is remembered.
        gate: awaited before each token, or None.
        sleep: waits so many seconds.
        clock: seconds.
        go_down: closes the provider's listener for so many seconds, or for good.
        raw: a scripted body in place of the answer.
    """

    answer: Answer
    stream: bool
    wire: Wire
    encoder: Encoder
    dialect: Dialect
    outlet: Outlet
    pace: Pace
    record: LiveRecord
    sleep: Callable[[float], Awaitable[None]]
    clock: Callable[[], float]
    go_down: Callable[[float | None], None]
    fault: FaultSpec | None = None
    gate: Gate | None = None
    raw: RawAnswer | None = None
    started: float = 0.0

    def is_at(self, *kinds: Misdeed) -> bool:
        """Whether the fault is one of these."""
        return self.fault is not None and self.fault.kind in kinds

    async def head(
        self,
        status: int,
        content_type: str,
        *,
        extra: tuple[tuple[str, str], ...] = (),
        length: int | None = None,
    ) -> None:
        """Send status and headers, the fault's own among them."""
        named = (self.fault.content_type if self.fault else "") or content_type
        always = (("Content-Type", named), ("X-Request-Id", f"sim-{self.record.facts.number}"))
        self.record.note(status=status)
        await self.outlet.head(status, (*always, *extra), length=length)

    async def send(self, data: bytes, *, last: bool = False) -> None:
        """Send bytes of the body."""
        if data or last:
            try:
                await self.outlet.body(data, last=last)
            finally:
                self.record.bytes_sent = self.outlet.bytes_sent

    async def end(self, data: bytes, how: Ended) -> Ended:
        """Send the last bytes, and the end of the body with them."""
        self.record.closing = how
        await self.send(data, last=True)
        return how

    async def due(self, token: int) -> None:
        """Wait for the gate, then for the time of a token."""
        if self.gate is not None:
            await self.gate(self.record.facts.number, token)
        wait_s = self.started + self.pace.due_s(token) - self.clock()
        if wait_s > 0:
            await self.sleep(wait_s)

    def fin(self) -> Ended:
        """FIN."""
        self.outlet.fin()
        return Ended.CUT

    def rst(self) -> Ended:
        """RST."""
        self.outlet.rst()
        return Ended.CUT
