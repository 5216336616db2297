"""Writes how an answer is to be generated: Gemini's `generationConfig`.

https://ai.google.dev/api/generate-content#generationconfig
"""

from __future__ import annotations

from typing import Any, Final

from router.core.conversation import Conversation, Document, Sampling, Thinking
from router.wire.losses import Losses

MAX_STOP_SEQUENCES: Final = 5
"""https://ai.google.dev/api/generate-content#generationconfig, `stopSequences`"""
MAX_CANDIDATES: Final = 8
"""The same, `candidateCount`."""
DYNAMIC: Final = -1
"""A `thinkingBudget` that leaves it to the model how much to think."""
_INT32: Final = range(-(2**31), 2**31)
"""What `seed` holds."""


def write_settings(conversation: Conversation, losses: Losses) -> dict[str, Any]:
    """The `generationConfig` of a request; empty where nothing was said.

    Args:
        conversation: what the client asks for.
        losses: what the format cannot say is appended here.
    """
    sampling = conversation.sampling
    settings: dict[str, Any] = {
        "maxOutputTokens": conversation.max_tokens,
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "topK": sampling.top_k,
        "seed": _seed(sampling, losses),
        "presencePenalty": sampling.presence_penalty,
        "frequencyPenalty": sampling.frequency_penalty,
        "stopSequences": _stop(conversation.stop, losses),
        "candidateCount": _count(conversation.n, losses),
        "responseLogprobs": sampling.logprobs or None,
        "logprobs": sampling.top_logprobs if sampling.logprobs else None,
        "thinkingConfig": _thinking(conversation.thinking) if conversation.thinking else None,
        **(_document(conversation.document) if conversation.document else {}),
    }
    return {name: value for name, value in settings.items() if value is not None}


def _seed(sampling: Sampling, losses: Losses) -> int | None:
    if sampling.seed is None or sampling.seed in _INT32:
        return sampling.seed
    losses.add("seed", "Gemini takes seeds of 32 bits.", hint=True)
    return None


def _stop(stop: tuple[str, ...], losses: Losses) -> list[str] | None:
    if len(stop) > MAX_STOP_SEQUENCES:
        losses.add("stop", f"Gemini takes {MAX_STOP_SEQUENCES} stop sequences, not {len(stop)}.")
    return list(stop[:MAX_STOP_SEQUENCES]) or None


def _count(n: int, losses: Losses) -> int | None:
    if n > MAX_CANDIDATES:
        losses.add("n", f"Gemini gives {MAX_CANDIDATES} answers at once, not {n}.")
    return min(n, MAX_CANDIDATES) if n > 1 else None


def _thinking(thinking: Thinking) -> dict[str, Any] | None:
    """All that was said: an effort as `thinkingLevel`, a number of tokens as `thinkingBudget`,
    where 0 is none and -1 is the model's choice.

    Whoever asks for thinking gets the thoughts, unless they are to be hidden: other formats show
    them unasked, and a model that thinks unseen cannot be told from one that is dead.
    """
    config: dict[str, Any] = {}
    shown = thinking.shown
    if thinking.on is False or thinking.effort == "none":
        config["thinkingBudget"] = 0
    else:
        if thinking.effort is not None:
            config["thinkingLevel"] = thinking.effort.upper()
        if thinking.budget_tokens is not None:
            config["thinkingBudget"] = thinking.budget_tokens
        if thinking.on and not config:
            config["thinkingBudget"] = DYNAMIC
        shown = shown is not False if config else shown
    if shown is not None:
        config["includeThoughts"] = shown
    return config or None


def _document(document: Document) -> dict[str, Any]:
    """JSON, held to a schema where there is one. What of JSON Schema Gemini does not know it passes
    over; the router checks the document itself."""
    settings: dict[str, Any] = {"responseMimeType": "application/json"}
    if document.schema is not None:
        settings["responseJsonSchema"] = document.schema
    return settings
