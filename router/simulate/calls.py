"""A call of a tool that a request offers, made up from the tool's own schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from router.core.events import ToolCall

MAX_DEPTH: Final = 8
"""Schemas within each other, and references one after the other, that are gone into."""

MAX_LENGTH: Final = 1_000
"""Characters of a made-up string, and items of a made-up array, whatever the schema asks for."""

_WORD: Final = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A tool that the client runs itself.

    Args:
        name: as it is called.
        schema: of its arguments; Gemini's own kind, with types in capitals, will do.
    """

    name: str
    schema: Mapping[str, Any] = field(default_factory=dict)


def make_call(offers: Sequence[Offer], name: str, call_id: str) -> tuple[ToolCall, ...]:
    """A call of one tool, with the least that its schema requires; the same every time.

    Args:
        offers: the tools there are.
        name: which; "" is the first.
        call_id: of the call.

    Returns:
        The call, or nothing if there is no such tool.
    """
    for offer in offers:
        if name in {"", offer.name}:
            arguments = msgspec.json.encode(_made(offer.schema, offer.schema, 0) or {}).decode()
            return (ToolCall(index=0, id=call_id, name=offer.name, arguments=arguments),)
    return ()


def _made(schema: object, root: Mapping[str, Any], depth: int) -> Any:  # noqa: ANN401 - JSON is anything
    """A value that a schema allows, as far as its common keywords say."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if "$ref" in schema:
        return _made(_referred(str(schema["$ref"]), root), root, depth + 1)
    for several in ("allOf", "anyOf", "oneOf"):
        if schema.get(several):
            return _made({**schema, several: None, **schema[several][0]}, root, depth + 1)
    return _of_kind(_kind(schema), schema, root, depth)


def _of_kind(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:  # noqa: ANN401 - JSON is anything
    if kind == "object":
        properties = schema.get("properties") or {}
        required = schema.get("required") or ()
        return {name: _made(properties.get(name, {}), root, depth + 1) for name in required}
    if kind == "array":
        items = min(int(schema.get("minItems") or 0), MAX_LENGTH)
        return [_made(schema.get("items"), root, depth + 1) for _ in range(items)]
    if kind in {"integer", "number"}:
        return _number(schema)
    if kind == "string":
        return _string(schema)
    return True if kind == "boolean" else None


def _kind(schema: Mapping[str, Any]) -> str:
    kinds = schema.get("type") or ("object" if "properties" in schema else "null")
    words = [str(kind).lower() for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    return next((word for word in words if word != "null"), "null")


def _number(schema: Mapping[str, Any]) -> int | float:
    """1, or what comes nearest to it."""
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is None and "exclusiveMinimum" in schema:
        least = schema["exclusiveMinimum"] + 1
    if most is None and "exclusiveMaximum" in schema:
        most = schema["exclusiveMaximum"] - 1
    number: int | float = max(1, least) if least is not None else 1
    return min(number, most) if most is not None else number


def _string(schema: Mapping[str, Any]) -> str:
    least = min(int(schema.get("minLength") or 0), MAX_LENGTH)
    most = schema.get("maxLength", MAX_LENGTH)
    return _WORD.ljust(least, "x")[: int(most)]


def _referred(reference: str, root: Mapping[str, Any]) -> object:
    """What a reference within the schema means; None if it leads elsewhere."""
    found: object = root
    if not reference.startswith("#"):
        return None
    for step in reference.removeprefix("#").split("/")[1:]:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
