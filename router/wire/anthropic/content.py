"""The content blocks of a Messages answer to canonical events, as they start, grow and stop.

What only this format can say is passed on as an `Extra` of it, under one of these keys:

- `signature_delta`, `citations_delta`: the delta, for the block that is open;
- the type of a block that is neither text, thinking nor a call of the client's tools: the whole
  block, its input joined, when it stops;
- `text`: the next text is a block of its own, though a block of text stands before it;
- `tool_use`: `{"id": …}` and what a call has beside its name and input, before the call;
- `message_delta` (in `messages.py`): what the end of the message says beside the stop reason and
  the usage, in the shape of the event.
"""

from __future__ import annotations

from typing import Any, Final

from router.core.events import Event, Extra, Reasoning, Text, ToolCall
from router.core.request import Format
from router.errors import MalformedStream
from router.wire.anthropic.tool_input import input_text
from router.wire.anthropic.whole_block import WholeBlock
from router.wire.jsontext import REPLACEMENT, Json, mend, sew
from router.wire.streams import check_depth

MAX_BLOCKS = 4096
"""Bound on the content blocks of one answer: it has a few dozen, a loop gone wild has more."""

_CALL_FIELDS: Final = frozenset({"type", "id", "name", "input"})
_NO_BLOCKS: Final = frozenset({"", "signature_delta", "citations_delta", "message_delta"})
"""What no block's type may be: under these keys an `Extra` says something else."""
_BY_FIELD: Final = {
    "text": "text_delta",
    "thinking": "thinking_delta",
    "partial_json": "input_json_delta",
    "signature": "signature_delta",
    "citation": "citations_delta",
}
"""What a delta without a type is, by what it holds."""


class _Block:
    """A content block that has started and not stopped.

    Args:
        kind: its type.
        call: position of the call among the answer's calls, -1 for what is none.
        given: the input that a call started with, as JSON text.
        whole: of a block that is passed on whole.
    """

    __slots__ = ("call", "given", "kind", "whole")

    def __init__(
        self, kind: str, *, call: int = -1, given: str = "", whole: WholeBlock | None = None
    ) -> None:
        self.kind = kind
        self.call = call
        self.given = given
        self.whole = whole


