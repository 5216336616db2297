"""YAML to data: lines, scalars, merges and variables."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from router.config.problem import MAX_SHOWN_CHARS, Unreadable, shown
from router.config.source import MAX_NODES, Tree, read_tree
from router.config.syntax import MAX_DEPTH
from router.config.variables import BadVariable, substitute


def read(text: str, env: Mapping[str, str] | None = None) -> Tree:
    return read_tree(text, env or {})


# --- scalars and lines ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "data"),
    [
        ("8080", 8080),
        ("-3", -3),
        ("010", 10),
        ("0x10", "0x10"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("9" * 5000, "9" * 5000),
        ("2.5", 2.5),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("yes", True),
        ("Off", False),
        ("~", None),
        ("", None),
        ("2024-10-21", "2024-10-21"),
        ("2024-10-21 10:00:00", "2024-10-21 10:00:00"),
        ("'8080'", "8080"),
        ("!!str 8080", "8080"),
        ("=", "="),
    ],
)
def test_a_scalar(written: str, data: object) -> None:
    value = read(f"key: {written}\n").get("key")
    assert (value, type(value)) == (data, type(data))


def test_lines_are_those_of_keys_and_items() -> None:
    tree = read("# a comment\na:\n  b: 1\n  c:\n    - x\n    -\n      y: 2\n")
    assert tree.lines == {
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "c"): 4,
        ("a", "c", 0): 5,
        ("a", "c", 1): 7,
        ("a", "c", 1, "y"): 7,
    }
    assert tree.line(("a", "absent", 3)) == 2
    assert tree.line(()) == 1
    assert tree.line(("absent",)) == 1


def test_looking_where_there_is_nothing() -> None:
    tree = read("a: [1]\n")
    assert tree.get("a", 0) == 1
    assert tree.get("a", 1) is None
    assert tree.get("a", "b", "c") is None
    assert tree.keys("a") == ()
    assert tree.indexes("b") == range(0)


document = st.dictionaries(
    st.text(alphabet="abcdefgh", min_size=3, max_size=6),
    st.recursive(
        st.booleans() | st.integers(-999, 999) | st.text(alphabet="abc: é#'\"\n", max_size=6),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(alphabet="kqz", min_size=1, max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    min_size=1,
    max_size=4,
)


@given(data=document)
def test_what_is_dumped_is_read_again(data: dict[str, object]) -> None:
    assert read(yaml.safe_dump(data)).data == data
    assert read(json.dumps(data)).data == data


# --- bounds ---------------------------------------------------------------------------------------


def test_depth_is_bounded_at_the_bound() -> None:
    def nested(depth: int) -> str:
        return "a: " + "[" * depth + "]" * depth

    assert read(nested(MAX_DEPTH - 1)).problems == ()
    with pytest.raises(Unreadable, match="levels deep"):
        read(nested(MAX_DEPTH))


@pytest.mark.parametrize(
    "text",
    ["a: &a [*a]", "a: &a {b: *a}", "a: &a {<<: *a}", "a: &a {<<: [*a, *a]}", "&a {<<: *a}"],
)
def test_an_alias_to_itself_ends(text: str) -> None:
    with pytest.raises(Unreadable):
        read(text)


def test_nodes_are_bounded_through_merges_too() -> None:
    text = "k0: &k0 {a: 1}\n" + "".join(
        f"k{n}: &k{n} {{<<: [{', '.join([f'*k{n - 1}'] * 10)}]}}\n" for n in range(1, 8)
    )
    with pytest.raises(Unreadable, match=f"more than {MAX_NODES:,} values"):
        read(text)


# --- structure ------------------------------------------------------------------------------------


def test_a_merge_yields_to_the_mappings_own_keys() -> None:
    tree = read("a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc:\n  <<: [*a, *b]\n  x: 9\n")
    assert tree.get("c") == {"x": 9, "y": 2, "z": 4}
    assert tree.line(("c", "x")) == 5
    assert tree.line(("c", "z")) == 2


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "The key `a` stands twice, first on line 1."),
        ("a: 1\n'a': 3\n", 2, "The key `a` stands twice, first on line 1."),
        ("? [x]\n: 1\n", 1, "A key is not plain text."),
        ("'': 1\n", 1, "A key is not plain text."),
        ("a:\n  <<: 5\n", 2, "`<<` merges something that is no mapping."),
        ("a: !!binary aGk=\n", 1, "A tag (`!…`) is used, and none has a meaning here."),
        (
            "a: !!python/object:os.system x\n",
            1,
            "A tag (`!…`) is used, and none has a meaning here.",
        ),
        ("a: !!set {x}\n", 1, "A tag (`!…`) is used, and none has a meaning here."),
    ],
)
def test_what_is_noted_while_reading(text: str, line: int, message: str) -> None:
    (problem,) = read(text).problems
    assert (problem.line, problem.message) == (line, message)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: b: c\n", 1, "A `:` stands where no key can be."),
        ("a: 1\nkey\n", 2, "A key has no `:` after it."),
        ("a: [1, 2\nb: 3\n", 2, "A `[` is not closed as it should be."),
        ("a: @x\n", 1, "A value starts with a character that YAML reserves."),
        ('a: "\\q"\n', 1, "A double-quoted text holds an escape that YAML does not know."),
        ('a: "\\UFFFFFFFF"\n', None, "An escape in a double-quoted text is no character."),
        ("a: &x 1\nb: &x 2\n", 2, "An anchor is defined twice."),
        ("%YAML 9.0\n---\na: 1\n", 1, "The YAML cannot be read: found incompatible YAML document"),
        ("a: !nothing!topsecret x\n", 1, "The YAML cannot be read: found undefined tag handle …."),
    ],
)
def test_broken_syntax_is_told_in_our_words(text: str, line: int | None, message: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(text)
    assert caught.value.problem.line == line
    assert caught.value.problem.message.startswith(message)
    assert "topsecret" not in caught.value.problem.message


# --- variables ------------------------------------------------------------------------------------

ENV = {"A": "one", "EMPTY": "", "TRICK": "${A} $${A} : [x]\n# &*!"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "one"),
        ("x${A}y${A}z", "xoneyonez"),
        ("${B:-two}", "two"),
        ("${EMPTY:-two}", "two"),
        ("${EMPTY}", ""),
        ("${B:-}", ""),
        ("${B:-a:-b $ {}", "a:-b $ {"),
        ("$A $$ $", "$A $$ $"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$${A}${A}", "${A}one"),
        ("${TRICK}", ENV["TRICK"]),
    ],
)
def test_substitution(text: str, expected: str) -> None:
    assert substitute(text, ENV) == expected


@pytest.mark.parametrize(
    "text", ["${", "${A", "${}", "${1A}", "${A B}", "${A-x}", "${A:x}", "${B}"]
)
def test_a_bad_reference_is_refused(text: str) -> None:
    with pytest.raises(BadVariable):
        substitute(text, ENV)


@given(value=st.text(max_size=30))
def test_a_value_is_never_looked_at_again(value: str) -> None:
    tree = read("plain: ${V}\nquoted: \"<${V}>\"\nlist: ['${V}']\n", {"V": value})
    assert tree.data == {"plain": value, "quoted": f"<{value}>", "list": [value]}
    assert tree.substituted == {("plain",), ("quoted",), ("list", 0)}


def test_keys_are_not_substituted() -> None:
    assert read('"${A}": 1\n', ENV).data == {"${A}": 1}


def test_an_unset_variable_is_noted_once_however_often_its_anchor_is_used() -> None:
    tree = read('a: &a "${NOPE}"\nb: *a\nc: [*a]\n')
    assert [problem.line for problem in tree.problems] == [1]
    assert tree.unset == {("a",), ("b",), ("c", 0)}


# --- quoting --------------------------------------------------------------------------------------


@given(text=st.text(alphabet=st.characters(), max_size=200))
def test_what_is_shown_is_short_printable_and_on_one_line(text: str) -> None:
    quoted = shown(text)
    assert quoted.isprintable()
    assert len(quoted) <= 10 * MAX_SHOWN_CHARS + 10
    quoted.encode()
