"""Where a sentence may end, and who decides it: the gate, and the segmenters behind it.

The gate is cheap and runs on every terminator: `candidates` finds the places at which a sentence
may end, `balanced` keeps those outside quotes and brackets. Behind it stands a segmenter, `pysbd`
or (`sentences: fast`) `sentencex`, which is asked about one line and answers with offsets.

pysbd is used without its `Segmenter`: that class keeps the text it works on in itself, and finds
its spans by compiling every sentence into a pattern. Its language modules are not altered, but
subclassed, for two reasons that both concern the time in which it holds the interpreter:

- `NUMBERED_REFERENCE_REGEX` is exponential in the numbers of a citation such as `x.[12, 15, 18]`;
- the search for abbreviations rewrites the text once for each word that begins like one, and
  compiles up to three patterns for each: here only those are looked at that a period follows.

What is superlinear beside these (lists in one line, many sentences) is bounded by what is handed to
it: `window`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

with warnings.catch_warnings():
    # pysbd's sources hold invalid escapes, which Python 3.12 shows to everyone who starts us.
    warnings.simplefilter("ignore")
    from pysbd.languages import LANGUAGE_CODES
    from pysbd.processor import Processor

GUARD_CHARS = 600
"""Past this distance from the last commit an open quote or bracket no longer forbids an end: it
was a typing error, an inch or a smiley, and waiting on would only grow what a failover repeats."""

WINDOW_CHARS = 1_000
"""Bound on the text of one question: pysbd costs about 2 ms for it, and more than linearly more."""

WINDOW_MARKS = 60
"""Bound on terminators and list markers in it: pysbd rewrites its text once for each marker of a
list, so `a) b) c)` in 1,000 characters would hold the interpreter for 0.4 s. Prose has 10 to 20."""

WINDOW_LOOKAHEAD_CHARS = 64
"""How much after the last candidate is handed over: what follows a sentence decides its end, but
what follows beyond a few words does not."""

_CERTAIN = "。｡！？؟۔।॥။៖។៕։።፧᠃᠉"
"""Terminators that end a sentence in their script and have no other use: with balanced quotes and
an ordinary character behind them nobody needs to be asked. None needs white space."""
_TERMINATORS = ".?!…‼⁇⁈⁉．" + _CERTAIN
_NO_SPACE_NEEDED = frozenset(_CERTAIN + "．")
_CLOSERS = r"""[\"'”’“‘»«›‹)\]}」』）】》〉*_`~¹²³⁰⁴-⁹]"""
"""What may stand between a terminator and the white space, Markdown and footnote marks included;
“ and « close in German."""

TERMINATOR = re.compile(f"[{_TERMINATORS}]")
_REFERENCE = r"(?:\[[\d, –-]{1,60}\]|【[^】\n]{1,60}】)"
# No possessive groups here or below: before 3.11.5 Python matches them wrongly (gh-106052).
_RUN = re.compile(rf"(?P<run>[{_TERMINATORS}]++){_CLOSERS}*+(?:{_REFERENCE}{_CLOSERS}*+)*")
"""A terminator run with its closers and its references (`[1][2]`, `【3†source】`)."""
_ITEM = re.compile(r"(?<![^\s(⁃-])(?:\d{1,2}|[a-zA-Z])?\Z")
"""What stands before the period of a list item, or of an ellipsis with spaces. `1.` in a line is a
sentence end to pysbd until `2.` comes and makes both a list, so such a period is no candidate."""
_UNDECIDED = re.compile(r"[^\S\n]*\Z|\[[\d, –-]{0,60}\Z|【[^】\n]{0,60}\Z")
"""What may follow a run at the end of the text without saying yet whether it is a candidate."""
_MARK = re.compile(rf"[{_TERMINATORS})]")
_PAIRED = re.compile("[\"`'’‘“”„‚«»()\\[\\]{}「」『』（）【】《》〈〉]|(?<!-)--(?!-)")


class Candidate(NamedTuple):
    """A place at which a sentence may end.

    Args:
        start: offset of its first terminator.
        end: offset behind its closers and references; white space or another sentence follows.
        certain: no segmenter needs to be asked, if quotes and brackets are balanced there.
    """

    start: int
    end: int
    certain: bool


def candidates(line: str, start: int = 0) -> tuple[list[Candidate], int]:
    """Find the places at which a sentence may end: terminator, closers, white space, one more.

    Terminators of scripts without spaces need no white space, but one more character that is
    neither terminator nor closer. A period that may belong to the number or letter of a list item
    (`1. a 2. b`) is no candidate.

    Args:
        line: text without a line end.
        start: offset to begin at.

    Returns:
        The candidates in order, and the offset of a run at the end of the line that more text has
        to decide, or -1.
    """
    found: list[Candidate] = []
    for match in _RUN.finditer(line, start):
        end = match.end()
        if _UNDECIDED.match(line, end):
            return found, match.start()
        if match.group() == "." and _ITEM.search(line, max(0, match.start() - 2), match.start()):
            continue
        last = line[match.end("run") - 1]
        if line[end].isspace() or last in _NO_SPACE_NEEDED:
            certain = end == match.end("run") and last in _CERTAIN
            found.append(Candidate(match.start(), end, certain))
    return found, -1


def balanced(line: str, found: Sequence[Candidate]) -> list[Candidate]:
    """Keep the candidates at which no quote, bracket, code span or pair of dashes is open.

    pysbd takes a sentence end inside a quote back when the quote closes. Past `GUARD_CHARS` every
    candidate is kept.

    Args:
        line: text since the last commit in it, without a line end.
        found: candidates in it, in order.
    """
    open_marks = _OpenMarks(line)
    return [one for one in found if one.end > GUARD_CHARS or open_marks.none_before(one.end)]


_OPENS: Mapping[str, str] = MappingProxyType(
    dict(zip("([{「『（【《〈", ")]}」』）】》〉", strict=True))
)
_CLOSES = frozenset(_OPENS.values())
_EITHER: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        # mark: (what it closes if that was opened with this key, the key it opens otherwise)
        '"': ('"', '"'),
        "`": ("`", "`"),
        "--": ("--", "--"),
        "“": ("„", "“"),  # closes a German quotation, opens an English one
        "‘": ("‚", "‘"),
        "«": ("»", "«"),
        "»": ("«", "»"),
        "„": ("", "„"),
        "‚": ("", "‚"),
    }
)


