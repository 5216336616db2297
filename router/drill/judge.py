"""What the fallback did with the prefix, and what that is worth: pure judgement.

A model cannot be asked what it did, so it is read off what came: the text before the router touched
it, beside what the client had, and beside the fallback's own answer to the original question, which
the first accident has brought. Explanations are tried in order; the first that holds is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Final

from router.core.faults import Fault, FaultKind
from router.core.splice import Outcome


class Mark(StrEnum):
    """What a finding is worth; a script reads FAIL off the exit code."""

    PASS = "PASS"  # noqa: S105 - no password
    WARN = "WARN"
    FAIL = "FAIL"


class Behaviour(StrEnum):
    """What a fallback did when it was asked to go on."""

    CONTINUED = "continued"
    """It wrote what the client had seen of the broken sentence, and went on."""
    ECHOED = "echoed"
    """It repeated the prefix, and that was removed."""
    ECHO_KEPT = "echoed into the answer"
    """It repeated the prefix, and the client got all of it twice."""
    RESTARTED = "restarted"
    """It answered the original question again, behind the committed text."""
    DIVERGED = "restarted in other words"
    """It began like the committed text and left it; the router noticed, and did not use it."""
    REPEATED = "repeated"
    """It wrote a part of the committed text again."""
    REMARKED = "answered something else"
    """It spoke about the request instead of writing on."""
    REWORDED = "reworded"
    """It went on with the broken sentence in words of its own."""
    ORIGINAL = "answered the original question"
    """Nothing was committed, so nothing could be continued."""
    EMPTY = "said nothing new"
    """It ended at once, or behind a repetition of the prefix."""
    FAILED = "failed"


class Manner(StrEnum):
    """What it took to get it there."""

    PLAIN = "plain"
    REFUSED = "refused"
    """The prefix was refused with an HTTP error, and the target was asked again in words."""


HEAD_CHARS: Final = 80
"""How much of two texts' beginnings is compared."""
ALIKE: Final = 0.75
"""Two beginnings are the same from this share of equal characters on. Unrelated English sentences
reach 0.5."""
MIN_HEAD_CHARS: Final = 20
"""Shorter beginnings prove nothing."""
REPEATED_CHARS: Final = 40
"""A run of this length that stands in the committed text already is a repetition."""

