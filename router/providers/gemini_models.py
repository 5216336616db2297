"""What a Gemini model takes of a request, by its name: one table, the first row that fits.

A body says all that the client said (`router/wire/gemini/conversation.py`). A model answers 400 to
a field that it does not know, or passes over it in silence; here such a field is taken out, and its
loss is told. A name of tomorrow is taken for the newest row, a name that is not Gemini's for one
that knows everything: nothing is held back on a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from router.core.conversation import Loss

ALL_LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH")
"""https://docs.cloud.google.com/vertex-ai/generative-ai/docs/thinking has a table by model."""

BUDGETS: Mapping[str, int] = {"MINIMAL": 1_024, "LOW": 1_024, "MEDIUM": 8_192, "HIGH": 24_576}
"""What an effort is in tokens, as Google's own layer for OpenAI's clients has it:
https://ai.google.dev/gemini-api/docs/openai#thinking"""

_RANKS: Mapping[str, int] = {word: rank for rank, word in enumerate((*ALL_LEVELS, "XHIGH", "MAX"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiModel:
    """One row.

    Args:
        pattern: searched in the model's name, case ignored.
        levels: the words for `thinkingLevel` that it takes, least first.
        budget: least and greatest `thinkingBudget` in tokens, where that is what it takes.
        stops_thinking: thinking can be switched off.
        samples: `temperature`, `topP` and `topK` mean something to it.
        penalties: it takes penalties other than 0.
        many: it gives several answers at once.
        logprobs: it tells log probabilities.
        logprobs_at_vertex: it does at Vertex AI.
        json_with_tools: it takes a schema for its answer beside tools.
        signed: a call without a signature in its history is refused.
    """

    pattern: str = ""
    levels: tuple[str, ...] = ()
    budget: tuple[int, int] | None = None
    stops_thinking: bool = True
    samples: bool = True
    penalties: bool = False
    many: bool = False
    logprobs: bool = False
    logprobs_at_vertex: bool = False
    json_with_tools: bool = True
    signed: bool = True


# https://ai.google.dev/gemini-api/docs/generate-content/whats-new-gemini-3.6: sampling is ignored,
# and will be refused; a `candidateCount` is refused from 3.0 on.
# https://ai.google.dev/gemini-api/docs/thinking: levels from 3.0 on, budgets for 2.5, with ranges.
# https://github.com/google-gemini/cookbook/issues/1290: "Penalty is not enabled for this model".
# https://github.com/vercel/ai/issues/5418: "Logprobs is not enabled for models/gemini-2.5-pro".
# https://github.com/googleapis/python-genai/issues/706: JSON beside tools, only from 3.0 on.
_ROWS = (
    GeminiModel(
        pattern=r"gemini-(?:1|2\.0|2\.5-.*(?:image|tts))",
        penalties=True,
        many=True,
        logprobs=True,
        json_with_tools=False,
        signed=False,
    ),
    GeminiModel(
        pattern=r"gemini-2\.5-pro",
        budget=(128, 32_768),
        stops_thinking=False,
        many=True,
        logprobs_at_vertex=True,
        json_with_tools=False,
        signed=False,
    ),
    GeminiModel(
        pattern=r"gemini-2\.5-flash-lite",
        budget=(512, 24_576),
        many=True,
        logprobs_at_vertex=True,
        json_with_tools=False,
        signed=False,
    ),
    GeminiModel(
        pattern=r"gemini-2\.5",
        budget=(1, 24_576),
        many=True,
        logprobs_at_vertex=True,
        json_with_tools=False,
        signed=False,
    ),
    GeminiModel(pattern=r"gemini-3-pro", levels=("LOW", "HIGH"), stops_thinking=False),
    GeminiModel(pattern=r"gemini-3\.[1-4]-pro", levels=ALL_LEVELS[1:], stops_thinking=False),
    GeminiModel(pattern=r"gemini-3(?:\.[1-4])?-", levels=ALL_LEVELS),
    GeminiModel(pattern=r"gemini-3\.5-flash(?!-lite)", levels=ALL_LEVELS),
    GeminiModel(pattern=r"gemini-3\.[56]-flash", levels=ALL_LEVELS, samples=False),
    GeminiModel(pattern=r"gemini", levels=ALL_LEVELS[1:], stops_thinking=False, samples=False),
    GeminiModel(levels=ALL_LEVELS, penalties=True, many=True, logprobs=True),
)


def gemini_model(name: str) -> GeminiModel:
    """The row of a model.

    Args:
        name: as it is sent to the provider; the last part of a path counts.
    """
    name = name.rpartition("/")[2]
    return next(row for row in _ROWS if re.search(row.pattern, name, re.IGNORECASE))


def settle(
    body: Mapping[str, Any], model: GeminiModel, *, vertex: bool
) -> tuple[dict[str, Any], tuple[Loss, ...]]:
    """The body as a model takes it, and what it loses by that.

    Args:
        body: as the wire wrote it; what it holds is shared, and not changed.
        model: the row of the model that is asked.
        vertex: it is asked at Vertex AI.
    """
    losses: list[Loss] = []
    config = dict(body.get("generationConfig") or {})
    _sampling(config, model, losses)
    _several(config, model, losses, vertex=vertex)
    if "thinkingConfig" in config:
        thinking = _thinking(config.pop("thinkingConfig"), model, losses)
        if thinking:
            config["thinkingConfig"] = thinking
    if body.get("tools") and not model.json_with_tools:
        _document(config, losses)
    settled = {**body, "generationConfig": config}
    if not config:
        del settled["generationConfig"]
    if not model.signed:
        settled["contents"] = [_unsigned(content) for content in body["contents"]]
    return settled, tuple(losses)


def _sampling(config: dict[str, Any], model: GeminiModel, losses: list[Loss]) -> None:
    if not model.samples:
        for name, param in _SAMPLING.items():
            if config.pop(name, None) is not None:
                message = "This model chooses its tokens in a way of its own."
                losses.append(Loss(param=param, message=message, hint=True))
    if not model.penalties:
        for name, param in _PENALTIES.items():
            if config.pop(name, 0) != 0:
                message = "This model takes no penalties."
                losses.append(Loss(param=param, message=message, hint=True))


_SAMPLING: Mapping[str, str] = {"temperature": "temperature", "topP": "top_p", "topK": "top_k"}
_PENALTIES: Mapping[str, str] = {
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}


def _several(
    config: dict[str, Any], model: GeminiModel, losses: list[Loss], *, vertex: bool
) -> None:
    if not model.many and config.pop("candidateCount", 1) != 1:
        losses.append(Loss(param="n", message="This model gives one answer at a time."))
    if not (model.logprobs or (vertex and model.logprobs_at_vertex)):
        config.pop("logprobs", None)
        if config.pop("responseLogprobs", False):
            losses.append(
                Loss(param="logprobs", message="This model does not tell log probabilities.")
            )


def _document(config: dict[str, Any], losses: list[Loss]) -> None:
    """Without a schema the prompt itself must ask for JSON, so that less is lost."""
    schema = config.pop("responseJsonSchema", None)
    if config.pop("responseMimeType", None) is not None:
        losses.append(
            Loss(
                param="response_format",
                message="This model gives no structured output beside tools.",
                hint=schema is None,
            )
        )


def _unsigned(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """A content whose calls bear no signature; another one only where it has some."""
    if not any("thoughtSignature" in part for part in content["parts"]):
        return content
    parts = [
        {name: value for name, value in part.items() if name != "thoughtSignature"}
        for part in content["parts"]
    ]
    return {**content, "parts": parts}


# -- Thinking --------------------------------------------------------------------------------------


def _thinking(said: Mapping[str, Any], model: GeminiModel, losses: list[Loss]) -> dict[str, Any]:
    """An effort or a number of tokens in the word or the number that the model takes.

    No thinking is the least there is, for a model that always thinks. Its thoughts are not asked
    for then, which is refused: "Thinking_config.include_thoughts is only enabled when thinking is
    enabled" (https://github.com/lofcz/LLMTornado/pull/66).
    """
    level, budget = said.get("thinkingLevel"), said.get("thinkingBudget")
    shown = {"includeThoughts": said["includeThoughts"]} if "includeThoughts" in said else {}
    if budget == 0:
        shown = {}
    if not model.levels and model.budget is None:
        if budget != 0 and said:
            _lose(losses, "This model does not think.")
        return {}
    if budget == 0 and not model.stops_thinking:
        _lose(losses, "This model always thinks; the least is asked of it.")
    if level is not None and level not in _RANKS and budget is None:
        _lose(losses, "Gemini knows no effort of that name.")
        return shown
    if model.levels:
        word = _level(level, budget, model)
        return {**({"thinkingLevel": word} if word else {}), **shown}
    number = _budget(level, budget, model.budget or (0, 0), model)
    return {**({} if number is None else {"thinkingBudget": number}), **shown}


def _level(level: str | None, budget: int | None, model: GeminiModel) -> str | None:
    """The next one up that the model has, or its highest."""
    if budget == 0:
        return model.levels[0]
    if level is None or level not in _RANKS:
        if budget is None or budget < 0:
            return None
        level = next((word for word in ALL_LEVELS[1:] if budget <= BUDGETS[word]), "HIGH")
    above = (word for word in model.levels if _RANKS[word] >= _RANKS[level])
    return next(above, model.levels[-1])


def _budget(
    level: str | None, budget: int | None, bounds: tuple[int, int], model: GeminiModel
) -> int | None:
    """Within the model's bounds; -1 leaves it to the model, 0 switches thinking off."""
    least, most = bounds
    if budget is None:
        budget = BUDGETS.get(level or "", most) if level else None
    if budget is None or budget < 0:
        return budget
    if budget == 0 and model.stops_thinking:
        return 0
    return min(max(budget, least), most)


def _lose(losses: list[Loss], message: str) -> None:
    losses.append(Loss(param="reasoning_effort", message=message, hint=True))
