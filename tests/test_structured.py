"""Structured output through a whole router: whole values only, valid or re-routed."""

from __future__ import annotations

import json

import pytest
from support.caller import called, error_of
from support.clock import FakeClock
from support.continuity import FULL
from support.json_texts import Json, same, shuffled
from support.reading import Answer, ask, check_contract
from support.routers import routed, running_router

from router.core.events import ToolCall
from router.core.json_values import JsonReader
from router.engine.stream import REASSURE_S
from router.simulate import (
    Conduct,
    Ended,
    Pace,
    RawAnswer,
    Script,
    SimulatedProvider,
    tokenize,
)

DOCUMENT = {
    "title": "A tale, told twice",
    "year": 1987,
    "tags": ["a", "b", "c d"],
    "nested": {"x": 1.5e3, "y": [{"k": "v"}, {"k": 'w"\\é😀'}], "empty": {}},
    "ok": True,
    "none": None,
}
TEXT = json.dumps(DOCUMENT)
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "year": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "nested": {"type": "object"},
        "ok": {"type": "boolean"},
        "none": {"type": "null"},
    },
    "required": ["title", "year", "ok"],
    "additionalProperties": False,
}
HEALTHY = {"eject_after": 1000, "eject_rate": 1}


def wanted(schema: Json = SCHEMA) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "tale", "schema": schema}}


def says(text: str, **conduct: Json) -> SimulatedProvider:
    """A provider that answers with a text, and goes on with it as told."""
    return SimulatedProvider(script=Script(text=text), conduct=Conduct(**conduct))


def whole_values(answer: Answer) -> None:
    """Every chunk ends right after a complete value."""
    out = ""
    for chunk in answer.chunks:
        piece = "".join(c["delta"].get("content") or "" for c in chunk.get("choices", []))
        out += piece
        if piece:
            json.loads(out + JsonReader.after(out).closers)


DROP = {"continuation": {"schema": "drop"}}
CONTINUING: list[tuple[str, str, Json, str, bool]] = [
    # type of the second provider, what it does with a prefix, its knobs, the style that is used,
    # and whether the document is then the uncut one to the letter
    ("openai", "continue", {}, "restart", False),
    ("openai-compatible", "continue", {}, "restart", False),
    ("mistral", "echo", {}, "restart", False),
    ("deepseek", "continue", {}, "restart", False),
    ("vllm", "continue", {}, "continue_final", True),
    ("vllm", "afresh", {}, "continue_final", True),
    ("vllm", "echo", {}, "continue_final", True),
    ("vllm", "preamble", {}, "continue_final", True),
    ("vllm", "refuse", {}, "instruct", True),
    ("llama.cpp", "continue", {}, "continue_final", True),
    ("mistral", "echo", DROP, "prefix_flag", True),
    ("deepseek", "continue", DROP, "prefix_flag", True),
    ("openai-compatible", "continue", DROP, "instruct", True),
]
STEP = 1 if FULL else 3


@pytest.mark.parametrize(("kind", "prefix", "knobs", "style", "rest"), CONTINUING)
async def test_cut_after_every_token(
    kind: str, prefix: str, knobs: Json, style: str, rest: bool
) -> None:
    tokens = len(tokenize(TEXT))
    styles: set[str] = set()
    async with says(TEXT) as one, says(TEXT, prefix=prefix) as two:
        types = ["openai-compatible", kind]
        config = routed(one, two, types=types, targets=[{}, knobs], health=HEALTHY)
        async with running_router(config) as it:
            for cut in range(sum(map(ord, kind + prefix)) % STEP, tokens + 1, STEP):
                one.set_faults(f"cut@{cut}")
                answer = await ask(it.base_url, response_format=wanted())
                check_contract(answer)
                whole_values(answer)
                assert same(json.loads(answer.delivered), DOCUMENT)
                assert answer.canonical == answer.delivered  # nothing is ever superseded
                if rest:
                    assert answer.delivered == TEXT
                facts = answer.metadata or {"attempts": [], "failovers": []}
                # Of a document that was whole nobody else is asked for the end.
                assert bool(facts["attempts"]) == (cut < tokens)
                styles.update(failover["style"] for failover in facts["failovers"])
    assert style in styles
    assert styles <= {style, "original", *(["continue_final"] if prefix == "refuse" else [])}


