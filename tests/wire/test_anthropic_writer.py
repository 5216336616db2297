"""What a client of Messages reads: the stream's order, the blocking answer, and the real SDK."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.events import (
    Done,
    Event,
    Extra,
    Failed,
    Finish,
    FinishReason,
    Opened,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Usage,
)
from router.core.faults import Fault, FaultKind
from router.core.request import Format
from router.errors import MalformedStream
from router.wire.anthropic import (
    PING,
    MessageFold,
    MessagesReader,
    MessageWriter,
    error_object,
    error_type,
)
from router.wire.anthropic.sequence import MAX_HELD_CHARS
from router.wire.anthropic.signature import is_unsigned, unsigned_signature
from router.wire.jsontext import dumps

USAGE = {
    "prompt_tokens": 1105,
    "completion_tokens": 9,
    "total_tokens": 1114,
    "prompt_tokens_details": {"cached_tokens": 1000, "cache_creation_tokens": 100},
    "completion_tokens_details": {"reasoning_tokens": 4},
}
ROUTER = {"stream_id": "s", "outcome": "completed"}
UNSIGNED = {"type": "signature_delta", "signature": unsigned_signature()}


def writer() -> MessageWriter:
    return MessageWriter(message_id="msg_7", fallback_model="chat")


def fold() -> MessageFold:
    return MessageFold(message_id="msg_7", fallback_model="chat")


def own(**fields: object) -> Extra:
    return Extra(dict(fields), format=Format.ANTHROPIC)


def signed(signature: str) -> Extra:
    return own(signature_delta={"type": "signature_delta", "signature": signature})


def cited(source: str) -> Extra:
    citation = {"type": "char_location", "cited_text": source}
    return own(citations_delta={"type": "citations_delta", "citation": citation})


def parsed(data: bytes) -> list[dict[str, Any]]:
    """Parse as strictly as the contract is: a name, one line of data, and both say the same."""
    assert data == b"" or data.endswith(b"\n\n")
    events = []
    for event in data.decode().split("\n\n")[:-1]:
        name, line = event.split("\n")
        assert name.startswith("event: ")
        assert line.startswith("data: ")
        events.append(json.loads(line[6:]))
        assert events[-1]["type"] == name[7:]
    return events


def said(*events: Event) -> list[dict[str, Any]]:
    """The stream of an answer with these events, without its beginning and its end."""
    one = writer()
    data = one.write(events) + one.finish([Finish("stop")], None, None)
    first, *between, delta, last = parsed(data)
    assert (first["type"], delta["type"]) == ("message_start", "message_delta")
    assert last == {"type": "message_stop"}
    return between


def shape(*events: Event) -> list[tuple[Any, ...]]:
    """The same, shortened: starts by the block's type, deltas by what they say, stops."""
    out: list[tuple[Any, ...]] = []
    for event in said(*events):
        if event["type"] == "content_block_start":
            out.append((event["index"], event["content_block"]["type"]))
        elif event["type"] == "content_block_delta":
            out.append((event["index"], *list(event["delta"].values())[1:]))
        else:
            out.append((event["index"],))
    return out


def test_the_stream_of_a_short_answer() -> None:
    one = writer()
    assert parsed(one.write([Opened("claude"), Text("Hi")])) == [
        {
            "type": "message_start",
            "message": {
                "id": "msg_7",
                "type": "message",
                "role": "assistant",
                "model": "claude",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 0, "output_tokens": 0},
            },
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Hi"},
        },
    ]
    assert parsed(one.write([Text("!"), Refusal("no")])) == [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        for text in ("!", "no")
    ]
    assert parsed(one.finish([Finish("stop")], USAGE, ROUTER)) == [
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {
                "input_tokens": 5,
                "output_tokens": 9,
                "cache_creation_input_tokens": 100,
                "cache_read_input_tokens": 1000,
                "output_tokens_details": {"thinking_tokens": 4},
            },
            "router": ROUTER,
        },
        {"type": "message_stop"},
    ]


