"""What a schema is made of: its subschemas by their pointers, and the dialect they are written in.

What cannot be used at all is refused here, with the place: a reference out of the schema, which is
never followed, a reference that leads back to itself without going into the value, too deep a
nesting, and a dialect that is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from router.errors import RouterError

MAX_SCHEMA_DEPTH = 100
"""Bound on a schema's nesting."""

Node: TypeAlias = Any
Pointed: TypeAlias = dict[str, Node]

SAME_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
SAME_PLACE = ("not", "if", "then", "else")
"""Keywords whose subschemas judge the same value."""

NAMED = frozenset(
    ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
)
"""Keywords whose value maps names to subschemas: what is in there are no keywords."""

_DATA = frozenset(("const", "enum", "default", "examples", "example"))
"""Keywords whose value is data, whatever it looks like."""

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
"""Keywords that say: as it is said over there."""


class SchemaRefused(RouterError):
    """A schema that cannot be used.

    Args:
        reason: what is wrong, a clause.
        path: JSON pointer into the schema.
        limit: it may well be a schema, and is more than we take; else it is none.
    """

    def __init__(self, reason: str, path: str = "#", *, limit: bool = False) -> None:
        self.reason = reason
        self.path = path
        self.limit = limit
        super().__init__(f"at {path}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What differs between the drafts of JSON Schema, as far as it matters here.

    Args:
        lonely_ref: what stands beside a `$ref` does not count (before 2019-09).
        prefix_items: `prefixItems` and `items` (2020-12) instead of `items` and `additionalItems`.
    """

    lonely_ref: bool = False
    prefix_items: bool = True

    def item_words(self, node: Mapping[str, Any]) -> tuple[str, str]:
        """The keyword of the first items, one by one, and that of all others.

        Args:
            node: a subschema.
        """
        if self.prefix_items:
            return "prefixItems", "items"
        listed = isinstance(node.get("items"), list)
        return ("items", "additionalItems") if listed else ("", "items")


_DRAFTS = (
    ("draft-04", Draft(lonely_ref=True, prefix_items=False)),
    ("draft-06", Draft(lonely_ref=True, prefix_items=False)),
    ("draft-07", Draft(lonely_ref=True, prefix_items=False)),
    ("2019-09", Draft(prefix_items=False)),
)


def draft_of(schema: Mapping[str, Any]) -> Draft:
    """The dialect of a schema: 2020-12 unless it says otherwise.

    Args:
        schema: the whole.
    """
    said = str(schema.get("$schema", ""))
    return next((draft for word, draft in _DRAFTS if word in said), Draft())


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The subschemas of a schema.

    Args:
        by_pointer: every object and truth value that may be one, by its pointer; a superset.
        anchors: named subschemas, by `#name`.
        draft: the dialect.
    """

    by_pointer: Pointed
    anchors: Mapping[str, str]
    draft: Draft

    def target(self, reference: str) -> str | None:
        """Where a reference leads.

        Args:
            reference: value of a `$ref`.

        Returns:
            A pointer, or None if it leads to no subschema.
        """
        there = self.anchors.get(reference) or unquote(reference)
        return there if there in self.by_pointer else None

    def referred(self, node: Mapping[str, Any]) -> Iterator[str]:
        """What a subschema refers to. There is one resource, so nothing is dynamic about it.

        Args:
            node: the subschema.
        """
        for word in REFERENCES:
            reference = node.get(word)
            target = self.target(reference) if isinstance(reference, str) else None
            if target is not None:
                yield target

    def same_place(self, pointer: str) -> Iterator[str]:
        """Subschemas that judge the same value as another.

        Args:
            pointer: of that other one.
        """
        node = self.by_pointer[pointer]
        if not isinstance(node, dict):
            return
        yield from self.referred(node)
        for word in SAME_PLACE_LISTS:
            if isinstance(node.get(word), list):
                yield from (f"{pointer}/{word}/{at}" for at in range(len(node[word])))
        yield from (f"{pointer}/{word}" for word in SAME_PLACE if word in node)
        for word in ("dependentSchemas", "dependencies"):
            if isinstance(node.get(word), dict):
                yield from (f"{pointer}/{word}/{escape(key)}" for key in node[word])


def nodes_of(schema: Mapping[str, Any], draft: Draft) -> Nodes:
    """Take a schema apart.

    Args:
        schema: the whole.
        draft: its dialect.

    Raises:
        SchemaRefused: see the head of this file.
    """
    pointed = dict(_walk(schema))
    nodes = Nodes(by_pointer=pointed, anchors=_anchors(pointed), draft=draft)
    _refuse_foreign(nodes)
    _refuse_endless(nodes)
    return nodes


def _walk(root: Node) -> Iterator[tuple[str, Node]]:
    todo: list[tuple[str, Node, int, bool]] = [("#", root, 0, False)]
    while todo:
        pointer, node, depth, named = todo.pop()
        if depth > MAX_SCHEMA_DEPTH:
            raise SchemaRefused(f"nested deeper than {MAX_SCHEMA_DEPTH}", pointer[:200], limit=True)
        if isinstance(node, dict):
            if not named:
                yield pointer, node
            todo += [
                (f"{pointer}/{escape(key)}", one, depth + 1, not named and key in NAMED)
                for key, one in node.items()
                if named or key not in _DATA
            ]
        elif isinstance(node, list):
            todo += [(f"{pointer}/{at}", one, depth + 1, False) for at, one in enumerate(node)]
        elif isinstance(node, bool):
            yield pointer, node


def _anchors(pointed: Pointed) -> dict[str, str]:
    found: dict[str, str] = {}
    for pointer, node in pointed.items():
        if not isinstance(node, dict):
            continue
        names = {f"#{node[word]}" for word in ("$anchor", "$dynamicAnchor") if word in node}
        own = node.get("$id")
        if isinstance(own, str) and own.startswith("#"):  # an anchor, up to draft 7
            names.add(own)
        elif own is not None and pointer != "#":
            raise SchemaRefused(
                "a schema inside the schema with an `$id` of its own is not supported: "
                "refer to `#/$defs`",
                f"{pointer}/$id",
                limit=True,
            )
        for name in names:
            if found.setdefault(name, pointer) != pointer:
                raise SchemaRefused(f"the anchor {name[:100]!r} stands twice", pointer)
    return found


def _refuse_foreign(nodes: Nodes) -> None:
    for pointer, node in nodes.by_pointer.items():
        if not isinstance(node, dict):
            continue
        for word in REFERENCES:
            reference = node.get(word)
            if not isinstance(reference, str) or nodes.target(reference) is not None:
                continue
            why = (
                "there is no such subschema" if reference[:1] == "#" else "nothing is ever fetched"
            )
            raise SchemaRefused(
                f"`{word}` to {reference[:100]!r}: {why}; refer to this schema's own `#/$defs`",
                f"{pointer}/{word}",
            )


def _refuse_endless(nodes: Nodes) -> None:
    """A `$ref` that leads back to itself without going into the value says nothing, for ever."""
    done: set[str] = set()
    above: set[str] = set()
    for start in nodes.by_pointer:
        todo: list[tuple[str, bool]] = [(start, False)]
        while todo:
            pointer, leaving = todo.pop()
            if leaving:
                above.remove(pointer)
                done.add(pointer)
            elif pointer in above:
                raise SchemaRefused("the reference leads back to itself", pointer)
            elif pointer not in done and pointer in nodes.by_pointer:
                above.add(pointer)
                todo.append((pointer, True))
                todo += [(one, False) for one in nodes.same_place(pointer)]


def escape(key: str) -> str:
    """A key as a step of a JSON pointer (RFC 6901).

    Args:
        key: any.
    """
    return key.replace("~", "~0").replace("/", "~1")
