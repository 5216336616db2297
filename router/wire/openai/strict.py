"""Which schemas OpenAI holds a model to.

With `strict` it takes a part of JSON Schema and refuses the rest with 400:
https://developers.openai.com/api/docs/guides/structured-outputs#supported-schemas. Without it a
schema is advice, and the router checks the answer itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from router.wire.checks import Object
from router.wire.jsontext import Json

_REFUSED: Final = frozenset(
    {
        *("allOf", "oneOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else"),
        *("patternProperties", "default", "uniqueItems", "contains", "prefixItems"),
    }
)
_NAMED: Final = ("properties", "$defs", "definitions")


def is_strict(schema: Object) -> bool:
    """Does OpenAI take a schema with `strict`?

    Args:
        schema: of an answer or of a tool's arguments.
    """
    return schema.get("type") == "object" and _takes(schema)


def _takes(schema: Json) -> bool:
    if not isinstance(schema, dict) or not _REFUSED.isdisjoint(schema):
        return False
    if not (schema.keys() & _SAYS_KIND):
        return False
    if schema.get("type") == "object" and not _closed(schema):
        return False
    return all(_takes(value) for value in _inner(schema))


def _inner(schema: Object) -> Iterable[Json]:
    """The schemas that one holds."""
    for name in _NAMED:
        named = schema.get(name)
        if isinstance(named, dict):
            yield from named.values()
    branches = schema.get("anyOf")
    yield from branches if isinstance(branches, list) else ()
    if "items" in schema:
        yield schema["items"]


def _closed(schema: Object) -> bool:
    """All properties are named, and all of them must be there."""
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    if not isinstance(properties, dict) or not isinstance(required, list):
        return False
    every = len(properties) == len(required) and all(name in required for name in properties)
    return every and schema.get("additionalProperties") is False


_SAYS_KIND: Final = frozenset({"type", "enum", "const", "anyOf", "$ref"})
