"""What a request in Anthropic's format asks, and how one is turned down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from router.simulate.answer import Ask
from router.simulate.anthropic.blocks import Block, Turn
from router.simulate.anthropic.checks import check, output_format, thinks
from router.simulate.anthropic.encoder import AnthropicEncoder, error_object
from router.simulate.anthropic.models import LAST_WITH_BUDGET, LAST_WITH_PREFILL, after
from router.simulate.calls import Offer
from router.simulate.dialect import Dialect, Rejection
from router.simulate.faults import FaultSpec, Misdeed, in_words
from router.simulate.intake import HttpRequest
from router.simulate.openai import bearer, named
from router.simulate.prefix import Said, asked_prefix
from router.simulate.text import tokenize

_MESSAGE_TOKENS: Final = 4  # what a chat template adds to each message
_WORDS: Final[Mapping[str, FaultSpec]] = {
    "rate_limit": FaultSpec(
        kind=Misdeed.STATUS,
        status=429,
        message="This request would exceed your organization's rate limit.",
    ),
    "context_length": FaultSpec(
        kind=Misdeed.STATUS,
        status=400,
        message="prompt is too long: 204801 tokens > 200000 maximum",
    ),
    "content_policy": FaultSpec(
        kind=Misdeed.STATUS,
        status=400,
        message="Output blocked by content filtering policy",
    ),
    "unauthorized": FaultSpec(
        kind=Misdeed.STATUS,
        status=401,
        message="invalid x-api-key",
    ),
    "no_model": FaultSpec(
        kind=Misdeed.STATUS,
        status=404,
        message="model: claude-0",
    ),
}
"""The common error responses, as this vendor words them."""


class AnthropicWire:
    """The format of `/v1/messages`.

    Args:
        counts: the path is that of `/v1/messages/count_tokens`.
    """

    def __init__(self, *, counts: bool = False) -> None:
        self._counts = counts

    def model(self, _request: HttpRequest, body: Mapping[str, Any]) -> str:
        """As the body says."""
        return named(body)

    def key(self, request: HttpRequest) -> str:
        """The header `x-api-key`, or the bearer token."""
        return request.headers.get("x-api-key", "") or bearer(request)

    def ask(self, request: HttpRequest, body: Mapping[str, Any]) -> Ask:
        """Read a request; raises ValueError for one that the vendor would refuse."""
        if "anthropic-version" not in request.headers:
            raise ValueError("anthropic-version: header is required")
        model = named(body).partition("!")[0]
        beta = "anthropic-beta" in request.headers
        turns = check(body, model=model, counts=self._counts, beta=beta)
        prompt, cached = _sizes(body, turns)
        thinking = body.get("thinking") or {}
        hidden = "omitted" if after(model, LAST_WITH_BUDGET) else "summarized"
        return Ask(
            model=model,
            stream=bool(body.get("stream")),
            include_usage=True,
            prompt_tokens=prompt,
            cached_tokens=cached,
            max_tokens=body.get("max_tokens"),
            stop=tuple(body.get("stop_sequences") or ()),
            structured=output_format(body) is not None,
            prefix=asked_prefix(list(map(_said, turns))),
            messages=len(body["messages"]),
            tools=tuple(str(tool.get("name")) for tool in body.get("tools") or ()),
            offers=tuple(
                Offer(name=str(tool["name"]), schema=tool["input_schema"])
                for tool in body.get("tools") or ()
                if "input_schema" in tool
            ),
            has_results=bool(turns[-1].of("tool_result")),
            thinking=thinks(body),
            hides_thinking=(thinking.get("display") or hidden) == "omitted",
            counts=self._counts,
            refusal="anthropic",
            takes_prefix=not (
                after(model, LAST_WITH_PREFILL)
                or thinking.get("type") in {"adaptive", "between_tools"}
            ),
        )

    def encoder(self, ask: Ask, dialect: Dialect, *, model: str, number: int) -> AnthropicEncoder:
        """An encoder of one answer."""
        return AnthropicEncoder(ask, dialect, model=model, number=number)

    def rejection(self, fault: FaultSpec) -> Rejection:
        """Anthropic's error object."""
        fault = in_words(fault, _WORDS)
        headers = (("retry-after", fault.retry_after),) if fault.retry_after else ()
        body = msgspec.json.encode(error_object(fault))
        return Rejection(status=fault.status, body=body, headers=headers)


def _said(turn: Turn) -> Said:
    if turn.role == "assistant":
        return Said(role="assistant", text=turn.text)
    plain = turn.role == "user" and not turn.of("tool_result")
    return Said(role="user" if plain else "other", text=turn.text)


def _sizes(body: Mapping[str, Any], turns: Sequence[Turn]) -> tuple[int, int]:
    """Tokens of the prompt, and how many of them stand before the last mark for the cache."""
    system = body.get("system") or []
    first = [{"type": "text", "text": system}] if isinstance(system, str) and system else system
    total, cached = 0, 0
    for blocks in filter(None, [tuple(first), *(turn.blocks for turn in turns)]):
        total += _MESSAGE_TOKENS + sum(len(tokenize(text)) for text in _texts(blocks))
        if any("cache_control" in block for block in blocks):
            cached = total
    return total, total if "cache_control" in body else cached


def _texts(blocks: Sequence[Block]) -> Iterator[str]:
    """All text in some blocks, results of tools included."""
    for block in blocks:
        inner = block.get("content")
        if isinstance(inner, list):
            yield from _texts(inner)
        elif isinstance(inner, str):
            yield inner
        elif isinstance(block.get("text"), str):
            yield block["text"]
