"""One stream: what arrives is delivered, counted and committed; what breaks is spliced.

`Stream` knows nothing of retries and targets: `engine.py` opens attempts and hands them in. Here is
the per-token path: one read, one pass over its events, one delivery, one feed of the boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from router.core.commit import CommitMachine, State
from router.core.continuation import Continuation, ContinuationStyle, Echo, Style
from router.core.events import (
    Event,
    Extra,
    Failed,
    Finish,
    Opened,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Usage,
)
from router.core.failover import Phase
from router.core.faults import Fault, FaultKind
from router.core.request import ChatRequest
from router.core.splice import Join, Outcome, Splice
from router.core.structured import JsonFault, Passed, Structured
from router.engine.attempt import Attempt
from router.engine.clock import Clock
from router.engine.meter import CHARS_PER_TOKEN, Meter
from router.engine.observe import Committed, Joined, Observers
from router.engine.report import FailoverReport
from router.engine.route import Route, Target
from router.engine.sink import Sink, StreamHead
from router.providers.base import Sent
from router.store.base import RecordHead, RecordStore, RecordWriter

_RARE_OUTPUT = (Reasoning, ToolCall, Refusal)
"""What counts as output besides text."""

_GOES_ON = Join(outcome=Outcome.AGREES)
"""How a document's seam is explained: it has no fragment to disagree with."""

MAX_HELD_EXTRAS = 64
"""Bound on fields of unknown meaning that wait for the first output."""


class Fenced(Exception):
    """Another router took the stream over: this one must fall silent."""


