"""The reader of documents, held against the standard library and ijson, at every split."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal
from io import BytesIO

import ijson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.json_texts import Json, documents, pieces, same, seeds, spelled, steps, strictly

from router.core.json_values import (
    MAX_DEPTH,
    MAX_NUMBER_CHARS,
    MAX_SPACE_CHARS,
    MAX_STRING_CHARS,
    JsonFault,
    JsonReader,
    ValueEnd,
    number_value,
    pointer,
)


def read(parts: Iterable[str], **bounds: int) -> tuple[JsonReader, list[ValueEnd]]:
    reader = JsonReader(**bounds)
    ends = [end for part in parts for end in reader.feed(part)]
    return reader, ends + reader.end()


def every_two_way(text: str) -> Iterable[list[str]]:
    return ([text[:at], text[at:]] for at in range(len(text) + 1))


@settings(max_examples=300, deadline=None)
@given(documents(containers=False), seeds)
def test_every_value_is_told_where_it_ends(document: Json, seed: int) -> None:
    text = spelled(document, seed)
    reader, ends = read([text])
    assert reader.complete
    assert same(reader.value, document)
    assert sorted((one.path for one in ends), key=str) == sorted(
        (path for path, _ in steps(document)), key=str
    )
    assert [one.end for one in ends] == sorted(one.end for one in ends)
    for one in ends:
        assert same(json.loads(text[one.start : one.end]), one.value)
        assert text[one.start : one.end].strip() == text[one.start : one.end]
        assert one.container == (text[one.start] in "{[")


@settings(max_examples=300, deadline=None)
@given(documents(containers=False), seeds)
def test_any_split_tells_the_same(document: Json, seed: int) -> None:
    text = spelled(document, seed)
    whole = read([text])[1]
    assert read(text)[1] == whole
    assert read(pieces(text, seed))[1] == whole
    for two in every_two_way(text):
        assert read(two)[1] == whole


@settings(max_examples=200, deadline=None)
@given(documents(), seeds)
def test_ijson_reads_the_same_values(document: Json, seed: int) -> None:
    text = spelled(document, seed)
    if any("\ud800" <= char <= "\udfff" for char in text) or "\\ud8" in text.lower():
        return  # ijson makes a question mark of half a pair
    read_by_them = next(ijson.items(BytesIO(text.encode()), "", use_float=False))
    assert same(_floated(read_by_them), read([text])[0].value)


def _floated(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _floated(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_floated(one) for one in value]
    return float(value) if isinstance(value, Decimal) else value


_BROKEN = st.sampled_from(
    (*'{}[]",:0123456789.eE+-\\/ \n\t\r\x00\x7f\u2028tfnu', "true", "null", "\\u00", '"a"', "01")
)


@settings(max_examples=1000, deadline=None)
@given(documents(containers=False), seeds, st.data())
@example(document=[], seed=0, data=None)
def test_a_broken_text_is_refused_when_the_standard_library_refuses_it(
    document: Json, seed: int, data: Json
) -> None:
    text = spelled(document, seed)
    if data is not None:
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 2))
        text = text[:at] + data.draw(_BROKEN) + text[at + gone :]
    try:
        expected = strictly(text)
    except ValueError:
        assert refused(text)
        return
    reader, _ = read(text)
    assert reader.complete
    assert not reader.surplus
    assert same(reader.value, expected)


def refused(text: str) -> bool:
    """Whole, in pieces of one character, and with the same words."""
    seen = [_refusal([text]), _refusal(text)]
    assert seen[0] == seen[1]
    return seen[0] is not None


def _refusal(parts: Iterable[str]) -> str | None:
    reader = JsonReader()
    try:
        for part in parts:
            reader.feed(part)
        reader.end()
    except JsonFault as fault:
        return str(fault)
    return None if reader.complete and not reader.surplus else "unfinished"


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ('{"a": 01}', ("a",), "`01` is no number"),
        ('{"a": 1e}', ("a",), "`1e` is no number"),
        ('{"a": +1}', ("a",), "`+` where a value should be"),
        ('{"a": .5}', ("a",), "`.` where a value should be"),
        ('{"a": -}', ("a",), "`-` is no number"),
        ('{"a": 1.}', ("a",), "`1.` is no number"),
        ('{"a": 1x}', ("a",), "something that ends no number"),
        ('{"a": NaN}', ("a",), "`N` where a value should be"),
        ('{"a": nul}', ("a",), "something that is not `null`"),
        ('{"a": "\\x"}', ("a",), "an unknown escape `\\x`"),
        ('{"a": "\\u12g4"}', ("a",), "a bad `\\u` escape"),
        ('{"a": "x\ny"}', ("a",), "a control character inside a string"),
        ('{"a": 1, "a": 2}', ("a",), "the object has this key already"),
        ('{"a": {"b": [1, 2,]}}', ("a", "b", 2), "`]` where a value should be"),
        ('{"a": 1,}', ("a",), "`}` where a key should be"),
        ('{"a" 1}', ("a",), "`1` where `:` should be"),
        ("[1 2]", (1,), "`2` where `,` or the end of the container should be"),
        ("[1}", (1,), "`}` where `,` or the end of the container should be"),
        ("{'a': 1}", ("",), "`'` where a key or `}` should be"),
        ("// no\n{}", (), "`/` where a value should be"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(text: str, path: Json, reason: str) -> None:
    with pytest.raises(JsonFault) as caught:
        read([text])
    assert (caught.value.reason, caught.value.path) == (reason, path)
    assert pointer(path) in str(caught.value)
    assert refused(text)


@pytest.mark.parametrize(
    ("parts", "value"),
    [
        (("12", "3"), 123),
        (("[12", "3]"), [123]),
        (("[1", "e", "+", "2", "]"), [100.0]),
        (("-", "0", ".", "0"), 0.0),
        (('"\\ud83d', '\\ude00"'), "😀"),
        (('"\\', "u", "d", "83d\\ud", 'e00"'), "😀"),
        (('"\\ud83d"',), "\ud83d"),
        (('"\ud83d"',), "\ud83d"),
        (("t", "r", "u", "e"), True),
        (("[nul", "l,fals", "e]"), [None, False]),
    ],
)
def test_tokens_may_be_split_anywhere(parts: tuple[str, ...], value: Json) -> None:
    assert same(read(parts)[0].value, value)


def test_a_number_ends_with_what_follows_it() -> None:
    reader = JsonReader()
    assert reader.feed('{"a": 1e') == []
    assert reader.feed("3") == []
    (end,) = reader.feed(" ")
    assert (end.path, end.start, end.end, end.value) == (("a",), 6, 9, 1000.0)


def test_a_number_at_the_top_ends_with_the_text() -> None:
    reader = JsonReader()
    assert reader.feed("12") == reader.feed("3") == []
    assert not reader.complete
    (end,) = reader.end()
    assert (end.start, end.end, end.value, reader.complete) == (0, 3, 123, True)
    assert reader.end() == []


def test_numbers_that_no_float_holds() -> None:
    text = f'{{"a": {10**40}, "b": 1e400, "c": -1e400, "d": {"9" * 4000}, "e": 1e-400}}'
    values = read([text])[0].value
    assert values["a"] == 10**40
    assert values["b"] == -values["c"] == sys.float_info.max
    assert values["d"] == int("9" * 4000)
    assert values["e"] == 0.0


def test_a_number_of_more_digits_than_python_turns_into_an_int() -> None:
    assert number_value("9" * 10_000) == sys.float_info.max


@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        ("[" * 100_000, f"more than {MAX_DEPTH} containers within each other"),
        ('{"a":' * 100_000, f"more than {MAX_DEPTH} containers within each other"),
        ("[" + "1" * 100_000, f"a number of more than {MAX_NUMBER_CHARS} characters"),
        ("[" + " " * 100_000, f"more than {MAX_SPACE_CHARS} characters of white space"),
        (
            '["' + "x" * (MAX_STRING_CHARS + 1),
            f"a string of more than {MAX_STRING_CHARS} characters",
        ),
        (
            '{"' + "x" * (MAX_STRING_CHARS + 1),
            f"a string of more than {MAX_STRING_CHARS} characters",
        ),
    ],
)
@pytest.mark.parametrize("step", [1_000_000_000, 1000])
def test_everything_that_waits_is_bounded(opening: str, reason: str, step: int) -> None:
    reader = JsonReader()
    parts = (opening[at : at + step] for at in range(0, len(opening), step))
    with pytest.raises(JsonFault, match=reason):
        list(map(reader.feed, parts))
    assert reader.offset <= MAX_STRING_CHARS + 1000


def test_as_deep_as_it_may_be() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert read([deep])[0].complete
    assert read(deep)[0].complete


def test_white_space_between_values_does_not_add_up() -> None:
    gap = " " * (MAX_SPACE_CHARS - 1)
    text = f"[{f'{gap},{gap}'.join('1234')}]"
    assert read(pieces(text, 3))[0].value == [1, 2, 3, 4]


def test_text_after_the_document_is_noticed_and_not_read() -> None:
    reader, ends = read(['{"a": 1} \n', ' {"b": 2}'])
    assert reader.surplus
    assert reader.value == {"a": 1}
    assert len(ends) == 2
    assert not read(["{} \n"])[0].surplus


@settings(deadline=None)
@given(documents(), seeds)
def test_what_is_open_can_be_closed(document: Json, seed: int) -> None:
    text = spelled(document, seed)
    for end in read([text])[1]:
        reader = JsonReader.after(text[: end.end])
        assert isinstance(strictly(text[: end.end] + reader.closers), dict | list)


class Steps:
    """Counts the lines of Python that are run."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _frame: Json, event: str, _arg: Json) -> Callable[..., Json] | None:
        self.count += event == "line"
        return self


def lines_run(work: Callable[[], object]) -> int:
    seen, before = Steps(), sys.gettrace()
    sys.settrace(seen)
    try:
        work()
    finally:
        sys.settrace(before)
    return seen.count


def test_a_long_string_in_small_pieces_is_linear() -> None:
    def work(chars: int) -> int:
        text = json.dumps({"a": "word" * (chars // 4)})
        return lines_run(lambda: read(text[at : at + 4] for at in range(0, len(text), 4)))

    short, long = work(20_000), work(200_000)
    assert long < 11 * short
    assert long < 40 * 50_000  # a few lines a piece, whatever was read before
