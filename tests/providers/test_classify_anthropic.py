"""The fault table against what Anthropic answers, as a response and as an event of a stream.

Statuses and types: https://platform.claude.com/docs/en/api/errors. The sentences are those that
people were shown and reported in public.
"""

from __future__ import annotations

import json

import pytest

from router.core.faults import FaultKind, Verdict
from router.providers.classify import Classifier

T, A, R, P = Verdict.TRANSIENT, Verdict.ACCOUNT, Verdict.REQUEST, Verdict.PREFIX_REFUSED
CONTEXT, POLICY = FaultKind.CONTEXT_LENGTH, FaultKind.CONTENT_POLICY
INVALID = "invalid_request_error"

CASES: list[tuple[int, str, str, Verdict, FaultKind | None]] = [
    (529, "overloaded_error", "Overloaded", T, None),
    (500, "api_error", "Internal server error", T, None),
    (504, "timeout_error", "Request timeout", T, None),
    (429, "rate_limit_error", "Number of request tokens has exceeded your per-minute rate limit.",
     T, None),
    (429, "rate_limit_error", ("This request would exceed your organization's rate limit of 50,000 "
     "input tokens per minute."), T, None),
    (429, "rate_limit_error", ("You have reached your API usage limits: your organization has "
     "crossed its monthly API usage threshold. You will regain access on 2026-09-01."), A, None),
    (400, INVALID, ("You have reached your specified API usage limits. You will regain access on "
     "2026-04-01 at 00:00 UTC."), A, None),
    (400, INVALID, ("Your credit balance is too low to access the Anthropic API. Please go to "
     "Plans & Billing to upgrade or purchase credits."), A, None),
    (400, INVALID, "This organization has been disabled.", A, None),
    (402, "billing_error", "There is an issue with your billing.", A, None),
    (401, "authentication_error", "invalid x-api-key", A, None),
    (403, "permission_error", ("Your API key does not have permission to use the specified "
     "resource."), A, None),
    (404, "not_found_error", "model: claude-9", A, None),
    (413, "request_too_large", "Request exceeds the maximum size", R, None),
    (400, INVALID, "prompt is too long: 208310 tokens > 200000 maximum", R, CONTEXT),
    (400, INVALID, ("input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000, "
     "decrease input length or `max_tokens` and try again"), R, CONTEXT),
    (400, INVALID, "Output blocked by content filtering policy", R, POLICY),
    (400, INVALID, "max_tokens: Field required", R, None),
    (400, INVALID, ("messages.1.content.0.tool_use_id: unexpected `tool_use_id` found in "
     "`tool_result` blocks: toolu_1"), R, None),
    (400, INVALID, "`clear_thinking_20251015` strategy requires `thinking` to be enabled", R, None),
    (400, INVALID, ("This model does not support assistant message prefill. The conversation must "
     "end with a user message."), P, None),
    (400, INVALID, "messages: final assistant content cannot end with trailing whitespace", P,
     None),
    (400, INVALID, ("messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but "
     "found `text`. When `thinking` is enabled, a final `assistant` message must start with a "
     "thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."), P,
     None),
    (400, INVALID, ("messages.3.content.0: When thinking is disabled, an `assistant` message in "
     "the final position cannot contain `thinking`."), P, None),
]  # fmt: skip


def error(kind: str, message: str) -> dict[str, object]:
    return {
        "type": "error",
        "error": {"details": None, "type": kind, "message": message},
        "request_id": "req_011CZLrUfBVkVHn5T6EqQaf7",
    }


@pytest.mark.parametrize(("status", "kind", "message", "verdict", "fault_kind"), CASES)
def test_a_response_and_an_event_are_judged_alike(
    status: int, kind: str, message: str, verdict: Verdict, fault_kind: FaultKind | None
) -> None:
    classifier = Classifier(family="anthropic")
    body = json.dumps(error(kind, message)).encode()
    response = classifier.response(status, {}, body)
    event = classifier.error_object(error(kind, message))
    assert response.verdict is verdict
    assert response.kind is (fault_kind or FaultKind.STATUS)
    assert (response.status, response.type) == (status, kind)
    assert event.verdict is verdict
    assert event.kind is (fault_kind or FaultKind.STREAM_ERROR)
    assert (event.status, event.type) == (None, kind)


def test_a_wait_is_taken_from_its_header() -> None:
    body = json.dumps(error("rate_limit_error", "Rate limited")).encode()
    fault = Classifier(family="anthropic").response(429, {"retry-after": "12"}, body)
    assert (fault.verdict, fault.retry_after_s) == (T, 12.0)


def test_a_spent_month_is_told_from_a_busy_minute_by_its_code() -> None:
    body = error("rate_limit_error", "Come back later.")
    body["error"] = {
        "type": "rate_limit_error",
        "message": "Come back later.",
        "details": {"error_code": "enforced_spend_limit_reached"},
    }
    fault = Classifier(family="anthropic").response(429, {}, json.dumps(body).encode())
    assert (fault.verdict, fault.code) == (A, "enforced_spend_limit_reached")


def test_a_prefix_is_refused_in_words_of_tomorrow() -> None:
    said = error(INVALID, "Prefilling the answer is not supported with `output_config.format`.")
    fault = Classifier(family="anthropic").response(400, {}, json.dumps(said).encode())
    assert fault.verdict is P
