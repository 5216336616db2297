"""What a request to a Gemini server holds, where a golden file would not say why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.core.continuation import Continuation, SchemaWithPrefix, Style
from router.core.events import Done, Failed, Finish
from router.core.faults import FaultKind, Verdict
from router.core.request import ChatRequest
from router.errors import MalformedStream
from router.providers.base import Provider
from router.providers.make import make_provider
from router.providers.resolve import ContinuationOverrides
from router.wire.anthropic.request import parse_messages_request
from router.wire.openai.request import parse_chat_request

KEY = "key-test-1234567890"
USER = {"role": "user", "content": "Go."}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}


def chat(*messages: dict[str, Any], **fields: Any) -> ChatRequest:  # noqa: ANN401 - JSON
    raw = {"model": "chat", "messages": [*(messages or (USER,))], **fields}
    return parse_chat_request(json.dumps(raw).encode())


def provider(
    model: str = "gemini-2.5-flash",
    *,
    base_url: str | None = None,
    headers: dict[str, str] | None = None,
    **overrides: Any,  # noqa: ANN401 - any knob
) -> Provider:
    return make_provider(
        type="gemini",
        base_url=base_url,
        api_key=KEY,
        model=model,
        headers=headers,
        overrides=ContinuationOverrides(**overrides),
    )


def body(
    target: Provider,
    request: ChatRequest,
    prefix: str = "",
    *,
    in_fence: str | None = None,
    spent_tokens: int = 0,
) -> dict[str, Any]:
    continuation = Continuation(
        how=target.continuation, prefix=prefix, in_fence=in_fence, spent_tokens=spent_tokens
    )
    sent: dict[str, Any] = json.loads(target.build(request, continuation if prefix else None).body)
    return sent


def turn(role: str, words: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"text": words}]}


# -- Where it goes ---------------------------------------------------------------------------------

GOOGLE = "https://generativelanguage.googleapis.com"
VERTEX = "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/us-central1"


@pytest.mark.parametrize(
    ("base_url", "model", "url"),
    [
        (None, "gemini-3.8-flash", f"{GOOGLE}/v1beta/models/gemini-3.8-flash"),
        (GOOGLE, "gemini-3.8-flash", f"{GOOGLE}/v1beta/models/gemini-3.8-flash"),
        (f"{GOOGLE}/v1/", "m", f"{GOOGLE}/v1/models/m"),
        (f"{GOOGLE}/v1beta/models", "models/m", f"{GOOGLE}/v1beta/models/m"),
        (GOOGLE, "tunedModels/my model", f"{GOOGLE}/v1beta/tunedModels/my%20model"),
        ("http://proxy.example/gemini", "m", "http://proxy.example/gemini/v1beta/models/m"),
        (f"{VERTEX}/publishers/google", "m@1", f"{VERTEX}/publishers/google/models/m@1"),
        (VERTEX, "publishers/google/models/m", f"{VERTEX}/publishers/google/models/m"),
    ],
)
def test_the_address(base_url: str | None, model: str, url: str) -> None:
    target = provider(model, base_url=base_url)
    assert target.url == f"{url}:streamGenerateContent?alt=sse"
    assert target.build(chat(), None).url == target.url


def test_a_query_of_the_base_url_is_kept() -> None:
    url = provider(base_url="http://proxy.example/v1?tenant=a").url
    assert url.endswith("/v1/models/gemini-2.5-flash:streamGenerateContent?tenant=a&alt=sse")


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="http"):
        provider(base_url="generativelanguage.googleapis.com")


def test_the_key_goes_in_its_header_and_is_shown_nowhere() -> None:
    target = provider(headers={"X-Goog-User-Project": "p"})
    headers = dict(target.build(chat(), None).headers)
    assert headers["x-goog-api-key"] == KEY
    assert headers["X-Goog-User-Project"] == "p"
    assert "Authorization" not in headers
    assert KEY not in repr(target)
    assert KEY not in target.classify(400, {}, f"API key {KEY} not valid.".encode()).message


# -- The original request --------------------------------------------------------------------------


def test_neither_model_nor_stream_stands_in_the_body() -> None:
    assert body(provider(), chat(stream=True)) == {"contents": [turn("user", "Go.")]}


def test_the_clients_request_is_translated_once_and_left_alone() -> None:
    request = chat(max_tokens=9, temperature=0.5)
    before = json.dumps(request.raw)
    old, new = provider("gemini-2.5-flash"), provider("gemini-3.8-flash")
    assert body(old, request)["generationConfig"] == {"maxOutputTokens": 9, "temperature": 0.5}
    made = dict(request.translations)
    assert body(new, request)["generationConfig"] == {"maxOutputTokens": 9}
    assert request.translations == made
    assert json.dumps(request.raw) == before


def test_losses_are_the_formats_and_the_models() -> None:
    request = chat(temperature=0.5, user="u", n=2)
    old = provider("gemini-2.5-flash").losses(request)
    new = provider("gemini-3.8-flash").losses(request)
    assert [(loss.param, loss.hint) for loss in old] == [("user", True)]
    assert [(loss.param, loss.hint) for loss in new] == [
        ("user", True),
        ("temperature", True),
        ("n", False),
    ]


def test_a_client_of_another_format_reads_its_own_names() -> None:
    raw = {
        "model": "chat",
        "max_tokens": 10,
        "messages": [USER],
        "stop_sequences": list("abcdef"),
        "metadata": {"user_id": "u"},
    }
    request = parse_messages_request(json.dumps(raw).encode())
    losses = provider().losses(request)
    assert [loss.param for loss in losses] == ["stop_sequences", "metadata.user_id"]


# -- Continuations ---------------------------------------------------------------------------------


def test_the_styles_follow_the_models_generation() -> None:
    assert provider("gemini-2.5-flash").continuation.style is Style.ASSISTANT_TAIL
    assert provider("gemini-3.5-flash").continuation.style is Style.ASSISTANT_TAIL
    for model in ("gemini-3.5-flash-lite", "gemini-3.6-flash", "gemini-flash-latest"):
        assert provider(model).continuation.style is Style.INSTRUCT


def test_a_tail_is_a_turn_of_the_model() -> None:
    contents = body(provider(), chat(), "One. Two. ")["contents"]
    assert contents == [turn("user", "Go."), turn("model", "One. Two. ")]


def test_instruct_asks_for_the_rest_in_a_turn_of_the_user() -> None:
    target = provider(style=Style.INSTRUCT)
    contents = body(target, chat(), "```py\nx = 1\n", in_fence="py")["contents"]
    assert contents[:2] == [turn("user", "Go."), turn("model", "```py\nx = 1\n")]
    assert contents[2]["role"] == "user"
    (part,) = contents[2]["parts"]
    assert "inside a ```py code block" in part["text"]


@pytest.mark.parametrize("style", [Style.ASSISTANT_TAIL, Style.INSTRUCT])
def test_a_prefill_of_the_clients_goes_on(style: Style) -> None:
    request = chat(USER, {"role": "assistant", "content": "Once "})
    target = provider(style=style)
    contents = body(target, request, "upon a time. ")["contents"]
    assert contents[1] == turn("model", "Once upon a time. ")
    assert len(contents) == (2 if style is Style.ASSISTANT_TAIL else 3)
    continuation = Continuation(how=target.continuation, prefix="upon a time. ")
    assert target.sends(request, continuation).prefix == "Once upon a time. "


def test_a_tail_without_trailing_white_space_where_that_is_wanted() -> None:
    target = provider(rstrip_prefix=True)
    assert body(target, chat(), "One. \n")["contents"][1] == turn("model", "One.")


def test_what_was_spent_is_taken_off_the_budget() -> None:
    for spent, left in ((7, 93), (500, 1)):
        config = body(provider(), chat(max_tokens=100), "One. ", spent_tokens=spent)
        assert config["generationConfig"] == {"maxOutputTokens": left}
    assert "generationConfig" not in body(provider(), chat(), "One. ", spent_tokens=7)


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("gemini-2.5-flash", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", {"thinkingBudget": 128}),
        ("gemini-3-flash-preview", {"thinkingLevel": "MINIMAL"}),
        ("gemini-2.0-flash", None),
    ],
)
def test_thinking_is_switched_off_as_the_model_can(model: str, config: object) -> None:
    target = provider(model, disable_thinking=True)
    sent = body(target, chat(reasoning_effort="high"), "One. ").get("generationConfig", {})
    assert sent.get("thinkingConfig") == config


def test_restart_and_white_space_alone_ask_the_question_again() -> None:
    request = chat(max_tokens=100)
    original = body(provider(), request)
    assert body(provider(style=Style.RESTART), request, "One. ", spent_tokens=7) == original
    assert body(provider(), request, " \n", spent_tokens=7) == original


def test_none_is_never_asked_to_go_on() -> None:
    with pytest.raises(ValueError, match="none"):
        body(provider(style=Style.NONE), chat(), "One. ")


@pytest.mark.parametrize(
    ("schema", "style", "kept"),
    [
        (SchemaWithPrefix.REFUSE, Style.RESTART, True),
        (SchemaWithPrefix.DROP, Style.ASSISTANT_TAIL, False),
        (SchemaWithPrefix.KEEP, Style.ASSISTANT_TAIL, True),
    ],
)
@pytest.mark.parametrize("wanted", [SCHEMA, {"type": "json_object"}])
def test_structured_output_beside_a_prefix(
    wanted: dict[str, Any], schema: SchemaWithPrefix, style: Style, *, kept: bool
) -> None:
    target, request = provider(schema=schema), chat(response_format=wanted)
    continuation = Continuation(how=target.continuation, prefix='{"a": 1')
    assert target.sends(request, continuation).style is style
    config = body(target, request, '{"a": 1').get("generationConfig", {})
    assert ("responseMimeType" in config) is kept
    assert ("responseJsonSchema" in config) is (kept and wanted is SCHEMA)


# -- The answer ------------------------------------------------------------------------------------

SILENT = b'data: {"candidates": [{"finishReason": "STOP"}]}\r\n\r\n'


def test_only_a_continuation_may_have_nothing_to_say() -> None:
    reader = provider().reader(continuing=True)
    assert reader.feed(SILENT) + reader.close() == [Finish("stop", 0, "STOP"), Done()]
    reader = provider().reader()
    (failed,) = reader.feed(SILENT) + reader.close()
    assert isinstance(failed, Failed)
    assert failed.fault.kind is FaultKind.TRUNCATED


def test_an_error_in_a_stream_is_judged_by_the_table() -> None:
    said = b'data: {"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE"}}\n\n'
    (failed,) = provider().reader().feed(said)
    assert isinstance(failed, Failed)
    assert (failed.fault.status, failed.fault.verdict) == (503, Verdict.TRANSIENT)


def test_a_refused_model_turn_is_a_refused_prefix() -> None:
    said = b'{"error": {"code": 400, "message": "Requests ending with a model turn are not supp'
    fault = provider().classify(400, {}, said)
    assert fault.verdict is Verdict.PREFIX_REFUSED


# -- Counting --------------------------------------------------------------------------------------


def test_a_count_asks_with_the_whole_request() -> None:
    request = provider("gemini-3.8-flash").count_request(chat(max_tokens=5))
    assert request is not None
    assert request.url == f"{GOOGLE}/v1beta/models/gemini-3.8-flash:countTokens"
    assert json.loads(request.body) == {
        "generateContentRequest": {
            "model": "models/gemini-3.8-flash",
            "contents": [turn("user", "Go.")],
            "generationConfig": {"maxOutputTokens": 5},
        }
    }
    assert dict(request.headers)["Accept"] == "application/json"


def test_vertex_ai_counts_what_it_is_told() -> None:
    target = provider("m", base_url=f"{VERTEX}/publishers/google")
    request = target.count_request(chat({"role": "system", "content": "Be brief."}, USER))
    assert request is not None
    assert request.url == f"{VERTEX}/publishers/google/models/m:countTokens"
    assert json.loads(request.body) == {
        "contents": [turn("user", "Go.")],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
    }


def test_a_count_is_read_or_refused() -> None:
    assert provider().read_count(b'{"totalTokens": 31, "promptTokensDetails": []}') == 31
    for answer in (b"{}", b"[]", b'{"totalTokens": "x"}', b"\xff"):
        with pytest.raises(MalformedStream):
            provider().read_count(answer)