class _OpenMarks:
    """Counts what is open while it walks along a line. A closer without an opener counts nothing.

    Args:
        line: the line to walk along.
    """

    def __init__(self, line: str) -> None:
        self._line = line
        self._marks: Iterator[re.Match[str]] = _PAIRED.finditer(line)
        self._next = next(self._marks, None)
        self._open: dict[str, int] = {}

    def none_before(self, end: int) -> bool:
        """Whether everything opened before `end` is closed; `end` never goes back."""
        while self._next is not None and self._next.start() < end:
            self._take(self._next.group(), self._next.start())
            self._next = next(self._marks, None)
        return not any(self._open.values())

    def _take(self, mark: str, at: int) -> None:
        if mark in _EITHER:
            closes, opens = _EITHER[mark]
            if not self._close(closes):
                self._add(opens)
        elif mark in _OPENS:
            self._add(_OPENS[mark])
        elif mark in _CLOSES:
            self._close(mark)
        elif mark == "”":
            self._close("“") or self._close("„")
        else:
            self._take_apostrophe(mark, at)

    def _take_apostrophe(self, mark: str, at: int) -> None:
        """`'` and `’` are apostrophes inside a word, quotes at its edges."""
        before, after = self._line[at - 1 : at], self._line[at + 1 : at + 2]
        if after.isalnum() and before.isalnum():
            return
        at_edge = not before.strip() or before in '([{“"—–-*_'
        if mark == "'" and at_edge and after.strip():
            self._add("'")
        else:
            self._close("'" if mark == "'" else "‘")

    def _add(self, key: str) -> None:
        self._open[key] = self._open.get(key, 0) + 1

    def _close(self, key: str) -> bool:
        if not self._open.get(key):
            return False
        self._open[key] -= 1
        return True


