"""Tool calls over sockets: refused once delivered, held until whole, always in one shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.reading import check_contract
from support.toolcalls import (
    ATOMIC,
    DONE,
    LOOK,
    NOW,
    PAY,
    TOOLS,
    begun,
    bench,
    calls_of,
    chunk,
    deltas_of,
    ends,
    interrupted,
    keys_of,
    more,
    text,
    wanted,
)

from router.core.events import ToolCall
from router.simulate import Script, tokenize

FIXTURES = Path(__file__).parent / "fixtures" / "openai"
TALK = "I will. Wait"
LEGACY = ToolCall(index=0, name="pay", arguments=PAY.arguments, legacy=True)

SCRIPT = Script(text=TALK, tool_calls=(PAY,))
BODY = b"".join(
    (
        text("I will."),
        text(" Wait"),
        begun(PAY),
        more(PAY, PAY.arguments[:9]),
        more(PAY, PAY.arguments[9:]),
        chunk(finish="tool_calls"),
        DONE,
    )
)
FINISH_AT = BODY.index(b'"finish_reason"')
"""Where the last event begins that the answer needs."""


# --- a cut at every byte --------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["fin", "end"])
async def test_stream_asks_nobody_else_once_a_part_was_delivered(after: str) -> None:
    """A cut at every byte; then, too, a clean end of the body there."""
    async with bench(SCRIPT, SCRIPT) as place:
        refused = whole = 0
        for at in range(0 if after == "fin" else len(BODY) // 2, len(BODY)):
            answer = await place.ask(ends(BODY[:at], after))
            assert answer.delivered == TALK
            if answer.error is None:
                check_contract(answer)
                assert keys_of(answer) == wanted(PAY)
                assert answer.finish_reasons == ["tool_calls"]
                whole += place.asked == (1, 0)
                continue
            refused += 1
            assert place.asked == (1, 0)
            message = interrupted(answer)["message"]
            (call,) = calls_of(answer)
            assert (call.id, call.name) == (PAY.id, PAY.name)
            assert PAY.arguments.startswith(call.arguments)
            state = "complete" if call.arguments == PAY.arguments else "incomplete"
            assert f"`pay` (arguments {state})" in message
        assert refused > 200
        assert whole > 0


async def test_atomic_delivers_exactly_one_whole_call() -> None:
    async with bench(SCRIPT, SCRIPT) as place:
        refused = failed_over = 0
        for at in range(len(BODY)):
            answer = await place.ask(ends(BODY[:at]), headers=ATOMIC)
            assert answer.delivered == TALK
            (call,) = calls_of(answer)
            assert call.key == wanted(PAY)[0]
            assert call.increments == 1
            if answer.error is not None:
                refused += 1
                assert "`pay` (arguments complete)" in interrupted(answer)["message"]
                assert place.asked == (1, 0)
                continue
            check_contract(answer)
            assert answer.finish_reasons == ["tool_calls"]
            failed_over += place.asked == (1, 1)
        assert 0 < refused < 80  # only between the call's last bracket and the finish
        assert failed_over > 300


async def test_atomic_text_before_the_call_is_kept_and_tools_are_offered_again() -> None:
    async with bench(SCRIPT, SCRIPT) as place:
        answer = await place.ask(ends(BODY[:FINISH_AT], "rst"), headers=ATOMIC)
        interrupted(answer)
        cut = BODY.index(b"amount")
        answer = await place.ask(ends(BODY[:cut], "rst"), headers=ATOMIC)
        check_contract(answer)
        asked = place.providers[1].requests[-1]
        assert asked.prefix == "I will."
        assert asked.body["tools"] == TOOLS
        assert answer.metadata is not None
        assert answer.metadata["superseded"] == []


async def test_atomic_by_route_and_stream_by_header() -> None:
    async with bench(SCRIPT, SCRIPT, route={"tool_calls": "atomic"}) as place:
        cut = ends(BODY[: BODY.index(b"amount")])
        assert keys_of(await place.ask(cut)) == wanted(PAY)
        assert place.asked == (1, 1)
        interrupted(await place.ask(cut, headers={"X-Router-Tool-Calls": "stream"}))


# --- several calls, text between, the legacy form -------------------------------------------------

PARALLEL = (
    begun(PAY),
    begun(LOOK),
    more(LOOK, LOOK.arguments[:5]),
    more(PAY, PAY.arguments[:5]),
    more(LOOK, LOOK.arguments[5:]),
    text(" Hm."),
    more(PAY, PAY.arguments[5:]),
    chunk(finish="tool_calls"),
    DONE,
)


async def test_parallel_calls_held_until_whole_in_index_order() -> None:
    both = Script(text="", tool_calls=(PAY, LOOK))
    async with bench(both, both) as place:
        for events in range(len(PARALLEL) + 1):
            raw = ends(b"".join(PARALLEL[:events]))
            answer = await place.ask(raw, headers=ATOMIC)
            if 7 <= events < 8:
                interrupted(answer)
            else:
                check_contract(answer)
            assert keys_of(answer) == wanted(PAY, LOOK)
            assert all(call.increments == 1 for call in calls_of(answer))
            assert place.asked == (1, 0 if events >= 7 else 1)


async def test_once_the_first_of_two_is_out_the_refusal_holds() -> None:
    two = (begun(PAY, PAY.arguments), begun(LOOK, LOOK.arguments[:5]))
    async with bench(Script(), Script()) as place:
        answer = await place.ask(ends(b"".join(two)), headers=ATOMIC)
        assert "`pay` (arguments complete)" in interrupted(answer)["message"]
        assert "look_up" not in str(answer.error)  # of that one the client has nothing
        assert keys_of(answer) == wanted(PAY)
        answer = await place.ask(ends(b"".join(two)))
        named = "`pay` (arguments complete), `look_up` (arguments incomplete)"
        assert named in interrupted(answer)["message"]


@pytest.mark.parametrize("headers", [{}, ATOMIC])
async def test_text_after_a_call_is_delivered_and_a_cut_there_is_refused(
    headers: dict[str, str],
) -> None:
    events = (begun(PAY, PAY.arguments), text(" Done. And"), chunk(finish="stop"), DONE)
    async with bench(Script(), Script()) as place:
        answer = await place.ask(b"".join(events), headers=headers)
        check_contract(answer)
        assert (answer.delivered, answer.finish_reasons) == (" Done. And", ["tool_calls"])
        assert keys_of(answer) == wanted(PAY)
        answer = await place.ask(ends(b"".join(events[:2])), headers=headers)
        interrupted(answer)
        assert (answer.delivered, place.asked) == (" Done. And", (1, 0))


@pytest.mark.parametrize("headers", [{}, ATOMIC])
async def test_the_legacy_function_call(headers: dict[str, str]) -> None:
    half = (begun(LEGACY), more(LEGACY, PAY.arguments[:7]))
    rest = (more(LEGACY, PAY.arguments[7:]), chunk(finish="function_call"), DONE)
    script = Script(text="", tool_calls=(LEGACY,))
    functions = [tool["function"] for tool in TOOLS]
    async with bench(script, script) as place:
        for raw, whole in (
            (ends(b"".join(half + rest), "end"), True),
            (ends(b"".join(half)), bool(headers)),
        ):
            answer = await place.ask(raw, headers=headers, tools=None, functions=functions)
            calls = [one["function_call"] for one in deltas_of(answer) if "function_call" in one]
            arguments = "".join(one["arguments"] for one in calls)
            assert [one["name"] for one in calls if "name" in one] == ["pay"]
            if whole:
                check_contract(answer)
                assert answer.finish_reasons == ["function_call"]
                assert arguments == PAY.arguments
            else:
                interrupted(answer)
                assert arguments == PAY.arguments[:7]


@pytest.mark.parametrize("headers", [{}, ATOMIC])
async def test_a_custom_tools_call(headers: dict[str, str]) -> None:
    tools = [{"type": "custom", "custom": {"name": "sql"}}]
    first = {"index": 0, "id": "call_9", "type": "custom", "custom": {"name": "sql", "input": "SE"}}
    events = (
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [{"index": 0, "custom": {"input": "LECT {"}}]}),
        chunk(finish="tool_calls"),
        DONE,
    )
    async with bench(Script(), Script()) as place:
        answer = await place.ask(b"".join(events), headers=headers, tools=tools)
        check_contract(answer)
        calls = [call for delta in deltas_of(answer) for call in delta.get("tool_calls", ())]
        assert "".join(call["custom"]["input"] for call in calls) == "SELECT {"
        assert (calls[0]["id"], calls[0]["type"]) == ("call_9", "custom")
        response = await place.post(b"".join(events), headers=headers, tools=tools)
        (call,) = response.json()["choices"][0]["message"]["tool_calls"]
        whole = {"id": "call_9", "type": "custom", "custom": {"name": "sql", "input": "SELECT {"}}
        assert call == whole


# --- calls that are not as they should be ---------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pay", '{"amount": "many"}'),
        ("pay", '{"to": "Ada"}'),
        ("pay", '{"amount": 3, "tip": 1}'),
        ("pay", '{"amount": 36, "to": "Ada"}}'),
        ("pay", "{'amount': 36}"),
        ("pay", "[36]"),
        ("pay", ""),
        ("stranger", "{}"),
    ],
)
async def test_atomic_what_breaks_the_tools_schema_goes_to_the_next_target(
    name: str, arguments: str
) -> None:
    wrong = ToolCall(index=0, id="call_w", name=name, arguments=arguments)
    async with bench(Script(text=TALK, tool_calls=(wrong,)), SCRIPT) as place:
        answer = await place.ask(headers=ATOMIC)
        check_contract(answer)
        assert keys_of(answer) == wanted(PAY)
        assert answer.delivered == TALK
        assert answer.metadata is not None
        assert answer.metadata["attempts"][0]["fault"] == "schema_violation"


async def test_atomic_when_nobody_keeps_to_the_schema() -> None:
    wrong = ToolCall(index=0, id="call_w", name="pay", arguments='{"amount": "many"}')
    script = Script(text=TALK, tool_calls=(wrong,))
    async with bench(script, script) as place:
        answer = await place.ask(headers=ATOMIC)
        assert answer.error is not None
        assert "amount" in answer.error["message"]
        assert (keys_of(answer), answer.done) == ([], 0)


@pytest.mark.parametrize("word", ["tool_calls", "stop"])
async def test_a_finish_inside_the_arguments_is_no_success(word: str) -> None:
    """Clients repair such arguments, and run them."""
    events = (begun(PAY), more(PAY, '{"amount": 3'), chunk(finish=word), DONE)
    async with bench(SCRIPT, Script(text="", tool_calls=(PAY,))) as place:
        answer = await place.ask(b"".join(events))
        assert "`pay` (arguments incomplete)" in interrupted(answer)["message"]
        assert place.asked == (1, 0)
        answer = await place.ask(b"".join(events), headers=ATOMIC)
        check_contract(answer)
        assert keys_of(answer) == wanted(PAY)
        assert place.asked == (1, 1)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_finish_that_says_that_something_is_missing_is_one(reason: str) -> None:
    events = (text("So. "), begun(PAY), more(PAY, '{"amount": 3'), chunk(finish=reason), DONE)
    async with bench(SCRIPT, SCRIPT) as place:
        answer = await place.ask(b"".join(events))
        check_contract(answer)
        assert answer.finish_reasons == [reason]
        assert keys_of(answer) == [("call_1", "pay", '{"amount": 3')]
        answer = await place.ask(b"".join(events), headers=ATOMIC)
        check_contract(answer)
        assert answer.finish_reasons == [reason]
        assert keys_of(answer) == []
        assert place.asked == (1, 0)


@pytest.mark.parametrize("headers", [{}, ATOMIC])
async def test_no_arguments_at_all_are_an_empty_object(headers: dict[str, str]) -> None:
    async with bench(Script(text="", tool_calls=(NOW,)), Script()) as place:
        answer = await place.ask(headers=headers)
        check_contract(answer)
        assert keys_of(answer) == [("call_3", "now", "{}")]
        response = await place.post(headers=headers)
        (call,) = response.json()["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "now", "arguments": "{}"}
        # Cut before the finish, nobody knows whether more would have come.
        place.providers[0].set_faults("cut@1")
        answer = await place.ask(headers=headers)
        assert bool(headers) == (answer.error is None)
        place.providers[0].set_faults(None)


FAULTY = sorted(path.stem for path in FIXTURES.glob("tools_*.body"))
CUT = ("tools_cut_in_arguments", "tools_cut_in_arguments_with_done")


def canonical(name: str) -> list[list[str]]:
    """Name and arguments of the calls that a fixture means."""
    calls: dict[int, list[str]] = {}
    for event in json.loads((FIXTURES / f"{name}.json").read_text("utf-8")):
        if event["kind"] == "ToolCall":
            call = calls.setdefault(event["index"], ["", ""])
            call[0] += event.get("name", "")
            call[1] += event.get("arguments", "")
    return [calls[index] for index in sorted(calls)]


def folded(answer: Any) -> list[list[str]]:  # noqa: ANN401 - an Answer
    legacy = [one["function_call"] for one in deltas_of(answer) if "function_call" in one]
    if legacy:
        arguments = "".join(one["arguments"] for one in legacy)
        return [["".join(one.get("name", "") for one in legacy), arguments]]
    return [[call.name, call.arguments] for call in calls_of(answer)]


@pytest.mark.parametrize("headers", [{}, ATOMIC])
@pytest.mark.parametrize("name", FAULTY)
async def test_each_malformed_tool_stream_gives_the_canonical_call(
    name: str, headers: dict[str, str]
) -> None:
    body = (FIXTURES / f"{name}.body").read_bytes()
    names = {call for call, _ in canonical(name)}
    tools = [{"type": "function", "function": {"name": one}} for one in sorted(names)]
    rescue = Script(text="", tool_calls=(ToolCall(0, "call_r", min(names), '{"x":1}'),))
    async with bench(Script(), rescue) as place:
        answer = await place.ask(body, headers=headers, tools=tools)
        if name in CUT and not headers:
            interrupted(answer)
        else:
            check_contract(answer)
        if name == "tools_cut_in_arguments_with_length":
            assert answer.finish_reasons == ["length"]
            assert folded(answer) == ([] if headers else canonical(name))
        elif name in CUT and headers:
            assert folded(answer) == [[min(names), '{"x":1}']]
        else:
            assert folded(answer) == canonical(name)
            assert place.asked == (1, 0)
        ids = [call.id for call in calls_of(answer)]
        assert len(set(ids)) == len(ids)


# --- what else counts as a call, and what does not ------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("annotations", [{"type": "url_citation", "url_citation": {"url": "https://a.example"}}]),
        ("executed_tools", [{"index": 0, "type": "python", "arguments": "{}", "output": "2"}]),
        ("citations", ["https://a.example"]),
        ("server_tool_use", {"web_search_requests": 1}),
    ],
)
@pytest.mark.parametrize("before", ["", "It is. So"])
async def test_a_tool_that_the_provider_ran_counts(field: str, value: object, before: str) -> None:
    events = [text(before)] if before else []
    events.append(chunk({field: value}))
    async with bench(SCRIPT, SCRIPT) as place:
        answer = await place.ask(b"".join((*events, text("!"), chunk(finish="stop"), DONE)))
        check_contract(answer)
        assert any(delta.get(field) == value for delta in deltas_of(answer))
        for rest in ([], [text(" And")]):
            response = await place.post(ends(b"".join(events + rest)), stream=True)
            assert place.asked == (1, 0)
            assert "tool_call_interrupted" in response.text
            assert f"`{field}` (run by the provider itself)" in response.text
            assert "[DONE]" not in response.text


async def test_empty_annotations_are_none() -> None:
    events = (text("It is. So"), chunk({"annotations": [], "executed_tools": None}))
    async with bench(SCRIPT, Script(text="It is. So it is.")) as place:
        answer = await place.ask(ends(b"".join(events)))
        check_contract(answer)
        assert answer.delivered == "It is. So it is."


async def test_tool_results_in_the_history_forbid_nothing() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Pay."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "paid"},
    ]
    said = "It is paid. You owe nothing more."
    async with bench(Script(text=said), Script(text=said)) as place:
        for cut in range(len(tokenize(said))):
            place.providers[0].set_faults(f"cut@{cut}")
            answer = await place.ask(messages=messages)
            check_contract(answer)
            assert answer.delivered == said
            assert place.asked == (1, 1)
            assert place.providers[1].requests[-1].body["messages"][:3] == messages


async def test_several_choices_each_hold_their_own_calls() -> None:
    async with bench(SCRIPT, SCRIPT) as place:
        answer = await place.ask(headers=ATOMIC, n=2)
        assert answer.error is None
        for choice in (0, 1):
            (call,) = calls_of(answer, choice=choice)
            assert (call.key, call.increments) == (wanted(PAY)[0], 1)
        assert answer.finish_reasons == ["tool_calls", "tool_calls"]


# --- the blocking form ----------------------------------------------------------------------------


async def test_a_blocking_request_is_refused_too() -> None:
    async with bench(SCRIPT, SCRIPT) as place:
        half = ends(BODY[: BODY.index(b"amount")])
        response = await place.post(half)
        assert response.status_code == 502
        assert response.headers["x-should-retry"] == "false"
        error = response.json()["error"]
        assert error["code"] == "tool_call_interrupted"
        assert "`pay` (arguments incomplete)" in error["message"]
        assert place.asked == (1, 0)
        response = await place.post(half, headers=ATOMIC)
        assert response.status_code == 200
        (choice,) = response.json()["choices"]
        assert choice["message"]["tool_calls"][0]["function"]["arguments"] == PAY.arguments
        assert choice["message"]["content"] == TALK
        assert choice["finish_reason"] == "tool_calls"


# --- what is refused before any provider is asked -------------------------------------------------


def tool(name: str = "pay", parameters: object = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.mark.parametrize(
    ("fields", "headers", "param"),
    [
        ({"tools": [tool(), tool()]}, {}, "tools[1].function.name"),
        ({"tools": [tool(parameters={"type": "mapping"})]}, {}, "tools[0].function.parameters"),
        ({"tools": [tool(parameters={"type": "mapping"})]}, ATOMIC, "tools[0].function.parameters"),
        (
            {"tools": [tool("a"), tool(parameters={"properties": {"x": {"type": 5}}})]},
            {},
            "tools[1].function.parameters.properties.x",
        ),
        (
            {"tools": [tool(parameters={"properties": {"x": {"pattern": "(?<=a)b"}}})]},
            ATOMIC,
            "tools[0].function.parameters.properties.x.pattern",
        ),
        (
            {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            {},
            "tool_choice.function.name",
        ),
        ({"tools": None, "tool_choice": "required"}, {}, "tool_choice"),
        ({"functions": [{"name": "a"}, {"name": "a"}], "tools": None}, {}, "functions[1].name"),
        ({}, {"X-Router-Tool-Calls": "whole"}, "x-router-tool-calls"),
        ({}, {"X-Router-On-Interrupt": "retry"}, "x-router-on-interrupt"),
        ({}, {"X-Router-On-Interrupt": "restart"}, "x-router-on-interrupt"),
        ({}, {"X-Router-Events": "all"}, "x-router-events"),
        ({}, {"X-Router-JSON": "yes"}, "x-router-json"),
        ({}, {"X-Router-Metadata": "no"}, "x-router-metadata"),
    ],
)
async def test_bad_input_is_refused_with_its_field(
    fields: dict[str, Any], headers: dict[str, str], param: str
) -> None:
    async with bench(SCRIPT) as place:
        for stream in (True, False):
            fields = {"tools": TOOLS, **fields}
            response = await place.post(headers=headers, stream=stream, **fields)
            if "restart" in headers.values() and not stream:
                assert response.status_code == 200  # nobody sees anything before the end
                continue
            assert response.status_code == 400, response.text
            error = response.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert (error["param"] or "").startswith(param), error
            assert place.asked == (0,)


async def test_a_pattern_that_only_the_provider_knows_is_its_business_while_nothing_is_held() -> (
    None
):
    tools = [tool(parameters={"properties": {"to": {"pattern": "(?<=A)da"}}})]
    async with bench(SCRIPT) as place:
        answer = await place.ask(tools=tools)
        check_contract(answer)
        assert keys_of(answer) == wanted(PAY)


def test_the_fixtures_are_there() -> None:
    assert len(FAULTY) > 15
    assert msgspec.json.decode(BODY.split(b"\n\n")[0].removeprefix(b"data: "))
