"""pydantic's complaints in our words: what is wrong, where, and what would be right.

A table by error type. A value is quoted only where it is one word out of a fixed choice, and never
when it came from the environment; everything else may be a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from router.config.problem import Problem, shown
from router.config.schema import SECTIONS, keys_of
from router.config.source import Path, Tree

MAX_CHOICES_SHOWN = 40
"""Bound on a list inside a remedy."""

PLANNED: Mapping[tuple[str, str], str] = {
    ("type", "bedrock"): "Reach Bedrock through `openrouter` or an OpenAI-compatible gateway.",
}
"""Words that have a meaning in a later version, by key and value."""


MEANT: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("type", "claude"): ("anthropic",),
    ("type", "google"): ("gemini",),
    ("type", "vertex"): ("gemini",),
    ("style", "prefil"): ("assistant_tail", "prefix_flag", "partial_flag", "continue_final"),
    ("style", "prefill"): ("assistant_tail", "prefix_flag", "partial_flag", "continue_final"),
}
"""Words that others use for one of our choices, by key and value."""


def explain(error: ValidationError, tree: Tree) -> Iterator[Problem]:
    """One problem for each complaint, except where reading has complained already."""
    for detail in error.errors(include_url=False, include_input=False):
        path = tuple(step for step in detail["loc"] if step != "[key]")
        if path in tree.unset:
            continue
        if detail["type"] == "too_short" and tree.get(*path):
            continue  # pydantic counts valid items only; what is wrong with them is told anyway
        yield _problem(detail, path, tree)


def _problem(detail: ErrorDetails, path: Path, tree: Tree) -> Problem:
    explainer = _EXPLAINERS.get(detail["type"], _other)
    message, remedy = explainer(detail, path, tree)
    return Problem(tree.line(path), message, remedy)


def dotted(path: Path) -> str:
    """`routes.chat.targets[0].provider`, in backticks."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return shown(text) if len(text) <= _MAX_PATH_CHARS else shown("…" + text[-_MAX_PATH_CHARS:])


_MAX_PATH_CHARS = 59
"""Of a long path the end says more than the beginning."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A sentence that names the known word nearest to `word`, or "" if none is near."""
    near = difflib.get_close_matches(word[:100].lower(), list(known), n=1, cutoff=0.6)
    return f"Did you mean {shown(near[0])}?" if near else ""


def listing(words: Iterable[str]) -> str:
    """Words in backticks with commas, bounded."""
    all_words = list(words)
    some = ", ".join(shown(word) for word in all_words[:MAX_CHOICES_SHOWN])
    return some if len(all_words) <= MAX_CHOICES_SHOWN else f"{some}, …"


def section_at(path: Path) -> tuple[str, ...]:
    """The keys known to the section at `path`; none where there is no section."""
    for pattern, section in SECTIONS.items():
        if len(pattern) == len(path) and all(
            want in ("*", step) for want, step in zip(pattern, path, strict=True)
        ):
            return keys_of(section)
    return ()


# --- one explainer per error type -----------------------------------------------------------------

_Said = tuple[str, str]
_Explainer = Callable[[ErrorDetails, Path, Tree], _Said]


def _unknown_key(_: ErrorDetails, path: Path, __: Tree) -> _Said:
    key, known = str(path[-1]), section_at(path[:-1])
    where = f"in {dotted(path[:-1])}" if len(path) > 1 else "at the top level"
    return (
        f"The key {shown(key)} is not known {where}.",
        nearest(key, known) or _home_of(key) or f"Known here: {listing(known)}.",
    )


def _home_of(key: str) -> str:
    """Where a key would be known, if anywhere."""
    for pattern, section in SECTIONS.items():
        if key in keys_of(section):
            place = dotted(tuple("<name>" if step == "*" else step for step in pattern))
            return f"It belongs to {place}." if pattern else "It belongs to the top level."
    return ""


def _missing(_: ErrorDetails, path: Path, __: Tree) -> _Said:
    where = f"{dotted(path[:-1])} has" if len(path) > 1 else "The file has"
    return f"{where} no {shown(str(path[-1]))}.", f"Add {shown(f'{path[-1]}:')}."


