"""Judging values as they complete, held against jsonschema's judgement of the whole."""

from __future__ import annotations

import json
from collections import Counter

import jsonschema
import pytest
from hypothesis import assume, given, settings
from support.json_texts import Json, schemas, seeds, small_documents, spelled, steps

from router.core.json_gate import JsonGate
from router.core.json_schema import (
    MAX_SCHEMAS,
    Schema,
    SchemaRefused,
    Schemas,
    SchemaViolation,
)
from router.core.json_schema_cost import MAX_JUDGEMENTS, MAX_PATTERN_WORK, MAX_WAYS
from router.core.json_values import JsonFault, JsonReader, ValueEnd

DRAFT = "http://json-schema.org/draft-{}/schema#"


def compiled(schema: Json) -> Schema:
    return Schemas().compile(schema)


def refused_while_it_completes(schema: Schema, text: str) -> tuple[str | int, ...] | None:
    """The path of the first value that is refused, or None; the root is judged last."""
    reader = JsonReader()
    for end in (*reader.feed(text), *reader.end()):
        try:
            schema.check(end)
        except SchemaViolation:
            return end.path
    return None


VERDICTS: Counter[str] = Counter()


@settings(max_examples=1000, deadline=None)
@given(schemas(), small_documents(), seeds)
def test_judging_by_path_never_disagrees_with_judging_the_whole(
    schema: Json, document: Json, seed: int
) -> None:
    try:
        ours = compiled(schema)
    except SchemaRefused as refused:
        assert "leads back to itself" in refused.reason  # noqa: PT017 - else it is a bug
        return
    try:
        valid = jsonschema.Draft202012Validator(schema).is_valid(document)
    except RecursionError:
        assume(False)
    at = refused_while_it_completes(ours, spelled(document, seed))
    assert (at is None) == valid
    VERDICTS["valid" if at is None else "early" if at else "late"] += 1


def test_the_property_met_all_kinds_of_cases() -> None:
    """Random schemas that nothing satisfies, or that everything does, would prove little."""
    if sum(VERDICTS.values()) < 500:
        pytest.skip("the property was not run in full")
    assert min(VERDICTS["valid"], VERDICTS["early"], VERDICTS["late"]) > 10, VERDICTS


FIVE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$"},
        "size": {"type": "integer", "maximum": 5},
        "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 2},
        "deep": {"$ref": "#/$defs/deep"},
        "pets": {"minItems": 3, "maxItems": 1_000_000_000},
    },
    "patternProperties": {"^n_": {"type": "null"}},
    "additionalProperties": False,
    "required": ["name"],
    "$defs": {
        "deep": {
            "allOf": [{"properties": {"down": {"$ref": "#/$defs/deep"}}}],
            "properties": {"pair": {"prefixItems": [{"const": 1}, {"const": 2}], "items": False}},
        }
    },
}


@pytest.mark.parametrize(
    ("document", "path", "reason"),
    [
        ({"name": "A"}, ("name",), 'the value does not match "^[a-z]+$"'),
        ({"size": 6}, ("size",), "the value is greater than the maximum of 5"),
        ({"size": 1.5}, ("size",), 'the value is not of type "integer"'),
        ({"tags": ["x", "z"]}, ("tags", 1), 'the value is not one of "x" or "y"'),
        ({"tags": ["x", "y", "x"]}, ("tags", 2), "more than 2 items"),
        ({"pets": [{"a": 1}, {"b": 2}]}, ("pets",), "the value has less than 3 items"),
        ({"n_a": 1}, ("n_a",), 'the value is not of type "null"'),
        ({"other": None}, ("other",), "False schema does not allow the value"),
        ({"deep": {"pair": [1, 3]}}, ("deep", "pair", 1), "2 was expected"),
        (
            {"deep": {"pair": [1, 2, 3]}},
            ("deep", "pair", 2),
            "False schema does not allow the value",
        ),
        ({"deep": {"down": {"down": {"pair": [2]}}}}, ("deep", "down", "down", "pair", 0), "1 was"),
        ({"size": 1}, (), '"name" is a required property'),
    ],
)
def test_a_violation_is_found_where_it_is(document: Json, path: Json, reason: str) -> None:
    schema = compiled(FIVE)
    text = json.dumps(document)
    gate, out = JsonGate(check=schema.check), ""
    fault: JsonFault | None = None
    for char in text:
        passed = gate.feed(char)
        out, fault = out + passed.text, passed.fault
        if fault:
            break
    assert isinstance(fault, SchemaViolation)
    assert fault.path == path
    assert fault.reason.startswith(reason)
    assert refused_while_it_completes(schema, text) == path
    # Nothing of the value is out, and all before it is; of a container, only its end is not.
    start, stop = next((e.start, e.end) for e in JsonReader().feed(text) if e.path == path)
    assert len(out) <= start or (text[start] in "{[" and len(out) < stop)


