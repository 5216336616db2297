"""What clients ask for, in both formats: a row for each thing that another may not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from router.core.request import Format
from router.providers.base import Provider
from router.providers.make import make_provider

Fields: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Row:
    """Something that a client may ask for.

    Args:
        what: of the page's first column.
        fields: of a request that asks for it.
        beside: fields that the same request has without it.
        unless: fields that ask for the contrary: where a request for it is the same as one without
            it, and not the same as one for the contrary, silence says it.
        headers: of a request that asks for it.
    """

    what: str
    fields: Fields = field(default_factory=dict)
    beside: Fields = field(default_factory=dict)
    unless: Fields = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """A column.

    Args:
        family: a `type` of the configuration.
        model: its name.
        base_url: where the family has none.
    """

    family: str
    model: str
    base_url: str | None = None

    def provider(self, base_url: str | None = None) -> Provider:
        """Its provider.

        Args:
            base_url: of another server than its own.
        """
        return make_provider(
            type=self.family, base_url=base_url or self.base_url, api_key=None, model=self.model
        )


TARGETS: Final = (
    Target("openai", "gpt-5.2"),
    Target("anthropic", "claude-sonnet-4-6"),
    Target("gemini", "gemini-3.5-flash"),
)
"""One of each format, that takes most of what its format can say."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of one kind, asked for in one format.

    Args:
        client: the format.
        title: on the page.
        rows: in order.
        targets: the columns.
    """

    client: Format
    title: str
    rows: tuple[Row, ...]
    targets: tuple[Target, ...] = TARGETS


SMALLEST: Final[Mapping[Format, Fields]] = {
    Format.OPENAI: {"messages": [{"role": "user", "content": "Hi."}]},
    Format.ANTHROPIC: {
        "messages": [{"role": "user", "content": "Hi."}],
        "max_tokens": 16_000,
    },
}
"""A request that asks for nothing in particular; the model's name comes to it."""

PIXEL: Final = "iVBORw0KGgo="
PDF: Final = "JVBERi0xLjQ="
PLAIN: Final = "QSBub3RlLg=="
SOUND: Final = "SUQzBAA="
SIGNATURE: Final = "c2lnbmVk"

OPEN: Final[Fields] = {"type": "object", "properties": {"city": {"type": "string"}}}
CLOSED: Final[Fields] = OPEN | {"required": ["city"], "additionalProperties": False}
ANYTHING: Final[Fields] = {"type": "object", "additionalProperties": {"type": "string"}}


def value(name: str, asked: object, *, what: str = "", beside: Fields | None = None) -> Row:
    """A field of the body."""
    shown = f'"{asked}"' if isinstance(asked, str) else str(asked).lower()
    label = what or f"`{name}: {shown}`"
    return Row(what=label, fields={name: asked}, beside=beside or {})


# -- Chat completions ------------------------------------------------------------------------------

_HI: Final[Fields] = {"role": "user", "content": "Hi."}
_MORE: Final[Fields] = {"role": "user", "content": "Go on."}
_LOOK: Final[Fields] = {"type": "text", "text": "Look."}


def _part(what: str, **part: Any) -> Row:  # noqa: ANN401 - JSON
    """A part beside a text."""
    return Row(
        what=what,
        fields={"messages": [{"role": "user", "content": [_LOOK, part]}]},
        beside={"messages": [{"role": "user", "content": [_LOOK]}]},
    )


def _said(what: str, **more: Any) -> Row:  # noqa: ANN401 - JSON
    """Something beside the text of an earlier answer."""
    plain = {"role": "assistant", "content": "Hello."}
    return Row(
        what=what,
        fields={"messages": [_HI, plain | more, _MORE]},
        beside={"messages": [_HI, plain, _MORE]},
    )


