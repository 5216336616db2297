"""What a request to a server that speaks Messages holds, where a golden file would not say why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.core.continuation import Continuation, Style
from router.core.events import Failed, Finish, Text
from router.core.faults import FaultKind, Verdict
from router.core.request import ChatRequest
from router.errors import MalformedStream, RequestError
from router.providers.anthropic import AnthropicProvider
from router.providers.make import make_provider
from router.wire.anthropic.request import parse_count_request, parse_messages_request
from router.wire.anthropic.signature import unsigned_signature
from router.wire.openai.request import parse_chat_request

KEY = "sk-ant-api03-golden0123456789"
USER = {"role": "user", "content": "Go."}


def provider(**arguments: Any) -> AnthropicProvider:  # noqa: ANN401 - as a configuration has them
    defaults = {"base_url": None, "api_key": KEY, "model": "claude-sonnet-4-5"}
    made = make_provider(type="anthropic", **{**defaults, **arguments})
    assert isinstance(made, AnthropicProvider)
    return made


def asked(headers: dict[str, str] | None = None, **fields: Any) -> ChatRequest:  # noqa: ANN401
    body = {"model": "chat", "max_tokens": 500, "messages": [USER], **fields}
    return parse_messages_request(json.dumps(body).encode(), headers)


def body_of(target: AnthropicProvider, request: ChatRequest) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(target.build(request, None).body)
    return sent


# -- Addresses and headers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        (None, "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/messages", "https://api.anthropic.com/v1/messages"),
        ("http://p.example/anthropic", "http://p.example/anthropic/v1/messages"),
        ("http://p.example/anthropic/v1/?a=b", "http://p.example/anthropic/v1/messages?a=b"),
    ],
)
def test_addresses(base_url: str | None, url: str) -> None:
    target = provider(base_url=base_url)
    assert target.url == target.build(asked(), None).url == url
    counted = target.count_request(asked())
    assert counted is not None
    assert counted.url == url.replace("/messages", "/messages/count_tokens")


def test_headers() -> None:
    target = provider(headers={"X-Org": "o"})
    assert dict(target.build(asked(), None).headers) == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "User-Agent": "seam-router/0.1.0",
        "anthropic-version": "2023-06-01",
        "x-api-key": KEY,
        "X-Org": "o",
    }
    assert KEY not in repr(target)
    assert "x-api-key" not in dict(provider(api_key=None).build(asked(), None).headers)


def test_a_client_of_the_format_says_its_version_and_its_betas() -> None:
    said = {"anthropic-version": "2024-10-22", "anthropic-beta": "b-2, a-1,c-3"}
    own = provider(headers={"Anthropic-Beta": "a-1"})
    assert dict(own.build(asked(said), None).headers) == {
        **dict(own.headers),
        "anthropic-version": "2024-10-22",
        "Anthropic-Beta": "a-1,b-2,c-3",
    }
    configured = provider(headers={"anthropic-version": "2026-01-01"})
    sent = dict(configured.build(asked(said), None).headers)
    assert sent["anthropic-version"] == "2026-01-01"
    assert sent["anthropic-beta"] == "b-2,a-1,c-3"


def test_what_no_header_can_hold_is_not_sent() -> None:
    said = {"anthropic-beta": "ü", "anthropic-version": "2023-06-01\r\nx: y"}
    target = provider()
    assert target.build(asked(said), None).headers == target.headers


def test_a_client_of_another_format_says_nothing_of_this_one() -> None:
    target = provider()
    chat = parse_chat_request(json.dumps({"model": "chat", "messages": [USER]}).encode())
    assert target.build(chat, None).headers == target.headers


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"base_url": "ftp://x"}, "not an http"),
        ({"api_key": "a\nb"}, "cannot be sent"),
        ({"headers": {"X": "ü"}}, "cannot be sent"),
    ],
)
def test_what_cannot_work_is_said_at_once(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        provider(**arguments)
    assert "a\nb" not in str(caught.value)


# -- A request of the same format ------------------------------------------------------------------


def test_unknown_fields_pass_and_the_clients_body_is_left_alone() -> None:
    request = asked(temperature=0.3, top_k=5, x={"y": [1, None, "é"]}, router={"a": 1})
    before = json.dumps(request.raw)
    assert body_of(provider(model="claude-opus-4-7"), request) == {
        "model": "claude-opus-4-7",
        "max_tokens": 500,
        "messages": [USER],
        "stream": True,
        "temperature": 0.3,  # the client's own words, which are between it and the provider
        "top_k": 5,
        "x": {"y": [1, None, "é"]},
    }
    assert json.dumps(request.raw) == before
    assert provider().losses(request) == ()


def test_thoughts_that_nobody_signed_are_not_sent() -> None:
    text = {"type": "text", "text": "Hello."}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": unsigned_signature()}
    signed = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    history = [
        USER,
        {"role": "assistant", "content": [thought, text]},
        USER,
        {"role": "assistant", "content": [signed, text]},
        USER,
    ]
    sent = body_of(provider(), asked(messages=history))
    assert sent["messages"][1]["content"] == [text]
    assert sent["messages"][3]["content"] == [signed, text]
    assert provider().losses(asked(messages=history)) == ()


def test_after_a_turn_of_another_family_the_work_goes_on_without_a_budget_for_thoughts() -> None:
    call = {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "Fog."}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": unsigned_signature()}
    edits = [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses"}]
    budget = {"type": "enabled", "budget_tokens": 1_024}

    def turn(*said: dict[str, str], handed: list[dict[str, Any]]) -> ChatRequest:
        return asked(
            max_tokens=2_000,
            thinking=budget,
            context_management={"edits": edits},
            messages=[USER, {"role": "assistant", "content": [*said, call]}, *handed],
        )

    handed = [{"role": "user", "content": [result]}]
    older, newer = provider(), provider(model="claude-sonnet-4-6")
    for request in (
        turn(thought, handed=handed),
        turn(handed=handed),
        turn(handed=[*handed, USER]),
    ):
        sent = body_of(older, request)
        assert "thinking" not in sent
        assert sent["context_management"] == {"edits": edits[1:]}
        assert [(loss.param, loss.hint) for loss in older.losses(request)] == [("thinking", True)]
        sent = body_of(newer, request)
        assert sent["thinking"] == {"type": "adaptive"}
        assert sent["context_management"] == {"edits": edits}
        assert request.raw["thinking"] == budget
        counted = older.count_request(request)
        assert counted is not None
        assert "thinking" not in json.loads(counted.body)

    signed = {**thought, "signature": "c2ln"}
    another: list[dict[str, Any]] = [*handed, {"role": "assistant", "content": "Done."}, USER]
    for request in (turn(signed, handed=handed), turn(handed=another)):
        assert body_of(older, request)["thinking"] == budget
        assert older.losses(request) == ()


def test_a_prefix_follows_the_clients_own() -> None:
    request = asked(messages=[USER, {"role": "assistant", "content": "Once "}])
    target = provider()
    go_on = Continuation(how=target.continuation, prefix="begun. ", spent_tokens=20)
    sent = json.loads(target.build(request, go_on).body)
    assert sent["messages"][1:] == [{"role": "assistant", "content": "Once begun."}]
    assert sent["max_tokens"] == 480
    assert target.sends(request, go_on).prefix == "Once begun."
    assert target.sends(request, go_on).style is Style.ASSISTANT_TAIL


def test_an_answer_that_has_begun_is_not_broken_off_by_a_word_that_a_model_refuses() -> None:
    request = asked(temperature=0.3, thinking={"type": "adaptive"}, max_tokens=4_000)
    newer, older = provider(model="claude-opus-4-7"), provider()
    for target in (newer, older):
        assert body_of(target, request)["temperature"] == 0.3
        assert body_of(target, request)["thinking"] == {"type": "adaptive"}
    onward = json.loads(
        newer.build(request, Continuation(how=newer.continuation, prefix="Begun. ")).body
    )
    assert "temperature" not in onward
    assert onward["thinking"] == {"type": "adaptive"}


# -- A request of another format -------------------------------------------------------------------


def test_what_a_model_does_not_take_is_lost_under_the_clients_own_name() -> None:
    raw = {"model": "chat", "messages": [USER], "temperature": 0.3, "logit_bias": {"1": 2}}
    chat = parse_chat_request(json.dumps(raw).encode())
    newer, older = provider(model="claude-opus-4-7"), provider()
    assert [loss.param for loss in older.losses(chat) if not loss.hint] == ["logit_bias"]
    assert {loss.param for loss in newer.losses(chat)} == {"logit_bias", "temperature"}
    assert "temperature" not in body_of(newer, chat)
    assert body_of(older, chat)["temperature"] == 0.3


# -- Counting --------------------------------------------------------------------------------------


def test_a_count_is_asked_for_without_what_speaks_of_an_answer() -> None:
    fields = {
        "system": "Be brief.",
        "tools": [{"name": "t", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "adaptive"},
    }
    body = {"model": "chat", "messages": [USER], "temperature": 0.5, "max_tokens": 5, **fields}
    request = parse_count_request(
        json.dumps(body).encode(), {"anthropic-beta": "token-counting-2024-11-01"}
    )
    sent = provider().count_request(request)
    assert sent is not None
    assert json.loads(sent.body) == {
        "model": "claude-sonnet-4-5",
        "messages": [USER],
        **fields,
    }
    headers = dict(sent.headers)
    assert headers["Accept"] == "application/json"
    assert headers["anthropic-beta"] == "token-counting-2024-11-01"


def test_a_count_of_another_format_is_asked_for_in_words_of_this_one() -> None:
    chat = parse_chat_request(json.dumps({"model": "chat", "messages": [USER]}).encode())
    sent = provider().count_request(chat)
    assert sent is not None
    assert json.loads(sent.body)["messages"] == [USER]
    assert "max_tokens" not in json.loads(sent.body)


def test_the_number_is_read() -> None:
    assert provider().read_count(b'{"input_tokens": 2095, "context_management": {}}') == 2095


@pytest.mark.parametrize("body", [b"", b"{}", b'{"input_tokens": "9"}', b"[]", b"\xff", b"<html>"])
def test_an_answer_without_a_number_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedStream, match="input_tokens"):
        provider().read_count(body)


# -- Reading back ----------------------------------------------------------------------------------


def frame(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def test_the_reader_judges_errors_with_this_targets_table_and_secrets() -> None:
    reader = provider().reader()
    message = {"id": "m", "model": "claude-sonnet-4-5", "content": [], "usage": {}}
    out = reader.feed(
        frame("message_start", message=message)
        + frame("content_block_start", index=0, content_block={"type": "text", "text": ""})
        + frame("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hi"})
    )
    assert Text("Hi") in out
    error = {"type": "overloaded_error", "message": f"Overloaded, {KEY}"}
    [failed] = [e for e in reader.feed(frame("error", error=error)) if isinstance(e, Failed)]
    assert failed.fault.kind is FaultKind.STREAM_ERROR
    assert failed.fault.verdict is Verdict.TRANSIENT
    assert failed.fault.message == "Overloaded, [***]"


def test_an_answer_is_whole_when_it_says_so() -> None:
    reader = provider().reader()
    message = {"id": "m", "model": "claude-sonnet-4-5", "content": [], "usage": {}}
    out = reader.feed(
        frame("message_start", message=message)
        + frame("content_block_start", index=0, content_block={"type": "text", "text": "Hi"})
        + frame("content_block_stop", index=0)
        + frame("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1})
        + frame("message_stop")
    )
    assert [event.reason for event in out if isinstance(event, Finish)] == ["stop"]


def test_a_request_that_is_wrong_in_translation_is_the_clients_mistake() -> None:
    orphan = {"role": "tool", "tool_call_id": "nobody", "content": "42"}
    raw = {"model": "chat", "messages": [USER, orphan]}
    with pytest.raises(RequestError) as caught:
        provider().losses(parse_chat_request(json.dumps(raw).encode()))
    assert caught.value.status == 400
    assert (caught.value.param or "").startswith("messages[1]")