def test_a_change_of_kind_begins_the_next_block() -> None:
    assert shape(
        Reasoning("Hm"),
        Reasoning("."),
        signed("QQ=="),
        Text("I look."),
        ToolCall(0, "a", "f", '{"x"'),
        ToolCall(0, arguments=":1}"),
        ToolCall(1, "b", "g", "{}"),
        Text("Done."),
    ) == [
        (0, "thinking"),
        (0, "Hm"),
        (0, "."),
        (0, "QQ=="),
        (0,),
        (1, "text"),
        (1, "I look."),
        (1,),
        (2, "tool_use"),
        (2, '{"x"'),
        (2, ":1}"),
        (2,),
        (3, "tool_use"),
        (3, "{}"),
        (3,),
        (4, "text"),
        (4, "Done."),
        (4,),
    ]


def test_the_start_of_a_call() -> None:
    events = said(own(tool_use={"id": "a", "caller": {"type": "direct"}}), ToolCall(0, "a", "f"))
    assert events == [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {
                "type": "tool_use",
                "id": "a",
                "name": "f",
                "input": {},
                "caller": {"type": "direct"},
            },
        },
        {"type": "content_block_stop", "index": 0},
    ]


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    events = said(ToolCall(0, "", "f", "{}"), ToolCall(1, "", "g", "{}"))
    ids = [event["content_block"]["id"] for event in events if "content_block" in event]
    assert ids == ["toolu_7_0", "toolu_7_1"]


# Thoughts that nobody signed


def test_a_thought_of_another_format_bears_the_mark() -> None:
    mark = (0, unsigned_signature())
    assert shape(Reasoning("a"), Text("b"))[:4] == [(0, "thinking"), (0, "a"), mark, (0,)]
    assert shape(Reasoning("a")) == [(0, "thinking"), (0, "a"), mark, (0,)]
    whole = fold()
    whole.add([Reasoning("a"), Text("b")])
    assert is_unsigned(whole.message()["content"][0])


def test_the_next_attempt_does_not_go_on_in_a_thought_of_the_last() -> None:
    assert shape(Opened("m"), Reasoning("a"), Opened("n"), Reasoning("b"), signed("QQ==")) == [
        (0, "thinking"),
        (0, "a"),
        (0, unsigned_signature()),
        (0,),
        (1, "thinking"),
        (1, "b"),
        (1, "QQ=="),
        (1,),
    ]


def test_the_next_attempt_goes_on_in_the_text_of_the_last() -> None:
    assert shape(Opened("m"), Text("a"), Opened("n"), Text("b")) == [
        (0, "text"),
        (0, "a"),
        (0, "b"),
        (0,),
    ]


SEALED = {"type": "redacted_thinking", "data": "QQ=="}


@pytest.mark.parametrize(
    "thought",
    [
        [Reasoning("b"), Reasoning("c"), signed("QQ==")],
        [signed("QQ==")],
        [own(redacted_thinking=SEALED)],
        [Usage(1, 2, {}), Reasoning("b"), Extra({"x": {}}), signed("QQ==")],
    ],
)
def test_what_the_next_attempt_thinks_does_not_break_the_text(thought: list[Event]) -> None:
    events = [Opened("m"), Text("a"), Opened("n"), *thought, Text("d"), Text("e")]
    assert shape(*events) == [(0, "text"), (0, "a"), (0, "d"), (0, "e"), (0,)]
    whole = fold()
    whole.add(events)
    assert whole.message()["content"] == [{"type": "text", "text": "ade"}]


