"""The gate and the segmenters: what they find, and that none of them can hold the event loop."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

import pysbd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pysbd.lang.common import Common

from router.core.sentences import (
    _NUMBERED_REFERENCE,
    GUARD_CHARS,
    SEGMENTERS,
    WINDOW_CHARS,
    WINDOW_LOOKAHEAD_CHARS,
    WINDOW_MARKS,
    PysbdSentences,
    balanced,
    candidates,
    make_segmenter,
    supported_languages,
    window,
)

# --- time --------------------------------------------------------------------------------------

_CITATIONS = """
from router.core.boundary import make_boundary
text = "x.[" + ", ".join(str(n) for n in range(12, 132, 3)) + "] the rest of it. And so on. More"
assert text.count(",") == 39
for feeds in (text, [text]):
    boundary = make_boundary("text")
    committed = sum(boundary.feed(feed) for feed in feeds)
    assert text[:committed].endswith("And so on."), text[:committed]
from router.core.sentences import make_segmenter
make_segmenter("pysbd", "en").ends(text.replace(" the", "the"))
"""

_HOSTILE = """
from router.core.boundary import make_boundary
from router.core.sentences import supported_languages
parts = [
    "1. 2. 3. ", "a. b. c. ", "a) b) c) ", "i) ii) iii) ", "p. ", "(((", "(.", '" (', "' 'a ",
    "[[", "““", "!! ", "a.a.", ". . . ", "x.[1] T ", "x.[", "[1", '\\"\\"', "。」", "--a. B ",
    "(a) (b) ", "a.\\r", "a.\\u2028B", "no. 1 ", "1.1.1", "' ", "\\\\\\\\a[", "e.g. ",
]
texts = [(part * 1000)[:1000] + " Then" for part in parts]
texts += [(one + two) * 100 + " Then" for one, two in zip(parts, parts[5:])]
for language in sorted(supported_languages()):
    for text in texts:
        make_boundary("text", language=language).feed(text)
