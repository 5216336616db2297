"""Every known shape of a stream, through the whole router: what the client and the books say.

The bodies are those of the wire reader's own tests, which read each of them whole and split at
every byte. Here each comes from a provider on a socket, alone and with a healthy one behind it; and
each is truncated at every byte, in both ways, through the engine.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest
import pytest_asyncio
from fault_kit import TEXT, Stage, finished, route, staged, unfinished
from support.caller import error_of
from support.reading import check_contract
from support.routers import routed

from router.build import build
from router.config import parse_config
from router.core.events import Event, Finish, Text, ToolCall
from router.core.faults import FaultKind
from router.engine.report import StreamReport
from router.engine.sink import Failure, StreamHead
from router.engine.upstream import Upstream
from router.providers.base import UpstreamRequest
from router.simulate import RawAnswer
from router.wire.openai import parse_chat_request

FIXTURES = Path(__file__).parent.parent / "fixtures" / "openai"

LINES: Mapping[str, str] = {
    # -- how a healthy stream may look
    "an answer as OpenAI sends it": "openai_text openai_logprobs openai_unknown_fields",
    "several choices": "openai_two_choices",
    "a refusal": "openai_refusal",
    "an error field that is null": "nulls_everywhere",
    "choices empty or null": "nulls_everywhere azure_prompt_filter",
    "no delta": "delta_missing gemini_bare_last_chunk message_instead_of_delta",
    "several finish chunks": "several_finishes_usage_everywhere",
    "usage on every chunk": "several_finishes_usage_everywhere usage_in_x_groq",
    "text in the finish chunk": "text_in_finish_chunk several_finishes_usage_everywhere",
    "data: without a space": "no_space_after_colon",
    "CRLF, lone CR, both": "crlf lone_cr mixed_line_ends",
    "a byte order mark": "bom",
    "blank lines first": "leading_blank_lines",
    "comments": "openrouter_comments deepseek_keep_alive comments_without_blank_lines",
    "multi-line data": "multi_line_data",
    "names and ids of events": "event_names_and_ids event_ping",
    "characters of several bytes, U+2028": "unicode",
    "halves of a surrogate pair": "surrogate_halves",
    "text that looks like the protocol": "text_that_looks_like_protocol",
    "no terminator": "no_terminator_but_finish",
    "a careless end": "no_blank_line_at_the_end no_blank_line_after_last_chunk "
    "one_line_end_at_the_end after_done_nothing_counts",
    "synonyms of stop": "finish_end_turn finish_max_tokens finish_unknown",
    "reasoning": "deepseek_reasoning reasoning_twice_named reasoning_details_alone "
    "mistral_content_parts",
    "JSON lines": "json_lines",
    "a whole completion in place of a stream": "whole_completion whole_completion_line "
    "whole_completion_pretty whole_completion_in_an_event whole_completion_tool_calls",
    "a policy as the finish": "azure_prompt_filter finish_filter_with_detail",
    "an error after the finish": "finish_then_error",
    # -- tool calls
    "no index": "tools_index_missing",
    "index always 0": "tools_index_always_zero",
    "index used twice": "tools_index_colliding_no_ids",
    "id and name repeated": "tools_id_and_name_repeated tools_name_repeated_no_id",
    "id empty, null, new in every piece": "tools_id_empty_and_null tools_fresh_id_every_piece",
    "name after the id": "tools_name_after_id",
    "arguments null": "tools_id_empty_and_null",
    "arguments as an object": "tools_arguments_as_object tools_as_one_object",
    "an empty object first": "tools_placeholder_before_real tools_placeholder_is_all",
    "a whole call with stop": "tools_whole_call_with_stop",
    "parallel calls interleaved": "tools_parallel_interleaved",
    "text between": "tools_text_between",
    "the legacy function call": "tools_legacy_function_call",
    "cut in the arguments": "tools_cut_in_arguments tools_cut_in_arguments_with_done "
    "tools_cut_in_arguments_with_length",
    "a filter that took a wrong call out": "error_finish_filtered_call",
    # -- how streams fail
    "an error, then [DONE]": "error_object_then_done error_vllm_then_done",
    "OpenRouter's errors": "error_with_empty_choices error_with_finish_reason "
    "error_inside_choice error_openrouter_raw",
    "finish reasons that are failures": "error_finish_alone error_finish_abort "
    "error_finish_network error_finish_resource",
    "Anthropic's words": "error_event_overloaded",
    "Gemini's words": "error_gemini_503 json_error_list",
    "Groq's event": "error_event_groq error_x_groq",
    "other events named error": "error_event_flat error_event_text",
    "llama.cpp's field": "error_field_llamacpp error_field_first error_field_text",
    "Ollama's lines": "error_ndjson_ollama error_ndjson_alone error_ndjson_no_line_end",
    "TGI's flat object": "error_tgi error_flat",
    "an error that is a string": "error_string error_surrogate",
    "a lone [DONE]": "done_alone",
    "HTML": "html html_in_mid_stream",
    "plain text": "plain_text",
    "JSON that is no completion": "json_detail json_error_body json_unknown json_truncated",
    "events that cannot be read": "malformed_event malformed_no_object malformed_shape "
    "malformed_utf8",
    "an end without a finish": "no_finish cut_after_text empty only_comments",
}
"""What is known of providers' streams, line by line, and the fixtures that show it."""

