"""Judging JSON values as they complete, by the part of a schema that their path decides.

A schema is compiled once. jsonschema-rs does the judging: it has a linear engine for `pattern`, it
fetches nothing (`offline`), and it remembers what a recursive `$ref` said of a value.

What decides about a value before its container is complete are the keywords that are conjunctions:
`properties`, `patternProperties`, `additionalProperties`, `prefixItems`, `items`, `$ref` and
`allOf`. Nothing is descended through `anyOf`, `oneOf`, `not` or `if`: those are judged where the
enclosing value closes. So a value that is refused here would be refused by the whole schema too.

No schema of a client may hold the event loop: `json_schema_cost.py` says how much one may ask for.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

import jsonschema_rs
import msgspec

from router.core.json_schema_cost import Cost, cost_of
from router.core.json_schema_nodes import (
    Nodes,
    SchemaRefused,
    draft_of,
    escape,
    nodes_of,
)
from router.core.json_values import JsonFault, ValueEnd

__all__ = ["Schema", "SchemaRefused", "SchemaViolation", "Schemas"]

MAX_SCHEMA_BYTES = 256 * 1024
"""Bound on one schema, encoded. OpenAI's own limits are well below."""

MAX_PATTERN_BYTES = 32 * 1024
"""Bound on one compiled `pattern`: what a character costs grows with it, to 2 µs here."""

MAX_STEPS = 4096
"""Keys and indices of which is remembered where they lead, per schema."""

MAX_SCHEMAS = 256
"""Compiled schemas that are remembered, per process."""

MAX_REASON_CHARS = 300
"""Bound on the words about a violation."""

MAX_EXPLAINED_WORK = 20_000
MAX_EXPLAINED_DEPTH = 2
"""A value of up to so many characters times ways to judge it, and so deep, is explained keyword by
keyword. The validator collects what every alternative has to say before it says anything, which is
exponential in the depth of the value."""

MAX_TYPE_CHARS = 40
"""Bound on a wrong word for a type in a reason."""

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_ROOT = "urn:root"
_VALUE = "the value"
"""Stands in reasons where the value would: what an answer said goes into no log."""

Validator: TypeAlias = Any
"""A validator of jsonschema-rs, or a `_TooMany`."""
_Pointers: TypeAlias = tuple[str, ...]


class SchemaViolation(JsonFault):
    """A value that the schema does not allow."""


class _TooMany:
    """Judges items past the last one that is allowed: at once, since those before are delivered by
    the time the array closes, and could not be taken back."""

    def __init__(self, most: int) -> None:
        self.reason = f"more than {most} items"

    def is_valid(self, _value: object) -> bool:
        """It never is."""
        return False


class _Shape:
    """Where a path leads, its indices and unknown keys folded.

    Args:
        pointers: all subschemas that apply there because of conjunctions alone.
        judges: pointers to those that between them require all the others, and their validators.
    """

    __slots__ = ("fixed", "judges", "next", "pointers")

    def __init__(self, pointers: _Pointers, judges: tuple[tuple[str, Validator], ...]) -> None:
        self.pointers = pointers
        self.judges = judges
        self.next: dict[str | int, _Shape] = {}
        self.fixed = -1  # indices from here on are all alike; -1 while nobody has asked


