"""A request is read once, written once for each format, and never changed."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from router.core.conversation import Conversation, Loss
from router.core.request import ChatRequest, Format
from router.providers import translate
from router.providers.translate import MESSAGES, READERS, WRITERS, named, native
from router.wire.anthropic.request import parse_messages_request
from router.wire.anthropic.signature import unsigned_signature
from router.wire.openai.request import parse_chat_request

USER = {"role": "user", "content": "Go."}


def chat(**fields: Any) -> ChatRequest:  # noqa: ANN401 - JSON
    return parse_chat_request(json.dumps({"model": "chat", "messages": [USER], **fields}).encode())


def messages(**fields: Any) -> ChatRequest:  # noqa: ANN401 - JSON
    body = {"model": "chat", "max_tokens": 9, "messages": [USER], **fields}
    return parse_messages_request(json.dumps(body).encode(), {"anthropic-beta": "b-1"})


def test_a_request_in_the_targets_format_is_the_clients_own() -> None:
    for request in (chat(x=1), messages(x=1)):
        made = native(request, request.format)
        assert made.request is request
        assert made.losses == ()


def test_what_only_the_router_put_there_is_taken_out_again() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": unsigned_signature()}
    said = {"role": "assistant", "content": [thought, {"type": "text", "text": "Hi."}]}
    request = messages(messages=[USER, said, USER], x=1)
    before = copy.deepcopy(request.raw)
    made = native(request, Format.ANTHROPIC)
    assert made.losses == ()
    assert made.request.raw["messages"][1]["content"] == [{"type": "text", "text": "Hi."}]
    assert made.request.messages == tuple(made.request.raw["messages"])
    assert (made.request.headers, made.request.raw["x"]) == (request.headers, 1)
    assert request.raw == before


@pytest.mark.parametrize("request_", [chat(), messages()], ids=["openai", "anthropic"])
@pytest.mark.parametrize("format_", [*Format])
def test_a_translated_request_is_whole(request_: ChatRequest, format_: Format) -> None:
    made = native(request_, format_).request
    assert made.format is format_
    assert made.messages == tuple(made.raw[MESSAGES[format_]])
    assert made.messages
    assert (made.model, made.max_tokens, made.stream) == ("chat", request_.max_tokens, False)
    if format_ is not request_.format:
        assert made.headers == ()
        assert not made.raw.keys() & {"model", "stream"}


def test_a_request_is_read_once_and_written_once_for_each_format(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[ChatRequest] = []
    written: list[Format] = []

    def reads(request: ChatRequest) -> Conversation:
        read.append(request)
        return READERS[request.format](request)

    def writer(format_: Format) -> Any:  # noqa: ANN401 - as the table has them
        def write(conversation: Conversation) -> Any:  # noqa: ANN401
            written.append(format_)
            return WRITERS[format_](conversation)

        return write

    monkeypatch.setattr(translate, "READERS", dict.fromkeys(READERS, reads))
    monkeypatch.setattr(translate, "WRITERS", {one: writer(one) for one in WRITERS})
    request = chat()
    for _ in range(3):
        for format_ in Format:
            assert native(request, format_) is native(request, format_)
    assert read == [request]
    assert written == [Format.ANTHROPIC, Format.GEMINI]


def test_two_requests_share_nothing() -> None:
    one, other = chat(), chat(seed=1)
    assert native(one, Format.ANTHROPIC) is not native(other, Format.ANTHROPIC)
    assert native(one, Format.ANTHROPIC).losses == ()
    assert [loss.param for loss in native(other, Format.ANTHROPIC).losses] == ["seed"]


def test_a_loss_has_the_name_that_the_client_knows() -> None:
    losses = [Loss(param="stop", message="."), Loss(param="messages[1].content[0]", message=".")]
    assert [loss.param for loss in named(losses, Format.OPENAI)] == [
        "stop",
        "messages[1].content[0]",
    ]
    assert [loss.param for loss in named(losses, Format.ANTHROPIC)] == [
        "stop_sequences",
        "messages[1].content[0]",
    ]
