"""The YAML that would mend what a drill found: as little of the owner's file as shows the place."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from router.config import Config, Route, Target
from router.core.continuation import ContinuationStyle, Style
from router.core.faults import Fault, FaultKind, Verdict
from router.drill.judge import Behaviour
from router.providers.registry import FAMILIES, PREFILL_STYLES

LITTLE_ROOM: Final = 0.8
"""A wait that took this share of its limit is one bad day away from being cut off."""
_LINE_CHARS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two targets of a route: the one that is killed, and the one that is asked next.

    Args:
        config: the owner's.
        route: the public model name.
        cut: position of the first, from 0.
        goes_on: position of the second; the same where the route has only one.
    """

    config: Config
    route: str
    cut: int
    goes_on: int

    @property
    def routed(self) -> Route:
        """The route's configuration."""
        return self.config.routes[self.route]

    @property
    def victim(self) -> Target:
        """The target that is killed."""
        return self.routed.targets[self.cut]

    @property
    def fallback(self) -> Target:
        """The target that is asked next."""
        return self.routed.targets[self.goes_on]

    @property
    def alone(self) -> bool:
        """There is nobody else."""
        return self.cut == self.goes_on


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change of the configuration.

    Args:
        why: one sentence.
        yaml: the changed keys at their place, or "" where no key would help.
    """

    why: str
    yaml: str = ""


# --- the place ------------------------------------------------------------------------------------


def _dump(tree: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(
        dict(tree), sort_keys=False, default_flow_style=None, width=_LINE_CHARS
    )
    return text


def _in_route(pair: Pair, keys: Mapping[str, Any]) -> str:
    return _dump({"routes": {pair.route: dict(keys)}})


def _in_target(pair: Pair, target: Target, keys: Mapping[str, Any]) -> str:
    entry = {"provider": target.provider, "model": target.model, **keys}
    return _in_route(pair, {"targets": [entry]})


def _continuation(pair: Pair, **keys: str) -> str:
    """The fallback's `continuation` with what it says already."""
    target = pair.fallback
    said = target.continuation.model_dump(mode="json", exclude_none=True, by_alias=True)
    return _in_target(pair, target, {"continuation": {**said, **keys}})


def _limit(pair: Pair, target: Target, name: str, seconds: float) -> str:
    return _in_target(pair, target, {"timeouts": {name: math.ceil(seconds)}})


# --- a second target ------------------------------------------------------------------------------


def second_target(pair: Pair) -> Fix:
    """Nobody can take over."""
    target = pair.victim
    entries = [
        {"provider": target.provider, "model": target.model},
        {"provider": "another-provider", "model": "its-model"},
    ]
    return Fix(
        why="The route has one target: when it stays away, nobody goes on. Add a second one, at "
        "another provider.",
        yaml=_in_route(pair, {"targets": entries}),
    )


# --- by what the fallback did ---------------------------------------------------------------------


def _instruct(pair: Pair, how: ContinuationStyle) -> Fix:
    name = pair.fallback.name
    if how.style in PREFILL_STYLES or how.style is Style.RESTART:
        return Fix(
            why=f"{name} does not go on from what `{how.style}` sends it: ask it in words.",
            yaml=_continuation(pair, style="instruct"),
        )
    usual = _usual_style(pair)
    if pair.fallback.continuation.style is Style.INSTRUCT and usual in PREFILL_STYLES:
        return Fix(
            why=f"{name} does not go on when it is asked in words. Its family takes a prefix:",
            yaml=_continuation(pair, style=usual.value),
        )
    return Fix(
        why=f"{name} does not go on even when it is asked in words. Keep it for answers that it "
        "begins, and put a target behind it that can continue.",
        yaml=_continuation(pair, style="none"),
    )


def _usual_style(pair: Pair) -> Style:
    target = pair.fallback
    return FAMILIES[pair.config.providers[target.provider].type].how_for(target.model).style


def _echo(pair: Pair, how: ContinuationStyle) -> Fix | None:
    if how.style not in PREFILL_STYLES or how.echo == "always":
        return None
    return Fix(
        why=f"{pair.fallback.name} repeats the prefix. With this the router counts on it, and "
        "forgives white space before it.",
        yaml=_continuation(pair, echo="always"),
    )


def _nothing(_pair: Pair, _how: ContinuationStyle) -> Fix | None:
    return None


_BY_BEHAVIOUR: Mapping[Behaviour, Callable[[Pair, ContinuationStyle], Fix | None]] = {
    Behaviour.ECHOED: _echo,
    Behaviour.ECHO_KEPT: _echo,
    Behaviour.RESTARTED: _instruct,
    Behaviour.DIVERGED: _instruct,
    Behaviour.REPEATED: _instruct,
    Behaviour.REMARKED: _instruct,
    Behaviour.EMPTY: _instruct,
}