def _called(kind: str, content: object, **given: object) -> Fields:
    """A history with a call and its result."""
    call = {"id": "call_1", "type": kind, kind: {"name": "weather", **given}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": content}
    return {"messages": [_HI, answer, result]}


def _image(url: str, **more: object) -> Fields:
    return {"type": "image_url", "image_url": {"url": url, **more}}


_INLINE: Final = f"data:image/png;base64,{PIXEL}"
_FUNCTION: Final[Fields] = {"name": "weather", "description": "Of a city.", "parameters": OPEN}
_TOOL: Final[Fields] = {"type": "function", "function": _FUNCTION}
_TIME: Final[Fields] = {"type": "function", "function": {"name": "time"}}
_TOOLS: Final[Fields] = {"tools": [_TOOL, _TIME]}
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


def _schema(schema: Fields, **more: object) -> Fields:
    return {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, **more}}


_EFFORT: Final[Fields] = {"reasoning_effort": "high"}
EFFORTS: Final = tuple(
    replace(value("reasoning_effort", word), unless=_EFFORT if word == "none" else {})
    for word in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
)
_ON, _OFF = ({"thinking": {"type": word}} for word in ("enabled", "disabled"))
SWITCHES: Final = (
    Row(what='`thinking: {type: "enabled"}`', fields=_ON, unless=_OFF),
    Row(what='`thinking: {type: "disabled"}`', fields=_OFF, unless=_ON),
)

_GRAMMAR: Final = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}

