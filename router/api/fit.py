"""Which targets of a route can be told what a request asks, where they speak another format.

What a target cannot be told is found before anyone is called. A hint (a cache mark, a user's name)
is left out. Anything else makes the target unfit, and it is passed over; or, where the route says
`unsupported: drop`, it is left out too. What was left out is told in a header and in the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from router.core.conversation import Loss
from router.core.request import ChatRequest
from router.engine.route import Route, Target
from router.errors import RequestError

MAX_DROPPED_CHARS: Final = 1024
"""Bound on the header `X-Router-Dropped`: proxies refuse long ones."""

MAX_QUOTED_CHARS: Final = 500
"""Bound on a client's own words in an error."""

_UNSAFE: Final = re.compile(r"[^!-+\--~]+")
"""What no name in a list in a header may hold: it is a client's own word."""

_log = logging.getLogger("router.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Where a request may be answered.

    Args:
        route: with those targets alone that can be told what it asks.
        dropped: by target, the names of what it is not told, for a header; only targets that
            something is dropped for.
    """

    route: Route
    dropped: Mapping[str, str]


def fit(request: ChatRequest, route: Route) -> Fit:
    """Find the targets that can be told what a request asks.

    Args:
        request: in the client's format.
        route: whose targets.

    Raises:
        RequestError: no target can; or the request is wrong in a way that shows in translation.
    """
    losses = {
        target.name: target.provider.losses(request, first=not at)
        for at, target in enumerate(route.targets)
    }
    able = tuple(one for one in route.targets if _is_able(one, request, route, losses[one.name]))
    if not able:
        raise _unsupported(route, losses)
    dropped = {one.name: _names(losses[one.name]) for one in able if losses[one.name]}
    if len(able) == len(route.targets):
        return Fit(route=route, dropped=dropped)
    passed_over = {
        one.name: _names([loss for loss in losses[one.name] if not loss.hint])
        for one in route.targets
        if one not in able
    }
    return Fit(route=replace(route, targets=able, passed_over=passed_over), dropped=dropped)


def _is_able(target: Target, request: ChatRequest, route: Route, losses: Sequence[Loss]) -> bool:
    """It may be asked. Of a request in its own format nothing is demanded that it cannot be told:
    what a model refuses is left out only where another was asked before it."""
    same = target.provider.format is request.format
    return same or route.drop_unsupported or all(loss.hint for loss in losses)


def tell(fitted: Fit, stream_id: str) -> None:
    """Log what a stream's targets are not told; nothing where they are told all.

    Args:
        fitted: what was found.
        stream_id: of the stream.
    """
    name = fitted.route.name
    for target, what in fitted.route.passed_over.items():
        _log.info("stream %s, route %s: %s is passed over: %s", stream_id, name, target, what)
    for target, what in fitted.dropped.items():
        _log.info("stream %s, route %s: %s is not told: %s", stream_id, name, target, what)


def _unsupported(route: Route, losses: Mapping[str, Sequence[Loss]]) -> RequestError:
    name = route.targets[0].name
    first = next(loss for loss in losses[name] if not loss.hint)
    return RequestError(
        f"No target of the route {route.name!r} can be asked for this. "
        f"{name}: {_bounded(first.message)} "
        "Leave it out, or let the route drop what a target does not know (unsupported: drop).",
        param=_bounded(first.param),
        code="unsupported_parameter",
    )


def _bounded(text: str) -> str:
    """A field's name is a client's own word."""
    return text if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]}…"


def _names(losses: Sequence[Loss]) -> str:
    """The fields, as one header value."""
    names = dict.fromkeys(_UNSAFE.sub("?", loss.param) for loss in losses)
    text = ", ".join(names)
    return text if len(text) <= MAX_DROPPED_CHARS else f"{text[: MAX_DROPPED_CHARS - 3]}..."
