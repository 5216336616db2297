"""Requests that Anthropic refuses, in its own words: fields, options, tools, thinking, prefixes.

Sources: https://platform.claude.com/docs/en/api/messages, the pages on extended thinking, tool use
and structured outputs beside it, and the API's answers as people report them, such as in
https://github.com/anthropics/claude-code/issues/49219 and
https://github.com/BerriAI/litellm/issues/3286
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from router.simulate.anthropic.blocks import Turn, check_pairs, read_turns
from router.simulate.anthropic.models import (
    FIRST_WITH_ADAPTIVE,
    FIRST_WITH_EITHER,
    LAST_WITH_BUDGET,
    LAST_WITH_SAMPLING,
    after,
    before,
)
from router.simulate.anthropic.schemas import check_output_schema, check_tool_schema
from router.simulate.dialect import Refused

_COUNTED: Final = frozenset(
    {
        "cache_control",
        "messages",
        "model",
        "output_config",
        "speed",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    }
)
"""Fields of a request for the number of its tokens."""
_ASKED: Final = _COUNTED | {
    "container",
    "diagnostics",
    "inference_geo",
    "max_tokens",
    "metadata",
    "service_tier",
    "stop_sequences",
    "stream",
    "temperature",
    "top_k",
    "top_p",
}
"""Fields of a request for an answer."""
_BETA: Final = frozenset(
    {
        "billing_policy",
        "compaction",
        "context_management",
        "fallback_credit_token",
        "fallbacks",
        "mcp_servers",
        "output_format",
        "thread",
    }
)
"""Fields that an `anthropic-beta` header may open."""
_LEAST_BUDGET: Final = 1_024
_LEAST_TOP_P: Final = 0.95  # beside thinking
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_TOOL: Final = frozenset(
    {
        "allowed_callers",
        "cache_control",
        "defer_loading",
        "description",
        "eager_input_streaming",
        "input_examples",
        "input_schema",
        "name",
        "strict",
        "type",
    }
)
_BUILT_IN: Final = re.compile(r"[a-z_]+_\d{8}")  # such as `web_search_20250305`
_THINKING_PAGE: Final = "https://docs.claude.com/en/docs/build-with-claude/extended-thinking"


def check(body: Mapping[str, Any], *, model: str, counts: bool, beta: bool) -> list[Turn]:
    """Refuse what the vendor refuses.

    Args:
        body: the request.
        model: as asked for, without directives.
        counts: it asks for the number of tokens only.
        beta: it came with an `anthropic-beta` header.

    Returns:
        Its messages.

    Raises:
        Refused: in the vendor's words.
    """
    _check_fields(body, counts=counts, beta=beta)
    _check_tools(body)
    _check_thinking(body, model)
    _check_sampling(body, model)
    _check_output(body)
    turns = read_turns(body["messages"], model)
    check_pairs(turns)
    _check_thought(body, turns)
    _check_prefix(body, turns)
    return turns


def thinks(body: Mapping[str, Any]) -> bool:
    """Whether thinking is switched on."""
    kind = (body.get("thinking") or {}).get("type", "disabled")
    return bool(kind != "disabled")


def output_format(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What structured output is asked for, if any."""
    return (body.get("output_config") or {}).get("format") or body.get("output_format")


def _check_fields(body: Mapping[str, Any], *, counts: bool, beta: bool) -> None:
    known = (_COUNTED if counts else _ASKED) | (_BETA if beta else frozenset())
    required = ("messages", "model") if counts else ("max_tokens", "messages", "model")
    for name in required:
        if body.get(name) is None:
            raise Refused(f"{name}: Field required")
    for name in body:
        if name not in known:
            raise Refused(f"{name}: Extra inputs are not permitted")
    if not isinstance(body["messages"], list):
        raise Refused("messages: Input should be a valid list")
    if not body["messages"]:
        raise Refused("messages: at least one message is required")
    if not counts and not _is_int(body["max_tokens"]):
        raise Refused("max_tokens: Input should be a valid integer")
    if not counts and body["max_tokens"] < 1:
        raise Refused("max_tokens: must be greater than or equal to 1")
    for name in body.get("metadata") or {}:
        if name != "user_id":
            raise Refused(f"metadata.{name}: Extra inputs are not permitted")
    _check_system(body.get("system"))
    _check_stop(body.get("stop_sequences") or ())


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_system(system: object) -> None:
    for index, block in enumerate(system if isinstance(system, list) else ()):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise Refused(f"system.{index}.type: Input should be 'text'")
        if not block.get("text"):
            raise Refused("system: text content blocks must be non-empty")


def _check_stop(stop: Sequence[object]) -> None:
    for word in stop:
        if not isinstance(word, str) or not word:
            raise Refused("stop_sequences: each stop sequence must be non-empty")
        if not word.strip():
            raise Refused("stop_sequences: each stop sequence must contain non-whitespace")


def _check_tools(body: Mapping[str, Any]) -> None:
    tools, choice = body.get("tools") or [], body.get("tool_choice")
    names = [_check_tool(tool, f"tools.{index}") for index, tool in enumerate(tools)]
    if len({*names}) < len(names):
        raise Refused("tools: Tool names must be unique.")
    if choice is None:
        return
    if not isinstance(choice, dict) or choice.get("type") not in {"auto", "any", "tool", "none"}:
        kind = choice.get("type") if isinstance(choice, dict) else choice
        raise Refused(
            f"tool_choice: Input tag '{kind}' found using 'type' does not match any of the "
            "expected tags: 'any', 'auto', 'none', 'tool'"
        )
    if not tools:
        raise Refused("tool_choice: tool_choice may only be specified while providing tools")
    if choice["type"] == "tool" and choice.get("name") not in names:
        raise Refused(f"tool_choice: Tool '{choice.get('name')}' not found in provided tools")


