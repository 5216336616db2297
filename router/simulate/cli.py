"""`router simulate`: the simulated provider from the command line."""

from __future__ import annotations

import argparse
import asyncio
import errno
import signal
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TypeVar

from router.simulate.answer import DEFAULT_CHARS, REFUSALS, Conduct, Script
from router.simulate.casting import DEFAULT_MODEL
from router.simulate.dialect import Dialect, parse_dialect
from router.simulate.faults import Directives, parse_directives
from router.simulate.prefix import BEHAVIOURS
from router.simulate.scene import Pace
from router.simulate.server import SimulatedProvider
from router.simulate.text import KINDS, seeded_text

T = TypeVar("T")
N = TypeVar("N", int, float)

DEFAULT_PORT = 9001
MAX_PORT = 65_535
_BEHAVIOURS = ("refuse", *BEHAVIOURS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options on a parser."""
    where = parser.add_argument_group("where")
    where.add_argument("--host", default="127.0.0.1")
    where.add_argument("--api-key", metavar="KEY", help="wanted of every request; any will do else")
    where.add_argument(
        "--port", type=_number(int, 0, MAX_PORT), default=DEFAULT_PORT, help="0 takes a free one"
    )
    _add_answer(parser.add_argument_group("what it says"))
    _add_manner(parser.add_argument_group("how it says it"))
    fails = parser.add_argument_group("how it fails")
    fails.add_argument(
        "--fault",
        type=_read(parse_directives),
        metavar="SPEC",
        help="for every request, such as cut@40, stall@30,for_s=10 or status=429,retry_after=2; "
        "call (calls the first tool that is offered); several with ; between them",
    )
    fails.add_argument(
        "--script",
        type=_read(parse_directives),
        metavar="SPEC",
        nargs="+",
        help="one fault per request in turn, - for none; healthy after the last",
    )


def _add_answer(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--text", type=Path, metavar="FILE", help="the answer, from a UTF-8 file")
    group.add_argument("--seed", default="0", help="of the made-up answer")
    group.add_argument("--chars", type=_number(int, 1), default=DEFAULT_CHARS, help="its length")
    group.add_argument(
        "--kinds",
        default=",".join(KINDS),
        help="its kinds of paragraph, of these: %(default)s, japanese",
    )
    group.add_argument("--reasoning", default="", metavar="TEXT", help="said before the answer")
    group.add_argument("--model", default=DEFAULT_MODEL, help="the name it reports")


def _add_manner(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--tokens-per-s", type=_number(float, 0), default=None)
    group.add_argument("--first-token-ms", type=_number(float, 0), default=0.0)
    group.add_argument(
        "--prefix",
        choices=_BEHAVIOURS,
        default="continue",
        help="what it does with an assistant prefix",
    )
    group.add_argument(
        "--instruct",
        choices=_BEHAVIOURS,
        default=None,
        help="what it does with a prefix and a nudge after it",
    )
    group.add_argument(
        "--refusal",
        default="",
        help="wording of a refused prefix, where it is not the format's own: "
        f"{', '.join(REFUSALS)}, or any text",
    )
    group.add_argument(
        "--behave",
        type=_read(parse_dialect),
        default=Dialect(),
        metavar="SHAPES",
        help="quirks of the stream, such as crlf,no_space,tokens_per_chunk=4,usage_every_chunk",
    )
    group.add_argument(
        "--write-bytes", type=_number(int, 1), default=None, help="split the body so small"
    )


def _read(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Argparse keeps only the message of its own error."""

    def read(value: str) -> T:
        try:
            return parse(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _number(kind: Callable[[str], N], least: int, most: float = inf) -> Callable[[str], N]:
    """A number of the kind, within bounds."""

    def read(value: str) -> N:
        try:
            number = kind(value)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{value!r} is no number") from None
        if not least <= number <= most:
            bounds = f"below {least}" if number < least else f"not within {least} and {most}"
            raise argparse.ArgumentTypeError(f"{value} is {bounds}")
        return number

    return read


def build(args: argparse.Namespace) -> SimulatedProvider:
    """The provider that the options describe.

    Raises:
        OSError: the text file cannot be read.
        ValueError: it is not UTF-8, or a kind of paragraph does not exist.
    """
    kinds = tuple(args.kinds.split(","))
    text = (
        args.text.read_text("utf-8")
        if args.text
        else seeded_text(args.seed, args.chars, kinds=kinds)
    )
    faults: Directives | list[Directives] | None = args.script or args.fault
    return SimulatedProvider(
        script=Script(text=text, reasoning=args.reasoning),
        conduct=Conduct(prefix=args.prefix, instruct=args.instruct, refusal=args.refusal),
        pace=Pace(tokens_per_s=args.tokens_per_s, first_token_delay_s=args.first_token_ms / 1000),
        dialect=args.behave,
        faults=faults,
        model=args.model,
        api_key=args.api_key,
        host=args.host,
        port=args.port,
        write_bytes=args.write_bytes,
    )


def run(args: argparse.Namespace) -> int:
    """Run until interrupted.

    Args:
        args: as declared by `add_arguments`.

    Returns:
        Exit status: 0 after an interrupt, 2 if it could not start.
    """
    try:
        return asyncio.run(_serve(build(args)))
    except (OSError, ValueError) as error:
        print(f"router simulate: {_why(error, args)}", file=sys.stderr)
        return 2


def _why(error: Exception, args: argparse.Namespace) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return (
            f"the port {args.port} of {args.host} is in use; stop what listens there, or choose "
            "another with --port (0 takes a free one)."
        )
    return str(error)


async def _serve(provider: SimulatedProvider) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with provider:
        print(
            f"Simulated provider listens at {provider.base_url} "
            "(formats of OpenAI, Anthropic and Gemini; Ctrl-C ends it)",
            flush=True,
        )
        await stop.wait()
    return 0