def test_what_it_thinks_after_its_first_word_is_shown() -> None:
    call = ToolCall(0, "t", "f", "{}")
    begun: list[Event] = [Opened("m"), Text("a"), Opened("n"), Reasoning("x")]
    for first in (Text("b"), Refusal("b")):
        said = shape(*begun, first, Reasoning("c"), call)
        assert said[2:6] == [(0, "b"), (0,), (1, "thinking"), (1, "c")]
    assert (2, "thinking") in shape(*begun, call, Reasoning("c"))


def test_while_it_thinks_in_silence_the_client_sees_that_it_lives() -> None:
    one = writer()
    assert PING not in one.write([Opened("m"), Reasoning("x"), signed("QQ=="), Text("a")])
    assert one.write([Opened("n")]) == b""
    assert one.write([Reasoning("b"), Reasoning("c")]) == PING
    assert one.write([signed("QQ==")]) == b""
    assert PING not in one.write([Reasoning("b"), Text("d")])
    assert PING not in one.write([Reasoning("c")])


def test_a_signature_alone_is_a_thought_that_is_not_shown() -> None:
    assert shape(signed("QQ=="), signed("Qg=="), Text("a")) == [
        (0, "thinking"),
        (0, "QQ=="),
        (0,),
        (1, "thinking"),
        (1, "Qg=="),
        (1,),
        (2, "text"),
        (2, "a"),
        (2,),
    ]


# What only this format can say


def test_citations_stand_in_their_own_text() -> None:
    mark = own(text={})
    citation = cited("t").fields["citations_delta"]["citation"]
    assert shape(Text("a "), mark, Text("b"), cited("t"), mark, Text(".")) == [
        (0, "text"),
        (0, "a "),
        (0,),
        (1, "text"),
        (1, "b"),
        (1, citation),
        (1,),
        (2, "text"),
        (2, "."),
        (2,),
    ]


def test_blocks_that_are_passed_on_whole() -> None:
    use = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    sealed = {"type": "redacted_thinking", "data": "QQ=="}
    events = said(
        own(redacted_thinking=sealed), own(server_tool_use=use), own(web_search_tool_result=found)
    )
    started = [event["content_block"] for event in events if "content_block" in event]
    assert started == [sealed, use | {"input": {}}, found]
    [delta] = [event["delta"] for event in events if "delta" in event]
    assert delta == {"type": "input_json_delta", "partial_json": '{"q":1}'}


def test_fields_of_another_format_are_not_for_this_client() -> None:
    assert said(Extra({"annotations": [1]}), Extra({"signature_delta": {}})) == []


def test_the_end_says_what_else_the_provider_said() -> None:
    told = {"delta": {"stop_details": {"type": "refusal"}}, "context_management": {"edits": []}}
    one, whole = writer(), fold()
    events: list[Event] = [Text("a"), own(message_delta=told)]
    ends = ([Finish("content_filter", raw="refusal")], None, None)
    one.write(events)
    whole.add(events)
    [delta] = [e for e in parsed(one.finish(*ends)) if e["type"] == "message_delta"]
    assert delta["delta"] == {
        "stop_reason": "refusal",
        "stop_sequence": None,
        "stop_details": {"type": "refusal"},
    }
    assert delta["context_management"] == {"edits": []}
    result = whole.result(*ends)
    assert result["stop_details"] == {"type": "refusal"}
    assert result["context_management"] == {"edits": []}


# Calls whose pieces come mixed


def test_a_second_call_waits_for_the_first() -> None:
    one = writer()
    one.write([ToolCall(0, "a", "f", '{"x"')])
    assert one.write([ToolCall(1, "b", "g", '{"y"'), Text("and")]) == b""
    got = parsed(one.write([ToolCall(0, arguments=":1}")]))
    assert [event["type"] for event in got] == [
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
    ]
    assert got[2]["content_block"]["id"] == "b"
    assert one.write([ToolCall(2, "c", "h", "{}")]) == b""
    rest = parsed(one.write([ToolCall(1, arguments=":2}")]))
    assert [event["content_block"]["type"] for event in rest if "content_block" in event] == [
        "text",
        "tool_use",
    ]


