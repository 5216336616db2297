"""What OpenAI's models and servers like OpenAI's take of a request, by name."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from router.core.continuation import Continuation, ContinuationStyle
from router.core.request import ChatRequest
from router.providers.base import Provider
from router.providers.make import make_provider
from router.providers.openai_models import openai_model, settle
from router.providers.registry import FAMILIES
from router.wire.anthropic.request import parse_messages_request
from router.wire.openai.conversation_out import DEFAULT_EFFORT
from router.wire.openai.request import parse_chat_request

USER = {"role": "user", "content": "Hi."}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def settled(
    model: str,
    family: str = "openai",
    *,
    translated: bool = True,
    **body: Any,  # noqa: ANN401
) -> tuple[dict[str, Any], list[tuple[str, bool]]]:
    """What is left of a body, and the losses' names, with whether they are hints."""
    before = copy.deepcopy(body)
    row = FAMILIES[family]
    left, losses = settle(body, openai_model(model, row), row, translated=translated)
    assert body == before
    return left, [(loss.param, loss.hint) for loss in losses]


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("gpt-4.1", "high", None),
        ("gpt-4o-mini", "none", None),
        ("gpt-5-chat-latest", "high", None),
        ("o3", "minimal", "low"),
        ("o4-mini-2025-04-16", "max", "high"),
        ("gpt-5", "none", "minimal"),
        ("gpt-5-mini", "xhigh", "high"),
        ("gpt-5.1", "none", "none"),
        ("gpt-5.1", "minimal", "low"),
        ("gpt-5.2", "xhigh", "xhigh"),
        ("gpt-5.2-2025-12-11", "max", "xhigh"),
        ("gpt-5.6-sol", "max", "max"),
        ("gpt-6-astra", "none", "low"),
        ("gpt-6.2-sol", "max", "xhigh"),
        ("gpt-5", DEFAULT_EFFORT, None),
        ("gpt-5.2", DEFAULT_EFFORT, "medium"),
        ("a-name-of-tomorrow", "max", "max"),
        ("a-name-of-tomorrow", "none", None),
        ("a-name-of-tomorrow", DEFAULT_EFFORT, None),
    ],
)
def test_an_effort_is_one_that_the_model_has(model: str, asked: str, sent: str | None) -> None:
    body, losses = settled(model, reasoning_effort=asked)
    assert body.get("reasoning_effort") == sent
    same = sent == asked or (model.startswith("gpt-5") and asked == DEFAULT_EFFORT)
    silent = same or (asked == "none" and model.startswith("gpt-4"))
    assert losses == ([] if silent else [("reasoning_effort", True)])


@pytest.mark.parametrize(
    ("model", "effort", "kept"),
    [
        ("gpt-4.1", None, True),
        ("gpt-5", None, False),
        ("o3", None, False),
        ("gpt-5.2", None, True),
        ("gpt-5.2", "none", True),
        ("gpt-5.2", "low", False),
        ("gpt-5.6-sol", None, False),
        ("gpt-5.6-sol", "none", True),
        ("gpt-6-astra", None, False),
        ("a-name-of-tomorrow", "high", True),
    ],
)
def test_a_model_that_reasons_takes_no_temperature(
    model: str, effort: str | None, kept: bool
) -> None:
    said: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    body, losses = settled(model, **said, temperature=0.5, top_p=1, presence_penalty=0)
    assert ("temperature" in body, "top_p" in body) == (kept, kept)
    assert losses == ([] if kept else [("temperature", True)])


@pytest.mark.parametrize(
    ("model", "asked", "sent", "losses"),
    [
        ("gpt-4.1", None, None, []),
        ("gpt-5.2", "high", "high", []),
        ("gpt-5.4", None, None, []),
        ("gpt-5.4", "high", "none", [("reasoning_effort", True)]),
        ("gpt-5.6-luna", None, "none", []),
        ("gpt-5.6-luna", DEFAULT_EFFORT, "none", [("reasoning_effort", True)]),
        ("gpt-6-sol", "none", "none", []),
    ],
)
def test_some_call_tools_without_reasoning_only(
    model: str, asked: str | None, sent: str | None, losses: list[tuple[str, bool]]
) -> None:
    said: dict[str, Any] = {} if asked is None else {"reasoning_effort": asked}
    body, lost = settled(model, tools=TOOLS, **said)
    assert (body["tools"], body.get("reasoning_effort"), lost) == (TOOLS, sent, losses)


def test_some_call_no_tools_here() -> None:
    body, losses = settled("gpt-6.2-astra", tools=TOOLS, tool_choice="auto")
    assert body == {}
    assert losses == [("tools", False)]


