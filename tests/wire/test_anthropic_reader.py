"""What no fixture can show of the Messages reader: random streams, bounds, hostile shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bodies import judge

from router.core.events import Done, Event, Extra, Failed, Finish, Opened, Text, ToolCall, Usage
from router.core.faults import FaultKind
from router.providers.base import StreamReader
from router.wire.anthropic.content import MAX_BLOCKS
from router.wire.anthropic.messages import STOP_REASONS
from router.wire.anthropic.reader import MessagesReader
from router.wire.anthropic.tool_input import INVALID_JSON, read_input
from router.wire.anthropic.whole_block import MAX_HELD_CHARS


def reader(**bounds: int) -> MessagesReader:
    return MessagesReader(on_error=judge, **bounds)


def run(*pieces: bytes) -> list[Event]:
    subject = reader()
    events = [event for piece in pieces for event in subject.feed(piece)]
    return events + subject.close()


def event(kind: str, **fields: object) -> bytes:
    data = json.dumps({"type": kind} | fields).encode()
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def start(**message: object) -> bytes:
    return event("message_start", message=message)


def block(index: int, kind: str, **fields: object) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind} | fields)


def delta(index: int, kind: str, **fields: object) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind} | fields)


def stop(index: int) -> bytes:
    return event("content_block_stop", index=index)


def finish(reason: str, **usage: object) -> bytes:
    return event("message_delta", delta={"stop_reason": reason}, usage=usage)


def malformed(events: list[Event]) -> str:
    assert isinstance(events[-1], Failed)
    assert sum(isinstance(one, Failed) for one in events) == 1
    assert events[-1].fault.kind is FaultKind.MALFORMED
    return events[-1].fault.message


def test_is_a_stream_reader() -> None:
    subject: StreamReader = reader()
    assert subject.close() == []


WORDS = st.sampled_from(
    [
        *("type", "index", "delta", "content_block", "message", "text", "thinking", "input", "id"),
        *(
            "name",
            "partial_json",
            "signature",
            "citation",
            "usage",
            "stop_reason",
            "error",
            "model",
        ),
        *("content", "input_tokens", "output_tokens", "stop_sequence", "citations"),
    ]
)
KINDS = st.sampled_from(
    [
        *("text", "thinking", "tool_use", "server_tool_use", "redacted_thinking", "text_delta"),
        *("thinking_delta", "input_json_delta", "signature_delta", "citations_delta", "other"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 4) | st.text(max_size=5) | KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
PARTS = st.fixed_dictionaries({"type": KINDS | JSON}, optional={"text": JSON, "input": JSON})
EVENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                *("message_start", "content_block_start", "content_block_delta", "message_delta"),
                *("content_block_stop", "message_stop", "message", "ping", "error", "tomorrow"),
            ]
        ),
    },
    optional={
        "index": st.integers(0, 3) | JSON,
        "content_block": PARTS | JSON,
        "delta": PARTS | JSON,
        "message": JSON,
        "content": st.lists(PARTS, max_size=3) | JSON,
        "usage": JSON,
    },
)
ITEMS = st.one_of(
    EVENTS.map(lambda one: f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode()),
    (EVENTS | JSON).map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n"),
    (EVENTS | JSON).map(lambda value: json.dumps(value).encode() + b"\n"),
    st.sampled_from(
        [b": c\n", b"event: error\n", b"event: content_block_delta\n", b"data: [DONE]"]
    ),
    st.binary(max_size=6),
)


@given(st.lists(ITEMS, max_size=8).map(b"".join), st.data())
def test_any_bytes_in_any_cut_never_raise_and_agree(body: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    events = run(body)
    assert run(*pieces) == events
    ends = [place for place, one in enumerate(events) if isinstance(one, Failed | Done)]
    assert ends in ([], [len(events) - 1])


@given(st.lists(st.text(st.characters(codec=None), min_size=1, max_size=6), max_size=8))
def test_text_comes_out_as_it_went_in(texts: list[str]) -> None:
    """Halves of a surrogate pair meet over any cut; a half that stays alone becomes U+FFFD."""
    body = block(0, "text") + b"".join(delta(0, "text_delta", text=text) for text in texts)
    got = "".join(one.text for one in run(body + finish("end_turn")) if isinstance(one, Text))
    units = "".join(texts).encode("utf-16-le", "surrogatepass")
    assert got == units.decode("utf-16-le", "replace")


def test_events_come_with_the_feed_that_completes_them() -> None:
    subject = reader()
    whole = start(model="m") + block(0, "text") + delta(0, "text_delta", text="a")
    assert subject.feed(whole[:-1]) == [Opened("m")]
    assert subject.feed(whole[-1:]) == [Text("a")]
    assert subject.feed(delta(0, "text_delta", text="b")) == [Text("b")]


def test_nothing_follows_the_end() -> None:
    for end in (event("message_stop"), event("error", error={"message": "x"}), b"data: {\n\n"):
        subject = reader()
        subject.feed(block(0, "text"))
        assert len(subject.feed(end + delta(0, "text_delta", text="b"))) == 1
        assert subject.feed(delta(0, "text_delta", text="c")) == []
        assert subject.close() == []


def test_every_stop_reason_of_the_format_is_known() -> None:
    from typing import get_args  # noqa: PLC0415

    from anthropic.types.beta import BetaStopReason  # noqa: PLC0415 - slow import

    assert set(STOP_REASONS) == set(get_args(BetaStopReason))


# Usage, in the shape of chat completions


def usages(*reports: dict[str, Any]) -> list[Usage]:
    first, *rest = reports
    body = start(usage=first) + b"".join(event("message_delta", usage=one) for one in rest)
    return [one for one in run(body) if isinstance(one, Usage)]


def test_usage_is_in_the_shape_of_chat_completions() -> None:
    [usage] = usages(
        {
            "input_tokens": 5,
            "cache_read_input_tokens": 1000,
            "cache_creation_input_tokens": 100,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 4},
            "server_tool_use": {"web_search_requests": 1},
            "service_tier": None,
        }
    )
    assert usage == Usage(
        1105,
        9,
        {
            "prompt_tokens": 1105,
            "completion_tokens": 9,
            "total_tokens": 1114,
            "prompt_tokens_details": {"cached_tokens": 1000, "cache_creation_tokens": 100},
            "completion_tokens_details": {"reasoning_tokens": 4},
            "server_tool_use": {"web_search_requests": 1},
        },
    )


def test_usage_is_cumulative() -> None:
    first, second = usages(
        {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 1},
        {"output_tokens": 7, "input_tokens": 0, "cache_read_input_tokens": None},
    )
    assert (first.input_tokens, first.output_tokens) == (8, 1)
    assert (second.input_tokens, second.output_tokens) == (8, 7)
    assert second.raw["prompt_tokens_details"] == {"cached_tokens": 3}


def test_the_same_usage_again_is_no_news() -> None:
    assert len(usages({"input_tokens": 5}, {"input_tokens": 5}, {})) == 1


@pytest.mark.parametrize("count", [-1, True, "7", float("inf"), float("nan"), [7]])
def test_a_count_that_is_none_is_passed_over(count: object) -> None:
    assert usages({"input_tokens": count, "output_tokens": 2}) == [
        Usage(0, 2, {"prompt_tokens": 0, "completion_tokens": 2, "total_tokens": 2})
    ]


# A tool's input


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        (" ", {}),
        ('{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        ('{"a": 1, "b": "br', {"a": 1}),
        ('{"a": 1, "b": {"c": 2, "d', {"a": 1, "b": {"c": 2}}),
        ('{"a": 12', {}),  # it may have been 123
        ('{"a": b}', {INVALID_JSON: '{"a": b}'}),
        ("ls -la", {INVALID_JSON: "ls -la"}),
        ('"\ud83d"', "\ufffd"),
        ("[" * 200 + "]" * 200, {INVALID_JSON: "[" * 200 + "]" * 200}),
    ],
)
def test_an_input_is_read_as_far_as_it_is_whole(text: str, value: object) -> None:
    assert read_input(text) == value


def test_arguments_pass_as_they_come() -> None:
    body = block(0, "tool_use", id="a", name="f", input={}) + delta(
        0, "input_json_delta", partial_json='{"x": 1e'
    )
    assert run(body) == [ToolCall(0, "a", "f"), ToolCall(0, arguments='{"x": 1e')]


# Bounds and hostile shapes

DEEP: Any = json.loads("[" * 100 + "]" * 100)


@pytest.mark.parametrize(
    "body",
    [
        b"data: " + b"[" * 20_000 + b"]" * 20_000 + b"\n\n",
        b"data: 5\n\n",
        b'data: {"type": ["text"]}\n\n',
        b'{"type": ["text"]}\n',
        event("message_start", message=5),
        start(content=5),
        start(content=[5]),
        start(usage={"x": DEEP}),
        event("content_block_start", index=0),
        event("content_block_start", index=0, content_block={"type": 5}),
        block(-1, "text"),
        event("content_block_start", index="0", content_block={"type": "text"}),
        event("content_block_start", index=True, content_block={"type": "text"}),
        block(MAX_BLOCKS, "text"),
        block(0, "text") + event("content_block_delta", index=0, delta=5),
        block(0, "text") + event("content_block_delta", index=[0], delta={"text": "x"}),
        event("content_block_delta", delta={"text": "x"}),
        event("content_block_stop", index={}),
        block(0, "thinking", thinking=5),
        block(0, "thinking", signature=DEEP),
        block(0, "tool_use", input=DEEP),
        block(0, "tool_use", input=5),
        block(0, "tool_use", caller=DEEP),
        block(0, "tool_use") + delta(0, "input_json_delta", partial_json=5),
        block(0, "text") + delta(0, "citations_delta", citation=DEEP),
        block(0, "redacted_thinking", data=DEEP) + stop(0),
        event("message_delta", delta=5),
        event("message_delta", delta={"stop_details": DEEP}),
    ],
)
def test_what_may_have_held_text_is_malformed(body: bytes) -> None:
    events = run(body, finish("end_turn"))
    malformed(events)
    assert not any(isinstance(one, Finish) for one in events)


@pytest.mark.parametrize("kind", ["input_json_delta", "note_delta"])
def test_a_block_that_is_held_has_a_bound(kind: str) -> None:
    field = "partial_json" if kind == "input_json_delta" else "note"
    piece = delta(0, kind, **{field: "x" * (MAX_HELD_CHARS // 2)})
    subject = reader()
    assert subject.feed(block(0, "server_tool_use") + piece * 2) == []
    assert "larger than" in malformed(subject.feed(piece))


def test_a_held_block_costs_no_more_than_its_size() -> None:
    """Pieces are joined once: as many as there may be take no noticeable time."""
    piece = delta(0, "note_delta", note="x" * 10)
    body = block(0, "sketch") + piece * 50_000 + stop(0)
    [extra] = run(body)
    assert isinstance(extra, Extra)
    assert len(extra.fields["sketch"]["note"]) == 500_000


def test_bounds_on_events_and_bodies() -> None:
    subject = reader(max_event_bytes=1000)
    subject.feed(block(0, "text"))
    malformed(subject.feed(delta(0, "text_delta", text="x" * 1000)))
    subject = reader(max_body_bytes=1000)
    malformed(subject.feed(b'{"type": "message", "content": "' + b"x" * 1000))
