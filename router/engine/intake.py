"""From what an attempt sends to what may be delivered.

Between the two stand, where they are wanted: the seam after a failover (`core/splice.py`), the
document of structured output (`core/structured.py`), tool calls that are held until they are whole
(`core/tools.py`), stop sequences across a seam, `<think>` tags. For plain text none of them is, and
an event goes straight through.

`Intake` decides and never sends; `stream.py` sends what it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from router.core.boundary import Boundary
from router.core.commit import CommitMachine
from router.core.continuation import ContinuationStyle, Echo, Style
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
from router.core.faults import Fault, FaultKind
from router.core.json_values import ValueEnd
from router.core.request import ChatRequest
from router.core.splice import Join, Outcome, Splice
from router.core.stops import StopGuard, begins_stop
from router.core.structured import JsonFault, Passed, Structured
from router.core.think import ThinkSplitter
from router.core.tools import ToolHold, UnfinishedCall
from router.engine.meter import Meter
from router.engine.options import Options
from router.providers.base import Sent

MAX_HELD_EXTRAS = 64
"""Bound on fields of unknown meaning that wait for the first output of an attempt."""

PROVIDER_TOOLS = frozenset(
    {"annotations", "citations", "executed_tools", "mcp_tool_use", "server_tool_use"}
)
"""Delta fields that show that the provider itself ran a tool: that counts as a tool call."""

MAX_SURPLUS_CHARS = 10_000
"""How long a model that has written its document may go on talking before it is left alone."""

_CUT_SHORT = frozenset({"length", "content_filter"})
"""Finishes that say themselves that something is missing."""


@dataclass(slots=True)
class Batch:
    """What one read may deliver.

    Args:
        out: events to send, in order.
        texts: those texts among them that are part of the canonical answer.
        fault: why nothing more can come of this attempt, or None.
        seam: the join that was decided in this batch, or None.
        spoke: some of it is output.
        ends: the values of a document that the texts complete.
    """

    out: list[Event] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    fault: Fault | None = None
    seam: Seam | None = None
    spoke: bool = False
    ends: Sequence[ValueEnd] = ()

    def text(self, text: str) -> None:
        """Canonical text to send."""
        self.out.append(Text(text))
        self.texts.append(text)

    def shorten(self, chars: int) -> None:
        """Send only the first so many characters of the texts."""
        kept: list[Event] = []
        self.texts.clear()
        for event in self.out:
            if isinstance(event, Text):
                text, chars = event.text[:chars], chars - min(chars, len(event.text))
                if text:
                    kept.append(Text(text))
                    self.texts.append(text)
            else:
                kept.append(event)
        self.out = kept
        if not self.texts:
            self.seam = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seam:
    """A join, in figures.

    Args:
        join: the decision.
        fragment_chars: what the client had beyond the committed text.
        superseded_chars: how much of it was replaced, the separator included.
    """

    join: Join
    fragment_chars: int
    superseded_chars: int


class Intake:
    """Turns the events of all attempts of one stream into what may be delivered.

    Args:
        request: what was asked.
        options: what the client chose.
        machine: how far the stream is.
        boundary: told when pending text is replaced.
        structured: the document that is asked for, or None for text.
    """

    def __init__(
        self,
        *,
        request: ChatRequest,
        options: Options,
        machine: CommitMachine,
        boundary: Boundary,
        structured: Structured | None,
    ) -> None:
        self._request = request
        self._options = options
        self._machine = machine
        self._boundary = boundary
        self._structured = structured
        self._splice: Splice | None = None
        self._stops: StopGuard | None = None
        self._think: dict[int, ThinkSplitter] | None = None
        self._hold: ToolHold | None = None
        self._finishes: dict[int, Finish] = {}
        self._spoke: set[int] = set()
        self._extras: list[Event] = []
        self._spoken = False
        self._plain = True
        self._instead = False  # a refusal or a tool call stands in a document's place
        self._surplus_chars = 0  # that came after a whole document
        self._sole = _sole(request)
        self.sealed = ""
        """What was delivered that no second model can take up, a tool call apart; a clause."""
        self.ran: set[str] = set()
        """What shows that the provider itself ran a tool."""
        self.violation: JsonFault | str | None = None
        """What was wrong with the last attempt's next value."""
        self.stopped = False
        """A stop sequence was completed across a seam: the answer ends here."""

    @property
    def finishes(self) -> tuple[Finish, ...]:
        """The finish of each choice, by choice."""
        return tuple(self._finishes[choice] for choice in sorted(self._finishes))

    @property
    def finished(self) -> bool:
        """Every choice that said something has its finish."""
        return bool(self._finishes) and self._finishes.keys() >= self._spoke

    @property
    def settled(self) -> bool:
        """So has every choice that was asked for, or the answer was ended here."""
        return self.stopped or (self.finished and len(self._finishes) >= self._request.n)

    def conclude(self) -> bool:
        """The attempt has ended in another way than by its finish: is the answer whole even so?

        A whole document is an end, whatever breaks after it.

        Returns:
            Whether it is; its finish is noted then.
        """
        whole = self._structured is not None and self._structured.complete and not self._instead
        if whole and not self._finishes:
            self._finishes[0] = Finish(reason="stop", raw="the document is whole")
        return whole

    @property
    def cut_short(self) -> bool:
        """A finish says itself that something is missing."""
        return any(one.reason in _CUT_SHORT for one in self._finishes.values())

    @property
    def closers(self) -> str:
        """What closes a delivered document so that it parses."""
        return self._structured.closers if self._structured is not None else ""

    def expect(self, how: ContinuationStyle, sent: Sent | None) -> None:
        """An attempt begins.

        Args:
            how: the target's style.
            sent: what was made of it, None for the original question.
        """
        self._finishes.clear()
        self._spoke.clear()
        self._extras.clear()
        self._splice = self._stops = None
        self.stopped = False
        self._surplus_chars = 0
        self._think = {} if self._options.think_tags else None
        self._hold = ToolHold(self._options.tools) if self._options.atomic_tools else None
        if self._structured is not None:
            self._structured.expect(raw=sent is not None and sent.style is not Style.RESTART)
        elif self._machine.delivered_chars:
            self._splice = Splice(
                sent.prefix if sent else "",
                self._machine.fragment,
                echo=how.echo if sent else Echo.NEVER,
                in_fence=self._boundary.in_fence,
                must_align=sent is not None and sent.style is Style.RESTART,
                bare_start=sent is not None and sent.style is Style.INSTRUCT,
            )
        self._settle_plain()

    def reject(self, why: JsonFault | str) -> None:
        """What the attempt wrote may not stand.

        Args:
            why: what is wrong with it.
        """
        self._finishes.clear()
        self.violation = why

    def restart(self) -> None:
        """The client forgets what it has: the next attempt begins the answer."""
        self._spoke.clear()
        self._spoken = self._instead = False
        if self._structured is not None:
            self._structured.restart()

    def take(self, events: list[Event], meter: Meter) -> Batch:
        """One pass over what one read brought.

        Args:
            events: in order.
            meter: of the attempt.

        Returns:
            What may be delivered.
        """
        batch = Batch()
        chunks = chars = 0
        for event in events:
            if type(event) is Text:
                if event.choice and event.choice >= self._request.n:
                    continue  # a choice that nobody asked for
                chunks += 1
                chars += len(event.text)
                if self._plain:
                    batch.out.append(event)
                    if event.choice == 0:
                        batch.texts.append(event.text)
                else:
                    self._take_text(event, batch, meter)
            elif type(event) is Failed:
                batch.fault = event.fault
            elif getattr(event, "choice", 0) < self._request.n:
                chunks += isinstance(event, (Reasoning, ToolCall, Refusal))
                self._take_rare(event, batch, meter)
            if batch.fault is not None or self.stopped:
                break
        if chunks:
            batch.spoke = True
            meter.output(chunks, chars)
        if batch.out:
            self._account(batch)
        return batch

    def end(self, meter: Meter) -> Batch:
        """The attempt's finish is final: is the answer really whole?

        Args:
            meter: of the attempt.

        Returns:
            What was still held back, and a fault if something is missing.
        """
        batch = Batch()
        for choice, splitter in (self._think or {}).items():
            for event in splitter.finish():
                self._take_thought(event, choice, None, batch, meter)
        if batch.fault is None and not self.cut_short:
            self._release_tools(batch)
        if batch.fault is None:
            self._end_of_content(batch)
        if self._stops is not None and (rest := self._stops.finish()):
            batch.text(rest)
        if batch.out:
            self._account(batch)
        return batch

    # -- text ----------------------------------------------------------------------------------

    def _settle_plain(self) -> None:
        self._plain = (
            self._splice is None
            and self._structured is None
            and self._stops is None
            and self._think is None
        )

    def _take_text(self, event: Text, batch: Batch, meter: Meter) -> None:
        if self._think is None:
            self._content(event.text, batch)
            return
        splitter = self._think.setdefault(event.choice, ThinkSplitter())
        for part in splitter.feed(event.text):
            self._take_thought(part, event.choice, event.logprobs, batch, meter)
        if splitter.over and not event.choice and self._request.n == 1:
            self._think = None
            self._settle_plain()

    def _take_thought(
        self,
        event: Text | Reasoning,
        choice: int,
        logprobs: Any,  # noqa: ANN401 - passed on unread
        batch: Batch,
        meter: Meter,
    ) -> None:
        if isinstance(event, Reasoning):
            meter.reasoning_chars += len(event.text)
            batch.out.append(Reasoning(event.text, choice))
        elif choice or logprobs is not None:
            batch.out.append(Text(event.text, choice, logprobs))
            if choice == 0:
                batch.texts.append(event.text)
        else:
            self._content(event.text, batch)

    def _content(self, text: str, batch: Batch) -> None:
        if self._structured is not None:
            self._document(text, self._structured, batch)
        elif self._splice is not None:
            self._join(self._splice.feed(text), batch)
        else:
            self._past_stops(text, batch)

    def _document(self, text: str, structured: Structured, batch: Batch) -> None:
        over = structured.complete
        self._pass(structured.feed(text), batch)
        if over:
            self._surplus_chars += len(text)
            self.stopped = self._surplus_chars > MAX_SURPLUS_CHARS and self.conclude()

    def _past_stops(self, text: str, batch: Batch) -> None:
        if self._stops is None:
            batch.text(text)
            return
        passed = self._stops.feed(text)
        if passed:
            batch.text(passed)
            self._stops = None
            self._settle_plain()
        if self._stops is not None and self._stops.stopped:
            self.stopped = True
            self._finishes[0] = Finish(reason="stop", raw="stop sequence across a seam")

    def _pass(self, passed: Passed, batch: Batch) -> None:
        """Whole values of a document, and what is wrong with the next one."""
        if passed.text:
            batch.text(passed.text)
            batch.seam = batch.seam or _GOES_ON
            batch.ends = (*batch.ends, *passed.ends) if batch.ends else passed.ends
        if passed.fault is not None and not self._has_instead(batch):
            self._finishes.clear()  # it may be finished, but not with a document
            self.violation = passed.fault
            batch.fault = Fault(kind=FaultKind.SCHEMA_VIOLATION, message=str(passed.fault))

    def _has_instead(self, batch: Batch) -> bool:
        """What stands beside a refusal or a tool call need be no document."""
        return self._instead or any(isinstance(one, (ToolCall, Refusal)) for one in batch.out)

    def _join(self, join: Join | None, batch: Batch) -> None:
        """Apply the splice's decision: nothing twice, and what was reworded is superseded."""
        if join is None:
            return
        if join.outcome is Outcome.DIVERGED:
            self._finishes.clear()  # it may be finished, but not with our answer
            batch.fault = Fault(
                kind=FaultKind.DIVERGED,
                message="the continuation wrote the committed text anew, in other words",
            )
            return
        fragment_chars = len(self._machine.fragment)
        if join.keep_chars < fragment_chars:
            self._machine.supersede(join.keep_chars, join.separator)
            self._boundary.rewind(join.keep_chars)
            if join.separator:
                batch.out.append(Text(join.separator))
        replaced = fragment_chars - join.keep_chars
        batch.seam = Seam(
            join=join,
            fragment_chars=fragment_chars,
            superseded_chars=replaced + len(join.separator) if replaced else 0,
        )
        self._splice = None
        if self._request.stop:
            self._stops = StopGuard(self._machine.canonical_text, self._request.stop)
        self._settle_plain()
        if join.text:
            self._past_stops(join.text, batch)

    # -- everything else -----------------------------------------------------------------------

    def _take_rare(self, event: Event, batch: Batch, meter: Meter) -> None:
        match event:
            case Reasoning():
                meter.reasoning_chars += len(event.text)
                batch.out.append(event)
            case ToolCall():
                self._take_tool(event, batch)
            case Refusal():
                self.sealed = "a refusal"
                batch.out.append(event)
            case Extra():
                self._take_extra(event, batch)
            case Opened():
                meter.model = event.model
                self._extras.append(event)  # a writer may have to know that another model speaks
            case Usage():
                meter.counted(event)
            case Finish():
                self._finishes[event.choice] = event
            case _:
                pass

    def _take_tool(self, event: ToolCall, batch: Batch) -> None:
        if self._hold is None:
            self._send_tools([event], batch)
            return
        try:
            calls = self._hold.take(event)
        except JsonFault as fault:
            self._refuse_tools(fault, batch)
        else:
            self._send_tools(calls, batch)

    def _release_tools(self, batch: Batch) -> None:
        if self._hold is None:
            return
        try:
            calls = self._hold.finish()
        except JsonFault as fault:
            self._refuse_tools(fault, batch)
        else:
            self._send_tools(calls, batch)

    def _refuse_tools(self, fault: JsonFault, batch: Batch) -> None:
        self._finishes.clear()
        self.violation = fault
        unfinished = isinstance(fault, UnfinishedCall)
        kind = FaultKind.TRUNCATED if unfinished else FaultKind.SCHEMA_VIOLATION
        batch.fault = Fault(kind=kind, message=str(fault))

    def _send_tools(self, calls: list[ToolCall], batch: Batch) -> None:
        """Before a call goes out, what is held of the text before it does."""
        if calls and self._splice is not None:
            self._join(self._splice.finish(), batch)
        if batch.fault is None:
            batch.out += calls

    def _take_extra(self, event: Extra, batch: Batch) -> None:
        if "audio" in event.fields:
            self.sealed = "audio"
        self.ran.update(PROVIDER_TOOLS.intersection(event.fields))
        if self._spoken or batch.out:
            batch.out.append(event)
        elif len(self._extras) < MAX_HELD_EXTRAS:
            self._extras.append(event)  # no output by itself: it waits for some

    def _account(self, batch: Batch) -> None:
        """Remember what was said, and put held fields before the first of it."""
        if self._extras:
            batch.out[:0] = self._extras
            self._extras.clear()
        self._spoken = True
        if not self._sole and len(batch.out) == len(batch.texts):
            return
        for event in batch.out:
            if isinstance(event, (Text, ToolCall, Refusal)):
                self._spoke.add(event.choice)
                self.sealed = self.sealed or self._sole
                self._instead = self._instead or not isinstance(event, Text)

    # -- the end -------------------------------------------------------------------------------

    def _end_of_content(self, batch: Batch) -> None:
        if self._structured is not None:
            if not self.cut_short:
                self._pass(self._structured.finish(), batch)
        elif self._splice is not None:
            self._end_of_continuation(self._splice.finish(), batch)

    def _end_of_continuation(self, join: Join, batch: Batch) -> None:
        """It may have said nothing: then the answer is whole only if nothing was pending, or if
        what was pending begins one of the client's stop sequences.

        One that was cut short inside what the client has already took nothing back: its budget, or
        a filter, ended it, and the longer text stands.
        """
        fragment = self._machine.fragment
        if self.cut_short and join.outcome is not Outcome.DIVERGED and not join.text:
            outcome = Outcome.EMPTY if join.outcome is Outcome.EMPTY else Outcome.AGREES
            join = replace(join, outcome=outcome, keep_chars=len(fragment))
        elif join.outcome is Outcome.EMPTY and fragment.strip():
            before_stop = begins_stop(fragment, self._request.stop)
            if before_stop is None:
                self._finishes.clear()
                batch.fault = Fault(
                    kind=FaultKind.TRUNCATED,
                    message="the continuation ended without completing the sentence it was given",
                )
                return
            join = replace(join, keep_chars=before_stop)
        self._join(join, batch)


def _sole(request: ChatRequest) -> str:
    """What in a request no second model can take up once output was delivered; a clause."""
    if request.n > 1:
        return "several answers at once (`n`)"
    return "log probabilities (`logprobs`)" if request.logprobs else ""


_GOES_ON = Seam(join=Join(outcome=Outcome.AGREES), fragment_chars=0, superseded_chars=0)
"""How a document's seam is explained: it has no fragment to disagree with."""
