"""One decoded object of a Gemini answer to canonical events: a chunk, a whole answer or an error.

`streamGenerateContent` sends `GenerateContentResponse` objects, each with what is new of its
candidates; `generateContent` sends one with everything. There is one path for both.
https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse

What no client could read is let go of or passed on as an `Extra` of this format: signatures of
thoughts, pictures, the traces of tools that Google ran itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from router.core.events import (
    Done,
    Event,
    Extra,
    Failed,
    Finish,
    FinishReason,
    Opened,
    Reasoning,
    Text,
    ToolCall,
)
from router.core.faults import Fault, FaultKind
from router.core.request import Format
from router.errors import MalformedStream
from router.wire.gemini.counts import read_logprobs, read_usage
from router.wire.jsontext import REPLACEMENT, Json, dumps, mend, sew
from router.wire.reports import Judge, failed, is_flat, says_something
from router.wire.streams import check_depth

MAX_CANDIDATES = 8
"""Bound on the candidates of one answer: Gemini's own bound on `candidateCount`."""
MAX_CALLS = 1024
"""Bound on the function calls of one candidate: an answer has a few, a loop gone wild has more."""

# https://ai.google.dev/api/generate-content#FinishReason, and those that the SDK names beside it:
# https://github.com/googleapis/python-genai/blob/main/google/genai/types.py
_FINISHES: Final[Mapping[str, FinishReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",  # the limit of one request, not of the model
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "JAILBREAK": "content_filter",
    "ESCALATION": "content_filter",
}
"""What a finish reason means; one in neither table is a plain stop."""

_FAILURES: Final = frozenset(
    {
        "OTHER",
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "NO_IMAGE",
        "IMAGE_OTHER",
        "PUP_LIMITED_DISABLED",
    }
)
"""Finish reasons that say that the answer did not finish."""

_NOT_YET: Final = frozenset({"", "FINISH_REASON_UNSPECIFIED"})
_UNBLOCKED: Final = frozenset({"", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"})
_RAN: Final = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse"})
"""Parts that show that Google itself ran a tool."""
_GROUNDS: Final = ("groundingMetadata", "urlContextMetadata")
"""So do these fields of a candidate, unless they are empty."""
_PART_NOTES: Final = frozenset({"thought", "thoughtSignature"})
_KNOWN: Final = frozenset(
    {"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"}
)
"""One of these is in every object that is an answer or a piece of one."""


class AnswerNormaliser:
    """The memory of one answer between its chunks, and their translation.

    A `router.wire.streams.Normaliser`, with an `end`: the format has no terminator, so that the end
    of the body is one where a finish was seen.

    Args:
        on_error: judges an error that the answer reports.
        continuing: an answer that says nothing is none the worse for it.
    """

    __slots__ = (
        "_calls",
        "_carry",
        "_continuing",
        "_finishes",
        "_held",
        "_named",
        "_on_error",
        "_origin",
        "_said",
        "_usage",
        "odd",
    )

    token_event: Final = b""
    odd: bool
    """Strings may hold lone surrogates: set by who decoded the next object, cleared by `take`."""

    def __init__(self, on_error: Judge, *, continuing: bool = False) -> None:
        self._on_error = on_error
        self._continuing = continuing
        self._named = False
        self._origin = ""  # what tells this answer from every other
        self._calls: dict[int, int] = {}  # function calls so far, by candidate
        self._said: set[int] = set()  # candidates that gave output
        self._finishes: dict[int, FinishReason] = {}
        self._held: dict[int, Finish] = {}  # a stop before any output, which may not be the end
        self._usage: dict[str, Any] | None = None
        self._carry: dict[tuple[type[Text] | type[Reasoning], int], str] = {}  # high surrogates
        self.odd = False

    def named(self, name: bytes, value: Json) -> Json:  # noqa: ARG002 - see below
        """Names of events mean nothing here.

        Args:
            name: of the event.
            value: its JSON.
        """
        return value

    def take(self, value: Json, out: list[Event]) -> None:
        """Translate one object, or a list of them.

        Args:
            value: as decoded.
            out: events are appended here; after a `Failed` nothing more may be taken.

        Raises:
            MalformedStream: it has no readable shape.
        """
        for obj in value if type(value) is list else (value,):
            self._object(obj, out)
            if out and type(out[-1]) is Failed:
                return
        if self.odd:
            self.odd = bool(self._carry)

    def bare(self, value: Json, out: list[Event]) -> None:
        """An error, or a whole answer, or one chunk of a list of them.

        Args:
            value: as decoded.
            out: events are appended here.

        Raises:
            MalformedStream: it is none of these.
        """
        self.take(value, out)
        if out and type(out[-1]) is Failed:
            return
        objects = value if type(value) is list else (value,)
        if all(_KNOWN.isdisjoint(obj) for obj in objects):
            raise MalformedStream("The provider's answer is JSON, but none that Gemini gives.")

    def report(self, said: Json, out: list[Event]) -> None:
        """The provider reports an error.

        Args:
            said: its object, or its words.
            out: the `Failed` is appended here.
        """
        out.append(failed(said[0] if isinstance(said, list) and said else said, self._on_error))

    def end(self, out: list[Event]) -> None:
        """The body ended, or a terminator came: give what waited, and say that it is over.

        Args:
            out: events are appended here. `Done` where the answer has a finish; `Failed` where it
                finished and said nothing; neither where it has no finish.
        """
        if self._held and not (self._said or self._finishes or self._continuing):
            word = next(iter(self._held.values())).raw
            message = f'The provider ended its answer (finish reason "{word}") without any output.'
            out.append(
                Failed(Fault(kind=FaultKind.TRUNCATED, code="empty_answer", message=message))
            )
            return
        for choice, finish in self._held.items():
            if choice not in self._finishes and choice not in self._said:
                self._finishes[choice] = finish.reason
                out.append(finish)
        self._held.clear()
        if self._finishes:
            out.append(Done())

    # -- a chunk -------------------------------------------------------------------------------

    def _object(self, obj: Json, out: list[Event]) -> None:
        if type(obj) is not dict:
            raise MalformedStream("An event of the stream is JSON, but no object.")
        error = obj.get("error")
        if error and says_something(error):
            self.report(obj, out)
        elif _KNOWN.isdisjoint(obj) and is_flat(obj):
            self.report({"error": obj}, out)
        else:
            self._chunk(obj, out)

    def _chunk(self, obj: dict[str, Any], out: list[Event]) -> None:
        if not self._named:
            model = obj.get("modelVersion")
            if model and isinstance(model, str):
                self._named = True
                out.append(Opened(mend(model)))
        self._origin = self._origin or str(obj.get("responseId") or obj.get("createTime") or "")
        candidates = obj.get("candidates")
        if candidates:
            if type(candidates) is not list:
                raise MalformedStream("A chunk's candidates are no list.")
            for candidate in candidates:
                self._candidate(candidate, out)
                if out and type(out[-1]) is Failed:
                    return
        feedback = obj.get("promptFeedback")
        if feedback:
            self._blocked(feedback, out)
        usage = obj.get("usageMetadata")
        if usage and usage != self._usage:
            self._count(usage, out)

    def _candidate(self, candidate: Json, out: list[Event]) -> None:
        if type(candidate) is not dict:
            raise MalformedStream("A candidate is no object.")
        choice = candidate.get("index") or 0
        if type(choice) is not int or not 0 <= choice < MAX_CANDIDATES:
            raise MalformedStream("A candidate has no usable index.")
        content = candidate.get("content")
        if content:
            logprobs = candidate.get("logprobsResult")
            self._content(content, choice, read_logprobs(logprobs) if logprobs else None, out)
        for name in _GROUNDS:
            value = candidate.get(name)
            if isinstance(value, dict) and any(value.values()):
                self._extra({"executed_tools": [{name: value}]}, choice, out)
        if value := candidate.get("citationMetadata"):
            self._extra({"citationMetadata": value}, choice, out)
        reason = candidate.get("finishReason")
        if reason and isinstance(reason, str):
            self._finish(mend(reason), candidate.get("finishMessage"), choice, out)

    def _content(self, content: Json, choice: int, logprobs: Json, out: list[Event]) -> None:
        if type(content) is not dict:
            raise MalformedStream("A candidate's content is no object.")
        parts = content.get("parts")
        if parts is not None and type(parts) is not list:
            raise MalformedStream("The parts of a candidate's content are no list.")
        for part in parts or ():
            if type(part) is not dict:
                raise MalformedStream("A part of the content is no object.")
            text = part.get("text")
            if type(text) is str:
                kind = Reasoning if part.get("thought") else Text
                text = sew(self._carry, (kind, choice), text) if self.odd else text
                if text and kind is Text:
                    self._said.add(choice)
                    out.append(Text(text, choice, logprobs))
                    logprobs = None
                elif text:
                    out.append(Reasoning(text, choice))
            elif text is not None:
                raise MalformedStream("A part's text is no text.")
            elif part.get("functionCall") is not None:
                self._call(part["functionCall"], choice, out)
            else:
                self._other(part, choice, out)

    def _call(self, call: Json, choice: int, out: list[Event]) -> None:
        """A whole call in one part; its arguments in pieces come only where they were asked for."""
        if type(call) is not dict:
            raise MalformedStream("A function call is no object.")
        if call.get("partialArgs") or call.get("willContinue"):
            raise MalformedStream(
                "A function call comes in pieces, which nobody asked for "
                "(`streamFunctionCallArguments`)."
            )
        name, args = call.get("name"), call.get("args")
        if not name or not isinstance(name, str):
            raise MalformedStream("A function call has no name.")
        if args is not None and type(args) is not dict:
            raise MalformedStream("The arguments of a function call are no object.")
        check_depth(args)
        index = self._calls.get(choice, 0)
        if index >= MAX_CALLS:
            raise MalformedStream(f"More than {MAX_CALLS} function calls in one answer.")
        self._calls[choice] = index + 1
        self._said.add(choice)
        arguments = dumps(args or {}).decode()
        id_ = call.get("id")
        id_ = mend(id_) if id_ and isinstance(id_, str) else self._id(choice, index, arguments)
        out.append(ToolCall(index, id_, mend(name), arguments, choice))

    def _id(self, choice: int, index: int, arguments: str) -> str:
        """An id where the provider gave none: another one in every answer, always the same in
        this one."""
        seed = f"{self._origin}\0{choice}\0{index}\0{arguments}".encode("utf-8", "replace")
        return f"call_{hashlib.blake2b(seed, digest_size=12).hexdigest()}"

    def _other(self, part: dict[str, Any], choice: int, out: list[Event]) -> None:
        ran = _RAN.intersection(part)
        fields = {name: value for name, value in part.items() if name not in _PART_NOTES}
        if ran:
            self._said.add(choice)
            self._extra({"executed_tools": [fields]}, choice, out)
        elif any(fields.values()):
            if not part.get("thought"):
                self._said.add(choice)
            self._extra(fields, choice, out)

    def _extra(self, fields: dict[str, Any], choice: int, out: list[Event]) -> None:
        check_depth(fields)
        out.append(Extra(fields, choice, Format.GEMINI))

    # -- the end of a candidate ----------------------------------------------------------------

    def _finish(self, word: str, message: Json, choice: int, out: list[Event]) -> None:
        if word in _NOT_YET:
            return
        if word in _FAILURES:
            told = f'The provider ended the answer with the finish reason "{word}".'
            if message and isinstance(message, str):
                told = f"{told} {message}"
            self.report({"error": {"status": word, "message": told}}, out)
            return
        reason = _FINISHES.get(word, "stop")
        if reason == "stop":
            if choice not in self._said:
                # Some relays put a STOP on every chunk that has no text of its own, the first too.
                self._held[choice] = Finish(reason, choice, word)
                return
            if self._calls.get(choice):
                reason = "tool_calls"
        self._give(Finish(reason, choice, word), out)

    def _give(self, finish: Finish, out: list[Event]) -> None:
        if self._finishes.get(finish.choice) == finish.reason:
            return
        self._finishes[finish.choice] = finish.reason
        self._flush(finish.choice, out)
        out.append(finish)

    def _blocked(self, feedback: Json, out: list[Event]) -> None:
        """The prompt was refused, and there will be no candidate."""
        word = feedback.get("blockReason") if type(feedback) is dict else None
        if isinstance(word, str) and word not in _UNBLOCKED:
            self._give(Finish("content_filter", 0, mend(word)), out)

    # -- the rest ------------------------------------------------------------------------------

    def _count(self, usage: Json, out: list[Event]) -> None:
        if type(usage) is not dict:
            return
        self._usage = usage
        out.append(read_usage(usage))

    def _flush(self, choice: int, out: list[Event]) -> None:
        """Half a character that waited in vain."""
        for key in [key for key in self._carry if key[1] == choice]:
            del self._carry[key]
            out.append(key[0](REPLACEMENT, choice))
