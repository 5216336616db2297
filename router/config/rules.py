"""What must hold between keys, checked on the raw data.

On the raw data, because a file with a wrong type in one corner should hear of its other mistakes in
the same run. Each rule passes over what is not of the shape that it reads: saying so is the
schema's business.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import get_args

from router.config.checks import ENTRY_POINTS, CheckUnusable, load_check
from router.config.explain import dotted, listing, nearest
from router.config.problem import Problem, shown
from router.config.schema import (
    CHECK_NAME,
    FIELD_STYLES,
    KNOWS_THINKING,
    NEEDS_BASE_URL,
    OTHER_FORMATS,
    Health,
    ProviderType,
    Route,
    is_host,
)
from router.config.source import Path, Tree
from router.core.continuation import Style

PYSBD_LANGUAGES: frozenset[str] = frozenset(
    "am ar bg da de el en es fa fr hi hy it ja kk mr my nl pl ru sk ur zh".split()  # noqa: SIM905 - one line reads better than 23
)
"""Languages that `sentences: pysbd` knows."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the rules must know beside the file.

    Args:
        host: address from the command line, which goes before the file's, or None.
        fast_sentences: the extra `fast-sentences` is installed.
    """

    host: str | None = None
    fast_sentences: bool = True


def check(tree: Tree, around: Surroundings) -> Iterator[Problem]:
    """Every rule that is broken."""
    for rule in _RULES:
        yield from rule(tree, around)


def is_loopback(host: str) -> bool:
    """Only this machine can reach a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _says(tree: Tree, path: Path, message: str, remedy: str) -> Problem:
    return Problem(tree.line(path), message, remedy)


# --- server ---------------------------------------------------------------------------------------


def _exposed(tree: Tree, around: Surroundings) -> Iterator[Problem]:
    """Without keys the router listens on loopback only: it spends its owner's money."""
    path = ("server", "host")
    overridden = around.host is not None
    host = around.host if overridden else tree.get(*path)
    keys = tree.get("server", "api_keys")
    if not isinstance(host, str) or not is_host(host) or is_loopback(host):
        return
    if keys not in (None, []):
        return
    where = "`--host`" if overridden else "`server.host`"
    yield Problem(
        None if overridden else tree.line(path),
        f"{where} lets other machines in, and `server.api_keys` is empty.",
        'Add `api_keys: ["${ROUTER_API_KEY}"]` to `server`, or listen on 127.0.0.1.',
    )


