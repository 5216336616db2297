"""What a router's owner may ask: the books, the targets, the counters. Never a client's text.

GET /router/requests              rows, newest first, with filters
GET /router/requests/{stream_id}  the rows of one stream
GET /router/targets               how every target stands
GET /metrics                      counters in Prometheus's text format
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from router.api.asgi import Scope, headers_of
from router.api.serving import Generation, Serving
from router.books import OUTCOMES, Found, Wanted
from router.core.faults import FaultKind
from router.engine.route import Route, Target
from router.errors import RecordUnavailable, RequestError
from router.metrics import CONTENT_TYPE, Present

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
"""Rows in one answer."""

MAX_VALUE_CHARS = 512
"""Bound on a filter's value: a target's name has at most 320."""

_NEVER_KEPT = {"cache-control": "no-store"}


def is_admin(path: str) -> bool:
    """Whether a path is the owner's, whatever is there or not.

    Args:
        path: of the URL.
    """
    return path in ("/metrics", "/router") or path.startswith("/router/")


def authorize_admin(generation: Generation, scope: Scope) -> None:
    """Let an owner in.

    Args:
        generation: whose keys count.
        scope: of the request.

    Raises:
        RequestError: 401 or 403.
    """
    settings = generation.settings
    keys = "server.admin_keys" if settings.admin_digests else "server.api_keys"
    if settings.admin_digests or settings.key_digests:
        if not settings.is_admin(headers_of(scope).get("authorization")):
            raise RequestError(
                f"The key is missing or not one that opens this. Send one of {keys} as "
                "'Authorization: Bearer <key>'.",
                status=401,
                code="invalid_api_key",
                headers=(("www-authenticate", "Bearer"),),
            )
    elif not _is_loopback((scope.get("client") or ("",))[0]):
        raise RequestError(
            "Without keys this is answered only on the machine that the router runs on. Set "
            "server.admin_keys to ask from elsewhere.",
            status=403,
            code="not_allowed",
        )


def add_admin(app: FastAPI, serving: Serving) -> None:
    """Add the owner's routes; whoever comes this far was let in.

    Args:
        app: gets them.
        serving: what is being served.
    """

    @app.get("/router/requests")
    async def requests(request: Request) -> Response:
        """Rows, newest first."""
        query = _Query(request)
        return _json(_rows(await _find(serving, query.wanted, query.cursor, query.limit)))

    @app.get("/router/requests/{stream_id}")
    async def stream(stream_id: str) -> Response:
        """The rows of one stream: one, or one per router that took it over."""
        found = await _find(serving, Wanted(stream_id=stream_id[:MAX_VALUE_CHARS]), None, MAX_LIMIT)
        if not found.rows:
            raise RequestError(
                "There is no such stream in the books: it is still running, or it was forgotten.",
                status=404,
                param="stream_id",
                code="stream_not_found",
            )
        return _json(_rows(found))

    @app.get("/router/targets")
    async def targets() -> Response:
        """How every target stands."""
        return _json({"object": "list", "data": list(_targets(serving))})

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counters in Prometheus's text format."""
        text = serving.metrics.text(_present(serving))
        return Response(text, media_type=CONTENT_TYPE, headers=_NEVER_KEPT)


async def _find(serving: Serving, wanted: Wanted, cursor: str | None, limit: int) -> Found:
    try:
        return await serving.books.find(wanted, cursor=cursor, limit=limit)
    except ValueError:
        raise _wrong("cursor", "is no cursor of this router", "Take `next_cursor` as it is.") from (
            None
        )
    except RecordUnavailable:
        raise RequestError(
            "The shared books do not answer, and the cursor is a place in them. Ask without a "
            "cursor for the rows of this process alone, or later.",
            status=503,
            type="server_error",
            param="cursor",
            code="books_unavailable",
            headers=(("retry-after", "1"),),
        ) from None


def _rows(found: Found) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [msgspec.Raw(row) for row in found.rows],
        "next_cursor": found.cursor,
        "books": "all" if found.shared else "this process",
        "scanned": found.scanned,
    }


