"""The text boundary: what is committed, where, and how seldom the segmenter is asked."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pysbd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.boundary import (
    HARD_FACTOR,
    MAX_PENDING_CHARS,
    Boundary,
    Fence,
    TextBoundary,
    make_boundary,
    next_fence,
)
from router.core.sentences import PysbdSentences, SentenceSegmenter, make_segmenter

TEXTS = sorted((Path(__file__).parent.parent / "fixtures" / "texts").iterdir())
SPLITS_PER_TEXT = 25


class Counting:
    """A segmenter that counts its questions."""

    def __init__(self, inner: SentenceSegmenter) -> None:
        self.inner = inner
        self.asked: list[str] = []

    def ends(self, text: str) -> list[int]:
        self.asked.append(text)
        return self.inner.ends(text)


def tokens(text: str, seed: int) -> Iterator[str]:
    rng, at = random.Random(seed), 0  # noqa: S311 - a seeded split, no secret
    while at < len(text):
        size = rng.randint(1, 6)
        yield text[at : at + size]
        at += size


def commits(boundary: Boundary, feeds: Iterable[str]) -> list[str]:
    """What is committed, piece by piece, as its caller sees it: cut from the caller's own copy."""
    text, at, pieces = "", 0, []
    for feed in feeds:
        text += feed
        length = boundary.feed(feed)
        if length:
            pieces.append(text[at : at + length])
            at += length
        assert boundary.pending == text[at:]
    return pieces


def pieces_of(text: str, language: str = "en") -> list[str]:
    return commits(make_boundary("text", language=language), text)


# --- the corpora -------------------------------------------------------------------------------

_CLOSERS = re.compile(r"""["'”’“»«)\]}」』）】》〉*_`.?!。？！]*(?:\[[\d, –-]+\])*\Z""")


def prose_ends(text: str, language: str) -> set[int]:
    """Where pysbd, shown the whole text, ends its sentences."""
    segmenter = pysbd.Segmenter(language=language, char_span=True)
    linear = make_segmenter("pysbd", language)
    assert isinstance(linear, PysbdSentences)
    segmenter.language_module = linear.language  # the citations in the corpora would take seconds
    return {one.start + len(text[one.start : one.end].rstrip()) for one in segmenter.segment(text)}


def is_line_end(text: str, at: int) -> bool:
    return not text[at:].split("\n", 1)[0].strip()


def is_sentence_end(text: str, at: int, ends: set[int]) -> bool:
    line = text.rfind("\n", 0, at) + 1
    return any(end <= at and _CLOSERS.match(text, end, at) for end in ends if line < end <= at)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_no_commit_is_taken_back_by_later_text(path: Path) -> None:
    text, language = path.read_text(encoding="utf-8"), path.name[:2]
    ends = prose_ends(text, language)
    committed: set[int] = set()
    for seed in range(SPLITS_PER_TEXT):
        at = 0
        for piece in commits(make_boundary("text", language=language), tokens(text, seed)):
            at += len(piece)
            committed.add(at)
    inside = [at for at in committed if not is_line_end(text, at)]
    taken_back = [text[:at][-60:] for at in inside if not is_sentence_end(text, at, ends)]
    assert taken_back == []
    assert len(inside) >= 3  # else nothing was shown


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_most_sentences_are_committed_on_their_own(path: Path) -> None:
    text, language = path.read_text(encoding="utf-8"), path.name[:2]
    ends = prose_ends(text, language)
    found = len(commits(make_boundary("text", language=language), tokens(text, 1)))
    assert found >= 0.7 * len(ends)


def test_the_segmenter_is_asked_less_than_once_in_ten_tokens() -> None:
    asked = fed = 0
    for path in TEXTS:
        counting = Counting(make_segmenter("pysbd", path.name[:2]))
        feeds = list(tokens(path.read_text(encoding="utf-8"), 7))
        commits(TextBoundary(counting), feeds)
        asked += len(counting.asked)
        fed += len(feeds)
    assert asked
    assert asked * 10 <= fed


# --- properties --------------------------------------------------------------------------------

