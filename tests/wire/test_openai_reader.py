"""What no fixture can show of the reader: random streams, bounds, hostile shapes, timing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.events import Done, Event, Failed, Finish, Opened, Text, ToolCall, Usage
from router.core.faults import Fault, FaultKind, Verdict
from router.providers.base import StreamReader
from router.wire.openai import ChatStreamReader
from router.wire.openai.chunks import MAX_CHOICES
from router.wire.openai.toolcalls import MAX_HELD_CHARS, MAX_TOOL_CALLS


def judge(said: Mapping[str, Any]) -> Fault:
    return Fault(kind=FaultKind.STREAM_ERROR, verdict=Verdict.ACCOUNT, message=str(said["error"]))


def reader(**bounds: int) -> ChatStreamReader:
    return ChatStreamReader(on_error=judge, **bounds)


def run(*pieces: bytes) -> list[Event]:
    subject = reader()
    events = [event for piece in pieces for event in subject.feed(piece)]
    return events + subject.close()


def chunk(delta: object, finish: object = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def call(**fields: object) -> bytes:
    return chunk({"tool_calls": [fields]})


def fault_of(events: list[Event]) -> Fault:
    assert isinstance(events[-1], Failed)
    assert sum(isinstance(event, Failed) for event in events) == 1
    return events[-1].fault


def test_is_a_stream_reader() -> None:
    subject: StreamReader = reader()
    assert subject.close() == []


DELTA_WORDS = (
    *("choices", "delta", "message", "content", "role", "tool_calls", "function", "name"),
    *("arguments", "id", "index", "finish_reason", "error", "usage", "reasoning_content"),
    *("text", "type", "model", "function_call", "reasoning_details", "refusal", "x_groq"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.just("stop"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "content",
                    "role",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "id",
                    "index",
                    "finish_reason",
                    "error",
                    "usage",
                    "reasoning_content",
                    "text",
                    "type",
                    "model",
                    "function_call",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
CHUNKS = st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"delta": JSON, "finish_reason": JSON}), max_size=2)}
)
ITEMS = st.one_of(
    (CHUNKS | JSON).map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n"),
    (CHUNKS | JSON).map(lambda value: json.dumps(value).encode() + b"\n"),
    st.sampled_from([b": c\n", b"event: error\n", b"data: [DONE]\r\r", b"error: x\n", b"<p>\n"]),
    st.binary(max_size=6),
)


@given(st.lists(ITEMS, max_size=8).map(b"".join), st.data())
def test_any_bytes_in_any_cut_never_raise_and_agree(body: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    events = run(body)
    assert run(*pieces) == events
    ends = [place for place, event in enumerate(events) if isinstance(event, Failed | Done)]
    assert ends in ([], [len(events) - 1])


@given(st.lists(st.text(st.characters(codec=None), min_size=1, max_size=6), max_size=8))
def test_text_comes_out_as_it_went_in(texts: list[str]) -> None:
    """Halves of a surrogate pair meet over any cut; a half that stays alone becomes U+FFFD."""
    body = b"".join(chunk({"content": text}) for text in texts) + chunk({}, "stop")
    got = "".join(event.text for event in run(body) if isinstance(event, Text))
    units = "".join(texts).encode("utf-16-le", "surrogatepass")
    assert got == units.decode("utf-16-le", "replace")


def test_halves_of_a_character_meet_in_arguments_too() -> None:
    body = (
        call(index=0, id="a", function={"name": "f", "arguments": '"\ud83d'})
        + call(index=0, function={"arguments": '\ude00"'})
        + chunk({}, "tool_calls")
    )
    calls = [event for event in run(body) if isinstance(event, ToolCall)]
    assert "".join(event.arguments for event in calls) == '"\U0001f600"'


def test_a_waiting_half_is_not_given_without_a_finish() -> None:
    assert run(chunk({"content": "a\ud83d"})) == [Text("a")]


def test_nothing_follows_a_failure_or_done() -> None:
    for end in (b'data: {"error": "x"}\n\n', b"data: [DONE]\n\n", b"data: {\n\n"):
        subject = reader()
        subject.feed(chunk({"content": "a"}))
        assert len(subject.feed(end + chunk({"content": "b"}))) == 1
        assert subject.feed(chunk({"content": "c"})) == []
        assert subject.close() == []


def test_events_come_with_the_feed_that_completes_them() -> None:
    subject = reader()
    whole = chunk({"content": "a"}, model="m")
    assert subject.feed(whole[:-1]) == []
    assert subject.feed(whole[-1:]) == [Opened("m"), Text("a")]
    assert subject.feed(chunk({"content": "b"}, model="other")) == [Text("b")]


def test_an_error_line_ends_the_stream_before_the_body_ends() -> None:
    subject = reader()
    assert fault_of(subject.feed(b'{"error": "full"}\n')).message == "full"
    subject = reader()
    subject.feed(chunk({"content": "a"}))
    assert fault_of(subject.feed(b'{"error": "full"}\n')).verdict is Verdict.ACCOUNT


def test_usage_keeps_the_providers_own_object() -> None:
    usage = {"prompt_tokens": 5.0, "completion_tokens": None, "details": {"cached": 1}}
    events = run(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
    assert events == [Usage(5, 0, usage)]
    other = {"input_tokens": 1, "output_tokens": 2}
    assert run(b"data: " + json.dumps({"usage": other}).encode() + b"\n\n") == [Usage(1, 2, other)]


def test_infinite_log_probabilities_are_let_in() -> None:
    body = b'data: {"choices":[{"delta":{"content":"a"},"logprobs":{"content":[-Infinity]}}]}\n\n'
    assert run(body) == [Text("a", logprobs={"content": [float("-inf")]})]


DEEP = b"[" * 20_000 + b"]" * 20_000


@pytest.mark.parametrize(
    "event",
    [
        chunk("text"),
        chunk({"content": 5}),
        chunk({"content": [5]}),
        chunk({"tool_calls": [5]}),
        chunk({"tool_calls": [{"function": []}, {"function": 5}]}),
        chunk({"tool_calls": [{"function": {"name": "f", "arguments": 5}}]}),
        b'data: {"choices": {"0": 1}}\n\n',
        b'data: {"choices": [1]}\n\n',
        b'data: {"choices": [{"index": "x"}]}\n\n',
        b'data: {"choices": [{"index": -1}]}\n\n',
        b'data: {"choices": [{"index": %d}]}\n\n' % MAX_CHOICES,
        b'data: "text"\n\n',
        b"data: 5\n\n",
        b"data: " + DEEP + b"\n\n",
        chunk({"x": json.loads(b"[" * 40 + b"]" * 40)}),
        b'data: {"choices": [], "usage": {"x": %b}}\n\n' % (b"[" * 40 + b"]" * 40),
        chunk({"tool_calls": [{"function": {"name": "f", "arguments": [[[]]] * 3}}]})
        + chunk({"tool_calls": "x"}),
        b"<html>\n",
        b"Internal Server Error\n",
    ],
)
def test_what_may_have_held_text_is_malformed(event: bytes) -> None:
    events = run(chunk({"content": "a"}), event, chunk({}, "stop"))
    assert fault_of(events).kind is FaultKind.MALFORMED
    assert not any(isinstance(event, Finish) for event in events)


def test_a_single_line_beyond_the_bound() -> None:
    subject = reader(max_event_bytes=1000)
    events = subject.feed(chunk({"content": "a"}) + b"data: " + b"x" * 500)
    assert events == [Text("a")]
    assert fault_of(subject.feed(b"x" * 600)).kind is FaultKind.MALFORMED
    assert subject.feed(b"x" * 600) == []


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("body", [b'{"x": "' + b"x" * 5000, b"{\n" + b" " * 5000, b"[" * 5000])
def test_a_json_body_beyond_the_bound(body: bytes, size: int) -> None:
    subject = reader(max_body_bytes=1000)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    events = [event for piece in pieces for event in subject.feed(piece)] + subject.close()
    assert fault_of(events).kind is FaultKind.MALFORMED


def test_endless_white_space_is_not_kept() -> None:
    subject = reader(max_body_bytes=100, max_event_bytes=100)
    for _ in range(100):
        assert subject.feed(b"\r\n" * 50) == []
    assert subject.feed(chunk({"content": "a"})) == [Text("a")]


def test_too_many_tool_calls() -> None:
    body = b"".join(
        call(index=number, id=str(number), function={"name": "f"})
        for number in range(MAX_TOOL_CALLS + 1)
    )
    assert fault_of(run(body)).kind is FaultKind.MALFORMED


def test_arguments_that_never_get_a_name() -> None:
    piece = call(index=0, id="a", function={"arguments": "x" * (MAX_HELD_CHARS // 2)})
    assert run(piece) == []
    assert fault_of(run(piece * 3)).kind is FaultKind.MALFORMED


def test_a_call_without_a_name_is_given_at_the_finish() -> None:
    body = call(index=0, id="a", function={"arguments": "{}x"}) + chunk({}, "tool_calls")
    assert run(body)[0] == ToolCall(0, "a", "", "{}x")