def _check_tool(tool: object, where: str) -> str:
    if not isinstance(tool, dict):
        raise Refused(f"{where}: Input should be an object")
    kind = tool.get("type") or "custom"
    if kind != "custom":
        if not _BUILT_IN.fullmatch(str(kind)):
            raise Refused(
                f"{where}: Input tag '{kind}' found using 'type' does not match any of the "
                "expected tags: 'bash_20250124', 'custom', 'text_editor_20250728', "
                "'web_search_20250305'"
            )
        return str(tool.get("name"))
    where += ".custom"
    for name in tool:
        if name not in _TOOL:
            raise Refused(f"{where}.{name}: Extra inputs are not permitted")
    if not _TOOL_NAME.fullmatch(str(tool.get("name", ""))):
        raise Refused(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    check_tool_schema(tool.get("input_schema"), where)
    return str(tool["name"])


def _check_thinking(body: Mapping[str, Any], model: str) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type")
    if kind not in {"enabled", "disabled", "adaptive", "between_tools"}:
        raise Refused(
            f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected "
            "tags: 'adaptive', 'between_tools', 'disabled', 'enabled'"
        )
    if kind == "adaptive" and before(model, FIRST_WITH_ADAPTIVE):
        raise Refused("adaptive thinking is not supported on this model")
    if kind == "enabled":
        _check_budget(body, model)
    forced = (body.get("tool_choice") or {}).get("type") in {"any", "tool"}
    if thinks(body) and forced:
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")


def _check_budget(body: Mapping[str, Any], model: str) -> None:
    if after(model, LAST_WITH_BUDGET):
        raise Refused(
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" '
            'and "output_config.effort" to control thinking behavior.'
        )
    budget = body["thinking"].get("budget_tokens")
    if budget is None:
        raise Refused("thinking.enabled.budget_tokens: Field required")
    if budget < _LEAST_BUDGET:
        raise Refused(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to "
            f"{_LEAST_BUDGET}"
        )
    if "max_tokens" in body and body["max_tokens"] <= budget:
        raise Refused(
            "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our "
            f"documentation at {_THINKING_PAGE}#max-tokens-and-context-window-size"
        )


def _check_sampling(body: Mapping[str, Any], model: str) -> None:
    names = ("temperature", "top_p", "top_k")
    given: dict[str, Any] = {name: body[name] for name in names if body.get(name) is not None}
    for name, value in given.items():
        if name != "top_k" and not 0 <= value <= 1:
            raise Refused(f"{name}: range: 0..1")
        if after(model, LAST_WITH_SAMPLING) and value != 1:
            raise Refused(f"`{name}` is deprecated for this model.")
    both = "temperature" in given and "top_p" in given
    if both and model.startswith("claude") and not before(model, FIRST_WITH_EITHER):
        raise Refused(
            "`temperature` and `top_p` cannot both be specified for this model. Please use only "
            "one."
        )
    if thinks(body):
        _check_sampled_thought(given)


def _check_sampled_thought(given: Mapping[str, Any]) -> None:
    page = f"{_THINKING_PAGE}#important-considerations-when-using-extended-thinking"
    if given.get("temperature", 1) != 1:
        raise Refused(
            "`temperature` may only be set to 1 when thinking is enabled. Please consult our "
            f"documentation at {page}."
        )
    if "top_k" in given:
        raise Refused("`top_k` must be unset when thinking is enabled.")
    if given.get("top_p", 1) < _LEAST_TOP_P:
        raise Refused(
            f"`top_p` must be greater than or equal to {_LEAST_TOP_P} or unset when thinking is "
            "enabled."
        )


def _check_output(body: Mapping[str, Any]) -> None:
    for name in body.get("output_config") or {}:
        if name not in {"effort", "format", "task_budget"}:
            raise Refused(f"output_config.{name}: Extra inputs are not permitted")
    form = output_format(body)
    if form is None:
        return
    where = "output_format" if "output_format" in body else "output_config.format"
    if form.get("type") != "json_schema":
        raise Refused(f"{where}.type: Input should be 'json_schema'")
    for name in form:
        if name not in {"type", "schema"}:
            raise Refused(f"{where}.{name}: Extra inputs are not permitted")
    check_output_schema(form.get("schema"), f"{where}.schema")


def _check_thought(body: Mapping[str, Any], turns: Sequence[Turn]) -> None:
    """With a budget for thinking, the answer that is going on must have begun with a thought."""
    if (body.get("thinking") or {}).get("type") != "enabled":
        return
    going_on = [*turns]
    if going_on[-1].of("tool_result"):
        going_on.pop()
    last = going_on[-1] if going_on else None
    if last is None or last.role != "assistant" or not last.blocks:
        return
    if last.blocks[0]["type"] not in {"thinking", "redacted_thinking"}:
        raise Refused(
            f"messages.{last.index}.content.0.type: Expected `thinking` or `redacted_thinking`, "
            f"but found `{last.blocks[0]['type']}`. When `thinking` is enabled, a final "
            "`assistant` message must start with a thinking block (preceeding the lastmost set of "
            "`tool_use` and `tool_result` blocks). We recommend you include thinking blocks from "
            "previous turns. To avoid this requirement, disable `thinking`. Please consult our "
            f"documentation at {_THINKING_PAGE}"
        )


def _check_prefix(body: Mapping[str, Any], turns: Sequence[Turn]) -> None:
    last = turns[-1]
    if last.role != "assistant" or not last.blocks:
        return
    if last.text != last.text.rstrip():
        raise Refused("messages: final assistant content cannot end with trailing whitespace")
    if output_format(body) is not None:
        raise Refused("output_config.format: JSON outputs are incompatible with prefilling")
