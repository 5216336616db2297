"""Canonical events to what a client of Messages reads: the stream's events, or one message.

Both writers take the same events and share the sequence of blocks (`sequence.py`); a stream's
events accumulated by a client give the message that `MessageFold` gives. The format is that of
https://platform.claude.com/docs/en/build-with-claude/streaming: every event has a name, since SDKs
pass over those that have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from router.core.events import Event, Finish, FinishReason, Opened, Reasoning, Text
from router.wire.anthropic.messages import STOP_REASONS
from router.wire.anthropic.sequence import BlockSequence, WireEvent
from router.wire.anthropic.signature import unsigned_signature
from router.wire.anthropic.tool_input import read_input
from router.wire.anthropic.usage import write_usage
from router.wire.jsontext import dumps, mend, mend_tree

PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'
"""A sign of life, as the format has it; SDKs pass over it."""

_DELTA: Final = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
    b'"delta":{"type":"%b","%b":'
)
_TAIL: Final = b"}}\n\n"
_PLAIN: Final[Mapping[str, tuple[type[Text | Reasoning], bytes, bytes]]] = {
    "text": (Text, b"text_delta", b"text"),
    "thinking": (Reasoning, b"thinking_delta", b"thinking"),
}
"""What a block takes by the dozen: the kind of event, its delta's type and field."""