def test_calls_that_come_one_after_the_other_wait_for_nothing() -> None:
    one = writer()
    for index in range(3):
        got = parsed(one.write([ToolCall(index, str(index), "f", '{"x":')]))
        assert got[-1]["delta"]["partial_json"] == '{"x":'
        assert parsed(one.write([ToolCall(index, arguments="1}")]))


def test_what_waits_is_said_at_the_end_of_the_answer() -> None:
    assert shape(ToolCall(0, "a", "f", '{"x'), Text("b"), ToolCall(1, "c", "g", "no JSON")) == [
        (0, "tool_use"),
        (0, '{"x'),
        (0,),
        (1, "text"),
        (1, "b"),
        (1,),
        (2, "tool_use"),
        (2, "no JSON"),
        (2,),
    ]


def test_arguments_that_are_no_json_are_never_taken_for_whole() -> None:
    one = writer()
    one.write([ToolCall(0, "a", "f", "{]")])
    assert one.write([Text("b")]) == b""
    assert len(parsed(one.write([ToolCall(0, arguments="{}")]))) == 1
    assert one.write([Text("c")]) == b""


def test_more_than_the_bound_does_not_wait() -> None:
    one = writer()
    one.write([ToolCall(0, "a", "f", "{")])
    one.write([Text("x" * (MAX_HELD_CHARS // 2))])
    with pytest.raises(MalformedStream, match="wait"):
        one.write([Text("x" * (MAX_HELD_CHARS // 2))])


def test_long_arguments_are_followed_without_being_kept() -> None:
    one = writer()
    one.write([ToolCall(0, "a", "f", '{"x": "')])
    for _ in range(5):
        one.write([ToolCall(0, arguments="x" * (MAX_HELD_CHARS // 2))])
    one.write([ToolCall(0, arguments='"}')])
    assert b"tool_use" in one.write([ToolCall(1, "b", "g", "{}")])


def test_a_call_that_goes_on_behind_its_end_is_an_error() -> None:
    one = writer()
    one.write([ToolCall(0, "a", "f", "{}"), Text("b"), ToolCall(0, arguments=" \n")])
    with pytest.raises(MalformedStream, match="goes on"):
        one.write([ToolCall(0, arguments="{}")])


# The end

FULL_WINDOW = "model_context_window_exceeded"


@pytest.mark.parametrize(
    ("finish", "reason", "sequence"),
    [
        (Finish("stop"), "end_turn", None),
        (Finish("stop", raw="stop"), "end_turn", None),
        (Finish("stop", raw="stop", matched="END"), "stop_sequence", "END"),
        (Finish("stop", raw="stop_sequence", matched="END"), "stop_sequence", "END"),
        (Finish("length"), "max_tokens", None),
        (Finish("length", raw="length"), "max_tokens", None),
        (Finish("length", raw="pause_turn"), "pause_turn", None),
        (Finish("length", raw=FULL_WINDOW), FULL_WINDOW, None),
        (Finish("tool_calls"), "tool_use", None),
        (Finish("tool_calls", raw="end_turn"), "tool_use", None),
        (Finish("function_call"), "tool_use", None),
        (Finish("content_filter", raw="SAFETY"), "refusal", None),
        (Finish("stop", raw="a_word_of_tomorrow"), "end_turn", None),
    ],
)
def test_stop_reasons(finish: Finish, reason: str, sequence: str | None) -> None:
    [delta] = [e for e in parsed(writer().finish([finish], None, None)) if "delta" in e]
    assert delta["delta"] == {"stop_reason": reason, "stop_sequence": sequence}
    result = fold().result([finish], None, None)
    assert (result["stop_reason"], result["stop_sequence"]) == (reason, sequence)


def test_of_several_finishes_the_last_one_counts_and_other_choices_do_not() -> None:
    finishes = [Finish("stop"), Finish("length"), Finish("tool_calls", 1)]
    assert fold().result(finishes, None, None)["stop_reason"] == "max_tokens"


def test_an_empty_answer_is_a_whole_message() -> None:
    events = parsed(writer().finish([Finish("stop")], None, None))
    assert [event["type"] for event in events] == ["message_start", "message_delta", "message_stop"]
    assert events[1]["usage"] == {"input_tokens": 0, "output_tokens": 0}
    assert fold().result([Finish("stop")], None, None)["content"] == []


def test_no_success_without_a_finish() -> None:
    for finishes in ([], [Finish("stop", 1)]):
        with pytest.raises(ValueError, match="without a finish"):
            writer().finish(finishes, None, None)
        with pytest.raises(ValueError, match="without a finish"):
            fold().result(finishes, None, None)


def test_a_count_that_makes_no_sense_is_none() -> None:
    odd = {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}, "total_tokens": "x"}
    usage = fold().result([Finish("stop")], odd, None)["usage"]
    assert usage == {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 9}


def test_metadata_is_told_at_the_end_only() -> None:
    one, whole = writer(), fold()
    data = one.write([Text("a")]) + one.finish([Finish("stop")], None, ROUTER)
    assert [e["type"] for e in parsed(data) if "router" in json.dumps(e)] == ["message_delta"]
    assert whole.result([Finish("stop")], None, ROUTER)["router"] == ROUTER
    assert "router" not in whole.result([Finish("stop")], None, None)


def test_an_error_is_alone() -> None:
    body = error_object("It broke.", type="api_error", code="stream_interrupted", router=ROUTER)
    assert body == {
        "type": "error",
        "error": {
            "type": "api_error",
            "message": "It broke.",
            "code": "stream_interrupted",
            "router": ROUTER,
        },
    }
    assert parsed(writer().error(body)) == [body]
    assert parsed(writer().error(body["error"])) == [body]
    assert error_object("x", type="y", param="messages[0]")["error"]["param"] == "messages[0]"


def test_the_words_for_errors_are_the_formats_own() -> None:
    from typing import get_args  # noqa: PLC0415

    from anthropic.types.shared import ErrorType  # noqa: PLC0415 - slow import

    words = {error_type(status) for status in range(400, 600)}
    assert words - {"request_too_large"} <= set(get_args(ErrorType))
    assert (error_type(400), error_type(422)) == ("invalid_request_error",) * 2
    assert (error_type(401), error_type(429)) == ("authentication_error", "rate_limit_error")
    assert (error_type(500), error_type(529)) == ("api_error", "overloaded_error")


def test_what_is_not_for_the_client_writes_nothing() -> None:
    fault = Fault(kind=FaultKind.CUT)
    silent: list[Event] = [Opened("m"), Usage(1, 2, {}), Finish("stop"), Done(), Failed(fault)]
    assert writer().write([*silent, Text("a", 1), Text("b", 1), ToolCall(0, choice=1)]) == b""
    one = writer()
    one.write([Text("a")])
    assert one.write([Text("b", 1)]) == b""


def test_the_model_is_frozen_by_the_first_block() -> None:
    cases: list[tuple[list[Event], str]] = [
        ([Text("a"), Opened("late")], "chat"),
        ([Opened("first"), Opened("second"), Text("a")], "first"),
    ]
    for events, model in cases:
        one, whole = writer(), fold()
        whole.add(events)
        assert parsed(one.write(events))[0]["message"]["model"] == model
        assert whole.result([Finish("stop")], None, None)["model"] == model


NASTY = 'a\ud83d"\n\r\u2028\u2029\x85\\'
MENDED = 'a\ufffd"\n\r\u2028\u2029\x85\\'


@pytest.mark.parametrize(
    ("event", "path"),
    [(Text(NASTY), "text"), (Reasoning(NASTY), "thinking"), (Refusal(NASTY), "text")],
)
def test_no_text_breaks_a_line_or_the_encoder(event: Event, path: str) -> None:
    one = writer()
    one.write([event])
    data = one.write([event])
    assert len(data.decode().splitlines()) == 3
    [delta] = parsed(data)
    assert delta["delta"][path] == MENDED
    whole = fold()
    whole.add([event])
    assert whole.message()["content"][0][path] == MENDED


# Any events


def accumulated(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a plain client makes of a stream, checking its order on the way."""
    message: dict[str, Any] = {}
    inputs: dict[int, str] = {}
    open_block: int | None = None
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start"
    assert kinds.count("message_start") == kinds.count("message_stop") == 1
    assert kinds[-2:] == ["message_delta", "message_stop"]
    for event in events:
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                assert open_block is None
                open_block = event["index"]
                assert open_block == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                assert event["index"] == open_block
                grow(message["content"][event["index"]], event["delta"], inputs, event["index"])
            case "content_block_stop":
                assert event["index"] == open_block
                open_block = None
            case "message_delta":
                assert open_block is None
                message |= event["delta"]
                message["usage"] |= event["usage"]
                if "router" in event:
                    message["router"] = event["router"]
            case kind:
                assert kind == "message_stop"
    for index, text in inputs.items():
        message["content"][index]["input"] = json.loads(text)
    return message


def grow(block: dict[str, Any], delta: dict[str, Any], inputs: dict[int, str], index: int) -> None:
    match delta["type"], block["type"]:
        case "text_delta", "text":
            block["text"] += delta["text"]
        case "thinking_delta", "thinking":
            block["thinking"] += delta["thinking"]
        case "signature_delta", "thinking":
            block["signature"] = delta["signature"]
        case "citations_delta", "text":
            block["citations"] = [*block.get("citations", []), delta["citation"]]
        case "input_json_delta", "tool_use" | "server_tool_use":
            inputs[index] = inputs.get(index, "") + delta["partial_json"]
        case unfit:
            pytest.fail(f"{unfit[0]} in {unfit[1]}")


TEXT = st.text(min_size=1, max_size=8)
ARGUMENTS = st.dictionaries(TEXT, st.integers() | TEXT | st.lists(TEXT), max_size=3)


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    """Events in any order, in which the pieces of several calls may come mixed."""
    calls: list[list[Event]] = []
    for index in range(draw(st.integers(0, 3))):
        text = json.dumps(draw(ARGUMENTS))
        cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        first, *rest = pieces
        call_id = draw(st.sampled_from(["", f"call_{index}"]))
        calls.append(
            [ToolCall(index, call_id, "f", first), *(ToolCall(index, arguments=p) for p in rest)]
        )
    out: list[Event] = []
    for _ in range(draw(st.integers(0, 12))):
        waiting = [call for call in calls if call]
        next_piece = draw(st.booleans())
        if waiting and next_piece:
            out.append(draw(st.sampled_from(waiting)).pop(0))
        else:
            out.append(draw(OTHERS))
    return out + [event for call in calls for event in call]


OTHERS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Opened, TEXT),
    st.builds(Text, TEXT),
    st.builds(Text, TEXT, st.just(1)),
    st.builds(Reasoning, TEXT),
    st.builds(Refusal, TEXT),
    st.builds(signed, TEXT),
    st.builds(cited, TEXT),
    st.just(own(text={})),
    st.just(own(redacted_thinking={"type": "redacted_thinking", "data": "QQ=="})),
    st.builds(
        lambda given: own(
            server_tool_use={"type": "server_tool_use", "id": "s", "name": "x", "input": given}
        ),
        ARGUMENTS,
    ),
    st.just(own(tool_use={"id": "call_1", "caller": {"type": "direct"}})),
    st.just(Extra({"annotations": [1]})),
    st.builds(Usage, st.just(1), st.just(1), st.just({})),
    st.just(Done()),
)
REASON: st.SearchStrategy[FinishReason] = st.sampled_from(
    ["stop", "length", "tool_calls", "content_filter"]
)


@given(answers(), st.data(), REASON, st.booleans())
def test_the_accumulated_stream_is_the_blocking_answer(
    events: list[Event], data: st.DataObject, reason: FinishReason, full: bool
) -> None:
    one, whole = writer(), fold()
    out, at = b"", 0
    while at < len(events):
        batch = events[at : at + data.draw(st.integers(1, 4))]
        at += len(batch)
        out += one.write(batch)
        whole.add(batch)
    ends = ([Finish(reason)], USAGE if full else None, ROUTER if full else None)
    stream = parsed(out + one.finish(*ends))
    result = whole.result(*ends)
    assert accumulated(stream) == json.loads(dumps(result))
    kept = [event for event in events if not getattr(event, "choice", 0)]
    texts = "".join(event.text for event in kept if isinstance(event, Text | Refusal))
    blocks = [block["text"] for block in result["content"] if block["type"] == "text"]
    assert "".join(blocks) == texts  # nothing is lost, and nothing said twice


@given(st.lists(OTHERS | st.builds(ToolCall, st.integers(0, 2), TEXT, TEXT, TEXT), max_size=10))
def test_whatever_calls_say_the_stream_is_in_order(events: list[Event]) -> None:
    """Also where arguments are no JSON, and where calls go on behind their end."""
    one, out = writer(), b""
    try:
        out += one.write(events)
        out += one.finish([Finish("stop")], None, None)
    except MalformedStream:
        return
    stream = parsed(out)
    stream = [event for event in stream if "partial_json" not in event.get("delta", {})]
    accumulated(stream)


# Our own reader


@st.composite
def canonical(draw: st.DrawFn) -> list[Event]:
    """Events as a reader of Messages gives them, each block in one way only."""
    out: list[Event] = [Opened(draw(TEXT))]
    calls = 0
    before = ""
    kinds = st.sampled_from(["text", "thinking", "omitted", "call", "sealed", "tool"])
    for kind in draw(st.lists(kinds, max_size=6)):
        if kind == "text":
            out += [own(text={})] if before == "text" else []
            out += [Text(text) for text in draw(st.lists(TEXT, min_size=1, max_size=3))]
            out += [cited("t")] * draw(st.integers(0, 2))
        elif kind == "thinking":
            out += [Reasoning(text) for text in draw(st.lists(TEXT, min_size=1, max_size=3))]
            out.append(signed("QQ=="))
        elif kind == "omitted":
            out.append(signed("Qg=="))
        elif kind == "call":
            out.append(own(tool_use={"id": f"toolu_{calls}", "caller": {"type": "direct"}}))
            out.append(ToolCall(calls, f"toolu_{calls}", draw(TEXT)))
            out.append(ToolCall(calls, arguments=json.dumps(draw(ARGUMENTS))))
            calls += 1
        elif kind == "sealed":
            out.append(own(redacted_thinking={"type": "redacted_thinking", "data": "QQ=="}))
        else:
            block = {"type": "server_tool_use", "id": "s", "name": "x", "input": draw(ARGUMENTS)}
            out.append(own(server_tool_use=block))
        before = kind
    return out


@given(canonical(), st.sampled_from(["end_turn", "max_tokens", "pause_turn", "refusal"]))
def test_our_own_reader_gives_the_same_events_back(events: list[Event], word: str) -> None:
    """Routers are stacked: the answer of one is an upstream of another."""
    reasons: dict[str, FinishReason] = {"end_turn": "stop", "refusal": "content_filter"}
    reason = reasons.get(word, "length")
    if reason == "stop" and any(isinstance(event, ToolCall) for event in events):
        reason, word = "tool_calls", "tool_use"
    finish = Finish(reason, raw=word)
    one = writer()
    data = one.write(events) + one.finish([finish], USAGE, ROUTER)
    reader = MessagesReader(on_error=lambda said: pytest.fail(str(said)))
    got = reader.feed(data) + reader.close()
    spoken = [event for event in got if not isinstance(event, Usage | Opened)]
    assert spoken == [*events[1:], finish, Done()]
    assert next(event for event in got if isinstance(event, Opened)) in (
        events[0],
        Opened("chat"),
    )
    usage = [event for event in got if isinstance(event, Usage)][-1]
    assert usage.raw == USAGE


# The real SDK reads it


@contextlib.contextmanager
def serving(data: bytes) -> Iterator[str]:
    """A server on a real socket that answers every POST with these bytes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def through_anthropic(data: bytes) -> anthropic.types.Message:
    with (
        serving(data) as url,
        anthropic.Anthropic(api_key="x", base_url=url, max_retries=0) as client,
        client.messages.stream(
            model="chat", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
        ) as stream,
    ):
        return stream.get_final_message()


SEARCHED = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
ALL_KINDS: list[Event] = [
    Opened("claude"),
    own(redacted_thinking={"type": "redacted_thinking", "data": "QQ=="}),
    Reasoning("Hm"),
    Opened("another"),
    Reasoning("Let me "),
    Reasoning("see\u2028"),
    signed("QQ=="),
    Text("I "),
    Text("look."),
    own(
        server_tool_use={
            "type": "server_tool_use",
            "id": "s",
            "name": "web_search",
            "input": {"query": "tides"},
        }
    ),
    own(web_search_tool_result=SEARCHED),
    Text("Twice a day"),
    cited("twice"),
    own(text={}),
    Refusal("No more."),
    own(tool_use={"id": "a", "caller": {"type": "direct"}}),
    ToolCall(0, "a", "f", '{"x":'),
    ToolCall(1, "b", "g", '{"y":'),
    ToolCall(0, arguments="1}"),
    ToolCall(1, arguments='["ü", null]}'),
    ToolCall(2, "c", "h"),
]


def test_anthropic_accumulates_the_blocking_answer() -> None:
    one, whole = writer(), fold()
    ends = ([Finish("tool_calls", raw="tool_calls")], USAGE, ROUTER)
    data = PING + b"".join(one.write([event]) for event in ALL_KINDS) + one.finish(*ends)
    whole.add(ALL_KINDS)
    expected = json.loads(dumps(whole.result(*ends)))
    del expected["router"]  # the SDK keeps it on the event, not on the message
    got = through_anthropic(data).to_dict(mode="json", exclude_none=False)
    for block, wanted in zip(got["content"], expected["content"], strict=True):  # type: ignore[call-overload]
        assert {name: value for name, value in block.items() if name in wanted} == wanted
    del got["content"], expected["content"]
    assert {name: value for name, value in got.items() if name in expected} == expected


def test_anthropic_shows_the_metadata_on_the_last_delta() -> None:
    one = writer()
    data = one.write([Text("Hi")]) + one.finish([Finish("stop")], None, ROUTER)
    with (
        serving(data) as url,
        anthropic.Anthropic(api_key="x", base_url=url, max_retries=0) as client,
    ):
        events = list(
            client.messages.create(
                model="chat",
                max_tokens=9,
                messages=[{"role": "user", "content": "Hi"}],
                stream=True,
            )
        )
    told = [(event.type, (event.model_extra or {}).get("router")) for event in events]
    assert [name for name, router in told if router] == ["message_delta"]
    assert dict(told)["message_delta"] == ROUTER


def test_anthropic_raises_on_the_error() -> None:
    one = writer()
    error = error_object("It broke.", type="api_error", code="stream_interrupted", router=ROUTER)
    with pytest.raises(anthropic.APIStatusError, match="It broke") as caught:
        through_anthropic(one.write([Text("Hi")]) + one.error(error))
    assert caught.value.body == error
