"""Continuations in the words of Messages, and what must not stand beside them there."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.continuation import Continuation, ContinuationStyle, SchemaWithPrefix, Style
from router.core.request import ChatRequest, Format
from router.providers import continuations
from router.providers.registry import FAMILIES
from router.wire.anthropic.request import MIN_THINKING_TOKENS

USER = {"role": "user", "content": "Go."}
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}
CLAUDE_4_5 = FAMILIES["anthropic"].how_for("claude-sonnet-4-5")
INSTRUCT = FAMILIES["anthropic"].how_for("claude-opus-4-6")


def messages_request(*messages: dict[str, Any], **fields: Any) -> ChatRequest:  # noqa: ANN401
    raw = {"model": "chat", "max_tokens": 4_000, "messages": [*(messages or (USER,))], **fields}
    config = raw.get("output_config") or {}
    wanted = config.get("format") or raw.get("output_format")
    return ChatRequest(
        model="chat",
        raw=raw,
        format=Format.ANTHROPIC,
        messages=tuple(raw["messages"]),
        max_tokens=raw["max_tokens"],
        response_format={"type": "json_schema", "json_schema": wanted} if wanted else None,
    )


def continued(
    request: ChatRequest,
    prefix: str = "Begun. ",
    *,
    how: ContinuationStyle = CLAUDE_4_5,
    spent_tokens: int = 0,
) -> dict[str, Any]:
    body = dict(request.raw)
    continuation = Continuation(how=how, prefix=prefix, spent_tokens=spent_tokens)
    continuations.apply(body, request, continuation, schema_types=frozenset({"json_schema"}))
    return body


def says(**blocks: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"role": "assistant", **blocks}


# -- The prefix ------------------------------------------------------------------------------------


def test_a_prefix_is_a_trailing_assistant_message_without_white_space_at_its_end() -> None:
    body = continued(messages_request())
    assert body["messages"] == [USER, says(content="Begun.")]


def test_in_words_a_users_message_follows() -> None:
    body = continued(messages_request(system="Be brief."), how=INSTRUCT)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == "Begun. "
    assert "interrupted" in body["messages"][2]["content"]
    assert body["system"] == "Be brief."


@pytest.mark.parametrize(
    ("content", "merged"),
    [
        ("Once ", "Once Begun."),
        ([], "Begun."),
        ("", "Begun."),
        ([{"type": "text", "text": "Once "}], "Once Begun."),
        (
            [{"type": "text", "text": "A"}, {"type": "text", "text": "B ", "citations": []}],
            [
                {"type": "text", "text": "A"},
                {"type": "text", "text": "B Begun.", "citations": []},
            ],
        ),
        (
            [{"type": "text", "text": "A"}, {"type": "server_tool_use", "id": "1"}],
            [
                {"type": "text", "text": "A"},
                {"type": "server_tool_use", "id": "1"},
                {"type": "text", "text": "Begun."},
            ],
        ),
    ],
)
def test_a_clients_own_prefill_and_the_prefix_are_one_message(
    content: object, merged: object
) -> None:
    request = messages_request(USER, says(content=content))
    before = copy.deepcopy(request.raw)
    assert continued(request)["messages"] == [USER, says(content=merged)]
    assert request.raw == before


def test_a_tool_call_is_no_prefill() -> None:
    call = says(content=[{"type": "tool_use", "id": "1", "name": "t", "input": {}}])
    assert continued(messages_request(USER, call))["messages"] == [
        USER,
        call,
        says(content="Begun."),
    ]


def test_what_an_echo_would_repeat_is_all_text_of_the_answer() -> None:
    content = [{"type": "text", "text": "A "}, {"type": "thinking", "thinking": "x"}]
    request = messages_request(USER, says(content=content))
    sent = continuations.sent(request, Continuation(how=CLAUDE_4_5, prefix="b. "))
    assert (sent.style, sent.prefix) == (Style.ASSISTANT_TAIL, "A b.")


# -- Thinking --------------------------------------------------------------------------------------

THINKING = {"type": "enabled", "budget_tokens": 2_000}


def test_beside_a_prefix_nothing_thinks_and_nothing_speaks_of_thoughts() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    text = {"type": "text", "text": "Once "}
    request = messages_request(
        says(content=[thought, text]),
        USER,
        says(content=[thought, {"type": "redacted_thinking", "data": "eA=="}, text]),
        thinking=THINKING,
        context_management={
            "edits": [{"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}],
            "x": 1,
        },
    )
    body = continued(request)
    assert "thinking" not in body
    assert body["messages"][0]["content"] == [thought, text]  # of an earlier turn: ignored there
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "Once Begun."}]
    assert body["context_management"] == {"edits": [{"type": "clear_tool_uses_20250919"}], "x": 1}


def test_an_editing_of_nothing_is_not_sent() -> None:
    request = messages_request(
        thinking=THINKING, context_management={"edits": [{"type": "clear_thinking_20251015"}]}
    )
    assert "context_management" not in continued(request)


def test_in_words_thinking_goes_on() -> None:
    management = {"edits": [{"type": "clear_thinking_20251015"}]}
    request = messages_request(thinking={"type": "adaptive"}, context_management=management)
    body = continued(request, how=INSTRUCT)
    assert body["thinking"] == {"type": "adaptive"}
    assert body["context_management"] == management


@given(
    limit=st.integers(MIN_THINKING_TOKENS + 1, 20_000),
    budget=st.integers(MIN_THINKING_TOKENS, 20_000),
    spent=st.integers(0, 25_000),
)
def test_the_budgets_stay_what_is_taken(limit: int, budget: int, spent: int) -> None:
    thinking = {"type": "enabled", "budget_tokens": budget, "display": "omitted"}
    body = continued(
        messages_request(max_tokens=limit, thinking=thinking), how=INSTRUCT, spent_tokens=spent
    )
    assert body["max_tokens"] == max(limit - spent, 1)
    left = body.get("thinking")
    if budget >= limit:  # a beta lets it pass the answer's own budget
        assert left == thinking
    elif left is not None:
        assert MIN_THINKING_TOKENS <= left["budget_tokens"] < body["max_tokens"]
        assert left["display"] == "omitted"
        assert left["budget_tokens"] <= budget
    else:
        assert body["max_tokens"] < 2 * MIN_THINKING_TOKENS


# -- Structured output -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"output_config": {"format": SCHEMA, "effort": "low"}},
        {"output_config": {"format": SCHEMA}},
        {"output_format": SCHEMA},
    ],
)
def test_a_schema_beside_a_prefix(fields: dict[str, Any]) -> None:
    request = messages_request(**fields)
    dropped = continued(request, '{"a": 1,')
    assert "output_format" not in dropped
    assert dropped.get("output_config", {}) == (
        {"effort": "low"} if "effort" in fields.get("output_config", {}) else {}
    )
    assert ("output_config" in dropped) is bool(dropped.get("output_config"))
    refusing = continued(request, '{"a": 1,', how=INSTRUCT)
    assert refusing == request.raw  # from the start, held to the schema
    keeping = ContinuationStyle(style=Style.ASSISTANT_TAIL, schema=SchemaWithPrefix.KEEP)
    kept = continued(request, '{"a": 1,', how=keeping)
    assert {name: kept[name] for name in fields} == fields


def test_a_target_that_never_continues_is_not_asked_to() -> None:
    with pytest.raises(ValueError, match="none"):
        continued(messages_request(), how=ContinuationStyle(style=Style.NONE))
