"""The simulated provider's formats side by side: how each is asked, and read again.

Read by hand here, and not with the router's readers, so that neither hides a mistake of the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulate_kit import Reply, connect

from router.simulate import SimulatedProvider


@dataclass(frozen=True, kw_only=True)
class Format:
    """One wire format from a client's side.

    Args:
        name: for test ids.
        path: of a request for a stream of the model `{model}`.
        whole_path: of one for a whole answer.
        headers: that it needs.
        body: the smallest request.
        pieces: texts of a stream's increments.
        finish: the vendor's word for the end, or None.
        marked: the terminal marker has come; where there is none, that the finish has.
        text: of a whole answer.
        words: what the vendor calls `stop`, `length`, `content_filter`, `error`.
        keys: headers that a key may come in, with what stands before it.
        refused_key: status of a wrong one.
        has_marker: there is a terminal marker.
    """

    name: str
    path: str
    whole_path: str
    headers: dict[str, str]
    body: dict[str, Any]
    pieces: Callable[[Reply], list[str]]
    finish: Callable[[Reply], str | None]
    marked: Callable[[Reply], bool]
    text: Callable[[dict[str, Any]], str]
    words: dict[str, str]
    keys: dict[str, str]
    refused_key: int = 401
    has_marker: bool = True

    def __str__(self) -> str:
        return self.name

    def request(self, *, stream: bool = True, model: str = "sim", **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the format's fields
        """Arguments for `Caller.send`, whose own defaults are those of OpenAI."""
        headers = {**self.headers, **fields.pop("_headers", {})}
        path = (self.path if stream else self.whole_path).format(model=model)
        body = self.body | fields
        if "model" in self.body:
            body |= {"model": model, "stream": stream}
        return {"_path": path, "_headers": headers, "_body": body}

    async def ask(self, provider: SimulatedProvider, **fields: Any) -> Reply:  # noqa: ANN401 - as above
        """One request on a connection of its own."""
        async with connect(provider) as caller:
            return await caller.ask(**self.request(**fields))


def named_events(reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    """Name and data of every event that has a name."""
    events: list[tuple[str, dict[str, Any]]] = []
    name = ""
    for line in reply.body.decode().lstrip("\ufeff").splitlines():
        if line.startswith("event:"):
            name = line.removeprefix("event:").strip()
        elif line.startswith("data:"):
            events.append((name, json.loads(line.removeprefix("data:"))))
            name = ""
    return events


def deltas(reply: Reply, kind: str) -> list[dict[str, Any]]:
    """Anthropic's content deltas of one type."""
    found = [data for name, data in named_events(reply) if name == "content_block_delta"]
    return [data["delta"] for data in found if data["delta"]["type"] == kind]


def _message_finish(reply: Reply) -> str | None:
    found = [data["delta"] for name, data in named_events(reply) if name == "message_delta"]
    return found[-1]["stop_reason"] if found else None


OPENAI = Format(
    name="openai",
    path="/v1/chat/completions",
    whole_path="/v1/chat/completions",
    headers={},
    body={"model": "sim", "messages": [{"role": "user", "content": "Tell me everything."}]},
    pieces=lambda reply: reply.pieces,
    finish=lambda reply: reply.finish,
    marked=lambda reply: reply.done,
    text=lambda whole: whole["choices"][0]["message"]["content"],
    words={
        "stop": "stop",
        "length": "length",
        "content_filter": "content_filter",
        "error": "error",
    },
    keys={"authorization": "Bearer "},
)
ANTHROPIC = Format(
    name="anthropic",
    path="/v1/messages",
    whole_path="/v1/messages",
    headers={"anthropic-version": "2023-06-01"},
    body={
        "model": "sim",
        "max_tokens": 4_096,
        "messages": [{"role": "user", "content": "Tell me everything."}],
    },
    pieces=lambda reply: [delta["text"] for delta in deltas(reply, "text_delta")],
    finish=_message_finish,
    marked=lambda reply: named_events(reply)[-1:] == [("message_stop", {"type": "message_stop"})],
    text=lambda whole: "".join(block["text"] for block in whole["content"]),
    words={
        "stop": "end_turn",
        "length": "max_tokens",
        "content_filter": "refusal",
        "error": "error",
    },
    keys={"authorization": "Bearer ", "x-api-key": ""},
)


def chunks(reply: Reply) -> list[dict[str, Any]]:
    """Gemini's responses, one per event."""
    return [data for _, data in named_events(reply)]


def candidates(reply: Reply) -> list[dict[str, Any]]:
    """Gemini's candidates, chunk by chunk."""
    return [candidate for chunk in chunks(reply) for candidate in chunk.get("candidates") or ()]


def parts(reply: Reply) -> list[dict[str, Any]]:
    """Gemini's parts, chunk by chunk."""
    return [part for c in candidates(reply) for part in c.get("content", {}).get("parts", ())]


def _gemini_finish(reply: Reply) -> str | None:
    found = [c["finishReason"] for c in candidates(reply) if "finishReason" in c]
    return found[-1] if found else None


def _spoken(found: list[dict[str, Any]]) -> list[str]:
    return [part["text"] for part in found if part.get("text") and not part.get("thought")]


GEMINI = Format(
    name="gemini",
    path="/v1beta/models/{model}:streamGenerateContent?alt=sse",
    whole_path="/v1beta/models/{model}:generateContent",
    headers={},
    body={"contents": [{"role": "user", "parts": [{"text": "Tell me everything."}]}]},
    pieces=lambda reply: _spoken(parts(reply)),
    finish=_gemini_finish,
    marked=lambda reply: _gemini_finish(reply) is not None,
    text=lambda whole: "".join(_spoken(whole["candidates"][0]["content"]["parts"])),
    words={
        "stop": "STOP",
        "length": "MAX_TOKENS",
        "content_filter": "SAFETY",
        "error": "OTHER",
    },
    keys={"x-goog-api-key": "", "authorization": "Bearer "},
    refused_key=400,
    has_marker=False,
)
FORMATS = [OPENAI, ANTHROPIC, GEMINI]
