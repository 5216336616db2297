"""What a client of chat completions may ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from formats.compatibility_rows import (
    ANYTHING,
    CLOSED,
    HI,
    LOOK,
    MORE,
    OFF,
    ON,
    OPEN,
    PDF,
    PIXEL,
    PLAIN,
    SOUND,
    Fields,
    Row,
    Table,
    part,
    value,
)

from router.core.request import Format


def _said(what: str, **more: Any) -> Row:  # noqa: ANN401 - JSON
    """Something beside the text of an earlier answer."""
    plain = {"role": "assistant", "content": "Hello."}
    return Row(
        what=what,
        fields={"messages": [HI, plain | more, MORE]},
        beside={"messages": [HI, plain, MORE]},
    )


def _called(kind: str, content: object, **given: object) -> Fields:
    """A history with a call and its result."""
    call = {"id": "call_1", "type": kind, kind: {"name": "weather", **given}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": content}
    return {"messages": [HI, answer, result]}


def _image(url: str, **more: object) -> Fields:
    return {"type": "image_url", "image_url": {"url": url, **more}}


_INLINE: Final = f"data:image/png;base64,{PIXEL}"
_FUNCTION: Final[Fields] = {"name": "weather", "description": "Of a city.", "parameters": OPEN}
_TOOL: Final[Fields] = {"type": "function", "function": _FUNCTION}
_TIME: Final[Fields] = {"type": "function", "function": {"name": "time"}}
TOOLS: Final[Fields] = {"tools": [_TOOL, _TIME]}
_FREE: Final[Fields] = {"type": "custom", "custom": {"name": "shell", "description": "Runs."}}
_NAMED: Final[Fields] = {"type": "function", "function": {"name": "weather"}}


def _tool(what: str, **function: object) -> Row:
    """A function, beside the same one that has less to it."""
    plain = {name: value for name, value in function.items() if name != "strict"}
    return Row(
        what=what,
        fields={"tools": [{"type": "function", "function": _FUNCTION | function}]},
        beside={"tools": [{"type": "function", "function": _FUNCTION | plain}]},
    )


def schema_format(schema: Fields, **more: object) -> Fields:
    return {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, **more}}


EFFORT: Final[Fields] = {"reasoning_effort": "high"}
EFFORTS: Final = tuple(
    replace(value("reasoning_effort", word), unless=EFFORT if word == "none" else {})
    for word in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
)
SWITCHES: Final = (
    Row(what='`thinking: {type: "enabled"}`', fields=ON, unless=OFF),
    Row(what='`thinking: {type: "disabled"}`', fields=OFF, unless=ON),
)

_GRAMMAR: Final = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}

CHAT: Final = (
    Table(
        client=Format.OPENAI,
        title="What was said",
        rows=(
            Row(
                what="a `system` or `developer` message at the front",
                fields={"messages": [{"role": "developer", "content": "Be brief."}, HI]},
                beside={"messages": [HI]},
            ),
            Row(
                what="… in the middle",
                fields={
                    "messages": [HI, {"role": "system", "content": "Be brief."}],
                },
                beside={"messages": [HI]},
            ),
            Row(
                what="… alone",
                fields={"messages": [{"role": "system", "content": "Say hi."}]},
            ),
            Row(what="`name` of who speaks", fields={"messages": [HI | {"name": "ann"}]}),
            part("an image as data", **_image(_INLINE)),
            part("an image's address", **_image("https://example.com/a.png")),
            part("… that does not end in its type", **_image("https://example.com/a")),
            part('an image with `detail: "low"`', **_image(_INLINE, detail="low")),
            part("`input_audio`", type="input_audio", input_audio={"data": SOUND, "format": "mp3"}),
            part(
                "`file` with a PDF's data",
                type="file",
                file={"file_data": f"data:application/pdf;base64,{PDF}"},
            ),
            part(
                "… with plain text",
                type="file",
                file={"file_data": f"data:text/plain;base64,{PLAIN}"},
            ),
            part("… with a `file_id`", type="file", file={"file_id": "file-1"}),
            part("a part of another kind", type="video_url", video_url={"url": "https://a.b/c"}),
            part("`cache_control` on a part", **LOOK, cache_control={"type": "ephemeral"}),
            _said("a `refusal` in the history", refusal="I cannot."),
            _said("`reasoning_content` in the history", reasoning_content="Hm."),
            _said("`audio` in the history", audio={"id": "audio-1"}),
            Row(
                what="a last message of the assistant (prefill)",
                fields={"messages": [HI, {"role": "assistant", "content": "It is"}]},
                beside={"messages": [HI]},
            ),
            Row(
                what="… with `prefix: true`",
                fields={
                    "messages": [HI, {"role": "assistant", "content": "It is", "prefix": True}]
                },
                beside={"messages": [HI, {"role": "assistant", "content": "It is"}]},
            ),
            Row(
                what="a first message of the assistant",
                fields={"messages": [{"role": "assistant", "content": "Hello."}, HI]},
                beside={"messages": [HI]},
            ),
            Row(
                what="a tool call and its result",
                fields=_called("function", "Fog.", arguments='{"city":"Ulm"}'),
                beside={"messages": [HI]},
            ),
            Row(
                what="an image in a result",
                fields=_called("function", [LOOK, _image(_INLINE)], arguments="{}"),
                beside=_called("function", [LOOK], arguments="{}"),
            ),
            Row(
                what="a call of a custom tool",
                fields=_called("custom", "Fog.", input="ls"),
                beside={"messages": [HI]},
            ),
            Row(
                what="`function_call` and its result",
                fields={
                    "messages": [
                        HI,
                        {
                            "role": "assistant",
                            "content": None,
                            "function_call": {"name": "weather", "arguments": "{}"},
                        },
                        {"role": "function", "name": "weather", "content": "Fog."},
                    ]
                },
                beside={"messages": [HI]},
            ),
        ),
    ),
    Table(
        client=Format.OPENAI,
        title="Tools",
        rows=(
            value("tools", [_TOOL], what="a function"),
            value("functions", [_FUNCTION], what="`functions`"),
            _tool("`strict`, and a schema that says everything", parameters=CLOSED, strict=True),
            _tool("`strict`, and one that leaves something open", parameters=ANYTHING, strict=True),
            value(
                "tools",
                [{"type": "function", "function": _FUNCTION | {"name": "get.weather"}}],
                what="a name with a full stop",
            ),
            value("tools", [_FREE], what="a custom tool"),
            Row(
                what="… with a grammar",
                fields={"tools": [{**_FREE, "custom": {**_FREE["custom"], "format": _GRAMMAR}}]},
                beside={"tools": [_FREE]},
            ),
            value("tools", [{"type": "web_search"}], what="a tool that the provider runs"),
            *(value("tool_choice", word, beside=TOOLS) for word in ("auto", "none", "required")),
            value("tool_choice", _NAMED, what="`tool_choice` that names a function", beside=TOOLS),
            value(
                "tool_choice",
                {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [_NAMED]}},
                what="`tool_choice` with `allowed_tools`",
                beside=TOOLS,
            ),
            value("parallel_tool_calls", False, beside=TOOLS),
        ),
    ),
    Table(
        client=Format.OPENAI,
        title="How tokens are chosen",
        rows=(
            value("max_completion_tokens", 500),
            value("max_tokens", 500),
            value("temperature", 0.5),
            value("temperature", 1.5),
            value("top_p", 0.5),
            value("top_k", 40),
            value("seed", 7),
            value("seed", 5_000_000_000, what="`seed` of more than 32 bits"),
            value("presence_penalty", 0.5),
            value("frequency_penalty", 0.5),
            value("logit_bias", {"50256": -100}, what="`logit_bias`"),
            Row(what="`logprobs`, `top_logprobs: 2`", fields={"logprobs": True, "top_logprobs": 2}),
            value("n", 2),
            value("n", 9),
            value("stop", ["END"], what="`stop`: one text"),
            value("stop", [*"abcdef"], what="`stop`: six texts"),
            value("stop", ["\n\n"], what="`stop`: white space"),
            value("stop", [str(at) for at in range(17)], what="`stop`: 17 texts"),
        ),
    ),
    Table(
        client=Format.OPENAI,
        title="Reasoning",
        rows=(
            *EFFORTS,
            *SWITCHES,
            Row(
                what="`reasoning_effort`, where a tool must be called",
                fields={"reasoning_effort": "high"},
                beside=TOOLS | {"tool_choice": "required"},
            ),
        ),
    ),
    Table(
        client=Format.OPENAI,
        title="Structured output",
        rows=(
            value("response_format", {"type": "json_object"}, what="`json_object`"),
            value("response_format", schema_format(CLOSED), what="`json_schema`"),
            value("response_format", schema_format(CLOSED, strict=True), what="… with `strict`"),
            value(
                "response_format",
                schema_format(ANYTHING, strict=True),
                what="… with `strict`, and a schema that leaves something open",
            ),
            value("response_format", schema_format(CLOSED), what="… beside tools", beside=TOOLS),
            value(
                "response_format",
                {"type": "grammar", "grammar": "root ::= x"},
                what="another kind",
            ),
        ),
    ),
    Table(
        client=Format.OPENAI,
        title="Everything else",
        rows=(
            value("stream", True),
            Row(
                what="`stream_options.include_usage`",
                fields={"stream_options": {"include_usage": True}},
                beside={"stream": True},
            ),
            value("user", "u-1"),
            value("safety_identifier", "u-1"),
            value("metadata", {"team": "a"}, what="`metadata`"),
            value("store", True),
            value("service_tier", "flex"),
            value("prompt_cache_key", "k"),
            value("verbosity", "low"),
            Row(
                what='`modalities: ["text", "audio"]`, `audio`',
                fields={
                    "modalities": ["text", "audio"],
                    "audio": {"voice": "alloy", "format": "mp3"},
                },
            ),
            value("prediction", {"type": "content", "content": "x"}, what="`prediction`"),
            value("web_search_options", {}, what="`web_search_options`"),
            value("field_of_tomorrow", 1, what="a field that is not known"),
        ),
    ),
)
"""What a client of chat completions may ask for."""
