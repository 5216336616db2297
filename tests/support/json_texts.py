"""Random JSON documents in random spelling, and random schemas, for property tests."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

from hypothesis import strategies as st

Json: TypeAlias = Any

KEYS = ("a", "b", "c", "key", "a b", "é", "", 'q"', "x/y", "~", "😀")
_ATOMS: tuple[Json, ...] = (
    *(None, True, False, 0, -1, 7, 12, 123456789, 10**25, -(10**19), 0.5, -2.25, 3e10, 1e-7, 1e300),
    *("", "x", "null", 'a"b', "\\", "é😀", "tab\tline\n", "{not} [a] value, 1: 2", "\ud83d", " "),
)
_SMALL: tuple[Json, ...] = (None, True, 0, 1, 2, 1.5, "", "a", "ab", "b")


def documents(*, containers: bool = True) -> st.SearchStrategy[Json]:
    """Documents; `containers` asks for an object or an array at the top."""
    inner = st.recursive(
        st.sampled_from(_ATOMS),
        lambda below: (
            st.lists(below, max_size=4) | st.dictionaries(st.sampled_from(KEYS), below, max_size=4)
        ),
        max_leaves=6,
    )
    if not containers:
        return inner
    return st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)


seeds = st.integers(0, 2**32)
"""How a document is spelled, cut or shuffled."""


def spelled(value: Json, seed: int) -> str:
    """One of many texts of a document.

    Args:
        value: the document.
        seed: white space, escapes and forms of numbers follow from it.
    """
    rnd = random.Random(seed)  # noqa: S311 - repeatable on purpose
    style = rnd.choice(("compact", "plain", "wild", "indented"))
    if style == "indented":
        return json.dumps(value, indent=rnd.choice((1, 2, "\t")), ensure_ascii=rnd.random() < 0.5)
    gaps = {"compact": ("",), "plain": ("", " "), "wild": ("", " ", "\n", "\t \r\n")}[style]

    def gap() -> str:
        return rnd.choice(gaps)

    def text(one: Json) -> str:
        if isinstance(one, dict):
            members = (
                f"{gap()}{_string(key, rnd)}{gap()}:{gap()}{text(v)}" for key, v in one.items()
            )
            return f"{{{f'{gap()},'.join(members)}{gap()}}}"
        if isinstance(one, list):
            return f"[{f'{gap()},'.join(gap() + text(item) for item in one)}{gap()}]"
        return _string(one, rnd) if isinstance(one, str) else _scalar(one, rnd)

    return gap() + text(value) + gap()


def _string(value: str, rnd: random.Random) -> str:
    if rnd.random() < 0.5:
        return json.dumps(value)
    return "".join(('"', *(_letter(char, rnd) for char in value), '"'))


def _letter(char: str, rnd: random.Random) -> str:
    must = char in '"\\' or char < " " or "\ud800" <= char <= "\udfff"
    if must or rnd.random() < 0.2:
        return json.dumps(char)[1:-1] if rnd.random() < 0.5 else _escaped(char)
    return char


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _scalar(value: Json, rnd: random.Random) -> str:
    text = json.dumps(value)
    if isinstance(value, float) and rnd.random() < 0.3:
        return text.replace("e", "E")
    return text


def shuffled(value: Json, seed: int) -> Json:
    """The same document with its keys in another order."""
    rnd = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def mix(one: Json) -> Json:
        if isinstance(one, dict):
            items = list(one.items())
            rnd.shuffle(items)
            return {key: mix(below) for key, below in items}
        return [mix(below) for below in one] if isinstance(one, list) else one

    return mix(value)


def pieces(text: str, seed: int) -> list[str]:
    """A text in pieces of random length."""
    rnd = random.Random(seed)  # noqa: S311 - repeatable on purpose
    longest = rnd.choice((1, 3, 8, 1000))
    out, at = [], 0
    while at < len(text):
        step = rnd.randint(1, longest)
        out.append(text[at : at + step])
        at += step
    return out


def same(one: Json, other: Json) -> bool:
    """Equal as JSON: a truth value is no number, and 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def within(part: Json, whole: Json) -> bool:
    """A document with some of its values left out, each of the others as it is."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and within(one, whole[key]) for key, one in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(within, part, whole))
    return same(part, whole)


def strictly(text: str) -> Json:
    """What the standard library makes of a text, without its leniency.

    Raises:
        ValueError: it is no document, or says something twice.
    """

    def once(pairs: list[tuple[str, Json]]) -> Json:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key stands twice")
        return found

    def refuse(constant: str) -> Json:
        raise ValueError(constant)

    def finite(number: str) -> float:
        return max(-sys.float_info.max, min(float(number), sys.float_info.max))

    return json.loads(text, object_pairs_hook=once, parse_constant=refuse, parse_float=finite)


# -- schemas ---------------------------------------------------------------------------------------

_NAMES = ("a", "b", "ab", "x/y", "é")
_PATTERNS = ("^a", "b$", "^x/", "^.?$")
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


def small_documents() -> st.SearchStrategy[Json]:
    """Documents of few words, so that they meet what random schemas ask for."""
    return st.recursive(
        st.sampled_from(_SMALL),
        lambda below: (
            st.lists(below, max_size=3)
            | st.dictionaries(st.sampled_from(_NAMES), below, max_size=3)
        ),
        max_leaves=8,
    )


def schemas() -> st.SearchStrategy[Json]:
    """Schemas of the present draft, with references to each other and to themselves."""
    below = st.deferred(lambda: _subschemas)
    named = st.dictionaries(st.sampled_from(_NAMES), below, max_size=3)
    some = st.lists(below, min_size=1, max_size=2)
    keywords: dict[str, st.SearchStrategy[Json]] = {
        "type": st.sampled_from(_TYPES)
        | st.lists(st.sampled_from(_TYPES), min_size=1, unique=True),
        "enum": st.lists(st.sampled_from(_SMALL), min_size=1, max_size=4),
        "const": st.sampled_from(_SMALL),
        "minimum": st.integers(0, 2),
        "maxLength": st.integers(0, 2),
        "pattern": st.sampled_from(_PATTERNS),
        "properties": named,
        "patternProperties": st.dictionaries(st.sampled_from(_PATTERNS), below, max_size=2),
        "additionalProperties": below,
        "required": st.lists(st.sampled_from(_NAMES), max_size=2, unique=True),
        "propertyNames": below,
        "dependentRequired": st.just({"a": ["b"]}),
        "dependentSchemas": st.dictionaries(st.sampled_from(_NAMES), below, max_size=1),
        "maxProperties": st.integers(0, 3),
        "prefixItems": some,
        "items": below,
        "contains": below,
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 3),
        "uniqueItems": st.booleans(),
        "allOf": some,
        "anyOf": some,
        "oneOf": some,
        "not": below,
        "if": below,
        "then": below,
        "else": below,
        "unevaluatedProperties": below,
        "unevaluatedItems": below,
        "$ref": st.sampled_from(("#", "#/$defs/one", "#/$defs/two")),
    }
    objects = st.lists(st.sampled_from(sorted(keywords)), max_size=3, unique=True).flatmap(
        lambda words: st.fixed_dictionaries({word: keywords[word] for word in words})
    )
    _subschemas = st.booleans() | objects
    tops = st.tuples(objects, keywords["properties"], keywords["additionalProperties"]).map(
        lambda parts: {"properties": parts[1], "additionalProperties": parts[2], **parts[0]}
    )
    return st.tuples(objects | tops, objects, objects).map(
        lambda three: {**three[0], "$defs": {"one": three[1], "two": three[2]}}
    )


def steps(value: Json) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    """Every value in a document, with its path."""
    yield (), value
    inside: Any = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value) if isinstance(value, list) else inside
    for step, one in inside:
        for path, below in steps(one):
            yield (step, *path), below
