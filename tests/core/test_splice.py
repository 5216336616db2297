"""Joining a continuation to what the client has: properties, and values that once were wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.texts import OTHER, Moment, Sample, moments, seeded, written

from router.core.continuation import Echo
from router.core.splice import (
    DIVERGED_CHARS,
    ECHO_WINDOW_CHARS,
    MAX_BLANK_CHARS,
    MIN_ECHO_CHARS,
    Join,
    Outcome,
    Splice,
)
from router.simulate import tokenize
from router.simulate.prefix import BEHAVIOURS, Resume, locate


class Result(NamedTuple):
    """A join with all the text that followed it."""

    outcome: Outcome
    keep_chars: int
    separator: str
    dropped: tuple[str, ...]
    text: str


def joined(committed: str, fragment: str, pieces: list[str], **how: Any) -> Result:  # noqa: ANN401 - as `Splice` takes them
    """Feed a whole continuation, as the engine does."""
    splice = Splice(committed, fragment, **how)
    later = iter(pieces)
    join = _first_join(splice, later) or splice.finish()
    # What follows an unusable continuation is never read.
    text = "" if join.outcome is Outcome.DIVERGED else join.text + "".join(later)
    return Result(join.outcome, join.keep_chars, join.separator, join.dropped, text)


def _first_join(splice: Splice, pieces: Iterator[str]) -> Join | None:
    return next((join for piece in pieces if (join := splice.feed(piece))), None)


def canonical(committed: str, fragment: str, result: Result) -> str:
    return committed + fragment[: result.keep_chars] + result.text


# -- any split -------------------------------------------------------------------------------------

BLOCKS = (
    *("The cat sat on the mat.", " Dogs bark.", "Ha! ", "Ha! Ha! ", "The ", "cat ", "a", "b", "!"),
    *(
        "\n\n",
        "\n",
        " ",
        "  ",
        "\t",
        "\u3000",
        "    y = 2",
        "x = 1\n",
        "```python\n",
        "```",
        "~~~\n",
    ),
    *("`", "Sure, here is the rest:\n", "Sure, here is the rest: ", "Certainly", "Sure", "Here is"),
    *("Continuing from where I left off.\n", "I'll continue ", "ok", "remaining ", "'s rest:"),
    *(
        "日本語の文。",
        "「はい」",
        ":",
        "A longer sentence, with more than eighty characters in it, so " * 2,
    ),
)
texts = st.lists(st.sampled_from(BLOCKS), max_size=8).map("".join)
short_texts = st.lists(st.sampled_from(BLOCKS), max_size=3).map("".join)
hows = st.fixed_dictionaries(
    {
        "echo": st.sampled_from(Echo),
        "in_fence": st.sampled_from((None, None, "", "python")),
        "must_align": st.sampled_from((False, False, False, True)),
        "bare_start": st.booleans(),
    }
)


@st.composite
def continuations(draw: st.DrawFn, committed: str, fragment: str) -> str:
    """What may come: an echo, a preamble, a fence, the fragment, something else, or parts of it."""
    tail = committed[draw(st.integers(0, len(committed))) :]
    head = draw(st.sampled_from(("", "", committed, tail, "```python\n", "```\n", " ", "\n")))
    spoken = draw(st.sampled_from(("", "", "Of course! Here is the remaining text:\n\n")))
    part = fragment[: draw(st.integers(0, len(fragment)))]
    body = draw(st.sampled_from((fragment, fragment.lstrip(), part, ""))) + draw(texts)
    return spoken + head + body


@st.composite
def splits(draw: st.DrawFn, text: str) -> list[str]:
    cuts = draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=8))
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@given(st.data(), texts, short_texts, hows)
def test_any_split_of_a_continuation_gives_the_same_result(
    data: st.DataObject, committed: str, fragment: str, how: dict[str, Any]
) -> None:
    said = data.draw(continuations(committed, fragment))
    assume(said)
    assume(len(said) - len(said.lstrip()) <= MAX_BLANK_CHARS)
    whole = joined(committed, fragment, [said], **how)
    assert joined(committed, fragment, data.draw(splits(said)), **how) == whole
    assert joined(committed, fragment, list(said), **how) == whole


@given(st.data(), texts, short_texts, hows)
def test_what_is_kept_and_added_is_always_part_of_what_was_there(
    data: st.DataObject, committed: str, fragment: str, how: dict[str, Any]
) -> None:
    said = data.draw(continuations(committed, fragment))
    assume(said)
    result = joined(committed, fragment, [said], **how)
    assert 0 <= result.keep_chars <= len(fragment)
    assert not result.separator.strip("\n")
    if result.outcome is Outcome.AGREES:
        assert result.keep_chars == len(fragment)
        assert result.separator == ""
    if result.outcome is not Outcome.DIVERGED:
        # Only white space may be put in front, and nothing of the end is ever lost.
        assert said.endswith(result.text.lstrip())


# -- a continuation that goes on -------------------------------------------------------------------


@given(st.data(), texts, texts.filter(bool), texts, st.booleans())
def test_a_prefilled_continuation_that_goes_on_is_never_touched(
    data: st.DataObject, committed: str, fragment: str, rest: str, bare_start: bool
) -> None:
    said = data.draw(splits(fragment + rest))
    result = joined(committed, fragment, said, echo=Echo.NEVER, bare_start=bare_start)
    assert canonical(committed, fragment, result) == committed + fragment + rest
    assert result.keep_chars == len(fragment)  # what was delivered is identical
    assert result.separator == ""
    assert result.dropped == ()


words = st.text("abcdefg .!\n", max_size=60)
other_words = st.text("tuvwxyz .!\n", max_size=60)
fragments = st.tuples(st.sampled_from(("", " ", "\n", "\n    ")), st.sampled_from("tuvwxyz")).map(
    "".join
)


@given(st.data(), words.filter(bool), fragments, other_words, st.sampled_from(Echo))
def test_an_echo_of_the_whole_prefix_is_dropped(
    data: st.DataObject, committed: str, fragment: str, rest: str, echo: Echo
) -> None:
    assume(echo is not Echo.NEVER)
    said = data.draw(splits(committed + fragment + rest))
    result = joined(committed, fragment, said, echo=echo)
    assert (result.outcome, result.text) == (Outcome.AGREES, rest)
    assert result.dropped == ("echo",)


@given(st.data(), st.text("abcdefg .!\n", min_size=MIN_ECHO_CHARS + 1), fragments, other_words)
def test_an_instructed_model_that_repeats_the_end_is_joined(
    data: st.DataObject, committed: str, fragment: str, rest: str
) -> None:
    first = max(0, len(committed) - ECHO_WINDOW_CHARS)
    start = data.draw(st.integers(first, len(committed) - MIN_ECHO_CHARS))
    assume(not committed[start].isspace())
    said = data.draw(splits(committed[start:] + fragment + rest))
    result = joined(committed, fragment, said, bare_start=True)
    assert (result.outcome, result.text) == (Outcome.AGREES, rest)


@given(st.data(), words, fragments, other_words)
def test_lost_leading_white_space_is_forgiven(
    data: st.DataObject, committed: str, fragment: str, rest: str
) -> None:
    said = data.draw(splits((fragment + rest).lstrip()))
    result = joined(committed, fragment, said, bare_start=True)
    assert (result.outcome, result.text) == (Outcome.AGREES, rest)


@given(st.data(), words, fragments, words.filter(str.strip))
def test_another_wording_supersedes_the_fragment_and_nothing_more(
    data: st.DataObject, committed: str, fragment: str, other: str
) -> None:
    said = data.draw(splits(other))
    result = joined(committed, fragment, said, echo=Echo.NEVER)
    assert result.outcome is Outcome.DIFFERS
    assert not fragment[: result.keep_chars].strip()
    bare = canonical(committed, fragment, result).removeprefix(committed)
    assert bare.strip() == other.strip()


@given(st.data(), words.filter(bool), fragments, other_words, st.sampled_from(Echo))
def test_a_restart_is_aligned_whatever_it_is_said_to_echo(
    data: st.DataObject, committed: str, fragment: str, rest: str, echo: Echo
) -> None:
    said = data.draw(splits(committed + fragment + rest))
    result = joined(committed, fragment, said, echo=echo, must_align=True)
    assert (result.outcome, result.text) == (Outcome.AGREES, rest)


@given(st.data(), words.filter(bool), fragments, other_words)
def test_a_restart_in_other_words_is_unusable_at_its_first_other_word(
    data: st.DataObject, committed: str, fragment: str, other: str
) -> None:
    at = data.draw(st.integers(0, len(committed) - 1))
    said = committed[:at] + "z" + other
    splice = Splice(committed, fragment, must_align=True)
    assert _first_join(splice, iter(said[:at])) is None
    join = splice.feed(said[at])
    assert join is not None
    assert join.outcome is Outcome.DIVERGED


# -- named values ----------------------------------------------------------------------------------

PROSE = "The ferry ran until dawn. Nobody fell in."
LONG = "It had been rising since supper, the boys said, about an inch an hour or a bit more. " * 2
AGREES, DIFFERS = Outcome.AGREES, Outcome.DIFFERS
CODE = "Look:\n\n```python\ndef f():"

# what it is, committed, fragment, said, how, outcome, canonical text after `committed`
VALUES: list[tuple[str, str, str, str, dict[str, Any], Outcome, str]] = [
    ("goes on", PROSE, " The pi", " The piano", {}, AGREES, " The piano"),
    ("has it all", PROSE, " So.", " So.", {}, AGREES, " So."),
    ("space lost", PROSE, " The pi", "The piano", {"bare_start": True}, AGREES, " The piano"),
    ("space added", PROSE, "The pi", " The piano", {"bare_start": True}, AGREES, "The piano"),
    ("other words", PROSE, " The pi", " A piano", {}, DIFFERS, " A piano"),
    ("other words, bare", PROSE, " The pi", "A piano", {"bare_start": True}, DIFFERS, " A piano"),
    ("nothing seen, bare", PROSE, "", "A piano", {"bare_start": True}, AGREES, " A piano"),
    ("nothing seen, prefilled", PROSE, "", "A piano", {}, AGREES, "A piano"),
    ("nothing seen, a comma", PROSE, "", ", and", {"bare_start": True}, AGREES, ", and"),
    ("nothing seen, Japanese", "はい。", "", "いいえ", {"bare_start": True}, AGREES, "いいえ"),
    ("nothing seen, code", CODE, "", "x", {"bare_start": True, "in_fence": "py"}, AGREES, "\nx"),
    ("a blank seen", PROSE, " ", "A piano", {}, AGREES, " A piano"),
    ("a line seen", PROSE, "\n\n", "A piano", {}, AGREES, "\n\nA piano"),
    ("ends inside", PROSE, " The piano sank.", " The piano", {}, DIFFERS, " The piano"),
    # an echo
    ("echo", PROSE, " The", PROSE + " The end", {}, AGREES, " The end"),
    ("echo after a line", PROSE, " The", "\n" + PROSE + " The end", {"bare_start": True}, AGREES,
     " The end"),
    ("echo after a line, sure", PROSE, " The", "\n" + PROSE + " The end", {"echo": Echo.ALWAYS},
     AGREES, " The end"),
    ("restart after a line", PROSE, " The", "\n" + PROSE + " The end", {"must_align": True}, AGREES,
     " The end"),
    ("restart, never an echo", PROSE, " The", PROSE + " The end",
     {"must_align": True, "echo": Echo.NEVER}, AGREES, " The end"),
    ("a sure echo that is none", PROSE, " The", " The end", {"echo": Echo.ALWAYS}, AGREES,
     " The end"),
    ("a sure echo, other words", PROSE, " The", " An end", {"echo": Echo.ALWAYS}, DIFFERS,
     " An end"),
    ("echo and nothing more", PROSE, " ", PROSE, {}, Outcome.EMPTY, " "),
    ("echo that ends inside", PROSE, " The pi", PROSE + " The", {}, DIFFERS, " The"),
    ("echo and nothing for the fragment", PROSE, " So", PROSE, {}, Outcome.EMPTY, " So"),
    ("echo of the last sentence alone", PROSE, " The", "Nobody fell in.", {"bare_start": True},
     Outcome.EMPTY, " The"),
    ("echo of the last sentence", PROSE, " The", "Nobody fell in. The end", {"bare_start": True},
     AGREES, " The end"),
    ("the same with its space", PROSE, " The", " Nobody fell in. The end", {"bare_start": True},
     AGREES, " The end"),
    ("echo in mid-sentence", PROSE, " The", "until dawn. Nobody fell in. The end",
     {"bare_start": True}, AGREES, " The end"),
    ("echo of an indented line", CODE + "\n    return total", "\n    x", "    return total\n    xy",
     {"bare_start": True, "in_fence": "python"}, AGREES, "\n    xy"),
    ("too short for an echo", "Ha! Ha!", " Ha", " Ha! Ha! Ho", {"bare_start": True}, AGREES,
     " Ha! Ha! Ho"),
    ("a refrain of the last sentence", "Row on, row, row the boat.", " Row", " Row on, row home",
     {"bare_start": True}, AGREES, " Row on, row home"),
    ("a refrain of all there is, prefilled", "Row on, row on.", " Row", " Row on, row on. Ho",
     {}, AGREES, " Row on, row on. Ho"),
    ("a refrain that the client has begun to see", "Row on, row on.", "Row on, ", "Row on, row on.",
     {}, AGREES, "Row on, row on."),
    ("a partial echo of a prefilled model is honest", PROSE, " ", "Nobody fell in. The end", {},
     AGREES, " Nobody fell in. The end"),
    # a preamble
    ("preamble", PROSE, " The", "Sure, here is the rest:\n The end", {}, AGREES, " The end"),
    ("preamble, bare", PROSE, " The", "Sure, here is the rest:\nThe end", {}, AGREES, " The end"),
    ("preamble, blank line", PROSE, " The", "Of course! Continuing from there:\n\nThe end", {},
     AGREES, " The end"),
    ("preamble, same line", PROSE, " The", "Here's the remaining text: The end", {}, AGREES,
     " The end"),
    ("preamble, full stop", PROSE, " The", "Certainly, I will continue.\nThe end", {}, AGREES,
     " The end"),
    ("preamble, other words", PROSE, " The", "Sure, here is the rest:\nAn end", {}, DIFFERS,
     " An end"),
    ("preamble and echo", PROSE, " The", "Sure, here is the rest:\n" + PROSE + " The end", {},
     AGREES, " The end"),
    ("preamble and the last sentence", PROSE, " The",
     "Sure, here is the rest:\nNobody fell in. The end", {"bare_start": True}, AGREES, " The end"),
    ("preamble and nothing", PROSE, "\n", "Sure, here is the rest:\n", {}, Outcome.EMPTY, "\n"),
    ("preamble, not a line end", PROSE, " ", "Sure, here is the rest:", {}, Outcome.EMPTY, " "),
    ("an honest last word", PROSE, " ", "Sure, I will continue.", {}, AGREES,
     " Sure, I will continue."),
    ("looks like one, and was seen", PROSE, " Sure, I", "Sure, I will continue now.\nAnd on", {},
     AGREES, " Sure, I will continue now.\nAnd on"),
    ("looks like one, with its space", PROSE, " ", " Sure, the rest:\nAnd on", {}, AGREES,
     " Sure, the rest:\nAnd on"),
    ("an opener that goes another way", PROSE, " Sure", "Surely not", {}, AGREES, " Surely not"),
    # a fence
    ("fence", CODE, "\n    re", "```python\n    return 1", {"in_fence": "python"}, AGREES,
     "\n    return 1"),
    ("fence, bare", CODE, "\n    re", "```\nreturn 1", {"in_fence": "python"}, AGREES,
     "\n    return 1"),
    ("fence before a blank line", CODE, "\n\n", "```python\n\n    return 1",
     {"in_fence": "python"}, AGREES, "\n\n    return 1"),
    ("fence and preamble", CODE, "\n    re", "Sure, here is the rest:\n```python\n    return 1",
     {"in_fence": "python"}, AGREES, "\n    return 1"),
    ("fence, other words", CODE, "\n    re", "```python\n    pass", {"in_fence": "python"}, DIFFERS,
     "\n    pass"),
    ("the block is closed", CODE, "\n``", "\n```\nEnd", {"in_fence": "python"}, AGREES,
     "\n```\nEnd"),
    ("the block is closed, bare", CODE, "\n```", "```\nEnd", {"in_fence": "python"}, AGREES,
     "\n```\nEnd"),
    ("opened again, then closed", CODE, "\n```", "```python\n```\nEnd", {"in_fence": "python"},
     AGREES, "\n```\nEnd"),
    ("a fence inside a fence, seen", "~~~text\nSo:", "\n```py", "\n```python\nx",
     {"in_fence": "text"}, AGREES, "\n```python\nx"),
    ("a fence in prose is the answer", PROSE, "\n\n``", "\n\n```python\nx", {}, AGREES,
     "\n\n```python\nx"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=[value[0] for value in VALUES])
def test_named_values(
    value: tuple[str, str, str, str, dict[str, Any], Outcome, str],
) -> None:
    _, committed, fragment, said, how, outcome, rest = value
    for pieces in ([said], list(said), tokenize(said)):
        result = joined(committed, fragment, pieces, **how)
        assert result.outcome is outcome
        assert canonical(committed, fragment, result) == committed + rest


def test_an_answer_written_afresh_in_other_words_is_unusable() -> None:
    said = LONG[:DIVERGED_CHARS] + "Then the boat sank."
    assert joined(LONG, " So", [said]).outcome is Outcome.DIVERGED
    shorter = LONG[: DIVERGED_CHARS - 1] + "Then the boat sank."
    assert joined(LONG, " So", [shorter]).outcome is Outcome.DIFFERS


def test_a_restart_that_never_comes_as_far_is_unusable() -> None:
    assert joined(LONG, " It", [LONG[:-1]], must_align=True).outcome is Outcome.DIVERGED
    assert joined(LONG, " It", [], must_align=True).outcome is Outcome.DIVERGED


def test_an_echo_that_stops_half_way_said_nothing() -> None:
    assert joined(LONG, " It", [LONG[:-1]]).outcome is Outcome.EMPTY


@pytest.mark.parametrize("bare_start", [False, True])
def test_a_refrain_from_the_very_beginning_is_no_answer_written_afresh(bare_start: bool) -> None:
    committed = LONG + "Then the boat sank."
    verse = "\n\n" + LONG + "Then we swam."
    for seen in ("\n\nIt", "\n\nIt had been rising", verse):
        for said in (verse, verse.lstrip()) if len(seen) > len("\n\nIt") else (verse,):
            result = joined(committed, seen, list(said), bare_start=bare_start)
            assert canonical(committed, seen, result) == committed + verse
            assert result.keep_chars == len(seen)
    afresh = LONG + "But the boat sank."
    assert joined(committed, "\n\nIt", list(afresh), bare_start=bare_start).outcome is (
        Outcome.DIVERGED
    )


@pytest.mark.parametrize("pieces", [[], ["\n"], [" ", " "]])
def test_a_continuation_without_a_word_is_empty(pieces: list[str]) -> None:
    result = joined(PROSE, " The", pieces)
    assert result.outcome is Outcome.EMPTY
    assert canonical(PROSE, " The", result) == PROSE + " The"


def test_the_separator_is_a_paragraph_in_prose_and_a_line_in_code() -> None:
    assert joined(PROSE, " The pi", [" An end"]).separator == "\n\n"
    assert joined(PROSE, " The pi", ["\nAn end"]).separator == "\n"
    assert joined(PROSE, "\n\nThe pi", ["\n\nAn end"]).separator == "\n\n"
    assert joined(CODE, "\n    re", ["\n    pass"], in_fence="python").separator == "\n"


def test_endless_white_space_is_not_held_back_for_ever() -> None:
    splice = Splice(PROSE, " The", bare_start=True)
    held = 0
    while splice.feed(" ") is None:
        held += 1
        assert held <= MAX_BLANK_CHARS


def test_an_endless_preamble_is_not_held_back_for_ever() -> None:
    splice = Splice(PROSE, " The")
    said = "Sure, " + "so " * 400
    assert _first_join(splice, iter(said)) is not None


def test_a_long_echo_is_counted_and_never_copied() -> None:
    committed = LONG * 500
    splice = Splice(committed, " It", echo=Echo.ALWAYS)
    for at in range(0, len(committed), 7):
        assert splice.feed(committed[at : at + 7]) is None
        assert splice._held == ""
    join = splice.feed(" It was")
    assert join is not None
    assert join.text == " was"


# -- every text, cut after every few tokens, continued in every way --------------------------------

STYLES: dict[str, dict[str, Any]] = {
    "instruct": {"bare_start": True},
    "prefilled": {},
    "never": {"echo": Echo.NEVER},
    "always": {"echo": Echo.ALWAYS},
}
ECHOES = ("echo", "afresh")
STEP = 7
"""Every so many tokens of a text, each behaviour beginning at another one."""


def _fits(style: str, behaviour: str) -> bool:
    """Whether a behaviour is one that the style is made for."""
    if style == "always":
        return behaviour in ECHOES
    if style == "never":
        return behaviour not in (*ECHOES, "echo_tail")
    return behaviour != "echo_tail" or style == "instruct"


def _said(sample: Sample, moment: Moment, behaviour: str) -> tuple[str, str] | None:
    """What is said, and the canonical text that must come of it; None for what cannot be known."""
    place = locate(moment.committed, sample.text, OTHER)
    assert place is not None
    resume = Resume(prefix=moment.committed, place=place, whole=sample.text, other=OTHER)
    said = BEHAVIOURS[behaviour](resume)
    if behaviour == "echo_tail" and len(said.removesuffix(place.rest).strip()) < MIN_ECHO_CHARS:
        return None  # too short to be told from an honest refrain
    if behaviour == "refence" and "~~~" in moment.committed:
        return None  # the simulator does not know of fences inside fences
    if behaviour == "differ":
        gap = place.rest[: len(place.rest) - len(place.rest.lstrip())]
        return said, moment.committed + gap + OTHER
    return said, sample.text


@pytest.mark.parametrize("behaviour", sorted(set(BEHAVIOURS) - {"empty"}))
@pytest.mark.parametrize("sample", [*written(), *seeded()], ids=lambda sample: sample.name)
def test_every_text_in_every_way(sample: Sample, behaviour: str) -> None:
    offset = sorted(BEHAVIOURS).index(behaviour) % STEP
    for moment in moments(sample)[offset::STEP]:
        found = _said(sample, moment, behaviour) if moment.committed else None
        if found is None:
            continue
        said, expected = found
        pieces = [*tokenize(said[:2_000]), said[2_000:]]
        for style, how in STYLES.items():
            if not _fits(style, behaviour):
                continue
            committed, fragment, in_fence = moment
            result = joined(committed, fragment, pieces, in_fence=in_fence, **how)
            assert canonical(committed, fragment, result) == expected, (style, moment)
            if behaviour != "differ":
                assert result.outcome is Outcome.AGREES, (style, moment)
