"""The splice: joining a continuation to what the client already has.

The client has *committed* + *fragment*. The continuation was asked to go on after *committed*, so
a good one begins with the fragment. Real ones also repeat the prefix, or its last sentence, start
with "Sure, here is the rest:", open the code fence again, lose the white space, or word things
differently.

`Splice` holds the continuation back only until exactly one explanation is left, then gives one
`Join`. Explanations are tried in a fixed order, and each is *yes*, *no* or *not yet decided* for
the text seen so far; the first that is not *no* counts. Since a *yes* and a *no* are never taken
back by later text, the result does not depend on how the text was split into chunks.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

from router.core.continuation import Echo

ECHO_WINDOW_CHARS = 400
"""A continuation may repeat the end of the prefix; further back than this only a repetition from
the very beginning is looked for. Also the bound on what is held back for it."""

MIN_ECHO_CHARS = 12
"""A repetition of the prefix's end must be this long to be taken for one: shorter runs ("Ha!")
occur in honest text."""

DIVERGED_CHARS = 80
"""A continuation that repeats this much of the prefix from its beginning and then departs from it
wrote the answer afresh in other words: to append it would double the answer."""

MAX_PREAMBLE_CHARS = 160
"""Longest preamble that is recognised, and so the bound on what is held back for one."""

MAX_BLANK_CHARS = 400
"""Bound on white space that is held back at the start of a continuation until words come."""

_OPENERS = (
    "sure",
    "certainly",
    "of course",
    "okay",
    "ok,",
    "absolutely",
    "understood",
    "got it",
    "here is",
    "here's",
    "here’s",
    "continuing",
    "picking up",
    "resuming",
    "i'll continue",
    "i’ll continue",
    "i will continue",
    "let me continue",
)
_PREAMBLE = re.compile(
    r"(?P<line>[^\n:]{0,160}?"
    r"\b(?:rest|continu\w*|remain\w*|left off|picking up|resum\w*|following text)\b[^\n:]{0,100}?)"
    r"(?::(?=\s)|[.!…]?(?=\n))(?P<gap>(?:[ \t]*\n)+|[ \t]+|)(?=\S|[ \t]+\S|\Z)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"(?P<ticks>`{3,}|~{3,})[ \t]*(?P<info>[^\s`]*)[ \t]*\n")


class Outcome(StrEnum):
    """How a join was explained."""

    AGREES = "agrees"
    """It goes on where the client is: nothing is sent twice."""
    DIFFERS = "differs"
    """It words the fragment differently: the fragment is superseded."""
    EMPTY = "empty"
    """It ended without a word."""
    DIVERGED = "diverged"
    """It rewrote the committed text: unusable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """What to do at the seam.

    Args:
        outcome: how it was explained.
        keep_chars: length of the fragment's head that stays canonical; less than the whole means
            that the rest of it is superseded.
        separator: to be delivered before `text`; it is no part of the answer.
        text: first text of the continuation to deliver, "" if the client has all of it.
        dropped: names of what was removed: "echo", "preamble", "fence".
    """

    outcome: Outcome
    keep_chars: int = 0
    separator: str = ""
    text: str = ""
    dropped: tuple[str, ...] = ()


class _Answer(StrEnum):
    YES = "yes"
    NO = "no"
    WAIT = "wait"


