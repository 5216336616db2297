"""What a client reads: the wire contract on bytes, the blocking answer, and a real SDK."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk

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
from router.wire.openai import (
    ChatStreamReader,
    ChunkWriter,
    CompletionFold,
    encode_json,
    error_object,
)

USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
ROUTER = {"stream_id": "s", "outcome": "completed"}


def writer() -> ChunkWriter:
    return ChunkWriter(completion_id="chatcmpl-7", created=1_764_000_000, fallback_model="chat")


def fold() -> CompletionFold:
    return CompletionFold(completion_id="chatcmpl-7", created=1_764_000_000, fallback_model="chat")


def chunks(data: bytes) -> list[dict[str, Any]]:
    """Parse as strictly as the contract is: one `data:` line per event, nothing else."""
    assert data == b"" or data.endswith(b"\n\n")
    events = data.decode().split("\n\n")[:-1]
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [json.loads(event[6:]) for event in events if event != "data: [DONE]"]


def deltas(*events: Event) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks(writer().write(events))]


def test_the_envelope() -> None:
    data = writer().write([Opened("m-1"), Text("Hi")])
    assert chunks(data) == [
        {
            "id": "chatcmpl-7",
            "object": "chat.completion.chunk",
            "created": 1_764_000_000,
            "model": "m-1",
            "choices": [
                {
                    "index": 0,
                    "delta": {"role": "assistant", "content": "Hi"},
                    "finish_reason": None,
                }
            ],
        }
    ]


def test_one_role_per_choice_on_its_first_content() -> None:
    assert deltas(Text("a"), Text("b"), Text("c", 1), Text("d", 1)) == [
        {"role": "assistant", "content": "a"},
        {"content": "b"},
        {"role": "assistant", "content": "c"},
        {"content": "d"},
    ]


def test_every_kind_of_delta() -> None:
    assert deltas(
        Reasoning("hm"),
        Refusal("no"),
        Extra({"annotations": [1]}),
        ToolCall(0, "a", "f", '{"x"'),
        ToolCall(0, arguments=":1}"),
        ToolCall(0, "", "g", "", legacy=True),
        ToolCall(0, arguments="{}", legacy=True),
    ) == [
        {"role": "assistant", "content": None, "reasoning_content": "hm"},
        {"refusal": "no"},
        {"annotations": [1]},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "a",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"x"'},
                }
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
        {"function_call": {"name": "g", "arguments": ""}},
        {"function_call": {"arguments": "{}"}},
    ]


def test_fields_of_another_format_are_not_for_this_client() -> None:
    signature = Extra({"signature_delta": {"signature": "QQ=="}}, format=Format.ANTHROPIC)
    one, whole = writer(), fold()
    assert one.write([Opened("m"), signature]) == b""
    whole.add([signature, Opened("m"), Text("a")])
    result = whole.result([Finish("stop")], None, None)
    assert result["model"] == "m"
    assert result["choices"][0]["message"] == {
        "role": "assistant",
        "content": "a",
        "refusal": None,
    }


def test_id_and_name_go_out_once_even_if_they_come_twice() -> None:
    first, second = deltas(ToolCall(0, "a", "f", "{"), ToolCall(0, "a", "f", "}"))
    assert first["tool_calls"][0]["id"] == "a"
    assert second == {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    events = (ToolCall(0, "", "f", "{}"), ToolCall(1, "", "g", "{}"))
    ids = [delta["tool_calls"][0]["id"] for delta in deltas(*events)]
    assert len(set(ids)) == 2
    assert all(ids)
    whole = fold()
    whole.add(events)
    message = whole.result([Finish("tool_calls")], None, None)["choices"][0]["message"]
    assert [call["id"] for call in message["tool_calls"]] == ids


def test_log_probabilities_stand_on_the_choice() -> None:
    [chunk] = chunks(writer().write([Text("a", 0, {"content": [{"logprob": float("-inf")}]})]))
    assert chunk["choices"][0]["logprobs"] == {"content": [{"logprob": None}]}
    assert chunk["choices"][0]["delta"]["content"] == "a"


def test_the_model_is_frozen_by_the_first_chunk() -> None:
    one = writer()
    data = one.write([Text("a"), Opened("late"), Text("b")])
    data += one.finish([Finish("stop")], USAGE, None)
    assert {chunk["model"] for chunk in chunks(data)} == {"chat"}
    data = writer().write([Opened("first"), Opened("second"), Text("a"), Opened("third")])
    assert {chunk["model"] for chunk in chunks(data)} == {"first"}


def test_what_is_not_for_the_client_writes_nothing() -> None:
    fault = Fault(kind=FaultKind.CUT)
    silent: list[Event] = [Opened("m"), Usage(1, 2, {}), Finish("stop"), Done(), Failed(fault)]
    assert writer().write(silent) == b""
    assert writer().write([]) == b""


def test_the_end() -> None:
    one = writer()
    one.write([Text("a")])
    data = one.finish([Finish("stop")], USAGE, ROUTER)
    finish, usage = chunks(data)
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert finish["router"] == ROUTER
    assert (usage["choices"], usage["usage"]) == ([], USAGE)
    assert "router" not in usage
    assert data.count(b"[DONE]") == 1
    assert data.endswith(b"}\n\ndata: [DONE]\n\n")


def test_the_end_says_only_what_was_asked() -> None:
    one = writer()
    one.write([Text("a")])
    [finish] = chunks(one.finish([Finish("length")], None, None))
    assert "usage" not in finish
    assert "router" not in finish


def test_one_finish_per_choice_and_metadata_on_the_last() -> None:
    one = writer()
    one.write([Text("a"), Text("b", 1)])
    finishes = [Finish("stop", 1), Finish("stop", 0), Finish("length", 1)]
    first, last = chunks(one.finish(finishes, None, ROUTER))
    assert first["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert last["choices"][0] == {"index": 1, "delta": {}, "finish_reason": "length"}
    assert "router" not in first
    assert last["router"] == ROUTER


def test_an_empty_answer_still_has_its_role() -> None:
    [finish] = chunks(writer().finish([Finish("content_filter")], None, None))
    assert finish["choices"][0]["delta"] == {"role": "assistant", "content": ""}


def test_no_success_without_a_finish() -> None:
    with pytest.raises(ValueError, match="without a finish"):
        writer().finish([], None, None)
    with pytest.raises(ValueError, match="without a finish"):
        fold().result([], None, None)


def test_an_error_is_alone() -> None:
    body = error_object("It broke.", type="server_error", code="stream_interrupted", router=ROUTER)
    assert body == {
        "error": {
            "message": "It broke.",
            "type": "server_error",
            "param": None,
            "code": "stream_interrupted",
            "router": ROUTER,
        }
    }
    data = writer().error(body)
    assert data == writer().error(body["error"])
    assert data == b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"
    assert "router" not in error_object("x", type="y")["error"]


NASTY = 'a\ud83d"\n\r\u2028\u2029\x85\\'
MENDED = 'a\ufffd"\n\r\u2028\u2029\x85\\'


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (Text(NASTY), "content"),
        (Reasoning(NASTY), "reasoning_content"),
        (Refusal(NASTY), "refusal"),
        (Extra({"x": NASTY}), "x"),
    ],
)
def test_no_text_breaks_a_line_or_the_encoder(event: Event, path: str) -> None:
    one = writer()
    one.write([Text("first")])
    data = one.write([event])
    assert len(data.decode().splitlines()) == 2
    [chunk] = chunks(data)
    assert chunk["choices"][0]["delta"][path] == MENDED
    whole = fold()
    whole.add([event])
    message = whole.result([Finish("stop")], None, None)["choices"][0]["message"]
    assert message[path] == MENDED
    assert json.loads(encode_json(message))[path] == MENDED


# The two writers say the same

TEXT = st.text(min_size=1, max_size=8)
CHOICE = st.integers(0, 1)
LOGPROBS = st.none() | st.fixed_dictionaries(
    {"content": st.lists(st.fixed_dictionaries({"token": TEXT}), max_size=2)}
)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Opened, TEXT),
    st.builds(Text, TEXT, CHOICE, LOGPROBS),
    st.builds(Text, TEXT, CHOICE),
    st.builds(Reasoning, TEXT, CHOICE),
    st.builds(Refusal, TEXT, CHOICE),
    st.builds(ToolCall, st.integers(0, 2), TEXT, TEXT, TEXT, CHOICE),
    st.builds(ToolCall, st.integers(0, 2), st.just(""), TEXT, TEXT, CHOICE),
    st.builds(ToolCall, st.just(0), st.just(""), TEXT, TEXT, CHOICE, st.just(True)),
    st.builds(
        Extra, st.fixed_dictionaries({}, optional={"tags": st.lists(TEXT), "thinking": TEXT})
    ),
    st.builds(Usage, st.just(1), st.just(1), st.just({})),
    st.just(Done()),
)
REASON: st.SearchStrategy[FinishReason] = st.sampled_from(
    ["stop", "length", "tool_calls", "content_filter"]
)


def client_fold(parsed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a plain client makes of the chunks, in the shape of a blocking answer."""
    out: dict[str, Any] = {
        "id": parsed[0]["id"],
        "object": "chat.completion",
        "created": parsed[0]["created"],
        "model": parsed[0]["model"],
    }
    choices: dict[int, dict[str, Any]] = {}
    for chunk in parsed:
        for name in ("usage", "router"):
            if name in chunk:
                out[name] = chunk[name]
        for part in chunk["choices"]:
            empty = {"message": {"refusal": None}, "logprobs": None, "finish_reason": None}
            choice = choices.setdefault(part["index"], {"index": part["index"]} | empty)
            client_add(choice["message"], part["delta"])
            choice["finish_reason"] = part["finish_reason"] or choice["finish_reason"]
            if part.get("logprobs"):
                choice["logprobs"] = choice["logprobs"] or {"content": []}
                choice["logprobs"]["content"] += part["logprobs"]["content"]
    out["choices"] = [choices[index] for index in sorted(choices)]
    for choice in out["choices"]:
        message = choice["message"]
        calls = message.pop("tool_calls", None)
        if calls:
            message["tool_calls"] = [calls[index] for index in sorted(calls)]
        if message["content"] is None and not calls and message["refusal"] is None:
            message["content"] = None if "function_call" in message else ""
    return out