def window(line: str, end: int) -> tuple[int, int]:
    """The part of a line that a segmenter is asked about, bounded in characters and marks.

    Args:
        line: text without a line end.
        end: end of the last candidate that the question is about.

    Returns:
        Start and end offset; the start is that of a word, unless the line has no white space.
    """
    right = min(len(line), end + WINDOW_LOOKAHEAD_CHARS)
    left = max(0, right - WINDOW_CHARS)
    marks = [mark.end() for mark in _MARK.finditer(line, left, right)]
    if len(marks) > WINDOW_MARKS:
        left = marks[-WINDOW_MARKS]
    space = line.find(" ", left, end) if left else -1
    return (left if space < 0 else space + 1), right


class SentenceSegmenter(Protocol):
    """Says where sentences end. Stateless: one may serve every stream and every thread."""

    def ends(self, text: str) -> list[int]:
        """Find the ends of sentences.

        Args:
            text: at most `WINDOW_CHARS`, without a line end.

        Returns:
            Offsets behind the last character of each sentence, ascending. The last may lie inside
            a sentence, where the text just ends.
        """
        ...


_NUMBERED_REFERENCE = (
    r"(?<=[^\d\s])(\.|∯)"
    r"((\[(?:\d+(?:,(?:\s?-\s?|\s{0,2})|\s(?:-\s?|\s?)|-\s?))*(\d{1,3})\])+"
    r"|((\d{1,3}\s?)?\d{1,3}))(\s)(?=[A-Z])"
)
"""pysbd's pattern with its groups, where every repetition begins with a digit and ends with a
separator, so that there is one way to read a list of numbers and not 2^n."""


class _NarrowAbbreviationSearch:
    """Mixed into a language's abbreviation replacer: looks only at what a period follows."""

    lang: Any
    scan_for_replacements: Callable[[str, str, int, list[str]], str]
    ranks: Mapping[str, int]
    """The language's abbreviations, without their last period, each with its place in the list."""
    lengths: tuple[int, ...]
    """Their lengths in characters, each once."""

    def search_for_abbreviations_in_string(self, text: str) -> str:
        lowered, found = text.lower(), set()
        period = lowered.find(".")
        while period >= 0:
            found |= {lowered[max(0, period - length) : period] for length in self.lengths}
            period = lowered.find(".", period + 1)
        for word in sorted(found & self.ranks.keys(), key=self.ranks.__getitem__):
            text = self._replace(text, word)
        return text

    def _replace(self, text: str, word: str) -> str:
        # ∯ is a period that a rule before has taken already.
        pattern = r"(?:^|\s)" + re.escape(word).replace(r"\.", "[.∯]")
        for occurrence in dict.fromkeys(re.findall(pattern, text, re.IGNORECASE)):
            # The letters after the abbreviations are never found: pysbd's pattern has stray braces.
            text = self.scan_for_replacements(text, occurrence, 0, [])
        return text


def _linear(language: type[Any]) -> type[Any]:
    """A subclass of pysbd's language module with the costly parts replaced."""
    words = [one.strip() for one in language.Abbreviation.ABBREVIATIONS]
    search = type(
        "AbbreviationReplacer",
        (_NarrowAbbreviationSearch, language.AbbreviationReplacer),
        {
            "ranks": {word: rank for rank, word in enumerate(words)},
            "lengths": tuple(sorted({len(word) for word in words})),
        },
    )
    members = {
        "NUMBERED_REFERENCE_REGEX": _NUMBERED_REFERENCE,
        "AbbreviationReplacer": search,
    }
    return type(language.__name__, (language,), members)