def for_behaviour(pair: Pair, done: Behaviour, how: ContinuationStyle) -> Fix | None:
    """What would mend what the fallback did.

    Args:
        pair: who was asked.
        done: what it did.
        how: the style and knobs that it was asked with.
    """
    return _BY_BEHAVIOUR.get(done, _nothing)(pair, how)


def for_refusal(pair: Pair) -> Fix:
    """The prefix was refused, and words worked."""
    return Fix(
        why=f"{pair.fallback.name} refuses a prefix. The router found out and asked in words; with "
        "this it does so at once.",
        yaml=_continuation(pair, style="instruct"),
    )


def for_silence(pair: Pair) -> Fix:
    """The fallback is not allowed to continue."""
    return Fix(
        why=f"{pair.fallback.name} is configured never to continue (`style: none`), and nobody "
        "else is left.",
        yaml=_continuation(pair, style="instruct"),
    )


# --- by fault -------------------------------------------------------------------------------------


def _first_output(pair: Pair, target: Target, _: Fault) -> Fix:
    limit_s = pair.routed.timeouts_for(target).first_output_s
    return Fix(
        why=f"{target.name} had no first token within {limit_s:g} s. If that is usual for it:",
        yaml=_limit(pair, target, "first_output_s", 2 * limit_s),
    )


def _idle(pair: Pair, target: Target, _: Fault) -> Fix:
    limit_s = pair.routed.timeouts_for(target).idle_s
    return Fix(
        why=f"{target.name} was silent for {limit_s:g} s in mid-answer. If that is usual for it:",
        yaml=_limit(pair, target, "idle_s", 2 * limit_s),
    )


def _connect(pair: Pair, target: Target, _: Fault) -> Fix:
    limit_s = pair.routed.timeouts_for(target).connect_s
    return Fix(
        why=f"{target.name} could not be reached. Check `providers.{target.provider}.base_url`; "
        f"if it is only slow to connect ({limit_s:g} s were allowed):",
        yaml=_limit(pair, target, "connect_s", 2 * limit_s),
    )


def _deadline(pair: Pair, _: Target, __: Fault) -> Fix:
    total_s = pair.routed.timeouts.total_s
    return Fix(
        why=f"The request's whole time, {total_s:g} s, was over.",
        yaml=_in_route(pair, {"timeouts": {"total_s": math.ceil(2 * total_s)}}),
    )


def _context(pair: Pair, target: Target, _: Fault) -> Fix:
    return Fix(
        why=f"The request is too long for {target.name}. Tell the router how much each target "
        "takes, in tokens, and it goes to a larger one:",
        yaml=_in_target(pair, target, {"context_window": target.context_window or 8192}),
    )


_BY_FAULT: Mapping[FaultKind, Callable[[Pair, Target, Fault], Fix]] = {
    FaultKind.FIRST_OUTPUT_TIMEOUT: _first_output,
    FaultKind.IDLE_TIMEOUT: _idle,
    FaultKind.CONNECT: _connect,
    FaultKind.DEADLINE: _deadline,
    FaultKind.CONTEXT_LENGTH: _context,
}


def for_fault(pair: Pair, target: Target, fault: Fault) -> Fix | None:
    """What would mend a target's own fault.

    Args:
        pair: where it stands.
        target: whose fault.
        fault: it.
    """
    if fault.verdict is Verdict.ACCOUNT:
        what = "model" if fault.status == 404 else "api_key"
        change = {"api_key": "${ANOTHER_KEY}"}
        return Fix(
            why=f"{target.name} refuses the {'model name' if what == 'model' else 'key'} "
            f"(HTTP {fault.status}); a person must look at the account.",
            yaml=_in_target(pair, target, {})
            if what == "model"
            else _dump({"providers": {target.provider: change}}),
        )
    advise = _BY_FAULT.get(fault.kind)
    return advise(pair, target, fault) if advise else None


def for_little_room(pair: Pair, first_output_ms: float) -> Fix | None:
    """The fallback answered, but late.

    Args:
        pair: who was asked.
        first_output_ms: its wait for the first token.
    """
    limit_s = pair.routed.timeouts_for(pair.fallback).first_output_s
    if first_output_ms < LITTLE_ROOM * 1000 * limit_s:
        return None
    return Fix(
        why=f"{pair.fallback.name} took {first_output_ms / 1000:.1f} s of the {limit_s:g} s that "
        "it is given for its first token.",
        yaml=_limit(pair, pair.fallback, "first_output_s", 2 * first_output_ms / 1000),
    )