CHAT: Final = (
    Table(
        client=Format.OPENAI,
        title="What was said",
        rows=(
            Row(
                what="a `system` or `developer` message at the front",
                fields={"messages": [{"role": "developer", "content": "Be brief."}, _HI]},
                beside={"messages": [_HI]},
            ),
            Row(
                what="… in the middle",
                fields={
                    "messages": [_HI, {"role": "system", "content": "Be brief."}],
                },
                beside={"messages": [_HI]},
            ),
            Row(
                what="… alone",
                fields={"messages": [{"role": "system", "content": "Say hi."}]},
            ),
            Row(what="`name` of who speaks", fields={"messages": [_HI | {"name": "ann"}]}),
            _part("an image as data", **_image(_INLINE)),
            _part("an image's address", **_image("https://example.com/a.png")),
            _part("… that does not end in its type", **_image("https://example.com/a")),
            _part('an image with `detail: "low"`', **_image(_INLINE, detail="low")),
            _part(
                "`input_audio`", type="input_audio", input_audio={"data": SOUND, "format": "mp3"}
            ),
            _part(
                "`file` with a PDF's data",
                type="file",
                file={"file_data": f"data:application/pdf;base64,{PDF}"},
            ),
            _part(
                "… with plain text",
                type="file",
                file={"file_data": f"data:text/plain;base64,{PLAIN}"},
            ),
            _part("… with a `file_id`", type="file", file={"file_id": "file-1"}),
            _part("a part of another kind", type="video_url", video_url={"url": "https://a.b/c"}),
            _part("`cache_control` on a part", **_LOOK, cache_control={"type": "ephemeral"}),
            _said("a `refusal` in the history", refusal="I cannot."),
            _said("`reasoning_content` in the history", reasoning_content="Hm."),
            _said("`audio` in the history", audio={"id": "audio-1"}),
            Row(
                what="a last message of the assistant (prefill)",
                fields={"messages": [_HI, {"role": "assistant", "content": "It is"}]},
                beside={"messages": [_HI]},
            ),
            Row(
                what="… with `prefix: true`",
                fields={
                    "messages": [_HI, {"role": "assistant", "content": "It is", "prefix": True}]
                },
                beside={"messages": [_HI, {"role": "assistant", "content": "It is"}]},
            ),
            Row(
                what="a first message of the assistant",
                fields={"messages": [{"role": "assistant", "content": "Hello."}, _HI]},
                beside={"messages": [_HI]},
            ),
            Row(
                what="a tool call and its result",
                fields=_called("function", "Fog.", arguments='{"city":"Ulm"}'),
                beside={"messages": [_HI]},
            ),
            Row(
                what="an image in a result",
                fields=_called("function", [_LOOK, _image(_INLINE)], arguments="{}"),
                beside=_called("function", [_LOOK], arguments="{}"),
            ),
            Row(
                what="a call of a custom tool",
                fields=_called("custom", "Fog.", input="ls"),
                beside={"messages": [_HI]},
            ),
            Row(
                what="`function_call` and its result",
                fields={
                    "messages": [
                        _HI,
                        {
                            "role": "assistant",
                            "content": None,
                            "function_call": {"name": "weather", "arguments": "{}"},
                        },
                        {"role": "function", "name": "weather", "content": "Fog."},
                    ]
                },
                beside={"messages": [_HI]},
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
            *(value("tool_choice", word, beside=_TOOLS) for word in ("auto", "none", "required")),
            value("tool_choice", _NAMED, what="`tool_choice` that names a function", beside=_TOOLS),
            value(
                "tool_choice",
                {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [_NAMED]}},
                what="`tool_choice` with `allowed_tools`",
                beside=_TOOLS,
            ),
            value("parallel_tool_calls", False, beside=_TOOLS),
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
                beside=_TOOLS | {"tool_choice": "required"},
            ),
        ),
    ),
    Table(
        client=Format.OPENAI,
        title="Structured output",
        rows=(
            value("response_format", {"type": "json_object"}, what="`json_object`"),
            value("response_format", _schema(CLOSED), what="`json_schema`"),
            value("response_format", _schema(CLOSED, strict=True), what="… with `strict`"),
            value(
                "response_format",
                _schema(ANYTHING, strict=True),
                what="… with `strict`, and a schema that leaves something open",
            ),
            value("response_format", _schema(CLOSED), what="… beside tools", beside=_TOOLS),
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


# -- Messages --------------------------------------------------------------------------------------


def _block(what: str, **block: Any) -> Row:  # noqa: ANN401 - JSON
    """A block beside a text."""
    return _part(what, **block)


def _answer(what: str, *blocks: Fields) -> Row:
    """Blocks in an earlier answer."""
    said = [{"type": "text", "text": "Hello."}]
    return Row(
        what=what,
        fields={"messages": [_HI, {"role": "assistant", "content": [*blocks, *said]}, _MORE]},
        beside={"messages": [_HI, {"role": "assistant", "content": said}, _MORE]},
    )


def _used(content: object, **more: object) -> Fields:
    """A history with a use of a tool and its result."""
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Ulm"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}
    return {
        "messages": [
            _HI,
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ]
    }


def _from(kind: str, **source: object) -> Fields:
    return {"source": {"type": kind, **source}}


_PNG: Final[Fields] = {
    "type": "image",
    **_from("base64", media_type="image/png", data=PIXEL),
}
_NOTE: Final[Fields] = _from("text", media_type="text/plain", data="A note.")
_WEATHER: Final[Fields] = {"name": "weather", "description": "Of a city.", "input_schema": OPEN}
_BOTH: Final[Fields] = {"tools": [_WEATHER, {"name": "time", "input_schema": {"type": "object"}}]}
_SEARCH: Final[Fields] = {"type": "web_search_20250305", "name": "web_search"}


def _own(what: str, **more: object) -> Row:
    """A tool with more to it."""
    return Row(what=what, fields={"tools": [_WEATHER | more]}, beside={"tools": [_WEATHER]})


def _strict(what: str, schema: Fields) -> Row:
    tool = _WEATHER | {"input_schema": schema}
    return Row(what=what, fields={"tools": [tool | {"strict": True}]}, beside={"tools": [tool]})


def _think(what: str, beside: Fields | None = None, **thinking: object) -> Row:
    return Row(what=what, fields={"thinking": thinking}, beside=beside or {})


_THINKING: Final[Fields] = {"thinking": {"type": "enabled", "budget_tokens": 12_000}}


def _format(schema: Fields) -> Fields:
    return {"format": {"type": "json_schema", "schema": schema}}


MESSAGES: Final = (
    Table(
        client=Format.ANTHROPIC,
        title="What was said",
        rows=(
            value("system", "Be brief.", what="`system`"),
            value(
                "system",
                [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                what="… with `cache_control`",
                beside={"system": [{"type": "text", "text": "Be brief."}]},
            ),
            Row(
                what="a `system` message in the middle",
                fields={"messages": [_HI, {"role": "system", "content": "Be brief."}]},
                beside={"messages": [_HI]},
            ),
            _block("`image` as data", **_PNG),
            _block("… by `url`", type="image", **_from("url", url="https://example.com/a.png")),
            _block("… by `file_id`", type="image", **_from("file", file_id="file_1")),
            _block(
                "`document`: a PDF's data",
                type="document",
                **_from("base64", media_type="application/pdf", data=PDF),
            ),
            _block("… plain text", type="document", **_NOTE),
            _block("… by `url`", type="document", **_from("url", url="https://example.com/a.pdf")),
            _block("… of `content` blocks", type="document", **_from("content", content="A note.")),
            _block("… by `file_id`", type="document", **_from("file", file_id="file_1")),
            Row(
                what="`title` and `context` of a document",
                fields={
                    "messages": [
                        {
                            "role": "user",
                            "content": [
                                {"type": "document", **_NOTE, "title": "T", "context": "Old."}
                            ],
                        }
                    ]
                },
                beside={"messages": [{"role": "user", "content": [{"type": "document", **_NOTE}]}]},
            ),
            Row(
                what="`citations` of a document",
                fields={
                    "messages": [
                        {
                            "role": "user",
                            "content": [
                                {"type": "document", **_NOTE, "citations": {"enabled": True}}
                            ],
                        }
                    ]
                },
                beside={"messages": [{"role": "user", "content": [{"type": "document", **_NOTE}]}]},
            ),
            _block(
                "`search_result`",
                type="search_result",
                source="https://a.b",
                title="T",
                content=[{"type": "text", "text": "Found."}],
            ),
            _block("`container_upload`", type="container_upload", file_id="file_1"),
            _block("`cache_control` on a block", **_LOOK, cache_control={"type": "ephemeral"}),
            _answer(
                "`thinking` in the history",
                {"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE},
            ),
            _answer("`redacted_thinking`", {"type": "redacted_thinking", "data": "eA=="}),
            _answer(
                "`server_tool_use` and its result",
                {
                    "type": "server_tool_use",
                    "id": "srvtoolu_1",
                    "name": "web_search",
                    "input": {"query": "fog"},
                },
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "srvtoolu_1",
                    "content": [],
                },
            ),
            Row(
                what="a last message of the assistant (prefill)",
                fields={"messages": [_HI, {"role": "assistant", "content": "It is"}]},
                beside={"messages": [_HI]},
            ),
            Row(
                what="a first message of the assistant",
                fields={"messages": [{"role": "assistant", "content": "Hello."}, _HI]},
                beside={"messages": [_HI]},
            ),
            Row(
                what="`tool_use` and its result",
                fields=_used("Fog."),
                beside={"messages": [_HI]},
            ),
            Row(
                what="`is_error` of a result",
                fields=_used("Fog.", is_error=True),
                beside=_used("Fog."),
            ),
            Row(
                what="an image in a result",
                fields=_used([_LOOK, _PNG]),
                beside=_used([_LOOK]),
            ),
        ),
    ),
    Table(
        client=Format.ANTHROPIC,
        title="Tools",
        rows=(
            value("tools", [_WEATHER], what="a tool"),
            _strict("`strict`, and a schema that says everything", CLOSED),
            _strict("`strict`, and one that leaves something open", ANYTHING),
            _own("`cache_control`", cache_control={"type": "ephemeral"}),
            _own("`input_examples`", input_examples=[{"city": "Ulm"}]),
            _own("`defer_loading`", defer_loading=True),
            value("tools", [_SEARCH], what="a tool that Anthropic runs (web search, …)"),
            value(
                "mcp_servers",
                [{"type": "url", "url": "https://a.b", "name": "m"}],
                what="`mcp_servers`",
            ),
            *(
                value("tool_choice", {"type": word}, what=f"`tool_choice: {word}`", beside=_BOTH)
                for word in ("auto", "any", "none")
            ),
            value(
                "tool_choice",
                {"type": "tool", "name": "weather"},
                what="`tool_choice: tool`",
                beside=_BOTH,
            ),
            value(
                "tool_choice",
                {"type": "auto", "disable_parallel_tool_use": True},
                what="`disable_parallel_tool_use`",
                beside=_BOTH | {"tool_choice": {"type": "auto"}},
            ),
        ),
    ),
    Table(
        client=Format.ANTHROPIC,
        title="How tokens are chosen",
        rows=(
            value("max_tokens", 500),
            value("temperature", 0.5),
            value("temperature", 1.5),
            value("top_p", 0.5),
            value("top_k", 40),
            value("stop_sequences", ["END"], what="`stop_sequences`: one text"),
            value("stop_sequences", [*"abcdef"], what="`stop_sequences`: six texts"),
        ),
    ),
    Table(
        client=Format.ANTHROPIC,
        title="Thinking",
        rows=(
            *(
                _think(
                    f"`thinking: enabled`, {budget:,} tokens", type="enabled", budget_tokens=budget
                )
                for budget in (1_024, 4_000, 12_000)
            ),
            replace(_think("`thinking: adaptive`", type="adaptive"), unless=_OFF),
            _think("… with `display: omitted`", type="adaptive", display="omitted"),
            replace(_think("`thinking: disabled`", type="disabled"), unless=_THINKING),
            _think("`thinking: between_tools`", type="between_tools"),
            *(
                value("output_config", {"effort": word}, what=f"`effort: {word}`")
                for word in ("low", "medium", "high", "xhigh", "max")
            ),
            value(
                "output_config",
                {"task_budget": {"type": "tokens", "total": 20_000}},
                what="`task_budget`",
            ),
        ),
    ),
    Table(
        client=Format.ANTHROPIC,
        title="Structured output",
        rows=(
            value("output_config", _format(CLOSED), what="`output_config.format`"),
            value("output_config", _format(CLOSED), what="… beside tools", beside=_BOTH),
            value(
                "output_config", _format(ANYTHING), what="… and a schema that leaves something open"
            ),
        ),
    ),
    Table(
        client=Format.ANTHROPIC,
        title="Everything else",
        rows=(
            value("stream", True),
            value("metadata", {"user_id": "u-1"}, what="`metadata.user_id`"),
            value("service_tier", "auto"),
            value("cache_control", {"type": "ephemeral"}, what="`cache_control` at the top"),
            value(
                "context_management",
                {"edits": [{"type": "clear_tool_uses_20250919"}]},
                what="`context_management`",
            ),
            value("container", "container_1", what="`container`"),
            value("inference_geo", "us"),
            value("speed", "fast"),
            value("field_of_tomorrow", 1, what="a field that is not known"),
            Row(what="the header `anthropic-beta`", headers={"anthropic-beta": "context-1m"}),
        ),
    ),
)
"""What a client of Messages may ask for."""


# -- By model, and by server -----------------------------------------------------------------------

_SAMPLED: Final = (
    value("temperature", 0.5),
    Row(what="`temperature`, `top_p`", fields={"temperature": 0.5, "top_p": 0.9}),
    value("top_k", 40),
)
_BUDGET: Final = Row(
    what="`thinking: enabled`, 4,000 tokens",
    fields={"thinking": {"type": "enabled", "budget_tokens": 4_000}},
)
_FORCED: Final = value("tool_choice", "required", beside=_TOOLS)
_IT_IS: Final[Fields] = {"messages": [_HI, {"role": "assistant", "content": "It is"}]}
_BEGUN: Final = Row(what="a last message of the assistant", fields=_IT_IS)
_BEGUN_THINKING: Final = Row(what="… beside `reasoning_effort`", fields=_IT_IS, beside=_EFFORT)
_BESIDE_TOOLS: Final = value(
    "response_format", _schema(CLOSED), what="`json_schema` beside tools", beside=_TOOLS
)

CLAUDES: Final = Table(
    client=Format.OPENAI,
    title="Claude",
    targets=tuple(
        Target("anthropic", name)
        for name in (
            "claude-3-5-haiku-latest",
            "claude-sonnet-4-5",
            "claude-sonnet-4-6",
            "claude-opus-4-7",
            "claude-opus-5",
            "claude-sonnet-5-5",
            "claude-opus-5-5",
        )
    ),
    rows=(
        value("max_completion_tokens", 20_000, beside={"max_completion_tokens": 500}),
        *_SAMPLED,
        *(row for row in EFFORTS if '"minimal"' not in row.what),
        *SWITCHES,
        _FORCED,
        _BEGUN,
        _BEGUN_THINKING,
    ),
)
"""What a Claude takes, by its name."""

GEMINIS: Final = Table(
    client=Format.OPENAI,
    title="Gemini",
    targets=tuple(
        Target("gemini", name)
        for name in (
            "gemini-2.0-flash",
            "gemini-2.5-flash",
            "gemini-2.5-pro",
            "gemini-3-pro",
            "gemini-3.5-flash",
            "gemini-3.6-flash",
        )
    ),
    rows=(
        *_SAMPLED,
        value("presence_penalty", 0.5),
        Row(what="`logprobs`", fields={"logprobs": True}),
        value("n", 2),
        *(row for row in EFFORTS if '"medium"' not in row.what and '"xhigh"' not in row.what),
        *SWITCHES,
        _BESIDE_TOOLS,
        _BEGUN,
    ),
)
"""What a Gemini takes."""

_EFFORT_WORDS: Final = tuple(
    value("output_config", {"effort": word}, what=f"`effort: {word}`")
    for word in ("low", "high", "max")
)

GPTS: Final = Table(
    client=Format.ANTHROPIC,
    title="GPT",
    targets=tuple(
        Target("openai", name)
        for name in ("gpt-4.1", "o3", "gpt-5", "gpt-5.1", "gpt-5.2", "gpt-5.6-sol", "gpt-6-astra")
    ),
    rows=(
        value("temperature", 0.5),
        value("stop_sequences", ["END"], what="`stop_sequences`"),
        *_EFFORT_WORDS,
        replace(
            Row(what="`thinking: adaptive`", fields={"thinking": {"type": "adaptive"}}), unless=_OFF
        ),
        Row(what="`thinking: disabled`", fields=_OFF, unless=_THINKING),
        value("tools", [_WEATHER], what="a tool"),
        Row(what="a tool, and thinking", fields=_THINKING, beside=_BOTH),
    ),
)
"""What one of OpenAI's models takes."""

SERVERS: Final = Table(
    client=Format.ANTHROPIC,
    title="Servers",
    targets=(
        Target("openai", "gpt-4.1"),
        Target("mistral", "mistral-large-latest"),
        Target("deepseek", "deepseek-chat"),
        Target("groq", "llama-3.3-70b-versatile"),
        Target("vllm", "qwen3-32b", "http://gpu-1:8000/v1"),
        Target("openrouter", "openai/gpt-5"),
        Target("openai-compatible", "m", "http://gpu-2:8000/v1"),
    ),
    rows=(
        value("max_tokens", 500),
        value("top_k", 40),
        value("stop_sequences", [*"abcdef"], what="`stop_sequences`: six texts"),
        value("metadata", {"user_id": "u-1"}, what="`metadata.user_id`"),
        _BUDGET,
        Row(what="`thinking: disabled`", fields=_OFF, unless=_THINKING),
        Row(what="`tool_use` and its result", fields=_used("Fog."), beside={"messages": [_HI]}),
        _BEGUN,
    ),
)
"""What servers like OpenAI's take."""
