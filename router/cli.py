"""The command line: what a person types, and the exit code that a script reads.

Exit codes: 0 done, 1 a configuration that cannot be used, 2 a wrong command line; `serve` and the
commands that live elsewhere bring their own. A command's module is imported only when that command
was asked for, so `router check` does not wait for a web server to load.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from router import __version__
from router.config import Config, Route, Target, json_schema, load_config
from router.errors import ConfigError

MAX_WORKERS = 256
"""Bound on worker processes: more than any machine has use for."""


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments after the program's name; None takes the process's own.
        env: variables for the configuration; None takes the process's own.

    Returns:
        The exit code.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(given)
    if not given:
        parser.print_help(sys.stderr)  # a list of the commands says more than that one is missing
        return 2
    args = parser.parse_args(given)
    args.environment = os.environ if env is None else env
    try:
        return int(args.handler(args))
    except ConfigError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return 1
    except _Missing as missing:
        print(f"router: {missing}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


# --- the parser -----------------------------------------------------------------------------------

_Run = Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class _Command:
    """One command.

    Args:
        help: one line.
        describe: adds its arguments to a parser of its own.
        run: does it.
    """

    help: str
    describe: Callable[[argparse.ArgumentParser], None]
    run: _Run


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """The whole parser; of the commands only the one that was asked for knows its arguments."""
    parser = argparse.ArgumentParser(
        prog="router", description="One endpoint in front of many LLM providers."
    )
    parser.add_argument("--version", action="version", version=f"router {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    asked = next((word for word in given if not word.startswith("-")), None)
    for name, command in _COMMANDS.items():
        sub = commands.add_parser(name, help=command.help, description=command.help)
        sub.set_defaults(handler=command.run)
        if name == asked:
            command.describe(sub)
    return parser


def _describe_serve(parser: argparse.ArgumentParser) -> None:
    _describe_file(parser)
    parser.add_argument("--host", help="address to listen on; goes before server.host")
    parser.add_argument("--port", type=_port, help="TCP port; goes before server.port")
    parser.add_argument("--workers", type=_workers, default=1, help="processes (default 1)")
    # A worker is started with the socket that its parent listens on.
    parser.add_argument("--fd", type=_descriptor, help=argparse.SUPPRESS)


def _describe_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="the configuration (YAML)")


def _describe_nothing(_: argparse.ArgumentParser) -> None:
    """No arguments."""


def _between(low: int, high: int) -> Callable[[str], int]:
    """A type for argparse: a whole number in a range."""

    def parse(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high:
            return int(text)
        raise argparse.ArgumentTypeError(f"should be a whole number from {low} to {high}")

    return parse


_port = _between(0, 65_535)
_workers = _between(1, MAX_WORKERS)
_descriptor = _between(0, 1 << 20)


# --- the commands ---------------------------------------------------------------------------------


def _serve(args: argparse.Namespace) -> int:
    """Listen until told to stop."""
    config = load_config(args.file, args.environment, host=args.host, port=args.port)
    from router.build import serve  # noqa: PLC0415 - it loads the server

    return serve(
        config,
        path=args.file,
        host=config.server.host,
        port=config.server.port,
        workers=args.workers,
        fd=args.fd,
    )


def _check(args: argparse.Namespace) -> int:
    """Say what the file means, or everything that is wrong with it."""
    config = load_config(args.file, args.environment)
    for line in _summary(config):
        print(line)
    return 0


def _schema(_: argparse.Namespace) -> int:
    sys.stdout.write(json_schema())
    return 0


def _summary(config: Config) -> Iterator[str]:
    """What a person wants to see of a good configuration; no secret is in it."""
    server, record = config.server, config.record
    keys = f"{len(server.api_keys)} API key(s)" if server.api_keys else "no API keys, loopback only"
    yield f"server   {server.host}:{server.port}, {keys}"
    yield f"record   {'in Redis' if record.url else 'in memory: lost with the process'}"
    for name, route in config.routes.items():
        yield f"route    {name}"
        for place, target in enumerate(route.targets, start=1):
            yield f"  {place}. {target.name} ({_how(config, route, target)})"
    yield f"ok: {len(config.providers)} provider(s), {len(config.routes)} route(s)"


def _how(config: Config, route: Route, target: Target) -> str:
    """A target's family, style and time limits in a few words."""
    from router.providers.resolve import (  # noqa: PLC0415 - only this command needs it
        configured,
        rule_for,
        rules_in,
    )

    provider = config.providers[target.provider]
    style = configured(config, target).style
    rule = rule_for(target.model, rules_in(provider))
    own = target.continuation.style or (rule.overrides.style if rule else None)
    origin = "default" if own is None else "configured"
    limits = route.timeouts_for(target)
    return (
        f"{provider.type}; continues by {style}, {origin}; "
        f"first output {limits.first_output_s:g} s, idle {limits.idle_s:g} s"
    )


# --- commands that live elsewhere -----------------------------------------------------------------


class _Missing(Exception):
    """A part of the program is not there."""


def _part(module: str, name: str) -> Any:  # noqa: ANN401 - each caller knows what it asked for
    """A function of a module that is imported now."""
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("router"):
            raise
        found = None
    if found is None:
        raise _Missing(f"this installation has no `{module}.{name}`; install seam-router anew")
    return found


def _elsewhere(help_line: str, module: str) -> _Command:
    """A command whose module has `run(args) -> int` and, if it takes arguments, `add_arguments`."""

    def describe(parser: argparse.ArgumentParser) -> None:
        try:
            _part(module, "add_arguments")(parser)
        except _Missing:
            return  # without arguments, or absent: then `run` says so

    return _Command(help_line, describe, lambda args: int(_part(module, "run")(args)))


_COMMANDS: Mapping[str, _Command] = {
    "serve": _Command("Run the router.", _describe_serve, _serve),
    "check": _Command("Read a configuration and say what is wrong.", _describe_file, _check),
    "schema": _Command("Print the configuration's JSON schema.", _describe_nothing, _schema),
    "simulate": _elsewhere(
        "Run a simulated provider: OpenAI's, Anthropic's and Gemini's formats.",
        "router.simulate.cli",
    ),
    "demo": _elsewhere("Watch an answer survive its provider.", "router.demo"),
    "drill": _elsewhere("Kill your own providers, and see what your clients get.", "router.drill"),
}