@dataclass(slots=True, kw_only=True)
class OpenFailover:
    """A failover that is under way.

    Args:
        source: name of the target that failed.
        to: name of the target that was asked to go on.
        fault: why.
        style: how it was asked.
        committed_chars: length of the prefix.
    """

    source: str
    to: str
    fault: Fault
    style: str
    committed_chars: int

    def report(self, join: str = "", pause_ms: float | None = None) -> FailoverReport:
        """How it went.

        Args:
            join: how the seam was explained.
            pause_ms: what the client waited.
        """
        return FailoverReport(
            from_target=self.source,
            to_target=self.to,
            fault=self.fault,
            style=self.style,
            committed_chars=self.committed_chars,
            join=join,
            pause_ms=pause_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seam:
    """A join that was decided and whose first new text is still to come."""

    failover: OpenFailover
    join: Join
    fragment_chars: int
    superseded_chars: int


class Stream:
    """One request's answer, across all its attempts.

    Args:
        head: what the record knows of it.
        request: what was asked.
        route: where it may be answered.
        sink: the client.
        store: the failover records.
        clock: where time comes from.
        tell: the observers.
        structured: the JSON document that is asked for, or None for text.
    """

    def __init__(
        self,
        *,
        head: RecordHead,
        request: ChatRequest,
        route: Route,
        sink: Sink,
        store: RecordStore,
        clock: Clock,
        tell: Observers,
        structured: Structured | None = None,
    ) -> None:
        self.head = head
        self.on_answering: Callable[[Target], None] | None = None
        """Told once per attempt that its target has sent output."""
        self.request = request
        self.machine = CommitMachine()
        self.failovers: list[FailoverReport] = []
        self.first_output_s: float | None = None
        self.began = False
        """Something reached the client: its status line, if nothing else."""
        self._sink = sink
        self._store = store
        self._clock = clock
        self._tell = tell
        self._boundary = route.make_boundary()
        self._record: RecordWriter | None = None
        self._record_meta_changed = False
        self._finishes: dict[int, Finish] = {}
        self._spoke: set[int] = set()
        self._extras: list[Event] = []
        self._splice: Splice | None = None
        self._structured = structured
        self._violation: JsonFault | None = None
        self._plain = structured is None
        """Text goes out as it comes: no seam, no document."""
        self._failover: OpenFailover | None = None
        self._joined: _Seam | None = None
        self._last_output_s = 0.0
        # What no second model can take up: several answers at once, or log probabilities.
        self._single = request.n == 1 and not request.logprobs
        self._sealed = False

    # -- what the loop asks ------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """How far the stream is, as far as failover cares."""
        if self._sealed or self.machine.state is State.TOOL:
            return Phase.SEALED
        before = self.machine.state is State.OPENING
        return Phase.BEFORE_OUTPUT if before else Phase.TEXT

    @property
    def finishes(self) -> tuple[Finish, ...]:
        """The finish of each choice."""
        return tuple(self._finishes[choice] for choice in sorted(self._finishes))

    def continuation(self, how: ContinuationStyle) -> Continuation | None:
        """What to ask the next target for.

        Args:
            how: its style.

        Returns:
            None for the original question: opening a stream is not a commit.
        """
        prefix = self.machine.committed_text
        if not prefix:
            return None
        return Continuation(
            how=how,
            prefix=prefix,
            in_fence=None if self._structured is not None else self._boundary.in_fence,
            spent_tokens=len(prefix) // CHARS_PER_TOKEN,
            violation=str(self._violation) if self._violation is not None else "",
        )

    def expect(
        self, how: ContinuationStyle, sent: Sent | None, failover: OpenFailover | None
    ) -> None:
        """An attempt begins.

        Args:
            how: the target's style.
            sent: what was made of it, None for the original question.
            failover: the change that leads to it, or None for the first attempt and for a retry.
        """
        self._finishes.clear()
        self._extras.clear()
        self._failover = failover
        self._splice = None
        if self._structured is not None:
            self._structured.expect(raw=sent is not None and sent.style is not Style.RESTART)
        elif self.machine.delivered_chars:
            self._splice = Splice(
                sent.prefix if sent else "",
                self.machine.fragment,
                echo=how.echo if sent else Echo.NEVER,
                in_fence=self._boundary.in_fence,
                must_align=sent is not None and sent.style is Style.RESTART,
                bare_start=sent is not None and sent.style is Style.INSTRUCT,
            )
        self._plain = self._splice is None and self._structured is None

    def fault(self) -> None:
        """The attempt ended badly and another may follow."""
        self._record_meta_changed = True
        if self.machine.state is not State.TOOL:
            self.machine.fault()
        self.settle()

    def settle(self) -> None:
        """No more text will come of this attempt: close the account of the failover to it."""
        self._tell_joined(None)
        if self._failover is not None:
            self.failovers.append(self._failover.report())
            self._failover = None

    def close_record(self, outcome: str, *, keep_s: float) -> None:
        """The stream is over.

        Args:
            outcome: how it ended.
            keep_s: how long its text is kept, in seconds.
        """
        if self._record is not None:
            self._record.close(outcome, keep_s=keep_s)

    # -- one attempt -------------------------------------------------------------------------

    async def consume(
        self, attempt: Attempt, meter: Meter, target: Target, first: list[Event]
    ) -> Fault | None:
        """Read an attempt to its end.

        Args:
            attempt: open.
            meter: counts it.
            target: whom it asks.
            first: events that were read already.

        Returns:
            None if the answer is whole, else why it is not.

        Raises:
            Fenced: another router owns the record.
        """
        expecting_end = False
        events = first
        while True:
            fault = await self._take(events or await attempt.read(), meter, target)
            events = []
            if self._finishes and self._finishes.keys() >= self._spoke:
                # A finish that was seen is an end, whatever breaks after it.
                if attempt.ended or fault is not None:
                    return await self._end_of_answer(meter, target)
                if not expecting_end:
                    expecting_end = True
                    attempt.expect_end()
            elif fault is not None:
                return fault
            elif attempt.ended:
                return Fault(kind=FaultKind.TRUNCATED, message="the stream ended without a finish")

    async def _take(self, events: list[Event], meter: Meter, target: Target) -> Fault | None:
        """One pass over what one read brought, then one delivery."""
        out: list[Event] = []
        texts: list[str] = []
        chunks = chars = 0
        fault: Fault | None = None
        for event in events:
            if type(event) is Text:
                chunks += 1
                chars += len(event.text)
                if self._plain:
                    out.append(event)
                    if event.choice == 0:
                        texts.append(event.text)
                else:
                    fault = self._take_text(event.text, out, texts)
            elif type(event) is Failed:
                fault = event.fault
            else:
                chunks += isinstance(event, _RARE_OUTPUT)
                fault = self._take_rare(event, out, texts, meter)
            if fault is not None:
                break
        if chunks:
            if not meter.chunks and self.on_answering is not None:
                self.on_answering(target)
            meter.output(chunks, chars)
        if out:
            await self._deliver(out, texts, meter, target)
        return fault

    def _take_text(self, text: str, out: list[Event], texts: list[str]) -> Fault | None:
        """Text that is looked at before it goes out: at a seam, or of a document."""
        if self._structured is not None:
            return self._pass(self._structured.feed(text), out, texts)
        if self._splice is not None:
            return self._join(self._splice.feed(text), out, texts)
        # The seam was found earlier in this very read.
        out.append(Text(text))
        texts.append(text)
        return None

    def _pass(self, passed: Passed, out: list[Event], texts: list[str]) -> Fault | None:
        """Whole values of a document, and what is wrong with the next one."""
        if passed.text:
            out.append(Text(passed.text))
            texts.append(passed.text)
            self._note_join(_GOES_ON, 0, 0)
        if passed.fault is None:
            return None
        self._finishes.clear()  # it may be finished, but not with a document
        self._violation = passed.fault
        return Fault(kind=FaultKind.SCHEMA_VIOLATION, message=str(passed.fault))

    def _take_rare(
        self, event: Event, out: list[Event], texts: list[str], meter: Meter
    ) -> Fault | None:
        """Everything but text."""
        match event:
            case Reasoning():
                out.append(event)
            case ToolCall():
                if self._splice is not None:
                    fault = self._join(self._splice.finish(), out, texts)
                    if fault is not None:
                        return fault
                out.append(event)
            case Refusal():
                self._sealed = True
                out.append(event)
            case Extra():
                self._take_extra(event, out)
            case Opened():
                meter.model = event.model
            case Usage():
                meter.usage = event
            case Finish():
                self._finishes[event.choice] = event
            case _:
                pass
        return None

    def _take_extra(self, event: Extra, out: list[Event]) -> None:
        if "audio" in event.fields:
            self._sealed = True
        if self.began or out:
            out.append(event)
        elif len(self._extras) < MAX_HELD_EXTRAS:
            self._extras.append(event)  # no output by itself: it waits for some

    async def _deliver(
        self, out: list[Event], texts: list[str], meter: Meter, target: Target
    ) -> None:
        if not self.began:
            await self.begin(meter, target)
            out = [*self._extras, *out]
        await self._sink.deliver(out)
        now_s = self._clock.now_s()
        if self._joined is not None and texts:
            self._tell_joined(1000 * (now_s - self._last_output_s))
        self._last_output_s = now_s
        if not self._single or len(out) != len(texts):
            self._note_rare(out)
        if texts:
            self._advance(texts[0] if len(texts) == 1 else "".join(texts))

    async def begin(self, meter: Meter, target: Target) -> None:
        """The first output of the stream, or an empty answer: the client is told that one comes.

        Args:
            meter: of the attempt that produced it.
            target: whom it asked.
        """
        if self.began:
            return
        self.began = True
        self.first_output_s = self._clock.now_s()
        self._record = self._store.open(self.head)
        # Asked only after the store has lost something: the record catches up from our own copy.
        self._record.source = self._committed_text
        await self._sink.open(
            StreamHead(stream_id=self.head.stream_id, target=target.name, model=meter.model)
        )

    def _committed_text(self) -> str:
        return self.machine.committed_text

    def _note_rare(self, out: list[Event]) -> None:
        """Remember what forbids a failover or a finish."""
        for event in out:
            if isinstance(event, (Text, ToolCall, Refusal)):
                self._spoke.add(event.choice)
                if not self._single:
                    self._sealed = True
            if isinstance(event, ToolCall):
                self.machine.tool()

    def _advance(self, text: str) -> None:
        """Text is with the client: move the record if that completes a boundary."""
        self.machine.text(text)
        # Of a document only whole values go out, so all of it may be committed.
        chars = len(text) if self._structured is not None else self._boundary.feed(text)
        if chars:
            self._commit(chars)

    def _commit(self, chars: int) -> None:
        at_chars = self.machine.committed_chars
        delta = self.machine.commit(chars)
        record = self._record
        if record is None:
            return
        meta = self._record_meta() if self._record_meta_changed else None
        self._record_meta_changed = False
        record.commit(delta, at_chars=at_chars, meta=meta)
        self._tell(
            Committed(
                stream_id=self.head.stream_id, committed_chars=at_chars + len(delta), delta=delta
            )
        )
        if record.fenced:
            raise Fenced

    def _record_meta(self) -> dict[str, object]:
        """What a router that takes the stream over must know besides the text."""
        return {
            "superseded": [list(span) for span in self.machine.superseded],
            "tool_call": self.machine.state is State.TOOL,
        }

    # -- the seam ----------------------------------------------------------------------------

    def _join(self, join: Join | None, out: list[Event], texts: list[str]) -> Fault | None:
        """Apply the splice's decision: deliver nothing twice, supersede what was reworded."""
        if join is None:
            return None
        if join.outcome is Outcome.DIVERGED:
            self._finishes.clear()  # it may be finished, but not with our answer
            return Fault(
                kind=FaultKind.DIVERGED,
                message="the continuation wrote the committed text anew, in other words",
            )
        fragment_chars = len(self.machine.fragment)
        before = self.machine.delivered_chars
        if join.keep_chars < fragment_chars:
            self._supersede(join, out)
        self._splice = None
        self._plain = True
        self._note_join(join, fragment_chars, self.machine.delivered_chars - before)
        if join.text:
            out.append(Text(join.text))
            texts.append(join.text)
        return None

    def _supersede(self, join: Join, out: list[Event]) -> None:
        self.machine.supersede(join.keep_chars, join.separator)
        self._boundary.rewind(join.keep_chars)
        self._record_meta_changed = True
        if join.separator:
            out.append(Text(join.separator))

    def _note_join(self, join: Join, fragment_chars: int, separator_chars: int) -> None:
        failover, self._failover = self._failover, None
        if failover is not None:
            replaced = fragment_chars - join.keep_chars
            self._joined = _Seam(
                failover=failover,
                join=join,
                fragment_chars=fragment_chars,
                superseded_chars=replaced + separator_chars if replaced else 0,
            )

    def _tell_joined(self, pause_ms: float | None) -> None:
        seam, self._joined = self._joined, None
        if seam is None:
            return
        report = seam.failover.report(seam.join.outcome.value, pause_ms)
        self.failovers.append(report)
        self._tell(
            Joined(
                stream_id=self.head.stream_id,
                report=report,
                fragment_chars=seam.fragment_chars,
                superseded_chars=seam.superseded_chars,
                dropped=seam.join.dropped,
            )
        )

    async def _end_of_answer(self, meter: Meter, target: Target) -> Fault | None:
        """A finish is held: is the answer really whole? A continuation may have said nothing."""
        out: list[Event] = []
        texts: list[str] = []
        if self._structured is not None:
            fault = self._end_of_document(out, texts)
            if out:
                await self._deliver(out, texts, meter, target)
            return fault
        if self._splice is None:
            return None
        join = self._splice.finish()
        if join.outcome is Outcome.EMPTY and self.machine.fragment.strip():
            return Fault(
                kind=FaultKind.TRUNCATED,
                message="the continuation ended without completing the sentence it was given",
            )
        fault = self._join(join, out, texts)
        if fault is None and out:
            await self._deliver(out, texts, meter, target)
        return fault

    def _end_of_document(self, out: list[Event], texts: list[str]) -> Fault | None:
        """A finish is held: is the document whole?

        `length` and a content filter are finishes, and say themselves that something is missing; a
        refusal or a tool call stands in a document's place.
        """
        structured = self._structured
        cut_short = any(one.reason in ("length", "content_filter") for one in self.finishes)
        instead = self._sealed or self.machine.state is State.TOOL
        if structured is None or cut_short or instead:
            return None
        return self._pass(structured.finish(), out, texts)
