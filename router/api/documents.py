"""Which requests ask for a JSON document, and for which one. A bad schema is refused here, before
any upstream call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.core.json_schema import Schema, SchemaRefused, Schemas
from router.core.request import ChatRequest
from router.core.structured import Structured
from router.errors import RequestError

_PARAM = "response_format.json_schema.schema"


def document_for(request: ChatRequest, schemas: Schemas, *, always: bool) -> Structured | None:
    """The document that a request asks for.

    Args:
        request: what was asked.
        schemas: compiled ones.
        always: the route answers in JSON, whether the request says so or not.

    Returns:
        None for free text; also for several choices at once and for log probabilities, which no
        failover can take up and which only the provider's own pieces fit.

    Raises:
        RequestError: the schema cannot be used.
    """
    document = _document(request, schemas, always=always)
    return None if request.n != 1 or request.logprobs else document


def _document(request: ChatRequest, schemas: Schemas, *, always: bool) -> Structured | None:
    wanted: Mapping[str, Any] = request.response_format or {}
    match wanted.get("type"):
        case "json_schema":
            return Structured(_compiled(wanted, schemas))
        case "json_object":
            return Structured(openers="{")
        case _:
            return Structured() if always else None


def _compiled(wanted: Mapping[str, Any], schemas: Schemas) -> Schema | None:
    named = wanted.get("json_schema")
    schema = named.get("schema") if isinstance(named, Mapping) else None
    if schema is None:
        return None  # OpenAI allows a name without a schema: any JSON
    try:
        return schemas.compile(schema)
    except SchemaRefused as refused:
        where = refused.path.removeprefix("#").replace("/", ".")
        raise RequestError(
            f"The schema cannot be used: at {refused.path}: {refused.reason}.",
            param=f"{_PARAM}{where}"[:300],
            code="invalid_schema",
        ) from None
