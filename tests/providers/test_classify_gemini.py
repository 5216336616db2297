"""The fault table against what Gemini answers, as a response and inside a 200.

Statuses: https://ai.google.dev/gemini-api/docs/generate-content/api-errors, details:
https://cloud.google.com/apis/design/errors. The sentences are those that people were shown and
reported in public.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.core.faults import FaultKind, Verdict
from router.providers.classify import Classifier

T, A, R, P = Verdict.TRANSIENT, Verdict.ACCOUNT, Verdict.REQUEST, Verdict.PREFIX_REFUSED
CONTEXT = FaultKind.CONTEXT_LENGTH
EXHAUSTED, INVALID = "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"

CASES: list[tuple[int, str, str, Verdict, FaultKind | None]] = [
    (429, EXHAUSTED, "Resource exhausted. Please try again later.", T, None),
    (429, EXHAUSTED, ("You exceeded your current quota, please check your plan and billing "
     "details."), A, None),
    (429, EXHAUSTED, ("Your prepayment credits are depleted. Please go to AI Studio to manage your "
     "project and billing."), A, None),
    (429, EXHAUSTED, ("Your project has exceeded its monthly spending cap. Please go to AI Studio "
     "to manage your project spend cap."), A, None),
    (402, EXHAUSTED, "Your prepayment credits are depleted.", A, None),
    (503, "UNAVAILABLE", "The model is overloaded. Please try again later.", T, None),
    (503, "UNAVAILABLE", "This model is currently experiencing high demand.", T, None),
    (500, "INTERNAL", "An internal error has occurred. Please retry.", T, None),
    (504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete.", T, None),
    (499, "CANCELLED", "The operation was cancelled.", T, None),
    (400, INVALID, "API key not valid. Please pass a valid API key.", A, None),
    (400, INVALID, "API key expired. Please renew the API key.", A, None),
    (401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", A, None),
    (403, "PERMISSION_DENIED", "Your API key was reported as leaked.", A, None),
    (400, "FAILED_PRECONDITION", "User location is not supported for the API use.", A, None),
    (400, "FAILED_PRECONDITION", ("Gemini API free tier is not available in your country. Please "
     "enable billing on your project in Google AI Studio."), A, None),
    (404, "NOT_FOUND", ("models/gemini-9 is not found for API version v1beta, or is not supported "
     "for generateContent."), A, None),
    (404, "NOT_FOUND", "This model is no longer available to new users.", A, None),
    (400, INVALID, ("The input token count (1203400) exceeds the maximum number of tokens allowed "
     "(1048576)."), R, CONTEXT),
    (400, INVALID, ("Unable to submit request because the input token count is 40000 but model "
     "only supports up to 32768. Reduce the input token count and try again."), R, CONTEXT),
    (400, INVALID, "Requests ending with a model turn are not supported.", P, None),
    (400, INVALID, ("Please ensure that multiturn requests ends with a user role or a function "
     "response."), P, None),
    (400, INVALID, ("Invalid JSON payload received. Unknown name \"x\" at 'generation_config': "
     "Cannot find field."), R, None),
    (400, INVALID, "Function call is missing a thought_signature in functionCall parts.", R, None),
]  # fmt: skip


def error(code: int, status: str, message: str, *details: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"code": code, "message": message, "status": status}
    return {"error": said | ({"details": list(details)} if details else {})}


@pytest.mark.parametrize(("code", "status", "message", "verdict", "fault_kind"), CASES)
def test_a_response_a_list_of_one_and_an_error_in_a_stream_are_judged_alike(
    code: int, status: str, message: str, verdict: Verdict, fault_kind: FaultKind | None
) -> None:
    classifier = Classifier(family="gemini")
    said = error(code, status, message)
    response = classifier.response(code, {}, json.dumps(said).encode())
    assert response == classifier.response(code, {}, json.dumps([said]).encode())
    assert response.verdict is verdict
    assert response.kind is (fault_kind or FaultKind.STATUS)
    assert (response.status, response.type) == (code, status)
    inside = classifier.error_object(said)
    assert (inside.verdict, inside.status) == (verdict, code)
    assert inside.kind is (fault_kind or FaultKind.STREAM_ERROR)


def test_a_spent_minute_names_its_wait() -> None:
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36.5s"}
    said = error(429, EXHAUSTED, "You exceeded your current quota.", {"links": []}, retry)
    fault = Classifier(family="gemini").response(429, {}, json.dumps(said).encode())
    assert (fault.verdict, fault.retry_after_s) == (T, 36.5)


def test_a_bad_key_is_told_by_its_reason() -> None:
    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    said = error(400, INVALID, "In words of tomorrow.", reason)
    fault = Classifier(family="gemini").response(400, {}, json.dumps(said).encode())
    assert (fault.verdict, fault.code) == (A, "API_KEY_INVALID")


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("OTHER", T),
        ("MALFORMED_FUNCTION_CALL", T),
        ("UNEXPECTED_TOOL_CALL", T),
        ("PUP_LIMITED_DISABLED", A),
    ],
)
def test_a_finish_that_is_none_is_judged_by_its_word(word: str, verdict: Verdict) -> None:
    fault = Classifier(family="gemini").error_object({"error": {"status": word, "message": "x"}})
    assert (fault.kind, fault.verdict, fault.type) == (FaultKind.STREAM_ERROR, verdict, word)
