"""The fields of a request, and how anything else is refused.

Google reads JSON into protocol buffers: an unknown name or a value of the wrong type is an error
that names its place in the proto's spelling. Names may be spelt in either way, `inlineData` or
`inline_data`. Sources: https://ai.google.dev/api/generate-content, https://ai.google.dev/api/caching
(contents, tools, schemas), https://protobuf.dev/programming-guides/json/ and errors as people
report them, such as in https://github.com/glowingjade/obsidian-smart-composer/issues/455
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

from router.simulate.dialect import Refused

_PACKAGE: Final = "type.googleapis.com/google.ai.generativelanguage.v1beta"

MESSAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "GenerateContentRequest": {
        "model": "any",
        "contents": "[Content]",
        "systemInstruction": "Content",
        "tools": "[Tool]",
        "toolConfig": "ToolConfig",
        "safetySettings": "any",
        "generationConfig": "GenerationConfig",
        "cachedContent": "any",
        "labels": "any",
        "serviceTier": "any",
        "store": "any",
    },
    "CountTokensRequest": {
        "model": "any",
        "contents": "[Content]",
        "generateContentRequest": "GenerateContentRequest",
    },
    "Content": {"role": "scalar", "parts": "[Part]"},
    "Part": {
        "text": "scalar",
        "inlineData": "Blob",
        "fileData": "FileData",
        "functionCall": "FunctionCall",
        "functionResponse": "FunctionResponse",
        "executableCode": "any",
        "codeExecutionResult": "any",
        "toolCall": "any",
        "toolResponse": "any",
        "thought": "scalar",
        "thoughtSignature": "bytes",
        "videoMetadata": "any",
        "partMetadata": "struct",
        "mediaResolution": "any",
    },
    "Blob": {"mimeType": "scalar", "data": "bytes", "displayName": "scalar"},
    "FileData": {"mimeType": "scalar", "fileUri": "scalar", "displayName": "scalar"},
    "FunctionCall": {"id": "scalar", "name": "scalar", "args": "struct"},
    "FunctionResponse": {
        "id": "scalar",
        "name": "scalar",
        "response": "struct",
        "parts": "[FunctionResponsePart]",
        "willContinue": "scalar",
        "scheduling": "scalar",
    },
    "FunctionResponsePart": {"inlineData": "Blob", "fileData": "FileData"},
    "Tool": {
        "functionDeclarations": "[FunctionDeclaration]",
        "googleSearch": "any",
        "googleSearchRetrieval": "any",
        "googleMaps": "any",
        "codeExecution": "any",
        "computerUse": "any",
        "fileSearch": "any",
        "mcpServers": "any",
        "urlContext": "any",
    },
    "FunctionDeclaration": {
        "name": "scalar",
        "description": "scalar",
        "behavior": "scalar",
        "parameters": "Schema",
        "parametersJsonSchema": "any",
        "response": "Schema",
        "responseJsonSchema": "any",
    },
    "ToolConfig": {
        "functionCallingConfig": "FunctionCallingConfig",
        "retrievalConfig": "any",
        "includeServerSideToolInvocations": "scalar",
    },
    "FunctionCallingConfig": {"mode": "scalar", "allowedFunctionNames": "[scalar]"},
    "GenerationConfig": {
        "audioTranscriptionConfig": "any",
        "candidateCount": "scalar",
        "enableEnhancedCivicAnswers": "scalar",
        "frequencyPenalty": "scalar",
        "imageConfig": "any",
        "logprobs": "scalar",
        "maxOutputTokens": "scalar",
        "mediaResolution": "scalar",
        "presencePenalty": "scalar",
        "responseFormat": "any",
        "responseJsonSchema": "any",
        "responseLogprobs": "scalar",
        "responseMimeType": "scalar",
        "responseModalities": "[scalar]",
        "responseSchema": "Schema",
        "seed": "scalar",
        "speechConfig": "any",
        "stopSequences": "[scalar]",
        "temperature": "scalar",
        "thinkingConfig": "ThinkingConfig",
        "topK": "scalar",
        "topP": "scalar",
        "translationConfig": "any",
    },
    "ThinkingConfig": {
        "includeThoughts": "scalar",
        "thinkingBudget": "scalar",
        "thinkingLevel": "scalar",
    },
    "Schema": {
        "type": "Type",
        "format": "scalar",
        "title": "scalar",
        "description": "scalar",
        "nullable": "scalar",
        "enum": "[scalar]",
        "maxItems": "scalar",
        "minItems": "scalar",
        "properties": "{Schema}",
        "required": "[scalar]",
        "minProperties": "scalar",
        "maxProperties": "scalar",
        "minLength": "scalar",
        "maxLength": "scalar",
        "pattern": "scalar",
        "example": "any",
        "anyOf": "[Schema]",
        "propertyOrdering": "[scalar]",
        "default": "any",
        "items": "Schema",
        "minimum": "scalar",
        "maximum": "scalar",
    },
}
"""Message to field to kind: a message, `[…]` a list of them, `{…}` a map of them, or one of `any`,
`scalar`, `struct` (an object of any kind), `bytes` (base64), `Type` (of a schema)."""

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})


def snake(name: str) -> str:
    """A field's name as its proto spells it: `inline_data` of `inlineData`."""
    return re.sub(r"([A-Z])", lambda match: f"_{match[1].lower()}", name)


