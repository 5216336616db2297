"""Requests that Gemini refuses beyond their fields, in its own words.

Sources: https://ai.google.dev/gemini-api/docs/function-calling and the pages on thinking, thought
signatures and structured output beside it, and the API's answers as people report them, such as in
https://github.com/google-gemini/gemini-cli/issues/16984,
https://github.com/RooCodeInc/Roo-Code/issues/10700, https://github.com/BerriAI/litellm/issues/18921
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from router.simulate.dialect import Refused
from router.simulate.gemini.models import (
    FIRST_WITH_SIGNATURES,
    FIRST_WITHOUT_PENALTY,
    before,
    since,
)
from router.simulate.seals import is_sealed

Fields: TypeAlias = Mapping[str, Any]
"""A message with its fields in camel case, as `fields.read_message` gives it."""

_ROOT: Final = "* GenerateContentRequest"
_DATA: Final = frozenset(
    {
        "text",
        "inlineData",
        "fileData",
        "functionCall",
        "functionResponse",
        "executableCode",
        "codeExecutionResult",
        "toolCall",
        "toolResponse",
    }
)
"""Of a part's fields, those of which it must have one."""
_FUNCTION_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_MAX_STOPS: Final = 5
_ANY_SIGNATURE: Final = frozenset(
    {"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}
)
"""What stands for a signature where another model made the call."""
_SIGNATURES_PAGE: Final = "https://ai.google.dev/gemini-api/docs/thought-signatures"


def sealed_name(call: Fields) -> str:
    """What of a call its signature is made of."""
    return f"gemini:{call.get('name', '')}"


def check(request: Fields, model: str) -> None:
    """Refuse what the vendor refuses.

    Args:
        request: a GenerateContentRequest.
        model: as asked for, without directives.

    Raises:
        Refused: in the vendor's words.
    """
    contents = request.get("contents") or []
    if not contents:
        raise Refused(f"{_ROOT}.contents: contents is not specified\n")
    for index, content in enumerate(contents):
        _check_content(content, f"{_ROOT}.contents[{index}]")
    if "systemInstruction" in request:
        _check_parts(request["systemInstruction"], f"{_ROOT}.system_instruction")
    _check_tools(request)
    _check_config(request, model)
    _check_turns(contents)
    _check_signatures(contents, model)


def parts_of(content: Fields, kind: str) -> list[Any]:
    """The parts of a content that have such a field, as that field."""
    return [part[kind] for part in content.get("parts") or () if kind in part]


def declared(request: Fields) -> list[Fields]:
    """The functions that a request offers."""
    return [
        declaration
        for tool in request.get("tools") or ()
        for declaration in tool.get("functionDeclarations") or ()
    ]


def _check_content(content: Fields, where: str) -> None:
    if content.get("role", "user") not in {"user", "model", "function"}:
        raise Refused("Please use a valid role: user, model.")
    _check_parts(content, where)


def _check_parts(content: Fields, where: str) -> None:
    if not content.get("parts"):
        raise Refused(f"{where}.parts: contents.parts must not be empty.\n")
    for index, part in enumerate(content["parts"]):
        if not any(part.get(name) not in (None, "") for name in _DATA):
            raise Refused(
                f"{where}.parts[{index}].data: required oneof field 'data' must have one "
                "initialized field\n"
            )


def _check_tools(request: Fields) -> None:
    functions = declared(request)
    for index, function in enumerate(functions):
        where = f"{_ROOT}.tools[0].function_declarations[{index}]"
        if not _FUNCTION_NAME.fullmatch(str(function.get("name", ""))):
            raise Refused(
                f"{where}.name: Invalid function name. Must start with a letter or an underscore. "
                "Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or "
                "dashes (-), with a maximum length of 64.\n"
            )
        _check_schema(function.get("parameters"), f"{where}.parameters")
    names = [function["name"] for function in functions]
    for name in names:
        if names.count(name) > 1:
            raise Refused(f"Duplicate function declaration found: {name}")
    if "functionCallingConfig" in (request.get("toolConfig") or {}) and not functions:
        raise Refused("Function calling config is set without function_declarations.")


def _check_schema(schema: Fields | None, where: str) -> None:
    """What the fields alone do not tell of a schema in Google's own subset."""
    if schema is None:
        return
    kind = str(schema.get("type", "")).lower()
    properties, items = schema.get("properties"), schema.get("items")
    if kind == "object" and not properties:
        raise Refused(f"{where}.properties: should be non-empty for OBJECT type\n")
    if kind != "object" and properties:
        raise Refused(f"{where}.properties: only allowed for OBJECT type\n")
    if kind == "array" and items is None:
        raise Refused(f"{where}.items: missing field.\n")
    for index, name in enumerate(schema.get("required") or ()):
        if name not in (properties or {}):
            raise Refused(f"{where}.required[{index}]: property is not defined\n")
    for inner, place in _inner(schema, where):
        _check_schema(inner, place)


def _inner(schema: Fields, where: str) -> Iterator[tuple[Fields, str]]:
    for name, inner in (schema.get("properties") or {}).items():
        yield inner, f'{where}.properties["{name}"]'
    for index, inner in enumerate(schema.get("anyOf") or ()):
        yield inner, f"{where}.any_of[{index}]"
    if "items" in schema:
        yield schema["items"], f"{where}.items"


def _check_config(request: Fields, model: str) -> None:
    config = request.get("generationConfig") or {}
    where = f"{_ROOT}.generation_config"
    if len(config.get("stopSequences") or ()) > _MAX_STOPS:
        raise Refused(
            f"{where}.stop_sequences: the number of stop_sequences must not exceed {_MAX_STOPS}.\n"
        )
    if not 0 <= config.get("temperature", 1) <= 2:
        raise Refused(f"{where}.temperature: temperature must be in the range [0.0, 2.0].\n")
    if since(model, FIRST_WITHOUT_PENALTY) and any(
        config.get(name) for name in ("presencePenalty", "frequencyPenalty")
    ):
        raise Refused("Penalty is not enabled for this model")
    _check_schema(config.get("responseSchema"), f"{where}.response_schema")
    _check_structured(request, config, model)
    _check_thinking(config.get("thinkingConfig") or {}, model)


def _check_structured(request: Fields, config: Fields, model: str) -> None:
    json = config.get("responseMimeType") == "application/json"
    schemas = {"responseSchema", "responseJsonSchema"} & config.keys()
    if schemas and not json:
        raise Refused(
            f"{_ROOT}.generation_config.response_schema: only supported with response_mime_type "
            "application/json.\n"
        )
    if len(schemas) > 1:
        raise Refused(
            f"{_ROOT}.generation_config.response_json_schema: cannot be set along with "
            "response_schema.\n"
        )
    if json and declared(request) and before(model, FIRST_WITH_SIGNATURES):
        raise Refused(
            "Function calling with a response mime type: 'application/json' is unsupported"
        )


def _check_thinking(thinking: Fields, model: str) -> None:
    if {"thinkingBudget", "thinkingLevel"} <= thinking.keys():
        raise Refused("You can only set only one of thinking budget and thinking level.")
    if "thinkingLevel" in thinking and before(model, FIRST_WITH_SIGNATURES):
        raise Refused("Thinking level is not supported for this model.")


def _check_turns(contents: Sequence[Fields]) -> None:
    """A turn of calls comes after the user's, a turn of results right after it, one for each."""
    for at, content in enumerate(contents):
        earlier = contents[at - 1] if at else {"role": "model"}
        asked = len(parts_of(earlier, "functionCall"))
        answered = len(parts_of(content, "functionResponse"))
        if answered and not asked:
            raise Refused(
                "Please ensure that function response turn comes immediately after a function "
                "call turn."
            )
        if asked != answered:
            raise Refused(
                "Please ensure that the number of function response parts is equal to the number "
                "of function call parts of the function call turn."
            )
        if parts_of(content, "functionCall") and earlier.get("role", "user") == "model":
            raise Refused(
                "Please ensure that function call turn comes immediately after a user turn or "
                "after a function response turn."
            )


def _check_signatures(contents: Sequence[Fields], model: str) -> None:
    """Signatures are known again; and in the turn that is going on, the first call has one."""
    started = max((at for at, content in enumerate(contents) if _is_asking(content)), default=0)
    for at, content in enumerate(contents):
        calls = [part for part in content["parts"] if "functionCall" in part]
        for part in calls:
            given = part.get("thoughtSignature")
            if given is not None and not _is_known(given, part["functionCall"]):
                raise Refused("Corrupted thought signature.")
        current = at > started and since(model, FIRST_WITH_SIGNATURES)
        if current and calls and "thoughtSignature" not in calls[0]:
            raise Refused(
                "Function call is missing a thought_signature in functionCall parts. This is "
                "required for tools to work correctly, and missing thought_signature may lead to "
                "degraded model performance. Additional data, function call "
                f"`default_api:{calls[0]['functionCall'].get('name')}` , position {at + 1}. "
                f"Please refer to {_SIGNATURES_PAGE} for more details."
            )


def _is_asking(content: Fields) -> bool:
    return content.get("role", "user") == "user" and not parts_of(content, "functionResponse")


def _is_known(signature: str, call: Fields) -> bool:
    plain = signature.replace("-", "+").replace("_", "/")  # bytes: either alphabet will do
    return signature in _ANY_SIGNATURE or is_sealed(plain, sealed_name(call))