_REASONS: Final[Mapping[FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}

# https://platform.claude.com/docs/en/api/errors
_ERROR_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_type(status: int) -> str:
    """Anthropic's word for an error.

    Args:
        status: the HTTP status that it has, or would have.
    """
    default = "api_error" if status >= 500 else "invalid_request_error"
    return _ERROR_TYPES.get(status, default)


def error_object(
    message: str,
    *,
    type: str,  # noqa: A002 - Anthropic's own word on the wire
    param: str | None = None,
    code: str | None = None,
    router: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of an error, for a response of its own or inside a stream.

    Args:
        message: a sentence a person can act on.
        type: such as `api_error`.
        param: the request field at fault, or None. The format has no place of its own for it, nor
            for the next two: they stand beside its message.
        code: a stable machine-readable word, or None.
        router: the failover metadata, where there is something to tell.

    Returns:
        `{"type": "error", "error": {…}}`.
    """
    error: dict[str, Any] = {"type": type, "message": message}
    more = {"param": param, "code": code, "router": None if router is None else dict(router)}
    error |= {name: value for name, value in more.items() if value is not None}
    return {"type": "error", "error": error}


def _stop(finishes: Sequence[Finish]) -> dict[str, Any]:
    """Why the answer ended, in the format's words. Of several finishes the last one counts.

    The provider's own word stands where it is one of the format's and means the same; so what only
    the format can tell (`pause_turn`, `model_context_window_exceeded`) is told.
    """
    finish = next((one for one in reversed(finishes) if one.choice == 0), None)
    if finish is None:
        raise ValueError("An answer without a finish cannot be ended as a success.")
    reason = _REASONS[finish.reason]
    if finish.matched and finish.reason == "stop":
        reason = "stop_sequence"
    elif STOP_REASONS.get(finish.raw) == finish.reason:
        reason = finish.raw
    return {"stop_reason": reason, "stop_sequence": finish.matched or None}


def _envelope(message_id: str, model: str) -> dict[str, Any]:
    """A message that has said nothing yet. What it costs is told at its end."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def _encode(event: WireEvent) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), dumps(event))


class MessageWriter:
    """One client's stream, whatever number of attempts feeds it.

    The model is frozen when the first event is written: a client sees one model for one stream.

    Args:
        message_id: the message's `id`.
        fallback_model: the model's name if none was reported before the first event.
    """

    __slots__ = ("_blocks", "_id", "_model", "_named", "_plain", "_plain_head", "_started")

    def __init__(self, *, message_id: str, fallback_model: str) -> None:
        self._id = message_id
        self._model = fallback_model
        self._named = False  # the model's name may no longer change
        self._started = False
        self._blocks = BlockSequence(message_id)
        self._plain: type[Event] | None = None  # events that are mere text for the open block
        self._plain_head = b""  # all up to that text

    def write(self, events: Sequence[Event]) -> bytes:
        """What the client is to see of these events; b"" if that is nothing.

        Of thoughts that are not said it sees a sign of life.

        Args:
            events: `Usage`, `Finish`, `Done` and `Failed` are not written: how the stream ends is
                said by `finish` or `error`.

        Raises:
            MalformedStream: the format cannot say them, and no more of them can wait.
        """
        out: list[bytes] = []
        for event in events:
            if type(event) is self._plain and event.choice == 0:  # type: ignore[union-attr]
                out += (self._plain_head, dumps(event.text), _TAIL)  # type: ignore[union-attr]
            else:
                self._event(event, out)
        if not out and self._blocks.going_on and any(type(event) is Reasoning for event in events):
            return PING
        return b"".join(out)

    def finish(
        self,
        finishes: Sequence[Finish],
        usage: Mapping[str, Any] | None,
        router: Mapping[str, Any] | None,
    ) -> bytes:
        """The end of a stream that succeeded.

        Args:
            finishes: at least one; of several the last counts.
            usage: in the shape of chat completions; None counts for zeros, since the format must
                say something.
            router: failover metadata, written on the `message_delta`, if given.

        Raises:
            ValueError: no finish. An answer that did not finish must not look as if it had.
        """
        stop = _stop(finishes)
        said: list[WireEvent] = []
        self._blocks.finish(said)
        out: list[bytes] = []
        self._begin(out)
        out += map(_encode, said)
        told = self._blocks.details
        end = {"type": "message_delta", "delta": stop | told.get("delta", {})}
        end |= {name: value for name, value in told.items() if name not in end}
        end["usage"] = write_usage(usage)
        if router is not None:
            end["router"] = router
        out += (_encode(end), _encode({"type": "message_stop"}))
        self._plain = None
        return b"".join(out)

    def error(self, error: Mapping[str, Any]) -> bytes:
        """The end of a stream that failed: one event, no stop reason, no `message_stop`.

        Args:
            error: as `error_object` gives it, or its inner object.
        """
        body = dict(error) if "error" in error else {"error": error}
        return _encode({"type": "error"} | body)

    def _event(self, event: Event, out: list[bytes]) -> None:
        if type(event) is Opened and not self._named:
            self._named = True
            self._model = event.model
        said: list[WireEvent] = []
        self._blocks.take(event, said)
        if said:
            self._begin(out)
            out += map(_encode, said)
        self._plain = None
        if self._blocks.kind in _PLAIN and not self._blocks.going_on:
            self._plain, delta, field = _PLAIN[self._blocks.kind]
            self._plain_head = _DELTA % (self._blocks.index, delta, field)

    def _begin(self, out: list[bytes]) -> None:
        if not self._started:
            self._started = self._named = True
            message = _envelope(self._id, self._model)
            out.append(_encode({"type": "message_start", "message": message}))


class _Folded:
    """One block as a client accumulates it, its pieces joined once."""

    __slots__ = ("_block", "_pieces")

    def __init__(self, block: dict[str, Any]) -> None:
        self._block = dict(block)
        self._pieces: list[str] = []

    def text(self, text: str) -> None:
        """The next text of a block of text."""
        self._pieces.append(text)

    def take(self, delta: Mapping[str, Any]) -> None:
        """The next delta."""
        kind = delta["type"]
        if kind == "signature_delta":
            self._block["signature"] = delta["signature"]
        elif kind == "citations_delta":
            self._block.setdefault("citations", []).append(delta["citation"])
        else:
            self._pieces.append(delta[_PIECE[kind]])

    def value(self) -> dict[str, Any]:
        """The block as it is now."""
        block, said = dict(self._block), "".join(map(mend, self._pieces))
        kind = block["type"]
        if kind == "text":
            block["text"] = said
        elif kind == "thinking":
            block["thinking"] = said
            block["signature"] = block["signature"] or unsigned_signature()
        elif said:
            block["input"] = read_input(said)
        folded: dict[str, Any] = mend_tree(block)
        return folded


_PIECE: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
}


class MessageFold:
    """The answer to a blocking request, folded from the events that would have been streamed.

    Args:
        message_id: the message's `id`.
        fallback_model: the model's name if none was reported before the first content.
    """

    def __init__(self, *, message_id: str, fallback_model: str) -> None:
        self._id = message_id
        self._model = fallback_model
        self._named = False
        self._blocks = BlockSequence(message_id)
        self._folded: list[_Folded] = []

    def add(self, events: Sequence[Event]) -> None:
        """Take the next events; the same kinds count as for `MessageWriter.write`.

        Args:
            events: in order.

        Raises:
            MalformedStream: the format cannot say them, and no more of them can wait.
        """
        for event in events:
            if type(event) is Opened and not self._named:
                self._named = True
                self._model = event.model
            in_text = self._blocks.kind == "text" and not self._blocks.going_on
            if type(event) is Text and in_text and event.choice == 0:
                self._folded[-1].text(event.text)
                continue
            said: list[WireEvent] = []
            self._blocks.take(event, said)
            self._fold(said)

    def result(
        self,
        finishes: Sequence[Finish],
        usage: Mapping[str, Any] | None,
        router: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        """The whole message.

        Args:
            finishes: as for `MessageWriter.finish`.
            usage: the same.
            router: failover metadata, put in if given.

        Raises:
            ValueError: no finish.
        """
        stop = _stop(finishes)
        said: list[WireEvent] = []
        self._blocks.finish(said)
        self._fold(said)
        body = _envelope(self._id, self._model) | self.message() | stop
        told = mend_tree(self._blocks.details)
        more = {name: value for name, value in told.items() if name != "delta"}
        body |= {
            name: value
            for name, value in (told.get("delta", {}) | more).items()
            if name not in body
        }
        body["usage"] = write_usage(usage)
        if router is not None:
            body["router"] = dict(router)
        return body

    def message(self) -> dict[str, Any]:
        """The message as far as it came: an answer that was broken off."""
        return {"role": "assistant", "content": [block.value() for block in self._folded]}

    def _fold(self, said: Sequence[WireEvent]) -> None:
        for event in said:
            self._named = True
            if event["type"] == "content_block_start":
                self._folded.append(_Folded(event["content_block"]))
            elif event["type"] == "content_block_delta":
                self._folded[-1].take(event["delta"])
