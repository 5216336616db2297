"""How much a schema may ask for: no client's schema holds the event loop.

The validator walks a schema as it is written, so that a subschema reached in many ways is asked as
often: thirty definitions that each refer twice to the next are a thousand million questions about
one number. (Recursion is no such case: what a recursive `$ref` said of a value is remembered.) And
a pattern, though linear in the text, may cost 2 µs a character.

Both are known from the schema alone: in how many ways the worst place of a document is judged, and
by how many patterns. What is multiplied there is refused at once; what grows with the document is
held against its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from router.core.json_schema_nodes import Nodes, SchemaRefused, escape

MAX_WAYS = 1 << 16
"""Ways to judge one place of a document: 1 to 2 ms of work."""

MAX_JUDGEMENTS = 1 << 24
"""Ways times places of one value: under half a second."""

MAX_PATTERN_WORK = 1 << 19
"""Characters of one value times patterns per place: about a second if every pattern is made to be
slow, and a thousandth of that for an ordinary one."""

UNEVALUATED_WAYS = 3
"""What `unevaluated…` looks for it finds by asking its neighbours again, and they theirs."""

_WILD = ("additionalProperties", "additionalItems", "items")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one value may cost.

    Args:
        ways: in how many ways the worst place is judged.
        patterns: by how many patterns.
    """

    ways: int
    patterns: int

    def too_much(self, value: Any, chars: int = 0) -> str:  # noqa: ANN401 - JSON is anything
        """Whether a value is too large to be judged.

        Args:
            value: it.
            chars: length of its text; 0 where that is not known.

        Returns:
            Why, as a clause, or "".
        """
        chars = chars or _chars(value)
        if chars * self.patterns > MAX_PATTERN_WORK:
            return f"{chars} characters are too many to be held against the schema's patterns"
        if chars * self.ways > MAX_JUDGEMENTS and _places(value) * self.ways > MAX_JUDGEMENTS:
            return "it is too large to be judged in all the ways that the schema asks for"
        return ""


def cost_of(nodes: Nodes) -> Cost:
    """What a schema asks for.

    Args:
        nodes: its subschemas.

    Raises:
        SchemaRefused: more than any document is worth.
    """
    ways = _worst(nodes, patterns=False)
    if ways > MAX_WAYS:
        raise SchemaRefused(
            "its references and alternatives multiply: one value would be judged in more than "
            f"{MAX_WAYS} ways",
            limit=True,
        )
    return Cost(ways=ways, patterns=_worst(nodes, patterns=True))


def _worst(nodes: Nodes, *, patterns: bool) -> int:
    """How often the worst place of a document is judged, an upper bound.

    What judges the same value adds up; of what judges different values within it, the worst counts.
    """
    found: dict[str, int] = {}
    above: set[str] = set()
    todo: list[tuple[str, bool]] = [("#", False)]

    def ways(pointer: str) -> int:
        # What is not found yet is further up: recursion, whose answers are remembered.
        return found.get(pointer, 0 if patterns else 1)

    while todo:
        pointer, leaving = todo.pop()
        if leaving:
            above.discard(pointer)
            own = _own(nodes.by_pointer[pointer]) if patterns else 1
            one_of, all_of = _groups(nodes, pointer)
            inside = max((ways(one) for one in one_of), default=0) + sum(map(ways, all_of))
            here = sum(map(ways, nodes.same_place(pointer)))
            again = 1 if patterns else _again(nodes.by_pointer[pointer])
            found[pointer] = min(MAX_WAYS + 1, again * (here + max(own, inside)))
        elif pointer in nodes.by_pointer and pointer not in found and pointer not in above:
            above.add(pointer)
            todo.append((pointer, True))
            todo += [(one, False) for one in nodes.same_place(pointer)]
            todo += [(one, False) for group in _groups(nodes, pointer) for one in group]
    return found["#"]


def _own(node: Any) -> int:  # noqa: ANN401 - a schema is an object or a truth value
    if not isinstance(node, dict):
        return 0
    return ("pattern" in node) + len(node.get("patternProperties", ()))


def _again(node: Any) -> int:  # noqa: ANN401 - a schema is an object or a truth value
    if not isinstance(node, dict):
        return 1
    words = ("unevaluatedProperties", "unevaluatedItems")
    again: int = UNEVALUATED_WAYS ** sum(word in node for word in words)
    return again


def _groups(nodes: Nodes, pointer: str) -> tuple[list[str], list[str]]:
    """Subschemas for values within the value: one at most of these applies, all of those may."""
    node = nodes.by_pointer[pointer]
    if not isinstance(node, dict):
        return [], []
    return list(_one_of(pointer, node)), list(_all_of(pointer, node))


def _one_of(pointer: str, node: Mapping[str, Any]) -> Iterator[str]:
    for key in node.get("properties", ()):
        yield f"{pointer}/properties/{escape(key)}"
    for word in ("prefixItems", "items"):
        if isinstance(node.get(word), list):
            yield from (f"{pointer}/{word}/{at}" for at in range(len(node[word])))
    yield from (f"{pointer}/{word}" for word in _WILD if isinstance(node.get(word), dict))


def _all_of(pointer: str, node: Mapping[str, Any]) -> Iterator[str]:
    for key in node.get("patternProperties", ()):
        yield f"{pointer}/patternProperties/{escape(key)}"
    for word in ("contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems"):
        if isinstance(node.get(word), dict):
            yield f"{pointer}/{word}"


def _places(value: Any) -> int:  # noqa: ANN401 - JSON is anything
    """How many values a value is made of."""
    if isinstance(value, dict):
        return 1 + sum(_places(one) for one in value.values())
    return 1 + sum(_places(one) for one in value) if isinstance(value, list) else 1


def _chars(value: Any) -> int:  # noqa: ANN401 - JSON is anything
    """Roughly how long the text of a value is."""
    if isinstance(value, dict):
        return sum(len(key) + 1 + _chars(one) for key, one in value.items())
    if isinstance(value, list):
        return sum(1 + _chars(one) for one in value)
    return len(value) if isinstance(value, str) else 4
