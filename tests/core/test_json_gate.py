"""What a gate lets out: whole values, of the document alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from support.json_texts import Json, documents, pieces, seeds, spelled, strictly

from router.core.json_gate import MAX_PROSE_CHARS, JsonGate, Passed
from router.core.json_values import JsonFault, JsonReader, ValueEnd

DOCUMENT = '{"a": 12, "b": ["x", {"c": null}], "d": "\\ud83d\\ude00"}'


def let_out(gate: JsonGate, parts: Json) -> tuple[str, JsonFault | None]:
    """What goes out of an answer, and its fault."""
    out = ""
    for part in parts:
        passed = gate.feed(part)
        out += passed.text
        if passed.fault is not None:
            return out, passed.fault
    passed = gate.finish()
    return out + passed.text, passed.fault


def value_ends(text: str) -> list[int]:
    reader = JsonReader()
    return [end.end for end in (*reader.feed(text), *reader.end())]


@settings(max_examples=300, deadline=None)
@given(documents(), seeds)
def test_cut_anywhere_what_is_out_ends_after_a_whole_value(document: Json, seed: int) -> None:
    text = spelled(document, seed).lstrip()
    ends = value_ends(text)
    gate, out = JsonGate(), ""
    for at, char in enumerate(text):
        passed = gate.feed(char)
        assert passed.fault is None
        out += passed.text
        assert text.startswith(out)
        # Everything that is surely whole is out: a number only once its delimiter is there.
        whole = max(
            (e for e in ends if e <= at + 1 and (text[e - 1] in '"]}el' or e <= at)), default=0
        )
        assert len(out) == whole
        assert out == gate.committed
        if out:
            strictly(out + JsonReader.after(out).closers)
    assert gate.finish() == Passed("")
    assert gate.complete
    assert out == text.rstrip()


@settings(max_examples=300, deadline=None)
@given(documents(), seeds)
def test_any_split_lets_the_same_out(document: Json, seed: int) -> None:
    text = spelled(document, seed)
    for at in range(0, len(text) + 1, 3):
        assert let_out(JsonGate(), [text[:at], text[at:]]) == (text.strip(), None)
    assert let_out(JsonGate(), pieces(text, seed)) == (text.strip(), None)


@settings(deadline=None)
@given(documents(), seeds)
def test_a_gate_goes_on_from_what_another_let_out(document: Json, seed: int) -> None:
    text = spelled(document, seed).strip()
    for end in value_ends(text)[:-1]:
        out, fault = let_out(JsonGate(committed=text[:end]), pieces(text[end:], seed))
        assert (text[:end] + out, fault) == (text, None)


WRAPPED = {
    "nothing": ("{}", []),
    "white space": (" \n{}\n ", []),
    "byte order mark": ("\ufeff{}", ["byte order mark"]),
    "fence": ("```json\n{}\n```", ["fence", "text after the document"]),
    "bare fence": ("```\n{}\n```\n", ["fence", "text after the document"]),
    "long fence": ("~~~~ JSON5 \n\n{}\n~~~~", ["fence", "text after the document"]),
    "fence on the line": ("```json {}```", ["fence", "text after the document"]),
    "mark and fence": (
        "\ufeff\n```json\n{}\n```",
        ["byte order mark", "fence", "text after the document"],
    ),
    "preamble": ("Sure, here you are:\n{}", ["preamble"]),
    "preamble and fence": (
        "Here is the JSON:\n\n```json\n{}\n```\nLet me know!",
        ["preamble", "text after the document"],
    ),
    "remark": ("{}\n\nI hope this helps: {}", ["text after the document"]),
    "second document": ('{}\n{"b": 2}', ["text after the document"]),
    "a document per line": ("{}{}\n[]\n{}", ["text after the document"]),
}


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("seed", range(6))
def test_what_models_wrap_around_a_document_is_taken_off(name: str, seed: int) -> None:
    wrapped, stripped = WRAPPED[name]
    text = wrapped.replace("{}", DOCUMENT, 1)
    gate = JsonGate()
    assert let_out(gate, pieces(text, seed) if seed else [text]) == (DOCUMENT, None)
    assert sorted(gate.stripped) == sorted(stripped)
    assert gate.complete


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the answer holds no JSON document"),
        (" \n ", "the answer holds no JSON document"),
        ("```json\n```", "the answer holds no JSON document"),
        ("I am sorry, I cannot do that.", "the answer holds no JSON document"),
        ("I think. " * 1000, "the answer is prose, not a JSON document"),
        (" " * 5000, "the answer is prose, not a JSON document"),
        ("[1, 2", "the answer ended inside the document"),
        ('{"a": "', "the answer ended inside the document"),
        ('{"a": 1, "a": 2}', "the object has this key already"),
        ('{"a": 1, b: 2}', "`b` where a key should be"),
        ("Use {braces} like [this].", "`b` where a key or `}` should be"),
    ],
)
def test_what_is_no_document_is_a_fault(text: str, reason: str) -> None:
    for parts in ([text], list(text)):
        out, fault = let_out(JsonGate(), parts)
        assert fault is not None
        assert fault.reason == reason
        assert text.startswith(out)
        assert "2" not in out or reason.endswith("inside the document")


def test_nothing_of_a_refused_value_is_out_and_all_before_it_is() -> None:
    text = '{"a": 1, "b": [2, 3], "c": {"d": "bad", "e": 5}}'

    def check(end: ValueEnd) -> None:
        if end.value == "bad":
            raise JsonFault("bad", end.path, end.start)

    for parts in ([text], list(text)):
        out, fault = let_out(JsonGate(check=check), parts)
        assert (out, str(fault)) == ('{"a": 1, "b": [2, 3]', "at /c/d (character 33): bad")


def test_the_last_bracket_waits_for_the_whole() -> None:
    asked: list[ValueEnd] = []

    def check(end: ValueEnd) -> None:
        asked.append(end)
        if not end.path:
            raise JsonFault("too few")

    out, fault = let_out(JsonGate(check=check), list('[1, 2, "x"]'))
    assert (out, str(fault)) == ('[1, 2, "x"', "at the document (character 0): too few")
    assert asked[-1].value == [1, 2, "x"]


def test_a_scalar_may_be_a_document_where_that_is_asked_for() -> None:
    for document in ("12", '"a: {b}"', "null", "true", "[1]", "0"):
        for before, after in (("", ""), (" ", "\n"), ("\ufeff", ""), ("```json\n", "\n```")):
            gate = JsonGate(openers="")
            assert let_out(gate, list(before + document + after)) == (document, None)
            assert gate.complete
    fault = let_out(JsonGate(openers=""), ["The answer is 12."])[1]
    assert fault is not None
    assert fault.reason == "`T` where a value should be"


def test_only_what_may_begin_a_document_is_looked_for() -> None:
    text = 'As [1] says: {"a": 1}'
    assert let_out(JsonGate(openers="{"), list(text)) == ('{"a": 1}', None)


@pytest.mark.parametrize("extra", [0, 1])
def test_a_preamble_is_bounded(extra: int) -> None:
    text = "x" * (MAX_PROSE_CHARS + extra) + DOCUMENT
    for parts in ([text], list(text), [text[:MAX_PROSE_CHARS], text[MAX_PROSE_CHARS:]]):
        out, fault = let_out(JsonGate(), parts)
        assert (out, fault is None) == (("", False) if extra else (DOCUMENT, True))


def test_a_long_string_is_held_until_its_quote() -> None:
    text = json.dumps({"first": 1, "text": "word" * 50_000, "last": 2})
    gate = JsonGate()
    sent = [gate.feed(text[at : at + 4]).text for at in range(0, len(text), 4)]
    full = [one for one in sent if one]
    assert "".join(full) == text
    assert len(full) == 3
    assert len(full[1]) > 200_000