def test_reasons_do_not_quote_the_answer() -> None:
    secret = "what the answer said"
    refusing: list[Json] = [
        *({"type": "integer"}, {"enum": [1]}, {"const": 1}, {"maxLength": 3}, {"pattern": "^a"}),
        *({"anyOf": [{"type": "integer"}, {"maxLength": 2}]}, {"not": {}}, False),
    ]
    for schema in refusing:
        with pytest.raises(SchemaViolation) as caught:
            compiled({"properties": {"a": schema}}).check(ValueEnd(("a",), 0, 9, secret, False))
        assert secret not in str(caught.value)
        with pytest.raises(SchemaViolation) as caught:
            compiled({"properties": {"a": {"items": schema}}}).check_whole({"a": [secret]})
        assert secret not in str(caught.value)


def test_alternatives_are_judged_where_they_close() -> None:
    schema = compiled(
        {"properties": {"a": {"anyOf": [{"properties": {"b": {"const": 1}}}, {"required": ["c"]}]}}}
    )
    assert refused_while_it_completes(schema, '{"a": {"b": 2, "c": 3}}') is None
    assert refused_while_it_completes(schema, '{"a": {"b": 2}}') == ("a",)


@pytest.mark.parametrize(
    ("said", "schema", "good", "bad"),
    [
        ("04", {"properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}}, {"a": 2}, {"a": 1}),
        ("06", {"properties": {"a": {"exclusiveMinimum": 1}}}, {"a": 2}, {"a": 1}),
        ("07", {"items": [{"type": "null"}], "additionalItems": {"type": "string"}},
         [None, "x"], [None, 1]),
        ("07", {"prefixItems": [{"type": "null"}]}, [1], None),
        ("07", {"properties": {"a": {"$ref": "#/definitions/n", "maximum": 1}},
                "definitions": {"n": {"type": "number"}}}, {"a": 5}, {"a": "x"}),
        ("07", {"properties": {"a": {"$ref": "#n"}},
                "definitions": {"n": {"$id": "#n", "type": "null"}}}, {"a": None}, {"a": 1}),
        ("2019-09", {"items": [{"type": "null"}], "additionalItems": False}, [None], [None, 1]),
        ("2019-09", {"properties": {"a": {"$ref": "#/$defs/n", "maximum": 1}},
                     "$defs": {"n": {"type": "number"}}}, {"a": 1}, {"a": 5}),
        ("2020-12", {"properties": {"a": {"$anchor": "here", "properties": {"b": {"$ref": "#here"}},
                                          "type": "object"}}}, {"a": {"b": {}}}, {"a": {"b": 1}}),
        ("", {"properties": {'a b%20/~é"': {"type": "null"}}},
         {'a b%20/~é"': None}, {'a b%20/~é"': 1}),
        ("", {"$id": "https://example.com/x.json", "properties": {"a": {"$ref": "#/$defs/n"}},
              "$defs": {"n": {"type": "null"}}}, {"a": None}, {"a": 1}),
        ("", {"properties": {"a": {"const": {"$ref": "http://example.com"}}}},
         {"a": {"$ref": "http://example.com"}}, {"a": {}}),
        ("", {"properties": {"const": {"type": "null"}, "enum": {"type": "null"}}},
         {"const": None}, {"enum": 1}),
        ("", {"$defs": {"a b": {"type": "null"}}, "items": {"$ref": "#/$defs/a%20b"}}, [None], [1]),
    ],
)  # fmt: skip
def test_the_drafts_differ(said: str, schema: Json, good: Json, bad: Json) -> None:
    years = said.startswith("20")
    dialect = f"https://json-schema.org/draft/{said}/schema" if years else DRAFT.format(said)
    schema = compiled({"$schema": dialect, **schema} if said else schema)
    assert refused_while_it_completes(schema, json.dumps(good)) is None
    schema.check_whole(good)
    if bad is not None:
        assert refused_while_it_completes(schema, json.dumps(bad))  # and not only at the root
        with pytest.raises(SchemaViolation):
            schema.check_whole(bad)


@pytest.mark.parametrize(
    ("schema", "path", "reason"),
    [
        (5, "#", "a schema is an object"),
        (True, "#", "a schema is an object"),
        ({"type": "strin"}, "#/type", "'strin' is no type"),
        ({"properties": {"a": {"type": 5}}}, "#/properties/a/type", "what stands there"),
        ({"properties": {"a": {"minimum": "x"}}}, "#/properties/a/minimum", "what stands there"),
        ({"properties": {"a": {"pattern": "("}}}, "#/properties/a/pattern", "the pattern is not"),
        ({"pattern": "(?=a)b"}, "#/pattern", "the pattern is not valid, is too large, or"),
        ({"pattern": "(a)\\1"}, "#/pattern", "the pattern is not valid"),
        ({"pattern": "(a{1000}){1000}"}, "#/pattern", "the pattern is not valid, is too large"),
        ({"patternProperties": {"[": {}}}, "#/patternProperties", "the pattern is not valid"),
        ({"items": [{"type": "null"}]}, "#/items", "what stands there"),
        ({"type": "objekt"}, "#/type", "'objekt' is no type; use object, array, string, number"),
        ({"items": {"type": ["null", "x"]}}, "#/items/type", "'x' is no type; use object"),
        ({"type": []}, "#/type", "what stands there is no type; use object"),
        ({"type": {}}, "#/type", "what stands there is no type; use object"),
        ({"type": "x" * 5_000}, "#/type", "'xxxx"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "type": "any"},
            "#/type",
            "'any' is no type",
        ),
        ({"properties": {"type": 3}}, "#/properties/type", "what stands there is not of type"),
        ({"$schema": "https://example.com/own"}, "#", "Unknown meta-schema"),
        ({"$ref": "https://example.com/schema.json"}, "#/$ref", "`$ref` to 'https://example.com/sch"),
        ({"$ref": "file:///etc/passwd"}, "#/$ref", "`$ref` to 'file:///etc/passwd': nothing is"),
        ({"items": {"$ref": "other.json"}}, "#/items/$ref", "`$ref` to 'other.json': nothing is"),
        ({"$dynamicRef": "https://example.com/#x"}, "#/$dynamicRef", "`$dynamicRef` to"),
        ({"$ref": "#/$defs/none"}, "#/$ref", "`$ref` to '#/$defs/none': there is no such"),
        ({"items": {"$ref": "#none"}}, "#/items/$ref", "`$ref` to '#none': there is no such"),
        ({"enum": [{}], "items": {"$ref": "#/enum/0"}}, "#/items/$ref", "`$ref` to '#/enum/0'"),
        ({"$ref": "#"}, "#", "the reference leads back to itself"),
        ({"allOf": [{"$ref": "#"}]}, "#", "the reference leads back to itself"),
        ({"not": {"anyOf": [{}, {"$ref": "#"}]}}, "#", "the reference leads back to itself"),
        ({"$recursiveRef": "#"}, "#", "the reference leads back to itself"),
        ({"$anchor": "a", "if": {"$ref": "#a"}}, "#", "the reference leads back to itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "#/$defs/", "the"),
        ({"$defs": {"a": {"$id": "x"}}}, "#/$defs/a/$id", "a schema inside the schema with an"),
        ({"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}}, "#/$defs/", "the anchor '#x'"),
        ({"description": "x" * 5_000_000}, "#", "the schema has 5000018 bytes; at most"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused(schema: Json, path: str, reason: str) -> None:
    with pytest.raises(SchemaRefused) as caught:
        compiled(schema)
    assert caught.value.path.startswith(path)
    assert caught.value.reason.startswith(reason)
    assert len(caught.value.reason) < 400


def nested(depth: int) -> Json:
    schema: Json = {"type": "null"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def test_a_schema_that_is_too_deep_is_refused() -> None:
    compiled(nested(90))
    with pytest.raises(SchemaRefused, match="nested deeper than 100"):
        compiled(nested(101))


def doubling(levels: int, *, down: bool = False) -> Json:
    """Each definition refers twice to the next: twice as many ways with every level."""

    def twice(at: int) -> Json:
        one = {"$ref": f"#/$defs/d{at + 1}"}
        return {
            "allOf": [{"properties": {"a": one}}, {"properties": {"a": one}}]
            if down
            else [one, one]
        }

    defs = {f"d{at}": twice(at) for at in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "integer"}}}


@pytest.mark.parametrize("down", [False, True])
def test_references_that_multiply_are_refused(down: bool) -> None:
    compiled(doubling(8, down=down)).check_whole({} if down else 1)
    for levels in (20, 64, 1000):
        with pytest.raises(SchemaRefused, match=f"more than {MAX_WAYS} ways"):
            compiled(doubling(levels, down=down))


def test_unevaluated_within_unevaluated_is_refused() -> None:
    schema: Json = {"properties": {"a": {}}}
    for _ in range(20):
        schema = {"anyOf": [schema, {"required": ["b"]}], "unevaluatedProperties": False}
    with pytest.raises(SchemaRefused, match="ways"):
        compiled(schema)


def test_a_recursive_union_is_no_multiplication() -> None:
    """What a recursive reference said of a value is remembered, however deep the value is."""
    variants = [
        {
            "properties": {"op": {"const": op}, "of": {"$ref": "#/$defs/expr"}},
            "required": ["op"],
            "additionalProperties": False,
        }
        for op in "abcdefgh"
    ]
    schema = compiled({"$ref": "#/$defs/expr", "$defs": {"expr": {"oneOf": variants}}})
    deep: Json = {"op": "h"}
    for _ in range(100):
        deep = {"op": "g", "of": deep}
    schema.check_whole(deep)
    with pytest.raises(SchemaViolation, match="it is not what the schema allows at #"):
        schema.check_whole({**deep, "more": 1})


def test_a_long_chain_of_references() -> None:
    """Its parts are compiled when they are asked for: all at once would be quadratic."""
    defs = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(5000)}
    schema = compiled(
        {"items": {"$ref": "#/$defs/d0"}, "$defs": {**defs, "d5000": {"type": "null"}}}
    )
    assert refused_while_it_completes(schema, "[null, 1]") == (1,)


def test_work_is_bounded_by_the_value_too() -> None:
    many = doubling(12)["$defs"]
    properties = {"a": {"items": {"pattern": "x$"}}, "b": many["d0"]}
    schema = compiled({"properties": properties, "$defs": many})
    text = "x" * MAX_PATTERN_WORK
    with pytest.raises(SchemaViolation, match="characters are too many to be held against"):
        schema.check(ValueEnd(("a", 0), 0, len(text) + 2, text, False))
    with pytest.raises(SchemaViolation, match="characters are too many to be held against"):
        schema.check_whole({"a": [text]})
    places = [0] * (MAX_JUDGEMENTS // (1 << 12))
    with pytest.raises(SchemaViolation, match="too large to be judged"):
        schema.check(ValueEnd(("b",), 0, 100_000, places, True))


def test_a_slow_pattern_is_linear() -> None:
    """The textbook case that takes a backtracking engine for ever."""
    schema = compiled({"pattern": "^(a+)+$"})
    schema.check_whole("a" * 100_000)
    with pytest.raises(SchemaViolation):
        schema.check_whole("a" * 100_000 + "!")


@pytest.mark.parametrize(
    "value", [10**30, -(10**400), 1.7e308, "\ud83d", "é😀", {"\ud83d": "\ude00"}]
)
def test_values_that_other_tools_stumble_over(value: Json) -> None:
    schema = compiled({"properties": {"a": {"not": {"const": 1}}}})
    schema.check(ValueEnd(("a",), 0, 9, value, False))
    schema.check_whole({"a": value})


@pytest.mark.parametrize(
    ("schema", "openers"),
    [
        ({}, ""),
        ({"type": "object"}, "{"),
        ({"type": "array"}, "["),
        ({"type": ["object", "array"]}, "{["),
        ({"type": ["object", "null"]}, ""),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}, "{"),
        ({"allOf": [{"type": ["object", "array"]}, {"type": ["array", "null"]}]}, "["),
        ({"$schema": DRAFT.format("07"), "$ref": "#/definitions/a", "type": "array",
          "definitions": {"a": {"type": "object"}}}, "{"),
    ],
)  # fmt: skip
def test_what_a_document_may_begin_with(schema: Json, openers: str) -> None:
    assert compiled(schema).openers == openers


def test_a_schema_is_compiled_once_and_not_kept_for_ever() -> None:
    schemas = Schemas()
    first = schemas.compile({"type": "object", "title": "first"})
    assert schemas.compile({"type": "object", "title": "first"}) is first
    for at in range(MAX_SCHEMAS):
        schemas.compile({"title": f"{at}"})
    assert schemas.compile({"type": "object", "title": "first"}) is not first


def test_ever_new_keys_cost_no_memory() -> None:
    schema = compiled({"additionalProperties": {"type": "integer"}})
    for at in range(10_000):
        schema.check(ValueEnd((f"key {at}",), 0, 1, at, False))
    with pytest.raises(SchemaViolation):
        schema.check(ValueEnd(("key",), 0, 1, "x", False))
    assert len(schema._root.next) < 5_000
    assert len(schema._parts) == 1
    lists = compiled({"items": {"type": "integer"}})
    for at in range(10_000):
        lists.check(ValueEnd((at,), 0, 1, at, False))
    assert len(lists._root.next) == 1


@settings(max_examples=100, deadline=None)
@given(small_documents())
def test_every_value_of_a_valid_document_is_let_through(document: Json) -> None:
    """A schema made of the document itself: all by path, nothing left for the end."""
    schema = compiled(_exactly(document))
    text = json.dumps(document)
    for end in (*(reader := JsonReader()).feed(text), *reader.end()):
        schema.check(end)
    for path, _ in steps(document):
        if path:
            with pytest.raises(SchemaViolation):
                schema.check(ValueEnd(path, 0, 1, "something else", False))


def _exactly(value: Json) -> Json:
    if isinstance(value, dict):
        inner = {key: _exactly(one) for key, one in value.items()}
        return {"type": "object", "properties": inner, "additionalProperties": False}
    if isinstance(value, list):
        first = {"prefixItems": [_exactly(one) for one in value]} if value else {}
        return {"type": "array", "allOf": [first]}
    return {"const": value, "type": ["null", "boolean", "number", "string"]}
