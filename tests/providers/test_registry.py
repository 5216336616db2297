"""The rows: what is default for whom, and what a configuration makes of it."""

from __future__ import annotations

from typing import get_args

import pytest

from router import config
from router.config import schema
from router.core.continuation import Echo, SchemaWithPrefix, Style
from router.providers.registry import (
    FAMILIES,
    PREFILL_STYLES,
    ContinuationOverrides,
    downgraded,
    resolve,
)


@pytest.mark.parametrize(
    ("family", "model", "style", "echo"),
    [
        ("openai", "gpt-5.2", Style.INSTRUCT, Echo.AUTO),
        ("azure-openai", "mine", Style.INSTRUCT, Echo.AUTO),
        ("openai-compatible", "any", Style.INSTRUCT, Echo.AUTO),
        ("together", "any", Style.INSTRUCT, Echo.AUTO),
        ("fireworks", "any", Style.INSTRUCT, Echo.AUTO),
        ("xai", "grok-5", Style.INSTRUCT, Echo.AUTO),
        ("lm-studio", "any", Style.INSTRUCT, Echo.AUTO),
        ("deepseek", "deepseek-chat", Style.PREFIX_FLAG, Echo.NEVER),
        ("mistral", "mistral-large-latest", Style.PREFIX_FLAG, Echo.ALWAYS),
        ("kimi", "moonshot-v1-8k", Style.PARTIAL_FLAG, Echo.NEVER),
        ("kimi", "kimi-k2.6", Style.PARTIAL_FLAG, Echo.NEVER),
        ("kimi", "kimi-k3", Style.INSTRUCT, Echo.AUTO),
        ("kimi", "kimi-k2.7-code", Style.INSTRUCT, Echo.AUTO),
        ("qwen", "qwen-plus", Style.PARTIAL_FLAG, Echo.AUTO),
        ("qwen", "qwen3-235b-a22b-thinking-2507", Style.INSTRUCT, Echo.AUTO),
        ("groq", "llama-3.3-70b", Style.ASSISTANT_TAIL, Echo.AUTO),
        ("ollama", "llama3.2", Style.ASSISTANT_TAIL, Echo.AUTO),
        ("vllm", "any", Style.CONTINUE_FINAL, Echo.NEVER),
        ("sglang", "any", Style.CONTINUE_FINAL, Echo.NEVER),
        ("llama.cpp", "any", Style.CONTINUE_FINAL, Echo.AUTO),
        ("openrouter", "openai/gpt-5", Style.INSTRUCT, Echo.AUTO),
        ("openrouter", "someone/new-model", Style.INSTRUCT, Echo.AUTO),
        ("openrouter", "DeepSeek/deepseek-chat-v3.2", Style.ASSISTANT_TAIL, Echo.AUTO),
        ("openrouter", "deepseek/deepseek-r1", Style.INSTRUCT, Echo.AUTO),
        ("openrouter", "mistralai/mistral-large", Style.ASSISTANT_TAIL, Echo.AUTO),
        ("openrouter", "x/deepseek/deepseek-chat", Style.INSTRUCT, Echo.AUTO),
    ],
)
def test_defaults(family: str, model: str, style: Style, echo: Echo) -> None:
    how = FAMILIES[family].how_for(model)
    assert (how.style, how.echo) == (style, echo)


@pytest.mark.parametrize(
    ("model", "prefills"),
    [
        ("anthropic/claude-3.7-sonnet", True),
        ("anthropic/claude-3-5-haiku-20241022", True),
        ("anthropic/claude-sonnet-4", True),
        ("anthropic/claude-opus-4-20250514", True),
        ("anthropic/claude-opus-4.1", True),
        ("anthropic/claude-haiku-4-5", True),
        ("anthropic/claude-haiku-4.5:beta", True),
        ("anthropic/claude-3.7-sonnet:thinking", False),
        ("anthropic/claude-opus-4.6", False),
        ("anthropic/claude-opus-4-6", False),
        ("anthropic/claude-sonnet-4.10", False),
        ("anthropic/claude-sonnet-5", False),
        ("anthropic/claude-opus-10", False),
        ("anthropic/claude-45", False),
    ],
)
def test_claude_prefills_up_to_4_5(model: str, prefills: bool) -> None:
    how = FAMILIES["openrouter"].how_for(model)
    assert (how.style in PREFILL_STYLES) is prefills
    assert how.rstrip_prefix is prefills


def test_the_configuration_knows_the_same_families() -> None:
    assert set(get_args(config.ProviderType)) <= set(FAMILIES)
    assert {name for name, row in FAMILIES.items() if row.base_url is None} == set(
        schema.NEEDS_BASE_URL
    )
    assert {name for name, row in FAMILIES.items() if row.thinking_off} == set(
        schema.KNOWS_THINKING
    )


def test_a_silent_configuration_changes_nothing() -> None:
    for family in FAMILIES.values():
        assert resolve(family, "m", ContinuationOverrides()) == family.how_for("m")


def test_every_knob_can_be_set() -> None:
    how = resolve(
        FAMILIES["openai"],
        "m",
        ContinuationOverrides(
            style=Style.PREFIX_FLAG,
            echo=Echo.ALWAYS,
            rstrip_prefix=True,
            disable_thinking={"a": {"b": False}},
            schema=SchemaWithPrefix.KEEP,
        ),
    )
    assert how.style is Style.PREFIX_FLAG
    assert how.echo is Echo.ALWAYS
    assert how.rstrip_prefix is True
    assert how.disable_thinking == {"a": {"b": False}}
    assert how.schema is SchemaWithPrefix.KEEP


def test_another_style_forgets_the_join_of_the_default_one() -> None:
    how = resolve(FAMILIES["mistral"], "m", ContinuationOverrides(style=Style.ASSISTANT_TAIL))
    assert how.echo is Echo.AUTO
    how = resolve(FAMILIES["deepseek"], "m", ContinuationOverrides(style=Style.INSTRUCT))
    assert how.disable_thinking is None


def test_thinking_as_a_truth_value() -> None:
    on = resolve(FAMILIES["vllm"], "m", ContinuationOverrides(disable_thinking=True))
    off = resolve(FAMILIES["deepseek"], "m", ContinuationOverrides(disable_thinking=False))
    assert on.disable_thinking == {"chat_template_kwargs": {"enable_thinking": False}}
    assert off.disable_thinking is None


def test_a_refused_prefix_becomes_instruct() -> None:
    how = downgraded(FAMILIES["deepseek"].how)
    assert how.style is Style.INSTRUCT
    assert how.echo is Echo.AUTO
    assert how.disable_thinking is None