_PIECES = st.sampled_from(
    [
        *(
            "Word",
            " ",
            "a",
            ". ",
            ".",
            "? ",
            "! ",
            "…",
            "\n",
            "\n\n",
            "\r\n",
            "```",
            "```py\n",
            "~~~",
        ),
        *(
            '"',
            "'",
            "“",
            "”",
            "(",
            ")",
            "「",
            "」",
            "。",
            "！",
            "؟ ",
            "। ",
            "1. ",
            "- ",
            "[1]",
            "\t",
        ),
        *("e.g. ", "Mr. ", "Dr.", "é", "\u0301", "👩\u200d🚀", "  ", "x" * 30, "\u2028", "**"),
    ]
)
_TEXTS = st.lists(_PIECES, max_size=60).map("".join)


@st.composite
def splits(draw: st.DrawFn) -> list[str]:
    text = draw(_TEXTS)
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=20)) | {0, len(text)})
    return [text[a:b] for a, b in pairwise(cuts)]


@settings(max_examples=400, deadline=None)
@given(feeds=splits(), limit=st.sampled_from([20, 60, 1000]))
def test_commits_add_up_and_never_end_in_white_space(feeds: list[str], limit: int) -> None:
    boundary = make_boundary("text", max_pending_chars=limit)
    text = "".join(feeds)
    pieces = commits(boundary, feeds)
    committed = "".join(pieces)
    assert text.startswith(committed)
    at = 0
    for piece in pieces:
        at += len(piece)
        assert piece
        # Only the hard bound cuts white space, and only where there was nothing else for so long.
        hard = not piece.strip() and len(piece) >= HARD_FACTOR * limit
        assert hard or not piece[-1].isspace()
    assert boundary.finish() == len(text) - len(committed)
    assert boundary.pending == ""
    assert boundary.finish() == 0


@settings(max_examples=200, deadline=None)
@given(feeds=splits(), keep=st.integers(0, 30), after=_TEXTS)
def test_after_a_rewind_the_boundary_goes_on_as_if_the_rest_had_never_come(
    feeds: list[str], keep: int, after: str
) -> None:
    boundary = make_boundary("text")
    committed = "".join(commits(boundary, feeds))
    kept = boundary.pending[:keep]
    boundary.rewind(keep)
    assert boundary.pending == kept
    fresh = make_boundary("text")
    fresh_at = sum(len(piece) for piece in commits(fresh, [*feeds]))
    fresh.rewind()
    assert (fresh.pending, fresh.in_fence, fresh_at) == ("", boundary.in_fence, len(committed))
    # Feeding what was kept again, in one piece with what follows, is the same as having kept it.
    assert boundary.feed(after) == fresh.feed(kept + after)
    assert (boundary.pending, boundary.in_fence) == (fresh.pending, fresh.in_fence)


@settings(max_examples=200, deadline=None)
@given(feeds=splits())
def test_pending_text_is_bounded(feeds: list[str]) -> None:
    boundary = make_boundary("text", max_pending_chars=20)
    for feed in feeds:
        boundary.feed(feed)
        assert len(boundary.pending) <= HARD_FACTOR * 20


@settings(max_examples=200, deadline=None)
@given(feeds=splits())
def test_a_feed_asks_at_most_one_bounded_question(feeds: list[str]) -> None:
    counting = Counting(make_segmenter("pysbd", "en"))
    boundary = TextBoundary(counting)
    for feed in feeds:
        before = len(counting.asked)
        boundary.feed(feed)
        assert len(counting.asked) - before <= 1
    assert all("\n" not in question and len(question) <= 1000 for question in counting.asked)


# --- sentences ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("One. Two. Three", "en", ["One.", " Two."]),
        ("One.", "en", []),
        ("One. ", "en", []),
        ("Mr. Smith came. He", "en", ["Mr. Smith came."]),
        ("It cost 3.50 today. So", "en", ["It cost 3.50 today."]),
        ('"No. Never," he said. "Go', "en", ['"No. Never," he said.']),
        ("'No. Never,' he said. 'Go", "en", ["'No. Never,' he said."]),
        ("(See p. 4. Or not.) Then", "en", ["(See p. 4. Or not.)"]),
        ("**Yes.** No", "en", ["**Yes.**"]),
        ("Seen.[1][2] Then", "en", ["Seen.[1][2]"]),
        ("Plan: 1. eat, 2. sleep. Good", "en", ["Plan: 1. eat, 2. sleep."]),
        ("Use `a. B` now. Then", "en", ["Use `a. B` now."]),
        ("Er sagte: „Nein. Nie.“ Dann", "de", ["Er sagte: „Nein. Nie.“"]),
        ("これは本。「はい。行く。」と言う。次", "ja", ["これは本。", "「はい。行く。」と言う。"]),
        ("これは本。次", "en", ["これは本。"]),
        ("本当！？次", "ja", ["本当！？"]),
        ("ماذا؟ نعم", "en", ["ماذا؟"]),
        ("यह एक है। वह", "hi", ["यह एक है।"]),
        ("یہ ایک ہے۔ وہ", "ur", ["یہ ایک ہے۔"]),
        ("ဒါ။ဟို", "en", ["ဒါ။"]),
        ("Այո։ Ոչ", "hy", ["Այո։"]),
    ],
)
def test_sentence_ends(text: str, language: str, expected: list[str]) -> None:
    assert pieces_of(text, language=language) == expected


