"""An answer in Gemini's format: chunks of a stream, or one response.

Source: https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from router.core.events import FinishReason, Reasoning, Text, ToolCall
from router.simulate.answer import Answer, Ask, Piece
from router.simulate.dialect import Dialect
from router.simulate.faults import FaultSpec
from router.simulate.gemini.array import ArrayStream
from router.simulate.gemini.checks import sealed_name
from router.simulate.gemini.models import FIRST_WITH_SIGNATURES, before
from router.simulate.seals import seal
from router.simulate.sse import EventStream, Stream, encoded

_STATUSES: Final[Mapping[int, tuple[str, str]]] = {
    400: ("INVALID_ARGUMENT", "Request contains an invalid argument."),
    401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
    403: ("PERMISSION_DENIED", "The caller does not have permission"),
    404: ("NOT_FOUND", "Requested entity was not found."),
    409: ("ABORTED", "The operation was aborted."),
    429: ("RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    499: ("CANCELLED", "The operation was cancelled."),
    500: ("INTERNAL", "An internal error has occurred. Please retry."),
    501: ("UNIMPLEMENTED", "Operation is not implemented."),
    503: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
    504: ("DEADLINE_EXCEEDED", "The request timed out. Please try again."),
}
"""HTTP status to Google's word and message (https://ai.google.dev/gemini-api/docs/troubleshooting)."""
_FINISHES: Final[Mapping[FinishReason, str]] = {
    "stop": "STOP",
    "length": "MAX_TOKENS",
    "tool_calls": "STOP",
    "function_call": "STOP",
    "content_filter": "SAFETY",
}
_FAILED_FINISH: Final = "OTHER"


def error_object(fault: FaultSpec) -> dict[str, Any]:
    """An error, as a response has it and as a stream has it."""
    status, message = _STATUSES.get(fault.status, ("UNKNOWN", "Unknown error."))
    return {
        "error": {
            "code": fault.status,
            "message": fault.message or message,
            "status": fault.type or status,
        }
    }


class GeminiEncoder:
    """Writes one answer as `GenerateContentResponse`s, or as one of them.

    Args:
        ask: the request.
        dialect: quirks.
        model: name that the answer reports.
        number: of the request; the id is made of it.
    """

    def __init__(self, ask: Ask, dialect: Dialect, *, model: str, number: int) -> None:
        self._ask = ask
        self._dialect = dialect
        self._frame = {"modelVersion": model, "responseId": f"sim{number:06d}"}
        self._out: Stream = ArrayStream(dialect) if ask.array else EventStream(dialect)
        self._said = _Parts(ask)

    @property
    def content_type(self) -> str:
        """Of an event stream, or of JSON."""
        return self._out.content_type

    def opening(self) -> bytes:
        """Nothing but what quirks put there."""
        return self._out.start()

    def pieces(self, pieces: tuple[Piece, ...]) -> bytes:
        """One chunk, unless it is a thought that is not wanted."""
        parts = self._said.of(pieces)
        if not parts:
            return b""
        return self._chunk([_candidate(pieces[0].choice, parts)]) + self._out.beat()

    def ending(self, answer: Answer, last: tuple[Piece, ...]) -> bytes:
        """A chunk per candidate with its finish, or the news that the prompt was blocked."""
        if answer.reason == "content_filter" and not answer.pieces:
            return self._chunk([])
        word = self._dialect.finish_word
        plain = answer.reason == "stop" and word != "stop"
        reason = word if plain else _FINISHES[answer.reason]
        out = b""
        for _ in range(2 if self._dialect.finish_twice else 1):
            for choice in range(answer.choices):
                mine = tuple(piece for piece in last if piece.choice == choice)
                out += self._chunk([self._finish(answer, choice, mine, reason)])
                last = tuple(piece for piece in last if piece.choice != choice)
        return out

    def _finish(
        self, answer: Answer, choice: int, held: tuple[Piece, ...], reason: str
    ) -> dict[str, Any]:
        parts = self._said.of(held) if held else []
        if not parts and answer.pieces:
            parts = [self._said.last()]
        finish = _candidate(choice, parts) | {"finishReason": reason}
        if self._dialect.bare_finish and not held:
            del finish["content"]
        return finish

    def done(self) -> bytes:
        """Nothing: this format has no terminal marker, unless the stream is an array."""
        return self._out.end()

    def broken(self, piece: Piece | None) -> bytes:
        """A chunk that lost its second half."""
        parts = self._said.of((piece,)) if piece is not None else []
        return self._out.cut(self._response([_candidate(0, parts)]))

    def error(self, fault: FaultSpec) -> bytes:
        """An error in the place of a chunk; in other forms as proxies in between have it."""
        error = error_object(fault)
        forms: dict[str, Any] = {
            "choices": self._frame | {"candidates": []} | error,
            "string": {"error": error["error"]["message"]},
            "flat": {
                "error": error["error"]["message"],
                "error_type": error["error"]["status"],
            },
        }
        if fault.form == "field":
            return self._out.field("error", error["error"])
        name = "error" if fault.form == "event" else ""
        return self._out.event(forms.get(fault.form, error), name)

    def finish_error(self, reason: str) -> bytes:
        """A finish whose reason is a failure."""
        word = _FAILED_FINISH if reason == "error" else reason
        return self._chunk([{"finishReason": word, "index": 0}])

    def alive(self, form: str) -> bytes:
        """A comment, or a chunk without content."""
        if form == "empty":
            return self._chunk([_candidate(0, [{"text": ""}])])
        if form == "role":
            return self._chunk([_candidate(0, [])])
        return self._out.comment()

    def whole(self, answer: Answer) -> bytes:
        """One response, or the number of tokens."""
        if self._ask.counts:
            return encoded({"totalTokens": answer.prompt_tokens}, self._dialect)
        candidates = [self._whole(answer, choice) for choice in range(answer.choices)]
        blocked = answer.reason == "content_filter" and not answer.pieces
        return encoded(self._response([] if blocked else candidates), self._dialect)

    def _whole(self, answer: Answer, choice: int) -> dict[str, Any]:
        mine = [piece for piece in answer.pieces if piece.choice == choice]
        parts: list[dict[str, Any]] = []
        for _, group in groupby(mine, lambda p: p.index if isinstance(p, ToolCall) else type(p)):
            parts += self._said.of(tuple(group))
        return _candidate(choice, parts) | {"finishReason": _FINISHES[answer.reason]}

    def _chunk(self, candidates: list[dict[str, Any]]) -> bytes:
        chunk = self._response(candidates)
        if self._dialect.error_null:
            chunk["error"] = None
        return self._out.event(chunk)

    def _response(self, candidates: list[dict[str, Any]]) -> dict[str, Any]:
        response: dict[str, Any] = {"candidates": candidates}
        if not candidates:
            response = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}
        if not self._dialect.no_usage:
            response["usageMetadata"] = self._said.usage()
        return response | self._frame


