"""Gemini's requests in every style, for an older model and a newer one, against golden requests
that were read by a person.

After a wanted change: `python tests/providers/test_gemini_golden.py` writes them anew; read the
diff.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from router.core.continuation import Continuation, Style
from router.providers.make import make_provider
from router.providers.resolve import ContinuationOverrides
from router.wire.openai.request import parse_chat_request

GOLDEN = Path(__file__).parent / "golden" / "gemini.json"
RAW: dict[str, Any] = {
    "model": "chat",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is the weather in Bern?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city":"Bern"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Mild."},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Tells the weather.",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
    ],
    "max_completion_tokens": 500,
    "temperature": 0.5,
    "stop": ["END"],
    "reasoning_effort": "low",
}
REQUEST = parse_chat_request(json.dumps(RAW).encode())
PREFIX = 'It is mild.\nPeople say "lovely". '
MODELS = ("gemini-2.5-flash", "gemini-3.8-flash")
STYLES = (None, Style.ASSISTANT_TAIL, Style.INSTRUCT, Style.RESTART)
CASES = [f"{model} {style.value if style else 'original'}" for model in MODELS for style in STYLES]


def built(case: str) -> dict[str, Any]:
    model, _, word = case.partition(" ")
    style = None if word == "original" else Style(word)
    provider = make_provider(
        type="gemini",
        base_url=None,
        api_key="key-golden-0123456789",
        model=model,
        overrides=ContinuationOverrides(style=style),
    )
    continuation = (
        Continuation(how=provider.continuation, prefix=PREFIX, spent_tokens=13) if style else None
    )
    sent = provider.build(REQUEST, continuation)
    return {
        "method": sent.method,
        "url": sent.url,
        "headers": dict(sent.headers),
        "body": json.loads(sent.body),
    }


@pytest.mark.parametrize("case", CASES)
def test_request_is_the_golden_one(case: str) -> None:
    assert built(case) == json.loads(GOLDEN.read_text("utf-8"))[case]


if __name__ == "__main__":
    cases = {case: built(case) for case in CASES}
    text = json.dumps(cases, indent=1, ensure_ascii=False, sort_keys=True)
    GOLDEN.write_text(text + "\n", "utf-8")