class Splice:
    """Joins one continuation. Feed it until it gives a `Join`; then it is done.

    Args:
        committed: the prefix that the continuation was asked to follow; "" for a fresh start.
        fragment: what the client has seen after it.
        echo: whether this target repeats the prefix.
        in_fence: info string of the code fence that `committed` ends inside, None in prose.
        must_align: the target was asked the original question although text is committed
            (`restart`): without a repetition of the whole prefix the answer is unusable.
        bare_start: the target loses leading white space (`instruct`), so a missing one is supplied.
    """

    def __init__(
        self,
        committed: str,
        fragment: str,
        *,
        echo: Echo = Echo.AUTO,
        in_fence: str | None = None,
        must_align: bool = False,
        bare_start: bool = False,
    ) -> None:
        self._committed = committed
        self._fragment = fragment
        self._echo = echo
        self._in_fence = in_fence
        self._must_align = must_align
        self._bare_start = bare_start
        self._held = ""
        self._echoed = 0 if committed and (echo is not Echo.NEVER or must_align) else -1
        # White space before a repetition of the whole prefix is nobody's text. Where none is sure
        # to come, it more likely begins an honest continuation.
        sure = echo is Echo.ALWAYS or must_align or (bare_start and len(committed) > MIN_ECHO_CHARS)
        self._forgives_lead = sure and not committed[:1].isspace()
        self._lead = ""
        self._starts: tuple[int, ...] = ()
        self._sentences: tuple[int, ...] = ()
        if self._echoed == 0:
            # Only a model that was asked in words repeats a part; one that was prefilled repeats
            # nothing or all, and an honest refrain of its must not be taken for a repetition.
            self._starts = (0, *_tail_starts(committed)) if bare_start else (0,)
            self._sentences = _sentence_starts(committed) if bare_start else ()

    def feed(self, text: str) -> Join | None:
        """Take the continuation's next text.

        Args:
            text: not empty.

        Returns:
            The join, or None while more text is needed to tell.
        """
        if self._echoed < 0:
            self._held += text
        elif self._still_echo(text):
            return None
        return self._decide(final=False)

    def finish(self) -> Join:
        """The continuation is whole: decide with what there is.

        Returns:
            The join.
        """
        if self._echoed >= 0:
            self._leave_echo("")
        join = self._decide(final=True)
        assert join is not None  # noqa: S101 - `final` leaves nothing undecided
        return join

    # The repetition from the beginning may be as long as the answer, so it is only counted.

    def _still_echo(self, text: str) -> bool:
        if self._echoed == 0 and self._forgives_lead:
            self._lead += _leading_space(text)
            text = text.lstrip()
        end = self._echoed + len(text)
        fits = end <= len(self._committed) and len(self._lead) <= MAX_BLANK_CHARS
        if fits and self._committed.startswith(text, self._echoed):
            self._echoed = end
            return True
        self._leave_echo(text)
        return False

    def _leave_echo(self, text: str) -> None:
        """Text no longer only repeats: what was counted is held as text again."""
        head = self._echoed + _common_prefix(self._committed[self._echoed :], text)
        whole = head == len(self._committed)
        self._held = ("" if whole else self._lead) + self._committed[: self._echoed] + text
        self._echoed = -1
        self._diverged_at = -1 if whole else head

    _diverged_at = -1

    def _decide(self, *, final: bool) -> Join | None:
        diverged = self._diverged(final=final)
        if diverged is not None:
            return diverged
        return self._explain(self._held, final=final, dropped=())

    def _diverged(self, *, final: bool) -> Join | None:
        short = 0 <= self._diverged_at < len(self._committed)
        if self._must_align and not self._held.startswith(self._committed):
            return Join(outcome=Outcome.DIVERGED)
        if short and self._diverged_at >= DIVERGED_CHARS and not self._is_refrain():
            if final and self._committed.startswith(self._held):
                return Join(outcome=Outcome.EMPTY, keep_chars=len(self._fragment))
            return Join(outcome=Outcome.DIVERGED)
        return None

    def _is_refrain(self) -> bool:
        """A song may come back to its first lines. What the client has seen of it must be said
        again with its white space, or be long enough to be no accident."""
        fragment, held = self._fragment, self._held
        exact = held.startswith(fragment) or fragment.startswith(held)
        accident = not (fragment[:1].isspace() and exact) and len(fragment.strip()) < MIN_ECHO_CHARS
        return not accident and self._goes_on(held) is not _Answer.NO

    def _explain(self, text: str, *, final: bool, dropped: tuple[str, ...]) -> Join | None:
        """The first explanation that is not ruled out, in this order."""
        if not text.strip() and not final:
            return None if len(text) <= MAX_BLANK_CHARS else self._differing(text, dropped)
        for explanation in (self._as_echo, self._as_preamble, self._as_fence):
            answer, rest, name = explanation(text, dropped, final)
            if answer is _Answer.WAIT and not final:
                return None
            if answer is _Answer.YES:
                return self._explain(rest, final=final, dropped=(*dropped, name))
        return self._against_fragment(text, final=final, dropped=dropped)

    def _as_echo(
        self, text: str, dropped: tuple[str, ...], final: bool
    ) -> tuple[_Answer, str, str]:
        if "echo" in dropped:
            return _Answer.NO, "", ""
        bare = text.lstrip()
        starts = self._starts if bare == text else self._starts[:1]
        candidates = [(text, start) for start in starts]
        if bare != text:
            candidates += [(bare, start) for start in self._sentences]
        for said, start in candidates:
            tail = self._committed[start:]
            if tail.startswith(said) and len(said) < len(tail):
                if final:
                    continue
                return _Answer.WAIT, "", ""
            if said.startswith(tail):
                return self._echo_or_refrain(text, said[len(tail) :], final=final)
        return _Answer.NO, "", ""

    def _echo_or_refrain(self, text: str, rest: str, *, final: bool) -> tuple[_Answer, str, str]:
        """A text may honestly repeat itself: what accounts for the fragment wins."""
        after, _ = _agreement(rest, self._fragment)
        plain, _ = _agreement(text, self._fragment)
        if after is _Answer.WAIT and not final:
            return _Answer.WAIT, "", ""
        if after is _Answer.WAIT:
            honest = plain is _Answer.YES and self._fragment.strip()
            return (_Answer.NO, "", "") if honest else (_Answer.YES, rest, "echo")
        if after is _Answer.NO and plain is not _Answer.NO and self._fragment.strip():
            return (_Answer.WAIT if plain is _Answer.WAIT else _Answer.NO), "", ""
        return _Answer.YES, rest, "echo"

    def _as_preamble(
        self, text: str, dropped: tuple[str, ...], final: bool
    ) -> tuple[_Answer, str, str]:
        # A preamble never begins with the white space that the committed text is followed by.
        lead = _leading_space(self._fragment)
        if "preamble" in dropped or (lead and text[0:1].isspace()) or not self._committed:
            return _Answer.NO, "", ""
        plain = self._goes_on(text)
        if plain is not _Answer.NO:
            return (_Answer.WAIT if plain is _Answer.WAIT else _Answer.NO), "", ""
        answer = _preamble(text.lstrip(), final=final)
        if isinstance(answer, int):
            return _Answer.YES, text.lstrip()[answer:], "preamble"
        return answer, "", ""

    def _as_fence(
        self, text: str, dropped: tuple[str, ...], _final: bool
    ) -> tuple[_Answer, str, str]:
        if self._in_fence is None or "fence" in dropped:
            return _Answer.NO, "", ""
        plain = self._goes_on(text)
        if plain is not _Answer.NO and self._fragment.strip(" \t\n`~"):
            return (_Answer.WAIT if plain is _Answer.WAIT else _Answer.NO), "", ""
        body = text.lstrip("\n")
        found = _FENCE.match(body)
        if found:
            # A line of its own that is a bare fence closes the block; only one at the very start of
            # an answer, where the client has already seen code follow, opens it again.
            alone = len(body) == len(text) or "preamble" in dropped
            opens = bool(found["info"]) or (alone and self._fragment_is_code())
            # The end of the fence's line stands for the end of the committed one.
            rest = "\n" + body[found.end() :]
            return (_Answer.YES, rest, "fence") if opens else (_Answer.NO, "", "")
        could = "\n" not in body and len(body) < MAX_PREAMBLE_CHARS and _could_be_fence(body)
        return (_Answer.WAIT if could else _Answer.NO), "", ""

    def _goes_on(self, text: str) -> _Answer:
        """Words that the client has seen already are no preamble and no fence, whatever they look
        like: they are the answer."""
        return _agreement(text, self._fragment)[0] if self._fragment.strip() else _Answer.NO

    def _fragment_is_code(self) -> bool:
        """A bare fence opens the block again only if the client saw code follow, not its end."""
        head = self._fragment.lstrip()
        return bool(head) and not head.startswith(("`", "~"))

    def _against_fragment(self, text: str, *, final: bool, dropped: tuple[str, ...]) -> Join | None:
        fragment = self._fragment
        answer, rest = _agreement(text, fragment)
        if answer is _Answer.YES:
            return Join(
                outcome=Outcome.AGREES,
                keep_chars=len(fragment),
                text=self._supplied_space(rest) + rest,
                dropped=dropped,
            )
        if answer is _Answer.WAIT:
            return self._ended_inside(text, dropped) if final else None
        return self._differing(text, dropped)

    def _ended_inside(self, text: str, dropped: tuple[str, ...]) -> Join:
        """The continuation ended before it had said all that the client has."""
        if not text.strip():
            return Join(outcome=Outcome.EMPTY, keep_chars=len(self._fragment), dropped=dropped)
        fragment = self._fragment
        said = len(text)
        if not fragment.startswith(text):
            said = len(_leading_space(fragment)) + len(text.lstrip())
        return Join(outcome=Outcome.DIFFERS, keep_chars=said, dropped=dropped)

    def _differing(self, text: str, dropped: tuple[str, ...]) -> Join:
        keep = _kept_space(self._fragment, text)
        text = text.removeprefix(self._fragment[:keep])
        separator = self._separator(text) if keep < len(self._fragment) else ""
        return Join(
            outcome=Outcome.DIFFERS,
            keep_chars=keep,
            separator=separator,
            text=text,
            dropped=dropped,
        )

    def _separator(self, text: str) -> str:
        """Set the new wording off from the broken one: a new line in code, else a new paragraph,
        which also ends whatever inline markup the fragment left open."""
        wanted = 2 if self._in_fence is None else 1
        present = len(text) - len(text.lstrip("\n"))
        return "\n" * max(0, wanted - present)

    def _supplied_space(self, text: str) -> str:
        """White space that the committed text needs and an instructed model does not send."""
        before = (self._committed + self._fragment)[-1:]
        if not (self._bare_start and before and text) or before.isspace() or self._fragment:
            return ""
        if text[0].isspace() or not text[0].isalnum():
            return ""
        if self._in_fence is not None:
            return "\n"
        return "" if unicodedata.east_asian_width(before) in "WF" else " "


