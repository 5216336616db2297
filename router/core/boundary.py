"""Where a cut is safe: what of the received text may be committed now.

A boundary is fed the text as it comes and says how much of it may join the failover record, the
prefix from which another provider would go on. In text (`TextBoundary`) these places are

- the end of every line that is not blank, in prose as in code, once the next line has its first
  character. To pysbd a line end always ends a sentence, so nobody is asked; the character is waited
  for because many a model begins its continuation without the white space that belongs there: what
  the client then has behind the line tells how deep the code was indented. A line that opens a code
  fence is no such place: its info string could be continued (`py` by `thon`); it is committed with
  the first line of the code;
- inside a line of prose the end of a sentence that later text cannot take back
  (`core/sentences.py`): quotes and brackets balanced, and the segmenter agrees;
- white space, once pending text passes `max_pending_chars`;
- between two whole characters, once it passes `HARD_FACTOR` times that: base64, a script without
  spaces, white space without end.

A commit never ends in white space, so pending text begins with that which follows the committed
sentence or line. The one exception is the hard bound inside a run of white space.

What is guaranteed for any split of a text into feeds: the commits add up to a prefix of it, and to
the whole after `finish`; each ends at one of the places above. Not guaranteed: that two splits
commit at the same places. Where one feed brings several, only the last is committed, and the
segmenter is asked at most once per feed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from router.core.sentences import (
    TERMINATOR,
    Candidate,
    SentenceSegmenter,
    balanced,
    candidates,
    make_segmenter,
    window,
)

MAX_PENDING_CHARS = 1_000
"""Default for how long text may go on without a boundary: what a failover may have to repeat."""

HARD_FACTOR = 4
"""Text of so many times `max_pending_chars` without a white space is cut anywhere."""

FREE_QUESTIONS = 4
"""So many candidates may turn out to be none, such as `Dr.`, before it costs patience."""

ASK_AGAIN_GROWTH = 1.25
"""From then on the line must grow by this factor before the next question, so that a line of n
characters costs O(log n) questions even if every word of it looks like an end."""

_MAX_CLUSTER_CHARS = 64
"""How far the hard cut goes back for the start of a character: longer sequences are no writing."""


class Boundary(Protocol):
    """Decides where text may be committed. One per stream; never shared."""

    @property
    def pending(self) -> str:
        """Text received and not committed."""
        ...

    @property
    def in_fence(self) -> str | None:
        """Info string of the code fence that the committed text ends inside, or None in prose."""
        ...

    def feed(self, text: str) -> int:
        """Take the next text.

        Args:
            text: any piece of the answer; may be empty.

        Returns:
            How many characters from the start of the pending text, this piece included, may be
            committed now. They leave `pending`.
        """
        ...

    def rewind(self, keep: int = 0) -> None:
        """Forget pending text: a continuation replaces it.

        Args:
            keep: characters from its start that the continuation goes on from.
        """
        ...

    def finish(self) -> int:
        """The answer is whole: commit all that is pending.

        Returns:
            Its length in characters.
        """
        ...

    def mark(self) -> object:
        """The present state, to come back to."""
        ...

    def back(self, mark: object, pending: str) -> None:
        """What was to be committed since a mark is not.

        Args:
            mark: from `mark`.
            pending: all text since then.
        """
        ...


class Fence(NamedTuple):
    """An open code fence (CommonMark 0.31, section 4.5).

    Args:
        mark: the run of backticks or tildes that opened it; the closing run is at least as long.
        info: what follows it on its line.
    """

    mark: str
    info: str


_FENCE = re.compile(
    r"[\s>]*+(?:(?:[-*+]|\d{1,9}[.)])\s++)*(?P<mark>`{3,}+|~{3,}+)(?P<info>[^\n]*)\Z"
)
"""A fence line. More lenient than CommonMark about what stands before it: models indent fences in
lists and quotes as they like."""


def next_fence(fence: Fence | None, line: str) -> Fence | None:
    """The fence that is open behind a whole line.

    Args:
        fence: the fence that is open before it.
        line: without its line end.
    """
    match = _FENCE.match(line)
    if match is None:
        return fence
    mark, info = match["mark"], match["info"].strip()
    if fence is None:
        return None if mark[0] == "`" in info else Fence(mark, info)
    closes = mark.startswith(fence.mark) and not info
    return None if closes else fence


class TextBoundary:
    """Boundaries in prose and in fenced code (see the head of this file).

    Args:
        segmenter: decides about sentences.
        max_pending_chars: text without a boundary is committed at white space past this length.
    """

    def __init__(
        self, segmenter: SentenceSegmenter, *, max_pending_chars: int = MAX_PENDING_CHARS
    ) -> None:
        self._segmenter = segmenter
        self._max_pending = max_pending_chars
        self._pending = ""
        self._committed_fence: Fence | None = None
        self._at_line_start = True  # of the committed text's end
        self._fence: Fence | None = None  # at the start of the current line
        self._line = 0  # where in pending the current line starts
        self._ready = 0  # end of a line that the next character commits, as offset in pending, or 0
        self._ready_fence: Fence | None = None
        self._undecided = -1  # where in pending a terminator waits for what follows it, or -1
        self._refusals = 0  # answers without an end since the last commit in the current line
        self._ask_from = 0.0  # length of the current line from which the next question is worth it

    @property
    def pending(self) -> str:
        """See `Boundary.pending`."""
        return self._pending

    @property
    def in_fence(self) -> str | None:
        """See `Boundary.in_fence`."""
        return None if self._committed_fence is None else self._committed_fence.info

    def feed(self, text: str) -> int:
        """See `Boundary.feed`."""
        pending = self._pending = self._pending + text
        cut, fence = self._close_lines() if "\n" in text else (0, None)
        if self._ready and not text.isspace() and pending[self._line :].strip():
            cut, fence = self._ready, self._ready_fence
        if self._undecided >= 0 or (self._fence is None and TERMINATOR.search(text)):
            found = self._sentence_cut(len(pending) - len(text))
            if found:
                cut, fence = found, None
        if len(pending) - cut > self._max_pending:
            forced = _forced_cut(pending[cut:], HARD_FACTOR * self._max_pending)
            if forced:
                cut, fence = cut + forced, self._fence
        if cut:
            self._commit(cut, fence)
        return cut

    def rewind(self, keep: int = 0) -> None:
        """See `Boundary.rewind`."""
        self._pending = self._pending[:keep]
        self._fence = self._committed_fence
        self._line = self._ready = 0
        self._refusals, self._ask_from = 0, 0.0
        self._close_lines()
        self._undecided = self._line if len(self._pending) > self._line else -1

    def finish(self) -> int:
        """See `Boundary.finish`."""
        length = len(self._pending)
        if length:
            last = self._pending[self._line :]
            fence = next_fence(self._fence, last) if self._is_whole(self._line) else self._fence
            self._fence = fence
            self._commit(length, fence)
        return length

    def mark(self) -> object:
        """See `Boundary.mark`."""
        return dict(vars(self))

    def back(self, mark: object, pending: str) -> None:
        """See `Boundary.back`."""
        assert isinstance(mark, dict)  # noqa: S101 - it is ours
        vars(self).update(mark)
        self._pending = pending
        self.rewind(len(pending))

    def _is_whole(self, start: int) -> bool:
        """Whether the line at this offset of pending begins there, and not in committed text."""
        return start > 0 or self._at_line_start

    def _close_lines(self) -> tuple[int, Fence | None]:
        """Take note of the lines that are whole now; the last boundary that words follow."""
        cut, cut_fence, start = 0, None, self._line
        while (end := self._pending.find("\n", start)) >= 0:
            line = self._pending[start:end]
            before = self._fence
            if self._is_whole(start):
                self._fence = next_fence(before, line)
            opens = before is None and self._fence is not None
            if bare := line.rstrip():
                if self._ready:
                    cut, cut_fence = self._ready, self._ready_fence
                self._ready, self._ready_fence = 0 if opens else start + len(bare), self._fence
            start = end + 1
        if start != self._line:
            self._line, self._undecided = start, -1
            self._refusals, self._ask_from = 0, 0.0
        return cut, cut_fence

    def _sentence_cut(self, fed_at: int) -> int:
        """The last sentence end in the current line that is final, as offset in pending, or 0."""
        if self._fence is not None:
            self._undecided = -1
            return 0
        line = self._pending[self._line :]
        since = self._undecided if self._undecided >= 0 else max(fed_at, self._line)
        new, undecided = candidates(line, since - self._line)
        self._undecided = undecided + self._line if undecided >= 0 else -1
        if len(line) < self._ask_from:
            new = [one for one in new if one.certain]
        if not new or (self._is_whole(self._line) and next_fence(None, line)):
            return 0
        possible = balanced(line, candidates(line)[0])
        end = self._decide(line, possible) if possible else 0
        return self._line + end if end else 0

    def _decide(self, line: str, possible: list[Candidate]) -> int:
        """The end of the last possible candidate that is one, or 0."""
        ends: list[int] = []
        if not possible[-1].certain and len(line) >= self._ask_from:
            left, right = window(line, possible[-1].end)
            ends = [left + end for end in self._segmenter.ends(line[left:right])]
            self._refusals += 1  # unless a commit sets it back
            if self._refusals >= FREE_QUESTIONS:
                self._ask_from = len(line) * ASK_AGAIN_GROWTH
        for one in reversed(possible):
            if one.certain or any(one.start < end <= one.end for end in ends):
                return one.end
        return 0

    def _commit(self, cut: int, fence: Fence | None) -> None:
        self._at_line_start = self._pending[cut - 1] == "\n"
        self._pending = self._pending[cut:]
        self._committed_fence = fence
        self._line = max(0, self._line - cut)
        self._ready = max(0, self._ready - cut)
        self._undecided = self._undecided - cut if self._undecided >= cut else -1
        self._refusals, self._ask_from = 0, 0.0


def _forced_cut(text: str, hard_chars: int) -> int:
    """Where text without a boundary is cut: before the last white space, else anywhere if it must.

    Args:
        text: what would stay pending.
        hard_chars: length past which it is cut without white space.

    Returns:
        An offset, 0 for nowhere.
    """
    bare = text.rstrip()
    if bare and len(bare) < len(text):
        return len(bare)
    words = text.rsplit(None, 1)
    if len(words) == 2:
        return len(words[0])
    return _between_characters(text) if len(text) > hard_chars else 0


def _between_characters(text: str) -> int:
    """The last offset before the end that does not cut a character as people see it."""
    last = len(text) - 1
    for cut in range(last, max(0, last - _MAX_CLUSTER_CHARS), -1):
        if not _joined(text[cut - 1], text[cut]):
            return cut
    return last


_JOINER = "\u200d"
_HANGUL_JAMO = range(0x1100, 0x1200)
_REGIONAL = range(0x1F1E6, 0x1F200)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_HIGH_SURROGATES = range(0xD800, 0xDC00)


def _joined(left: str, right: str) -> bool:
    """Whether two characters may belong to one grapheme (Unicode annex 29, coarsely)."""
    before, after = ord(left), ord(right)
    if before < 0x300 and after < 0x300:
        return left == "\r" and right == "\n"
    return (
        unicodedata.category(right)[0] == "M"
        or _JOINER in (left, right)
        or before in _HIGH_SURROGATES
        or after in _SKIN_TONES
        or (before in _REGIONAL and after in _REGIONAL)
        or (before in _HANGUL_JAMO and after in _HANGUL_JAMO)
    )


def _text_boundary(language: str, sentences: str, max_pending_chars: int) -> Boundary:
    return TextBoundary(make_segmenter(sentences, language), max_pending_chars=max_pending_chars)


BOUNDARIES: Mapping[str, Callable[[str, str, int], Boundary]] = MappingProxyType(
    {"text": _text_boundary}
)
"""What the route key `boundary` may say."""


def make_boundary(
    kind: str,
    *,
    language: str = "en",
    sentences: str = "pysbd",
    max_pending_chars: int = MAX_PENDING_CHARS,
) -> Boundary:
    """A fresh boundary for one stream. Costs about a microsecond.

    Args:
        kind: key of `BOUNDARIES`.
        language: ISO 639-1 code of the answers.
        sentences: key of `sentences.SEGMENTERS`.
        max_pending_chars: text without a boundary is committed at white space past this length.

    Raises:
        ValueError: one of these is unknown; the message says what would be right.
    """
    if kind not in BOUNDARIES:
        raise ValueError(f"{kind!r} is none of the boundaries {', '.join(sorted(BOUNDARIES))}.")
    return BOUNDARIES[kind](language, sentences, max_pending_chars)
