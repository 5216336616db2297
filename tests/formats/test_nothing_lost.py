"""Whatever a client says reaches a provider of another format, or is named among the losses."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from formats.client_requests import Asked, chat_requests, message_requests
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.continuation import Continuation, Style
from router.core.conversation import Loss
from router.core.request import Format
from router.providers.base import Provider
from router.providers.make import make_provider
from router.providers.registry import FAMILIES
from router.providers.resolve import STYLES
from router.wire.checks import is_base64

MODELS = {
    "openai": ("gpt-5.2",),
    "anthropic": ("claude-3-5-haiku-latest", "claude-sonnet-4-5", "claude-opus-5-5"),
    "gemini": ("gemini-2.5-pro", "gemini-3.6-flash"),
}
PREFIX = "The answer has begun. It goes"


def provider_of(family: str, model: str) -> Provider:
    return make_provider(type=family, base_url=None, api_key=None, model=model)


def foreign(format_: Format) -> list[Provider]:
    return [
        provider_of(family, model)
        for family, models in MODELS.items()
        if FAMILIES[family].format is not format_
        for model in models
    ]


def strings(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Every string in a body, and what those say that are data or JSON text."""
    match value:
        case str():
            yield value
            data = value.partition(";base64,")[2] or value
            if is_base64(data):
                yield base64.b64decode(data).decode(errors="replace")
            elif value.startswith("{"):
                yield from strings(json.loads(value))
        case dict():
            for name, one in value.items():
                yield name
                yield from strings(one)
        case list():
            for one in value:
                yield from strings(one)


def kind(path: str) -> str:
    """A path without its numbers: of each kind only the first loss is kept."""
    return re.sub(r"\d+", "", path)


def told(path: str, losses: tuple[Loss, ...]) -> bool:
    """Is a field, or what holds it, among the losses?"""
    named = (kind(loss.param) for loss in losses)
    whole = (name for name in named if name not in {"messages", "messages[]"})
    return any(re.match(rf"{re.escape(name)}(?![\w])", kind(path)) for name in whole)


def check(asked: Asked, provider: Provider, continuation: Continuation | None) -> None:
    body = json.loads(provider.build(asked.request, continuation).body)
    sent = "\0".join(strings(body))
    losses = provider.losses(asked.request)
    for path, words in asked.said:
        assert words.rstrip() in sent or told(path, losses), (path, words, body, losses)


def check_all(asked: Asked, data: st.DataObject) -> None:
    for provider in foreign(asked.request.format):
        check(asked, provider, None)
        styles = sorted(STYLES[provider.format] - {Style.NONE})
        how = replace(provider.continuation, style=data.draw(st.sampled_from(styles)))
        continuation = Continuation(how=how, prefix=PREFIX, spent_tokens=7)
        check(asked, provider, continuation)


@settings(max_examples=150, deadline=None)
@given(chat_requests(), st.data())
def test_nothing_that_a_chat_says_is_lost_in_silence(asked: Asked, data: st.DataObject) -> None:
    check_all(asked, data)


@settings(max_examples=150, deadline=None)
@given(message_requests(), st.data())
def test_nothing_that_messages_say_is_lost_in_silence(asked: Asked, data: st.DataObject) -> None:
    check_all(asked, data)