@pytest.mark.parametrize(
    ("model", "family", "kept"),
    [
        ("gpt-5.2", "openai", 4),
        ("gpt-5", "openai", 0),
        ("o3", "azure-openai", 0),
        ("llama-4", "groq", 4),
        ("llama-4", "vllm", 6),
        ("o3", "openrouter", 6),
    ],
)
def test_stop_sequences_are_as_many_as_are_taken(model: str, family: str, kept: int) -> None:
    body, losses = settled(model, family, stop=[*"abcdef"])
    assert body.get("stop", []) == [*"abcdef"][:kept]
    assert losses == ([] if kept == 6 else [("stop", False)])
    assert settled(model, family, stop="a")[1] == ([("stop", False)] if kept == 0 else [])


@pytest.mark.parametrize(
    ("family", "lacks"),
    [
        ("openai", ["top_k"]),
        ("openai-compatible", ["top_k"]),
        ("vllm", []),
        ("openrouter", []),
        ("mistral", ["reasoning_effort", "top_k", "user"]),
    ],
)
def test_a_server_is_not_told_what_it_refuses(family: str, lacks: list[str]) -> None:
    said: dict[str, Any] = {"top_k": 5, "user": "u", "reasoning_effort": "low"}
    body, losses = settled("m", family, **said)
    assert body == {name: value for name, value in said.items() if name not in lacks}
    assert losses == [(name, True) for name in lacks]


def test_a_client_of_the_same_format_knows_its_servers() -> None:
    body, losses = settled("m", "mistral", translated=False, top_k=5, reasoning_effort="none")
    assert body == {"top_k": 5, "reasoning_effort": "none"}
    assert losses == []


# -- In a provider ---------------------------------------------------------------------------------


def provider(family: str, model: str) -> Provider:
    return make_provider(type=family, base_url=None, api_key=None, model=model)


def chat(**fields: Any) -> ChatRequest:  # noqa: ANN401 - JSON
    return parse_chat_request(json.dumps({"model": "r", "messages": [USER], **fields}).encode())


def test_a_clients_own_request_is_sent_as_it_is_until_an_answer_has_begun() -> None:
    target = provider("openai", "o3")
    request = chat(temperature=0.5, stop=["x"])
    assert target.losses(request) == ()
    sent = json.loads(target.build(request, None).body)
    assert (sent["temperature"], sent["stop"]) == (0.5, ["x"])
    continuation = Continuation(how=ContinuationStyle(), prefix="So far.")
    sent = json.loads(target.build(request, continuation).body)
    assert not sent.keys() & {"temperature", "stop"}


def test_a_translated_request_is_what_the_model_takes() -> None:
    fields = {"max_tokens": 9, "temperature": 0.5, "thinking": {"type": "adaptive"}}
    body = {"model": "r", "messages": [USER], **fields}
    request = parse_messages_request(json.dumps(body).encode())
    target = provider("openai", "gpt-5.2")
    assert [loss.param for loss in target.losses(request)] == ["temperature"]
    sent = json.loads(target.build(request, None).body)
    assert sent["reasoning_effort"] == "medium"
    assert "temperature" not in sent


def history(*ids: str) -> list[dict[str, Any]]:
    calls = [
        {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids
    ]
    results = [{"role": "tool", "tool_call_id": one, "content": one} for one in ids]
    return [USER, {"role": "assistant", "content": None, "tool_calls": calls}, *results]


@pytest.mark.parametrize("begun", [False, True])
def test_mistral_gets_ids_of_nine_characters(begun: bool) -> None:
    request = chat(messages=history("call_1", "call_2", "abcDEF789"))
    target = provider("mistral", "mistral-large-latest")
    how = target.continuation
    continuation = Continuation(how=how, prefix="So far.") if begun else None
    messages = json.loads(target.build(request, continuation).body)["messages"]
    called = [call["id"] for call in messages[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in messages[2:5]] == called
    assert called[2] == "abcDEF789"
    assert len({*called}) == 3
    assert all(len(one) == 9 and one.isascii() and one.isalnum() for one in called)
    assert request.raw["messages"][1]["tool_calls"][0]["id"] == "call_1"
    again = json.loads(target.build(request, None).body)["messages"]
    assert again[1] == messages[1]


def test_others_get_ids_as_they_came() -> None:
    sent = json.loads(provider("deepseek", "d").build(chat(messages=history("call_1")), None).body)
    assert sent["messages"][1]["tool_calls"][0]["id"] == "call_1"