async def test_the_bytes_of_values_are_the_providers_own() -> None:
    text = '{"big": 123456789012345678901234567890, "huge": -1e400, "half": "\\ud83d", "n": -0.0}'
    for kind in ("openai", "vllm"):
        async with says(text) as one, says(text) as two:
            config = routed(one, two, types=["openai", kind], health=HEALTHY)
            async with running_router(config) as it:
                for cut in range(0, len(tokenize(text)), 2):
                    one.set_faults(f"cut@{cut}")
                    answer = await ask(it.base_url, response_format={"type": "json_object"})
                    check_contract(answer)
                    assert answer.delivered == text


async def test_three_models_write_one_document() -> None:
    again = json.dumps(shuffled(DOCUMENT, 3), indent=1)
    async with says(TEXT) as one, says(TEXT) as two, says(again) as three:
        one.set_faults("cut@20")
        two.set_faults("rst@30")
        config = routed(one, two, three, types=["openai", "vllm", "openai"], health=HEALTHY)
        async with running_router(config) as it:
            answer = await ask(it.base_url, response_format=wanted())
    check_contract(answer)
    whole_values(answer)
    assert same(json.loads(answer.delivered), DOCUMENT)
    assert answer.metadata is not None
    assert [one["style"] for one in answer.metadata["failovers"]] == ["continue_final", "restart"]


# -- what is wrong with an answer ------------------------------------------------------------------

FIVE = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in "abcdef"},
    "required": [*"abcdef"],
}
BAD_FIFTH = '{"a": 1, "b": 2, "c": 3, "d": 4, "e": "five", "f": 6}'
OTHER = '{"a": 10, "b": 20, "c": 30, "d": 40, "e": 50, "f": 60}'


@pytest.mark.parametrize(("kind", "style"), [("openai", "restart"), ("vllm", "continue_final")])
async def test_the_fifth_field_comes_from_the_second_model(kind: str, style: str) -> None:
    async with says(BAD_FIFTH) as one, says(OTHER) as two:
        async with running_router(routed(one, two, types=["openai", kind], health=HEALTHY)) as it:
            answer = await ask(it.base_url, response_format=wanted(FIVE))
        asked = [two.requests[0].body]
    check_contract(answer)
    whole_values(answer)
    # One to four were delivered once and stand, whatever the second model says of them.
    assert json.loads(answer.delivered) == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 50, "f": 60}
    assert answer.delivered.count('"d"') == 1
    assert answer.metadata is not None
    (failover,) = answer.metadata["failovers"]
    assert (failover["fault"], failover["style"]) == ("schema_violation", style)
    assert failover["committed_chars"] == len('{"a": 1, "b": 2, "c": 3, "d": 4')
    assert "five" not in json.dumps(asked)


async def test_a_target_that_takes_words_is_told_what_failed() -> None:
    async with (
        says(BAD_FIFTH) as one,
        says('{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6}') as two,
    ):
        config = routed(
            one, two, health=HEALTHY,
            targets=[{}, {"continuation": {"style": "instruct", "schema": "drop"}}],
        )  # fmt: skip
        async with running_router(config) as it:
            answer = await ask(it.base_url, response_format=wanted(FIVE))
        nudge = two.requests[0].body["messages"][-1]["content"]
    check_contract(answer)
    assert json.loads(answer.delivered)["e"] == 5
    assert "It stops inside a JSON document. What came next could not be kept: at /e (" in nudge
    assert 'the value is not of type "integer".' in nudge
    assert "five" not in nudge
    assert len(nudge) < 1000


