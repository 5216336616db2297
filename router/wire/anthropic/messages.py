"""One decoded object of a Messages answer to canonical events: an event, or a whole message.

The format is that of https://platform.claude.com/docs/en/build-with-claude/streaming: a message is
a list of content blocks, each of which starts, grows by deltas and stops. There is one path, and it
is lenient about every shape that a healthy provider may send; a shape that may have hidden text is
`MalformedStream`, never skipped.

What only this format can say is passed on as an `Extra` of it; its keys are listed in `content.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from router.core.events import Done, Event, Extra, Failed, Finish, FinishReason, Opened
from router.core.request import Format
from router.errors import MalformedStream
from router.wire.anthropic.content import ContentBlocks
from router.wire.anthropic.usage import UsageCount
from router.wire.jsontext import Json, mend
from router.wire.reports import (
    FAILURE_FINISHES,
    Judge,
    failed,
    is_flat,
    says_something,
    unfinished,
)
from router.wire.streams import check_depth

STOP_REASONS: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",  # asked again with this answer, the model goes on
    "compaction": "length",  # the same
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""What a stop reason means; a word that is not here is a plain stop."""

_ENDS: Final = (Done, Failed)
_READ_DELTA: Final = frozenset({"stop_reason", "stop_sequence"})
_READ_EVENT: Final = frozenset({"type", "delta", "usage", "router"})
"""Of a `message_delta`; a `router` object is the failover metadata of a router behind this one."""
_IN_DELTA: Final = ("stop_details", "container")
_BESIDE_DELTA: Final = ("context_management",)
"""Of a whole message: where a stream has what else its end may say."""


