"""Where a stream goes on for a client that comes back: arithmetic on three coordinates.

*Delivered* counts everything that went to the client, *canonical* leaves the superseded ranges out,
*committed* is the part of canonical that the record holds. A client says how much of *delivered* it
has received; the record says what is committed, and which delivered ranges were superseded.

A client's own text only grows: it counts every character that has come, over all its connections,
and a stream that is resumed delivers behind that. What the record says of delivered offsets is true
up to what its writer delivered, and that need not be what the client heard (its answer was lost, or
the record has lost its newest part): `known` says how far the two agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Ranges = Sequence[tuple[int, int]]
"""Half-open ranges of delivered characters, in order, not overlapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """How a resumed stream begins.

    Args:
        start: offset in the delivered text at which the answer starts; never beyond what was
            received. A client cuts its text there, or appends and uses `superseded`.
        received: what the client has; its text is appended to from here on.
        replay: committed text that the client has not received.
        superseded: the ranges so far, in coordinates of the client's own text.
    """

    start: int
    received: int
    replay: str
    superseded: tuple[tuple[int, int], ...]


def plan_resumption(
    committed: str, superseded: Ranges, received: int, *, known: int | None = None
) -> Resumption:
    """Decide where a stream goes on.

    Args:
        committed: the committed text.
        superseded: delivered ranges that are not part of it, from the record.
        received: delivered characters that the client says it has.
        known: how many of them the record's ranges speak of, None for all. The others are replaced.

    Returns:
        The beginning of the resumed stream.
    """
    known = received if known is None else min(known, received)
    ranges = [span for span in superseded if span[0] < known]
    inside = next((span for span in ranges if known <= span[1]), None)
    # What the client has of a superseded range is worth nothing, be it a part or all: go on from
    # before it, so that a client that cuts its text there is right too.
    start = inside[0] if inside is not None else known
    settled = [span for span in ranges if span[1] <= start]
    canonical = start - sum(end - begin for begin, end in settled)
    if canonical > len(committed):
        start = delivered_at(len(committed), settled)
        settled = [span for span in settled if span[1] <= start]
        canonical = len(committed)
    replaced = [(start, received)] if received > start else []
    return Resumption(
        start=start,
        received=received,
        replay=committed[canonical:],
        superseded=(*settled, *replaced),
    )


def delivered_at(chars: int, superseded: Ranges) -> int:
    """Where the end of so many canonical characters stands in the delivered text.

    Args:
        chars: canonical characters.
        superseded: delivered ranges that are no part of them, in order.
    """
    for begin, end in superseded:
        if chars > begin:
            chars += end - begin
    return chars