def _targets(serving: Serving) -> Iterator[dict[str, Any]]:
    """One object per target, in the order of the configuration, with the routes it serves."""
    places: dict[str, list[tuple[int, Route, Target]]] = {}
    for route in serving.generation.routes.values():
        for at, target in enumerate(route.targets):
            places.setdefault(target.name, []).append((at, route, target))
    for name, found in places.items():
        yield {
            "target": name,
            "model": found[0][2].model,
            **serving.engine.health.summary(name),
            "routes": [_place(at, route, target) for at, route, target in found],
        }


def _place(at: int, route: Route, target: Target) -> dict[str, Any]:
    learnt_s = target.gaps.limit_s()
    return {
        "route": route.name,
        "priority": at + 1,
        "stall": route.stall.value,
        "idle_s": target.idle_s,
        "learnt_stall_s": None if learnt_s is None else round(learnt_s, 3),
    }


def _present(serving: Serving) -> Present:
    health, sharing = serving.engine.health, serving.sharing
    names = [one.name for route in serving.generation.routes.values() for one in route.targets]
    events = {"record": serving.engine.store.stats, "books": serving.books.stats}
    if sharing is not None:
        events["shared_health"] = sharing.stats
    return Present(
        in_flight=serving.in_flight,
        tasks=len(asyncio.all_tasks()),
        targets_up={name: health.available(name) for name in names},
        events=events,
    )


# --- the query ----------------------------------------------------------------------------------


class _Query:
    """The query of a search, understood or refused.

    Args:
        request: whose.

    Raises:
        RequestError: what is wrong with it, and what would be right.
    """

    def __init__(self, request: Request) -> None:
        given = request.query_params.multi_items()
        for name, times in Counter(name for name, _ in given).items():
            if name not in _PARAMETERS:
                known = ", ".join(_PARAMETERS)
                raise _wrong(name[:64], "is not known here", f"There are: {known}.")
            if times > 1:
                raise _wrong(name, "is given more than once", "Give it once.")
        values = {name: _PARAMETERS[name](name, value) for name, value in given}
        self.limit: int = values.pop("limit", DEFAULT_LIMIT)
        self.cursor: str | None = values.pop("cursor", None)
        since_s, until_s = values.pop("since", None), values.pop("until", None)
        if None not in (since_s, until_s) and since_s >= until_s:
            raise _wrong("since", "is not before `until`", "Exchange them.")
        self.wanted = Wanted(since_s=since_s, until_s=until_s, **values)


def _word(name: str, value: str) -> str:
    if not value or len(value) > MAX_VALUE_CHARS:
        raise _wrong(name, "is empty or too long", "Give a name, or leave it away.")
    return value


def _one_of(words: Mapping[str, object] | frozenset[str]) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        if value not in words:
            raise _wrong(name, "is none that there is", f"There are: {', '.join(sorted(words))}.")
        return value

    return check


def _limit(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", value) or not 1 <= int(value) <= MAX_LIMIT:
        raise _wrong(name, "is no number that is allowed", f"Give one from 1 to {MAX_LIMIT}.")
    return int(value)


def _time(name: str, value: str) -> float:
    """Unix seconds, or a date and time with its zone."""
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", value):
        return float(value)
    try:
        # An unescaped `+` of a zone arrives as a blank.
        when = datetime.fromisoformat(re.sub(r" (?=[0-9]{2}:?[0-9]{2}$)", "+", value))
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        remedy = "Give Unix seconds, or such as 2026-01-31T12:00:00Z, with its zone."
        raise _wrong(name, "is no time", remedy)
    return when.timestamp()


_PARAMETERS: Mapping[str, Callable[[str, str], Any]] = {
    "route": _word,
    "target": _word,
    "outcome": _one_of(OUTCOMES),
    "fault": _one_of(frozenset(kind.value for kind in FaultKind)),
    "since": _time,
    "until": _time,
    "stream_id": _word,
    "limit": _limit,
    "cursor": _word,
}
"""Every parameter, and who understands it."""


def _wrong(name: str, what: str, remedy: str) -> RequestError:
    return RequestError(f"`{name}` {what}. {remedy}", param=name, code="invalid_parameter")


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _json(content: object) -> Response:
    body = msgspec.json.encode(content)
    return Response(body, media_type="application/json", headers=_NEVER_KEPT)
