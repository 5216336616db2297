"""What differs between models of one format, and between its servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from formats.compatibility_chat import EFFORT, EFFORTS, SWITCHES, TOOLS, schema_format
from formats.compatibility_messages import BOTH, THINKING, WEATHER, used
from formats.compatibility_rows import CLOSED, HI, OFF, Fields, Row, Table, Target, value

from router.core.request import Format

_SAMPLED: Final = (
    value("temperature", 0.5),
    Row(what="`temperature`, `top_p`", fields={"temperature": 0.5, "top_p": 0.9}),
    value("top_k", 40),
)
_BUDGET: Final = Row(
    what="`thinking: enabled`, 4,000 tokens",
    fields={"thinking": {"type": "enabled", "budget_tokens": 4_000}},
)
_FORCED: Final = value("tool_choice", "required", beside=TOOLS)
_IT_IS: Final[Fields] = {"messages": [HI, {"role": "assistant", "content": "It is"}]}
_BEGUN: Final = Row(what="a last message of the assistant", fields=_IT_IS)
_BEGUN_THINKING: Final = Row(what="… beside `reasoning_effort`", fields=_IT_IS, beside=EFFORT)
_BESIDE_TOOLS: Final = value(
    "response_format", schema_format(CLOSED), what="`json_schema` beside tools", beside=TOOLS
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
            Row(what="`thinking: adaptive`", fields={"thinking": {"type": "adaptive"}}), unless=OFF
        ),
        Row(what="`thinking: disabled`", fields=OFF, unless=THINKING),
        value("tools", [WEATHER], what="a tool"),
        Row(what="a tool, and thinking", fields=THINKING, beside=BOTH),
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
        Row(what="`thinking: disabled`", fields=OFF, unless=THINKING),
        Row(what="`tool_use` and its result", fields=used("Fog."), beside={"messages": [HI]}),
        _BEGUN,
    ),
)
"""What servers like OpenAI's take."""
