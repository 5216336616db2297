"""Judging JSON values as they complete, by the part of a schema that their path decides.

A schema is compiled once. jsonschema-rs does the judging: it has a linear engine for `pattern`, so
no pattern of a client can hold the event loop, it fetches nothing (`offline`), and it gives a
validator for every subschema with its `$ref`s in scope.

What decides about a value before its container is complete are the keywords that are conjunctions:
`properties`, `patternProperties`, `additionalProperties`, `prefixItems`, `items`, `$ref` and
`allOf`. Nothing is descended through `anyOf`, `oneOf`, `not` or `if`: those are judged where the
enclosing value closes. So a value that is refused here would be refused by the whole schema too.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import jsonschema_rs
import msgspec

from router.core.json_values import JsonFault, Path, ValueEnd
from router.errors import RouterError

MAX_SCHEMA_BYTES = 256 * 1024
"""Bound on one schema, encoded. OpenAI's own limits are well below."""

MAX_SCHEMA_DEPTH = 100
"""Bound on its nesting."""

MAX_PATTERN_BYTES = 1 << 20
"""Bound on one compiled `pattern`."""

MAX_SHAPES = 4096
"""Path shapes whose subschemas are remembered, per schema."""

MAX_SCHEMAS = 256
"""Compiled schemas that are remembered, per process."""

MAX_REASON_CHARS = 300
"""Bound on the words about a violation, which may quote the value."""

Node: TypeAlias = Any
_Pointers: TypeAlias = tuple[str, ...]

_SAME_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_PLACE = ("not", "if", "then", "else")
_OLD_DRAFTS = ("draft-04", "draft-06", "draft-07")


class SchemaRefused(RouterError):
    """A schema that cannot be used.

    Args:
        reason: what is wrong, a clause.
        path: JSON pointer into the schema.
    """

    def __init__(self, reason: str, path: str = "#") -> None:
        self.reason = reason
        self.path = path
        super().__init__(f"at {path}: {reason}")


class SchemaViolation(JsonFault):
    """A value that the schema does not allow."""


