"""One upstream call: opened, read, closed.

Whatever the connection, the provider or the clock does becomes a canonical event or a `Fault` here,
and nowhere else.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import MappingProxyType

from router.core.events import Done, Event, Failed, Reasoning, Refusal, Text, ToolCall
from router.core.faults import Fault, FaultKind, Verdict
from router.engine.clock import Clock, Expired, Watch
from router.engine.upstream import (
    DECODING_ERRORS,
    TRANSPORT_ERRORS,
    Response,
    Upstream,
    body_of,
    words_of,
)
from router.providers.base import MAX_ERROR_BODY_BYTES, Provider, UpstreamRequest

FINISH_GRACE_S = 0.5
"""How long after a finish the usage, late text and `[DONE]` are waited for."""

RELEASE_GRACE_S = 0.1
"""How long the end of a finished body is waited for, so that its connection can be used again."""

_PROGRESS = (Text, Reasoning, ToolCall, Refusal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The clocks of one attempt, in seconds.

    Args:
        connect_s: until the connection stands.
        first_output_s: until the first text, reasoning or tool call.
        idle_s: between two of them.
        deadline_s: monotonic time at which the whole request must be over.
        slow_s: silence between two outputs that is remarked upon, well before `idle_s`.
    """

    connect_s: float
    first_output_s: float
    idle_s: float
    deadline_s: float
    slow_s: float = math.inf


