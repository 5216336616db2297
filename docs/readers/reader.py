"""Reads one streamed answer of the router; copy it, it needs nothing but Python 3.9.

    STREAMING ──────────────┬──> COMPLETED     a finish_reason came: this is the answer
        │  ^                ├──> INTERRUPTED   something came, and it is not the whole answer
        └──┘ reset_stream   └──> FAILED        nothing came

Give `feed` the bytes of the body as they arrive, and call `close` when the body is over, however
that came about. A response that is no 200 is for `refuse`.

    reader = Reader()
    for data in response:
        for kind, value in reader.feed(data):
            if kind == "text":
                print(value, end="")
            elif kind == "reset":
                forget_what_was_printed()
    reader.close()
    if reader.state is State.COMPLETED:
        run(reader.tool_calls)
"""

from __future__ import annotations

import codecs
import json
from enum import Enum
from typing import Any

_SAID = (("text", "content"), ("reasoning", "reasoning_content"), ("refusal", "refusal"))


class State(Enum):
    """Where a stream is."""

    STREAMING = "streaming"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Reader:
    """One streamed answer (its first choice)."""

    def __init__(self) -> None:
        self.state = State.STREAMING
        self.error: dict[str, Any] | None = None
        """The router's error object, once there is one."""
        self.router: dict[str, Any] | None = None
        """The router's metadata, if it came."""
        self.usage: dict[str, Any] | None = None
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._line = ""
        self._event = ""
        self._data: list[str] = []
        self._forget()

    def feed(self, data: bytes) -> list[tuple[str, Any]]:
        """Take the next bytes of the body.

        Returns what they say, in order: ("text", …), ("reasoning", …), ("refusal", …),
        ("reset", reason) and ("end", State).
        """
        out: list[tuple[str, Any]] = []
        *lines, self._line = (self._line + self._decode(data)).split("\n")
        for line in lines:
            self._take_line(line.rstrip("\r"), out)
        return out

    def close(self, error: dict[str, Any] | None = None) -> State:
        """The body is over, or its connection broke. Returns the state."""
        if self.state is State.STREAMING:
            # A finish that was seen is an end, whatever breaks after it.
            whole = bool(self.finish_reason)
            self._end(State.COMPLETED if whole else None, None if whole else error, [])
        return self.state

    def refuse(self, status: int, body: bytes) -> None:
        """The response was no 200."""
        try:
            error = json.loads(body)["error"]
        except (ValueError, KeyError, TypeError):
            error = {"message": f"HTTP {status}", "code": None}
        self._end(State.FAILED, error, [])

    @property
    def answer(self) -> str:
        """The text without what a continuation replaced. Until the end, some of it may yet be."""
        text = self.text
        for start, end in reversed((self.router or {}).get("superseded", [])):
            text = text[:start] + text[end:]
        return text

    @property
    def tool_calls(self) -> list[dict[str, str]]:
        """The calls to run: none unless the answer is complete, for a part of a call is none."""
        if self.state is not State.COMPLETED or self.finish_reason not in ("tool_calls", "stop"):
            return []
        return [self._calls[index] for index in sorted(self._calls)]

    @property
    def begun_tool_calls(self) -> list[dict[str, str]]:
        """The calls as far as they came: to be shown, never to be run."""
        return [self._calls[index] for index in sorted(self._calls)]

    def _forget(self) -> None:
        self.text = self.reasoning = self.refusal = ""
        self.finish_reason: str | None = None
        self._calls: dict[int, dict[str, str]] = {}

    def _take_line(self, line: str, out: list[tuple[str, Any]]) -> None:
        if self.state is not State.STREAMING:
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._event = value
        elif field == "data":
            self._data.append(value)
        elif not line and self._data:
            name, data = self._event, "\n".join(self._data)
            self._event, self._data = "", []
            self._take_event(name, data, out)

    def _take_event(self, name: str, data: str, out: list[tuple[str, Any]]) -> None:
        if data == "[DONE]":
            self._end(State.COMPLETED if self.finish_reason else None, None, out)
            return
        value = json.loads(data)
        if name == "reset_stream":
            self._forget()
            out.append(("reset", value.get("reason")))
        elif name == "partial_complete":
            error = {"message": value.get("reason"), "code": "partial_complete"}
            self._end(None, {**error, "router": value.get("router")}, out)
        elif value.get("error"):
            self._end(None, value["error"], out)
        else:
            self._take_chunk(value, out)

    def _take_chunk(self, chunk: dict[str, Any], out: list[tuple[str, Any]]) -> None:
        self.usage = chunk.get("usage") or self.usage
        self.router = chunk.get("router") or self.router
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue
            delta = choice.get("delta") or {}
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            for kind, field in _SAID:
                if delta.get(field):
                    setattr(self, kind, getattr(self, kind) + delta[field])
                    out.append((kind, delta[field]))
            for part in delta.get("tool_calls") or ():
                self._take_call(part)

    def _take_call(self, part: dict[str, Any]) -> None:
        call = self._calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
        function = part.get("function") or {}
        call["id"] += part.get("id") or ""
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""

    def _end(
        self, state: State | None, error: dict[str, Any] | None, out: list[tuple[str, Any]]
    ) -> None:
        if state is None:
            came = self.text or self.reasoning or self.refusal or self._calls
            state = State.INTERRUPTED if came else State.FAILED
            error = error or {"message": "The stream ended without a finish.", "code": None}
        self.state, self.error = state, error
        self.router = (error or {}).get("router") or self.router
        out.append(("end", state))