CUT_SHORT = {
    "truncated": "no_finish cut_after_text empty only_comments done_alone "
    "tools_cut_in_arguments tools_cut_in_arguments_with_done",
    "malformed": "html html_in_mid_stream plain_text json_unknown json_truncated "
    "malformed_event malformed_no_object malformed_shape malformed_utf8",
    "stream_error": "error_object_then_done error_vllm_then_done error_with_empty_choices "
    "error_with_finish_reason error_inside_choice error_openrouter_raw error_finish_alone "
    "error_finish_abort error_finish_network error_finish_resource error_finish_filtered_call "
    "error_event_overloaded error_gemini_503 json_error_list error_event_groq error_x_groq "
    "error_event_flat error_event_text error_field_llamacpp error_field_first "
    "error_field_text error_ndjson_ollama error_ndjson_alone error_ndjson_no_line_end "
    "error_tgi error_flat error_string error_surrogate json_detail json_error_body",
}
FAULTS = {name: FaultKind(kind) for kind, names in CUT_SHORT.items() for name in names.split()}
"""What each fixture that is no answer is; all others are answers."""

JUDGED = ("error_field_first", "error_flat", "error_tgi")
"""Of these, the ones whose words are a verdict on the request: nobody else is asked."""

CALLED = ("tools_cut_in_arguments", "tools_cut_in_arguments_with_done")
"""Of these, the ones in which a part of a call was delivered."""

NAMES = sorted(path.stem for path in FIXTURES.glob("*.body"))


def body_of(name: str) -> bytes:
    return (FIXTURES / f"{name}.body").read_bytes()


def meant(name: str) -> list[dict[str, Any]]:
    """The events that it means, as the reader's tests hold them."""
    events: list[dict[str, Any]] = json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))
    return events


def text_of(name: str, choice: int = 0) -> str:
    texts = (event for event in meant(name) if event["kind"] == "Text")
    return "".join(event["text"] for event in texts if event.get("choice", 0) == choice)


def finish_of(name: str) -> str:
    finishes = [event for event in meant(name) if event["kind"] == "Finish"]
    reason: str = [event for event in finishes if not event.get("choice", 0)][-1]["reason"]
    return reason


def test_every_line_has_its_fixtures_and_every_fixture_its_line() -> None:
    listed = {name for names in LINES.values() for name in names.split()}
    assert listed == set(NAMES)
    assert set(FAULTS) <= listed