"""


def run(program: str, limit_s: float) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=limit_s)


def test_a_citation_of_forty_numbers_is_read_in_linear_time() -> None:
    # pysbd's own pattern needs 2^40 steps for it. The limit is for the start of the interpreter.
    run(_CITATIONS, limit_s=20)


def test_no_text_of_the_bounded_size_is_expensive() -> None:
    # 1,150 questions of the worst kinds known, 3 ms each. Unbounded, `a) b) c)` takes 0.4 s alone.
    run(_HOSTILE, limit_s=60)


_NUMBERS = st.lists(
    st.sampled_from(["1", "12", "123", "1234", ",", "-", " ", "  ", "], ["]), max_size=8
)


@settings(max_examples=500, deadline=None)
@given(
    before=st.sampled_from(["x.", "x∯", "1.", " .", "x.["]),
    numbers=_NUMBERS.map("".join),
    after=st.sampled_from(["", "] A", "] a", "]A", "][3] A", " A"]),
)
def test_the_linear_pattern_reads_what_the_original_reads(
    before: str, numbers: str, after: str
) -> None:
    text = before + numbers + after
    original = re.sub(Common.NUMBERED_REFERENCE_REGEX, r"∯\2\r\7", text)
    assert re.sub(_NUMBERED_REFERENCE, r"∯\2\r\7", text) == original


def test_the_window_is_bounded_in_characters_and_marks() -> None:
    prose = "Words and more words. " * 200
    left, right = window(prose, len(prose) - 2)
    assert right - left <= WINDOW_CHARS
    assert prose[left - 1] == " "
    dense = "a) " * 300 + "Then. " + "more " * 100
    end = dense.index("Then.") + 5
    left, right = window(dense, end)
    assert right == end + WINDOW_LOOKAHEAD_CHARS
    assert dense.count(")", left, right) + 1 <= WINDOW_MARKS
    assert window("Short. And", 6) == (0, 10)


# --- pysbd -------------------------------------------------------------------------------------

_ENGLISH = [
    "Hello World. My name is Jonas.",
    "There it is! I found it. What is your name? My name is Jonas.",
    "Please turn to p. 55. He left at 5 p.m. on Monday. We moved to the U.S. in May.",
    "She has $100.00 in her bag. (He has none.) It works, e.g. in Fig. 3 and No. 7.",
    'She turned to him, "This is great." She held the book out to show him.',
    "I never meant it... Did you? Dr. Who, Mr. Co. and the Inc. people did!! Yes.",
    "St. Mary's Hosp. sent Prof. Lee, Gen. Hu and Sgt. Po to Dept. 9. They left.",
]


@pytest.mark.parametrize("text", _ENGLISH)
def test_the_subclass_agrees_with_pysbd_itself(text: str) -> None:
    original = pysbd.Segmenter(language="en", char_span=True).segment(text)
    expected = [one.start + len(text[one.start : one.end].rstrip()) for one in original]
    assert make_segmenter("pysbd", "en").ends(text) == expected


def test_pysbd_itself_is_not_altered() -> None:
    make_segmenter("pysbd", "en")
    assert pysbd.Segmenter(language="en").language_module.NUMBERED_REFERENCE_REGEX != (
        _NUMBERED_REFERENCE
    )


def test_odd_white_space_and_marker_characters_do_not_shift_the_ends() -> None:
    text = "  One\u00a0two.\u2028Three ∯ four. (See \\(x\\) there.) Five six. Seven"
    ends = make_segmenter("pysbd", "en").ends(text)
    assert text.index("two.") + 4 in ends
    assert text.index("six.") + 4 in ends
    assert all(end <= len(text) and not text[end - 1].isspace() for end in ends)


def test_a_failing_library_means_no_boundary() -> None:
    class Broken:
        class Processor:
            def __init__(self, *_: object, **__: object) -> None:
                raise re.error("bad pattern")

    assert PysbdSentences(Broken).ends("One. Two.") == []


def test_one_segmenter_serves_many_threads() -> None:
    segmenter = make_segmenter("pysbd", "en")
    texts = [f"{'Word ' * n}ends. Then {n} more. Last" for n in range(1, 9)]
    alone = [segmenter.ends(text) for text in texts]
    together: list[list[int]] = [[] for _ in texts]

    def work(index: int) -> None:
        for _ in range(30):
            together[index] = segmenter.ends(texts[index])
            assert together[index] == alone[index]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


@pytest.mark.parametrize("language", sorted(supported_languages()))
def test_every_language_of_pysbd_works(language: str) -> None:
    text = "1234 567! 890 1234"
    assert text.index("!") + 1 in make_segmenter("pysbd", language).ends(text) or language == "hy"


def test_the_languages_are_two_letter_codes() -> None:
    assert {"en", "de", "ja", "fr", "zh", "ar", "ru"} <= supported_languages()
    assert all(len(code) == 2 for code in supported_languages())


# --- choices -----------------------------------------------------------------------------------


def test_a_language_that_pysbd_lacks_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"'ko'.*\ben\b.*sentences: fast"):
        make_segmenter("pysbd", "ko")


def test_an_unknown_segmenter_is_refused() -> None:
    with pytest.raises(ValueError, match="'nltk' is none of fast, pysbd"):
        make_segmenter("nltk", "en")


def test_fast_serves_a_language_that_pysbd_lacks() -> None:
    text = "한국어 문장입니다. 👍 또 하나입니다. 끝"
    ends = make_segmenter("fast", "ko").ends(text)
    assert text.index(".") + 1 in ends
    assert text.rindex(".") + 1 in ends
    assert all(not text[end - 1].isspace() for end in ends)


def test_fast_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(ValueError, match=r"seam-router\[fast-sentences\]"):
        SEGMENTERS["fast"]("en")


# --- the gate ----------------------------------------------------------------------------------


def ends(line: str) -> list[str]:
    return [line[: one.end] for one in candidates(line)[0]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("One. Two", ["One."]),
        ("One.", []),
        ("One. ", []),
        ("One.Two", []),
        ("3.5 4.", []),
        ('One." Two', ['One."']),
        ("One.) Two", ["One.)"]),
        ("One.[1][2, 3] Two", ["One.[1][2, 3]"]),
        ("One.【4†page】 Two", ["One.【4†page】"]),
        ("One.¹ Two", ["One.¹"]),
        ("One.[a] Two", []),
        ("1. Two", []),
        ("At 12. Two", []),
        ("In 2012. Two", ["In 2012."]),
        ("J. Two", []),
        ("One . . . two", []),
        ("一。二", ["一。"]),
        ("一。」二", ["一。」"]),
        ("一。」", []),
        ("一。", []),
        ("What?! Two", ["What?!"]),
        ("क। ख", ["क।"]),
    ],
)
def test_candidates(line: str, expected: list[str]) -> None:
    assert ends(line) == expected


@pytest.mark.parametrize("line", ["One.", "One. ", "One.)", "One.[", "One.[12, 3", "One.【a"])
def test_what_more_text_has_to_decide_is_remembered(line: str) -> None:
    assert candidates(line) == ([], 3)
    assert candidates("First. " + line)[1] == 10
    assert candidates("一。」") == ([], 1)
    assert candidates("One.Two")[1] == -1


@pytest.mark.parametrize(
    ("line", "open_"),
    [
        ('He "said. So', True),
        ('He "said." So', False),
        ("He (said. So", True),
        ("He [said. So", True),
        ("He :) said. So", False),
        ("He “said. So", True),
        ("He “said.” So", False),
        ("Er „sagte. So", True),
        ("Er „sagte.“ So", False),
        ("Il « dit. So", True),
        ("Il « dit » cela. So", False),
        ("Er »sagte. So", True),
        ("Er »sagte.« So", False),
        ("He 'said. So", True),
        ("He 'said.' So", False),
        ("He didn't. So", False),
        ("The dogs' bone. So", False),
        ("He ‘said. So", True),
        ("He ‘didn’t. So", True),
        ("He ‘said.’ So", False),
        ("It’s said. So", False),
        ("Use `a. So", True),
        ("He -- said. So", True),
        ("a --- said. So", False),
        ("「はい。So", True),
        ("（はい。So", True),
    ],
)
def test_nothing_ends_while_a_quote_or_bracket_is_open(line: str, open_: bool) -> None:
    found, _ = candidates(line)
    assert found
    assert (balanced(line, found[-1:]) == []) is open_


def test_the_guard_is_dropped_after_a_while() -> None:
    line = 'A 5" nail. ' + "More words. " * 60 + "End"
    kept = balanced(line, candidates(line)[0])
    assert kept
    assert all(one.end > GUARD_CHARS for one in kept)
