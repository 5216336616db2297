"""What a Claude takes of a request, by its name: one table, the last row that its version reaches.

A translated body says all that the client said, in the words of the newest models
(`router/wire/anthropic/conversation_out.py`). A model answers 400 to what it does not know; here
that is taken out or said otherwise, and its loss is told. A request that came as Messages is the
client's own, and is sent as it is; only when an answer to it has begun must the next model take it.

A name of tomorrow is taken for the newest row. One that is no Claude's, at a server that speaks
Messages all the same, gets the words that such servers know: those of the format's early days.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from router.core.conversation import Loss
from router.wire.anthropic.conversation_out import DEFAULT_MAX_TOKENS
from router.wire.anthropic.request import EFFORTS, MIN_THINKING_TOKENS
from router.wire.checks import quote

SHARES: Mapping[str, float] = {"low": 0.2, "medium": 0.5, "high": 0.8, "xhigh": 0.9, "max": 0.9}
"""What an effort is as a share of `max_tokens`, for a model that takes a budget and no effort;
after https://openrouter.ai/docs/use-cases/reasoning-tokens. The rest is left for the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaudeModel:
    """One row.

    Args:
        since: the first version, and those up to the next row's.
        budget: it takes `thinking: {type: enabled}` with a budget.
        adaptive: it takes `thinking: {type: adaptive}`.
        off: what switches its thinking off; {} where nothing must be said, since it thinks only
            when it is asked to; None where it cannot be.
        efforts: the words for an effort that it takes.
        samples: it takes `temperature`, `top_p` and `top_k`.
        both: it takes `temperature` and `top_p` in one request.
        forced: it can be made to call a tool.
        max_tokens: the longest answer, where that is less than the router's default.
    """

    since: tuple[int, int] = (0, 0)
    budget: bool = False
    adaptive: bool = False
    off: Mapping[str, str] | None = None
    efforts: tuple[str, ...] = ()
    samples: bool = False
    both: bool = False
    forced: bool = True
    max_tokens: int | None = None


_NOT_ASKED: Mapping[str, str] = {}
_DISABLED = {"type": "disabled"}
_TO_MAX = ("low", "medium", "high", "max")

# https://platform.claude.com/docs/en/build-with-claude/extended-thinking: budgets since 3.7.
# https://platform.claude.com/docs/en/about-claude/models/migration-guide: since 4.1 one of
# `temperature` and `top_p`, since 4.6 adaptive thinking, since 4.7 no budget and no sampling.
# https://platform.claude.com/docs/en/build-with-claude/effort: who knows which effort.
# https://platform.claude.com/docs/en/models/sonnet-5-5/migration-guide and its neighbours: from 5
# on they think unless told not to, and 5.5 can be told less.
_ROWS = (
    ClaudeModel(off=_NOT_ASKED, samples=True, both=True, max_tokens=4_096),
    ClaudeModel(since=(3, 5), off=_NOT_ASKED, samples=True, both=True, max_tokens=8_192),
    ClaudeModel(since=(3, 7), budget=True, off=_NOT_ASKED, samples=True, both=True),
    ClaudeModel(since=(4, 1), budget=True, off=_NOT_ASKED, samples=True),
    ClaudeModel(
        since=(4, 6), budget=True, adaptive=True, off=_NOT_ASKED, efforts=_TO_MAX, samples=True
    ),
    ClaudeModel(since=(4, 7), adaptive=True, off=_NOT_ASKED, efforts=EFFORTS),
    ClaudeModel(since=(5, 0), adaptive=True, off=_DISABLED, efforts=EFFORTS),
    ClaudeModel(since=(5, 5), adaptive=True, off=None, efforts=EFFORTS),
)
_FOREIGN = ClaudeModel(budget=True, off=_NOT_ASKED, samples=True, both=True)

# What sets one apart from the others of its version: the first pattern that is found.
_APART: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (r"opus-4[.-]5(?!\d)|4[.-]5-opus", {"efforts": _TO_MAX[:3]}),
    (r"sonnet-5[.-][5-9]", {"off": {"type": "between_tools"}, "forced": False}),
    (r"haiku-5[.-][5-9]", {"off": _DISABLED}),
    (r"fable|mythos", {"off": None}),
)

_VERSION = re.compile(r"claude-(?:[a-z]+-)?v?(\d+)(?:[.-](\d{1,2})(?!\d))?", re.IGNORECASE)