_ODD_SPACE = re.compile(r"[^\S ]")


@dataclass(frozen=True, slots=True)
class PysbdSentences:
    """Sentence ends by pysbd's rules.

    Args:
        language: a subclass of pysbd's language module, as `_linear` makes it.
    """

    language: type[Any]

    def ends(self, text: str) -> list[int]:
        """See `SentenceSegmenter.ends`. What pysbd cannot read has no ends."""
        # A stray carriage return or form feed would be a line of its own to pysbd.
        plain = _ODD_SPACE.sub(" ", text)
        processor = getattr(self.language, "Processor", Processor)
        try:
            sentences = processor(plain, self.language, char_span=True).process()
        except Exception:  # noqa: BLE001 - it builds patterns from the text and may fail in any way
            return []
        return _align(plain, sentences)


def _align(text: str, sentences: Sequence[str]) -> list[int]:
    """Ends of the sentences in the text they were taken from.

    pysbd drops white space and, where the text holds its own marker characters or escapes, changes
    it. Such a sentence is passed over: its neighbours have ends of their own.
    """
    ends: list[int] = []
    position = 0
    for sentence in sentences:
        bare = sentence.strip()
        at = text.find(bare, position) if bare else -1
        if at >= 0:
            position = at + len(bare)
            ends.append(position)
    return ends


@dataclass(frozen=True, slots=True)
class SentencexSentences:
    """Sentence ends by sentencex: faster by two orders, a little less exact, 240 languages.

    Args:
        language: ISO 639-1 code; codes that it does not know are read by their relatives' rules.
        boundaries: the library's function.
    """

    language: str
    boundaries: Callable[[str, str], list[Mapping[str, Any]]]

    def ends(self, text: str) -> list[int]:
        """See `SentenceSegmenter.ends`."""
        found = self.boundaries(self.language, text)
        spans = ((int(one["start_index"]), int(one["end_index"])) for one in found)
        return [
            start + len(text[start:end].rstrip()) for start, end in spans if text[start:end].strip()
        ]


def supported_languages() -> frozenset[str]:
    """ISO 639-1 codes of the languages that pysbd knows. `fast` takes any code."""
    return frozenset(LANGUAGE_CODES)


def _pysbd(language: str) -> SentenceSegmenter:
    if language not in LANGUAGE_CODES:
        known = ", ".join(sorted(LANGUAGE_CODES))
        raise ValueError(
            f"pysbd has no rules for the language {language!r}. "
            f"Choose one of {known}, or set `sentences: fast`."
        )
    return PysbdSentences(_linear(LANGUAGE_CODES[language]))


def _fast(language: str) -> SentenceSegmenter:
    try:
        from sentencex import get_sentence_boundaries  # noqa: PLC0415 - an optional dependency
    except ImportError as missing:
        raise ValueError(
            "`sentences: fast` needs the package sentencex, which is not installed. "
            "Install `seam-router[fast-sentences]`, or set `sentences: pysbd`."
        ) from missing
    return SentencexSentences(language, get_sentence_boundaries)


SEGMENTERS: Mapping[str, Callable[[str], SentenceSegmenter]] = MappingProxyType(
    {"pysbd": _pysbd, "fast": _fast}
)
"""What the route key `sentences` may say."""


@cache
def make_segmenter(sentences: str, language: str) -> SentenceSegmenter:
    """The segmenter for a route. Stateless, so there is one for each pair of arguments.

    Args:
        sentences: key of `SEGMENTERS`.
        language: ISO 639-1 code.

    Raises:
        ValueError: no such segmenter, a language it lacks, or a package that is not installed; the
            message says what would be right.
    """
    if sentences not in SEGMENTERS:
        raise ValueError(f"{sentences!r} is none of {', '.join(sorted(SEGMENTERS))}.")
    return SEGMENTERS[sentences](language)
