"""An answer in Anthropic's format: events of a stream, or one message.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from router.core.events import FinishReason, Reasoning, Text, ToolCall
from router.simulate.answer import Answer, Ask, Piece
from router.simulate.dialect import Dialect
from router.simulate.faults import FaultSpec
from router.simulate.seals import seal
from router.simulate.sse import EventStream, encoded

Event: TypeAlias = dict[str, Any]
"""One event; its name is its `type`."""

_STATUSES: Final[Mapping[int, tuple[str, str]]] = {
    400: ("invalid_request_error", "Invalid request."),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "Your credit balance is too low to access the Anthropic API."),
    403: ("permission_error", "Your API key does not have permission to use this resource."),
    404: ("not_found_error", "Not found"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    500: ("api_error", "Internal server error"),
    504: ("timeout_error", "The request timed out."),
    529: ("overloaded_error", "Overloaded"),
}
"""HTTP status to type and message (https://platform.claude.com/docs/en/api/errors)."""
_STOPS: Final[Mapping[FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def error_object(fault: FaultSpec) -> dict[str, Any]:
    """An error, as a response has it and as a stream has it."""
    kind, message = _STATUSES.get(fault.status, _STATUSES[500])
    error = {"type": fault.type or kind, "message": fault.message or message}
    return {"type": "error", "error": error, "request_id": "req_sim"}


class AnthropicEncoder:
    """Writes one answer as the events of a message, or as one message.

    Args:
        ask: the request.
        dialect: quirks.
        model: name that the answer reports.
        number: of the request; the id is made of it.
    """

    def __init__(self, ask: Ask, dialect: Dialect, *, model: str, number: int) -> None:
        self._ask = ask
        self._dialect = dialect
        self._message: dict[str, Any] = {
            "id": f"msg_sim{number:06d}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._out = EventStream(dialect)
        self._block = _Blocks(hidden=ask.hides_thinking)
        self._sent = 0
        self._thought = 0

    @property
    def content_type(self) -> str:
        """Of an event stream."""
        return self._out.content_type

    def opening(self) -> bytes:
        """`message_start`, with the size of the prompt."""
        message = self._message | {"content": [], "stop_reason": None, "stop_sequence": None}
        if not self._dialect.no_usage:
            message["usage"] = self._usage() | {"output_tokens": 1}
        return self._out.start() + self._written({"type": "message_start", "message": message})

    def pieces(self, pieces: tuple[Piece, ...]) -> bytes:
        """The block's end and the next one's start, where it changes, and one delta."""
        return self._written(*self._said(pieces)) + self._out.beat()

    def ending(self, answer: Answer, last: tuple[Piece, ...]) -> bytes:
        """The block's end and the `message_delta` with the finish."""
        held = self._said(last) if last else []
        word = self._dialect.finish_word
        stop = _stop(answer, word if word != "stop" else "")
        delta = {"type": "message_delta", "delta": stop}
        if not self._dialect.no_usage:
            delta["usage"] = self._usage()
        times = 2 if self._dialect.finish_twice else 1
        return self._written(*held, *self._block.close(), *[delta] * times)

    def done(self) -> bytes:
        """`message_stop`."""
        return self._written({"type": "message_stop"})

    def broken(self, piece: Piece | None) -> bytes:
        """The events of a piece, of which the last lost its end."""
        events = self._said((piece,)) if piece is not None else [{"type": "message_delta"}]
        return self._written(*events[:-1]) + self._out.cut(events[-1], events[-1]["type"])

    def error(self, fault: FaultSpec) -> bytes:
        """An error, by default as `event: error`; in other forms as proxies in between have it."""
        error = error_object(fault)
        forms: dict[str, Any] = {
            "object": {"error": error["error"]},
            "string": {"error": error["error"]["message"]},
            "flat": {
                "error": error["error"]["message"],
                "error_type": error["error"]["type"],
            },
        }
        if fault.form == "field":
            return self._out.field("error", error["error"])
        if fault.form in forms:
            return self._out.event(forms[fault.form])
        return self._written(error)

    def finish_error(self, reason: str) -> bytes:
        """A `message_delta` whose reason is a failure."""
        stop = {"stop_reason": reason, "stop_sequence": None}
        delta = {"type": "message_delta", "delta": stop, "usage": self._usage()}
        return self._written(*self._block.close(), delta)

    def alive(self, form: str) -> bytes:
        """A `ping`, unless a comment or a delta without content is asked for."""
        if form == "comment":
            return self._out.comment()
        if form == "empty":
            return self._written(*self._block.empty())
        return self._written({"type": "ping"})

    def whole(self, answer: Answer) -> bytes:
        """One message, or the number of tokens."""
        if self._ask.counts:
            return encoded({"input_tokens": answer.prompt_tokens}, self._dialect)
        self._count(answer.pieces)
        content = list(_content(answer.pieces, hidden=self._ask.hides_thinking))
        message = self._message | {"content": content} | _stop(answer, "")
        return encoded(message | {"usage": self._usage()}, self._dialect)

    def _said(self, pieces: tuple[Piece, ...]) -> list[Event]:
        self._count(pieces)
        return list(self._block.say(pieces))

    def _count(self, pieces: Sequence[Piece]) -> None:
        self._sent += len(pieces)
        self._thought += sum(isinstance(piece, Reasoning) for piece in pieces)

    def _written(self, *events: Event) -> bytes:
        return b"".join(self._out.event(event, event["type"]) for event in events)

    def _usage(self) -> dict[str, Any]:
        cached = self._ask.cached_tokens
        usage: dict[str, Any] = {
            "input_tokens": self._ask.prompt_tokens - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": self._sent,
        }
        if self._thought:
            usage["output_tokens_details"] = {"thinking_tokens": self._thought}
        return usage


def _stop(answer: Answer, word: str) -> dict[str, Any]:
    reason = _STOPS[answer.reason]
    if answer.reason == "stop":
        reason = "stop_sequence" if answer.matched else word or reason
    stop: dict[str, Any] = {"stop_reason": reason, "stop_sequence": answer.matched or None}
    if reason == "refusal":
        stop["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
    return stop


class _Blocks:
    """The content blocks of a stream: one is open at a time, each index is used once.

    Args:
        hidden: thoughts are not shown, only their signature.
    """

    def __init__(self, *, hidden: bool) -> None:
        self._hidden = hidden
        self._index = -1
        self._open: type[Piece] | None = None
        self._shown = ""  # of the thought that is open

    def say(self, pieces: Sequence[Piece]) -> Iterator[Event]:
        """The events of some pieces of one kind."""
        first = pieces[0]
        if self._open is not type(first) or (isinstance(first, ToolCall) and first.name):
            yield from self.close()
            yield from self._start(first)
        if isinstance(first, ToolCall):
            yield self._delta({"type": "input_json_delta", "partial_json": first.arguments})
            return
        text = "".join(piece.text for piece in pieces if not isinstance(piece, ToolCall))
        if isinstance(first, Text):
            yield self._delta({"type": "text_delta", "text": text})
        elif not self._hidden:
            self._shown += text
            yield self._delta({"type": "thinking_delta", "thinking": text})

    def _start(self, first: Piece) -> Iterator[Event]:
        self._index += 1
        self._open, self._shown = type(first), ""
        block = _opened(first, self._index)
        yield {"type": "content_block_start", "index": self._index, "content_block": block}
        if self._index == 0:
            yield {"type": "ping"}

    def _delta(self, delta: dict[str, Any]) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def close(self) -> Iterator[Event]:
        """The end of the block that is open, if one is."""
        if self._open is None:
            return
        if self._open is Reasoning:
            yield self._delta({"type": "signature_delta", "signature": seal(self._shown)})
        self._open = None
        yield {"type": "content_block_stop", "index": self._index}

    def empty(self) -> Iterator[Event]:
        """A delta without content, in the block that is open or in a new one of text."""
        if self._open is None:
            yield from self._start(Text(""))
        deltas: dict[type[Piece] | None, dict[str, Any]] = {
            Reasoning: {"type": "thinking_delta", "thinking": ""},
            ToolCall: {"type": "input_json_delta", "partial_json": ""},
        }
        yield self._delta(deltas.get(self._open, {"type": "text_delta", "text": ""}))


def _opened(first: Piece, index: int) -> dict[str, Any]:
    """A block as its start shows it."""
    if isinstance(first, ToolCall):
        call = first.id or f"toolu_sim{index:06d}"
        return {"type": "tool_use", "id": call, "name": first.name, "input": {}}
    if isinstance(first, Reasoning):
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def _content(pieces: Sequence[Piece], *, hidden: bool) -> Iterator[dict[str, Any]]:
    """The blocks of a whole message."""

    def key(piece: Piece) -> tuple[type[Piece], int]:
        return type(piece), piece.index if isinstance(piece, ToolCall) else 0

    for index, (_, group) in enumerate(groupby(pieces, key)):
        run = list(group)
        block = _opened(run[0], index)
        if block["type"] == "tool_use":
            arguments = "".join(p.arguments for p in run if isinstance(p, ToolCall))
            block["input"] = _input(arguments)
        else:
            text = "".join(p.text for p in run if not isinstance(p, ToolCall))
            shown = "" if hidden and block["type"] == "thinking" else text
            block[block["type"]] = shown
            if block["type"] == "thinking":
                block["signature"] = seal(shown)
        yield block


def _input(arguments: str) -> dict[str, Any]:
    """Arguments as an object; those that are none, wrapped as the vendor's docs propose
    (https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming)."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"INVALID_JSON": arguments}
