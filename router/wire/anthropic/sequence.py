"""Canonical events to content blocks: one open at a time, indices 0, 1, 2, … each used once.

A change of kind closes the block that is open and begins the next one. What the format asks for
beside that:

- A block of thinking ends with a signature. Where no provider signed it (it came from another
  format, or its attempt died first), it gets the mark of `signature.py`.
- A text that another attempt goes on with stays one block, and what that attempt thinks before it
  is not said: there are clients that take the last block of text for the answer.
- Calls come one after the other. Where a provider mixes the pieces of several, or says something
  else in the middle of one, whatever is not of the open call waits until that call's arguments are
  whole, or until the answer is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from router.core.events import Event, Extra, Opened, Reasoning, Refusal, Text, ToolCall
from router.core.request import Format
from router.errors import MalformedStream
from router.wire.anthropic.open_call import CallKey, OpenCall
from router.wire.anthropic.signature import unsigned_signature
from router.wire.jsontext import Json, dumps

MAX_HELD_CHARS = 1_048_576
"""Bound on what waits for the call that is open."""

WireEvent: TypeAlias = dict[str, Any]
"""An event of the format, as its JSON object."""


class BlockSequence:
    """The blocks of one message, whatever number of attempts feeds it.

    Args:
        message_id: the message's id, of which calls without an id of their own get one.
    """

    __slots__ = (
        "_call",
        "_call_fields",
        "_done",
        "_held",
        "_held_calls",
        "_held_chars",
        "_message_id",
        "details",
        "going_on",
        "index",
        "kind",
    )

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self.index = -1
        """Of the block that began last."""
        self.kind = ""
        """The type of the block that is open; "" if none is."""
        self.details: dict[str, Any] = {}
        """What the end of the message says beside its reason, in the shape of a `message_delta`."""
        self.going_on = False
        """The open block is of text, and the attempt that goes on with it has only thought yet."""
        self._call: OpenCall | None = None
        self._done: set[CallKey] = set()  # calls whose block is closed
        self._call_fields: dict[str, dict[str, Any]] = {}  # by id: more for the start of its block
        self._held: deque[list[Event]] = deque()  # what waits; the pieces of one call are one entry
        self._held_calls: dict[CallKey, list[Event]] = {}
        self._held_chars = 0

    def take(self, event: Event, out: list[WireEvent]) -> None:
        """Say one event, or keep it until it can be said.

        Args:
            event: any; what is not for the client of this format says nothing.
            out: the format's events are appended here.

        Raises:
            MalformedStream: more waits than may, or a call goes on that was whole.
        """
        if type(event) is Opened:
            if self.kind == "thinking":
                self._close(out)  # whoever thought this is dead, and nobody can sign it
            self.going_on = self.kind == "text"
            return
        if self.going_on:
            if not _goes_on(event):
                return
            self.going_on = False
        if type(event) not in _PLACES or event.choice:  # type: ignore[union-attr]  # as the table's
            return
        if type(event) is Extra:
            if event.format is Format.ANTHROPIC:
                self._take_extra(event, out)
        elif self._call is None or (type(event) is ToolCall and _call_of(event) == self._call.key):
            self._place(event, out)
            if self._held:
                self._release(out)
        else:
            self._other(event, out)

    def finish(self, out: list[WireEvent]) -> None:
        """The answer is whole: say what waits, and close what is open.

        Args:
            out: the format's events are appended here.
        """
        self._release(out, final=True)
        self._close(out)

    # -- waiting -------------------------------------------------------------------------------

    def _other(self, event: Event, out: list[WireEvent]) -> None:
        """Something that is not of the open call."""
        if not self._held and (self._call is None or self._call.whole()):
            self._place(event, out)
        else:
            self._hold(event)

    def _hold(self, event: Event) -> None:
        self._held_chars += _size(event)
        if self._held_chars > MAX_HELD_CHARS:
            raise MalformedStream(
                f"A tool call does not come to its end: more than {MAX_HELD_CHARS} characters wait "
                "for it, and Anthropic's format has no way to say them in the middle of it."
            )
        if type(event) is ToolCall:
            entry = self._held_calls.get(_call_of(event))
            if entry is None:
                self._held_calls[_call_of(event)] = entry = []
                self._held.append(entry)
            entry.append(event)
        else:
            self._held.append([event])

    def _release(self, out: list[WireEvent], *, final: bool = False) -> None:
        while self._held and (final or self._call is None or self._call.whole()):
            entry = self._held.popleft()
            if type(entry[0]) is ToolCall:
                del self._held_calls[_call_of(entry[0])]
            for event in entry:
                self._held_chars -= _size(event)
                self._place(event, out)

    # -- blocks --------------------------------------------------------------------------------

    def _place(self, event: Event, out: list[WireEvent]) -> None:
        _PLACES[type(event)](self, event, out)

    def _text(self, event: Text | Refusal, out: list[WireEvent]) -> None:
        self._within("text", {"text": ""}, out)
        out.append(self._delta({"type": "text_delta", "text": event.text}))

    def _reasoning(self, event: Reasoning, out: list[WireEvent]) -> None:
        self._within("thinking", {"thinking": "", "signature": ""}, out)
        out.append(self._delta({"type": "thinking_delta", "thinking": event.text}))

    def _tool_call(self, event: ToolCall, out: list[WireEvent]) -> None:
        call = _call_of(event)
        if call in self._done:
            if event.arguments.strip():
                raise MalformedStream("A tool call goes on after its arguments were whole.")
            return
        if self._call is None or call != self._call.key:
            self._call = self._begin_call(event, out)
        if event.arguments:
            self._call.follow(event.arguments)
            out.append(self._delta({"type": "input_json_delta", "partial_json": event.arguments}))

    def _begin_call(self, event: ToolCall, out: list[WireEvent]) -> OpenCall:
        call_id = event.id or f"toolu_{self._message_id.removeprefix('msg_')}_{event.index}"
        more = self._call_fields.pop(event.id, {})
        self._open({"type": "tool_use", "id": call_id, "name": event.name, "input": {}} | more, out)
        return OpenCall(_call_of(event))

    def _within(self, kind: str, fields: dict[str, Any], out: list[WireEvent]) -> None:
        if self.kind != kind:
            self._open({"type": kind} | fields, out)

    def _open(self, block: dict[str, Any], out: list[WireEvent]) -> None:
        self._close(out)
        self.index += 1
        self.kind = block["type"]
        start = {"type": "content_block_start", "index": self.index, "content_block": block}
        out.append(start)

    def _delta(self, delta: dict[str, Any]) -> WireEvent:
        return {"type": "content_block_delta", "index": self.index, "delta": delta}

    def _close(self, out: list[WireEvent], *, signed: bool = False) -> None:
        if not self.kind:
            return
        if self.kind == "thinking" and not signed:
            mark = {"type": "signature_delta", "signature": unsigned_signature()}
            out.append(self._delta(mark))
        out.append({"type": "content_block_stop", "index": self.index})
        self.kind = ""
        if self._call is not None:
            self._done.add(self._call.key)
            self._call = None

    # -- what only this format can say ---------------------------------------------------------

    def _take_extra(self, event: Extra, out: list[WireEvent]) -> None:
        """One that says nothing by itself is noted; all else has its place among the blocks."""
        placed = {name: value for name, value in event.fields.items() if isinstance(value, dict)}
        told = placed.pop("message_delta", None)
        if told:
            self.details |= told
        call = placed.pop("tool_use", None)
        if call:
            fields = {name: value for name, value in call.items() if name != "id"}
            self._call_fields[str(call.get("id"))] = fields
        if not placed:
            return
        event = Extra(placed, format=Format.ANTHROPIC)
        if self._call is None:
            self._place(event, out)
        else:
            self._other(event, out)

    def _extra(self, event: Extra, out: list[WireEvent]) -> None:
        for name, value in event.fields.items():
            if name == "signature_delta":
                self._within("thinking", {"thinking": "", "signature": ""}, out)
                out.append(self._delta(value))
                self._close(out, signed=True)
            elif name == "citations_delta":
                self._within("text", {"text": ""}, out)
                out.append(self._delta(value))
            elif name == "text":
                if self.kind == "text":
                    self._close(out)
            else:
                self._whole_block(value | {"type": name}, out)

    def _whole_block(self, block: dict[str, Any], out: list[WireEvent]) -> None:
        """An input comes as a delta, as clients are used to; all else stands in the start."""
        given: Json = block.get("input")
        streamed = block["type"].endswith("tool_use") and isinstance(given, dict) and given
        self._open(block | {"input": {}} if streamed else block, out)
        if streamed:
            text = dumps(given).decode()
            out.append(self._delta({"type": "input_json_delta", "partial_json": text}))
        self._close(out)


_PLACES: Final[Mapping[type, Callable[[BlockSequence, Any, list[WireEvent]], None]]] = {
    Text: BlockSequence._text,  # noqa: SLF001 - the table of this file's own methods
    Refusal: BlockSequence._text,  # noqa: SLF001
    Reasoning: BlockSequence._reasoning,  # noqa: SLF001
    ToolCall: BlockSequence._tool_call,  # noqa: SLF001
    Extra: BlockSequence._extra,  # noqa: SLF001
}
"""What a client is shown, and where it stands; every other kind is not for it."""


def _goes_on(event: Event) -> bool:
    """Is it a part of the answer, and not of a thought?"""
    if type(event) is Extra:
        return event.format is Format.ANTHROPIC and not event.fields.keys() <= _OF_THOUGHTS
    return type(event) in _PLACES and type(event) is not Reasoning


_OF_THOUGHTS: Final = frozenset({"signature_delta", "redacted_thinking"})


def _call_of(event: Event) -> CallKey:
    assert isinstance(event, ToolCall)  # noqa: S101 - for the checker
    return event.index, event.legacy


def _size(event: Event) -> int:
    """What an event that waits counts for, in characters."""
    if isinstance(event, ToolCall):
        return 1 + len(event.id) + len(event.name) + len(event.arguments)
    if isinstance(event, Extra):
        return len(dumps(event.fields))
    return 1 + len(event.text) if isinstance(event, Text | Reasoning | Refusal) else 1
