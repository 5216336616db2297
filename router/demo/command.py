"""The options of `router demo`, and what its exit code says."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import logging.handlers
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from router.demo.screen import make_screen
from router.demo.show import Act, perform
from router.demo.stage import FAST, WATCHABLE
from router.demo.story import MAX_TEXT_BYTES, Story, agreeing, differing
from router.simulate import FaultSpec, Misdeed, parse_fault, seeded_text
from router.simulate.misdeeds import MIDST

SEEDED_CHARS: Final = 1_200
SEEDED_KINDS: Final = ("dialogue", "code", "german", "prose")
EXIT_RIGHT, EXIT_WRONG, EXIT_UNUSABLE = 0, 1, 2
EXIT_TERMINATED: Final = 143
MAX_HELD_LOGS: Final = 100
"""Bound on log records that wait for the end of the show."""
_NEVER: Final = logging.CRITICAL + 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options on a parser."""
    text = parser.add_mutually_exclusive_group()
    text.add_argument("--text", type=Path, metavar="FILE", help="the answer, from a UTF-8 file")
    text.add_argument("--seed", help="a made-up answer, with dialogue, code and German")
    parser.add_argument(
        "--fault",
        type=_fault,
        default="cut",
        metavar="SPEC",
        help="how the primary fails: cut (the default), rst, stall, error, malformed, no_finish, "
        "status=503, refuse …; @N says after how many tokens",
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="no colours, nothing redrawn; the default where the output is no terminal",
    )
    parser.add_argument("--fast", action="store_true", help="as fast as it goes")


def run(args: argparse.Namespace) -> int:
    """Show the demo.

    Args:
        args: as declared by `add_arguments`.

    Returns:
        0 if every answer was right, 1 if one was not, 2 if it could not start.
    """
    try:
        acts = _acts(args)
        screen = make_screen(sys.stdout, os.environ, plain=args.plain)
        show = perform(acts, FAST if args.fast else WATCHABLE, screen)
        with _logs_held():
            return EXIT_RIGHT if asyncio.run(_until_terminated(show)) else EXIT_WRONG
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_WRONG
    except (OSError, ValueError) as error:
        print(f"router demo: {error}", file=sys.stderr)
        return EXIT_UNUSABLE
    except asyncio.CancelledError:
        return EXIT_TERMINATED


@contextlib.contextmanager
def _logs_held() -> Iterator[None]:
    """What is logged meanwhile would stand in the middle of the picture: it comes afterwards."""
    stderr = logging.StreamHandler()
    held = logging.handlers.MemoryHandler(MAX_HELD_LOGS, flushLevel=_NEVER, target=stderr)
    held.setLevel(logging.WARNING)
    root = logging.getLogger()
    root.addHandler(held)
    try:
        yield
    finally:
        root.removeHandler(held)
        held.close()


async def _until_terminated(show: Coroutine[Any, Any, bool]) -> bool:
    """SIGTERM ends it as Ctrl-C does: sockets are closed, the cursor is given back."""
    task = asyncio.ensure_future(show)
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # a platform without signals
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def _acts(args: argparse.Namespace) -> tuple[Act, ...]:
    """What will be shown.

    Raises:
        OSError: the text file cannot be read.
        ValueError: it is no text for this.
    """
    text = _text(args)
    fault: FaultSpec = args.fault
    first, second = agreeing(text, fault.at), differing(text, fault.at)
    return (
        Act(
            title="the fallback agrees, and the join is invisible",
            story=first,
            fault=_placed(fault, first),
        ),
        Act(
            title="the fallback words the sentence differently",
            story=second,
            fault=_placed(fault, second),
        ),
    )


def _text(args: argparse.Namespace) -> str | None:
    if args.seed is not None:
        return seeded_text(args.seed, SEEDED_CHARS, kinds=SEEDED_KINDS)
    if args.text is None:
        return None
    path: Path = args.text
    with path.open("rb") as file:
        data = file.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise ValueError(f"{path} is longer than {MAX_TEXT_BYTES} bytes; take a shorter text.")
    text = data.decode("utf-8-sig").replace("\r\n", "\n").strip()
    if not text:
        raise ValueError(f"{path} holds no text.")
    return text


def _placed(fault: FaultSpec, story: Story) -> FaultSpec:
    """The fault in mid-sentence, if it is one that has a place and was given none."""
    if fault.kind in MIDST and fault.at is None:
        return replace(fault, at=story.cut_tokens)
    return fault


def _fault(text: str) -> FaultSpec:
    try:
        fault = parse_fault(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if fault.kind is Misdeed.CUT_BYTE:
        # Its N are bytes of the body: the demo could not know which sentence to reword.
        raise argparse.ArgumentTypeError("cut_byte counts bytes; write cut@N, which counts tokens")
    return fault