class MessageNormaliser(ContentBlocks):
    """The memory of one answer between its events, and their translation.

    A `router.wire.streams.Normaliser`.

    Args:
        on_error: judges an error that the answer reports.
    """

    __slots__ = ("_finish", "_named", "_on_error", "_usage")

    token_event: Final = b"content_block_delta"

    def __init__(self, on_error: Judge) -> None:
        super().__init__()
        self._on_error = on_error
        self._named = False
        self._usage = UsageCount()
        self._finish: Finish | None = None

    def named(self, name: bytes, value: Json) -> Json:
        """An event without a type is of the type that its name tells, as in Anthropic's own SDK.

        Args:
            name: of the event.
            value: its JSON.
        """
        if type(value) is dict and not value.get("type") and not value.get("error"):
            value["type"] = name.decode("utf-8", "replace")
        return value

    def take(self, value: Json, out: list[Event]) -> None:
        """Translate one event of a stream, or a whole message.

        Args:
            value: as decoded.
            out: events are appended here; after a `Failed` or a `Done` nothing more may be taken.

        Raises:
            MalformedStream: it has no readable shape, or stands where it cannot.
        """
        if type(value) is not dict:
            raise MalformedStream("An event of the stream is JSON, but no object.")
        kind = value.get("type")
        handle = _EVENTS.get(kind) if type(kind) is str else None
        if handle is None:
            self._unknown(value, out)
            return
        handle(self, value, out)
        if self.odd:
            self.odd = bool(self._carry)

    def bare(self, value: Json, out: list[Event]) -> None:
        """An error, a whole message, or an event on a line of its own.

        Args:
            value: as decoded.
            out: events are appended here.

        Raises:
            MalformedStream: it is none of these.
        """
        self.take(value, out)
        if out and type(out[-1]) in _ENDS:
            return
        kind = value.get("type")
        if not (isinstance(kind, str) and kind in _EVENTS):
            raise MalformedStream("The provider's answer is JSON, but no message.")

    def report(self, said: Json, out: list[Event]) -> None:
        """The provider reports an error.

        Args:
            said: its object, or its words.
            out: the `Failed` is appended here.
        """
        out.append(failed(said, self._on_error))

    def _unknown(self, value: dict[str, Any], out: list[Event]) -> None:
        """An event of tomorrow is nothing to us; an error is one in any shape."""
        kind = value.get("type")
        if says_something(value.get("error")):
            self.report(value, out)
        elif is_flat(value) if not kind else isinstance(kind, str) and kind.endswith("_error"):
            self.report({"error": value}, out)
        elif not (kind and isinstance(kind, str)):
            raise MalformedStream("The provider sent an object that is no part of a message.")

    # -- the message ---------------------------------------------------------------------------

    def _message_start(self, value: dict[str, Any], out: list[Event]) -> None:
        message = value.get("message")
        if message is not None:
            self._begin(message, out)

    def _message(self, value: dict[str, Any], out: list[Event]) -> None:
        """A whole message, where a stream was asked for."""
        self._begin(value, out)
        told: dict[str, Any] = {name: value.get(name) for name in _BESIDE_DELTA}
        told["delta"] = {name: value.get(name) for name in _IN_DELTA}
        self._tell(told, out)
        self._end(value.get("stop_reason"), value.get("stop_sequence"), out)
        if not (out and type(out[-1]) is Failed):
            out.append(Done())

    def _begin(self, message: Json, out: list[Event]) -> None:
        if type(message) is not dict:
            raise MalformedStream("A message is no object.")
        model = message.get("model")
        if model and isinstance(model, str) and not self._named:
            self._named = True
            out.append(Opened(mend(model)))
        self._count(message.get("usage"), out)
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if content and type(content) is not list:
            raise MalformedStream("A message's content is no list.")
        for block in content or ():
            self._start(self._last + 1, block, out)
            self._stop(self._last, out)

    def _message_delta(self, value: dict[str, Any], out: list[Event]) -> None:
        delta = value.get("delta")
        if delta is None:
            delta = {}
        elif type(delta) is not dict:
            raise MalformedStream("A message_delta's delta is no object.")
        told = {name: one for name, one in value.items() if name not in _READ_EVENT}
        told["delta"] = {name: one for name, one in delta.items() if name not in _READ_DELTA}
        self._tell(told, out)
        self._count(value.get("usage"), out)
        self._end(delta.get("stop_reason"), delta.get("stop_sequence"), out)

    def _message_stop(self, value: dict[str, Any], out: list[Event]) -> None:
        del value
        out.append(Done())

    def _error(self, value: dict[str, Any], out: list[Event]) -> None:
        self.report(value, out)

    def _ping(self, value: dict[str, Any], out: list[Event]) -> None:
        """Nothing but a sign of life."""

    def _tell(self, told: dict[str, Any], out: list[Event]) -> None:
        """Pass on what the end of a message says beside its reason; what is null says nothing."""
        told["delta"] = {name: one for name, one in told["delta"].items() if one is not None}
        told = {name: one for name, one in told.items() if one}
        if told:
            check_depth(told)
            out.append(Extra({"message_delta": told}, format=Format.ANTHROPIC))

    def _count(self, usage: Json, out: list[Event]) -> None:
        counted = self._usage.take(usage)
        if counted is not None:
            out.append(counted)

    def _end(self, word: Json, sequence: Json, out: list[Event]) -> None:
        if not (isinstance(word, str) and word.strip()):
            return
        raw = mend(word)
        if raw.lower() in FAILURE_FINISHES:
            out.append(unfinished(raw))
            return
        self._finish_blocks(out)
        reason = STOP_REASONS.get(raw, "stop")
        matched = mend(sequence) if isinstance(sequence, str) else ""
        if reason == "stop" and self._calls and not matched:
            reason = "tool_calls"  # an answer that made a call ends as one
        finish = Finish(reason, raw=raw, matched=matched)
        if finish != self._finish:
            self._finish = finish
            out.append(finish)


_EVENTS: Final[Mapping[str, Callable[[MessageNormaliser, dict[str, Any], list[Event]], None]]] = {
    "content_block_delta": MessageNormaliser._block_delta,  # noqa: SLF001 - this file's own methods
    "content_block_start": MessageNormaliser._block_start,  # noqa: SLF001
    "content_block_stop": MessageNormaliser._block_stop,  # noqa: SLF001
    "message_start": MessageNormaliser._message_start,  # noqa: SLF001
    "message_delta": MessageNormaliser._message_delta,  # noqa: SLF001
    "message_stop": MessageNormaliser._message_stop,  # noqa: SLF001
    "message": MessageNormaliser._message,  # noqa: SLF001
    "ping": MessageNormaliser._ping,  # noqa: SLF001
    "error": MessageNormaliser._error,  # noqa: SLF001
}
"""What is done with an object of each type; a type that is not here is one of tomorrow."""