# --- whole, from a socket ------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Stage]:
    routes = {"alone": route(1, max_attempts=1), "chat": route(1, 2)}
    async with staged(routes=routes, providers=2) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="module")
async def stage(shared: Stage) -> Stage:
    await shared.rest()
    return shared


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in FAULTS])
async def test_an_answer_is_passed_on(stage: Stage, name: str) -> None:
    stage.providers[0].manner.raw = RawAnswer(body=body_of(name))
    n = {"n": 2} if name == "openai_two_choices" else {}
    answer, _ = await stage.ask(model="chat", **n)
    assert stage.asked == (1, 0)
    assert answer.finish_reasons[0] == finish_of(name)
    if not n:
        check_contract(answer)
        assert answer.delivered == text_of(name)
    else:
        assert (len(answer.finish_reasons), answer.done) == (2, 1)
    assert stage.report.outcome == "completed"
    assert stage.report.attempts[0].fault is None


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", sorted(FAULTS))
async def test_a_failure_is_an_error(stage: Stage, name: str) -> None:
    stage.providers[0].manner.raw = RawAnswer(body=body_of(name))
    answer, _ = await stage.ask(model="alone")
    begun = bool(text_of(name)) or name in CALLED
    code = "stream_interrupted" if begun else "all_targets_failed"
    if name == "error_field_first":
        code = "stream_error"  # a verdict, and the provider gave it no word of its own
    unfinished(answer, code="tool_call_interrupted" if name in CALLED else code)
    assert (answer.status == 200) == begun
    assert answer.delivered == text_of(name)
    (attempt,) = stage.report.attempts
    assert attempt.fault is not None
    assert attempt.fault.kind is FAULTS[name]
    assert attempt.fault.message
    assert stage.report.finish == ""


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", sorted(FAULTS))
async def test_a_failure_is_made_good_by_another(stage: Stage, name: str) -> None:
    stage.providers[0].manner.raw = RawAnswer(body=body_of(name))
    answer, _ = await stage.ask(model="chat")
    if name in CALLED or name in JUDGED:
        unfinished(answer, code=error_of(answer)["code"])
        assert stage.asked == (1, 0)
        return
    finished(answer, TEXT)
    assert stage.asked[1] == 1
    assert stage.report.outcome == "completed"
    assert stage.report.attempts[0].fault is not None
    assert stage.report.attempts[0].fault.kind is FAULTS[name]


# --- truncated at every byte, through the engine -------------------------------------------------


class Truncated(httpx.AsyncByteStream):
    """A body that ends too early: in order, or by an error.

    Args:
        data: what comes.
        broken: the connection breaks after it.
    """

    def __init__(self, data: bytes, *, broken: bool) -> None:
        self._data = data
        self._broken = broken

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._data:
            yield self._data
        if self._broken:
            raise httpx.ReadError("cut")


class Bodies(Upstream):
    """Answers every request with the body that is set, without a socket."""

    def __init__(self) -> None:
        super().__init__(verify=False)
        self.body = Truncated(b"", broken=False)

    async def send(self, request: UpstreamRequest, *, connect_s: float) -> httpx.Response:
        assert request.url
        assert connect_s > 0
        return httpx.Response(200, stream=self.body)


class Listener:
    """A client inside the process: what it would have seen."""

    def __init__(self) -> None:
        self.text = ""
        self.arguments = ""
        self.finishes: list[str] = []
        self.failure: Failure | None = None

    async def open(self, head: StreamHead) -> None:
        assert self.text == "", head
        assert self.finishes == []

    async def deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Text) and not event.choice:
                self.text += event.text
            elif isinstance(event, ToolCall):
                self.arguments += event.arguments

    async def reassure(self) -> None:
        raise AssertionError("nothing is held for long")

    async def reset(self, reason: str) -> None:
        raise AssertionError(reason)

    async def finish(
        self, finishes: Sequence[Finish], usage: Mapping[str, Any], report: StreamReport
    ) -> None:
        assert usage is report.usage
        self.finishes = [finish.reason for finish in finishes]

    async def fail(self, failure: Failure) -> None:
        self.failure = failure