def test_a_whole_text_in_one_feed_is_committed_to_its_last_sentence_end() -> None:
    text = 'One. Two. "Three. Four." Five. And so'
    assert commits(make_boundary("text"), [text]) == [text.removesuffix(" And so")]


def test_a_terminator_that_waits_outlives_the_commit_before_it() -> None:
    assert commits(make_boundary("text"), ["One. Two.", " Three"]) == ["One.", " Two."]


def test_an_open_quote_is_forgiven_after_a_while() -> None:
    text = 'A nail of 5" length. ' + "It is a sentence like others. " * 40
    pieces = pieces_of(text)
    assert pieces[0] == text[: len(pieces[0])]
    assert 600 < len(pieces[0]) < 700
    assert pieces[1] == " It is a sentence like others."


@pytest.mark.parametrize("noise", ["! ", "? ", "A. B. ", "1. 2. ", "a) b. ", "“a. ", "etc. ", ". "])
def test_noise_does_not_ask_at_every_token(noise: str) -> None:
    counting = Counting(_Never())
    commits(TextBoundary(counting, max_pending_chars=1000), (noise * 1000)[:1000])
    assert len(counting.asked) <= 30


class _Never:
    def ends(self, text: str) -> list[int]:
        del text
        return []


# --- lines and fences --------------------------------------------------------------------------


def test_every_line_that_is_not_blank_is_a_boundary() -> None:
    assert pieces_of("# Title\n\n- one\n  \n- two  \r\nrest") == [
        "# Title",
        "\n\n- one",
        "\n  \n- two",
    ]


def test_code_is_committed_by_line_and_sentences_in_it_are_none() -> None:
    text = "So:\n```py\n# One. Two.\n\nx = 1  \n```\nDone. Next"
    assert pieces_of(text) == ["So:", "\n```py\n# One. Two.", "\n\nx = 1", "  \n```", "\nDone."]


def test_an_opening_fence_is_no_boundary_because_its_info_string_could_go_on() -> None:
    boundary = make_boundary("text")
    assert boundary.feed("```py\n") == 0
    assert boundary.in_fence is None
    assert boundary.feed("x = 1\n    ") == 0
    assert boundary.feed("y") == len("```py\nx = 1")
    assert boundary.in_fence == "py"


def test_a_line_is_committed_with_the_next_ones_first_character() -> None:
    # Else a continuation that comes without its leading white space would lose the indentation.
    boundary = make_boundary("text")
    for text in ("def f():", "\n", "    ", "\n\n", "   "):
        assert boundary.feed(text) == 0
    assert boundary.feed(" re") == len("def f():")
    assert boundary.pending == "\n    \n\n    re"


def test_a_rewound_line_is_still_committed_with_the_next_ones_first_character() -> None:
    boundary = make_boundary("text")
    boundary.feed("One\n  two")
    boundary.rewind(len("\n  "))
    assert boundary.feed("2\n") == 0
    assert boundary.feed("\n3") == len("\n  2")


def test_in_fence_follows_the_committed_text() -> None:
    boundary = make_boundary("text")
    seen: list[str | None] = []
    for line in ("Text:", "\n~~~", "\ncode", "\n```", "\nmore", "\n~~~~", "\nText.", "\nEnd"):
        boundary.feed(line)
        seen.append(boundary.in_fence)
    assert seen == [None, None, None, "", "", "", None, None]


def test_finish_reads_the_last_line_as_a_whole_one() -> None:
    boundary = make_boundary("text")
    boundary.feed("```js\nx\n```")
    assert boundary.in_fence == "js"
    assert boundary.finish() == len("\n```")
    assert boundary.in_fence is None


