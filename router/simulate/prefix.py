"""Continuing a prefix: where it ends in what there is to say, and what a provider then does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from router.core.continuation import Style

PREAMBLE: Final = "Sure, here is the rest:\n"
_QUOTED_TAIL = 12  # characters of the tail by which a nudge is known as one
_NUDGE = re.compile(r"continu|interrupt|left off|the rest", re.IGNORECASE)
_FENCE = re.compile(r"^[ ]{0,3}(```+|~~~+)([^\n`]*)$", re.MULTILINE)
_LAST_SENTENCE = re.compile(r"[^.?!…。！？\n]*[.?!…。！？]?[\"”“»」)]*\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """What a request asks to be continued.

    Args:
        text: the assistant's text so far, not empty.
        style: how the request says so.
        nudge: under `instruct`, the user message after it.
    """

    text: str
    style: Style
    nudge: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of a request, as far as a prefix is concerned.

    Args:
        role: who; `other` for system messages and for the results of tools.
        text: joined, may be empty.
    """

    role: Literal["assistant", "user", "other"]
    text: str


def asked_prefix(said: Sequence[Said], style: Style = Style.ASSISTANT_TAIL) -> Prefix | None:
    """What a request asks to be continued, in whatever format it came.

    Args:
        said: its messages, at least one.
        style: how a trailing assistant message says so.

    Returns:
        The text of a trailing assistant message, or of one with a nudge after it; None if there is
        no such text.
    """
    last = said[-1]
    if last.role == "assistant":
        return Prefix(text=last.text, style=style) if last.text else None
    before = said[-2] if len(said) > 1 else None
    if last.role == "user" and before is not None and before.role == "assistant" and before.text:
        return Prefix(text=before.text, style=Style.INSTRUCT, nudge=last.text)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a prefix ends.

    Args:
        rest: all that follows it, white space included.
        in_other: the prefix had left the canonical text for the other wording.
    """

    rest: str
    in_other: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """A prefix and its place, as a behaviour sees them.

    Args:
        prefix: the assistant's text so far.
        place: where it ends.
        whole: the canonical text.
        other: the other wording.
    """

    prefix: str
    place: Place
    whole: str
    other: str


def locate(prefix: str, text: str, other: str) -> Place | None:
    """Find the end of a prefix in the canonical text, or in the other wording that took over.

    Args:
        prefix: not empty.
        text: the canonical text.
        other: the wording that `differ` goes on with, after any cut and any white space.

    Returns:
        The place, or None if the prefix is of neither.
    """
    if text.startswith(prefix):
        return Place(rest=text[len(prefix) :])
    agreed = _agreed(prefix, text)
    for cut in range(agreed, -1, -1):  # the two wordings may begin alike: the cut may lie earlier
        tail = prefix[cut:].lstrip()
        if tail and other.startswith(tail):
            return Place(rest=other[len(tail) :], in_other=True)
        if len(tail) > len(other):
            break
    return None


def _agreed(one: str, other: str) -> int:
    """How many characters two texts have in common at their start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def wants_rest(prefix: Prefix, text: str, other: str) -> bool:
    """Whether a request asks for the rest of `prefix`, or is an ordinary next question.

    An assistant tail always does. Under `instruct` the pair looks like any conversation, so the
    assistant's text must be ours, and if it is already whole the user must speak of going on.
    """
    if prefix.style is not Style.INSTRUCT:
        return True
    place = locate(prefix.text, text, other)
    if place is None:
        return False
    return bool(place.rest) or _is_nudge(prefix)


def _is_nudge(prefix: Prefix) -> bool:
    tail = prefix.text[-_QUOTED_TAIL:]
    quoted = (json.dumps(tail, ensure_ascii=ascii_)[1:-1] for ascii_ in (False, True))
    return bool(_NUDGE.search(prefix.nudge)) or any(form in prefix.nudge for form in quoted)


def _differ(resume: Resume) -> str:
    rest = resume.place.rest
    if resume.place.in_other or not rest:
        return rest
    gap = rest[: len(rest) - len(rest.lstrip())]
    return gap + resume.other


def _echo_tail(resume: Resume) -> str:
    last = _LAST_SENTENCE.search(resume.prefix)
    return (last.group() if last else "") + resume.place.rest


def _refence(resume: Resume) -> str:
    fences = _FENCE.findall(resume.prefix)
    if len(fences) % 2 == 0:
        return resume.place.rest
    return "".join(fences[-1]) + "\n" + resume.place.rest.removeprefix("\n")


BEHAVIOURS: Final[Mapping[str, Callable[[Resume], str]]] = {
    "continue": lambda resume: resume.place.rest,
    "strip": lambda resume: resume.place.rest.lstrip(),
    "echo": lambda resume: resume.prefix + resume.place.rest,
    "echo_tail": _echo_tail,
    "afresh": lambda resume: resume.whole,
    "differ": _differ,
    "preamble": lambda resume: PREAMBLE + resume.place.rest,
    "preamble_stripped": lambda resume: PREAMBLE + resume.place.rest.lstrip(),
    "refence": _refence,
    "empty": lambda _resume: "",
}
"""What a provider does with a prefix that it has found; one that it has not is answered afresh."""
