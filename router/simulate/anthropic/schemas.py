"""JSON schemas that Anthropic refuses, in its own words.

Sources: https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations
and what the API was seen to answer, such as in
https://github.com/BerriAI/litellm/pull/20813 and https://github.com/agentjido/req_llm/issues/302
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from router.simulate.dialect import Refused

_NUMERIC: Final = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
_UNSUPPORTED: Final[Mapping[str, frozenset[str]]] = {
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "string": frozenset({"minLength", "maxLength"}),
    "array": frozenset({"maxItems", "uniqueItems", "contains", "minContains", "maxContains"}),
    "object": frozenset({"minProperties", "maxProperties", "patternProperties", "propertyNames"}),
}
_UNIONS: Final = ("anyOf", "allOf", "oneOf")


def check_output_schema(schema: object, where: str) -> None:
    """Refuse a schema of structured output that the vendor's grammar cannot hold.

    Args:
        schema: of `output_config.format`.
        where: its path.

    Raises:
        Refused: in the vendor's words.
    """
    if not isinstance(schema, dict):
        raise Refused(f"{where}: Input should be an object")
    for node in _nodes(schema):
        _check_node(node, where)


def _check_node(node: Mapping[str, Any], where: str) -> None:
    kinds = node.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        found = sorted(_UNSUPPORTED.get(str(kind), frozenset()) & node.keys())
        if len(found) == 1:
            raise Refused(f"{where}: For '{kind}' type, property '{found[0]}' is not supported")
        if found:
            raise Refused(
                f"{where}: For '{kind}' type, properties {', '.join(found)} are not supported"
            )
        if kind == "array" and node.get("minItems", 0) not in (0, 1):
            raise Refused(
                f"{where}: For 'array' type, 'minItems' values other than 0 or 1 are not supported"
            )
        if kind == "object" and node.get("additionalProperties") is not False:
            raise Refused(
                f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to "
                "false"
            )


def _nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema and all schemas inside it."""
    yield schema
    inner: list[object] = [schema.get("items")]
    for name in ("properties", "$defs", "definitions"):
        inner += (schema.get(name) or {}).values()
    for name in _UNIONS:
        inner += schema.get(name) or ()
    for node in inner:
        if isinstance(node, dict):
            yield from _nodes(node)


def check_tool_schema(schema: object, where: str) -> None:
    """Refuse a tool's input schema that the vendor refuses.

    Args:
        schema: `input_schema` of a tool.
        where: path of the tool.

    Raises:
        Refused: in the vendor's words.
    """
    if not isinstance(schema, dict):
        raise Refused(f"{where}.input_schema: Field required")
    if "type" not in schema:
        raise Refused(f"{where}.input_schema.type: Field required")
    if schema["type"] != "object":
        raise Refused(f"{where}.input_schema.type: Input should be 'object'")
    if any(name in schema for name in _UNIONS):
        raise Refused(
            f"{where}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the "
            "top level"
        )
