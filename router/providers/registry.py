"""The provider families, as data: one frozen row per `type` of the configuration.

A new family is a new row. What a row says about continuation is an allow-list: a family that is not
known to continue a trailing assistant message gets `instruct`, because a wrong `instruct` costs a
little quality while a wrong prefill is refused, or restarts the answer in silence. For the same
reason `echo` is `auto` unless the vendor's behaviour is documented. `docs/continuation.md` tells
people the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from router.core.continuation import ContinuationStyle, Echo, SchemaWithPrefix, Style
from router.core.request import Format

PREFILL_STYLES = frozenset(
    {Style.ASSISTANT_TAIL, Style.PREFIX_FLAG, Style.PARTIAL_FLAG, Style.CONTINUE_FINAL}
)
"""Styles whose request ends with an assistant message that the model goes on writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRule:
    """An exception by model name, within a family.

    Args:
        pattern: matched at the start of the model's name, case ignored.
        how: the continuation of such models.
    """

    pattern: str
    how: ContinuationStyle


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One row: what the adapter must know of a family of servers.

    Args:
        name: the `type` of the configuration.
        label: the name in sentences for people.
        base_url: default base URL, or None where there is none to guess.
        format: what it speaks; says which adapter serves it.
        headers: what every request carries beside the key.
        auth_header: header that carries the key.
        auth_scheme: word before the key in it, or "".
        deployments: the model goes into the path (`/openai/deployments/<model>`), and `api_version`
            into the query, as Azure wants it.
        api_version: default of that query parameter.
        usage_option: the server takes `stream_options.include_usage`; where not, it sends usage
            unasked.
        usage_since: first `api_version` (date part) that takes it, or "".
        rename: top-level request fields that the server knows by another name only.
        budget: what a translated request calls the answer's token budget. The older name is known
            everywhere but at OpenAI's reasoning models.
        lacks: top-level fields that a translated request may hold, and that the server refuses, or
            that are not known to mean anything to it.
        max_stop: most stop sequences that it takes, or None where it sets no such bound.
        call_id_chars: the length of a tool call's id, of letters and digits, where the server
            refuses any other.
        own_models: its models are OpenAI's own (`router/providers/openai_models.py`).
        how: how its models continue, unless a rule says otherwise.
        rules: exceptions by model name; the first match wins.
        continuation_base_url: base URL that continuations go to, used only while the configured
            host is the default one: a key is never sent to a host that was not configured.
        thinking_off: JSON merge patch that switches thinking off; what `disable_thinking: true`
            means. None where none is known.
        schema_types: `response_format` types that `schema: keep` really keeps; others are dropped.
    """

    name: str
    label: str
    base_url: str | None
    format: Format = Format.OPENAI
    headers: Mapping[str, str] = field(default_factory=dict)
    auth_header: str = "Authorization"
    auth_scheme: str = "Bearer"
    deployments: bool = False
    api_version: str = ""
    usage_option: bool = True
    usage_since: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)
    budget: str = "max_tokens"
    lacks: frozenset[str] = frozenset({"top_k"})
    max_stop: int | None = None
    call_id_chars: int | None = None
    own_models: bool = False
    how: ContinuationStyle = field(default_factory=ContinuationStyle)
    rules: tuple[ModelRule, ...] = ()
    continuation_base_url: str | None = None
    thinking_off: Mapping[str, Any] | None = None
    schema_types: frozenset[str] = frozenset({"json_schema", "json_object"})

    def how_for(self, model: str) -> ContinuationStyle:
        """How a model of this family continues.

        Args:
            model: the name as it is sent to the provider.
        """
        for rule in self.rules:
            if re.match(rule.pattern, model, re.IGNORECASE):
                return rule.how
        return self.how


_INSTRUCT = ContinuationStyle()
_NOTHING: frozenset[str] = frozenset()
_THINKING_TYPE = {"thinking": {"type": "disabled"}}
# Claude thinks only when it is asked to, so nothing is left of what asked.
_THINKING_GONE = {"thinking": None}
# What that is in the words of a model: `router/providers/gemini_models.py`.
_NO_BUDGET = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}
_TEMPLATE_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
_CLAUDE_TAIL = ContinuationStyle(style=Style.ASSISTANT_TAIL, rstrip_prefix=True)
_TAIL = ContinuationStyle(style=Style.ASSISTANT_TAIL)

# Claude 1 to 4.5, in both orders of the name (`claude-3.7-sonnet`, `claude-opus-4-20250514`); not
# 4.6 and later, which refuse a prefill, and not the `:thinking` variants, which cannot take one.
_CLAUDE_TO_4_5 = (
    r"claude-(?:[a-z]+-)?v?(?:[1-3](?:[.-]\d)?|4(?:[.-][0-5])?)"
    r"(?![\d.]|-\d{1,2}(?!\d))(?!.*[:-]thinking)"
)
# Up to 3.5 Flash; not its Lite, and not the names that move on (`gemini-flash-latest`).
_GEMINI_TO_3_5 = r"gemini-(?:[12](?:\.\d)?|3(?:\.[0-4])?|3\.5-flash(?!-lite))(?![\d.])"
# The clouds' ways to write a maker before a name: `us.anthropic.claude-…`, `publishers/google/…/`.
_MAKER = r"(?:.*[./:])?"

_ROWS = (
    # https://platform.openai.com/docs/api-reference/chat; no prefill: answers afresh.
    Family(
        name="openai",
        label="OpenAI",
        base_url="https://api.openai.com/v1",
        budget="max_completion_tokens",
        max_stop=4,
        own_models=True,
    ),
    # https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle: the v1 API
    # (`…/openai/v1`) wants no api-version. 2024-10-21 is the last dated release that is not a
    # preview; stream_options came with 2024-09-01-preview.
    Family(
        name="azure-openai",
        label="Azure OpenAI",
        base_url=None,
        auth_header="api-key",
        auth_scheme="",
        deployments=True,
        api_version="2024-10-21",
        usage_since="2024-09-01",
        budget="max_completion_tokens",
        max_stop=4,
        own_models=True,
    ),
    Family(name="openai-compatible", label="The OpenAI-compatible server", base_url=None),
    # https://openrouter.ai/docs: a trailing assistant message is passed to the upstream, which may
    # or may not go on with it; so only models whose own vendor is known to. It takes `top_k`, and
    # drops what an upstream does not take: https://openrouter.ai/docs/api/reference/parameters.
    Family(
        name="openrouter",
        label="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        lacks=_NOTHING,
        rules=(
            ModelRule(pattern=rf"anthropic/{_CLAUDE_TO_4_5}", how=_CLAUDE_TAIL),
            ModelRule(pattern=r"deepseek/(?!.*(?:r1|reasoner|:thinking))", how=_TAIL),
            ModelRule(pattern=r"mistralai/(?!magistral)", how=_TAIL),
        ),
        thinking_off={"reasoning": {"enabled": False}},
    ),
    # https://api-docs.deepseek.com/guides/chat_prefix_completion: beta base URL, `prefix: true`.
    # Its reference names max_tokens only, and what it does not name is ignored in silence.
    Family(
        name="deepseek",
        label="DeepSeek",
        base_url="https://api.deepseek.com",
        rename={"max_completion_tokens": "max_tokens"},
        how=ContinuationStyle(
            style=Style.PREFIX_FLAG, echo=Echo.NEVER, disable_thinking=dict(_THINKING_TYPE)
        ),
        continuation_base_url="https://api.deepseek.com/beta",
        thinking_off=_THINKING_TYPE,
    ),
    # https://docs.mistral.ai/api: `prefix: true`, and the answer begins with the prefix. Unknown
    # fields are refused with 422, among them stream_options.include_usage and
    # max_completion_tokens; usage comes unasked. Words for an effort are each model's own. Of a
    # call's id it says "must be a-z, A-Z, 0-9, with a length of 9":
    # https://github.com/langchain-ai/langchain/pull/24668.
    Family(
        name="mistral",
        label="Mistral",
        base_url="https://api.mistral.ai/v1",
        usage_option=False,
        rename={"max_completion_tokens": "max_tokens"},
        lacks=frozenset({"top_k", "user", "reasoning_effort"}),
        call_id_chars=9,
        how=ContinuationStyle(style=Style.PREFIX_FLAG, echo=Echo.ALWAYS),
    ),
    # https://platform.moonshot.ai/docs/api/partial: `partial: true`, not with json_object. K3 and
    # K2.7-code always think; K2.5 and K2.6 think unless told not to; moonshot-v1 never does.
    Family(
        name="kimi",
        label="Kimi",
        base_url="https://api.moonshot.ai/v1",
        how=ContinuationStyle(style=Style.PARTIAL_FLAG, echo=Echo.NEVER),
        rules=(
            ModelRule(pattern=r"kimi-(?:k3|k2\.7|k2-thinking|thinking)", how=_INSTRUCT),
            ModelRule(
                pattern=r"kimi-k2\.[56]",
                how=ContinuationStyle(
                    style=Style.PARTIAL_FLAG,
                    echo=Echo.NEVER,
                    disable_thinking=dict(_THINKING_TYPE),
                ),
            ),
        ),
        thinking_off=_THINKING_TYPE,
    ),
    # https://www.alibabacloud.com/help/en/model-studio/partial-mode: `partial: true`, most models
    # in non-thinking mode only. The international endpoint; China's is dashscope.aliyuncs.com.
    Family(
        name="qwen",
        label="Qwen",
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        lacks=_NOTHING,
        how=ContinuationStyle(
            style=Style.PARTIAL_FLAG, disable_thinking={"enable_thinking": False}
        ),
        rules=(ModelRule(pattern=r"qwq|qvq|.*-thinking", how=_INSTRUCT),),
        thinking_off={"enable_thinking": False},
    ),
    # https://console.groq.com/docs/prefilling
    Family(
        name="groq",
        label="Groq",
        base_url="https://api.groq.com/openai/v1",
        max_stop=4,
        how=_TAIL,
    ),
    # https://docs.together.ai/reference/chat-completions-1, `top_k`
    Family(
        name="together", label="Together", base_url="https://api.together.xyz/v1", lacks=_NOTHING
    ),
    # https://docs.fireworks.ai/api-reference/post-chatcompletions, `top_k`
    Family(
        name="fireworks",
        label="Fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        lacks=_NOTHING,
    ),
    Family(name="xai", label="xAI", base_url="https://api.x.ai/v1"),
    # https://docs.vllm.ai/en/stable/serving/openai_compatible_server: both flags, and both true is
    # refused. Guided decoding starts at the schema's root, so no schema is sent beside a prefix.
    # Thinking is left alone: `chat_template_kwargs` is refused by its Mistral tokenizer mode.
    Family(
        name="vllm",
        label="vLLM",
        base_url=None,
        lacks=_NOTHING,
        how=ContinuationStyle(
            style=Style.CONTINUE_FINAL, echo=Echo.NEVER, schema=SchemaWithPrefix.DROP
        ),
        thinking_off=_TEMPLATE_THINKING,
    ),
    # https://docs.sglang.ai/basic_usage/openai_api.html: the same; without the flag a trailing
    # assistant message is turned into a user's.
    Family(
        name="sglang",
        label="SGLang",
        base_url=None,
        lacks=_NOTHING,
        how=ContinuationStyle(
            style=Style.CONTINUE_FINAL, echo=Echo.NEVER, schema=SchemaWithPrefix.DROP
        ),
        thinking_off=_TEMPLATE_THINKING,
    ),
    # https://github.com/ggml-org/llama.cpp/tree/master/tools/server: a json_schema grammar follows
    # a prefix that fits it; a prefill beside thinking is refused.
    Family(
        name="llama.cpp",
        label="llama.cpp",
        base_url="http://127.0.0.1:8080/v1",
        lacks=_NOTHING,
        how=ContinuationStyle(
            style=Style.CONTINUE_FINAL,
            disable_thinking=dict(_TEMPLATE_THINKING),
            schema=SchemaWithPrefix.KEEP,
        ),
        thinking_off=_TEMPLATE_THINKING,
        schema_types=frozenset({"json_schema"}),
    ),
    # https://docs.ollama.com/openai: a trailing assistant message is continued by most templates.
    Family(
        name="ollama",
        label="Ollama",
        base_url="http://127.0.0.1:11434/v1",
        how=_TAIL,
        thinking_off={"reasoning_effort": "none"},
    ),
    # https://lmstudio.ai/docs/developer/openai-compat/chat-completions, `top_k`
    Family(
        name="lm-studio",
        label="LM Studio",
        base_url="http://127.0.0.1:1234/v1",
        lacks=_NOTHING,
    ),
    # https://platform.claude.com/docs/en/api/messages,
    # https://platform.claude.com/docs/en/build-with-claude/prompt-engineering/prefill-claudes-response:
    # a trailing assistant turn is gone on with, up to 4.5 and without thinking; white space at its
    # end is refused. Structured output refuses it too, so the schema is left to the router there.
    Family(
        name="anthropic",
        label="Anthropic",
        base_url="https://api.anthropic.com",
        format=Format.ANTHROPIC,
        headers={"anthropic-version": "2023-06-01"},
        auth_header="x-api-key",
        auth_scheme="",
        rules=(
            ModelRule(
                pattern=_MAKER + _CLAUDE_TO_4_5,
                how=ContinuationStyle(
                    style=Style.ASSISTANT_TAIL,
                    echo=Echo.NEVER,
                    rstrip_prefix=True,
                    disable_thinking=dict(_THINKING_GONE),
                    schema=SchemaWithPrefix.DROP,
                ),
            ),
        ),
        thinking_off=_THINKING_GONE,
    ),
    # https://ai.google.dev/api/generate-content: a trailing model turn is gone on with by the older
    # models; the newer ones answer 400 "Requests ending with a model turn are not supported."
    Family(
        name="gemini",
        label="Gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        format=Format.GEMINI,
        auth_header="x-goog-api-key",
        auth_scheme="",
        rules=(ModelRule(pattern=_MAKER + _GEMINI_TO_3_5, how=_TAIL),),
        thinking_off=_NO_BUDGET,
    ),
)

FAMILIES: Mapping[str, Family] = MappingProxyType({row.name: row for row in _ROWS})
"""Every `type`, by name."""