def client_add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            calls = message.setdefault("tool_calls", {})
            for piece in value:
                call = calls.setdefault(piece["index"], {"function": {"arguments": ""}})
                call["function"]["arguments"] += piece["function"].pop("arguments")
                call["function"] |= piece["function"]
                call |= {key: piece[key] for key in ("id", "type") if key in piece}
        elif name == "function_call":
            call = message.setdefault("function_call", {"arguments": ""})
            call["arguments"] += value.pop("arguments")
            call |= value
        elif name == "role":
            assert "role" not in message
            message["role"] = value
        elif message.get(name) is None:
            message[name] = value
        else:
            message[name] = message[name] + value


@given(st.lists(st.lists(EVENTS, max_size=4), max_size=6), REASON, REASON, st.booleans())
def test_folded_chunks_are_the_blocking_answer(
    batches: list[list[Event]], first: FinishReason, second: FinishReason, full: bool
) -> None:
    one, whole = writer(), fold()
    data = b"".join(one.write(batch) for batch in batches)
    for batch in batches:
        whole.add(batch)
    ends = ([Finish(first), Finish(second, 1)], USAGE if full else None, ROUTER if full else None)
    parsed = chunks(data + one.finish(*ends))
    result = whole.result(*ends)
    assert client_fold(parsed) == json.loads(encode_json(result))
    assert len({(chunk["id"], chunk["model"], chunk["created"]) for chunk in parsed}) == 1