def _candidate(index: int, parts: list[dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {"parts": parts} if parts else {}
    return {"content": content | {"role": "model"}, "index": index}


class _Parts:
    """The parts of an answer, counted and signed as they are said.

    Args:
        ask: the request.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._with_ids = not before(ask.model, FIRST_WITH_SIGNATURES)
        self._signed: set[int] = set()  # choices whose first call was said
        self._spoken = 0
        self._thought = 0

    def of(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        """The part that some pieces of one kind are; none if they are a thought that is hidden."""
        first = pieces[0]
        if isinstance(first, Reasoning):
            self._thought += len(pieces)
            return [] if self._ask.hides_thinking else [{"text": _joined(pieces), "thought": True}]
        self._spoken += len(pieces)
        return [self._call(first)] if isinstance(first, ToolCall) else [{"text": _joined(pieces)}]

    def last(self) -> dict[str, Any]:
        """What stands in the last chunk of newer models."""
        signed = {"thoughtSignature": seal("gemini:")} if self._with_ids else {}
        return {"text": ""} | signed

    def _call(self, call: ToolCall) -> dict[str, Any]:
        function: dict[str, Any] = {"name": call.name, "args": _args(call.arguments)}
        if self._with_ids:
            function["id"] = call.id or f"sim{call.index:06d}"
        part: dict[str, Any] = {"functionCall": function}
        if call.choice not in self._signed:
            self._signed.add(call.choice)
            part["thoughtSignature"] = seal(sealed_name(function))
        return part

    def usage(self) -> dict[str, Any]:
        """Tokens so far."""
        prompt = self._ask.prompt_tokens
        usage: dict[str, Any] = {
            "promptTokenCount": prompt,
            "candidatesTokenCount": self._spoken,
            "totalTokenCount": prompt + self._spoken + self._thought,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
        }
        if self._thought:
            usage["thoughtsTokenCount"] = self._thought
        return usage


def _joined(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Text | Reasoning))


def _args(arguments: str) -> dict[str, Any]:
    """Arguments as an object, which is all that this format has: what is none is said as empty."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}