class ContentBlocks:
    """The blocks of one answer, and the memory between their events."""

    __slots__ = ("_blocks", "_calls", "_carry", "_last", "_last_kind", "odd")

    odd: bool
    """Strings may hold lone surrogates: set by who decoded the next object, cleared by who took it.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._last = -1  # index of the block that started last
        self._last_kind = ""
        self._calls = 0
        self._carry: dict[tuple[Any, ...], str] = {}  # high surrogates that wait for their half
        self.odd = False

    def _finish_blocks(self, out: list[Event]) -> None:
        """The message is finished: give what waited for more."""
        for index in sorted(self._blocks):  # a server that forgets to stop its blocks
            self._stop(index, out)
        for kind, call in self._carry:
            half = ToolCall(call, arguments=REPLACEMENT) if kind is ToolCall else kind(REPLACEMENT)
            out.append(half)
        self._carry.clear()

    def _block_start(self, value: dict[str, Any], out: list[Event]) -> None:
        index = value.get("index")
        self._start(self._last + 1 if index is None else index, value.get("content_block"), out)

    def _start(self, index: Json, block: Json, out: list[Event]) -> None:
        if type(block) is not dict or not isinstance(block.get("type"), str):
            raise MalformedStream("A content block has no readable shape.")
        if type(index) is not int or not self._last < index < MAX_BLOCKS:
            raise MalformedStream("A content block is out of order: indices only grow.")
        kind: str = block["type"]
        before, self._last, self._last_kind = self._last_kind, index, kind
        if kind == "text":
            if before == kind:
                out.append(Extra({"text": {}}, format=Format.ANTHROPIC))
            self._blocks[index] = _Block(kind)
            self._start_text(block, out)
        elif kind == "thinking":
            self._blocks[index] = _Block(kind)
            self._say(Reasoning, block.get("thinking"), out)
            if block.get("signature"):
                self._sign({"type": "signature_delta", "signature": block["signature"]}, out)
        elif kind == "tool_use":
            self._blocks[index] = self._start_call(block, out)
        elif kind in _NO_BLOCKS:
            raise MalformedStream(f"A content block is of the type {kind!r}, which is none.")
        else:
            self._blocks[index] = _Block(kind, whole=WholeBlock(block))

    def _start_text(self, block: dict[str, Any], out: list[Event]) -> None:
        self._say(Text, block.get("text"), out)
        citations = block.get("citations")
        for citation in citations if isinstance(citations, list) else ():
            self._cite({"type": "citations_delta", "citation": citation}, out)

    def _start_call(self, block: dict[str, Any], out: list[Event]) -> _Block:
        call_id, name = _word(block.get("id")), _word(block.get("name"))
        told = {
            key: value
            for key, value in block.items()
            if key not in _CALL_FIELDS and value is not None
        }
        if told:
            check_depth(told)
            out.append(Extra({"tool_use": {"id": call_id} | told}, format=Format.ANTHROPIC))
        started = _Block("tool_use", call=self._calls, given=input_text(block.get("input")))
        self._calls += 1
        out.append(ToolCall(started.call, call_id, name))
        return started

    def _block_delta(self, value: dict[str, Any], out: list[Event]) -> None:
        block = self._block(value.get("index"))
        delta = value.get("delta")
        if type(delta) is not dict:
            if delta is None:
                return
            raise MalformedStream("A delta is no object.")
        kind = delta.get("type")
        if kind == "text_delta":
            text = delta.get("text")
            if type(text) is str and not self.odd:
                if text:
                    out.append(Text(text))
            else:
                self._say(Text, text, out)
        else:
            self._rare_delta(block, kind, delta, out)

    def _rare_delta(
        self, block: _Block, kind: Json, delta: dict[str, Any], out: list[Event]
    ) -> None:
        """All but text that says what it is. A delta of tomorrow is for a block of tomorrow."""
        kind = kind or next((_BY_FIELD[name] for name in delta if name in _BY_FIELD), None)
        if kind == "text_delta":
            self._say(Text, delta.get("text"), out)
        elif kind == "thinking_delta":
            self._say(Reasoning, delta.get("thinking"), out)
        elif kind == "input_json_delta":
            self._input(block, delta.get("partial_json"), out)
        elif block.whole is not None:
            block.whole.grow(delta)
        elif kind == "signature_delta" and delta.get("signature"):
            self._sign(delta | {"type": kind}, out)
        elif kind == "citations_delta" and delta.get("citation"):
            self._cite(delta | {"type": kind}, out)

    def _block(self, index: Json) -> _Block:
        block = (
            self._blocks.get(self._last if index is None else index) if _is_index(index) else None
        )
        if block is None:
            raise MalformedStream("A delta belongs to no content block that is open.")
        return block

    def _block_stop(self, value: dict[str, Any], out: list[Event]) -> None:
        index = value.get("index")
        if not _is_index(index) or (index is not None and index > self._last):
            raise MalformedStream("A content block stops that never started.")
        self._stop(self._last if index is None else index, out)

    def _stop(self, index: int, out: list[Event]) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return  # it has stopped before
        if block.given:
            out.append(ToolCall(block.call, arguments=block.given))
        elif block.whole is not None:
            out.append(Extra({block.kind: block.whole.value()}, format=Format.ANTHROPIC))

    def _input(self, block: _Block, piece: Json, out: list[Event]) -> None:
        """The next piece of a tool's input; the pieces replace what the block started with."""
        if not piece:
            return
        if type(piece) is not str:
            raise MalformedStream("A piece of a tool's input is no text.")
        if block.call >= 0:
            block.given = ""
            arguments = sew(self._carry, (ToolCall, block.call), piece) if self.odd else piece
            if arguments:
                out.append(ToolCall(block.call, arguments=arguments))
        elif block.whole is not None:
            block.whole.add_input(piece)
        else:
            raise MalformedStream("A piece of a tool's input is in a block that has none.")

    def _sign(self, delta: dict[str, Any], out: list[Event]) -> None:
        if type(delta["signature"]) is not str:
            raise MalformedStream("A signature is no text.")
        check_depth(delta)
        out.append(Extra({"signature_delta": delta}, format=Format.ANTHROPIC))

    def _cite(self, delta: dict[str, Any], out: list[Event]) -> None:
        check_depth(delta)
        out.append(Extra({"citations_delta": delta}, format=Format.ANTHROPIC))

    def _say(self, kind: type[Text] | type[Reasoning], text: Json, out: list[Event]) -> None:
        if text is None:
            return
        if type(text) is not str:
            raise MalformedStream("A piece of text is no text.")
        if self.odd:
            text = sew(self._carry, (kind, 0), text)
        if text:
            out.append(kind(text))


def _is_index(value: Json) -> bool:
    return value is None or type(value) is int


def _word(value: Json) -> str:
    return mend(value) if isinstance(value, str) else ""