@given(st.lists(EVENTS.filter(lambda event: not isinstance(event, Done)), max_size=8), REASON)
def test_our_own_reader_reads_what_we_write(events: list[Event], reason: FinishReason) -> None:
    """Routers are stacked: the answer of one is an upstream of another."""
    one = writer()
    data = one.write(events) + one.finish([Finish(reason), Finish(reason, 1)], None, ROUTER)
    reader = ChatStreamReader(on_error=lambda said: pytest.fail(str(said)))
    got = reader.feed(data) + reader.close()
    for kind in (Text, Reasoning, Refusal):
        sent = [event for event in events if isinstance(event, kind)]
        assert [event for event in got if isinstance(event, kind)] == sent
    assert isinstance(got[-1], Done)


# A real SDK reads it


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
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def through_openai(data: bytes) -> list[ChatCompletionChunk]:
    with (
        serving(data) as url,
        openai.OpenAI(api_key="x", base_url=url, max_retries=0) as client,
        client.chat.completions.create(
            model="chat", stream=True, messages=[{"role": "user", "content": "Hi"}]
        ) as stream,
    ):
        return list(stream)


def test_openai_reads_text_usage_and_metadata() -> None:
    one = writer()
    data = one.write([Opened("m"), Reasoning("hm"), Text("Hi\u2028"), Text(" there")])
    got = through_openai(data + one.finish([Finish("stop")], USAGE, ROUTER))
    assert "".join(c.choices[0].delta.content or "" for c in got if c.choices) == "Hi\u2028 there"
    assert [c.choices[0].delta.role for c in got if c.choices][1:] == [None] * 3
    assert [c.choices[0].finish_reason for c in got if c.choices] == [None] * 3 + ["stop"]
    assert (got[-2].model_extra or {})["router"] == ROUTER
    assert got[-1].usage is not None
    assert got[-1].usage.total_tokens == 3


def test_openai_raises_on_the_error() -> None:
    one = writer()
    error = error_object("It broke.", type="server_error", code="stream_interrupted", router=ROUTER)
    with pytest.raises(openai.APIError, match="It broke") as caught:
        through_openai(one.write([Text("Hi")]) + one.error(error))
    assert caught.value.code == "stream_interrupted"
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["router"] == ROUTER


def test_openai_helper_assembles_tool_calls() -> None:
    from openai.lib.streaming.chat import ChatCompletionStreamState  # noqa: PLC0415 - slow import

    one = writer()
    data = one.write([Text("Let me."), ToolCall(0, "a", "f", '{"x":'), ToolCall(1, "b", "g", "{}")])
    data += one.write([ToolCall(0, "a", "f", "1}")])
    data += one.finish([Finish("tool_calls")], None, None)
    state: Any = ChatCompletionStreamState()
    for chunk in through_openai(data):
        state.handle_chunk(chunk)
    choice = state.get_final_completion().choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content == "Let me."
    calls = [(call.id, call.function.name) for call in choice.message.tool_calls]
    assert calls == [("a", "f"), ("b", "g")]
    assert choice.message.tool_calls[0].function.arguments == '{"x":1}'
