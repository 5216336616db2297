"""The demo's client: one streamed request over HTTP, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from router.core.sse import SseDecoder

MAX_ERROR_CHARS: Final = 500
"""Bound on what is shown of an error's body."""

_TIMEOUT = httpx.Timeout(60.0)
"""Longer than any wait that the demo's router allows itself."""


@dataclass(slots=True)
class Heard:
    """All that reached the client.

    Args:
        status: of the response.
        target: who spoke first, as a response header says.
        text: everything delivered.
        ids: ids and models seen; each stream has one of each.
        finishes: every finish reason, in order.
        done: how many `[DONE]`.
        metadata: the `router` objects, each of which stood on a chunk with a finish reason.
        stray_metadata: those that stood elsewhere; there should be none.
        error: what the router said instead of an end, or "".
    """

    status: int = 0
    target: str = ""
    text: str = ""
    ids: set[tuple[str, str]] = field(default_factory=set)
    finishes: list[str] = field(default_factory=list)
    done: int = 0
    metadata: list[dict[str, Any]] = field(default_factory=list)
    stray_metadata: int = 0
    error: str = ""

    @property
    def facts(self) -> Mapping[str, Any]:
        """The metadata, empty if there was nothing to tell."""
        return self.metadata[0] if self.metadata else {}

    @property
    def canonical(self) -> str:
        """The answer: the delivered text without the superseded ranges."""
        kept, at = [], 0
        for start, end in self.facts.get("superseded", ()):
            kept.append(self.text[at:start])
            at = end
        return "".join((*kept, self.text[at:]))


async def listen_to(
    base_url: str, model: str, question: str, on_text: Callable[[str], None]
) -> Heard:
    """Ask and read the answer to its end.

    Args:
        base_url: root of the API, `/v1` included.
        model: the route.
        question: what to ask.
        on_text: gets each text as it arrives.

    Returns:
        What was heard; a connection that broke is its `error`.
    """
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": question}]}
    heard = Heard()
    try:
        # No proxy of the environment stands between two sockets of this process.
        async with (
            httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client,
            client.stream("POST", f"{base_url}/chat/completions", json=body) as response,
        ):
            heard.status = response.status_code
            heard.target = response.headers.get("x-router-target", "")
            if response.status_code != 200:
                heard.error = _reason(await response.aread())
                return heard
            decoder = SseDecoder()
            async for data in response.aiter_bytes():
                for event in decoder.feed(data):
                    _take(event.data, heard, on_text)
    except httpx.HTTPError as error:
        heard.error = f"the connection to the router broke: {error!r}"
    return heard


def _reason(body: bytes) -> str:
    """The router's own sentence, or what there is."""
    try:
        reason = str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        reason = body.decode(errors="replace")
    return reason[:MAX_ERROR_CHARS]


def _take(data: bytes, heard: Heard, on_text: Callable[[str], None]) -> None:
    if data == b"[DONE]":
        heard.done += 1
        return
    chunk = json.loads(data)
    if "error" in chunk:
        heard.error = str(chunk["error"].get("message"))[:MAX_ERROR_CHARS]
        return
    heard.ids.add((chunk["id"], chunk["model"]))
    finished = False
    for choice in chunk["choices"]:
        text = choice["delta"].get("content")
        if text:
            heard.text += text
            on_text(text)
        if choice.get("finish_reason"):
            finished = True
            heard.finishes.append(choice["finish_reason"])
    if "router" in chunk:
        heard.metadata.append(chunk["router"])
        heard.stray_metadata += not finished
