"""A JSON Schema as Anthropic's structured output takes it.

It takes a part of JSON Schema and refuses the rest with 400:
https://platform.claude.com/docs/en/build-with-claude/structured-outputs. The router checks every
document against the client's own schema, so what is sent need not say all of it: keywords that only
narrow (lengths, ranges, patterns) are left out, and an object without a word on further properties
is held to those that are named. Whatever fits a schema that was narrowed fits the client's, and
whatever a left-out keyword would have refused the router refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.wire.checks import Object
from router.wire.jsontext import Json

_STRING_FORMATS: Final = frozenset(
    {
        *("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6"),
        "uuid",
    }
)
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_NOTES: Final = ("title", "description", "default")
_LITERALS: Final = (str, int, float, bool, type(None))


def output_schema(schema: Object) -> dict[str, Any] | None:
    """The schema in the part of JSON Schema that Anthropic takes.

    Args:
        schema: the client's.

    Returns:
        A fresh object, whose documents are meant to be the client's; None where too little of the
        schema can be said: maps of any keys, values of any kind, schemas that refer to themselves
        or elsewhere.
    """
    definitions = _definitions(schema)
    if definitions is None or _recursive(definitions):
        return None
    written = _schema(schema)
    if written is None:
        return None
    if definitions:
        written["$defs"] = definitions
    return written


def _definitions(schema: Object) -> dict[str, Any] | None:
    """What `$ref` may name; None if one of them cannot be said."""
    written: dict[str, Any] = {}
    definitions = schema.get("$defs") or {}
    if not isinstance(definitions, dict):
        return None
    for name, definition in definitions.items():
        written[name] = _schema(definition)
        if written[name] is None:
            return None
    return written


def _schema(schema: Json) -> dict[str, Any] | None:
    if not isinstance(schema, dict):
        return None
    if "$ref" in schema:
        reference = schema["$ref"]
        known = isinstance(reference, str) and reference.startswith(_DEFINED)
        return {"$ref": reference} if known else None
    body = _literals(schema) or _choice(schema) or _typed(schema)
    if body is None:
        return None
    return {name: schema[name] for name in _NOTES if name in schema} | body


def _literals(schema: Object) -> dict[str, Any] | None:
    if "const" in schema and isinstance(schema["const"], _LITERALS):
        return {"const": schema["const"]}
    values = schema.get("enum")
    if not isinstance(values, list) or not values:
        return None
    if not all(isinstance(value, _LITERALS) for value in values):
        return None
    written: dict[str, Any] = {"enum": values}
    return written | ({"type": schema["type"]} if _is_type(schema.get("type")) else {})


def _choice(schema: Object) -> dict[str, Any] | None:
    branches = schema.get("anyOf", schema.get("oneOf"))
    if not isinstance(branches, list) or not branches:
        return None
    written = [_schema(branch) for branch in branches]
    return None if None in written else {"anyOf": written}


def _typed(schema: Object) -> dict[str, Any] | None:
    kind = schema.get("type")
    if not _is_type(kind) or any(word in schema for word in _WIDE):
        return None
    kinds = set(kind) if isinstance(kind, list) else {kind}
    written: dict[str, Any] = {"type": kind}
    for name, more in _MORE.items():
        if name in kinds:
            further = more(schema)
            if further is None:
                return None
            written |= further
    return written


def _is_type(kind: Json) -> bool:
    kinds = kind if isinstance(kind, list) else [kind]
    return bool(kinds) and all(isinstance(word, str) and word in _TYPES for word in kinds)


def _object(schema: Object) -> dict[str, Any] | None:
    properties = schema.get("properties")
    closed = schema.get("additionalProperties") is False
    if not isinstance(properties, dict) or not (properties or closed):
        return None  # a map of any keys
    if not closed and isinstance(schema.get("additionalProperties"), dict):
        return None
    named = {name: _schema(value) for name, value in properties.items()}
    if None in named.values():
        return None
    required = {"required": schema["required"]} if schema.get("required") else {}
    return {"properties": named, "additionalProperties": False, **required}


def _array(schema: Object) -> dict[str, Any] | None:
    items = _schema(schema.get("items"))
    if items is None:
        return None
    least = schema.get("minItems")
    return {"items": items} | ({"minItems": least} if least in (0, 1) else {})


def _string(schema: Object) -> dict[str, Any]:
    word = schema.get("format")
    return {"format": word} if isinstance(word, str) and word in _STRING_FORMATS else {}


def _recursive(definitions: Mapping[str, Any]) -> bool:
    """Does a definition, by way of others, refer to itself?"""
    uses = {name: _references(value) for name, value in definitions.items()}
    done: set[str] = set()
    while ready := {name for name, used in uses.items() if used <= done} - done:
        done |= ready
    return len(done) < len(uses)


def _references(value: Json) -> set[str]:
    """Names of the definitions that a value refers to."""
    if isinstance(value, list):
        return {name for item in value for name in _references(item)}
    if not isinstance(value, dict):
        return set()
    own = value.get("$ref")
    found = {own.removeprefix(_DEFINED)} if isinstance(own, str) else set()
    return found | {name for item in value.values() for name in _references(item)}


_DEFINED: Final = "#/$defs/"
_WIDE: Final = ("patternProperties", "allOf", "not", "if", "prefixItems", "$dynamicRef")
"""Keywords that change what a value is so much that a schema without them says something else."""
_MORE: Final = {"object": _object, "array": _array, "string": _string}
