"""What is known of tool calls that were delivered, and the hold of those that were not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.events import ToolCall
from router.core.json_schema import Schema, Schemas
from router.core.json_values import JsonFault
from router.core.tools import MAX_CALLS, MAX_HELD_ARGUMENTS_CHARS, ToolHold, ToolLedger

PAY = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}},
    "required": ["amount"],
    "additionalProperties": False,
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=6), json_values, max_size=4)


def schemas(**tools: Mapping[str, Any] | None) -> dict[str, Schema | None]:
    compiler = Schemas()
    return {
        name: None if schema is None else compiler.compile(schema) for name, schema in tools.items()
    }


def hold() -> ToolHold:
    return ToolHold(schemas(pay=PAY, anything=None))


def call(arguments: str, index: int = 0, name: str = "anything", **fields: Any) -> ToolCall:  # noqa: ANN401
    return ToolCall(index, f"call_{index}", name, arguments, **fields)


def more(arguments: str, index: int = 0, **fields: Any) -> ToolCall:  # noqa: ANN401
    return ToolCall(index, "", "", arguments, **fields)


def cut(text: str, cuts: Sequence[int]) -> list[str]:
    edges = [0, *sorted(at % (len(text) + 1) for at in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def pieces(text: str, cuts: Sequence[int], index: int = 0) -> list[ToolCall]:
    head, *rest = cut(text, cuts)
    return [call(head, index), *(more(piece, index) for piece in rest)]


def released(held: ToolHold, increments: Sequence[ToolCall]) -> list[ToolCall]:
    return [out for one in increments for out in held.take(one)]


def run(held: ToolHold, *increments: ToolCall) -> list[ToolCall]:
    return [*released(held, increments), *held.finish()]


# --- the hold -------------------------------------------------------------------------------------


@given(objects, st.lists(st.integers(0, 200), max_size=6))
def test_any_split_gives_the_one_call_with_its_last_bracket(
    value: dict[str, Any], cuts: list[int]
) -> None:
    text = json.dumps(value)
    held = hold()
    increments = pieces(text, cuts)
    out = []
    for at, one in enumerate(increments):
        given_now = held.take(one)
        assert not given_now or "".join(x.arguments for x in increments[: at + 1]) == text
        out += given_now
    assert [*out, *held.finish()] == [call(text)]


@given(st.lists(objects, min_size=1, max_size=4), st.data())
def test_interleaved_calls_come_whole_and_in_order(
    values: list[dict[str, Any]], data: st.DataObject
) -> None:
    texts = [json.dumps(value) for value in values]
    cuts = st.lists(st.integers(0, 100), max_size=4)
    queues = [pieces(text, data.draw(cuts), at) for at, text in enumerate(texts)]
    sizes = list(map(len, queues))
    held = hold()
    out: list[ToolCall] = []
    while any(queues):
        begun = sum(len(one) < size for one, size in zip(queues, sizes, strict=True))
        # A call's index says where it began, so its first increment comes after its predecessor's.
        queue = data.draw(st.sampled_from([one for one in queues[: begun + 1] if one]))
        out += held.take(queue.pop(0))
    assert [*out, *held.finish()] == [call(text, at) for at, text in enumerate(texts)]


@given(objects, st.integers(0, 400))
def test_a_call_that_is_cut_gives_nothing(value: dict[str, Any], at: int) -> None:
    text = json.dumps(value)
    part = text[: at % len(text)]
    held = hold()
    assert released(held, [call(part)]) == []
    if part:
        with pytest.raises(JsonFault, match="`anything` are not complete"):
            held.finish()
    else:
        assert held.finish() == [call("{}")]  # a finish after no arguments at all: none are needed


def test_id_and_name_may_come_late() -> None:
    held = hold()
    assert held.take(ToolCall(0, "", "", '{"a": ')) == []
    assert held.take(ToolCall(0, "call_0", "", "1}")) == []
    assert held.take(ToolCall(0, "", "anything", "")) == [call('{"a": 1}')]


def test_a_later_call_waits_for_the_earlier_one() -> None:
    held = hold()
    assert released(held, [call("", 0), call("{}", 1)]) == []
    assert released(held, [more("{}", 0)]) == [call("{}", 0), call("{}", 1)]


def test_white_space_around_arguments_is_no_part_of_them() -> None:
    held = hold()
    assert released(held, [call(" \n{"), more("}\n")]) == [call("{}")]
    assert released(held, [more("  ")]) == []
    assert held.finish() == []


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("pay", '{"amount": "five"}', "amount"),
        ("pay", "{}", "amount"),
        ("pay", '{"amount": 5, "tip": 1}', "tip"),
        ("pay", "[5]", "are no object"),
        ("anything", "5 ", "are no object"),
        ("anything", '"x"', "are no object"),
        ("anything", "{'amount': 5}", "`'`"),
        ("anything", '{"a": 1}}', "text after"),
        ("anything", '{"a": 1}{"b": 2}', "text after"),
        ("anything", '{"a": 1, "a": 2}', "key already"),
        ("stranger", "{}", "none of the tools"),
    ],
)
def test_what_breaks_the_tool_is_a_fault(name: str, arguments: str, reason: str) -> None:
    with pytest.raises(JsonFault, match=reason):
        run(hold(), call(arguments, name=name))


def test_text_after_a_call_that_is_out_is_a_fault_too() -> None:
    held = hold()
    assert released(held, [call('{"a": 1}')]) == [call('{"a": 1}')]
    with pytest.raises(JsonFault, match="text after"):
        held.take(more("}"))


def test_empty_arguments_must_fit_the_tool() -> None:
    held = ToolHold(schemas(pay=PAY))
    assert held.take(call("", name="pay")) == []
    with pytest.raises(JsonFault, match="amount"):
        held.finish()


def test_a_call_without_a_name_never_goes_out() -> None:
    held = hold()
    assert held.take(ToolCall(0, "call_0", "", "{}")) == []
    with pytest.raises(JsonFault, match="not complete"):
        held.finish()


def test_choices_are_held_apart() -> None:
    held = hold()
    assert released(held, [call("{", choice=0), call("{", choice=1)]) == []
    assert released(held, [more("}", choice=1)]) == [call("{}", choice=1)]
    assert released(held, [more("}", choice=0)]) == [call("{}", choice=0)]


def test_a_legacy_call_stays_one() -> None:
    held = hold()
    assert released(held, [ToolCall(0, "", "anything", "{}", legacy=True)]) == [
        ToolCall(0, "", "anything", "{}", legacy=True)
    ]


def test_a_custom_tools_text_is_whole_when_the_answer_is() -> None:
    held = hold()
    increments = [call("SELECT {", custom=True), more(" 1", custom=True), call("{}", 1)]
    assert released(held, increments) == []
    assert held.finish() == [call("SELECT { 1", custom=True), call("{}", 1)]


def test_bounds() -> None:
    held = hold()
    for index in range(MAX_CALLS):
        held.take(call("{}", index))
    with pytest.raises(JsonFault, match=f"more than {MAX_CALLS} tool calls"):
        held.take(call("{}", MAX_CALLS))
    held = hold()
    piece = f'"{"x" * 1024 * 1024}",'
    with pytest.raises(JsonFault, match=f"more than {MAX_HELD_ARGUMENTS_CHARS} characters"):
        released(held, [call('{"a": ['), *[more(piece)] * 9])


# --- the ledger -----------------------------------------------------------------------------------


def ledger(*events: ToolCall) -> ToolLedger:
    book = ToolLedger()
    for event in events:
        book.take(event)
    return book


@given(objects, st.lists(st.integers(0, 200), max_size=5), st.integers(0, 200))
def test_it_knows_whether_arguments_are_complete(
    value: dict[str, Any], cuts: list[int], at: int
) -> None:
    text = json.dumps(value)
    part = text[: at % (len(text) + 1)]
    book = ledger(*pieces(part, cuts))
    whole = part == text
    word = "complete" if whole else "incomplete"
    assert book.describe() == f"`anything` (arguments {word})"
    assert book.cut_short() == ("" if whole or not part else "`anything` (arguments incomplete)")
    assert book.without_arguments() == ([] if part else [ToolCall(0, "", "", "{}")])


def test_every_call_is_named() -> None:
    book = ledger(call("{}"), call('{"a', 1, "pay"), ToolCall(2, "x", "", ""), call("{", choice=1))
    assert book.describe() == (
        "`anything` (arguments complete), `pay` (arguments incomplete), "
        "`unnamed` (arguments incomplete), `anything` (arguments incomplete)"
    )
    assert book.cut_short() == "`pay` (arguments incomplete), `anything` (arguments incomplete)"


@pytest.mark.parametrize("arguments", ["{'a': 1", '{"a": 1}}', "nonsense", '{"a": 1} {'])
def test_what_is_no_json_is_the_models_own(arguments: str) -> None:
    book = ledger(call(arguments))
    assert book.describe() == "`anything` (arguments incomplete)"
    assert book.cut_short() == ""
    assert book.without_arguments() == []


def test_what_the_provider_ran() -> None:
    book = ledger(call("{}"))
    book.ran({"executed_tools", "annotations"})
    book.ran({"annotations"})
    assert book.describe() == (
        "`anything` (arguments complete), `annotations` (run by the provider itself), "
        "`executed_tools` (run by the provider itself)"
    )


def test_a_custom_tool_has_no_json_to_be_complete() -> None:
    book = ledger(call("SELECT", custom=True))
    assert book.cut_short() == ""
    assert book.without_arguments() == []