class Schema:
    """A compiled schema.

    Args:
        schema: as the client sent it.

    Raises:
        SchemaRefused: it is no schema, refers outside itself, never ends, or would cost too much.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._draft = draft_of(schema)
        self._nodes: Nodes = nodes_of(schema, self._draft)
        self._dialect = {"$schema": schema["$schema"]} if "$schema" in schema else {}
        try:
            self._whole = self._compile(dict(schema))
            self._registry = jsonschema_rs.Registry([(_ROOT, dict(schema))])
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise _refused(error) from None
        self._cost: Cost = cost_of(self._nodes)
        self._patterns: dict[str, Callable[[str], bool]] = {}
        self._parts: dict[str, Validator] = {}
        self._shapes: dict[_Pointers, _Shape] = {}
        self._steps = 0
        self._root = _Shape(self._closure(("#",)), (("#", self._whole),))

    @property
    def openers(self) -> str:
        """What a document may begin with: "{", "[", both, or "" for any value."""
        allowed = {"{", "[", ""}
        for pointer in self._root.pointers:
            node = self._nodes.by_pointer[pointer]
            alone = self._draft.lonely_ref and isinstance(node, dict) and "$ref" in node
            kinds = node.get("type") if isinstance(node, dict) and not alone else None
            if kinds is not None:
                kinds = [kinds] if isinstance(kinds, str) else kinds
                allowed &= {{"object": "{", "array": "["}.get(kind, "") for kind in kinds}
        return "" if "" in allowed else "".join(sorted(allowed, reverse=True))

    def check(self, end: ValueEnd) -> None:
        """Judge a value that is complete; the whole document, if its path is empty.

        Args:
            end: the value and its path.

        Raises:
            SchemaViolation: it cannot be part of a valid document.
        """
        shape = self._root
        for step in end.path:
            if isinstance(step, int) and 0 <= shape.fixed < step:
                step = shape.fixed  # noqa: PLW2901 - all further items are alike
            known = shape.next.get(step)
            shape = known if known is not None else self._step(shape, step)
        if not shape.judges:
            return
        value = _encodable(end.value)
        self._refuse_costly(end, value)
        for pointer, validator in shape.judges:
            if not validator.is_valid(value):
                raise self._violation(pointer, validator, value, end)

    def check_whole(self, value: Any) -> None:  # noqa: ANN401 - JSON is anything
        """Judge a whole document, of whose text nothing is known.

        Args:
            value: the document.

        Raises:
            SchemaViolation: it is not valid.
        """
        self.check(ValueEnd((), 0, 0, value, container=True))

    def _refuse_costly(self, end: ValueEnd, value: Any) -> None:  # noqa: ANN401
        reason = self._cost.too_much(value, end.end - end.start)
        if reason:
            raise SchemaViolation(reason, end.path, end.start)

    def _violation(
        self,
        pointer: str,
        validator: Validator,
        value: Any,  # noqa: ANN401
        end: ValueEnd,
    ) -> SchemaViolation:
        if isinstance(validator, _TooMany):
            return SchemaViolation(validator.reason, end.path, end.start)
        few = self._cost.ways * (end.end - end.start) <= MAX_EXPLAINED_WORK
        if few and _depth(value, MAX_EXPLAINED_DEPTH + 1) <= MAX_EXPLAINED_DEPTH:
            for error in validator.iter_errors(value):
                where = (*end.path, *error.instance_path)
                return SchemaViolation(str(error.message)[:MAX_REASON_CHARS], where, end.start)
        return SchemaViolation(self._rough_reason(pointer, value), end.path, end.start)

    def _rough_reason(self, pointer: str, value: Any) -> str:  # noqa: ANN401
        """What is wrong with a large value, as far as it shows without asking for all of it."""
        for one in self._closure((pointer,)):
            node = self._nodes.by_pointer[one]
            wanted = node.get("required") if isinstance(node, dict) else None
            for key in wanted if isinstance(wanted, list) and isinstance(value, dict) else ():
                if key not in value:
                    return f'"{key}" is a required property'[:MAX_REASON_CHARS]
        return f"it is not what the schema allows at {pointer}"[:MAX_REASON_CHARS]

    # -- which subschemas a path decides -------------------------------------------------------

    def _step(self, shape: _Shape, step: str | int) -> _Shape:
        if isinstance(step, int) and shape.fixed < 0:
            shape.fixed = max((self._fixed(one) for one in shape.pointers), default=0)
            step = min(step, shape.fixed)
        if self._steps >= MAX_STEPS:
            self._root.next.clear()
            self._shapes.clear()
            self._steps = 0
        children = tuple(
            dict.fromkeys(
                child for pointer in shape.pointers for child in self._children(pointer, step)
            )
        )
        found = self._shapes.get(children)
        if found is None:
            judges = tuple((one, self._judge(one)) for one in children if self._says_something(one))
            found = self._shapes[children] = _Shape(self._closure(children), judges)
        shape.next[step] = found
        self._steps += 1
        return found

    def _says_something(self, pointer: str) -> bool:
        return self._nodes.by_pointer.get(pointer) not in (True, {})

    def _judge(self, pointer: str) -> Validator:
        above, _, word = pointer.rpartition("/")
        if word == "maxItems" and pointer not in self._nodes.by_pointer:
            return _TooMany(self._nodes.by_pointer[above][word])
        return self._part(pointer)

    def _part(self, pointer: str) -> Validator:
        """A validator for a subschema, with the whole schema behind its references."""
        part = self._parts.get(pointer)
        if part is None:
            reference = f"{_ROOT}#{quote(pointer[1:], safe='/~')}"
            schema = {**self._dialect, "$ref": reference}
            part = self._parts[pointer] = self._compile(schema, registry=self._registry)
        return part

    def _compile(self, schema: dict[str, Any], **more: Any) -> Validator:  # noqa: ANN401
        linear = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES)
        return jsonschema_rs.validator_for(
            schema, offline=True, mask=_VALUE, pattern_options=linear, **more
        )

    def _children(self, pointer: str, step: str | int) -> Iterator[str]:
        node = self._nodes.by_pointer.get(pointer)
        if not isinstance(node, dict):
            return
        if self._draft.lonely_ref and "$ref" in node:
            return  # its target is among the pointers
        if isinstance(step, str):
            yield from self._members(pointer, node, step)
        else:
            yield from self._items(pointer, node, step)

    def _members(self, pointer: str, node: Mapping[str, Any], key: str) -> Iterator[str]:
        matched = False
        if key in node.get("properties", {}):
            matched = True
            yield f"{pointer}/properties/{escape(key)}"
        for pattern in node.get("patternProperties", {}):
            if self._matches(pattern, key):
                matched = True
                yield f"{pointer}/patternProperties/{escape(pattern)}"
        if not matched and "additionalProperties" in node:
            yield f"{pointer}/additionalProperties"

    def _items(self, pointer: str, node: Mapping[str, Any], index: int) -> Iterator[str]:
        first, rest = self._draft.item_words(node)
        if index < len(node.get(first, ())):
            yield f"{pointer}/{first}/{index}"
        elif rest in node:
            yield f"{pointer}/{rest}"
        if "maxItems" in node and index >= node["maxItems"]:
            yield f"{pointer}/maxItems"

    def _fixed(self, pointer: str) -> int:
        """From which index on all items are alike."""
        node = self._nodes.by_pointer[pointer]
        if not isinstance(node, dict):
            return 0
        first = len(node.get(self._draft.item_words(node)[0], ()))
        most: float = node.get("maxItems", 0)
        return max(first, math.ceil(most))

    def _matches(self, pattern: str, key: str) -> bool:
        test = self._patterns.get(pattern)
        if test is None:
            test = self._patterns[pattern] = self._compile({"pattern": pattern}).is_valid
        return test(_encodable(key))

    def _closure(self, pointers: _Pointers) -> _Pointers:
        """The subschemas themselves, and what they require at the same place."""
        found: dict[str, None] = {}
        todo = list(pointers)
        while todo:
            pointer = todo.pop()
            if pointer in found or pointer not in self._nodes.by_pointer:
                continue
            found[pointer] = None
            node = self._nodes.by_pointer[pointer]
            if isinstance(node, dict):
                todo += self._required_here(pointer, node)
        return tuple(found)

    def _required_here(self, pointer: str, node: Mapping[str, Any]) -> Iterator[str]:
        yield from self._nodes.referred(node)
        if not (self._draft.lonely_ref and "$ref" in node):
            for at in range(len(node.get("allOf", ()))):
                yield f"{pointer}/allOf/{at}"


class Schemas:
    """Compiled schemas by the digest of their text, the least used forgotten first.

    Threads may share it: at worst a schema is compiled twice.
    """

    def __init__(self) -> None:
        self._compiled: OrderedDict[bytes, Schema] = OrderedDict()

    def compile(self, schema: object) -> Schema:
        """A compiled schema.

        Args:
            schema: as the client sent it.

        Raises:
            SchemaRefused: it cannot be used.
        """
        if not isinstance(schema, Mapping):
            raise SchemaRefused("a schema is an object")
        text = msgspec.json.encode(schema)
        if len(text) > MAX_SCHEMA_BYTES:
            raise SchemaRefused(
                f"the schema has {len(text)} bytes; at most {MAX_SCHEMA_BYTES} are taken",
                limit=True,
            )
        digest = hashlib.sha256(text).digest()
        known = self._compiled.get(digest)
        if known is None:
            known = self._compiled[digest] = Schema(schema)
            if len(self._compiled) > MAX_SCHEMAS:
                self._compiled.popitem(last=False)
        with contextlib.suppress(KeyError):  # another thread has just forgotten it
            self._compiled.move_to_end(digest)
        return known


def _refused(error: Exception) -> SchemaRefused:
    steps = [str(step) for step in getattr(error, "instance_path", ())]
    path = "/".join(("#", *map(escape, steps)))
    if {"pattern", "patternProperties"} & set(steps[-2:]):
        return SchemaRefused(
            "the pattern is not valid, is too large, or uses look-around or back-references, which "
            "take more than linear time",
            path,
            limit=True,
        )
    if [*getattr(error, "schema_path", ())][-3:] == ["properties", "type", "anyOf"]:
        return SchemaRefused(_no_type(getattr(error, "instance", None)), path)
    kind = getattr(error, "kind", None)
    said = str(getattr(error, "message", error))
    if kind is not None:
        said = said.replace(_VALUE, "what stands there")
    return SchemaRefused(said[:MAX_REASON_CHARS], path)


def _no_type(given: object) -> str:
    """The metaschema says only that `type` is none of two things."""
    words = given if isinstance(given, list) else [given]
    wrong = [word for word in words if isinstance(word, str) and word not in _TYPES]
    what = repr(wrong[0][:MAX_TYPE_CHARS]) if wrong else "what stands there"
    return f"{what} is no type; use {', '.join(_TYPES)}, or an array of some, each once"


def _depth(value: Any, bound: int) -> int:  # noqa: ANN401 - JSON is anything
    """Containers within each other, up to a bound."""
    if not isinstance(value, dict | list) or not bound:
        return 0
    inside = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(one, bound - 1) for one in inside), default=0)


def _encodable(value: Any) -> Any:  # noqa: ANN401 - JSON is anything
    """The same, without lone surrogates, which no UTF-8 has."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(one) for key, one in value.items()}
    return [_encodable(one) for one in value] if isinstance(value, list) else value
