"""YAML text to plain data that remembers its lines, with `${VAR}` filled in from the environment.

The first of three steps (read, validate, check). It knows YAML and nothing of the router. What it
reads is hostile until shown otherwise: size, depth and the number of nodes after aliases are
bounded, tags construct nothing, and a substituted value is a string for ever: it is never parsed
again and never shown in a message, since it is usually a secret.

Plain scalars follow YAML 1.2 where 1.1 surprises: `010` is ten, `12:30` and a date are text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from router.config.problem import Problem, Unreadable, shown
from router.config.syntax import MAX_DEPTH, compose, too_deep
from router.config.variables import BadVariable, substitute

MAX_FILE_BYTES = 262_144
"""Bound on a file: a thousand routes fit, and PyYAML reads it in two seconds."""
MAX_NODES = 50_000
"""Bound on nodes, aliases and merges followed: a bomb of aliases ends here."""

Path: TypeAlias = tuple[str | int, ...]
"""Where a value stands: keys and list indexes from the root."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Plain data with its lines.

    Args:
        data: mappings with text keys, lists, and text, whole, float, bool or null scalars.
        lines: line of each key, and of each list item.
        substituted: scalars that came, in part, from the environment: never to be quoted.
        unset: scalars whose substitution failed; `problems` says so already.
        problems: what was found while reading.
    """

    data: Any
    lines: Mapping[Path, int]
    substituted: frozenset[Path]
    unset: frozenset[Path]
    problems: tuple[Problem, ...]

    def line(self, path: Path) -> int:
        """The line of a value, or of the nearest value around it that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def get(self, *path: str | int) -> object:
        """The value at `path`, or None where there is none."""
        value: object = self.data
        for step in path:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int):
                value = value[step] if step < len(value) else None
            else:
                return None
        return value

    def keys(self, *path: str | int) -> tuple[str, ...]:
        """The keys of the mapping at `path`; none where there is no mapping."""
        value = self.get(*path)
        return tuple(value) if isinstance(value, dict) else ()

    def indexes(self, *path: str | int) -> range:
        """The indexes of the list at `path`; none where there is no list."""
        value = self.get(*path)
        return range(len(value)) if isinstance(value, list) else range(0)


def read_tree(text: str, env: Mapping[str, str]) -> Tree:
    """Read one YAML document.

    Args:
        text: the file's text.
        env: variables for `${VAR}` and `${VAR:-default}`; `$${` stands for a literal `${`.

    Returns:
        The data and all that was found wrong short of unreadable.

    Raises:
        Unreadable: broken syntax, an empty file, or a bound passed.
    """
    if len(text.encode(errors="surrogatepass")) > MAX_FILE_BYTES:
        raise Unreadable(
            Problem(
                None,
                f"The file is larger than {MAX_FILE_BYTES:,} bytes.",
                "Shorten it: anchors (`&name`, `*name`, `<<`) say a thing once.",
            )
        )
    root = compose(text)
    builder = _Builder(env)
    data = builder.value(root, ())
    return Tree(
        data=data,
        lines=builder.lines,
        substituted=frozenset(builder.substituted),
        unset=frozenset(builder.unset),
        problems=tuple(dict.fromkeys(builder.problems)),
    )


_TAG = "tag:yaml.org,2002:"
_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")


def _whole(text: str) -> int | str:
    """A decimal number; whatever else YAML 1.1 takes for one stays text."""
    return int(text) if _WHOLE.fullmatch(text) else text


def _real(text: str) -> float | str:
    """A decimal number with a point; `.inf`, `.nan` and base 60 stay text."""
    try:
        return float(text)
    except ValueError:
        return text


_SCALARS: Mapping[str, Callable[[str], Any]] = {
    f"{_TAG}int": _whole,
    f"{_TAG}float": _real,
    f"{_TAG}bool": lambda text: text.lower() in {"true", "yes", "on"},
    f"{_TAG}null": lambda _: None,
    f"{_TAG}timestamp": str,  # an unquoted `api_version: 2024-10-21` means its text
    f"{_TAG}value": str,
}


@dataclass(slots=True)
class _Builder:
    """Turns nodes into data and notes where each came from."""

    env: Mapping[str, str]
    lines: dict[Path, int] = field(default_factory=dict)
    substituted: set[Path] = field(default_factory=set)
    unset: set[Path] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    nodes: int = 0

    def value(self, node: yaml.Node, path: Path) -> object:
        """The data of one node, aliases followed."""
        self._count(node, path)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return self._sequence(node, path)
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}str":
            return self._text(node, path)
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            return _SCALARS[node.tag](node.value)
        self._note(node, "A tag (`!…`) is used, and none has a meaning here.", "Remove the tag.")
        self.unset.add(path)
        return None

    def _count(self, node: yaml.Node, path: Path) -> None:
        self.nodes += 1
        line = node.start_mark.line + 1
        if len(path) > MAX_DEPTH:
            raise too_deep(line)
        if self.nodes > MAX_NODES:
            raise Unreadable(
                Problem(
                    line,
                    f"With its aliases followed the file holds more than {MAX_NODES:,} values.",
                    "Use fewer aliases.",
                )
            )

    def _note(self, node: yaml.Node, message: str, remedy: str) -> None:
        self.problems.append(Problem(node.start_mark.line + 1, message, remedy))

    def _sequence(self, node: yaml.SequenceNode, path: Path) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self.lines[(*path, index)] = item.start_mark.line + 1
            items.append(self.value(item, (*path, index)))
        return items

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        chosen: dict[str, tuple[yaml.ScalarNode, yaml.Node]] = {}
        for key, value in self._pairs(node, path):
            chosen.setdefault(key.value, (key, value))
        data = {}
        for name, (key, value) in chosen.items():
            self.lines[(*path, name)] = key.start_mark.line + 1
            data[name] = self.value(value, (*path, name))
        return data

    def _pairs(
        self, node: yaml.MappingNode, path: Path
    ) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        """A mapping's own entries, then those it merges in (`<<`), which its own ones hide."""
        merged: list[tuple[yaml.Node, yaml.Node]] = []
        seen: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                merged.append((key, value))
            elif not isinstance(key, yaml.ScalarNode) or not key.value:
                self._note(key, "A key is not plain text.", "Write `key: value`.")
            elif key.value in seen:
                self._note(
                    key,
                    f"The key {shown(key.value)} stands twice, first on line {seen[key.value]}.",
                    "Keep one of them.",
                )
            else:
                seen[key.value] = key.start_mark.line + 1
                yield key, value
        for key, value in merged:
            yield from self._merged(key, value, path)

    def _merged(
        self, key: yaml.Node, value: yaml.Node, path: Path
    ) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        """The entries of what `<<` names: a mapping or a list of mappings."""
        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for source in sources:
            self._count(source, path)
            if isinstance(source, yaml.MappingNode):
                yield from self._pairs(source, (*path, "<<"))
            else:
                self._note(key, "`<<` merges something that is no mapping.", "Merge a mapping.")

    def _text(self, node: yaml.ScalarNode, path: Path) -> str | None:
        """A text with its variables filled in; None, and a problem, where one is not set."""
        written = str(node.value)
        if "${" not in written:
            return written
        self.substituted.add(path)
        try:
            return substitute(written, self.env)
        except BadVariable as bad:
            self._note(node, bad.message, bad.remedy)
            self.unset.add(path)
            return None
