"""One document from two models: what was delivered stays, the rest follows, whatever they send."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from support.json_texts import Json, documents, pieces, same, seeds, shuffled, spelled, strictly

from router.core.json_gate import MAX_PROSE_CHARS
from router.core.json_values import JsonFault, JsonReader
from router.core.structured import Structured


def prefixes(text: str) -> list[str]:
    """All that can have been delivered of a document when its model dies, shortest first."""
    reader = JsonReader()
    ends = [end.end for end in reader.feed(text)]
    return ["", *(text[:end] for end in ends[: -1 if reader.complete else None])]


def go_on(
    committed: str, parts: list[str], *, raw: bool, told: list[str] | None = None
) -> tuple[str, JsonFault | None]:
    """The document that a client has after a second model; `told` gets each of its states."""
    structured = Structured()
    assert structured.feed(committed + " ").text == committed
    structured.expect(raw=raw)
    out = committed
    for part in parts:
        passed = structured.feed(part)
        out += passed.text
        if told is not None and passed.text:
            told.append(out)
        if passed.fault is not None:
            return out, passed.fault
    passed = structured.finish()
    return out + passed.text, passed.fault


ECHOES = {
    "again": ("{}", False),
    "again, though asked to go on": ("{}", True),
    "in a fence": ("```json\n{}\n```", False),
    "announced, in a fence": ("Sure, here is the whole document:\n```\n{}\n```\nDone.", False),
    "in a fence, though asked to go on": ("```json\n{}\n```", True),
    "announced, though asked to go on": ("Sure, here is the document again:\n{}", True),
}
RESTS = {
    "in a fence": "```json\n{}\n```",
    "announced": "Sure, here is the rest:\n{}",
    "announced, in a fence": "Here is the continuation…\n\n```\n{}\n```\nThat is all.",
    "with a remark": "{}\n\nThat is all.",
}


@settings(max_examples=1000, deadline=None)
@given(documents(), seeds)
@example(document={"a": {"b": [1, {"c": 2, "d": 3}], "e": 4}, "f": 5}, seed=1)
@example(document={"\ud83d": [1], "a": {"\ude00": 1}}, seed=2)
@example(document=[[[]], [{}, {}], [[1, 2], []]], seed=3)
def test_a_document_cut_anywhere_is_the_uncut_one(document: Json, seed: int) -> None:
    text = spelled(document, seed).strip()
    again = spelled(shuffled(document, seed), seed + 1)
    for committed in prefixes(text):
        if committed:
            assert go_on(committed, pieces(text[len(committed) :], seed), raw=True) == (text, None)
        out, fault = go_on(committed, pieces(again, seed), raw=False)
        assert fault is None
        assert same(strictly(out), document)
        assert out.startswith(committed)


@settings(max_examples=200, deadline=None)
@given(documents(), seeds)
def test_whatever_is_wrapped_around_the_continuation(document: Json, seed: int) -> None:
    text = spelled(document, seed).strip()
    everything = prefixes(text)
    committed = everything[seed % len(everything)]
    for wrapped, raw in ECHOES.values():
        whole = spelled(shuffled(document, seed), seed + 1).strip()
        out, fault = go_on(committed, pieces(wrapped.replace("{}", whole), seed), raw=raw)
        assert fault is None
        assert same(strictly(out), document)
    for wrapped in RESTS.values() if committed else ():
        rest = text[len(committed) :].lstrip()
        out, fault = go_on(committed, pieces(wrapped.replace("{}", rest), seed), raw=True)
        assert fault is None
        assert same(strictly(out), document)


@settings(max_examples=150, deadline=None)
@given(documents(), seeds)
def test_any_split_of_a_continuation_gives_the_same(document: Json, seed: int) -> None:
    text = spelled(document, seed).strip()
    everything = prefixes(text)
    committed = everything[seed % len(everything)]
    again = spelled(shuffled(document, seed), seed + 1)
    for rest, raw in ((text[len(committed) :], True), (again, False), (again, True)):
        if rest is not again and not committed:
            continue
        whole = go_on(committed, [rest], raw=raw)
        assert whole[1] is None
        assert go_on(committed, list(rest), raw=raw) == whole
        assert go_on(committed, pieces(rest, seed + 2), raw=raw) == whole


@settings(max_examples=150, deadline=None)
@given(documents(), documents(), seeds)
def test_two_models_that_disagree_never_harm_what_was_delivered(
    document: Json, other: Json, seed: int
) -> None:
    text = spelled(document, seed).strip()
    everything = prefixes(text)
    committed = everything[seed % len(everything)]
    second = spelled(other, seed + 1)
    told: list[str] = []
    out, fault = go_on(committed, list(second), raw=False, told=told)
    assert go_on(committed, [second], raw=False)[0] == out
    for state in told:
        strictly(state + JsonReader.after(state).closers)
    assert out.startswith(committed)
    if fault is None and committed:  # then it is one document, in which what was delivered stands
        assert _contains(strictly(out), strictly(committed + JsonReader.after(committed).closers))


def _contains(whole: Json, part: Json) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and _contains(whole[key], one) for key, one in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and all(map(_contains, whole, part))
    return same(whole, part)


def test_the_named_cut() -> None:
    (*_, committed) = prefixes('{"x": 0, "a": 1e')
    assert committed == '{"x": 0'
    assert (
        go_on(committed, [', "a": 1', 'e5, "b": 2}'], raw=True)[0] == '{"x": 0, "a": 1e5, "b": 2}'
    )
    assert go_on(committed, ['{"x": 9, "a": 1', "e5}"], raw=False)[0] == '{"x": 0, "a": 1e5}'
    assert prefixes('{"a": 1e') == [""]
    assert go_on("", ['{"a": 1e3}'], raw=False) == ('{"a": 1e3}', None)


NUMBERS = ('{"a": 12', "[1, 2", '{"a": [-0.5', '{"a": 1e5')


@pytest.mark.parametrize("committed", NUMBERS)
@pytest.mark.parametrize("rest", ["3}", "3]", ".5}", "e7]", "E+7}", "0, 4]}", "3\n, 4]}", "3"])
def test_a_number_that_was_delivered_is_never_changed(committed: str, rest: str) -> None:
    """Its delimiter was seen and not delivered; a model that goes on with a digit changes it."""
    for parts in ([rest], list(rest)):
        out, fault = go_on(committed, parts, raw=True)
        assert out == committed
        assert fault is not None


@pytest.mark.parametrize(
    ("committed", "rest", "expected"),
    [
        ('{"a": 1', '"b": 2}', '{"a": 1, "b": 2}'),
        ('{"a":1', ' "b":2}', '{"a":1,"b":2}'),
        ('["x"', '"y"]', '["x", "y"]'.replace(", ", ",")),
        ('{"a": [1, 2', '\n  ],\n "b": 3\n}', '{"a": [1, 2\n  ],\n "b": 3\n}'),
    ],
)
def test_a_rest_that_lacks_its_comma_gets_it(committed: str, rest: str, expected: str) -> None:
    for parts in ([rest], list(rest)):
        assert go_on(committed, parts, raw=True) == (expected, None)


DISAGREE = [
    # committed, the second document, what the client has, and why it is a fault
    ('{"a": 1', '{"a": 2, "b": 3}', '{"a": 1, "b": 3}', ""),
    ('{"a": "x"', '{"b": 3, "a": "y"}', '{"a": "x", "b": 3}', ""),
    ('{"a": "x"', '{"b": 3}', '{"a": "x", "b": 3}', ""),
    ('{"a": 1', '{"a": 2}', '{"a": 1}', ""),
    ("[1, 2", "[7, 8, 9]", "[1, 2, 9]", ""),
    ("[1, 2", "[7, 8]", "[1, 2]", ""),
    ('{"a": [1, 2', '{"a": [5, 6, 7], "b": 3}', '{"a": [1, 2, 7], "b": 3}', ""),
    ('{"a": [1, 2', '{"b": 3, "a": [5, 6, 7]}', '{"a": [1, 2, 7], "b": 3}', ""),
    ('{"a": {"b": 1', '{"c": [1], "a": {"e": 2}}', '{"a": {"b": 1, "e": 2}, "c": [1]}', ""),
    ('{"a": [], "b": {"c": 2', '{"b": {"d": 4}}', '{"a": [], "b": {"c": 2, "d": 4}}', ""),
    ('{"a": [1, 2', '{"a": [5], "b": 3}', "", "has 1 items where 2 were delivered"),
    ("[1, 2", "[]", "", "has 0 items where 2 were delivered"),
    ('{"a": 1', '{"a": "one", "b": 2}', "", "has a string where a number was delivered"),
    ('{"a": 1', '{"a": null, "b": 2}', "", "has null where a number was delivered"),
    ('{"a": true', '{"a": 1, "b": 2}', "", "has a number where a truth value was delivered"),
    ('{"a": [1]', '{"a": {"b": 1}}', "", "has an object where an array was delivered"),
    ('{"a": [1', '{"a": {"b": 1}}', "", "has another container there"),
    ('{"a": {"b": 1', '{"a": [1]}', "", "has another container there"),
    ('{"a": [1', '{"a": {}}', "", "has no such container"),
    ('{"a": [1', '{"a": 5, "b": 1}', "", "has no such container"),
    ('{"a": [1', '{"b": 1}', "", "lacks what was begun here"),
    ("[[1], [2", "[[1]]", "", "lacks what was begun here"),
    ('{"a": 1', "[1, 2]", "", "holds no JSON document"),
    ('{"a": 1', "I cannot.", "", "holds no JSON document"),
    ('{"a": 1', '{"a": 1, "b": 2', "", "ended inside its document"),
    ('{"a": 1', '{"a": 1, "b": "x", "c', '{"a": 1, "b": "x"', "ended inside its document"),
    ('{"a": 1', '{"a": 1, "b": 2, "b": 3}', '{"a": 1, "b": 2', "the object has this key already"),
]


@pytest.mark.parametrize(("committed", "second", "expected", "reason"), DISAGREE)
def test_a_second_document_that_differs(
    committed: str, second: str, expected: str, reason: str
) -> None:
    for parts in ([second], list(second)):
        out, fault = go_on(committed, parts, raw=False)
        if reason:
            assert fault is not None
            assert fault.reason.endswith(reason)
            assert (expected or committed).startswith(out)
        else:
            assert (out, fault) == (expected, None)


@pytest.mark.parametrize(
    "rest",
    [
        "I cannot go on.",
        "The document is complete.",
        "5 more values follow",
        "",
        "  ",
        "Sure: here",
    ],
)
def test_prose_in_place_of_the_rest_is_a_fault(rest: str) -> None:
    for parts in ([rest], list(rest)):
        out, fault = go_on('{"a": 1', parts, raw=True)
        assert out == '{"a": 1'
        assert fault is not None


def test_prose_without_end_is_given_up() -> None:
    for raw in (True, False):
        structured = Structured()
        structured.feed('{"a": 1 ')
        structured.expect(raw=raw)
        words = 0
        while structured.feed("no brackets ").fault is None:
            words += 1
        assert words * 12 <= MAX_PROSE_CHARS


def test_three_models_write_one_document() -> None:
    document = {"a": [1, {"b": "two"}, 3], "c": {"d": None, "e": True}, "f": 1e3}
    text = json.dumps(document)
    everything = prefixes(text)
    for first in everything:
        for second in everything:
            if len(second) <= len(first):
                continue
            structured = Structured()
            out = structured.feed(first + " ").text
            structured.expect(raw=False)
            out += structured.feed(second + " ").text
            structured.expect(raw=True)
            out += structured.feed(text[len(second) :] if out == second else text).text
            passed = structured.finish()
            assert passed.fault is None
            assert same(strictly(out + passed.text), document)


def test_the_layout_of_what_is_there_is_kept() -> None:
    assert go_on('{"a":[1', ['{"a": [1, 2], "b": "c d"}'], raw=False)[0] == '{"a":[1,2],"b":"c d"}'
    assert go_on('{"a": [1', ['{"a":[1,2],"b":"c,d"}'], raw=False)[0] == '{"a": [1, 2], "b": "c,d"}'


def test_the_bytes_of_values_are_the_providers_own() -> None:
    values = ("1E5", "-0.0", "10000000000000000000000000000001", "1e400", '"\\u00e9\\/"', "[ 1,2 ]")
    text = (
        f'{{"a": 0, {", ".join(f"{json.dumps(str(at))}: {one}" for at, one in enumerate(values))}}}'
    )
    assert go_on('{"a": 0', list(text), raw=False) == (text, None)


def test_a_document_that_was_whole_is_whole() -> None:
    structured = Structured()
    structured.feed('{"a": 1}')
    assert structured.complete
    assert structured.closers == ""
    structured.expect(raw=True)
    assert structured.complete
    assert structured.feed("That was all.").text == ""
    assert structured.finish().fault is None


def test_what_was_delivered_can_be_closed() -> None:
    structured = Structured()
    assert structured.closers == ""
    structured.feed('{"a": [1, {"b": "c", "d')
    assert structured.closers == "}]}"