GOOD = '{"a": 1, "b": 2}'
WRONG = {
    "a duplicate key": '{"a": 1, "a": 2}',
    "a bad number": '{"a": 01}',
    "prose": "I would rather talk about something else.",
    "prose without end": "I would rather talk about something else. " * 100,
    "nothing": "",
    "white space": " \n ",
    "an unfinished document": '{"a": 1, "b": ',
    "a document of another kind": "[1, 2]",
    "too deep a document": '{"a": ' * 500,
    "a missing field": '{"a": 1}',
    "a field too many": '{"a": 1, "b": 2, "c": 3}',
}
TWO = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("name", WRONG)
async def test_an_answer_that_is_not_what_was_asked_for_goes_to_the_next_target(name: str) -> None:
    async with (
        says(WRONG[name]) as one,
        says(GOOD) as two,
        running_router(routed(one, two, health=HEALTHY)) as it,
    ):
        streamed = await ask(it.base_url, response_format=wanted(TWO))
        blocking, _ = await called(it.base_url, stream=False, response_format=wanted(TWO))
    check_contract(streamed)
    whole_values(streamed)
    assert json.loads(streamed.delivered) == {"a": 1, "b": 2}
    assert streamed.metadata is not None
    faults = [attempt["fault"] for attempt in streamed.metadata["attempts"]]
    assert faults == ["schema_violation", None]
    body = json.loads(blocking.raw)
    assert body["choices"][0]["message"]["content"] == streamed.delivered
    assert [attempt["fault"] for attempt in body["router"]["attempts"]] == faults


@pytest.mark.parametrize(
    "wrapped",
    [
        "```json\n{}\n```",
        "\ufeff{}",
        "Sure, here you are:\n\n```\n{}\n```\n\nAnything else?",
        '{}\n{"a": 3, "b": 4}',
        "{}\n\nLet me know.",
    ],
)
async def test_what_models_wrap_around_a_document_never_reaches_the_client(wrapped: str) -> None:
    async with (
        says(wrapped.replace("{}", GOOD, 1)) as one,
        running_router(routed(one, health=HEALTHY)) as it,
    ):
        answer = await ask(it.base_url, response_format=wanted(TWO))
        plain = await ask(it.base_url)
    check_contract(answer)
    assert answer.delivered == GOOD
    assert answer.metadata is None
    assert plain.delivered == wrapped.replace("{}", GOOD, 1)  # nobody asked for a document


@pytest.mark.parametrize("stream", [True, False])
async def test_all_targets_break_the_schema_before_any_output(stream: bool) -> None:
    async with (
        says('{"a": "one"}') as one,
        says("No.") as two,
        running_router(routed(one, two, route={"max_attempts": 2}, health=HEALTHY)) as it,
    ):
        answer, _ = await called(it.base_url, stream=stream, response_format=wanted(TWO))
    assert answer.status == 502
    assert answer.headers["x-should-retry"] == "false"
    error = error_of(answer)
    assert (error["type"], error["code"]) == ("server_error", "schema_violation")
    assert "the answer holds no JSON document" in error["message"]
    assert "Nothing was delivered." in error["message"]
    assert [one["fault"] for one in error["router"]["attempts"]] == ["schema_violation"] * 2


async def test_all_targets_break_the_schema_after_output() -> None:
    route = {"max_attempts": 2}
    async with (
        says('{"a": 1, "b": "two"}') as one,
        says('{"a": 5, "b": "secret"}') as two,
        running_router(routed(one, two, route=route, health=HEALTHY)) as it,
    ):
        answer = await ask(it.base_url, response_format=wanted(TWO))
    assert answer.status == 200
    assert answer.delivered == '{"a": 1'
    assert (answer.done, answer.finish_reasons) == (0, [])
    assert answer.error is not None
    assert answer.error["code"] == "schema_violation"
    message = answer.error["message"]
    assert "'p2/model-p2' broke the requested schema: at /b (" in message
    assert "What was delivered is valid and incomplete." in message
    assert "secret" not in message


async def test_one_target_alone_is_asked_again() -> None:
    async with says(BAD_FIFTH) as one:
        async with running_router(routed(one, route={"max_attempts": 3}, health=HEALTHY)) as it:
            answer = await ask(it.base_url, response_format=wanted(FIVE))
        assert len(one.requests) == 3
    assert answer.error is not None
    assert answer.error["code"] == "schema_violation"


async def test_a_schema_that_no_model_can_satisfy_costs_nobody_a_target() -> None:
    impossible = {"type": "object", "properties": {"a": False}, "required": ["a"]}
    async with says(GOOD) as one, says(GOOD) as two, running_router(routed(one, two)) as it:
        for _ in range(4):
            answer, _ = await called(it.base_url, response_format=wanted(impossible))
            assert error_of(answer)["code"] == "schema_violation"
        health = it.serving.engine.health
        assert health.available("p1/model-p1")
        assert health.available("p2/model-p2")