def claude_model(name: str) -> ClaudeModel:
    """The row of a model.

    Args:
        name: as it is sent to the provider, with or without its maker's.
    """
    if re.search(r"claude", name, re.IGNORECASE) is None:
        return _FOREIGN
    found = _VERSION.search(name)
    version = (int(found[1]), int(found[2] or 0)) if found else _ROWS[-1].since
    row = next(row for row in reversed(_ROWS) if row.since <= version)
    apart = (knobs for pattern, knobs in _APART if re.search(pattern, name, re.IGNORECASE))
    return replace(row, **next(apart, {}))


def settle(body: Mapping[str, Any], model: ClaudeModel) -> tuple[dict[str, Any], tuple[Loss, ...]]:
    """The body as a model takes it, and what it loses by that.

    Args:
        body: as the wire wrote it, or as a client sent it and it was checked; what it holds is
            shared, and not changed.
        model: the row of the model that is asked.

    Returns:
        A fresh body; the losses, named as chat completions name their fields.
    """
    settled = {name: value for name, value in body.items() if value is not None}
    losses: list[Loss] = []
    _shorten(settled, model, losses)
    _force(settled, model, losses)
    _think(settled, model, losses)
    _try(settled, model, losses)
    _sample(settled, model, losses)
    return settled, tuple(losses)


def think_on(
    body: Mapping[str, Any], model: ClaudeModel
) -> tuple[dict[str, Any], tuple[Loss, ...]]:
    """A client's own request, in the midst of whose work another model took a turn.

    That turn came without a thought, or with one that nobody signed, which is not sent; Claude
    refuses to think on after it, and would at every request until the work is done.

    Args:
        body: as a client sent it and it was checked; what it holds is shared, and not changed.
        model: the row of the model that is asked.

    Returns:
        A fresh body; the losses, named as chat completions name their fields.
    """
    settled = dict(body)
    losses: list[Loss] = []
    if (body.get("thinking") or {}).get("type") == "enabled" and _lacks_thought(body):
        _think(settled, model, losses)
    return settled, tuple(losses)


def _shorten(body: dict[str, Any], model: ClaudeModel, losses: list[Loss]) -> None:
    """What the client asks for, and not what the router puts there for one that does not say."""
    asked, most = body["max_tokens"], model.max_tokens
    if most is None or asked <= most:
        return
    body["max_tokens"] = most
    if asked != DEFAULT_MAX_TOKENS:
        message = f"This model's answers have {most} tokens at most."
        losses.append(Loss(param="max_tokens", message=message, hint=True))


# -- Tools -----------------------------------------------------------------------------------------


def _force(body: dict[str, Any], model: ClaudeModel, losses: list[Loss]) -> None:
    choice = body.get("tool_choice") or {}
    if choice.get("type") in _FORCES and not model.forced:
        losses.append(
            Loss(param="tool_choice", message="This model cannot be made to call a tool.")
        )
        kept = {name: value for name, value in choice.items() if name != "name"}
        body["tool_choice"] = {**kept, "type": "auto"}


_FORCES = frozenset({"any", "tool"})


# -- Thinking --------------------------------------------------------------------------------------


def _think(body: dict[str, Any], model: ClaudeModel, losses: list[Loss]) -> None:
    """https://platform.claude.com/docs/en/build-with-claude/extended-thinking: where a tool must be
    called, thinking that was asked for is refused."""
    asked: Mapping[str, Any] = body.pop("thinking", None) or {}
    if not asked:
        return
    if asked["type"] in _OFF:
        if model.off:
            body["thinking"] = dict(model.off)
        elif model.off is None:
            _lose(losses, "This model always thinks; the least is asked of it.")
            body["output_config"] = {**body.get("output_config", {}), "effort": "low"}
        return
    if not (model.budget or model.adaptive):
        _lose(losses, "This model does not think.")
    elif (body.get("tool_choice") or {}).get("type") in _FORCES:
        _lose(losses, "Claude does not think before a call that it must make.")
        if model.off:
            body["thinking"] = dict(model.off)
    else:
        thinking = _thinking(body, asked, model, losses)
        if thinking:
            body["thinking"] = thinking


_OFF = frozenset({"disabled", "between_tools"})