class Truncate(Protocol):
    """Gives an engine a body; returns what the client saw and what the books say."""

    async def __call__(
        self, data: bytes, *, broken: bool, n: int
    ) -> tuple[Listener, StreamReport]: ...


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def truncating() -> AsyncIterator[Truncate]:
    """A function that gives an engine a body and returns what the client saw and the books say."""
    config = routed("http://127.0.0.1:1/v1", route={"max_attempts": 1})
    config["health"] = {"eject_after": 1000, "eject_rate": 1}
    serving = build(parse_config(json.dumps(config), "test.yaml", {}))
    await serving.engine.store.start()
    bodies = Bodies()
    known = serving.generation.routes["chat"]
    target = dataclasses.replace(known.targets[0], upstream=bodies)
    one = dataclasses.replace(known, targets=(target,))

    body = {"model": "chat", "messages": [{"role": "user", "content": "?"}]}
    asked = {n: parse_chat_request(json.dumps(body | {"n": n}).encode()) for n in (1, 2)}

    async def run(data: bytes, *, broken: bool, n: int) -> tuple[Listener, StreamReport]:
        bodies.body = Truncated(data, broken=broken)
        listener = Listener()
        report = await serving.engine.run(
            asked[n],
            one,
            listener,
            stream_id=serving.engine.new_stream_id(),
            digest="0" * 64,
            owner="",
        )
        return listener, report

    yield run
    await serving.engine.store.aclose()
    await serving.aclose()


def earliest_finish(body: bytes) -> int:
    """Where the first word of a finish ends: a shorter part holds none, whoever reads it."""
    at = body.find(b'"finish_reason":"')
    return len(body) + 1 if at < 0 else body.index(b'"', at + 17) + 1


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("broken", [False, True], ids=["ended", "cut"])
@pytest.mark.parametrize("name", NAMES)
async def test_truncated_at_every_byte(truncating: Truncate, name: str, *, broken: bool) -> None:
    body = body_of(name)
    n = 2 if name == "openai_two_choices" else 1
    whole, _ = await truncating(body, broken=False, n=n)
    assert bool(whole.finishes) == (name not in FAULTS)
    silent_until = earliest_finish(body.replace(b'": "', b'":"')) if b'": "' not in body else 0
    for length in range(len(body)):
        seen, report = await truncating(body[:length], broken=broken, n=n)
        assert whole.text.startswith(seen.text) or name == "several_finishes", length
        assert (seen.failure is None) == bool(seen.finishes), length
        assert (report.outcome == "completed") == bool(seen.finishes), length
        if name in FAULTS or length < silent_until:
            assert seen.finishes == [], length
        if seen.finishes and n == 1:
            assert finish_was_read(body[:length], broken=broken), length
        if broken and not seen.finishes and not body_said_why(report):
            assert report.attempts[0].fault is not None
            assert report.attempts[0].fault.kind is FaultKind.CUT, length


def finish_was_read(data: bytes, *, broken: bool) -> bool:
    """The part holds a whole event with a finish: on a cut, one with its line end."""
    if data.lstrip()[:1] == b"{" and b"\n{" not in data.strip():
        return not broken and "choices" in json.loads(data)
    text = data.decode("utf-8", "replace")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    events = lines[:-1] if broken else lines
    return any('"finish_reason"' in line and "}" in line for line in events)


def body_said_why(report: StreamReport) -> bool:
    """The part itself held an error, or something unreadable, before the connection broke."""
    fault = report.attempts[0].fault
    return fault is not None and fault.kind in (FaultKind.STREAM_ERROR, FaultKind.MALFORMED)
