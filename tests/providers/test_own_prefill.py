"""A client ends its request with a message of the assistant, and the target has another format."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from router.core.continuation import Continuation, Style
from router.core.request import ChatRequest
from router.providers.base import Provider
from router.providers.make import make_provider
from router.providers.resolve import ContinuationOverrides
from router.wire.anthropic.request import parse_messages_request
from router.wire.openai.request import parse_chat_request

USER = {"role": "user", "content": "How is the weather?"}
BEGUN = {"role": "assistant", "content": "The weather is"}
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


def provider(family: str, model: str, **knobs: Any) -> Provider:  # noqa: ANN401 - its knobs
    base_url = "http://gpu:1/v1" if family == "vllm" else None
    overrides = ContinuationOverrides(**knobs)
    return make_provider(
        type=family, base_url=base_url, api_key=None, model=model, overrides=overrides
    )


def chat(**fields: Any) -> ChatRequest:  # noqa: ANN401 - JSON
    body = {"model": "r", "messages": [USER, BEGUN], **fields}
    return parse_chat_request(json.dumps(body).encode())


def messages() -> ChatRequest:
    body = {"model": "r", "max_tokens": 99, "messages": [USER, BEGUN]}
    return parse_messages_request(json.dumps(body).encode())


def sent(target: Provider, request: ChatRequest, continuation: Continuation | None = None) -> Any:  # noqa: ANN401
    before = copy.deepcopy(request.raw)
    body = json.loads(target.build(request, continuation).body)
    assert request.raw == before
    return body


def turns(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Who says what."""
    if "contents" in body:
        return [(turn["role"], turn["parts"][0]["text"]) for turn in body["contents"]]
    return [(turn["role"], turn["content"]) for turn in body["messages"]]


IN_WORDS = [
    (chat(), "anthropic", "claude-sonnet-4-6"),
    (chat(), "gemini", "gemini-3.6-flash"),
    (messages(), "openai", "gpt-5.2"),
    (messages(), "mistral", "mistral-large-latest"),
    (messages(), "vllm", "qwen3-32b"),
]


@pytest.mark.parametrize(("request_", "family", "model"), IN_WORDS)
def test_a_target_that_does_not_go_on_is_asked_in_words(
    request_: ChatRequest, family: str, model: str
) -> None:
    target = provider(family, model)
    *before, (_, begun), (role, asks) = turns(sent(target, request_))
    assert before == [("user", USER["content"])]
    assert (begun, role) == (BEGUN["content"], "user")
    assert '"The weather is"' in asks
    losses = target.losses(request_)
    assert [(loss.param, loss.hint) for loss in losses] == [("messages[1]", True)]


@pytest.mark.parametrize(
    ("request_", "family", "model"),
    [
        (chat(), "anthropic", "claude-sonnet-4-5"),
        (chat(), "gemini", "gemini-2.5-flash"),
        (messages(), "groq", "llama-3.3-70b-versatile"),
    ],
)
def test_one_that_goes_on_gets_the_message_alone(
    request_: ChatRequest, family: str, model: str
) -> None:
    target = provider(family, model)
    assert turns(sent(target, request_))[-1][1] == BEGUN["content"]
    assert target.losses(request_) == ()


@pytest.mark.parametrize(
    ("request_", "family", "model"),
    [(chat(), "openai", "gpt-5.2"), (messages(), "anthropic", "claude-opus-4-7")],
)
def test_a_clients_own_format_is_its_own_business(
    request_: ChatRequest, family: str, model: str
) -> None:
    target = provider(family, model)
    assert sent(target, request_)["messages"] == [USER, BEGUN]
    assert target.losses(request_) == ()


def test_what_does_not_go_with_it_is_left_out() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    request = chat(reasoning_effort="high", response_format=schema)
    target = provider("anthropic", "claude-sonnet-4-5")
    body = sent(target, request)
    assert turns(body)[-1] == ("assistant", BEGUN["content"])
    assert not body.keys() & {"thinking", "output_config"}
    assert [(loss.param, loss.hint) for loss in target.losses(request)] == [("messages[1]", True)]


@pytest.mark.parametrize(("request_", "family", "model"), IN_WORDS)
def test_a_continuation_goes_on_after_both(request_: ChatRequest, family: str, model: str) -> None:
    target = provider(family, model, style=Style.INSTRUCT)
    continuation = Continuation(how=target.continuation, prefix=" fine. And")
    said = turns(sent(target, request_, continuation))
    assert len(said) == 3
    assert said[1][1] == "The weather is fine. And"
    assert 'fine. And"' in said[2][1]


@pytest.mark.parametrize(("request_", "family", "model"), IN_WORDS)
def test_a_restart_asks_as_the_original_did(request_: ChatRequest, family: str, model: str) -> None:
    target = provider(family, model, style=Style.RESTART)
    continuation = Continuation(how=target.continuation, prefix=" fine. And")
    assert sent(target, request_, continuation) == sent(target, request_)
    assert len(turns(sent(target, request_))) == 3