def _thinking(
    body: Mapping[str, Any], asked: Mapping[str, Any], model: ClaudeModel, losses: list[Loss]
) -> dict[str, Any]:
    budget = asked.get("budget_tokens")
    display = {"display": asked["display"]} if model.adaptive and "display" in asked else {}
    if model.adaptive and (budget is None or not model.budget or _lacks_thought(body)):
        if budget is not None:
            _lose(losses, "How much to think is left to the model.")
        return {"type": "adaptive", **display}
    if _lacks_thought(body):
        _lose(
            losses, "Claude thinks on only with the thoughts before its calls, which are not here."
        )
        return {}
    most = body["max_tokens"]
    if budget is None:
        effort = body.get("output_config", {}).get("effort", "high")
        budget = int(most * SHARES.get(effort, SHARES["high"]))
    budget = min(max(budget, MIN_THINKING_TOKENS), most - 1)
    if budget < MIN_THINKING_TOKENS:
        _lose(losses, "The answer's budget leaves no room for thinking.")
        return {}
    return {"type": "enabled", "budget_tokens": budget, **display}


def _lacks_thought(body: Mapping[str, Any]) -> bool:
    """In the mode `enabled`, though not in `adaptive`, the calls whose results are handed in must
    stand behind a thought; none comes along from another format.
    https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking"""
    before = list(body["messages"])
    handed, called = _last_run(before, ("user", "system")), _last_run(before, ("assistant",))
    results = any(block["type"] == "tool_result" for block in handed)
    return results and called[:1] != [] and called[0]["type"] not in _THOUGHTS


def _last_run(messages: list[Mapping[str, Any]], roles: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """The blocks of the messages of these roles at the end, which are taken away there."""
    run: list[Mapping[str, Any]] = []
    while messages and messages[-1]["role"] in roles:
        run[:0] = _blocks(messages.pop())
    return run


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []


_THOUGHTS = frozenset({"thinking", "redacted_thinking"})


def _try(body: dict[str, Any], model: ClaudeModel, losses: list[Loss]) -> None:
    """An effort that the model has no word for becomes the next one down."""
    config: Mapping[str, Any] = body.get("output_config") or {}
    effort = config.get("effort")
    if effort is None or effort in model.efforts:
        return
    rank = EFFORTS.index(effort) if effort in EFFORTS else 0
    below = [word for word in EFFORTS[:rank] if word in model.efforts]
    said = (body.get("thinking") or {}).get("type") == "enabled"  # by the budget
    if below:
        _lose(losses, f"This model has no effort {effort!r}; {below[-1]!r} is asked of it.")
    elif not said and not any(loss.param == "reasoning_effort" for loss in losses):
        _lose(losses, f"This model has no effort {quote(effort)}.")
    rest = {name: value for name, value in config.items() if name != "effort"}
    if below:
        rest["effort"] = below[-1]
    body["output_config"] = rest
    if not rest:
        del body["output_config"]


# -- Sampling --------------------------------------------------------------------------------------


def _sample(body: dict[str, Any], model: ClaudeModel, losses: list[Loss]) -> None:
    """With thinking the temperature is 1, `top_p` at least 0.95, and there is no `top_k`:
    https://platform.claude.com/docs/en/build-with-claude/extended-thinking."""
    thinks = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    if not model.samples:
        message = "This model chooses its tokens in a way of its own."
        _without(body, ("temperature", "top_p", "top_k"), message, losses)
    elif thinks:
        high = body.get("top_p", 0) >= _LEAST_TOP_P
        names = ("temperature", "top_k") if high else ("temperature", "top_p", "top_k")
        _without(body, names, "Claude takes no other value while it thinks.", losses)
    elif not model.both and "temperature" in body:
        _without(body, ("top_p",), "This model takes one of `temperature` and `top_p`.", losses)


def _without(
    body: dict[str, Any], names: tuple[str, ...], message: str, losses: list[Loss]
) -> None:
    """What is the default anyway is left out without a word."""
    found = {name: body.pop(name) for name in names if name in body}
    losses += [
        Loss(param=name, message=message, hint=True)
        for name, value in found.items()
        if value != _DEFAULTS.get(name)
    ]


_DEFAULTS: Mapping[str, float] = {"temperature": 1, "top_p": 1}
_LEAST_TOP_P = 0.95


def _lose(losses: list[Loss], message: str) -> None:
    losses.append(Loss(param="reasoning_effort", message=message, hint=True))
