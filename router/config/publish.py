"""The configuration's JSON schema for editors, from the same objects that validate it."""

from __future__ import annotations

import json
from typing import Any

from router.config.schema import Config

_VARIABLE = {"type": "string", "pattern": r"\$\{"}
"""Where a number, a truth value or a choice is wanted, a `${VAR}` may stand for it."""


def json_schema() -> str:
    """The published schema, as `docs/config.schema.json` holds it, with a final line end."""
    schema: dict[str, Any] = _open(Config.model_json_schema(by_alias=True))
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    schema["title"] = "Configuration of the router"
    schema["patternProperties"] = {"^x-": {"description": "One's own: a place for anchors."}}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _open(node: Any) -> Any:  # noqa: ANN401 - any JSON value in, the same kind out
    """`node` with `${VAR}` allowed for every scalar, and without pydantic's generated titles."""
    if isinstance(node, list):
        return [_open(item) for item in node]
    if not isinstance(node, dict):
        return node
    opened = {
        key: {name: _open(item) for name, item in value.items()}
        if key in ("properties", "$defs")
        else value
        if key in ("default", "enum", "const", "required")
        else _open(value)
        for key, value in node.items()
        if key != "title" or not isinstance(value, str)
    }
    if "patternProperties" in opened:
        opened["additionalProperties"] = False  # a name that fits no pattern is refused
    said: Any = opened.get("description")
    if isinstance(said, str):
        opened["description"] = " ".join(said.split())
    return _either(opened)


def _either(schema: dict[str, Any]) -> dict[str, Any]:
    """A scalar's schema, or a variable; a free text's schema holds one already."""
    free = schema.get("type") == "string" and not schema.keys() & {"pattern", "enum", "const"}
    scalar = schema.get("type") in ("string", "number", "integer", "boolean") or "enum" in schema
    if free or not scalar:
        return schema
    outer: dict[str, Any] = {
        key: schema.pop(key) for key in ("description", "default") if key in schema
    }
    return {**outer, "anyOf": [schema, _VARIABLE]}
