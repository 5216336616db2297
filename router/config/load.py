"""A file to a `Config`, or to everything that is wrong with it.

Three steps: `source.py` reads, `schema.py` validates (told by `explain.py`), `rules.py` checks what
concerns several keys. All problems of all steps are reported in one go, in the order of the lines.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from router.config.explain import explain
from router.config.problem import Problem, Unreadable
from router.config.rules import Surroundings, check
from router.config.schema import Config, is_host
from router.config.source import MAX_FILE_BYTES, Tree, read_tree
from router.errors import ConfigError, ConfigErrors

MAX_PROBLEMS = 100
"""Bound on a report: whoever reads further has mended some first."""


def load_config(
    path: Path, env: Mapping[str, str], *, host: str | None = None, port: int | None = None
) -> Config:
    """Read a configuration file.

    Args:
        path: the file.
        env: variables for `${VAR}`, usually `os.environ`.
        host: goes before `server.host`, and is checked as that would be.
        port: goes before `server.port`.

    Returns:
        The configuration, ready to be built.

    Raises:
        ConfigError: it cannot be used; its `problems` are all that is wrong.
    """
    if host is not None and not is_host(host):
        raise ConfigError(
            "`--host` is no host name and no address.",
            file=str(path),
            line=None,
            remedy="Write the address alone, such as `127.0.0.1` or `::1`.",
        )
    around = Surroundings(
        host=host, fast_sentences=importlib.util.find_spec("sentencex") is not None
    )
    config = parse_config(_read(path), str(path), env, around=around)
    own = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    return config.model_copy(update={"server": config.server.model_copy(update=own)})


def parse_config(
    text: str, file: str, env: Mapping[str, str], *, around: Surroundings | None = None
) -> Config:
    """Make a configuration from a file's text. Pure.

    Args:
        text: YAML.
        file: the file's name, for messages.
        env: variables for `${VAR}`.
        around: what else the rules must know.

    Raises:
        ConfigError: it cannot be used; its `problems` are all that is wrong.
    """
    try:
        tree = read_tree(text, env)
    except Unreadable as unreadable:
        found: Iterable[Problem] = [unreadable.problem]
        config = None
    else:
        config, found = _validate(_without_extensions(tree), around or Surroundings())
    problems = sorted(found, key=lambda problem: problem.line or 0)[:MAX_PROBLEMS]
    if config is None or problems:  # raised out here: no context that holds the values
        raise ConfigErrors([_error(problem, file) for problem in problems])
    return config


def _error(problem: Problem, file: str) -> ConfigError:
    return ConfigError(problem.message, file=file, line=problem.line, remedy=problem.remedy)


def _validate(tree: Tree, around: Surroundings) -> tuple[Config | None, list[Problem]]:
    """The configuration, if it has the right shape, and every problem of every step."""
    problems = list(tree.problems)
    if not isinstance(tree.data, dict):
        remedy = "Give it at least `providers` and `routes`."
        return None, [*problems, Problem(1, "The file is no mapping.", remedy)]
    config = None
    try:
        config = Config.model_validate(tree.data)
    except ValidationError as error:
        problems += explain(error, tree)
    return config, [*problems, *check(tree, around)]


def _without_extensions(tree: Tree) -> Tree:
    """Top-level `x-…` keys are the user's own: a place for anchors."""
    if isinstance(tree.data, dict):
        for key in [key for key in tree.data if key.startswith("x-")]:
            del tree.data[key]
    return tree


def _read(path: Path) -> str:
    """The file's text, bounded."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"The file cannot be read: {error.strerror or type(error).__name__}.",
            file=str(path),
            line=None,
            remedy="Give the path of a readable YAML file.",
        ) from error
    try:
        # A cut at the bound may split a character; the length is complained of either way.
        return data.decode(
            "utf-8-sig", errors="strict" if len(data) <= MAX_FILE_BYTES else "replace"
        )
    except UnicodeDecodeError as error:
        raise ConfigError(
            "The file is not UTF-8.",
            file=str(path),
            line=data.count(b"\n", 0, error.start) + 1,
            remedy="Save it as UTF-8.",
        ) from None