class Schema:
    """A compiled schema.

    Args:
        schema: as the client sent it.

    Raises:
        SchemaRefused: it is no schema, refers outside itself, or never ends.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root = schema
        self._nodes = dict(_nodes(schema))
        self._old = any(draft in str(schema.get("$schema", "")) for draft in _OLD_DRAFTS)
        _refuse_foreign(self._nodes)
        _refuse_endless(self._nodes, self._resolve)
        linear = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES)
        try:
            # The whole finds what is wrong with the schema; the map only compiles what is asked.
            self._whole = jsonschema_rs.validator_for(
                dict(schema), offline=True, pattern_options=linear
            )
            self._parts = jsonschema_rs.validator_map_for(
                dict(schema), offline=True, pattern_options=linear
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            raise SchemaRefused(*_why(error)) from None
        except ValueError as error:
            raise SchemaRefused(str(error)[:MAX_REASON_CHARS]) from None
        self._shapes: OrderedDict[tuple[_Pointers, str | int], _Pointers] = OrderedDict()
        self._roots = self._closure(("#",))
        self._patterns: dict[str, Callable[[str], bool]] = {}

    @property
    def openers(self) -> str:
        """What a document may begin with: "{", "[", both, or "" for any value."""
        allowed = {"{", "[", ""}
        for pointer in self._roots:
            node = self._nodes.get(pointer)
            kinds = node.get("type") if isinstance(node, Mapping) else None
            if kinds is not None:
                kinds = [kinds] if isinstance(kinds, str) else kinds
                allowed &= {{"object": "{", "array": "["}.get(kind, "") for kind in kinds}
        return "" if "" in allowed else "".join(sorted(allowed, reverse=True))

    def check(self, end: ValueEnd) -> None:
        """Judge a value that is complete.

        Args:
            end: the value and its path.

        Raises:
            SchemaViolation: it cannot be part of a valid document.
        """
        pointers = self._roots
        for step in end.path:
            pointers = self._step(pointers, step)
            if not pointers:
                return
        for pointer in pointers:
            self._judge(pointer, end.value, end.path, end.start)

    def check_whole(self, value: Any) -> None:  # noqa: ANN401 - JSON is anything
        """Judge the whole document.

        Args:
            value: the document.

        Raises:
            SchemaViolation: it is not valid.
        """
        self._judge("#", value, (), 0)

    def _judge(self, pointer: str, value: Any, path: Path, offset: int) -> None:  # noqa: ANN401
        node = self._nodes.get(pointer)
        if node is True:
            return
        validator = self._parts.get(pointer) if pointer != "#" else self._whole
        if node is False or validator is None:
            if node is False:
                raise SchemaViolation("the schema allows nothing here", path, offset)
            return
        value = _encodable(value)
        if validator.is_valid(value):
            return
        for error in validator.iter_errors(value):
            where = (*path, *error.instance_path)
            raise SchemaViolation(str(error.message)[:MAX_REASON_CHARS], where, offset)

    # -- which subschemas a path decides -------------------------------------------------------

    def _step(self, pointers: _Pointers, step: str | int) -> _Pointers:
        known = self._shapes.get((pointers, step))
        if known is None:
            known = self._closure(
                tuple(p for pointer in pointers for p in self._children(pointer, step))
            )
            self._shapes[pointers, step] = known
            if len(self._shapes) > MAX_SHAPES:
                self._shapes.popitem(last=False)
        return known

    def _children(self, pointer: str, step: str | int) -> Iterator[str]:
        node = self._nodes.get(pointer)
        if not isinstance(node, Mapping):
            return
        if self._old and "$ref" in node:
            return  # before 2019-09 a `$ref` stands alone; its target is among the pointers
        if isinstance(step, str):
            yield from self._members(pointer, node, step)
        else:
            yield from self._items(pointer, node, step)

    def _members(self, pointer: str, node: Mapping[str, Any], key: str) -> Iterator[str]:
        matched = False
        if key in node.get("properties", {}):
            matched = True
            yield f"{pointer}/properties/{_escape(key)}"
        for pattern in node.get("patternProperties", {}):
            if self._matches(pattern, key):
                matched = True
                yield f"{pointer}/patternProperties/{_escape(pattern)}"
        if not matched and "additionalProperties" in node:
            yield f"{pointer}/additionalProperties"

    def _items(self, pointer: str, node: Mapping[str, Any], index: int) -> Iterator[str]:
        items = node.get("items")
        first = items if isinstance(items, list) else node.get("prefixItems", [])
        word = "items" if isinstance(items, list) else "prefixItems"
        rest = "additionalItems" if isinstance(items, list) else "items"
        if index < len(first):
            yield f"{pointer}/{word}/{index}"
        elif rest in node:
            yield f"{pointer}/{rest}"

    def _matches(self, pattern: str, key: str) -> bool:
        test = self._patterns.get(pattern)
        if test is None:
            test = jsonschema_rs.validator_for(
                {"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions()
            ).is_valid
            self._patterns[pattern] = test
        return test(_encodable(key))

    def _closure(self, pointers: _Pointers) -> _Pointers:
        """The subschemas themselves, and what they require at the same place."""
        found: dict[str, None] = {}
        todo = list(pointers)
        while todo:
            pointer = todo.pop()
            if pointer in found or pointer not in self._nodes:
                continue
            found[pointer] = None
            node = self._nodes[pointer]
            if isinstance(node, Mapping):
                todo += self._required_here(pointer, node)
        return tuple(found)

    def _required_here(self, pointer: str, node: Mapping[str, Any]) -> Iterator[str]:
        target = self._resolve(node.get("$ref"))
        if target is not None:
            yield target
        if not (self._old and "$ref" in node):
            for at in range(len(node.get("allOf", ()))):
                yield f"{pointer}/allOf/{at}"

    def _resolve(self, reference: object) -> str | None:
        """A `$ref` to a place in this schema; anchors are left to the whole validation."""
        if not isinstance(reference, str) or not (reference == "#" or reference[:2] == "#/"):
            return None
        return reference if reference in self._nodes else None


class Schemas:
    """Compiled schemas by the digest of their text, the least used forgotten first."""

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
                f"the schema has {len(text)} bytes; at most {MAX_SCHEMA_BYTES} are taken"
            )
        digest = hashlib.sha256(text).digest()
        known = self._compiled.get(digest)
        if known is None:
            known = self._compiled[digest] = Schema(schema)
            if len(self._compiled) > MAX_SCHEMAS:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(digest)
        return known


def _nodes(root: Node) -> Iterator[tuple[str, Node]]:
    """Every object and truth value in a schema by its pointer; a superset of its subschemas."""
    todo: list[tuple[str, Node, int]] = [("#", root, 0)]
    while todo:
        pointer, node, depth = todo.pop()
        if depth > MAX_SCHEMA_DEPTH:
            raise SchemaRefused(f"nested deeper than {MAX_SCHEMA_DEPTH}", pointer[:200])
        if isinstance(node, Mapping):
            yield pointer, node
            todo += [(f"{pointer}/{_escape(key)}", one, depth + 1) for key, one in node.items()]
        elif isinstance(node, list):
            todo += [(f"{pointer}/{at}", one, depth + 1) for at, one in enumerate(node)]
        elif isinstance(node, bool):
            yield pointer, node


def _refuse_foreign(nodes: Mapping[str, Node]) -> None:
    for pointer, node in nodes.items():
        if not isinstance(node, Mapping):
            continue
        for word in ("$ref", "$dynamicRef", "$recursiveRef"):
            reference = node.get(word)
            if isinstance(reference, str) and not reference.startswith("#"):
                raise SchemaRefused(
                    f"`{word}` to {reference[:100]!r}: nothing is ever fetched, "
                    "refer to this schema's own `#/$defs`",
                    f"{pointer}/{word}",
                )


def _refuse_endless(nodes: Mapping[str, Node], resolve: Callable[[object], str | None]) -> None:
    """A `$ref` that leads back to itself without going into the value says nothing, for ever."""
    done: set[str] = set()
    for start in nodes:
        path: list[str] = []
        todo: list[tuple[str, bool]] = [(start, False)]
        while todo:
            pointer, leaving = todo.pop()
            if leaving:
                path.pop()
                done.add(pointer)
            elif pointer in path:
                raise SchemaRefused("the reference leads back to itself", pointer)
            elif pointer not in done and pointer in nodes:
                path.append(pointer)
                todo.append((pointer, True))
                todo += [(one, False) for one in _same_place(pointer, nodes[pointer], resolve)]


def _same_place(pointer: str, node: Node, resolve: Callable[[object], str | None]) -> Iterator[str]:
    """Subschemas that judge the same value."""
    if not isinstance(node, Mapping):
        return
    target = resolve(node.get("$ref"))
    if target is not None:
        yield target
    for word in _SAME_PLACE_LISTS:
        if isinstance(node.get(word), list):
            yield from (f"{pointer}/{word}/{at}" for at in range(len(node[word])))
    yield from (f"{pointer}/{word}" for word in _SAME_PLACE if word in node)


def _escape(key: str) -> str:
    """A key in a URI-fragment JSON pointer, as the validators' map writes it."""
    return key.replace("~", "~0").replace("/", "~1")


def _why(error: Exception) -> tuple[str, str]:
    message = str(getattr(error, "message", error))[:MAX_REASON_CHARS]
    path = "/".join(_escape(str(step)) for step in getattr(error, "instance_path", ()))
    return message, f"#/{path}" if path else "#"


def _encodable(value: Any) -> Any:  # noqa: ANN401 - JSON is anything
    """The same, without lone surrogates, which no UTF-8 has."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(one) for key, one in value.items()}
    return [_encodable(one) for one in value] if isinstance(value, list) else value