def _cool_downs(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    default = Health()
    first = _number(tree, ("health", "cool_down_s"), default.cool_down_s)
    longest = _number(tree, ("health", "max_cool_down_s"), default.max_cool_down_s)
    if first is not None and longest is not None and first > longest:
        yield _says(
            tree,
            ("health", "cool_down_s"),
            "`health.cool_down_s` is longer than `health.max_cool_down_s`.",
            "Make the first one the shorter.",
        )


# --- record ---------------------------------------------------------------------------------------


def _one_list_of_keys(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    several = ("record", "encryption_keys")
    if tree.get("record", "encryption_key") and tree.get(*several):
        yield _says(
            tree,
            several,
            "`record` has both `encryption_key` and `encryption_keys`.",
            "Put the one key first in `encryption_keys`: the first encrypts, each decrypts.",
        )


def _certificate_pairs(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if tree.get("record", one) and not tree.get("record", other):
            yield _says(
                tree,
                ("record", one),
                f"`record.{one}` is of no use without `{other}`.",
                f"Add `{other}:`, or remove it.",
            )


def _nothing_to_retain(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    path = ("record", "retain_s")
    if tree.get("record", "retain") == "none" and _number(tree, path, 0):
        yield _says(
            tree,
            path,
            "`record.retain_s` says how long text is kept, and `record.retain` is `none`.",
            "Remove one of the two.",
        )


# --- providers ------------------------------------------------------------------------------------


_EXAMPLE = "http://host:8000/v1"
_EXAMPLES = {"azure-openai": "https://<resource>.openai.azure.com"}
"""Of an address, by the type."""


def _addresses(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    for name in tree.keys("providers"):
        path = ("providers", name)
        kind = _type_of(tree, name)
        base_url = (*path, "base_url")
        if kind is None or kind not in NEEDS_BASE_URL or base_url in tree.unset:
            continue
        if tree.get(*base_url) is None:
            yield _says(
                tree,
                path,
                f"{dotted(path)} has no `base_url`, and the type {shown(kind)} has no default.",
                f"Add `base_url:`, such as {shown(_EXAMPLES.get(kind, _EXAMPLE))}.",
            )


def _azure_only(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    for name in tree.keys("providers"):
        path = ("providers", name)
        kind = tree.get(*path, "type")
        if "api_version" in tree.keys(*path) and kind not in (None, "azure-openai"):
            yield _says(
                tree,
                (*path, "api_version"),
                f"{dotted(path)} has an `api_version`, which is for the type `azure-openai` only.",
                "Remove it.",
            )


# --- routes ---------------------------------------------------------------------------------------


def _targets(tree: Tree) -> Iterator[tuple[str, Path]]:
    """Each route's name with the path of each of its targets."""
    for route in tree.keys("routes"):
        for index in tree.indexes("routes", route, "targets"):
            yield route, ("routes", route, "targets", index)


def _providers_exist(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    defined = tree.keys("providers")
    for _route, target in _targets(tree):
        path = (*target, "provider")
        name = tree.get(*path)
        if not isinstance(name, str) or name in defined:
            continue
        word = "its provider" if path in tree.substituted else shown(name)
        near = "" if path in tree.substituted else nearest(name, defined)
        known = f"Defined: {listing(defined)}." if defined else "None is defined."
        yield _says(
            tree,
            path,
            f"{dotted(target)} names {word}, which `providers` does not define.",
            f"{near} {known}".strip(),
        )


def _continuations(tree: Tree) -> Iterator[tuple[Path, str | None]]:
    """The path of everything that is said about continuation, with the type that it is said of."""
    for _route, target in _targets(tree):
        yield (*target, "continuation"), _type_of(tree, tree.get(*target, "provider"))
    for name in tree.keys("providers"):
        for index in tree.indexes("providers", name, "continuation_rules"):
            yield ("providers", name, "continuation_rules", index), _type_of(tree, name)


def _thinking(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    """`true` means the family's own way, which must be known."""
    for place, kind in _continuations(tree):
        path = (*place, "disable_thinking")
        if tree.get(*path) is True and kind is not None and kind not in KNOWS_THINKING:
            yield _says(
                tree,
                path,
                f"{dotted(path)} is `true`, and how the type {shown(kind)} switches thinking off "
                "is not known.",
                "Give the fields that do it, such as `{reasoning_effort: none}`.",
            )


def _styles(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    """Some styles are fields of chat completions, which not every type speaks."""
    for place, kind in _continuations(tree):
        path = (*place, "style")
        style = tree.get(*path)
        if kind in OTHER_FORMATS and isinstance(style, str) and style in FIELD_STYLES:
            yield _says(
                tree,
                path,
                f"{dotted(path)} is a field of chat completions, which the type {shown(kind)} does "
                "not speak.",
                f"Use one of {listing(style for style in Style if style not in FIELD_STYLES)}.",
            )


def _silent_rules(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    """A rule that says nothing is a forgotten key, and hides the rules behind it."""
    for name in tree.keys("providers"):
        for index in tree.indexes("providers", name, "continuation_rules"):
            path = ("providers", name, "continuation_rules", index)
            if set(tree.keys(*path)) == {"models"}:
                yield _says(
                    tree,
                    path,
                    f"{dotted(path)} names models and says nothing about them.",
                    "Add `style:`, such as `style: instruct`.",
                )


def _type_of(tree: Tree, provider: object) -> str | None:
    """The type of a provider, if it is one that exists, and so may be quoted."""
    kind = tree.get("providers", provider, "type") if isinstance(provider, str) else None
    return kind if isinstance(kind, str) and kind in get_args(ProviderType) else None


def _twins(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    """The same model at the same provider twice is no second chance."""
    seen: dict[tuple[str, str, str], Path] = {}
    for route, target in _targets(tree):
        provider, model = tree.get(*target, "provider"), tree.get(*target, "model")
        if not isinstance(provider, str) or not isinstance(model, str):
            continue
        first = seen.setdefault((route, provider, model), target)
        if first != target:
            yield _says(
                tree,
                target,
                f"{dotted(target)} is the same provider and model as {dotted(first)}.",
                "Remove one; `retry.same_target` says how often one target is asked again.",
            )


def _deadlines(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    """An attempt is not started unless its first-output limit fits the deadline."""
    for route in tree.keys("routes"):
        here = ("routes", route)
        default = Route.model_fields["timeouts"].default
        total = _number(tree, (*here, "timeouts", "total_s"), default.total_s)
        places = [here, *(path for name, path in _targets(tree) if name == route)]
        for place in places:
            path = (*place, "timeouts", "first_output_s")
            first = _number(tree, path, default.first_output_s if place == here else None)
            if first is not None and total is not None and first > total:
                yield _says(
                    tree,
                    path,
                    f"{dotted(path)} is longer than the route's `total_s`: no attempt would start.",
                    "Make `total_s` the longer one.",
                )


def _languages(tree: Tree, around: Surroundings) -> Iterator[Problem]:
    for route in tree.keys("routes"):
        path = ("routes", route)
        language, fast = tree.get(*path, "language"), tree.get(*path, "sentences") == "fast"
        if fast and not around.fast_sentences:
            yield _says(
                tree,
                (*path, "sentences"),
                f"{dotted((*path, 'sentences'))} is `fast`, and the package it needs is missing.",
                "Install `seam-router[fast-sentences]`, or use `pysbd`.",
            )
        if isinstance(language, str) and not fast and language not in PYSBD_LANGUAGES:
            yield _says(
                tree,
                (*path, "language"),
                f"{dotted((*path, 'language'))} is a language that pysbd does not know.",
                f"Use one of {listing(sorted(PYSBD_LANGUAGES))}, or add `sentences: fast`.",
            )


def _checks(tree: Tree, _: Surroundings) -> Iterator[Problem]:
    """A check is imported now: one that cannot be is a mistake of the file, not of a request."""
    for route in tree.keys("routes"):
        path = ("routes", route, "boundary_check")
        name = tree.get(*path)
        if not isinstance(name, str) or not CHECK_NAME.fullmatch(name) or path in tree.unset:
            continue
        try:
            load_check(name)
        except CheckUnusable as unusable:
            yield _says(
                tree,
                path,
                f"{dotted(path)} {unusable}.",
                "Give `module:callable` of a module that is installed or on PYTHONPATH where the "
                f"router starts, or an entry point of the group `{ENTRY_POINTS}`.",
            )


def _number(tree: Tree, path: Path, default: float | None) -> float | None:
    """The number at `path`, the default where there is nothing, None where it is something else."""
    value = tree.get(*path)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


_RULES: tuple[Callable[[Tree, Surroundings], Iterator[Problem]], ...] = (
    _exposed,
    _cool_downs,
    _one_list_of_keys,
    _certificate_pairs,
    _nothing_to_retain,
    _addresses,
    _azure_only,
    _providers_exist,
    _thinking,
    _styles,
    _silent_rules,
    _twins,
    _deadlines,
    _languages,
    _checks,
)