_REMARK = re.compile(
    r"\W{0,3}(?:i['’]?m sorry|i am sorry|sorry|i apologi[sz]e|apologies|"
    r"(?:it )?(?:looks|seems|appears) (?:like|that|as)|your (?:message|request|question)|"
    r"(?:could|can|would) you (?:please )?(?:clarify|provide|tell|share)|"
    r"how (?:can|may) i help|as an ai|i (?:cannot|can['’]?t) (?:continue|help|assist)|"
    r"you (?:didn['’]?t|did not|haven['’]?t) )",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinFacts:
    """What is known of a seam.

    Args:
        committed: the committed text.
        fragment: what the client had seen beyond it.
        came: the fallback's answer before the router touched it.
        afresh: its own answer to the original question, "" if not known.
        outcome: how the router explained the seam, "" if it never came to one.
        dropped: what the router removed there.
        fault: why the attempt ended badly, or None.
    """

    committed: str
    fragment: str
    came: str
    afresh: str
    outcome: str
    dropped: tuple[str, ...] = ()
    fault: Fault | None = None


def behaviour(facts: JoinFacts) -> Behaviour:
    """Name what the fallback did.

    Args:
        facts: of the seam.
    """
    return next(name for name, holds in _EXPLANATIONS if holds(facts))


def alike(one: str, other: str) -> bool:
    """Two texts begin with nearly the same words.

    Args:
        one: a text.
        other: another.
    """
    heads = [text.lstrip()[:HEAD_CHARS].casefold() for text in (one, other)]
    length = min(len(head) for head in heads)
    if length < MIN_HEAD_CHARS:
        return False
    first, second = (head[:length] for head in heads)
    return SequenceMatcher(None, first, second, autojunk=False).ratio() >= ALIKE


def _diverged(facts: JoinFacts) -> bool:
    return facts.fault is not None and facts.fault.kind is FaultKind.DIVERGED


def _empty(facts: JoinFacts) -> bool:
    """Not a word that the client does not have: some models repeat the prefix, and stop."""
    said = facts.came.strip()
    silent = facts.outcome in ("", Outcome.EMPTY) and said in facts.committed
    return silent and (facts.fault is None or facts.fault.kind is FaultKind.TRUNCATED)


def _agrees(facts: JoinFacts) -> bool:
    """White space alone agrees with everything, so it proves nothing."""
    return facts.outcome == Outcome.AGREES and bool(facts.fragment.strip())


def _echo_kept(facts: JoinFacts) -> bool:
    return facts.came.lstrip().startswith(facts.committed.lstrip())


def _restarted(facts: JoinFacts) -> bool:
    return alike(facts.came, facts.committed) or alike(facts.came, facts.afresh)


def _repeated(facts: JoinFacts) -> bool:
    head = facts.came.strip()[:REPEATED_CHARS]
    return len(head) == REPEATED_CHARS and head in facts.committed


_EXPLANATIONS: Sequence[tuple[Behaviour, Callable[[JoinFacts], bool]]] = (
    (Behaviour.DIVERGED, _diverged),
    (Behaviour.EMPTY, _empty),
    (Behaviour.FAILED, lambda facts: not facts.outcome),
    (Behaviour.ORIGINAL, lambda facts: not facts.committed.strip()),
    (Behaviour.ECHOED, lambda facts: "echo" in facts.dropped),
    (Behaviour.CONTINUED, _agrees),
    (Behaviour.ECHO_KEPT, _echo_kept),
    (Behaviour.RESTARTED, _restarted),
    (Behaviour.REPEATED, _repeated),
    (Behaviour.REMARKED, lambda facts: bool(_REMARK.match(facts.came.strip()))),
    (Behaviour.REWORDED, lambda facts: facts.outcome == Outcome.DIFFERS),
    (Behaviour.CONTINUED, lambda _: True),
)

MARKS: dict[Behaviour, Mark] = {
    Behaviour.CONTINUED: Mark.PASS,
    Behaviour.ECHOED: Mark.PASS,
    Behaviour.REWORDED: Mark.PASS,
    Behaviour.ORIGINAL: Mark.WARN,
    Behaviour.REMARKED: Mark.WARN,
    Behaviour.ECHO_KEPT: Mark.FAIL,
    Behaviour.RESTARTED: Mark.FAIL,
    Behaviour.REPEATED: Mark.FAIL,
    Behaviour.DIVERGED: Mark.FAIL,
    Behaviour.EMPTY: Mark.FAIL,
    Behaviour.FAILED: Mark.FAIL,
}
"""A refused prefix makes a PASS a WARN: it works, and costs a call at every failover."""

MEANS: dict[Behaviour, str] = {
    Behaviour.CONTINUED: "went on where the client was",
    Behaviour.ECHOED: "repeated the prefix, which the router removed, and went on",
    Behaviour.REWORDED: "went on in words of its own: the broken sentence was superseded",
    Behaviour.ORIGINAL: "was asked the original question, as no sentence was complete at the cut",
    Behaviour.REMARKED: "spoke about the request instead of writing on",
    Behaviour.ECHO_KEPT: "repeated the prefix, and the client got it twice: the router was told "
    "that this target never does",
    Behaviour.RESTARTED: "answered from the start in the middle of the answer",
    Behaviour.REPEATED: "wrote a part of the answer again that the client has already",
    Behaviour.DIVERGED: "answered from the start; the router noticed, and did not use it",
    Behaviour.EMPTY: "said nothing that the client did not have",
    Behaviour.FAILED: "did not go on",
}
"""What each behaviour is, after the target's name."""


def worst(marks: Sequence[Mark]) -> Mark:
    """The worst of some marks; PASS for none."""
    order = list(Mark)
    return max(marks, key=order.index, default=Mark.PASS)
