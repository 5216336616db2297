"""The command's options, and its exit code."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Final, TextIO

from router.config import Config, load_config
from router.drill import show
from router.drill.judge import Mark, worst
from router.drill.question import DEFAULT_AFTER_TOKENS, DEFAULT_PROMPT, estimate, make_question
from router.drill.rounds import PairResult, drill

MAX_AFTER_TOKENS: Final = 10_000
"""Bound on `--after-tokens`: every one is paid for three times."""
MAX_PROMPT_CHARS: Final = 100_000


class _Unusable(Exception):
    """The command line does not fit the configuration."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options on a parser.

    Args:
        parser: of the command.
    """
    parser.add_argument("file", metavar="CONFIG", type=Path, help="the configuration (YAML)")
    parser.add_argument("--route", help="public model name; needed if there are several")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--target",
        type=int,
        metavar="N",
        help="kill only the route's Nth target (from 1); by default each that has one behind it",
    )
    which.add_argument("--all", action="store_true", help="every pair of targets, both ways")
    parser.add_argument("--prompt", default=DEFAULT_PROMPT, metavar="TEXT", help="what is asked")
    parser.add_argument(
        "--after-tokens",
        type=int,
        default=DEFAULT_AFTER_TOKENS,
        metavar="N",
        help=f"where the answer is cut (default {DEFAULT_AFTER_TOKENS})",
    )
    parser.add_argument("--json", action="store_true", help="results as JSON; the plan to stderr")


def run(args: argparse.Namespace) -> int:
    """Drill.

    Args:
        args: as declared by `add_arguments`; `environment` holds the variables.

    Returns:
        Exit status: 0 if nothing failed, 1 if something did, 2 if it could not start.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    config = load_config(args.file, args.environment)
    try:
        route = _route(config, args.route)
        pairs = _pairs(len(config.routes[route].targets), args.target, every=args.all)
        _check(args)
    except _Unusable as error:
        print(f"router drill: {error}", file=sys.stderr)
        return 2
    results = asyncio.run(_drill(config, route, pairs, args))
    return 1 if worst([result.mark for result in results]) is Mark.FAIL else 0


async def _drill(
    config: Config, route: str, pairs: Sequence[tuple[int, int]], args: argparse.Namespace
) -> list[PairResult]:
    targets = config.routes[route].targets
    families = [config.providers[targets[at].provider].type for pair in pairs for at in pair]
    question = make_question(args.prompt, args.after_tokens, families)
    names = [(targets[cut].name, targets[goes_on].name) for cut, goes_on in pairs]
    cost = estimate(names, args.prompt, args.after_tokens)
    _print(show.plan(names, cost, args.after_tokens), file=sys.stderr if args.json else sys.stdout)
    results = []
    async for result in drill(config, route, pairs, question, args.after_tokens):
        results.append(result)
        if not args.json:
            _print(show.told(result))
    _print([json.dumps(show.as_json(results), indent=2)] if args.json else [show.closing(results)])
    return results


def _route(config: Config, name: str | None) -> str:
    known = ", ".join(config.routes)
    if name is None and len(config.routes) > 1:
        raise _Unusable(f"Say which route, with --route: {known}.")
    route = name or next(iter(config.routes))
    if route not in config.routes:
        raise _Unusable(f"There is no route {route!r}; there are: {known}.")
    return route


def _pairs(count: int, target: int | None, *, every: bool) -> list[tuple[int, int]]:
    """Which target is killed, and which goes on: positions from 0."""
    if target is not None and not 1 <= target <= count:
        raise _Unusable(f"The route has {count} target(s), so --target is from 1 to {count}.")
    if count == 1:
        return [(0, 0)]
    if every:
        return list(permutations(range(count), 2))
    if target is not None:
        # Behind the last one, priority order begins again.
        return [(target - 1, target if target < count else 0)]
    return [(at, at + 1) for at in range(count - 1)]


def _check(args: argparse.Namespace) -> None:
    if not 1 <= args.after_tokens <= MAX_AFTER_TOKENS:
        raise _Unusable(f"--after-tokens is from 1 to {MAX_AFTER_TOKENS}.")
    if not 0 < len(args.prompt) <= MAX_PROMPT_CHARS:
        raise _Unusable(f"--prompt is a text of 1 to {MAX_PROMPT_CHARS} characters.")


def _print(lines: Iterable[str], file: TextIO | None = None) -> None:
    for line in lines:
        print(line, file=file, flush=True)
