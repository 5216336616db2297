"""Figures of a Gemini answer in the shape of chat completions: tokens, and their probabilities."""

from __future__ import annotations

from typing import Any

from router.core.events import Usage
from router.errors import MalformedStream
from router.wire.jsontext import Json, mend


def read_usage(usage: dict[str, Any]) -> Usage:
    """A `usageMetadata`; each chunk's counts the whole answer so far.

    The results of tools that Google ran count as input, thoughts as output, as they are billed.
    https://ai.google.dev/api/generate-content#UsageMetadata

    Args:
        usage: as decoded.
    """
    prompt = _count(usage, "promptTokenCount") + _count(usage, "toolUsePromptTokenCount")
    thoughts = _count(usage, "thoughtsTokenCount")
    output = _count(usage, "candidatesTokenCount") + thoughts
    return Usage(
        prompt,
        output,
        {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": _count(usage, "cachedContentTokenCount")},
            "completion_tokens_details": {"reasoning_tokens": thoughts},
        },
    )


def read_logprobs(result: Json) -> dict[str, Any]:
    """A candidate's `logprobsResult` as chat completions' `logprobs`.

    https://ai.google.dev/api/generate-content#LogprobsResult

    Args:
        result: as decoded.

    Raises:
        MalformedStream: it has no readable shape.
    """
    try:
        chosen = result.get("chosenCandidates") or []
        tops = [step.get("candidates") or [] for step in result.get("topCandidates") or []]
        tops += [[] for _ in range(len(chosen) - len(tops))]
        content = [
            {**_token(one), "top_logprobs": [_token(other) for other in top]}
            for one, top in zip(chosen, tops, strict=False)
        ]
    except (AttributeError, TypeError):
        raise MalformedStream("The log probabilities have no readable shape.") from None
    return {"content": content, "refusal": None}


def _token(candidate: dict[str, Any]) -> dict[str, Any]:
    token = mend(candidate.get("token") or "")
    logprob = candidate.get("logProbability")
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _count(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    if isinstance(value, int | float) and 0 <= value < float("inf"):
        return int(value)
    return 0
