"""One decoded object of a chat-completions answer to canonical events: chunk, completion or error.

There is one path, and it is lenient about every shape that a healthy provider is known to send
(`docs/failures.md`); a shape that may have hidden text is `MalformedStream`, never skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from router.core.events import (
    Event,
    Extra,
    Failed,
    Finish,
    FinishReason,
    Opened,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Usage,
)
from router.errors import MalformedStream
from router.wire.jsontext import REPLACEMENT, Json, mend, sew
from router.wire.openai.toolcalls import ToolCalls
from router.wire.reports import (
    FAILURE_FINISHES,
    Judge,
    failed,
    is_flat,
    says_something,
    unfinished,
)
from router.wire.streams import check_depth

MAX_CHOICES = 128
"""Bound on the choices of one answer: OpenAI's own bound on `n`."""

FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "function_call",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "sensitive": "content_filter",
    "safety": "content_filter",
}
"""What a provider's word (in lower case) means; a word in neither table is a plain stop."""

_CALL_REASONS: Final = frozenset({"stop", "tool_calls", "function_call"})
_KNOWN_DELTA: Final = frozenset(
    {
        "role",
        "content",
        "refusal",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "tool_calls",
        "function_call",
    }
)


class ChunkNormaliser:
    """The memory of one answer between its chunks, and their translation.

    Args:
        on_error: judges an error that the answer reports.
    """

    __slots__ = ("_calls", "_carry", "_finishes", "_named", "_on_error", "_usage", "odd")

    odd: bool
    """Strings may hold lone surrogates: set by who decoded the next object, cleared by `take`."""

    def __init__(self, on_error: Judge) -> None:
        self._on_error = on_error
        self._named = False
        self._calls: dict[tuple[int, bool], ToolCalls] = {}
        self._finishes: dict[int, FinishReason] = {}
        self._usage: dict[str, Any] | None = None
        self._carry: dict[tuple[Any, ...], str] = {}  # high surrogates that wait for their half
        self.odd = False

    def take(self, obj: Json, out: list[Event]) -> None:
        """Translate one object.

        Args:
            obj: as decoded.
            out: events are appended here; after a `Failed` nothing more may be taken.

        Raises:
            MalformedStream: it has no readable shape.
        """
        if type(obj) is not dict:
            raise MalformedStream("An event of the stream is JSON, but no object.")
        error = obj.get("error")
        if error and says_something(error):
            self.report(obj, out)
        elif "choices" not in obj and is_flat(obj):
            self.report({"error": obj}, out)
        else:
            self._chunk(obj, out)
            if self.odd:
                self.odd = bool(self._carry)

    def report(self, said: Json, out: list[Event]) -> None:
        """The provider reports an error.

        Args:
            said: its object, or its words.
            out: the `Failed` is appended here.
        """
        out.append(failed(said, self._on_error))

    def _chunk(self, obj: dict[str, Any], out: list[Event]) -> None:
        if not self._named:
            model = obj.get("model")
            if model and isinstance(model, str):
                self._named = True
                out.append(Opened(mend(model)))
        choices = obj.get("choices")
        if choices:
            if type(choices) is not list:
                raise MalformedStream("A chunk's choices are no list.")
            for choice in choices:
                self._choice(choice, out)
                if out and type(out[-1]) is Failed:
                    return
        usage = obj.get("usage")
        if usage:
            self._take_usage(usage, out)
        if "x_groq" in obj:
            self._groq(obj["x_groq"], out)

    def _choice(self, choice: Json, out: list[Event]) -> None:
        if type(choice) is not dict:
            raise MalformedStream("A choice is no object.")
        index = choice.get("index") or 0
        if type(index) is not int or not 0 <= index < MAX_CHOICES:
            raise MalformedStream("A choice has no usable index.")
        delta = choice.get("delta") or choice.get("message")
        if delta:
            if type(delta) is not dict:
                raise MalformedStream("A delta is no object.")
            content = delta.get("content")
            logprobs = choice.get("logprobs")
            if logprobs is not None:
                check_depth(logprobs)
            if len(delta) == 1 and type(content) is str and not self.odd:
                if content:
                    out.append(Text(content, index, logprobs))
            else:
                self._delta(delta, index, logprobs, out)
        reason = choice.get("finish_reason")
        if reason and _says_finish(reason):
            self._finish(reason, index, choice, out)

    def _delta(self, delta: dict[str, Any], index: int, logprobs: Json, out: list[Event]) -> None:
        """All fields of a delta, in the order in which a model produces them."""
        self._reasoning(delta, index, out)
        content = delta.get("content")
        if content:
            self._content(content, index, logprobs, out)
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._say(Refusal, refusal, index, out)
        if delta.get("tool_calls"):
            self._tool_calls(delta["tool_calls"], index, out)
        if delta.get("function_call"):
            self._call(delta={"function": delta["function_call"]}, key=(index, True), out=out)
        if not delta.keys() <= _KNOWN_DELTA:
            self._extra(delta, index, out)

    def _content(self, content: Json, index: int, logprobs: Json, out: list[Event]) -> None:
        if isinstance(content, str):
            text = sew(self._carry, (Text, index), content) if self.odd else content
            if text:
                out.append(Text(text, index, logprobs))
            return
        parts = content if isinstance(content, list) else [content]
        for part in parts:
            self._part(part, index, out)

    def _part(self, part: Json, index: int, out: list[Event]) -> None:
        """One part of content that is a list; kinds that hold no words (references) are let go."""
        if isinstance(part, str):
            self._say(Text, part, index, out)
        elif not isinstance(part, dict):
            raise MalformedStream("A part of the content has no readable shape.")
        elif isinstance(part.get("text"), str):
            self._say(Text, part["text"], index, out)
        elif isinstance(part.get("refusal"), str):
            self._say(Refusal, part["refusal"], index, out)
        elif part.get("thinking"):
            self._say(Reasoning, _thinking(part["thinking"]), index, out)

    def _reasoning(self, delta: dict[str, Any], index: int, out: list[Event]) -> None:
        text = delta.get("reasoning_content") or delta.get("reasoning")
        details = delta.get("reasoning_details")
        if text and isinstance(text, str):
            self._say(Reasoning, text, index, out)
        elif details and isinstance(details, list):
            told = _details_text(details)
            if told:
                self._say(Reasoning, told, index, out)
            else:  # encrypted reasoning: no words, but the client must be able to send it back
                check_depth(details)
                out.append(Extra({"reasoning_details": details}, index))

    def _extra(self, delta: dict[str, Any], index: int, out: list[Event]) -> None:
        fields = {
            name: value
            for name, value in delta.items()
            if name not in _KNOWN_DELTA and value not in (None, "", [], {})
        }
        if fields:
            check_depth(fields)
            out.append(Extra(fields, index))

    def _say(
        self,
        kind: type[Text] | type[Reasoning] | type[Refusal],
        text: str,
        index: int,
        out: list[Event],
    ) -> None:
        if self.odd:
            text = sew(self._carry, (kind, index), text)
        if text:
            out.append(kind(text, index))

    def _tool_calls(self, deltas: Json, index: int, out: list[Event]) -> None:
        for delta in deltas if isinstance(deltas, list) else (deltas,):
            if delta is not None:
                self._call(delta, (index, False), out)

    def _call(self, delta: Json, key: tuple[int, bool], out: list[Event]) -> None:
        calls = self._calls.get(key)
        if calls is None:
            calls = self._calls[key] = ToolCalls(key[0], legacy=key[1])
        increments: list[ToolCall] = []
        calls.take(delta, increments)
        if self.odd:
            increments = [self._sew_call(call) for call in increments]
        out.extend(increments)

    def _sew_call(self, call: ToolCall) -> ToolCall:
        key = (ToolCall, call.choice, call.legacy, call.index)
        return msgspec.structs.replace(call, arguments=sew(self._carry, key, call.arguments))

    def _finish(self, word: Json, index: int, choice: dict[str, Any], out: list[Event]) -> None:
        raw = word.get("type") if isinstance(word, dict) else word
        raw = mend(raw) if isinstance(raw, str) else ""
        lowered = raw.lower()
        # Gemini's own reason stands behind a colon: `content_filter: PROHIBITED_CONTENT`.
        word, _, detail = lowered.partition(": ")
        if word in FAILURE_FINISHES or detail in FAILURE_FINISHES:
            if choice.get("error"):
                self.report({"error": choice["error"]}, out)
            else:
                out.append(unfinished(raw))
            return
        reason = FINISH_REASONS.get(word, "stop")
        if reason in _CALL_REASONS:
            reason = self._call_reason(index, reason)
        if self._finishes.get(index) == reason:
            return
        self._finishes[index] = reason
        self._flush(index, out)
        out.append(Finish(reason, index, raw))

    def _call_reason(self, index: int, reason: FinishReason) -> FinishReason:
        """An answer that made a call ends as one, whatever word its provider has for that."""
        if (index, False) in self._calls:
            return "tool_calls"
        return "function_call" if (index, True) in self._calls else reason

    def _flush(self, index: int, out: list[Event]) -> None:
        """Give what waited for more of this choice."""
        for key in [key for key in self._carry if key[1] == index]:
            del self._carry[key]
            kind = key[0]
            if kind is ToolCall:
                out.append(ToolCall(key[3], "", "", REPLACEMENT, index, key[2]))
            else:
                out.append(kind(REPLACEMENT, index))
        for legacy in (False, True):
            calls = self._calls.get((index, legacy))
            if calls is not None:
                waiting: list[ToolCall] = []
                calls.finish(waiting)
                out.extend(waiting)

    def _take_usage(self, usage: Json, out: list[Event]) -> None:
        if type(usage) is not dict or usage == self._usage:
            return
        check_depth(usage)
        self._usage = usage
        out.append(
            Usage(
                _count(usage, "prompt_tokens", "input_tokens"),
                _count(usage, "completion_tokens", "output_tokens"),
                usage,
            )
        )

    def _groq(self, extension: Json, out: list[Event]) -> None:
        """Groq reports usage, and why a stream stopped early, in an object of its own."""
        if isinstance(extension, dict):
            self._take_usage(extension.get("usage"), out)
            if extension.get("error"):
                self.report({"error": extension["error"]}, out)


def _thinking(value: Json) -> str:
    """Mistral's thinking part: text, or a list of text parts."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _details_text(details: list[Any]) -> str:
    """The words in OpenRouter's `reasoning_details`, if any of them has words."""
    items = [item for item in details if isinstance(item, dict)]
    texts = (item.get("text") or item.get("summary") for item in items)
    return "".join(text for text in texts if isinstance(text, str))


def _count(usage: dict[str, Any], *names: str) -> int:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int | float) and value >= 0 and value != float("inf"):
            return int(value)
    return 0


def _says_finish(reason: Json) -> bool:
    """Is there a word at all? Some servers write their "not yet" as a word, or as anything."""
    if isinstance(reason, dict):
        reason = reason.get("type")
    return isinstance(reason, str) and reason.strip().lower() not in _NO_FINISH


_NO_FINISH = frozenset({"", "null", "none", "undefined"})
"""Words under `finish_reason` that mean that the answer goes on."""