def _tail_starts(committed: str) -> tuple[int, ...]:
    """Where a repetition of the prefix's end may start: anywhere in the window but at white space,
    for a good continuation often begins with some and must not be held back."""
    first = max(1, len(committed) - ECHO_WINDOW_CHARS)
    last = len(committed) - MIN_ECHO_CHARS
    return tuple(at for at in range(first, last + 1) if not committed[at].isspace())


def _sentence_starts(committed: str) -> tuple[int, ...]:
    """Of those, the beginnings of sentences and lines: a repetition from there may come with the
    white space that sets a sentence off."""
    return tuple(at for at in _tail_starts(committed) if _begins_sentence(committed, at))


def _begins_sentence(committed: str, at: int) -> bool:
    if not committed[at - 1].isspace():
        return False
    before = committed[max(0, at - ECHO_WINDOW_CHARS) : at]
    bare = before.rstrip()
    return "\n" in before[len(bare) :] or bare[-1:] in _ENDS


_ENDS = frozenset(".!?…:;。！？\"'”’)]»")


def _common_prefix(one: str, other: str) -> int:
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


def _leading_space(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _agreement(text: str, fragment: str) -> tuple[_Answer, str]:
    """Does a continuation begin with the fragment? White space at its start is forgiven.

    Returns:
        The answer, and with YES the text after the fragment.
    """
    if text.startswith(fragment):
        return _Answer.YES, text[len(fragment) :]
    if fragment.startswith(text) or not text.strip():
        return _Answer.WAIT, ""
    if not fragment.strip():
        return _blank_agreement(text, fragment)
    bare, wanted = text.lstrip(), fragment.lstrip()
    if bare.startswith(wanted):
        return _Answer.YES, bare[len(wanted) :]
    return (_Answer.WAIT if wanted.startswith(bare) else _Answer.NO), ""


def _blank_agreement(text: str, blank: str) -> tuple[_Answer, str]:
    """The client has only white space: what the continuation lost of it is supplied by that."""
    if not text[0].isspace():
        return _Answer.YES, text
    indent = blank.lstrip("\n")
    if len(indent) < len(blank) and text[0] != "\n" and text.startswith(indent):
        return _Answer.YES, text[len(indent) :]
    return _Answer.NO, ""


def _kept_space(fragment: str, text: str) -> int:
    """How much of the fragment's leading white space stays when its words are replaced."""
    ours, theirs = _leading_space(fragment), _leading_space(text)
    if theirs in ("", ours):
        return len(ours)
    if "\n" in ours and "\n" not in theirs:
        return ours.rindex("\n") + 1  # their own indentation is the right one
    return 0


def _preamble(text: str, *, final: bool) -> _Answer | int:
    """Is this a preamble ("Sure, here is the rest:")? With yes, where it ends."""
    head = text[:MAX_PREAMBLE_CHARS].lower()
    opened = any(head.startswith(opener) for opener in _OPENERS)
    if not opened:
        could = any(opener.startswith(head) for opener in _OPENERS)
        return _Answer.WAIT if could else _Answer.NO
    found = _PREAMBLE.match(text[: 2 * MAX_PREAMBLE_CHARS])
    if found and found.end() < len(text):
        line = text[: found.end()].partition("\n")[0]
        return found.end() if len(line) < MAX_PREAMBLE_CHARS else _Answer.NO
    announced = text.rstrip()
    if final and announced.endswith(":") and _PREAMBLE.fullmatch(f"{announced}\n"):
        return len(text)  # it announces the rest, and nothing follows
    line, newline, after = text.partition("\n")
    if len(line) >= MAX_PREAMBLE_CHARS or (newline and after.strip()):
        return _Answer.NO
    return _Answer.WAIT


def _could_be_fence(text: str) -> bool:
    ticks = text.lstrip("`") if text.startswith("`") else text.lstrip("~")
    run = len(text) - len(ticks)
    return run > 0 and (run >= 3 or not ticks)