class Attempt:
    """One upstream call.

    Args:
        upstream: the provider's connections.
        provider: builds and reads.
        request: what to send.
        limits: its clocks.
        clock: where time comes from.
        continuing: the request is a continuation.
    """

    def __init__(
        self,
        upstream: Upstream,
        provider: Provider,
        request: UpstreamRequest,
        limits: Limits,
        clock: Clock,
        *,
        continuing: bool = False,
    ) -> None:
        self._upstream = upstream
        self._provider = provider
        self._request = request
        self._limits = limits
        self._clock = clock
        self._reader = provider.reader(continuing=continuing)
        self._response: Response | None = None
        self._body: AsyncIterator[bytes] | None = None
        self._watch = Watch(clock)
        self._wait_kind = FaultKind.FIRST_OUTPUT_TIMEOUT
        self._progressed = False
        self._slow = False
        self._overtaken = False
        self._on_recovered: Callable[[], None] | None = None
        self._waiting_from_s = 0.0
        self._due(limits.first_output_s)
        self.longest_gap_s = 0.0
        """Longest silence between two outputs, in seconds, as far as it was waited for; time in
        which the client took nothing is not the provider's silence."""
        self.ended = False
        """Nothing more will come: the body is over, or a fault was given."""

    async def open(self) -> Fault | None:
        """Send the request and read the status.

        Returns:
            None if a body is coming, else why not.
        """
        try:
            with self._watch:
                response = await self._upstream.send(
                    self._request, connect_s=self._limits.connect_s
                )
                self._response = response
                if response.status_code // 100 == 2:
                    self._body = body_of(response)
                    return None
                body = await _head_of(body_of(response))
        except Expired:
            return self._expired()
        except TRANSPORT_ERRORS as error:
            return _connect_fault(error)
        headers = MappingProxyType({k.lower(): v for k, v in response.headers.items()})
        return self._provider.classify(response.status_code, headers, body)

    async def read(self) -> list[Event]:
        """Wait for the next bytes.

        Returns:
            The events they complete, perhaps none. After the last ones `ended` is true; a fault
            comes as a final `Failed`.
        """
        assert self._body is not None  # noqa: S101 - `open` returned None
        if self._progressed:
            self._progressed = False
            if self._wait_kind is not FaultKind.TRUNCATED:
                self._wait_kind = FaultKind.IDLE_TIMEOUT
            self._due(self._wait_s())
            self._watch.soft_s = self._waiting_from_s + self._limits.slow_s
        try:
            with self._watch:
                data = await anext(self._body)
        except StopAsyncIteration:
            self.ended = True
            return self._reader.close()
        except Expired:
            return self._failed(self._expired())
        except DECODING_ERRORS as error:
            return self._failed(_malformed(f"the body cannot be decoded: {error}"))
        except TRANSPORT_ERRORS as error:
            # Whole events were given already; the rest of a broken one is nobody's text.
            return self._failed(_cut_fault(error))
        events = self._reader.feed(data)
        for event in events:
            if isinstance(event, _PROGRESS):
                self._progressed = True
            elif isinstance(event, (Failed, Done)):
                self.ended = True
        if self._progressed and self._wait_kind is FaultKind.IDLE_TIMEOUT:
            self._heard_again()
        return events

    def _heard_again(self) -> None:
        gap_s = self._clock.now_s() - self._waiting_from_s
        self.longest_gap_s = max(self.longest_gap_s, gap_s)
        if self._slow:
            self._slow = False
            if self._on_recovered is not None:
                self._on_recovered()

    def watch_for_stall(
        self, on_slow: Callable[[], None], on_recovered: Callable[[], None]
    ) -> None:
        """Remark upon silence past `slow_s`, and upon its end.

        Args:
            on_slow: called once per silence, from the event loop, while the read goes on.
            on_recovered: called if output comes after all.
        """

        def slow() -> None:
            self._slow = True
            on_slow()

        self._watch.on_soft = slow
        self._on_recovered = on_recovered

    def overtake(self) -> bool:
        """Another attempt answered first: the present read ends in the fault `idle_timeout`.

        Returns:
            False if no read is waiting: output has just come, and the other is too late.
        """
        self._overtaken = self._slow and self._watch.interrupt()
        return self._overtaken

    def give_up(self) -> None:
        """Nobody wants this answer any more: end the present read, if one is waiting."""
        self._watch.interrupt()

    def expect_end(self) -> None:
        """A finish was seen: from now on only a short grace is given to what may follow it."""
        self._progressed = False
        self._wait_kind = FaultKind.TRUNCATED
        self._due(self._wait_s())

    async def aclose(self, *, finished: bool = False) -> None:
        """Let go of the connection.

        Args:
            finished: the answer is whole, so the connection may be worth keeping: wait a moment
                for the body's end.
        """
        try:
            if finished and self._body is not None:
                await self._run_out(self._body)
        finally:
            self._watch.stop()
            response, self._response = self._response, None
            if response is not None:
                with contextlib.suppress(*TRANSPORT_ERRORS):
                    await response.aclose()

    async def _run_out(self, body: AsyncIterator[bytes]) -> None:
        self._watch.due_s = self._clock.now_s() + RELEASE_GRACE_S
        with contextlib.suppress(Expired, *DECODING_ERRORS, *TRANSPORT_ERRORS), self._watch:
            async for _ in body:
                pass

    def _due(self, limit_s: float) -> None:
        self._waiting_from_s = self._clock.now_s()
        self._watch.due_s = min(self._waiting_from_s + limit_s, self._limits.deadline_s)

    def _expired(self) -> Fault:
        if self._wait_kind is FaultKind.IDLE_TIMEOUT:
            # How long the silence would have lasted is not known; that it lasted so long is.
            # Without this a target that has become slower would be cut off for ever.
            gap_s = self._clock.now_s() - self._waiting_from_s
            self.longest_gap_s = max(self.longest_gap_s, gap_s)
        if self._overtaken:
            return Fault(
                kind=FaultKind.IDLE_TIMEOUT,
                message=f"silent for more than {self._limits.slow_s:.3g} s, "
                "and another target answered first",
            )
        if self._clock.now_s() >= self._limits.deadline_s:
            return Fault(kind=FaultKind.DEADLINE, message="the time for the whole request is over")
        return Fault(kind=self._wait_kind, message=f"no output for {self._wait_s():g} s")

    def _wait_s(self) -> float:
        if self._wait_kind is FaultKind.FIRST_OUTPUT_TIMEOUT:
            return self._limits.first_output_s
        return FINISH_GRACE_S if self._wait_kind is FaultKind.TRUNCATED else self._limits.idle_s

    def _failed(self, fault: Fault) -> list[Event]:
        self.ended = True
        return [Failed(fault)]


async def _head_of(stream: AsyncIterator[bytes]) -> bytes:
    """At most the first `MAX_ERROR_BODY_BYTES`; a body that breaks off gives what came."""
    head = bytearray()
    with contextlib.suppress(*TRANSPORT_ERRORS):
        async for data in stream:
            head += data
            if len(head) >= MAX_ERROR_BODY_BYTES:
                break
    return bytes(head[:MAX_ERROR_BODY_BYTES])


def _connect_fault(error: BaseException) -> Fault:
    return Fault(kind=FaultKind.CONNECT, message=words_of(error))


def _cut_fault(error: BaseException) -> Fault:
    return Fault(kind=FaultKind.CUT, message=words_of(error))


def _malformed(message: str) -> Fault:
    return Fault(kind=FaultKind.MALFORMED, verdict=Verdict.TRANSIENT, message=message)