def test_a_line_that_may_open_a_fence_waits_for_its_end() -> None:
    assert pieces_of("~~~ One. Two. Three") == []
    assert pieces_of("``` One. Two. Three") == []
    assert pieces_of("```one``` Two. Three") == ["```one``` Two."]


@pytest.mark.parametrize(
    ("fence", "line", "expected"),
    [
        (None, "```", Fence("```", "")),
        (None, "~~~~ text x", Fence("~~~~", "text x")),
        (None, "   ```py", Fence("```", "py")),
        (None, "      ```py", Fence("```", "py")),
        (None, "- ```sh", Fence("```", "sh")),
        (None, "12. ```sh\r", Fence("```", "sh")),
        (None, "> ~~~", Fence("~~~", "")),
        (None, "``", None),
        (None, "``` a `b`", None),
        (None, "text ```", None),
        (Fence("```", "py"), "```", None),
        (Fence("```", "py"), "  ````  ", None),
        (Fence("````", "py"), "```", Fence("````", "py")),
        (Fence("```", "py"), "~~~", Fence("```", "py")),
        (Fence("```", "py"), "```py", Fence("```", "py")),
        (Fence("```", ""), "x = '```'", Fence("```", "")),
    ],
)
def test_fences_by_line(fence: Fence | None, line: str, expected: Fence | None) -> None:
    assert next_fence(fence, line) == expected


def test_the_rest_of_a_committed_line_opens_no_fence() -> None:
    boundary = make_boundary("text")
    assert boundary.feed("One. Two") == 4
    boundary.rewind()
    boundary.feed("``` x\nfoo\n")
    assert boundary.in_fence is None


def test_rewind_forgets_a_fence_that_was_pending() -> None:
    boundary = make_boundary("text")
    boundary.feed("One.\n```py\n")
    boundary.rewind()
    boundary.feed("\nTwo. Three")
    assert boundary.pending == " Three"
    assert boundary.in_fence is None


def test_rewind_keeps_what_the_continuation_goes_on_from() -> None:
    boundary = make_boundary("text")
    boundary.feed("One. Two thr")
    boundary.rewind(keep=4)
    assert boundary.pending == " Two"
    assert boundary.feed(". Four") == len(" Two.")


# --- text that never ends a sentence -----------------------------------------------------------


def test_text_without_an_end_is_committed_at_white_space() -> None:
    pieces = commits(make_boundary("text", max_pending_chars=100), tokens("word " * 60, 3))
    assert pieces
    assert all(90 <= len(piece) <= 110 and piece.endswith("word") for piece in pieces)


def test_text_without_white_space_is_cut_at_the_hard_bound() -> None:
    first = pieces_of("QUJD" * 2000)[0]
    assert len(first) == HARD_FACTOR * MAX_PENDING_CHARS


@pytest.mark.parametrize(
    "cluster",
    ["e\u0301", "👩\u200d🚀", "👍🏽", "🇩🇪", "\ud83d\ude00", "각", "न\u0940", "☂\ufe0f"],
)
def test_the_hard_cut_never_divides_a_character(cluster: str) -> None:
    unit = cluster + "yz"
    for shift in range(len(unit)):
        text = "x" * shift + unit * 40
        [piece] = commits(make_boundary("text", max_pending_chars=10), text)[:1]
        inside = (len(piece) - shift) % len(unit)
        assert inside == 0 or inside >= len(cluster)


def test_a_character_without_end_is_bounded() -> None:
    boundary = make_boundary("text", max_pending_chars=10)
    pieces = commits(boundary, "e" + "\u0301" * 500)
    assert pieces
    assert len(boundary.pending) <= HARD_FACTOR * 10


def test_white_space_without_end_is_bounded() -> None:
    boundary = make_boundary("text", max_pending_chars=10)
    for _ in range(1000):
        boundary.feed("\n")
        assert len(boundary.pending) <= HARD_FACTOR * 10
    boundary.feed("```\ncode\n")
    assert boundary.in_fence == ""


def test_a_long_line_of_code_keeps_its_fence() -> None:
    boundary = make_boundary("text", max_pending_chars=20)
    boundary.feed("```js\n")
    for _ in range(20):
        boundary.feed("a = b. C ")
    assert boundary.in_fence == "js"


# --- the table ---------------------------------------------------------------------------------


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="none of the boundaries text"):
        make_boundary("page")
