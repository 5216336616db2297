"""Requests of each client's format to a target of each family's, against golden ones that were read
by a person: what is sent, what is sent to go on, and what could not be said.

After a wanted change: `python tests/providers/test_translated_golden.py` writes them anew; read the
diff.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from router.core.continuation import Continuation, Style
from router.core.request import ChatRequest, Format
from router.providers.base import Provider, UpstreamRequest
from router.providers.make import make_provider
from router.wire.anthropic.request import parse_messages_request
from router.wire.openai.request import parse_chat_request

GOLDEN = Path(__file__).parent / "golden" / "translated"
KEY = "sk-golden-0123456789"
PREFIX = 'A seam joins two edges.\nIt is sewn with "thread". '
PIXEL = "iVBORw0KGgo="
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SCHEMA = {
    "type": "object",
    "properties": {"edges": {"type": "integer"}},
    "required": ["edges"],
    "additionalProperties": False,
}

CHAT: dict[str, dict[str, Any]] = {
    "plain": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Tell me about seams."},
        ],
        "max_completion_tokens": 5000,
        "temperature": 0.5,
        "stop": ["THE END"],
        "user": "u-1",
    },
    "tools": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Where is this, and how is the weather?"},
                    {
                        "type": "image_url",
                        "image_url": {"url": f"data:image/png;base64,{PIXEL}"},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":"Ulm"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "Fog."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "The weather in a city.",
                    "parameters": PARAMETERS,
                },
            }
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
    },
    "document": {
        "messages": [{"role": "user", "content": "How many edges?"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "seam", "schema": SCHEMA, "strict": True},
        },
        "logit_bias": {"50256": -100},
        "seed": 7,
    },
}

MESSAGES: dict[str, dict[str, Any]] = {
    "plain": {
        "system": [
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [{"role": "user", "content": "Tell me about seams."}],
        "max_tokens": 5000,
        "temperature": 0.5,
        "top_k": 40,
        "stop_sequences": ["THE END"],
        "metadata": {"user_id": "u-1"},
    },
    "tools": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Where is this, and how is the weather?"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Ulm.", "signature": "c2ln"},
                    {
                        "type": "tool_use",
                        "id": "toolu_1",
                        "name": "weather",
                        "input": {"city": "Ulm"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Fog."},
                    {"type": "text", "text": "And tomorrow?"},
                ],
            },
        ],
        "tools": [
            {
                "name": "weather",
                "description": "The weather in a city.",
                "input_schema": PARAMETERS,
            }
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "max_tokens": 8000,
    },
    "document": {
        "messages": [{"role": "user", "content": "How many edges?"}],
        "max_tokens": 5000,
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
}

CLIENTS: dict[Format, tuple[Callable[[bytes], ChatRequest], dict[str, dict[str, Any]]]] = {
    Format.OPENAI: (parse_chat_request, CHAT),
    Format.ANTHROPIC: (parse_messages_request, MESSAGES),
}
TARGETS = {
    "openai": "gpt-5.2",
    "deepseek": "deepseek-chat",
    "vllm": "qwen3-32b",
    "anthropic": "claude-sonnet-4-5",
    "anthropic-newer": "claude-opus-4-7",
    "gemini": "gemini-2.5-flash",
    "gemini-newer": "gemini-3.6-flash",
}
PAIRS = [(client, target) for client in CLIENTS for target in TARGETS]


def provider_of(target: str) -> Provider:
    family = target.removesuffix("-newer")
    base_url = "http://gpu.example:8000/v1" if family == "vllm" else None
    return make_provider(type=family, base_url=base_url, api_key=KEY, model=TARGETS[target])


def shown(sent: UpstreamRequest) -> dict[str, Any]:
    return {"url": sent.url, "body": json.loads(sent.body)}


def built(client: Format, target: str, case: str) -> dict[str, Any]:
    parse, cases = CLIENTS[client]
    request = parse(json.dumps({"model": "chat", **cases[case]}).encode())
    provider = provider_of(target)
    prefix = '{"edges": ' if case == "document" else PREFIX
    continuation = Continuation(how=provider.continuation, prefix=prefix, spent_tokens=13)
    original, onward = provider.build(request, None), provider.build(request, continuation)
    sent = provider.sends(request, continuation)
    assert onward.headers == original.headers
    return {
        "original": {**shown(original), "headers": dict(original.headers)},
        "continuation": {
            "style": sent.style.value,
            "prefix": sent.prefix,
            **(shown(onward) if sent.style is not Style.RESTART else {}),
        },
        "losses": [
            f"{loss.param}: {loss.message}{' (a hint)' if loss.hint else ''}"
            for loss in provider.losses(request)
        ],
    }


def path_of(client: Format, target: str) -> Path:
    return GOLDEN / f"{client.value}_to_{target}.json"


@pytest.mark.parametrize("case", CHAT)
@pytest.mark.parametrize(("client", "target"), PAIRS)
def test_request_is_the_golden_one(client: Format, target: str, case: str) -> None:
    golden: dict[str, object] = json.loads(path_of(client, target).read_text("utf-8"))
    assert built(client, target, case) == golden[case]


def test_every_golden_file_belongs_to_a_pair() -> None:
    assert set(GOLDEN.glob("*.json")) == {path_of(*pair) for pair in PAIRS}


@pytest.mark.parametrize(("client", "target"), PAIRS)
def test_a_restart_is_the_original(client: Format, target: str) -> None:
    parse, cases = CLIENTS[client]
    request = parse(json.dumps({"model": "chat", **cases["document"]}).encode())
    provider = provider_of(target)
    onward = Continuation(how=provider.continuation, prefix='{"edges": ')
    if provider.sends(request, onward).style is Style.RESTART:
        assert provider.build(request, onward) == provider.build(request, None)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True, parents=True)
    for one, other in PAIRS:
        found = {case: built(one, other, case) for case in CHAT}
        text = json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True)
        path_of(one, other).write_text(text + "\n", "utf-8")
