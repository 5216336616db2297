"""Continuations in Gemini's format. https://ai.google.dev/api/generate-content"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.core.continuation import Continuation, Style
from router.core.request import ChatRequest
from router.providers.writing import Body, ContinuationWriter, as_budget, left

_GRAMMAR_FIELDS = ("responseMimeType", "responseJsonSchema", "responseSchema")


def _constrained(raw: Mapping[str, Any]) -> bool:
    return "responseMimeType" in raw.get("generationConfig", {})


def _tail(request: ChatRequest) -> list[dict[str, Any]] | None:
    """The parts of the client's own prefill: a trailing turn of the model that calls nothing."""
    contents = request.raw["contents"]
    if not contents or contents[-1]["role"] != "model":
        return None
    parts: list[dict[str, Any]] = contents[-1]["parts"]
    return None if any("functionCall" in part for part in parts) else parts


def _tail_text(request: ChatRequest) -> str:
    return "".join(part.get("text", "") for part in _tail(request) or ())


def _begun(body: Body, request: ChatRequest, continuation: Continuation, _style: Style) -> None:
    tail = _tail(request)
    text = _tail_text(request) + continuation.prefix
    text = text.rstrip() if continuation.how.rstrip_prefix else text
    contents = body["contents"]
    before = contents if tail is None else contents[:-1]
    others = [part for part in tail or () if "text" not in part]
    body["contents"] = [*before, {"role": "model", "parts": [*others, {"text": text}]}]


def _ask(body: Body, text: str) -> None:
    body["contents"].append({"role": "user", "parts": [{"text": text}]})


def _loosen(body: Body, *, every: bool) -> None:  # noqa: ARG001 - there is one kind of grammar
    _configure(body, dict.fromkeys(_GRAMMAR_FIELDS))


def _spend(body: Body, tokens: int) -> None:
    budget = as_budget(body.get("generationConfig", {}).get("maxOutputTokens"))
    if budget is not None:
        _configure(body, {"maxOutputTokens": left(budget, tokens)})


def _configure(body: Body, changes: Mapping[str, Any]) -> None:
    config = {**body.get("generationConfig", {}), **changes}
    body["generationConfig"] = {k: v for k, v in config.items() if v is not None}


WRITER = ContinuationWriter(
    constrained=_constrained,
    tail_text=_tail_text,
    begun=_begun,
    ask=_ask,
    loosen=_loosen,
    spend=_spend,
)
"""Gemini."""