@pytest.mark.parametrize("rest", ['5, "b": 2}', ".5}", "e1}"])
async def test_a_number_at_the_seam_is_never_changed(rest: str) -> None:
    """`12` was delivered because its comma was seen; a model that goes on with `5` changes it."""
    raw = RawAnswer(body=_sse(rest))
    cut = SimulatedProvider(script=Script(text='{"a": 12, "b": 2}'))
    async with cut as one, SimulatedProvider(raw=raw) as two, says('{"a": 9, "b": 7}') as three:
        one.set_faults("cut@6")
        config = routed(one, two, three, types=["openai", "vllm", "openai"], health=HEALTHY)
        async with running_router(config) as it:
            answer = await ask(it.base_url, response_format=wanted(TWO))
    check_contract(answer)
    assert answer.delivered == '{"a": 12, "b": 7}'
    assert answer.metadata is not None
    assert [a["fault"] for a in answer.metadata["attempts"]] == ["cut", "schema_violation", None]


def _sse(*texts: str, finish: str | None = "stop", **last: Json) -> bytes:
    frame = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta: Json, reason: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
        return b"data: " + json.dumps({**frame, "choices": choices}).encode() + b"\n\n"

    parts = [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": one}) for one in texts),
    ]
    parts += [chunk(last)] if last else []
    return b"".join(parts) + (chunk({}, finish) + b"data: [DONE]\n\n" if finish else b"")


# -- finishes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("text", ['{"a": 1, "b": 2', '{"a": 1, "b": "tw', "I thi", ""])
async def test_a_finish_in_the_middle_is_passed_on(reason: str, text: str) -> None:
    """It says itself that something is missing; only whole values are delivered all the same."""
    async with (
        SimulatedProvider(raw=RawAnswer(body=_sse(text, finish=reason))) as one,
        says(GOOD) as two,
    ):
        async with running_router(routed(one, two, health=HEALTHY)) as it:
            answer = await ask(it.base_url, response_format=wanted(TWO))
            blocking, _ = await called(it.base_url, stream=False, response_format=wanted(TWO))
        assert two.requests == []
    check_contract(answer)
    assert answer.finish_reasons == [reason]
    assert answer.delivered == ('{"a": 1' if "a" in text else "")
    choice = json.loads(blocking.raw)["choices"][0]
    assert (choice["message"]["content"] or "", choice["finish_reason"]) == (
        answer.delivered,
        reason,
    )


async def test_length_in_the_continuation_is_passed_on() -> None:
    async with says(TEXT) as one, says(TEXT) as two:
        one.set_faults("cut@30")
        async with running_router(routed(one, two, types=["openai", "vllm"], health=HEALTHY)) as it:
            answer = await ask(it.base_url, response_format=wanted(), max_tokens=40)
    check_contract(answer)
    whole_values(answer)
    assert answer.finish_reasons == ["length"]
    assert TEXT.startswith(answer.delivered)


async def test_a_refusal_in_place_of_the_document_is_passed_on() -> None:
    raw = RawAnswer(body=_sse(refusal="I cannot help with that."))
    async with SimulatedProvider(raw=raw) as one, says(GOOD) as two:
        async with running_router(routed(one, two, health=HEALTHY)) as it:
            answer = await ask(it.base_url, response_format=wanted(TWO))
        assert two.requests == []
    check_contract(answer)
    refusals = [c["delta"].get("refusal") for chunk in answer.chunks for c in chunk["choices"]]
    assert "".join(filter(None, refusals)) == "I cannot help with that."
    assert answer.delivered == ""


@pytest.mark.parametrize("fault", ["cut", "rst", "error", "done_early", "stall"])
async def test_a_whole_document_is_an_end_whatever_breaks_after_it(fault: str) -> None:
    async with says(GOOD) as one, says(GOOD) as two:
        one.set_faults(f"{fault}@{len(tokenize(GOOD))}")
        config = routed(one, two, route={"timeouts": {"idle_s": 0.2}}, health=HEALTHY)
        async with running_router(config) as it:
            answer = await ask(it.base_url, response_format=wanted(TWO))
            plain = await ask(it.base_url, content="And now in words.")
        assert len(two.requests) == 1  # for the text, which nobody can know to be whole
    check_contract(answer)
    assert answer.delivered == GOOD
    assert answer.finish_reasons == ["stop"]
    assert answer.metadata is None
    check_contract(plain)


