"""What no fixture can show of the reader: continuations, figures, ids, bounds, hostile shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.bodies import described, judge

from router.core.events import Done, Event, Failed, Finish, Text, ToolCall, Usage
from router.core.faults import Fault, FaultKind
from router.engine.intake import PROVIDER_TOOLS
from router.providers.base import StreamReader
from router.wire.gemini import GenerateContentReader
from router.wire.gemini.chunks import MAX_CALLS, MAX_CANDIDATES


def reader(*, continuing: bool = False, **bounds: int) -> GenerateContentReader:
    return GenerateContentReader(on_error=judge, continuing=continuing, **bounds)


def run(*pieces: bytes, continuing: bool = False) -> list[Event]:
    subject = reader(continuing=continuing)
    events = [event for piece in pieces for event in subject.feed(piece)]
    return events + subject.close()


def chunk(*parts: dict[str, Any], finish: str = "", **more: object) -> bytes:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    if finish:
        candidate["finishReason"] = finish
    return event({"candidates": [candidate], **more})


def event(obj: object) -> bytes:
    return b"data: " + json.dumps(obj).encode() + b"\r\n\r\n"


def fault_of(events: list[Event]) -> Fault:
    assert isinstance(events[-1], Failed)
    assert sum(isinstance(one, Failed) for one in events) == 1
    return events[-1].fault


def test_is_a_stream_reader() -> None:
    subject: StreamReader = reader()
    assert subject.close() == []


# -- An answer without a word ----------------------------------------------------------------------

SILENT = event({"candidates": [{"content": {"role": "model"}, "finishReason": "STOP"}]})


def test_an_empty_answer_is_a_fault_unless_it_goes_on_with_another() -> None:
    fault = fault_of(run(SILENT))
    assert (fault.kind, fault.code) == (FaultKind.TRUNCATED, "empty_answer")
    assert "STOP" in fault.message
    assert run(SILENT, continuing=True) == [Finish("stop", 0, "STOP"), Done()]


def test_an_empty_answer_that_something_cut_short_is_a_finish() -> None:
    body = event({"candidates": [{"finishReason": "MAX_TOKENS"}]})
    assert run(body) == [Finish("length", 0, "MAX_TOKENS"), Done()]


def test_a_continuation_that_speaks_is_like_any_answer() -> None:
    body = chunk({"text": "rest."}, finish="STOP")
    assert run(body, continuing=True) == run(body)


# -- Figures ---------------------------------------------------------------------------------------


def test_usage_has_the_shape_of_chat_completions() -> None:
    metadata = {
        "promptTokenCount": 100,
        "toolUsePromptTokenCount": 7,
        "cachedContentTokenCount": 64,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30,
        "totalTokenCount": 157,
    }
    (usage,) = run(event({"usageMetadata": metadata, "candidates": []}))
    assert isinstance(usage, Usage)
    assert (usage.input_tokens, usage.output_tokens) == (107, 50)
    assert usage.raw == {
        "prompt_tokens": 107,
        "completion_tokens": 50,
        "total_tokens": 157,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 30},
    }


def test_the_same_usage_is_told_once() -> None:
    metadata = {"promptTokenCount": 5, "candidatesTokenCount": 1}
    events = run(*[chunk({"text": "a"}, usageMetadata=metadata)] * 3)
    assert sum(isinstance(one, Usage) for one in events) == 1


def test_impossible_counts_are_none() -> None:
    (usage,) = run(event({"usageMetadata": {"promptTokenCount": -4, "candidatesTokenCount": "9"}}))
    assert isinstance(usage, Usage)
    assert (usage.input_tokens, usage.output_tokens) == (0, 0)


# -- Calls -----------------------------------------------------------------------------------------

CALL = {"functionCall": {"name": "now", "args": {}}}


def ids(*pieces: bytes) -> list[str]:
    return [one.id for one in run(*pieces) if isinstance(one, ToolCall)]


def test_an_id_that_is_missing_is_made_and_no_two_are_the_same() -> None:
    first = chunk(CALL, CALL, responseId="r-1")
    second = chunk(CALL, CALL, responseId="r-2")
    assert ids(first) == ids(first)
    assert len({*ids(first), *ids(second)}) == 4


def test_more_calls_than_any_answer_has_are_refused() -> None:
    assert len(ids(chunk(*[CALL] * MAX_CALLS))) == MAX_CALLS
    assert fault_of(run(chunk(*[CALL] * (MAX_CALLS + 1)))).kind is FaultKind.MALFORMED


def test_what_shows_that_google_ran_a_tool_has_the_name_that_the_engine_knows() -> None:
    parts = ({"executableCode": {"code": "1"}}, {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB"}})
    for part in parts:
        (shown,) = [one for one in described(run(chunk(part))) if one["kind"] == "Extra"]
        assert PROVIDER_TOOLS.intersection(shown["fields"])
        assert shown["format"] == "gemini"


# -- Bounds and hostile shapes ---------------------------------------------------------------------


def test_events_and_bodies_are_bounded() -> None:
    long = chunk({"text": "x" * 500})
    assert fault_of(reader(max_event_bytes=100).feed(long)).kind is FaultKind.MALFORMED
    body = b"[" + b" " * 200
    assert fault_of(reader(max_body_bytes=100).feed(body)).kind is FaultKind.MALFORMED


def test_candidates_are_bounded() -> None:
    last = {"index": MAX_CANDIDATES - 1, "content": {"parts": [{"text": "a"}]}}
    assert isinstance(run(event({"candidates": [last]}))[0], Text)
    beyond = {**last, "index": MAX_CANDIDATES}
    assert fault_of(run(event({"candidates": [beyond]}))).kind is FaultKind.MALFORMED


def test_nesting_is_bounded() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    for part in ({"functionCall": {"name": "f", "args": {"a": deep}}}, {"other": deep}):
        assert fault_of(run(chunk(part))).kind is FaultKind.MALFORMED


@pytest.mark.parametrize("last", [SILENT, event({"error": {"code": 503}}), b"data: [DONE]\n\n"])
def test_nothing_follows_the_end(last: bytes) -> None:
    subject = reader()
    before = [*subject.feed(last), *subject.close()]
    assert subject.feed(chunk({"text": "late"})) == []
    assert subject.close() == []
    assert sum(isinstance(one, (Failed, Done)) for one in before) == 1


WORDS = (
    *("candidates", "content", "parts", "text", "thought", "functionCall", "name", "args", "id"),
    *("finishReason", "finishMessage", "index", "promptFeedback", "blockReason", "usageMetadata"),
    *("modelVersion", "responseId", "error", "code", "message", "groundingMetadata"),
    *("citationMetadata", "logprobsResult", "chosenCandidates", "topCandidates", "inlineData"),
    *("executableCode", "partialArgs", "willContinue", "candidatesTokenCount"),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.floats()
    | st.sampled_from(["", "STOP", "SAFETY", "OTHER", "x", "\ud83d", "\ude00"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
    ),
    max_leaves=25,
)
LIKELY = st.fixed_dictionaries(
    {"candidates": st.lists(st.dictionaries(st.sampled_from(WORDS), JSON, max_size=4), max_size=2)},
    optional=dict.fromkeys(("usageMetadata", "modelVersion", "promptFeedback", "error"), JSON),
)


@given(st.lists(LIKELY | JSON, max_size=4), st.booleans(), st.booleans())
@example([[{}]], True, False)
def test_any_json_is_read_or_refused(values: list[Any], body: bool, continuing: bool) -> None:
    data = json.dumps(values).encode() if body else b"".join(map(event, values))
    events = run(data, continuing=continuing)
    ends = [at for at, one in enumerate(events) if isinstance(one, (Failed, Done))]
    assert ends in ([], [len(events) - 1])
    for one in events:
        if isinstance(one, (Text, ToolCall)):
            one_text = one.text if isinstance(one, Text) else one.arguments
            one_text.encode()  # no half of a character goes out
    if ends and isinstance(events[-1], Done):
        assert any(isinstance(one, Finish) for one in events)
    half = len(data) // 2
    assert repr(run(data[:half], data[half:], continuing=continuing)) == repr(events)
