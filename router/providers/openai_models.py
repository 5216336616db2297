"""What OpenAI's models, and servers like OpenAI's, take of a request: two tables.

A translated body says all that the client said (`router/wire/openai/conversation_out.py`); a model
or a server answers 400 to what it does not know. Here that is taken out or said otherwise, and its
loss is told. A request that came as a chat completion is the client's own, and is sent as it is;
only when an answer to it has begun must the next model take it.

A model's name counts at OpenAI and Azure alone: elsewhere the same name may be asked in another
way. One that is not known there takes everything. What servers differ in stands in their rows of
the registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from router.core.conversation import Loss
from router.providers.registry import Family
from router.wire.checks import quote
from router.wire.openai.conversation_in import EFFORTS
from router.wire.openai.conversation_out import DEFAULT_EFFORT


class When(Enum):
    """When a model takes something."""

    ALWAYS = "always"
    """Whether it reasons or not."""
    UNREASONED = "unreasoned"
    """Only where it does not reason."""
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIModel:
    """One row.

    Args:
        pattern: matched at the start of the model's name, case ignored.
        efforts: the words for `reasoning_effort` that it takes, least first; None where that is not
            known, and then a translated request says how much, and not whether at all.
        reasons: it does so unless it is told not to.
        samples: when it takes a temperature and its like.
        calls: when it takes tools in chat completions.
        stops: it takes stop sequences.
    """

    pattern: str = ""
    efforts: tuple[str, ...] | None = None
    reasons: bool = False
    samples: When = When.ALWAYS
    calls: When = When.ALWAYS
    stops: bool = True


# https://platform.openai.com/docs/api-reference/chat/create: efforts up to 5.1, what is the default
# before 5.1 and since, and that o3 and o4-mini take no `stop`.
# https://developers.openai.com/api/docs/guides/latest-model#gpt-54-parameter-compatibility:
# sampling without reasoning only.
# https://developers.openai.com/api/docs/guides/deployment-checklist: who calls tools where, from 6.
# https://github.com/openai/openai-openapi/issues/541,
# https://github.com/BerriAI/litellm/pull/34569: "Function tools with reasoning_effort are not
# supported for gpt-5.4 in /v1/chat/completions"; from 5.6 on not even where no effort is named.
# https://github.com/BerriAI/litellm/pull/28662: stop sequences again from 5.1 on.
# https://github.com/BerriAI/litellm-docs/pull/1173: efforts of 6 Astra.
_ROWS = (
    OpenAIModel(pattern=r"(?:ft:)?gpt-[34]|chatgpt|gpt-5-chat", efforts=()),
    OpenAIModel(pattern=r"gpt-5\.\d-chat", efforts=(), samples=When.NEVER),
    OpenAIModel(
        pattern=r"o[134](?![\w.])",
        efforts=EFFORTS[2:5],
        reasons=True,
        samples=When.NEVER,
        stops=False,
    ),
    OpenAIModel(
        pattern=r"gpt-5(?![\w.])",
        efforts=EFFORTS[1:5],
        reasons=True,
        samples=When.NEVER,
        stops=False,
    ),
    OpenAIModel(pattern=r"gpt-5\.1", efforts=("none", *EFFORTS[2:5]), samples=When.UNREASONED),
    OpenAIModel(pattern=r"gpt-5\.[23]", efforts=("none", *EFFORTS[2:6]), samples=When.UNREASONED),
    OpenAIModel(
        pattern=r"gpt-5\.4",
        efforts=("none", *EFFORTS[2:6]),
        samples=When.UNREASONED,
        calls=When.UNREASONED,
    ),
    OpenAIModel(
        pattern=r"gpt-5\.5",
        efforts=("none", *EFFORTS[2:6]),
        reasons=True,
        samples=When.UNREASONED,
        calls=When.UNREASONED,
    ),
    OpenAIModel(
        pattern=r"gpt-5\.6|gpt-6-(?:sol|luna|terra)",
        efforts=("none", *EFFORTS[2:]),
        reasons=True,
        samples=When.UNREASONED,
        calls=When.UNREASONED,
    ),
    OpenAIModel(
        pattern=r"gpt-6",
        efforts=EFFORTS[2:6],
        reasons=True,
        samples=When.NEVER,
        calls=When.NEVER,
    ),
)
_ANY = OpenAIModel()


def openai_model(name: str, family: Family) -> OpenAIModel:
    """The row of a model.

    Args:
        name: as it is sent to the provider.
        family: of the server.
    """
    if not family.own_models:
        return _ANY
    return next((row for row in _ROWS if re.match(row.pattern, name, re.IGNORECASE)), _ANY)


def settle(
    body: Mapping[str, Any], model: OpenAIModel, family: Family, *, translated: bool
) -> tuple[dict[str, Any], tuple[Loss, ...]]:
    """The body as a model takes it at its server, and what it loses by that.

    Args:
        body: as the wire wrote it, or as a client sent it and it was checked; what it holds is
            shared, and not changed.
        model: the row of the model that is asked.
        family: the row of the server.
        translated: the wire wrote it; a client of this format knows its servers' own fields.

    Returns:
        A fresh body; the losses.
    """
    settled = dict(body)
    losses: list[Loss] = []
    if translated:
        _leave_out(settled, model, family, losses)
    _call(settled, model, losses)
    _reason(settled, model, losses)
    _sample(settled, model, losses)
    _stop(settled, model, family, losses)
    return settled, tuple(losses)


def _leave_out(
    body: dict[str, Any], model: OpenAIModel, family: Family, losses: list[Loss]
) -> None:
    for name in sorted(family.lacks & body.keys()):
        del body[name]
        losses.append(Loss(param=name, message=f"{family.label} takes no {name!r}.", hint=True))
    if model.efforts is None and body.get("reasoning_effort") in _SWITCHES:
        del body["reasoning_effort"]
        _lose(losses, "Not every server has a word to switch reasoning on or off.")


_SWITCHES = ("none", DEFAULT_EFFORT)


def _call(body: dict[str, Any], model: OpenAIModel, losses: list[Loss]) -> None:
    if model.calls is not When.NEVER or not body.get("tools"):
        return
    losses.append(
        Loss(param="tools", message="This model calls tools in OpenAI's Responses alone.")
    )
    for name in ("tools", "tool_choice", "parallel_tool_calls"):
        body.pop(name, None)


# -- Reasoning -------------------------------------------------------------------------------------


def _reason(body: dict[str, Any], model: OpenAIModel, losses: list[Loss]) -> None:
    asked = word = body.pop("reasoning_effort", None)
    if model.calls is When.UNREASONED and body.get("tools"):
        word = "none" if asked or model.reasons else None
        if asked not in _UNREASONED:
            _lose(losses, "This model calls tools without reasoning only.")
    elif model.efforts == ():
        word = None
        if asked not in _UNREASONED:
            _lose(losses, "This model does not reason.")
    elif model.efforts and asked == DEFAULT_EFFORT:
        word = None if model.reasons else "medium"
    elif model.efforts and asked and asked not in model.efforts:
        word = _nearest(asked, model.efforts)
        _lose(losses, f"This model has no effort {quote(asked)}; {word!r} is asked of it.")
    if word is not None:
        body["reasoning_effort"] = word


_UNREASONED = (None, "none")


def _nearest(asked: str, efforts: tuple[str, ...]) -> str:
    """The next one down that the model has, or its least."""
    rank = EFFORTS.index(asked) if asked in EFFORTS else 0
    below = [word for word in EFFORTS[:rank] if word in efforts and word != "none"]
    return below[-1] if below else next(word for word in efforts if word != "none")


def _lose(losses: list[Loss], message: str) -> None:
    losses.append(Loss(param="reasoning_effort", message=message, hint=True))


# -- Sampling, and stop sequences ------------------------------------------------------------------


def _sample(body: dict[str, Any], model: OpenAIModel, losses: list[Loss]) -> None:
    """What is the default anyway is left out without a word."""
    effort = body.get("reasoning_effort") or ("medium" if model.reasons else "none")
    still = model.samples is When.UNREASONED and effort == "none"
    if model.samples is When.ALWAYS or still:
        return
    message = "This model chooses its tokens in a way of its own."
    losses += [
        Loss(param=name, message=message, hint=True)
        for name, default in _SAMPLING.items()
        if body.pop(name, None) not in (None, default)
    ]


_SAMPLING: Mapping[str, Any] = {
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": False,
    "top_logprobs": None,
}


def _stop(body: dict[str, Any], model: OpenAIModel, family: Family, losses: list[Loss]) -> None:
    stop, most = body.get("stop"), family.max_stop
    if stop and not model.stops:
        losses.append(Loss(param="stop", message="This model takes no stop sequences."))
        del body["stop"]
    elif most is not None and isinstance(stop, list) and len(stop) > most:
        message = f"{family.label} takes {most} stop sequences, not {len(stop)}."
        losses.append(Loss(param="stop", message=message))
        body["stop"] = stop[:most]
