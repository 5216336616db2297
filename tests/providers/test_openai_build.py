"""What a request to an OpenAI-compatible server holds, where a golden file would not say why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.continuation import Continuation, ContinuationStyle, SchemaWithPrefix, Style
from router.core.events import Failed, Text
from router.core.faults import FaultKind, Verdict
from router.core.request import ChatRequest
from router.providers import continuations, http, openai
from router.providers.make import make_provider
from router.providers.nudge import TAIL_CHARS, nudge
from router.providers.openai import OpenAIProvider
from router.providers.registry import FAMILIES, PREFILL_STYLES
from router.providers.resolve import ContinuationOverrides

SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
USER = {"role": "user", "content": "Go."}


def chat(*messages: Mapping[str, Any], **fields: Any) -> ChatRequest:  # noqa: ANN401 - JSON
    raw = {"model": "chat", "messages": [*(messages or (USER,))], **fields}
    return ChatRequest(
        model="chat",
        raw=raw,
        messages=tuple(raw["messages"]),
        response_format=fields.get("response_format"),
    )


def made(**arguments: Any) -> OpenAIProvider:  # noqa: ANN401 - as a configuration has them
    target = make_provider(**arguments)
    assert isinstance(target, OpenAIProvider)
    return target


def provider(
    family: str = "openai-compatible", style: Style | None = None, model: str = "m"
) -> OpenAIProvider:
    return made(
        type=family,
        base_url=None if FAMILIES[family].base_url else "http://host.example/v1",
        api_key="sk-test-1234567890",
        model=model,
        overrides=ContinuationOverrides(style=style),
    )


def body(
    target: OpenAIProvider,
    request: ChatRequest,
    prefix: str | None = None,
    *,
    in_fence: str | None = None,
    spent_tokens: int = 0,
    how: ContinuationStyle | None = None,
) -> dict[str, Any]:
    continuation = prefix and Continuation(
        how=how or target.continuation, prefix=prefix, in_fence=in_fence, spent_tokens=spent_tokens
    )
    sent: dict[str, Any] = json.loads(target.build(request, continuation or None).body)
    return sent


# -- The original request --------------------------------------------------------------------------


def test_unknown_fields_pass_and_the_clients_body_is_left_alone() -> None:
    request = chat(n=2, logprobs=True, seed=7, x={"y": [1, None, "é"]}, router={"a": 1})
    before = json.dumps(request.raw)
    sent = body(provider(), request)
    assert json.dumps(request.raw) == before
    assert sent == {
        "model": "m",
        "messages": [USER],
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 2,
        "logprobs": True,
        "seed": 7,
        "x": {"y": [1, None, "é"]},
    }


def test_the_clients_other_stream_options_stay() -> None:
    request = chat(stream=False, stream_options={"include_usage": False, "x": 1})
    assert body(provider(), request)["stream_options"] == {"include_usage": True, "x": 1}


def test_mistral_is_not_sent_what_it_refuses() -> None:
    request = chat(stream_options={"include_usage": True}, max_completion_tokens=9)
    sent = body(provider("mistral"), request)
    assert "stream_options" not in sent
    assert "max_completion_tokens" not in sent
    assert sent["max_tokens"] == 9


@pytest.mark.parametrize("odd", ["\ud800", 2**70])
def test_what_msgspec_cannot_encode_is_still_sent(odd: object) -> None:
    assert body(provider(), chat(seed=odd))["seed"] == odd


def test_a_body_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    real = http.encode

    def counted(body: Mapping[str, Any]) -> bytes:
        calls.append(body)
        return real(body)

    monkeypatch.setattr(openai, "encode", counted)
    history = [{"role": "user", "content": "x" * 1_000_000}]
    sent = provider(style=Style.CONTINUE_FINAL).build(
        chat(*history),
        Continuation(how=ContinuationStyle(style=Style.CONTINUE_FINAL), prefix="Begun. "),
    )
    assert len(calls) == 1
    assert len(sent.body) > 1_000_000


# -- Addresses and headers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "base_url", "version", "url"),
    [
        ("openai", None, None, "https://api.openai.com/v1/chat/completions"),
        ("openai", "https://p.example/v1/", None, "https://p.example/v1/chat/completions"),
        (
            "openai",
            "https://p.example/v1/chat/completions",
            None,
            "https://p.example/v1/chat/completions",
        ),
        ("vllm", "http://gpu:8/v1?a=b", None, "http://gpu:8/v1/chat/completions?a=b"),
        (
            "azure-openai",
            "https://r.openai.azure.com",
            None,
            (
                "https://r.openai.azure.com/openai/deployments/a%2Fb/chat/completions"
                "?api-version=2024-10-21"
            ),
        ),
        (
            "azure-openai",
            "https://r.openai.azure.com/openai/",
            "2025-01-01-preview",
            (
                "https://r.openai.azure.com/openai/deployments/a%2Fb/chat/completions"
                "?api-version=2025-01-01-preview"
            ),
        ),
        (
            "azure-openai",
            "https://r.openai.azure.com/openai/deployments/own?api-version=2024-06-01",
            None,
            (
                "https://r.openai.azure.com/openai/deployments/own/chat/completions"
                "?api-version=2024-06-01"
            ),
        ),
        (
            "azure-openai",
            "https://r.openai.azure.com/openai/v1/",
            None,
            "https://r.openai.azure.com/openai/v1/chat/completions",
        ),
    ],
)
def test_addresses(family: str, base_url: str | None, version: str | None, url: str) -> None:
    target = made(type=family, base_url=base_url, api_key=None, model="a/b", api_version=version)
    assert target.build(chat(), None).url == url


@pytest.mark.parametrize(
    ("version", "asked"), [("2024-06-01", False), ("2024-09-01-preview", True), (None, True)]
)
def test_azure_takes_the_usage_option_since_a_version(version: str | None, asked: bool) -> None:
    target = made(
        type="azure-openai",
        base_url="https://r.openai.azure.com",
        api_key=None,
        model="m",
        api_version=version,
    )
    assert ("stream_options" in body(target, chat())) is asked


def test_a_prefix_goes_to_deepseeks_beta_and_a_key_only_to_the_configured_host() -> None:
    own = provider("deepseek")
    proxied = make_provider(
        type="deepseek", base_url="http://proxy.example/v1", api_key="k", model="m"
    )
    go_on = Continuation(how=own.continuation, prefix="Begun. ")
    assert own.build(chat(), None).url == "https://api.deepseek.com/chat/completions"
    assert own.build(chat(), go_on).url == "https://api.deepseek.com/beta/chat/completions"
    assert proxied.build(chat(), go_on).url == "http://proxy.example/v1/chat/completions"


def test_headers() -> None:
    target = made(
        type="azure-openai",
        base_url="https://r.example",
        api_key="the-key",
        model="m",
        headers={"user-agent": "mine", "X-Org": "o"},
    )
    assert dict(target.headers) == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "user-agent": "mine",
        "api-key": "the-key",
        "X-Org": "o",
    }
    assert "the-key" not in repr(target)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"type": "nonesuch"}, "Unknown provider type"),
        ({"type": "openai-compatible", "base_url": None}, "give a base_url"),
        ({"base_url": "ftp://x"}, "not an http"),
        ({"api_key": "a\nb"}, "cannot be sent"),
        ({"headers": {"X": "ü"}}, "cannot be sent"),
        ({"overrides": ContinuationOverrides(disable_thinking=True)}, "is not known"),
    ],
)
def test_what_cannot_work_is_said_at_once(arguments: dict[str, Any], says: str) -> None:
    given = {"type": "openai", "base_url": "http://h/v1", "api_key": None, "model": "m"}
    with pytest.raises(ValueError, match=says) as caught:
        make_provider(**{**given, **arguments})
    assert "a\nb" not in str(caught.value)


# -- Continuations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("style", sorted(PREFILL_STYLES))
def test_the_last_message_of_a_prefill_is_the_committed_text(style: Style) -> None:
    sent = body(provider(style=style), chat(), "Begun. ")
    assert sent["messages"][:-1] == [USER]
    assert sent["messages"][-1]["role"] == "assistant"
    assert sent["messages"][-1]["content"] == "Begun. "


@pytest.mark.parametrize("style", [*sorted(PREFILL_STYLES), Style.INSTRUCT])
@pytest.mark.parametrize(
    "content", ["Once upon", [{"type": "text", "text": "Once "}, {"type": "text", "text": "upon"}]]
)
def test_a_clients_own_prefill_and_the_committed_text_are_one_message(
    style: Style, content: object
) -> None:
    # The client wrote for another server: its flags would be foreign here.
    tail = {"role": "assistant", "content": content, "name": "a", "prefix": True, "partial": True}
    request = chat(USER, tail, continue_final_message=True, add_generation_prompt=False)
    sent = body(provider(style=style), request, " a time. ")
    message = sent["messages"][1]
    assert message["content"] == "Once upon a time. "
    assert message["name"] == "a"
    assert message.get("prefix", False) is (style is Style.PREFIX_FLAG)
    assert message.get("partial", False) is (style is Style.PARTIAL_FLAG)
    assert ("continue_final_message" in sent) is (style is Style.CONTINUE_FINAL)
    assert len(sent["messages"]) == (3 if style is Style.INSTRUCT else 2)


def test_a_tool_call_is_no_prefill() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    sent = body(provider(style=Style.ASSISTANT_TAIL), chat(USER, call), "Begun. ")
    assert sent["messages"] == [USER, call, {"role": "assistant", "content": "Begun. "}]


def test_restart_sends_the_original_with_its_whole_budget() -> None:
    request = chat(max_tokens=50)
    target = provider(style=Style.RESTART)
    assert body(target, request, "Begun. ", spent_tokens=20) == body(target, request)


def test_a_prefix_of_white_space_restarts() -> None:
    target = provider(style=Style.ASSISTANT_TAIL)
    assert body(target, chat(), "\n\n") == body(target, chat())


@pytest.mark.parametrize(("spent", "left"), [(0, 50), (20, 30), (50, 1), (999, 1)])
def test_what_is_committed_is_taken_off_the_budget(spent: int, left: int) -> None:
    request = chat(max_tokens=50, max_completion_tokens=50, other=True)
    sent = body(provider(), request, "Begun. ", spent_tokens=spent)
    assert (sent["max_tokens"], sent["max_completion_tokens"]) == (left, left)
    assert "max_tokens" not in body(provider(), chat(), "Begun. ", spent_tokens=spent)


def test_rstrip_prefix_tells_what_was_sent() -> None:
    how = ContinuationStyle(style=Style.ASSISTANT_TAIL, rstrip_prefix=True)
    request = chat(USER, {"role": "assistant", "content": "Once "})
    sent = body(provider(), request, "begun. \n", how=how)
    go_on = Continuation(how=how, prefix="begun. \n")
    assert sent["messages"][-1]["content"] == "Once begun."
    assert continuations.sent_prefix(request, go_on) == "Once begun."


def test_thinking_is_merged_into_what_the_client_sent() -> None:
    request = chat(chat_template_kwargs={"enable_thinking": True, "x": 1}, drop_me=1)
    how = ContinuationStyle(
        style=Style.CONTINUE_FINAL,
        disable_thinking={"chat_template_kwargs": {"enable_thinking": False}, "drop_me": None},
    )
    sent = body(provider(), request, "Begun. ", how=how)
    assert sent["chat_template_kwargs"] == {"enable_thinking": False, "x": 1}
    assert "drop_me" not in sent
    assert body(provider(), request)["chat_template_kwargs"]["enable_thinking"] is True
    assert request.raw["chat_template_kwargs"]["enable_thinking"] is True


@pytest.mark.parametrize(
    ("family", "wanted", "kept", "style"),
    [
        ("llama.cpp", SCHEMA, True, Style.CONTINUE_FINAL),
        ("llama.cpp", {"type": "json_object"}, False, Style.CONTINUE_FINAL),
        ("vllm", SCHEMA, False, Style.CONTINUE_FINAL),
        ("vllm", {"type": "text"}, False, Style.CONTINUE_FINAL),
        ("openai", SCHEMA, True, Style.RESTART),
        ("kimi", {"type": "json_object"}, True, Style.RESTART),
        ("openai", {"type": "text"}, True, Style.INSTRUCT),
    ],
)
def test_schema_beside_a_prefix(
    family: str, wanted: dict[str, Any], kept: bool, style: Style
) -> None:
    target = provider(family)
    request = chat(response_format=wanted)
    go_on = Continuation(how=target.continuation, prefix='{"a": 1,')
    assert continuations.effective_style(request, go_on) is style
    assert ("response_format" in body(target, request, '{"a": 1,')) is kept
    assert body(target, request)["response_format"] == wanted


def test_guided_decoding_counts_as_a_schema() -> None:
    request = chat(guided_json={"type": "object"})
    assert "guided_json" not in body(provider("vllm"), request, "{")
    refusing = replace(provider("vllm").continuation, schema=SchemaWithPrefix.REFUSE)
    assert body(provider("vllm"), request, "{", how=refusing) == body(provider("vllm"), request)


# -- The nudge -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "in_fence", "where"),
    [
        ("It is so.", None, "at the end of a sentence"),
        ("“It is so.” ", None, "at the end of a sentence"),
        ("そうです。", None, "at the end of a sentence"),
        ("It is", None, "in the middle of a sentence"),
        ("Title\n\n", None, "between two paragraphs"),
        ("Title\n", None, "at the end of a line"),
        ("Do:\n- one\n", None, "inside a list"),
        ("Do:\n12. one.", None, "inside a list"),
        ("| a | b |\n", None, "inside a table"),
        ("x = 1\n", "python", "inside a ```python code block"),
        ("x = 1\n", "", "inside a ``` code block"),
    ],
)
def test_the_nudge_says_where_the_text_stops(prefix: str, in_fence: str | None, where: str) -> None:
    assert f"It stops {where}." in nudge(prefix, in_fence=in_fence)


def test_the_nudge_of_a_structured_answer() -> None:
    how = ContinuationStyle(style=Style.INSTRUCT, schema=SchemaWithPrefix.KEEP)
    sent = body(provider(), chat(response_format=SCHEMA), '{"a": 1,', how=how)
    assert "inside a JSON document" in sent["messages"][-1]["content"]


@given(st.text(min_size=1, max_size=300))
def test_the_nudge_quotes_the_tail_exactly_and_is_short(prefix: str) -> None:
    text = nudge(prefix, in_fence=None)
    quoted, _ = json.JSONDecoder().raw_decode(text, text.index('"'))
    assert quoted == prefix[-TAIL_CHARS:]
    assert len(text) < 1_500


def test_instruct_never_touches_the_system_prompt() -> None:
    system = {"role": "system", "content": "Be a pirate."}
    sent = body(provider(), chat(system, USER), "Arr. ")
    assert [m["role"] for m in sent["messages"]] == ["system", "user", "assistant", "user"]
    assert sent["messages"][0] == system


# -- Reading back ----------------------------------------------------------------------------------


def test_the_reader_judges_errors_with_this_targets_table_and_secrets() -> None:
    reader = provider("groq").reader()
    out = reader.feed(b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n')
    assert Text("Hi") in out
    raw = b'data: {"error":{"message":"sk-test-1234567890","code":"json_validate_failed"}}\n\n'
    [failed] = [e for e in reader.feed(raw) if isinstance(e, Failed)]
    assert failed.fault.kind is FaultKind.STREAM_ERROR
    assert failed.fault.verdict is Verdict.TRANSIENT
    assert failed.fault.message == "[***]"