_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    message: {spelt: name for name in fields for spelt in (name, snake(name))}
    for message, fields in MESSAGES.items()
}


def read_message(value: object, message: str) -> dict[str, Any]:
    """Read a request, and refuse what has no place in it.

    Args:
        value: as parsed from JSON.
        message: its name in `MESSAGES`.

    Returns:
        The same with every field's name in camel case.

    Raises:
        Refused: with a line per problem, in the vendor's words.
    """
    reader = _Reader()
    read = reader.message(value, message, "")
    if reader.problems:
        raise Refused("\n".join(reader.problems))
    return read


class _Reader:
    """Walks one request and collects what is wrong with it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._kinds: Mapping[str, Callable[[Any, str], Any]] = {
            "any": lambda value, _where: value,
            "scalar": self._scalar,
            "struct": self._struct,
            "bytes": self._bytes,
            "Type": self._type,
        }

    def message(self, value: object, message: str, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._invalid(where, f"{_PACKAGE}.{message}", value)
            return {}
        read: dict[str, Any] = {}
        for spelt, inner in value.items():
            name = _NAMES[message].get(spelt)
            if name is None:
                self._unknown(spelt, where, "Cannot find field.")
            elif inner is not None:  # null is as good as absent
                place = f"{where}.{snake(name)}" if where else snake(name)
                kind = MESSAGES[message][name]
                if isinstance(inner, list) and kind[0] != "[" and kind != "any":
                    problem = "Proto field is not repeating, cannot start list."
                    self._unknown(spelt, where, problem)
                else:
                    read[name] = self._value(inner, kind, place)
        return read

    def _value(self, value: Any, kind: str, where: str) -> Any:  # noqa: ANN401 - JSON
        if kind[0] == "[":
            given = value if isinstance(value, list) else [value]
            return [self._value(v, kind[1:-1], f"{where}[{i}]") for i, v in enumerate(given)]
        if kind[0] == "{":
            pairs = enumerate(value.items() if isinstance(value, dict) else ())
            return {k: self._value(v, kind[1:-1], f"{where}[{i}].value") for i, (k, v) in pairs}
        if kind in MESSAGES:
            return self.message(value, kind, where)
        return self._kinds[kind](value, where)

    def _scalar(self, value: object, where: str) -> object:
        if isinstance(value, dict):
            self._invalid(where, "TYPE_STRING", value)
        return value

    def _struct(self, value: object, where: str) -> object:
        if not isinstance(value, dict):
            self._invalid(where, "type.googleapis.com/google.protobuf.Struct", value)
        return value

    def _bytes(self, value: object, where: str) -> object:
        plain = str(value).replace("-", "+").replace("_", "/").rstrip("=")
        try:
            b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        except (binascii.Error, ValueError):
            self.problems.append(
                f"Invalid value at '{where}' (TYPE_BYTES), Base64 decoding failed for \"{value}\""
            )
        return value

    def _type(self, value: object, where: str) -> object:
        if str(value).lower() not in _TYPES or value == "null":
            self._invalid(where, f"{_PACKAGE}.Type", value)
        return value

    def _unknown(self, name: str, where: str, problem: str) -> None:
        at = f" at '{where}'" if where else ""
        self.problems.append(f'Invalid JSON payload received. Unknown name "{name}"{at}: {problem}')

    def _invalid(self, where: str, kind: str, value: object) -> None:
        self.problems.append(f"Invalid value at '{where}' ({kind}), \"{value}\"")
