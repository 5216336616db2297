"""OpenAI's chat completions as the simulated provider speaks them: requests in, chunks out.

Written apart from `wire/`, so that a mistake there is not repeated here and thereby hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from router.core.continuation import Style
from router.core.events import Reasoning, Text, ToolCall
from router.simulate.answer import Answer, Ask, Piece
from router.simulate.calls import Offer
from router.simulate.dialect import Dialect, Rejection
from router.simulate.faults import FaultSpec
from router.simulate.intake import HttpRequest
from router.simulate.prefix import Prefix, Said, asked_prefix
from router.simulate.sse import EventStream, encoded
from router.simulate.text import tokenize

CREATED: Final = 1_700_000_000
"""`created` of every answer: a clock would make two runs differ."""

_MESSAGE_TOKENS = 4  # what a chat template adds to each message
_STATUS_TYPES = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    429: "rate_limit_error",
}


class OpenAIWire:
    """The format of `/v1/chat/completions`."""

    def model(self, _request: HttpRequest, body: Mapping[str, Any]) -> str:
        """As the body says."""
        return named(body)

    def key(self, request: HttpRequest) -> str:
        """The bearer token."""
        return bearer(request)

    def ask(self, _request: HttpRequest, body: Mapping[str, Any]) -> Ask:
        """Read a request; raises ValueError for a wrong one."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise ValueError("messages must be a list with at least one message.")
        if not all(isinstance(message, dict) and "role" in message for message in messages):
            raise ValueError("Every message must be an object with a role.")
        options = body.get("stream_options") or {}
        stop = body.get("stop") or ()
        return Ask(
            model=named(body),
            stream=bool(body.get("stream")),
            include_usage=bool(options.get("include_usage")),
            prompt_tokens=sum(_size(message) for message in messages),
            max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            choices=body.get("n") or 1,
            structured=(body.get("response_format") or {}).get("type", "text") != "text",
            prefix=_prefix(body, messages),
            messages=len(messages),
            tools=tuple(map(_tool_name, body.get("tools") or ())),
            offers=tuple(_offers(body.get("tools") or ())),
            has_results=messages[-1]["role"] == "tool",
            thinking=_thinking(body),
        )

    def encoder(self, ask: Ask, dialect: Dialect, *, model: str, number: int) -> OpenAIEncoder:
        """An encoder of one answer."""
        return OpenAIEncoder(ask, dialect, model=model, number=number)

    def rejection(self, fault: FaultSpec) -> Rejection:
        """OpenAI's error object."""
        headers = (("Retry-After", fault.retry_after),) if fault.retry_after else ()
        body = msgspec.json.encode({"error": _error(fault)})
        return Rejection(status=fault.status, body=body, headers=headers)


def named(body: Mapping[str, Any]) -> str:
    """The field `model`, or "" if it is no text."""
    name = body.get("model")
    return name if isinstance(name, str) else ""


def bearer(request: HttpRequest) -> str:
    """The bearer token, or ""."""
    return request.headers.get("authorization", "").removeprefix("Bearer ")


def _tool_name(tool: Mapping[str, Any]) -> str:
    inner = tool.get(str(tool.get("type"))) or {}
    return str(inner.get("name", ""))


def _offers(tools: Sequence[Mapping[str, Any]]) -> Iterator[Offer]:
    for tool in tools:
        if function := tool.get("function"):
            yield Offer(name=_tool_name(tool), schema=function.get("parameters") or {})


def _thinking(body: Mapping[str, Any]) -> bool | None:
    """Whether reasoning is on, in the words of DeepSeek, Qwen, the chat templates, OpenAI."""
    told = body.get("thinking")
    if isinstance(told, dict):
        return told.get("type") != "disabled"
    for place in (body, body.get("chat_template_kwargs") or {}):
        if isinstance(told := place.get("enable_thinking"), bool):
            return told
    effort = body.get("reasoning_effort")
    return None if effort is None else effort != "none"