def _choice(detail: ErrorDetails, path: Path, tree: Tree) -> _Said:
    choices = re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))
    value = tree.get(*path)
    remedy = f"Use one of {listing(choices)}."
    if not isinstance(value, str) or path in tree.substituted:
        return f"{dotted(path)} is none of its choices.", remedy
    if (str(path[-1]), value) in PLANNED:
        said = f"{shown(value)} at {dotted(path)} is not yet supported."
        return said, PLANNED[str(path[-1]), value]
    meant = MEANT.get((str(path[-1]), value.lower()), ())
    near = f"Did you mean {' or '.join(map(shown, meant))}?" if meant else nearest(value, choices)
    return f"{shown(value)} is no choice for {dotted(path)}.", f"{near} {remedy}".strip()


def _own(detail: ErrorDetails, path: Path, _: Tree) -> _Said:
    context = detail.get("ctx", {})
    return f"{dotted(path)} {context['message']}.", str(context["remedy"])


def _text(_: ErrorDetails, path: Path, tree: Tree) -> _Said:
    if isinstance(tree.get(*path), dict | list) or tree.get(*path) is None:
        return f"{dotted(path)} should be text.", "Write one value."
    return f"{dotted(path)} is read as {_kind(tree.get(*path))}, not as text.", "Put it in quotes."


def _section(_: ErrorDetails, path: Path, tree: Tree) -> _Said:
    if tree.get(*path) is None:
        return f"{dotted(path)} is empty.", "Give it its keys, or remove it."
    return (
        f"{dotted(path)} should be a mapping, and is {_kind(tree.get(*path))}.",
        "Write `key: value` lines below it, indented.",
    )


def _list(_: ErrorDetails, path: Path, tree: Tree) -> _Said:
    return (
        f"{dotted(path)} should be a list, and is {_kind(tree.get(*path))}.",
        "Write one `- item` per line below it, or `[item, item]`.",
    )


_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a mapping",
    type(None): "empty",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "something else")


def _name(_: ErrorDetails, path: Path, __: Tree) -> _Said:
    rules = {
        "models": "Use visible ASCII characters, `*` for any text and `?` for any one character.",
        "providers": "Use letters, digits, `.`, `_` and `-`, at most 64.",
        "language": "Use an ISO 639 code such as `en`.",
        "api_version": "Write it such as `2024-10-21`.",
    }
    remedy = (
        rules.get(str(path[-1]))
        or rules.get(str(path[0]))
        or ("Use visible ASCII characters, at most 256, without spaces at its ends.")
    )
    return f"{dotted(path)} is no name that can be used.", remedy


def _bound(words: str, key: str) -> _Explainer:
    """An explainer for a number out of range."""

    def told(detail: ErrorDetails, path: Path, _: Tree) -> _Said:
        limit = int(detail.get("ctx", {})[key])  # all of ours are whole
        return f"{dotted(path)} is out of range.", f"Use a number {words} {limit:,}."

    return told


def _too_few(_: ErrorDetails, path: Path, __: Tree) -> _Said:
    return f"{dotted(path)} is empty.", "Give it at least one entry."


def _too_many(detail: ErrorDetails, path: Path, _: Tree) -> _Said:
    return (
        f"{dotted(path)} is too long.",
        f"At most {detail.get('ctx', {}).get('max_length')} are taken.",
    )


def _says(message: str, remedy: str) -> _Explainer:
    """An explainer that says the same of every path."""
    return lambda _, path, __: (f"{dotted(path)} {message}.", remedy)


def _other(detail: ErrorDetails, path: Path, _: Tree) -> _Said:
    return f"{dotted(path)} is wrong ({detail['type']}).", "See docs/configuration.md."


_NUMBER = _says("should be a number", "Write a number, without quotes or a unit.")
_WHOLE = _says("should be a whole number", "Write a whole number, without quotes or a unit.")
_BOOL = _says("should be true or false", "Write `true` or `false`.")

_EXPLAINERS: Mapping[str, _Explainer] = {
    "bool_parsing": _BOOL,
    "bool_type": _BOOL,
    "config": _own,
    "dict_type": _section,
    "enum": _choice,
    "extra_forbidden": _unknown_key,
    "finite_number": _NUMBER,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": _bound("above", "gt"),
    "greater_than_equal": _bound("not below", "ge"),
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_type": _WHOLE,
    "less_than_equal": _bound("not above", "le"),
    "literal_error": _choice,
    "mapping_type": _section,
    "missing": _missing,
    "model_type": _section,
    "string_pattern_mismatch": _name,
    "string_too_long": _too_many,
    "string_type": _text,
    "string_unicode": _says("holds half a character", "Correct its escapes."),
    "too_long": _too_many,
    "too_short": _too_few,
    "tuple_type": _list,
}
