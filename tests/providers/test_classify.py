"""The fault table against bodies shaped as real servers send them."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.faults import Fault, FaultKind, Verdict
from router.core.request import Format
from router.providers.base import MAX_ERROR_BODY_BYTES
from router.providers.classify import Classifier
from router.providers.http import Account
from router.providers.make import make_provider
from router.providers.redact import MAX_REASON_CHARS, MAX_WORD_CHARS
from router.providers.registry import FAMILIES

T, A, R, P = Verdict.TRANSIENT, Verdict.ACCOUNT, Verdict.REQUEST, Verdict.PREFIX_REFUSED
STATUS, CONTEXT, POLICY = FaultKind.STATUS, FaultKind.CONTEXT_LENGTH, FaultKind.CONTENT_POLICY


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    family: str
    status: int
    body: Any
    verdict: Verdict
    kind: FaultKind = STATUS
    says: str = ""
    code: str | None = None
    wait: float | None = None
    headers: dict[str, str] = field(default_factory=dict)


def err(message: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"error": {"message": message, **fields}}


def case(name: str, status: int, body: Any, verdict: Verdict, **more: Any) -> Case:  # noqa: ANN401
    family, _, _ = name.partition(":")
    return Case(name=name, family=family, status=status, body=body, verdict=verdict, **more)


OPENAI_LONG = err(
    "This model's maximum context length is 128000 tokens. However, your messages resulted in "
    "150000 tokens.",
    type="invalid_request_error",
    param="messages",
    code="context_length_exceeded",
)
CASES = [
    # OpenAI
    case("openai: slow down", 429, err("Rate limit reached for gpt-5 in organization org-x on "
         "requests per min (RPM): Limit 3. Please try again in 20s.", type="requests",
         code="rate_limit_exceeded"), T, wait=20.0, code="rate_limit_exceeded"),
    case("openai: no money", 429, err("You exceeded your current quota, please check your plan.",
         type="insufficient_quota", code="insufficient_quota"), A),
    case("openai: no money, with a wait all the same", 429,
         err("x", type="insufficient_quota", code="insufficient_quota"), A,
         headers={"retry-after": "5"}, wait=5.0),
    case("openai: bad key", 401, err("Incorrect API key provided: sk-proj-abcd1234efgh. You can "
         "find your API key at https://platform.openai.com.", type="invalid_request_error",
         code="invalid_api_key"), A, says="Incorrect API key provided: [***]"),
    case("openai: no such model", 404, err("The model `gpt-9` does not exist or you do not have "
         "access to it.", type="invalid_request_error", code="model_not_found"), A, says="gpt-9"),
    case("openai: too long", 400, OPENAI_LONG, R, kind=CONTEXT, code="context_length_exceeded"),
    case("openai: unknown parameter", 400, err("Unrecognized request argument supplied: foo",
         type="invalid_request_error"), R, says="foo"),
    case("openai: safety", 400, err("Invalid prompt: we've limited access to this content for "
         "safety reasons.", code="invalid_prompt", type="invalid_request_error"), R, kind=POLICY),
    case("openai: broken", 500, err("The server had an error", type="server_error"), T),
    case("openai: overloaded", 503, err("That model is currently overloaded",
         type="server_error"), T, headers={"retry-after": "2"}, wait=2.0),
    # Azure OpenAI
    case("azure-openai: busy", 429, {"error": {"code": "429", "message": "Requests to the "
         "ChatCompletions_Create Operation have exceeded call rate limit. Please retry after 6 "
         "seconds."}}, T, wait=6.0),
    case("azure-openai: filter", 400, {"error": {"message": "The response was filtered due to the "
         "prompt triggering Azure OpenAI's content management policy.", "type": None,
         "param": "prompt", "code": "content_filter", "status": 400, "innererror": {
         "code": "ResponsibleAIPolicyViolation"}}}, R, kind=POLICY),
    case("azure-openai: no deployment", 404, {"error": {"code": "DeploymentNotFound", "message":
         "The API deployment for this resource does not exist."}}, A, code="DeploymentNotFound"),
    case("azure-openai: bad key", 401, {"statusCode": 401, "message": "Unauthorized. Access token "
         "is missing, invalid, audience is incorrect, or have expired."}, A),
    # OpenRouter
    case("openrouter: upstream busy", 429, {"error": {"message": "Provider returned error",
         "code": 429, "metadata": {"raw": json.dumps(err("Too many tokens per minute",
         code="tpm_exceeded")), "provider_name": "Acme"}}, "user_id": "u"}, T,
         says="Acme: Too many tokens per minute"),
    case("openrouter: upstream busy, in prose", 429, {"error": {"message":
         "Provider returned error", "code": 429, "metadata": {"raw":
         "z/m is temporarily rate-limited upstream.", "provider_name": "Acme"}}}, T,
         says="Acme: z/m is temporarily rate-limited"),
    case("openrouter: reset in the body", 429, {"error": {"message": "Rate limit exceeded",
         "code": 429, "metadata": {"headers": {"X-RateLimit-Limit": "20",
         "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1767225642000"}}}}, T,
         headers={"date": "Thu, 01 Jan 2026 00:00:00 GMT"}, wait=42.0),
    case("openrouter: credits", 402, err("This request requires more credits, or fewer "
         "max_tokens.", code=402), A),
    case("openrouter: moderated", 403, {"error": {"code": 403, "message": "acme/m requires "
         "moderation on Acme. Your input was flagged for 'violence'.", "metadata":
         {"reasons": ["violence"], "flagged_input": "SECRET PROMPT"}}}, R, kind=POLICY),
    case("openrouter: no such model", 400, err("foo/bar is not a valid model ID", code=400), A),
    case("openrouter: upstream refuses the prefix", 400, {"error": {"message":
         "Provider returned error", "code": 400, "metadata": {"raw": json.dumps({"type": "error",
         "error": {"type": "invalid_request_error", "message": "This model does not support "
         "assistant message prefill. The conversation must end with a user message."}})}}}, P,
         says="must end with a user message"),
    case("openrouter: upstream down", 502, err("Provider returned error", code=502), T),
    case("openrouter: too long", 400, err("This endpoint's maximum context length is 8192 tokens. "
         "However, you requested about 9000 tokens.", code=400), R, kind=CONTEXT,
         code="context_length_exceeded"),
    # DeepSeek
    case("deepseek: no money", 402, err("Insufficient Balance", type="unknown_error",
         code="invalid_request_error"), A),
    case("deepseek: risk", 400, err("Content Exists Risk", type="invalid_request_error"), R,
         kind=POLICY, code="content_filter"),
    case("deepseek: prefix", 400, err("The last message of deepseek-reasoner must be a user "
         "message, or an assistant message with prefix mode enabled",
         type="invalid_request_error"), P),
    case("deepseek: busy", 503, err("Service is too busy. We advise users to temporarily switch "
         "to alternative LLM API service providers."), T),
    # Mistral
    case("mistral: prefix", 400, {"object": "error", "message": "Expected last role User or Tool "
         "(or Assistant with prefix True) for serving but got assistant", "type":
         "invalid_request_message_order", "param": None, "code": "3230"}, P),
    case("mistral: unknown field", 422, {"object": "error", "message": {"detail": [{"type":
         "extra_forbidden", "loc": ["body", "foo"], "msg": "Extra inputs are not permitted",
         "input": "SECRET PROMPT"}]}, "type": "invalid_request_error", "param": None,
         "code": None}, R, says="body.foo: Extra inputs are not permitted"),
    case("mistral: unknown flag", 422, {"detail": [{"type": "extra_forbidden", "loc": ["body",
         "messages", 2, "assistant", "partial"], "msg": "Extra inputs are not permitted",
         "input": True}]}, P),
    case("mistral: no such model", 400, {"object": "error", "message": "Invalid model: foo",
         "type": "invalid_model", "code": "1500"}, A),
    case("mistral: capacity", 429, {"object": "error", "message": "Service tier capacity exceeded "
         "for this model.", "type": "service_tier_capacity_exceeded", "code": "3505"}, T),
    case("mistral: too long", 400, {"object": "error", "message": "Prompt contains 40000 tokens "
         "and 0 draft tokens, too large for model with 32768 maximum context length", "type":
         "invalid_request_prompt", "code": "3051"}, R, kind=CONTEXT),
    case("mistral: bad key", 401, {"detail": "Unauthorized"}, A, says="Unauthorized"),
    # Kimi
    case("kimi: no money", 429, err("Your account is suspended, please check your plan and "
         "billing details", type="exceeded_current_quota_error"), A),
    case("kimi: overloaded", 429, err("The engine is currently overloaded, please try again "
         "later", type="engine_overloaded_error"), T),
    case("kimi: rate", 429, err("Your account reached max request limit: 3, please try again "
         "after 1 seconds", type="rate_limit_reached_error"), T, wait=1.0),
    case("kimi: too long", 400, err("Invalid request: Your request exceeded model token limit: "
         "8192", type="invalid_request_error"), R, kind=CONTEXT),
    case("kimi: high risk", 400, err("The request was rejected because it was considered high "
         "risk", type="content_filter"), R, kind=POLICY),
    case("kimi: no such model", 404, err("Not found the model or Permission denied",
         type="resource_not_found_error"), A),
    # Qwen
    case("qwen: inspection", 400, err("Output data may contain inappropriate content.",
         code="data_inspection_failed", type="data_inspection_failed"), R, kind=POLICY),
    case("qwen: arrears", 400, err("Access denied, please make sure your account is in good "
         "standing.", code="Arrearage", type="Arrearage"), A),
    case("qwen: too long", 400, err("<400> InternalError.Algo.InvalidParameter: Range of input "
         "length should be [1, 98304]", code="invalid_parameter_error"), R, kind=CONTEXT),
    case("qwen: throttled", 429, err("Requests rate limit exceeded, please try again later.",
         code="limit_requests", type="limit_requests"), T),
    # Groq
    case("groq: minute", 429, err("Rate limit reached for model `m` on tokens per minute (TPM): "
         "Limit 6000. Please try again in 1m2.5s.", type="tokens", code="rate_limit_exceeded"), T,
         wait=62.5),
    case("groq: request larger than a minute", 413, err("Request too large for model `m` on "
         "tokens per minute (TPM): Limit 6000, Requested 9000", type="tokens",
         code="rate_limit_exceeded"), T),
    case("groq: unreadable call", 400, err("Failed to call a function. Please adjust your "
         "prompt.", type="invalid_request_error", code="tool_use_failed",
         failed_generation="SECRET PROMPT"), T),
    case("groq: retired", 400, err("The model `old` has been decommissioned and is no longer "
         "supported.", type="invalid_request_error", code="model_decommissioned"), A),
    case("groq: too long", 400, err("Please reduce the length of the messages or completion.",
         type="invalid_request_error", param="messages", code="context_length_exceeded"), R,
         kind=CONTEXT),
    # Together, Fireworks, xAI
    case("together: too long", 422, {"id": "x", **err("Input validation error: `inputs` tokens + "
         "`max_new_tokens` must be <= 8193.", type="invalid_request_error", param="max_tokens")},
         R, kind=CONTEXT),
    case("together: busy", 503, err("The server is overloaded or not ready yet.",
         type="service_unavailable"), T),
    case("fireworks: too long", 400, {"error": {"object": "error", "type":
         "invalid_request_error", "code": "invalid_request_error", "message": "The prompt is too "
         "long: 140000, model maximum context length: 131071"}}, R, kind=CONTEXT),
    case("fireworks: no such model", 404, {"error": {"object": "error", "type":
         "invalid_request_error", "message": "Model not found, inaccessible, and/or not "
         "deployed"}}, A),
    case("fireworks: suspended", 412, err("Account x is suspended, possibly due to reaching the "
         "monthly spending limit."), R),
    case("xai: bad key", 400, {"code": "Client specified an invalid argument", "error":
         "Incorrect API key provided: xa***1234. You can obtain an API key from console."}, A),
    case("xai: too long", 400, {"code": "Client specified an invalid argument", "error":
         "This model's maximum prompt length is 131072 but the request contains 200000 tokens."},
         R, kind=CONTEXT),
    case("xai: credits", 403, {"code": "The caller does not have permission to execute the "
         "specified operation", "error": "Your team has run out of credits."}, A),
    # Servers of one's own
    case("vllm: too long", 400, {"object": "error", "message": "This model's maximum context "
         "length is 4096 tokens. However, you requested 5000 tokens.", "type": "BadRequestError",
         "param": None, "code": 400}, R, kind=CONTEXT),
    case("vllm: no such model", 404, err("The model `x` does not exist.", type="NotFoundError",
         param="model", code=404), A),
    case("vllm: both flags", 400, err("Cannot set both `continue_final_message` and "
         "`add_generation_prompt` to True.", type="BadRequestError", code=400), P),
    case("vllm: mistral tokenizer", 400, err("Cannot set `add_generation_prompt` to True when the "
         "last message is from the assistant. Consider using `continue_final_message` instead.",
         type="BadRequestError"), P),
    case("vllm: template loses the text", 400, err("continue_final_message is set but the final "
         "message does not appear in the chat after applying the chat template!"), P),
    case("vllm: broken engine", 500, {"detail": "EngineCore encountered an issue."}, T),
    case("sglang: too long", 400, {"object": "error", "message": "The input (9000 tokens) is "
         "longer than the model's context length (8192 tokens).", "type": "BadRequestError",
         "code": 400}, R, kind=CONTEXT),
    case("llama.cpp: too long", 400, {"error": {"code": 400, "message": "the request exceeds the "
         "available context size. try increasing the context size or enable context shift",
         "type": "exceed_context_size_error", "n_prompt_tokens": 14429, "n_ctx": 8192}}, R,
         kind=CONTEXT, code="context_length_exceeded"),
    case("llama.cpp: too long, older", 500, {"error": {"code": 500, "message": "x", "type":
         "exceed_context_size_error"}}, R, kind=CONTEXT),
    case("llama.cpp: thinking", 400, {"error": {"code": 400, "message": "Assistant response "
         "prefill is incompatible with enable_thinking.", "type": "invalid_request_error"}}, P),
    case("llama.cpp: two at the end", 500, {"error": {"code": 500, "message": "Cannot have 2 or "
         "more assistant messages at the end of the list.", "type": "server_error"}}, P),
    case("llama.cpp: loading", 503, {"error": {"code": 503, "message": "Loading model", "type":
         "unavailable_error"}}, T, says="Loading model"),
    case("ollama: not pulled", 404, err('model "x" not found, try pulling it first',
         type="api_error"), A),
    case("ollama: memory", 500, err("model requires more system memory (9 GiB) than is available",
         type="api_error"), T),
    case("ollama: bare", 404, {"error": "model 'x' not found"}, A, says="model 'x' not found"),
    case("lm-studio: not loaded", 400, err("No models loaded. Please load a model in the "
         "developer page.", type="invalid_request_error", code="model_not_found"), A),
    case("lm-studio: too long", 400, {"error": "Trying to keep the first 9000 tokens when "
         "context the overflows. However, the model is loaded with context length of only 4096 "
         "tokens."}, R, kind=CONTEXT),
    # Shapes that any proxy may send
    case("openai-compatible: TGI", 422, {"error": "Input validation error: bad",
         "error_type": "validation"}, R),
    case("openai-compatible: Gemini in a list", 400, [{"error": {"code": 400, "message":
         "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT",
         "details": [{"@type": "t", "reason": "API_KEY_INVALID"}]}}], A),
    case("openai-compatible: Gemini, busy minute", 429, [{"error": {"code": 429, "message":
         "You exceeded your current quota, please check your plan and billing details.",
         "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "RetryInfo",
         "retryDelay": "34.5s"}]}}], T, wait=34.5),
    case("openai-compatible: Gemini, spent", 429, [{"error": {"code": 429, "message":
         "You exceeded your current quota, please check your plan and billing details.",
         "status": "RESOURCE_EXHAUSTED"}}], A),
    case("openai-compatible: Gemini prefix", 400, {"error": {"code": 400, "message":
         "Requests ending with a model turn are not supported.", "status":
         "INVALID_ARGUMENT"}}, P),
    case("openai-compatible: Anthropic poor", 400, {"type": "error", "error": {"type":
         "invalid_request_error", "message": "Your credit balance is too low to access the "
         "API."}}, A),
    case("openai-compatible: Anthropic long", 400, {"type": "error", "error": {"type":
         "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000"}}, R,
         kind=CONTEXT),
    case("openai-compatible: Anthropic white space", 400, {"type": "error", "error": {"type":
         "invalid_request_error", "message": "messages: final assistant content cannot end with "
         "trailing whitespace"}}, P),
    case("openai-compatible: nginx", 502, "<html>\r\n<head><title>502 Bad Gateway</title></head>",
         T, says="502 Bad Gateway"),
    case("openai-compatible: heading", 403, "<!doctype html><h1>Blocked &amp; gone</h1>", A,
         says="Blocked & gone"),
    case("openai-compatible: text", 500, "Internal Server Error", T, says="Internal Server Error"),
    case("openai-compatible: empty", 503, "", T, says="The provider answered HTTP 503"),
    case("openai-compatible: empty object", 400, {}, R, says="The provider answered HTTP 400"),
    case("openai-compatible: framed as a stream", 400, 'event: error\ndata: {"error": '
         '{"message": "No such thing", "type": "invalid_request_error"}}\n\n', R,
         says="No such thing"),
    case("openai-compatible: JSON in a string", 400, {"error": json.dumps(err("Inner words"))}, R,
         says="Inner words"),
    case("openai-compatible: title", 429, {"title": "Too Many Requests", "status": 429,
         "detail": "Slow down."}, T, says="Slow down."),
    case("openai-compatible: list of errors", 400, {"errors": [{"message": "First."},
         {"message": "Second."}]}, R, says="First.: Second."),
]  # fmt: skip


@pytest.mark.parametrize("given", CASES, ids=lambda c: c.name)
def test_real_bodies(given: Case) -> None:
    body = given.body if isinstance(given.body, str) else json.dumps(given.body)
    classifier = Classifier(family=given.family)
    fault = classifier.response(given.status, given.headers, body.encode())
    assert (fault.kind, fault.verdict) == (given.kind, given.verdict), fault
    assert fault.status == given.status
    assert given.says in fault.message
    assert fault.message
    assert fault.retry_after_s == given.wait
    assert "SECRET PROMPT" not in repr(fault)
    if given.code is not None:
        assert fault.code in {given.code, "exceed_context_size_error"}


def test_every_family_has_a_case() -> None:
    spoken = {name for name, row in FAMILIES.items() if row.format is Format.OPENAI}
    assert {given.family for given in CASES} == spoken


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ([408, 409, 425, 429, 499, *range(500, 600)], T),
        ([401, 402, 403, 404, 405, 407, 410], A),
        ([400, 406, 411, 412, 413, 414, 415, 417, 418, 422, 426, 428, 431, 451], R),
    ],
)
def test_statuses_without_a_word(statuses: list[int], verdict: Verdict) -> None:
    for status in statuses:
        fault = Classifier().response(status, {}, b"")
        assert (fault.kind, fault.verdict, fault.status) == (STATUS, verdict, status)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_a_wrong_address(status: int) -> None:
    location = "https://elsewhere.example/v1?api_key=abc123"
    fault = Classifier().response(status, {"location": location}, b"ignored")
    assert fault.verdict is A
    assert "https://elsewhere.example/v1?api_key=[***]" in fault.message


# -- Errors inside a stream ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "verdict", "kind", "status"),
    [
        ({"error": {"code": 429, "message": "Slow"}}, T, None, 429),
        ({"error": {"code": 502, "message": "x", "type": "invalid_request_error"}}, T, None, 502),
        ({"error": {"type": "overloaded_error", "message": "Overloaded"}}, T, None, None),
        ({"error": {"type": "server_error", "message": "x"}}, T, None, None),
        ({"error": {"code": "rate_limit_exceeded", "message": "x"}}, T, None, None),
        ({"error": {"message": "Provider disconnected", "code": "502"}}, T, None, 502),
        ({"error": {"message": "who knows"}}, T, None, None),
        ({"error": "who knows"}, T, None, None),
        ({"error": "boom", "error_type": "overloaded"}, T, None, None),
        ({"error": {"code": 503, "message": "x", "status": "UNAVAILABLE"}}, T, None, 503),
        ({"error": {"type": "invalid_request_error", "message": "bad"}}, R, None, None),
        ({"error": {"message": "x", "type": "BadRequestError", "code": 400}}, R, None, 400),
        ({"error": {"code": 401, "message": "x"}}, A, None, 401),
        ({"error": {"code": "insufficient_quota", "message": "x"}}, A, None, None),
        ({"error": {"message": "Insufficient Balance"}}, A, None, None),
        (OPENAI_LONG, R, CONTEXT, None),
        ({"error": "the request exceeds the available context size"}, R, CONTEXT, None),
        ({"error": {"code": "content_filter", "message": "x"}}, R, POLICY, None),
        (
            {"error": "Assistant response prefill is incompatible with enable_thinking."},
            P,
            None,
            None,
        ),
        (
            {
                "id": "gen-1",
                "error": {"code": 400, "message": "Provider returned error"},
                "choices": [{"delta": {"content": ""}, "finish_reason": "error"}],
            },
            R,
            None,
            400,
        ),
    ],
)
def test_errors_in_a_stream(
    given: object, verdict: Verdict, kind: FaultKind | None, status: int | None
) -> None:
    fault = Classifier().error_object(given)
    assert fault.verdict is verdict
    assert fault.kind is (kind or FaultKind.STREAM_ERROR)
    assert fault.status == status


# -- Whatever comes --------------------------------------------------------------------------------

FIELDS = (
    *("error", "message", "detail", "code", "type", "param", "status", "metadata", "raw"),
    *("headers", "details", "reason", "retryDelay", "errors", "loc", "msg", "input"),
    *("title", "innererror", "provider_name", "error_type"),
)
WAITS = (
    *("retry-after", "retry-after-ms", "date", "x-ratelimit-reset", "x-ratelimit-remaining"),
    *("x-ratelimit-reset-requests", "anthropic-ratelimit-tokens-reset", "location"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda below: (
        st.lists(below, max_size=4)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            below,
            max_size=5,
        )
    ),
    max_leaves=20,
)
HEADERS = st.dictionaries(
    st.sampled_from(WAITS),
    st.text(max_size=30) | st.sampled_from(["nan", "inf", "-1", "1e400", "6m0s", "1767225642000"]),
    max_size=4,
)


def bounded(fault: Fault) -> None:
    assert len(fault.message) <= MAX_REASON_CHARS
    assert max(map(len, (fault.code, fault.type, fault.param))) <= MAX_WORD_CHARS
    assert not {unicodedata.category(char) for char in fault.message} & {"Cc", "Cs", "Zl", "Zp"}
    assert fault.retry_after_s is None or 0 <= fault.retry_after_s <= 86_400


@given(st.integers(100, 999), HEADERS, st.binary(max_size=400), st.sampled_from([*FAMILIES]))
def test_arbitrary_bytes(status: int, headers: dict[str, str], body: bytes, family: str) -> None:
    bounded(Classifier(family=family).response(status, headers, body))


@given(st.integers(400, 599), HEADERS, JSON)
def test_arbitrary_json(status: int, headers: dict[str, str], body: object) -> None:
    bounded(Classifier().response(status, headers, json.dumps(body).encode()))
    bounded(Classifier().error_object(body))


@pytest.mark.parametrize(
    "body",
    [
        b"[" * MAX_ERROR_BODY_BYTES,
        b'{"error":' * 7_000,
        b"<" * MAX_ERROR_BODY_BYTES,
        b"<title" * 10_000,
        b"model " * 10_000,
        b"prefix " * 9_000,
        b"context " * 8_000,
        b"\\" * MAX_ERROR_BODY_BYTES,
        b"a" * (2 * MAX_ERROR_BODY_BYTES),
        b"\xff\xfe" * 30_000,
        json.dumps({"error": {"message": "x" * 60_000, "code": "y" * 1_000}}).encode(),
    ],
)
def test_hostile_bodies_are_bounded(body: bytes) -> None:
    target = make_provider(type="openai", base_url=None, api_key="sk-0123456789", model="m")
    bounded(target.classify(400, {}, body))
    classifier = Account(
        family=FAMILIES["openai"],
        base_url="",
        model="m",
        continuation=target.continuation,
        api_key="sk-0123456789",
    ).classifier()
    bounded(classifier.error_object({"error": body.decode("utf-8", "replace")}))