def _size(message: Mapping[str, Any]) -> int:
    return _MESSAGE_TOKENS + len(tokenize(_content(message)))


def _content(message: Mapping[str, Any]) -> str:
    """A message's text, be it a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _prefix(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Prefix | None:
    """The text to continue, by the wire styles of `docs/continuation.md`."""
    final = bool(body.get("continue_final_message"))
    if final and body.get("add_generation_prompt", True):
        raise ValueError(
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
        )
    return asked_prefix(list(map(_said, messages)), _style(messages[-1], final=final))


def _said(message: Mapping[str, Any]) -> Said:
    role = message["role"]
    return Said(role=role if role in {"assistant", "user"} else "other", text=_content(message))


def _style(message: Mapping[str, Any], *, final: bool) -> Style:
    if final:
        return Style.CONTINUE_FINAL
    if message.get("prefix"):
        return Style.PREFIX_FLAG
    return Style.PARTIAL_FLAG if message.get("partial") else Style.ASSISTANT_TAIL


def _error(fault: FaultSpec) -> dict[str, Any]:
    return {
        "message": fault.message or f"The simulated provider failed with {fault.status}.",
        "type": fault.type or _STATUS_TYPES.get(fault.status, "server_error"),
        "param": fault.param or None,
        "code": fault.code or None,
    }


class OpenAIEncoder:
    """Writes one answer as `chat.completion.chunk`s, or as one `chat.completion`.

    Args:
        ask: the request.
        dialect: quirks.
        model: name that the answer reports.
        number: of the request; the id is made of it.
    """

    def __init__(self, ask: Ask, dialect: Dialect, *, model: str, number: int) -> None:
        self._ask = ask
        self._dialect = dialect
        self._frame = {
            "id": f"chatcmpl-sim{number:06d}",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": model,
        }
        self._out = EventStream(dialect)
        self._sent = 0

    @property
    def content_type(self) -> str:
        """As most servers put it."""
        return self._out.content_type

    def opening(self) -> bytes:
        """The role delta of every choice, and what quirks put before it."""
        dialect = self._dialect
        out = self._out.start()
        if dialect.azure_first:
            out += self._out.event(self._frame | {"choices": [], "prompt_filter_results": []})
        if not dialect.no_role:
            for choice in range(self._ask.choices):
                delta = {"role": "assistant", "content": ""}
                out += self._chunk([_choice(choice, delta)])
        return out

    def pieces(self, pieces: tuple[Piece, ...]) -> bytes:
        """One chunk with one delta."""
        self._sent += len(pieces)
        return self._chunk([_choice(pieces[0].choice, self._delta(pieces))]) + self._out.beat()

    def ending(self, answer: Answer, last: tuple[Piece, ...]) -> bytes:
        """A finish per choice, then the usage if it was asked for."""
        self._sent += len(last)
        word = self._dialect.finish_word if answer.reason == "stop" else answer.reason
        out = b""
        for _ in range(2 if self._dialect.finish_twice else 1):
            for choice in range(answer.choices):
                mine = tuple(piece for piece in last if piece.choice == choice)
                out += self._chunk([self._finish(choice, mine, word)])
                last = tuple(piece for piece in last if piece.choice != choice)
        if self._ask.include_usage and not self._dialect.no_usage:
            out += self._out.event(self._frame | {"choices": [], "usage": self._usage()})
        return out

    def _finish(self, choice: int, held: tuple[Piece, ...], word: str) -> dict[str, Any]:
        finish = _choice(choice, self._delta(held) if held else {}, word)
        if self._dialect.bare_finish and not held:
            del finish["delta"]
        return finish

    def done(self) -> bytes:
        """`[DONE]`."""
        return self._out.text(b"[DONE]")

    def broken(self, piece: Piece | None) -> bytes:
        """A chunk that lost its second half."""
        delta = self._delta((piece,)) if piece is not None else {}
        if piece is not None:
            self._sent += 1
        return self._out.cut(self._frame | {"choices": [_choice(0, delta)]})

    def error(self, fault: FaultSpec) -> bytes:
        """An error, in one of `ERROR_FORMS`."""
        error = _error(fault) | {"code": fault.code or fault.status}
        forms: dict[str, Any] = {
            "choices": self._frame | {"choices": [], "error": error},
            "string": {"error": error["message"]},
            "flat": {"error": error["message"], "error_type": error["type"]},
        }
        if fault.form == "field":
            return self._out.field("error", error)
        name = "error" if fault.form == "event" else ""
        return self._out.event(forms.get(fault.form, {"error": error}), name)

    def finish_error(self, reason: str) -> bytes:
        """A finish chunk whose reason is a failure."""
        return self._chunk([_choice(0, {}, reason)])

    def alive(self, form: str) -> bytes:
        """A comment, or a delta without content."""
        deltas = {"empty": {"content": ""}, "role": {"role": "assistant", "content": ""}}
        if form in deltas:
            return self._chunk([_choice(0, deltas[form])])
        return self._out.comment()

    def whole(self, answer: Answer) -> bytes:
        """One `chat.completion`."""
        self._sent = len(answer.pieces)
        choices = [_whole(answer, choice, self._field) for choice in range(answer.choices)]
        frame = self._frame | {"object": "chat.completion"}
        return encoded(frame | {"choices": choices, "usage": self._usage()}, self._dialect)

    @property
    def _field(self) -> str:
        return self._dialect.reasoning_field

    def _delta(self, pieces: tuple[Piece, ...]) -> dict[str, Any]:
        first = pieces[0]
        delta: dict[str, Any] = {"role": "assistant"} if self._dialect.role_every_chunk else {}
        if isinstance(first, ToolCall):
            return delta | _tool_delta(first)
        field = "content" if isinstance(first, Text) else self._field
        delta[field] = "".join(p.text for p in pieces if not isinstance(p, ToolCall))
        return delta

    def _chunk(self, choices: list[dict[str, Any]]) -> bytes:
        dialect = self._dialect
        chunk: dict[str, Any] = self._frame | {"choices": choices}
        if dialect.error_null:
            chunk["error"] = None
        if dialect.usage_every_chunk:
            chunk["usage"] = self._usage()
        elif dialect.usage_null:
            chunk["usage"] = None
        return self._out.event(chunk)

    def _usage(self) -> dict[str, int]:
        prompt, completion = self._ask.prompt_tokens, self._sent
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }


def _choice(index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": reason}


def _tool_delta(call: ToolCall) -> dict[str, Any]:
    function: dict[str, Any] = {"name": call.name} if call.name else {}
    function["arguments"] = call.arguments
    if call.legacy:
        return {"function_call": function}
    delta: dict[str, Any] = {"index": call.index, "function": function}
    if call.id:
        delta |= {"id": call.id, "type": "function"}
    return {"tool_calls": [delta]}


def _whole(answer: Answer, index: int, reasoning_field: str) -> dict[str, Any]:
    mine = [piece for piece in answer.pieces if piece.choice == index]
    message: dict[str, Any] = {"role": "assistant"}
    message["content"] = "".join(p.text for p in mine if isinstance(p, Text))
    if reasoning := "".join(p.text for p in mine if isinstance(p, Reasoning)):
        message[reasoning_field] = reasoning
    calls: dict[int, dict[str, Any]] = {}
    for piece in mine:
        if isinstance(piece, ToolCall):
            empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            call = calls.setdefault(piece.index, empty)
            call["id"] += piece.id
            call["function"]["name"] += piece.name
            call["function"]["arguments"] += piece.arguments
    if calls:
        message["tool_calls"] = list(calls.values())
    return {"index": index, "message": message, "finish_reason": answer.reason}
