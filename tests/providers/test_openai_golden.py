"""Every family in every style, against golden requests that were read by a person.

After a wanted change: `python tests/providers/test_openai_golden.py` writes them anew; read the
diff.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from router.core.continuation import Continuation, Style
from router.core.request import ChatRequest, Format
from router.providers.make import make_provider
from router.providers.registry import FAMILIES
from router.providers.resolve import ContinuationOverrides

OPENAI = [name for name, row in FAMILIES.items() if row.format is Format.OPENAI]
GOLDEN = Path(__file__).parent / "golden"
KEY = "sk-golden-0123456789"
RAW: dict[str, Any] = {
    "model": "chat",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Tell me about seams."},
    ],
    "max_completion_tokens": 500,
    "temperature": 0.5,
    "x_unknown": {"kept": True},
    "router": {"private": 1},
}
REQUEST = ChatRequest(model="chat", raw=RAW, messages=tuple(RAW["messages"]), max_tokens=500)
PREFIX = 'A seam joins two edges.\nIt is sewn with "thread". '
ORIGINAL = "original"
CASES = [ORIGINAL, *(style.value for style in Style if style is not Style.NONE)]


def built(family: str, case: str) -> dict[str, Any]:
    style = None if case == ORIGINAL else Style(case)
    base_url = None if FAMILIES[family].base_url else "https://host.example/v0"
    provider = make_provider(
        type=family,
        base_url=base_url,
        api_key=KEY,
        model="some-model",
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


def golden(family: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((GOLDEN / f"{family}.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", OPENAI)
def test_request_is_the_golden_one(family: str, case: str) -> None:
    assert built(family, case) == golden(family)[case]


def test_every_golden_file_belongs_to_a_row() -> None:
    assert set(OPENAI) <= {path.stem for path in GOLDEN.glob("*.json")} <= set(FAMILIES)


@pytest.mark.parametrize("family", OPENAI)
def test_default_style_is_one_of_the_goldens_and_none_is_refused(family: str) -> None:
    provider = make_provider(
        type=family,
        base_url="https://host.example/v1",
        api_key=None,
        model="some-model",
        overrides=ContinuationOverrides(style=Style.NONE),
    )
    assert provider.continuation.style is Style.NONE
    headers = provider.build(REQUEST, None).headers
    assert not any(name.lower() in {"authorization", "api-key"} for name, _ in headers)
    with pytest.raises(ValueError, match="none"):
        provider.build(REQUEST, Continuation(how=provider.continuation, prefix=PREFIX))


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name in OPENAI:
        cases = {case: built(name, case) for case in CASES}
        text = json.dumps(cases, indent=1, ensure_ascii=False, sort_keys=True)
        (GOLDEN / f"{name}.json").write_text(text + "\n", "utf-8")
