"""The rows: what is default for whom, and what a configuration makes of it."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from router import config
from router.config import schema
from router.core.continuation import ContinuationStyle, Echo, SchemaWithPrefix, Style
from router.providers.make import make_provider
from router.providers.registry import FAMILIES, PREFILL_STYLES
from router.providers.resolve import (
    STYLES,
    ContinuationOverrides,
    ContinuationRule,
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


CLAUDE_TO_4_5 = (
    "claude-2.1",
    "claude-instant-1.2",
    "claude-3-haiku-20240307",
    "claude-3-opus-latest",
    "claude-3-5-haiku-20241022",
    "claude-3-5-sonnet-20240620",
    "claude-3.7-sonnet",
    "claude-3-7-sonnet-latest",
    "claude-sonnet-4",
    "claude-sonnet-4-0",
    "claude-opus-4-20250514",
    "claude-opus-4-1",
    "claude-opus-4.1",
    "claude-opus-4-1-20250805",
    "claude-haiku-4-5",
    "claude-haiku-4.5:beta",
    "claude-sonnet-4-5-20250929",
    "Claude-Opus-4-5-20251101",
    "claude-4-sonnet-20250514",
    "claude-4.5-sonnet",
)
CLAUDE_SINCE_4_6 = (
    "claude-3.7-sonnet:thinking",
    "claude-opus-4.6",
    "claude-opus-4-6",
    "claude-opus-4-6-20260205",
    "claude-sonnet-4-6",
    "claude-opus-4-7",
    "claude-haiku-4-9",
    "claude-sonnet-4.10",
    "claude-sonnet-4-10",
    "claude-4-6-sonnet",
    "claude-sonnet-5",
    "claude-opus-5-20270101",
    "claude-opus-10",
    "claude-45",
    "claude-mythos-preview",
    "claude-next",
    "claude",
)


@pytest.mark.parametrize("model", [*CLAUDE_TO_4_5, *CLAUDE_SINCE_4_6])
@pytest.mark.parametrize("family", ["openrouter", "anthropic"])
def test_claude_prefills_up_to_4_5(family: str, model: str) -> None:
    how = FAMILIES[family].how_for(f"anthropic/{model}" if family == "openrouter" else model)
    prefills = model in CLAUDE_TO_4_5
    assert how.style is (Style.ASSISTANT_TAIL if prefills else Style.INSTRUCT)
    assert how.rstrip_prefix is prefills


@pytest.mark.parametrize(
    ("model", "prefills"),
    [
        ("anthropic.claude-v2:1", True),
        ("anthropic.claude-instant-v1", True),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", True),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", True),
        ("global.anthropic.claude-opus-4-5-20251101-v1:0", True),
        (
            "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3-haiku-20240307-v1:0",
            True,
        ),
        ("claude-3-5-sonnet-v2@20241022", True),
        ("claude-opus-4@20250514", True),
        ("claude-sonnet-4-5@20250929", True),
        ("publishers/anthropic/models/claude-haiku-4-5@20251001", True),
        ("us.anthropic.claude-opus-4-6-v1:0", False),
        ("global.anthropic.claude-sonnet-5-20270101-v1:0", False),
        ("claude-opus-4-6@20260205", False),
        ("claude-opus-4-7@default", False),
        ("my-claude-3", False),
        ("minimax-m2", False),
    ],
)
def test_claude_under_the_names_that_clouds_give_it(model: str, prefills: bool) -> None:
    how = FAMILIES["anthropic"].how_for(model)
    assert (how.style in PREFILL_STYLES) is prefills


def test_a_prefix_for_claude_says_how_it_joins_and_thinks_nothing() -> None:
    family = FAMILIES["anthropic"]
    prefilled, worded = family.how_for("claude-sonnet-4-5"), family.how_for("claude-opus-4-7")
    assert prefilled == ContinuationStyle(
        style=Style.ASSISTANT_TAIL,
        echo=Echo.NEVER,
        rstrip_prefix=True,
        disable_thinking={"thinking": None},
        schema=SchemaWithPrefix.DROP,
    )
    assert worded == ContinuationStyle()


@pytest.mark.parametrize(
    ("model", "prefills"),
    [
        ("gemini-1.5-pro-002", True),
        ("gemini-2.0-flash", True),
        ("gemini-2.0-flash-lite-001", True),
        ("gemini-2.5-pro", True),
        ("gemini-2.5-flash-lite-preview-09-2025", True),
        ("models/gemini-2.5-flash", True),
        ("publishers/google/models/gemini-2.5-flash", True),
        ("google/gemini-2.5-flash", True),
        ("gemini-3-pro-preview", True),
        ("gemini-3-flash", True),
        ("gemini-3.1-flash-lite", True),
        ("gemini-3.5-flash", True),
        ("gemini-3.5-flash-001", True),
        ("gemini-3.5-flash-lite", False),
        ("gemini-3.5-flash-lite-preview", False),
        ("gemini-3.5-pro", False),
        ("gemini-3.6-flash", False),
        ("gemini-3.10-flash", False),
        ("gemini-4-pro", False),
        ("gemini-20-flash", False),
        ("gemini-flash-latest", False),
        ("gemma-3-27b-it", False),
    ],
)
def test_gemini_prefills_up_to_3_5_flash(model: str, prefills: bool) -> None:
    how = FAMILIES["gemini"].how_for(model)
    assert how.style is (Style.ASSISTANT_TAIL if prefills else Style.INSTRUCT)


def test_the_configuration_knows_the_same_families() -> None:
    assert set(get_args(config.ProviderType)) == set(FAMILIES)
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


def rule(models: str, **said: Any) -> ContinuationRule:  # noqa: ANN401 - the knobs
    return ContinuationRule(models=models, overrides=ContinuationOverrides(**said))


@pytest.mark.parametrize(
    ("models", "model", "fits"),
    [
        ("*", "anything/at:all", True),
        ("claude-opus-5*", "claude-opus-5", True),
        ("claude-opus-5*", "Claude-Opus-5-20270101", True),
        ("CLAUDE-*", "claude-opus-5", True),
        ("claude-opus-5*", "anthropic.claude-opus-5", False),
        ("*claude-opus-5*", "anthropic.claude-opus-5", True),
        ("claude-opus-5", "claude-opus-5-20270101", False),
        ("gpt-?", "gpt-5", True),
        ("gpt-?", "gpt-", False),
        ("gpt-?", "gpt-5.2", False),
        ("gpt-5.2", "gpt-5x2", False),
        ("claude[1m]", "claude[1m]", True),
        ("claude[1m]", "claude1", False),
    ],
)
def test_a_rule_is_for_names_that_fit_as_a_whole(models: str, model: str, fits: bool) -> None:
    assert rule(models, style=Style.NONE).fits(model) is fits


def test_the_first_rule_that_fits_goes_before_the_ones_that_are_built_in() -> None:
    rules = (
        rule("claude-*-4-5*", style=Style.INSTRUCT),
        rule("claude-opus-5*", style=Style.ASSISTANT_TAIL, echo=Echo.NEVER),
        rule("*", style=Style.RESTART),
    )

    def style(model: str, **own: Any) -> ContinuationStyle:  # noqa: ANN401 - the knobs
        return resolve(FAMILIES["anthropic"], model, ContinuationOverrides(**own), rules)

    assert style("claude-sonnet-4-5").style is Style.INSTRUCT
    assert style("claude-sonnet-4-5").disable_thinking is None  # it belonged to the prefill
    assert style("claude-opus-5").style is Style.ASSISTANT_TAIL
    assert style("claude-opus-5").echo is Echo.NEVER
    assert style("claude-opus-5", disable_thinking=True).disable_thinking == {"thinking": None}
    assert style("claude-3-haiku").style is Style.RESTART
    # The target's own word is the last one, and forgets the join of the rule's style.
    assert style("claude-opus-5", style=Style.NONE).echo is Echo.AUTO


@pytest.mark.parametrize("family", ["anthropic", "gemini"])
@pytest.mark.parametrize("style", [Style.PREFIX_FLAG, Style.PARTIAL_FLAG, Style.CONTINUE_FINAL])
def test_a_field_of_chat_completions_is_no_style_of_another_format(
    family: str, style: Style
) -> None:
    said = ContinuationOverrides(style=style)
    with pytest.raises(ValueError, match="does not speak; use assistant_tail, instruct"):
        make_provider(type=family, base_url=None, api_key=None, model="m", overrides=said)
    assert style not in STYLES[FAMILIES[family].format]


def test_a_refused_prefix_becomes_instruct() -> None:
    how = downgraded(FAMILIES["deepseek"].how)
    assert how.style is Style.INSTRUCT
    assert how.echo is Echo.AUTO
    assert how.disable_thinking is None
