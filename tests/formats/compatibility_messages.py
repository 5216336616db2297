"""What a client of Messages may ask for."""

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
    OPEN,
    PDF,
    PIXEL,
    SIGNATURE,
    Fields,
    Row,
    Table,
    part,
    value,
)

from router.core.request import Format


def _block(what: str, **block: Any) -> Row:  # noqa: ANN401 - JSON
    """A block beside a text."""
    return part(what, **block)


def _answer(what: str, *blocks: Fields) -> Row:
    """Blocks in an earlier answer."""
    said = [{"type": "text", "text": "Hello."}]
    return Row(
        what=what,
        fields={"messages": [HI, {"role": "assistant", "content": [*blocks, *said]}, MORE]},
        beside={"messages": [HI, {"role": "assistant", "content": said}, MORE]},
    )


def used(content: object, **more: object) -> Fields:
    """A history with a use of a tool and its result."""
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Ulm"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}
    return {
        "messages": [
            HI,
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
WEATHER: Final[Fields] = {"name": "weather", "description": "Of a city.", "input_schema": OPEN}
BOTH: Final[Fields] = {"tools": [WEATHER, {"name": "time", "input_schema": {"type": "object"}}]}
_SEARCH: Final[Fields] = {"type": "web_search_20250305", "name": "web_search"}


def _own(what: str, **more: object) -> Row:
    """A tool with more to it."""
    return Row(what=what, fields={"tools": [WEATHER | more]}, beside={"tools": [WEATHER]})


def _strict(what: str, schema: Fields) -> Row:
    tool = WEATHER | {"input_schema": schema}
    return Row(what=what, fields={"tools": [tool | {"strict": True}]}, beside={"tools": [tool]})


def _think(what: str, beside: Fields | None = None, **thinking: object) -> Row:
    return Row(what=what, fields={"thinking": thinking}, beside=beside or {})


THINKING: Final[Fields] = {"thinking": {"type": "enabled", "budget_tokens": 12_000}}


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
                fields={"messages": [HI, {"role": "system", "content": "Be brief."}]},
                beside={"messages": [HI]},
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
            _block("`cache_control` on a block", **LOOK, cache_control={"type": "ephemeral"}),
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
                fields={"messages": [HI, {"role": "assistant", "content": "It is"}]},
                beside={"messages": [HI]},
            ),
            Row(
                what="a first message of the assistant",
                fields={"messages": [{"role": "assistant", "content": "Hello."}, HI]},
                beside={"messages": [HI]},
            ),
            Row(
                what="`tool_use` and its result",
                fields=used("Fog."),
                beside={"messages": [HI]},
            ),
            Row(
                what="`is_error` of a result",
                fields=used("Fog.", is_error=True),
                beside=used("Fog."),
            ),
            Row(
                what="an image in a result",
                fields=used([LOOK, _PNG]),
                beside=used([LOOK]),
            ),
        ),
    ),
    Table(
        client=Format.ANTHROPIC,
        title="Tools",
        rows=(
            value("tools", [WEATHER], what="a tool"),
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
                value("tool_choice", {"type": word}, what=f"`tool_choice: {word}`", beside=BOTH)
                for word in ("auto", "any", "none")
            ),
            value(
                "tool_choice",
                {"type": "tool", "name": "weather"},
                what="`tool_choice: tool`",
                beside=BOTH,
            ),
            value(
                "tool_choice",
                {"type": "auto", "disable_parallel_tool_use": True},
                what="`disable_parallel_tool_use`",
                beside=BOTH | {"tool_choice": {"type": "auto"}},
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
            replace(_think("`thinking: adaptive`", type="adaptive"), unless=OFF),
            _think("… with `display: omitted`", type="adaptive", display="omitted"),
            replace(_think("`thinking: disabled`", type="disabled"), unless=THINKING),
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
            value("output_config", _format(CLOSED), what="… beside tools", beside=BOTH),
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
