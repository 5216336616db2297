"""What a client chooses by request headers, over what its route says.

| header | values |
|---|---|
| `X-Router-On-Interrupt` | `resume`, `restart`, `partial` |
| `X-Router-Tool-Calls` | `stream`, `atomic` |
| `X-Router-Events` | `named`, `ids`, `named,ids` |
| `X-Router-JSON` | `closed` |
| `X-Router-Metadata` | `always` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from router.core.json_schema import Schema, SchemaRefused, Schemas
from router.core.request import ChatRequest
from router.engine.options import OnInterrupt, Options
from router.engine.route import Route
from router.errors import RequestError

_CHOICES = {
    "x-router-on-interrupt": tuple(OnInterrupt),
    "x-router-tool-calls": ("stream", "atomic"),
    "x-router-events": ("named", "ids", "named,ids"),
    "x-router-json": ("closed",),
    "x-router-metadata": ("always",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """All that a client chose.

    Args:
        options: for the engine.
        named_events: it reads events with a name.
        event_ids: it wants ids on events, to come back with `Last-Event-ID`.
        close_json: a broken-off document is closed so that it parses.
        metadata: it wants the `router` object whatever happens.
    """

    options: Options
    named_events: bool = False
    event_ids: bool = False
    close_json: bool = False
    metadata: bool = False


def choices_of(
    headers: Mapping[str, str], request: ChatRequest, route: Route, schemas: Schemas
) -> Choices:
    """Read a request's choices.

    Args:
        headers: of the request, names in lower case.
        request: what was asked.
        route: whose settings hold where the client chose nothing.
        schemas: compiled ones.

    Returns:
        The choices.

    Raises:
        RequestError: an unknown word, a strategy that the client cannot follow, a tool's schema
            that cannot be used.
    """
    chosen = {name: _word(headers, name) for name in _CHOICES}
    events = chosen["x-router-events"].split(",")
    named = "named" in events
    tool_calls = chosen["x-router-tool-calls"]
    atomic = tool_calls == "atomic" if tool_calls else route.atomic_tools
    return Choices(
        options=Options(
            on_interrupt=_strategy(chosen["x-router-on-interrupt"], route, request, named=named),
            atomic_tools=atomic,
            tools=_tools(request, schemas, atomic=atomic),
            think_tags=route.think_tags,
        ),
        named_events=named,
        event_ids="ids" in events,
        close_json=chosen["x-router-json"] == "closed",
        metadata=chosen["x-router-metadata"] == "always",
    )


def _word(headers: Mapping[str, str], name: str) -> str:
    """One header's word, "" if it is not sent."""
    word = headers.get(name, "").replace(" ", "").lower()
    if word and word not in _CHOICES[name]:
        raise RequestError(
            f"The header {name} takes {' or '.join(_CHOICES[name])}, not {word[:50]!r}.",
            param=name,
            code="invalid_header",
        )
    return word


def _strategy(word: str, route: Route, request: ChatRequest, *, named: bool) -> OnInterrupt:
    """A stream can begin anew only for a client that reads the event which says so; a client that
    wants no stream sees nothing before the end."""
    can_restart = named or not request.stream
    if word == OnInterrupt.RESTART and not can_restart:
        raise RequestError(
            "x-router-on-interrupt: restart needs x-router-events: named, "
            "or nothing would tell this client that the answer begins anew.",
            param="x-router-on-interrupt",
            code="invalid_header",
        )
    strategy = OnInterrupt(word) if word else route.on_interrupt
    if strategy is OnInterrupt.RESTART and not can_restart:
        return OnInterrupt.RESUME
    return strategy


def _tools(request: ChatRequest, schemas: Schemas, *, atomic: bool) -> dict[str, Schema | None]:
    compiled: dict[str, Schema | None] = {}
    for at, tool in enumerate(request.tools):
        function: Mapping[str, Any] = tool.get("function") or tool.get("custom") or {}
        name, parameters = function.get("name"), function.get("parameters")
        if isinstance(name, str):
            compiled[name] = (
                None if parameters is None else _compile(parameters, schemas, at, atomic=atomic)
            )
    return compiled


def _compile(parameters: object, schemas: Schemas, at: int, *, atomic: bool) -> Schema | None:
    try:
        return schemas.compile(parameters)
    except SchemaRefused as refused:
        if not atomic and refused.limit:
            return None  # nothing is checked here, and the provider may take more than we do
        where = refused.path.removeprefix("#").replace("/", ".")
        raise RequestError(
            f"The schema of a tool cannot be used: at {refused.path}: {refused.reason}.",
            param=f"tools[{at}].function.parameters{where}"[:300],
            code="invalid_schema",
        ) from None