async def test_a_model_that_talks_on_after_its_document_is_left_alone() -> None:
    async with (
        says(GOOD + " And another thing:" * 100_000) as one,
        running_router(routed(one, health=HEALTHY)) as it,
    ):
        answer = await ask(it.base_url, response_format=wanted(TWO))
        assert (await one.wait_ended()).ended is Ended.CLIENT_CLOSED
    check_contract(answer)
    assert answer.delivered == GOOD
    assert answer.finish_reasons == ["stop"]


# -- beside other features -------------------------------------------------------------------------

CALL = ToolCall(index=0, id="call_1", name="look", arguments='{"where": "here"}')


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("text", ["", "Let me look that up. ", GOOD])
async def test_tool_calls_and_documents_do_not_disturb_each_other(atomic: bool, text: str) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    script = Script(text=text, tool_calls=(CALL,))
    route = {"tool_calls": "atomic" if atomic else "stream"}
    async with (
        SimulatedProvider(script=script) as one,
        running_router(routed(one, route=route, health=HEALTHY)) as it,
    ):
        answer = await ask(it.base_url, response_format=wanted(TWO), tools=tools)
        blocking, _ = await called(
            it.base_url, stream=False, response_format=wanted(TWO), tools=tools
        )
    check_contract(answer)
    assert answer.finish_reasons == ["tool_calls"]
    deltas = [c["delta"] for chunk in answer.chunks for c in chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert calls[0]["function"]["name"] == "look"
    arguments = "".join(call["function"].get("arguments", "") for call in calls)
    assert json.loads(arguments) == {"where": "here"}
    assert answer.delivered == (GOOD if text == GOOD else "")  # a remark is no document
    message = json.loads(blocking.raw)["choices"][0]["message"]
    assert (message["content"] or "") == answer.delivered
    assert message["tool_calls"][0]["function"]["arguments"] == arguments


async def test_prose_after_a_tool_call_is_no_fault() -> None:
    call = {
        "index": 0,
        "id": "c",
        "type": "function",
        "function": {"name": "look", "arguments": "{}"},
    }
    frames = _sse(finish=None, tool_calls=[call]) + _sse("Well, well. " * 400, finish="tool_calls")
    async with (
        SimulatedProvider(raw=RawAnswer(body=frames)) as one,
        running_router(routed(one, health=HEALTHY)) as it,
    ):
        answer = await ask(it.base_url, response_format=wanted(TWO))
    check_contract(answer)
    assert answer.finish_reasons == ["tool_calls"]


async def test_several_choices_pass_through() -> None:
    async with says(f"Sure: {GOOD}") as one, running_router(routed(one, health=HEALTHY)) as it:
        answer = await ask(it.base_url, response_format=wanted(TWO), n=2)
    texts = ["", ""]
    for chunk in answer.chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
    assert texts == [f"Sure: {GOOD}"] * 2


async def test_reasoning_goes_out_at_once() -> None:
    async with (
        SimulatedProvider(script=Script(text=GOOD, reasoning="Let me see {this}.")) as one,
        running_router(routed(one, health=HEALTHY)) as it,
    ):
        answer = await ask(it.base_url, response_format=wanted(TWO))
    check_contract(answer)
    deltas = [c["delta"] for chunk in answer.chunks for c in chunk["choices"]]
    thought = "".join(d.get("reasoning_content") or d.get("reasoning") or "" for d in deltas)
    assert thought == "Let me see {this}."
    assert answer.delivered == GOOD


async def test_json_object_and_a_route_of_json() -> None:
    async with says("Here: [1]\n" + GOOD) as one, says(f"```\n[{GOOD}, 1]\n```") as two:
        async with running_router(routed(one, two, health=HEALTHY)) as it:
            first = await ask(it.base_url, response_format={"type": "json_object"})
            named = await ask(
                it.base_url, response_format={"type": "json_schema", "json_schema": {"name": "x"}}
            )
        async with running_router(routed(two, route={"boundary": "json"}, health=HEALTHY)) as it:
            second = await ask(it.base_url)
    for answer, text in ((first, GOOD), (named, "[1]"), (second, f"[{GOOD}, 1]")):
        check_contract(answer)
        whole_values(answer)
        assert answer.delivered == text


async def test_the_blocking_path_gives_the_same_document_for_the_same_faults() -> None:
    for cut in range(0, len(tokenize(TEXT)), 6):
        async with says(TEXT) as one, says(json.dumps(DOCUMENT, indent=1)) as two:
            one.set_faults(f"cut@{cut}")
            async with running_router(routed(one, two, health=HEALTHY)) as it:
                streamed = await ask(it.base_url, response_format=wanted())
                blocking, _ = await called(it.base_url, stream=False, response_format=wanted())
        assert json.loads(blocking.raw)["choices"][0]["message"]["content"] == streamed.delivered


async def test_nothing_goes_out_inside_a_long_string_but_signs_of_life() -> None:
    text = json.dumps({"a": 1, "essay": "word " * 30, "b": 2})
    clock = FakeClock()
    provider = SimulatedProvider(
        script=Script(text=text), pace=Pace(tokens_per_s=0.25), clock=clock.now_s, sleep=clock.sleep
    )
    async with provider as one, running_router(routed(one, health=HEALTHY), clock=clock) as it:
        answer = await clock.run(ask(it.base_url, response_format={"type": "json_object"}))
    check_contract(answer)
    assert answer.delivered == text
    whole_values(answer)
    waited_s = 4 * len(tokenize("word " * 30))
    assert waited_s / (REASSURE_S + 4) - 2 < len(answer.comments) < waited_s / REASSURE_S + 2


# -- asking for what was delivered, closed ---------------------------------------------------------


@pytest.mark.parametrize("closed", [False, True])
async def test_what_was_delivered_can_be_had_closed(closed: bool) -> None:
    async with says('{"a": {"b": [1, {"c": 2, "d": tru') as one:
        headers = {"X-Router-JSON": "closed"} if closed else {}
        async with running_router(routed(one, route={"max_attempts": 1}, health=HEALTHY)) as it:
            answer = await ask(
                it.base_url, response_format={"type": "json_object"}, headers=headers
            )
            text = await ask(it.base_url, headers=headers)
    assert answer.error is not None
    delivered = '{"a": {"b": [1, {"c": 2'
    assert answer.delivered == delivered + ("}]}}" if closed else "")
    assert (answer.finish_reasons, answer.done) == ([], 0)
    if closed:
        assert json.loads(answer.delivered) == {"a": {"b": [1, {"c": 2}]}}
        # It is a chunk of its own, the last before the error, and no part of the answer.
        assert answer.chunks[-2]["choices"][0]["delta"] == {"content": "}]}}"}
    assert text.delivered == one.manner.script.text


async def test_nothing_to_close() -> None:
    async with (
        says('{"a": "') as one,
        running_router(routed(one, route={"max_attempts": 1}, health=HEALTHY)) as it,
    ):
        answer, _ = await called(
            it.base_url,
            response_format={"type": "json_object"},
            headers={"X-Router-JSON": "closed"},
        )
    assert answer.status == 502
    assert error_of(answer)["code"] == "schema_violation"


# -- schemas that cannot be used -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "param", "reason"),
    [
        ({"type": "strin"}, ".type", "is no type"),
        ({"properties": {"a": {"minimum": "1"}}}, ".properties.a.minimum", "what stands there"),
        ({"properties": {"a": {"pattern": "(?!x)"}}}, ".properties.a.pattern", "look-around"),
        ({"$ref": "http://127.0.0.1:9/schema"}, ".$ref", "nothing is ever fetched"),
        ({"items": {"$ref": "#/$defs/none"}}, ".items.$ref", "there is no such subschema"),
        ({"allOf": [{"$ref": "#"}]}, "", "leads back to itself"),
        ({"description": "x" * 5_000_000}, "", "at most 262144 are taken"),
    ],
)  # fmt: skip
async def test_a_schema_that_cannot_be_used_is_refused_before_any_upstream_call(
    schema: Json, param: str, reason: str
) -> None:
    async with says(GOOD) as one, running_router(routed(one)) as it:
        answer, _ = await called(it.base_url, response_format=wanted(schema))
        assert one.requests == []
    assert answer.status == 400
    error = error_of(answer)
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_schema")
    assert error["param"].startswith(f"response_format.json_schema.schema{param}")
    assert reason in error["message"]
    assert len(answer.raw) < 2000
