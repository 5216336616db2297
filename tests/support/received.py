"""What a simulated provider was asked, whatever format it speaks, in words that all have in common.

Read by hand here, and not with the router's readers, so that neither hides a mistake of the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from router.simulate import RequestRecord

Part: TypeAlias = tuple[Any, ...]
"""`("text", …)`, `("image", media type, data)`, `("image", url)`, `("call", id, name, arguments)`,
`("result", id, text)`, `("failed", id, text)` or `("thought", …)`."""


@dataclass(kw_only=True)
class Received:
    """One request.

    Args:
        system: instructions before the first turn.
        turns: who, and the parts of what was said; turns of one side joined.
        tools: name to description and schema.
        choice: `auto`, `none`, `required`, the name of a tool, or "" where nothing was said.
        parallel: several calls at once; None where nothing was said.
        max_tokens: the answer's budget, or None.
        stop: stop sequences.
        sampling: by the names of chat completions.
        schema: that the answer is held to, or None.
        thinking: what was said of reasoning, in the format's own words.
        user: the end user, or "".
        rest: top-level fields that are not in the above.
    """

    system: str = ""
    turns: list[tuple[str, list[Part]]] = field(default_factory=list)
    tools: dict[str, tuple[str, Any]] = field(default_factory=dict)
    choice: str = ""
    parallel: bool | None = None
    max_tokens: int | None = None
    stop: list[str] = field(default_factory=list)
    sampling: dict[str, Any] = field(default_factory=dict)
    schema: Any = None
    thinking: dict[str, Any] = field(default_factory=dict)
    user: str = ""
    rest: dict[str, Any] = field(default_factory=dict)

    def say(self, role: str, parts: Iterable[Part]) -> None:
        """Note what one side says."""
        if self.turns and self.turns[-1][0] == role:
            self.turns[-1][1].extend(parts)
        else:
            self.turns.append((role, list(parts)))


def received(record: RequestRecord) -> Received:
    """Read a request.

    Args:
        record: of a simulated provider.
    """
    body = dict(record.body)
    if "contents" in body:
        return _gemini(body)
    return _anthropic(body) if record.path.endswith("/messages") else _openai(body)


def _named(body: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {common: body.pop(own) for own, common in names.items() if own in body}


# -- chat completions ------------------------------------------------------------------------------

_SAMPLING: Final = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")


def _openai(body: dict[str, Any]) -> Received:
    got = Received(sampling=_named(body, {name: name for name in _SAMPLING}))
    for message in body.pop("messages"):
        _openai_message(message, got)
    for tool in body.pop("tools", ()):
        inner = tool["function"]
        got.tools[inner["name"]] = inner.get("description", ""), inner.get("parameters")
    choice = body.pop("tool_choice", "")
    got.choice = choice if isinstance(choice, str) else choice["function"]["name"]
    got.parallel = body.pop("parallel_tool_calls", None)
    older = body.pop("max_tokens", None)
    got.max_tokens = body.pop("max_completion_tokens", older)
    stop = body.pop("stop", [])
    got.stop = [stop] if isinstance(stop, str) else stop
    got.schema = body.pop("response_format", {}).get("json_schema", {}).get("schema")
    got.thinking = _named(body, {"reasoning_effort": "reasoning_effort"})
    got.user = body.pop("user", "")
    got.rest = {k: v for k, v in body.items() if k not in {"model", "stream", "stream_options"}}
    return got


def _openai_message(message: Mapping[str, Any], got: Received) -> None:
    role = message["role"]
    content: Any = message.get("content") or []
    if role == "system":
        assert not got.turns
        got.system = content
    elif role == "tool":
        got.say("user", [("result", message["tool_call_id"], content)])
    else:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        got.say(role, [_openai_part(part) for part in parts])
        got.say(
            role,
            [
                ("call", call["id"], call["function"]["name"], json.loads(_arguments(call)))
                for call in message.get("tool_calls", ())
            ],
        )
        if message.get("reasoning_content"):
            got.say(role, [("thought", message["reasoning_content"])])


def _arguments(call: Mapping[str, Any]) -> str:
    found: str = call["function"]["arguments"]
    return found


def _openai_part(part: Mapping[str, Any]) -> Part:
    if part["type"] == "text":
        return "text", part["text"]
    url = part["image_url"]["url"]
    if not url.startswith("data:"):
        return "image", url
    head, _, data = url.partition(",")
    return "image", head.removeprefix("data:").removesuffix(";base64"), data


# -- Messages --------------------------------------------------------------------------------------


def _anthropic(body: dict[str, Any]) -> Received:
    got = Received(sampling=_named(body, {n: n for n in ("temperature", "top_p", "top_k")}))
    system = body.pop("system", "")
    got.system = system if isinstance(system, str) else "\n\n".join(b["text"] for b in system)
    for message in body.pop("messages"):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        got.say(message["role"], [_block(block) for block in blocks])
    for tool in body.pop("tools", ()):
        got.tools[tool["name"]] = tool.get("description", ""), tool["input_schema"]
    choice = body.pop("tool_choice", {})
    word = choice.get("type", "")
    got.choice = choice["name"] if word == "tool" else {"any": "required"}.get(word, word)
    got.parallel = False if choice.get("disable_parallel_tool_use") else None
    got.max_tokens = body.pop("max_tokens")
    got.stop = body.pop("stop_sequences", [])
    config = dict(body.pop("output_config", {}))
    got.schema = config.pop("format", {}).get("schema")
    got.thinking = body.pop("thinking", {}) | config
    got.user = body.pop("metadata", {}).get("user_id", "")
    got.rest = {name: value for name, value in body.items() if name not in {"model", "stream"}}
    return got


def _block(block: Mapping[str, Any]) -> Part:
    match block["type"]:
        case "text":
            return "text", block["text"]
        case "image":
            source = block["source"]
            if source["type"] == "url":
                return "image", source["url"]
            return "image", source["media_type"], source["data"]
        case "tool_use":
            return "call", block["id"], block["name"], block["input"]
        case "tool_result":
            inner = block.get("content", "")
            texts = [inner] if isinstance(inner, str) else [one["text"] for one in inner]
            kind = "failed" if block.get("is_error") else "result"
            return kind, block["tool_use_id"], "".join(texts)
        case _:
            return "thought", block["thinking"], block["signature"]


# -- Gemini ----------------------------------------------------------------------------------------

_GEMINI_SAMPLING: Final = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_MODES: Final = {"AUTO": "auto", "NONE": "none", "ANY": "required", "VALIDATED": "auto"}


def _gemini(body: dict[str, Any]) -> Received:
    config = dict(body.pop("generationConfig", {}))
    got = Received(sampling=_named(config, _GEMINI_SAMPLING))
    system = body.pop("systemInstruction", {"parts": []})
    got.system = "\n\n".join(part["text"] for part in system["parts"])
    for content in body.pop("contents"):
        role = "assistant" if content["role"] == "model" else "user"
        got.say(role, [_part(part) for part in content["parts"]])
    for tool in body.pop("tools", ()):
        for function in tool["functionDeclarations"]:
            schema = function.get("parametersJsonSchema")
            got.tools[function["name"]] = function.get("description", ""), schema
    calling = body.pop("toolConfig", {}).get("functionCallingConfig", {})
    allowed = calling.get("allowedFunctionNames", [])
    got.choice = allowed[0] if allowed else _MODES.get(calling.get("mode", ""), "")
    got.max_tokens = config.pop("maxOutputTokens", None)
    got.stop = config.pop("stopSequences", [])
    got.schema = config.pop("responseJsonSchema", None)
    assert (config.pop("responseMimeType", None) == "application/json") == (got.schema is not None)
    got.thinking = config.pop("thinkingConfig", {})
    got.rest = body | config
    return got


def _part(part: Mapping[str, Any]) -> Part:
    for name, read in _PARTS.items():
        if name in part:
            return read(part[name])
    raise AssertionError(f"a part of no known kind: {part}")


def _result(result: Mapping[str, Any]) -> Part:
    ((word, said),) = result["response"].items()
    return {"output": "result", "error": "failed"}[word], result["id"], said


_PARTS: Final[Mapping[str, Callable[[Any], Part]]] = {
    "text": lambda text: ("text", text),
    "inlineData": lambda data: ("image", data["mimeType"], data["data"]),
    "fileData": lambda data: ("image", data["fileUri"]),
    "functionCall": lambda call: ("call", call["id"], call["name"], call["args"]),
    "functionResponse": _result,
}
