"""The demo from its first line to its last: two acts, each with its picture and its judgement."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from router.demo.client import Heard, listen_to
from router.demo.play import Ink, Piece, Play
from router.demo.screen import Log, Screen, Terminal
from router.demo.stage import MODEL, Stage, Tempo, running_stage
from router.demo.story import QUESTION, Story
from router.demo.verdict import checks, pretty, told
from router.engine.observe import Detail
from router.simulate import FaultSpec

FRAME_S: Final = 0.04
"""Time between two pictures."""

_MORE: Final = (
    "More: --fault stall, rst, error, malformed, status=503 … and --seed 7, --text FILE "
    '(`make demo ARGS="--fault stall"`).'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One answer that survives.

    Args:
        title: what there is to see.
        story: what the providers say.
        fault: what happens to the primary.
    """

    title: str
    story: Story
    fault: FaultSpec


class _Relay:
    """The router's observer: passes what it is told to the play that is on."""

    def __init__(self) -> None:
        self.play: Play | None = None

    def __call__(self, detail: Detail) -> None:
        if self.play is not None:
            self.play.observe(detail)


async def perform(acts: Sequence[Act], tempo: Tempo, screen: Terminal | Log) -> bool:
    """Show all acts.

    Args:
        acts: in order.
        tempo: how fast the providers are.
        screen: where to.

    Returns:
        Whether every answer was right.

    Raises:
        OSError: no socket can be had.
    """
    relay = _Relay()
    right = True
    async with running_stage(tempo, relay) as stage:
        with screen:
            _overture(screen, stage, tempo)
            for number, act in enumerate(acts, start=1):
                screen.line()
                _paragraph(screen, f"Act {number}: {act.title}", "title")
                screen.line()
                relay.play = play = Play()
                heard = await _act(act, stage, screen, play)
                right &= _judge(screen, heard, act.story, play)
            screen.line()
            _paragraph(screen, _MORE, "quiet")
    return right


def _overture(screen: Screen, stage: Stage, tempo: Tempo) -> None:
    late = tempo.fallback_first_token_s
    waits = f", first token after {1000 * late:.0f} ms" if late else ""
    screen.line()
    _paragraph(
        screen,
        "A client asks a router. The answer streams from the primary, which fails in mid-sentence; "
        "the fallback goes on. Simulated providers, real sockets.",
    )
    screen.line()
    for name, where in (
        ("router", stage.base_url),
        ("primary", stage.primary.base_url),
        ("fallback", stage.fallback.base_url + waits),
    ):
        _paragraph(screen, f"{name:<9} {where}", "quiet")
    screen.line()
    screen.flow(screen.legend)


async def _act(act: Act, stage: Stage, screen: Screen, play: Play) -> Heard:
    stage.set(act.story, act.fault)
    screen.begin()
    painter = asyncio.create_task(_paint(screen, play))
    try:
        heard = await listen_to(stage.base_url, MODEL, QUESTION, play.text)
    finally:
        painter.cancel()
        await asyncio.wait({painter})
    if not painter.cancelled():
        painter.result()  # raises what ended it
    screen.end(play.pieces())
    return heard


async def _paint(screen: Screen, play: Play) -> None:
    while True:
        screen.frame(play.pieces(), _status(play))
        await asyncio.sleep(FRAME_S)


def _status(play: Play) -> str:
    counts = f"{len(play.committed_text):4} committed  {play.pending_chars:4} pending"
    if play.fault is not None:
        return f"✗ {play.fault.kind.value} → {play.target}  {counts}"
    return f"● {play.target or 'asking'}  {counts}"


def _judge(screen: Screen, heard: Heard, story: Story, play: Play) -> bool:
    screen.line()
    if heard.metadata:
        _paragraph(screen, "On the chunk with the finish_reason, and on no other:", "quiet")
        for line in pretty(heard.facts, screen.columns):
            screen.line(line, "quiet")
        screen.line()
    found = checks(heard, story, play.committed_text)
    _paragraph(screen, " ".join(told(heard)))
    for check in found:
        answer = "yes" if check.holds else "NO"
        _paragraph(screen, f"{check.claim}: {answer}.", "good" if check.holds else "bad")
    return all(check.holds for check in found)


def _paragraph(screen: Screen, text: str, style: str = "") -> None:
    if style:
        for line in textwrap.wrap(text, screen.columns):
            screen.line(line, style)
    else:
        screen.flow([Piece(text, Ink.COMMITTED)])
