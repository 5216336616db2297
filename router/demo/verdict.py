"""What must hold of what the client heard, and how the metadata is printed. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.demo.client import Heard
from router.demo.stage import FALLBACK
from router.demo.story import Story

_GLUE: Final = "\u00a0"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold.

    Args:
        claim: it, in words.
        holds: whether it does.
    """

    claim: str
    holds: bool


def checks(heard: Heard, story: Story, committed_text: str) -> tuple[Check, ...]:
    """Judge one answer.

    Args:
        heard: what the client got.
        story: what the providers had to say.
        committed_text: what the record held at its last commit.

    Returns:
        What was looked at; the answer is right if all of it holds.
    """
    wanted, whose = _uncut(heard, story)
    return (
        Check(f"The answer equals {whose}", heard.canonical == wanted),
        Check(
            "It has one finish_reason and one [DONE]",
            len(heard.finishes) == 1 and heard.done == 1 and not heard.error,
        ),
        Check(
            "One id and one model from end to end, and no metadata but at the finish",
            len(heard.ids) == 1 and len(heard.metadata) <= 1 and not heard.stray_metadata,
        ),
        Check(
            "The record held a prefix of the answer",
            heard.canonical.startswith(committed_text),
        ),
    )


def _uncut(heard: Heard, story: Story) -> tuple[str, str]:
    """What the last target to speak would have said alone."""
    attempts = heard.facts.get("attempts", ())
    speaker = attempts[-1]["target"] if attempts else heard.target
    if story.other_text == story.text:
        return story.text, "the uncut one"
    if speaker == FALLBACK:
        return story.other_text, "the fallback's own, uncut"
    return story.text, "the primary's own, uncut"


def told(heard: Heard) -> Iterator[str]:
    """What happened, in sentences.

    Args:
        heard: what the client got.
    """
    attempts = heard.facts.get("attempts", ())
    failovers = heard.facts.get("failovers", ())
    superseded = heard.facts.get("superseded", ())
    if heard.error:
        yield f"The stream ended in an error: {heard.error.strip()}"
    elif not attempts:
        yield f"{heard.target} was asked first and completed its answer."
    elif not any(one["output_chars"] for one in attempts[:-1]):
        faults = ", ".join(f"{one['target']}: {one['fault']}" for one in attempts[:-1])
        yield (
            f"Nothing had been delivered yet ({faults}), so {attempts[-1]['target']} got the "
            "original request. The client noticed nothing."
        )
    else:
        yield from (_told_failover(failover) for failover in failovers)
        yield _told_superseded(superseded)
        yield from _told_pause(failovers, attempts)


def _told_superseded(superseded: Any) -> str:  # noqa: ANN401 - JSON
    if not superseded:
        return "Nothing was delivered twice, and nothing was taken back."
    chars = sum(end - start for start, end in superseded)
    ranges = ", ".join(f"[{start}, {end})" for start, end in superseded)
    return f"{chars} delivered characters are superseded: {ranges}."


def _told_failover(failover: Mapping[str, Any]) -> str:
    committed = failover["committed_chars"]
    if not committed:
        how = f"{failover['to']} got the original request, for nothing was committed yet"
    else:
        how = (
            f"{failover['to']} got the {committed} committed characters as a prefix "
            f"({failover['style']})"
        )
    return f"{failover['from']} failed ({failover['fault']}); {how}."


def _told_pause(failovers: Any, attempts: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    if len(failovers) != 1 or failovers[0]["pause_ms"] is None:
        return
    pause, own = failovers[0]["pause_ms"], attempts[-1]["first_output_ms"]
    yield (
        f"The client waited {pause:.0f} ms; the fallback's own first token took {own:.0f} ms of it."
    )


def pretty(metadata: Mapping[str, Any], columns: int) -> Iterator[str]:
    """Print the `router` object in few lines: each entry of a list begins one.

    Args:
        metadata: the object.
        columns: longest line.
    """
    yield '"router": {'
    last = len(metadata) - 1
    for at, (name, value) in enumerate(metadata.items()):
        comma = "," if at < last else ""
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield f'  "{name}": ['
            for number, entry in enumerate(value, start=1):
                end = "," if number < len(value) else f"]{comma}"
                yield from _wrapped(json.dumps(entry, ensure_ascii=False) + end, columns, "    ")
        else:
            text = json.dumps(value, ensure_ascii=False)
            yield from _wrapped(f'"{name}": {text}{comma}', columns, "  ")
    yield "}"


def _wrapped(text: str, columns: int, indent: str) -> Iterator[str]:
    glued = text.replace(": ", f":{_GLUE}")
    for line in textwrap.wrap(
        glued,
        columns,
        initial_indent=indent,
        subsequent_indent=indent + " ",
        break_on_hyphens=False,
        break_long_words=False,
    ):
        yield line.replace(_GLUE, " ")
