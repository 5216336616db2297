"""YAML text to nodes, and PyYAML's complaints in our words.

PyYAML quotes the file in its messages, and the file may hold secrets: so a table tells each usual
mistake anew, with its remedy, and what is left is stripped of quotations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from router.config.problem import Problem, Unreadable

MAX_DEPTH = 32
"""Bound on nesting, aliases followed: ours is seven deep, `disable_thinking` may add a few."""


class _Loader(yaml.SafeLoader):
    """PyYAML's composer, which recurses, with a bound on how deep."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise too_deep(self.line + 1)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def compose(text: str) -> yaml.Node:
    """The node graph of the one document in `text`."""
    try:
        loader = _Loader(text)  # its constructor reads already
        root = loader.get_single_node()
    except yaml.YAMLError as error:
        raise Unreadable(_syntax_problem(error, text)) from None
    except (ValueError, OverflowError):  # PyYAML on an escape such as "\UFFFFFFFF"
        raise Unreadable(
            Problem(None, "An escape in a double-quoted text is no character.", "Correct it.")
        ) from None
    if root is None:
        raise Unreadable(
            Problem(1, "The file is empty.", "Give it at least `providers` and `routes`.")
        )
    return root


@dataclass(frozen=True, slots=True)
class _SyntaxRow:
    """How one of PyYAML's complaints is told.

    Args:
        needle: what its text holds.
        message: ours.
        remedy: ours.
        at_context: the mistake is where the construct began, not where the parser gave up.
    """

    needle: str
    message: str
    remedy: str
    at_context: bool = False


_SYNTAX = (
    _SyntaxRow(
        r"'\t' that cannot start any token",
        "A tab stands where YAML wants spaces.",
        "Indent with spaces only.",
    ),
    _SyntaxRow(
        "that cannot start any token",
        "A value starts with a character that YAML reserves.",
        "Put the value in quotes.",
    ),
    _SyntaxRow(
        "mapping values are not allowed here",
        "A `:` stands where no key can be.",
        "Put a value that holds `: ` in quotes, and each key on its own line.",
    ),
    _SyntaxRow(
        "could not find expected ':'",
        "A key has no `:` after it.",
        "Write `key: value`, with a space after the colon.",
        at_context=True,
    ),
    _SyntaxRow(
        "found unexpected end of stream",
        "A quote is opened and never closed.",
        "Close it.",
        at_context=True,
    ),
    _SyntaxRow(
        "expected ',' or '}'",
        "A `{` is not closed as it should be.",
        'Close it; inside `{}` a variable needs quotes: `"${VAR}"`.',
    ),
    _SyntaxRow(
        "expected ',' or ']'",
        "A `[` is not closed as it should be.",
        'Close it; inside `[]` a variable needs quotes: `"${VAR}"`.',
    ),
    _SyntaxRow(
        "expected <block end>",
        "The indentation does not fit what is around it.",
        "Start all keys of one mapping in the same column.",
    ),
    _SyntaxRow(
        "found undefined alias",
        "An alias (`*name`) refers to an anchor that is not above it.",
        "Write the anchor (`&name`) first, or quote a value that starts with `*`.",
    ),
    _SyntaxRow(
        "found duplicate anchor", "An anchor is defined twice.", "Give each anchor its own name."
    ),
    _SyntaxRow(
        "unknown escape character",
        "A double-quoted text holds an escape that YAML does not know.",
        "Use single quotes, or write the backslash twice.",
    ),
    _SyntaxRow(
        "but found another document",
        "The file holds more than one document.",
        "Remove the `---` and what follows it.",
    ),
    _SyntaxRow(
        "special characters are not allowed",
        "The file holds a control character.",
        "Remove it; a YAML file is plain text.",
    ),
)
_QUOTED = re.compile(r"'(?!<)[^']{2,}'|\"[^\"]{2,}\"")
"""What PyYAML quotes of the file; token names such as `'<scalar>'` are its own."""


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    """PyYAML's complaint in our words: it quotes the file, and the file may hold secrets."""
    said = str(getattr(error, "problem", None) or error)
    if isinstance(error, yaml.reader.ReaderError):
        said = error.reason
    for row in _SYNTAX:
        if row.needle in f"{said} {getattr(error, 'context', '')}":
            return Problem(_mark(error, text, at_context=row.at_context), row.message, row.remedy)
    line = _mark(error, text, at_context=False)
    return Problem(
        line,
        f"The YAML cannot be read: {_QUOTED.sub('…', said)}.",
        "Correct the syntax; put text that holds special characters in quotes.",
    )


def _mark(error: yaml.YAMLError, text: str, *, at_context: bool) -> int | None:
    """The 1-based line that an error of PyYAML's blames."""
    if isinstance(error, yaml.reader.ReaderError):
        return text.count("\n", 0, int(error.position)) + 1
    names = ("context_mark", "problem_mark") if at_context else ("problem_mark", "context_mark")
    for name in names:
        mark = getattr(error, name, None)
        if mark is not None:
            return int(mark.line) + 1
    return None


def too_deep(line: int) -> Unreadable:
    """The complaint about a file, or its aliases, nested beyond `MAX_DEPTH`."""
    return Unreadable(
        Problem(
            line,
            f"The file is nested more than {MAX_DEPTH} levels deep.",
            "Flatten it; an alias must not lead back to itself.",
        )
    )
