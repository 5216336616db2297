"""Every style of asking, every way of answering: what the client has in the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support.continuity import FULL, MESSAGES, House, house
from support.reading import Answer, check_contract
from support.texts import OTHER, Sample, seeded

from router.core.continuation import Style
from router.core.splice import MIN_ECHO_CHARS
from router.simulate import Conduct, RequestRecord, Script, tokenize
from router.simulate.prefix import BEHAVIOURS, Resume, locate

STEP = 1 if FULL else 7
"""Every so many tokens, each case beginning at another one."""

TEXTS = [one for one in seeded(seed=3, chars=260) if FULL or one.name != "prose"]
PREFILLED = (Style.ASSISTANT_TAIL, Style.PREFIX_FLAG, Style.PARTIAL_FLAG, Style.CONTINUE_FINAL)
CONTINUED = (*PREFILLED, Style.INSTRUCT)
AGREEING = (
    *("continue", "echo", "afresh", "refuse", "strip", "preamble", "preamble_stripped", "refence"),
)
SEPARATOR_CHARS = 2


@dataclass(frozen=True)
class Case:
    """One cell.

    Args:
        style: how the fallback is asked.
        behaviour: what it does with a prefix.
        sample: the answer.
        knobs: further keys of the target's `continuation`.
    """

    style: Style
    behaviour: str
    sample: Sample
    knobs: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """For messages."""
        knobs = "".join(f"-{key}={value}" for key, value in self.knobs)
        return f"{self.style}-{self.behaviour}{knobs}-{self.sample.name}"

    @property
    def target(self) -> dict[str, Any]:
        """The fallback's configuration."""
        return {"continuation": {"style": self.style.value, **dict(self.knobs)}}

    def cuts(self) -> range:
        """After which tokens it is cut."""
        count = len(tokenize(self.sample.text)) + 1
        return range(sum(map(ord, self.name)) % STEP, count, STEP)


def matrix() -> Iterator[Case]:
    """Each style with each behaviour over the texts in turn; with SEAM_FULL over all of them."""
    cells = [(style, behaviour) for style in CONTINUED for behaviour in (*AGREEING, "differ")]
    cells.append((Style.INSTRUCT, "echo_tail"))  # only a model that was asked in words does that
    for at, (style, behaviour) in enumerate(cells):
        chosen = TEXTS if FULL else [TEXTS[(at + turn * 3) % len(TEXTS)] for turn in range(3)]
        for sample in chosen:
            yield Case(style, behaviour, sample)


def knobs() -> Iterator[Case]:
    """The knobs of a continuation, with the behaviour that they are there for."""
    for at, (style, behaviour, key, value) in enumerate(
        [
            (Style.PREFIX_FLAG, "echo", "echo", "always"),
            (Style.PREFIX_FLAG, "afresh", "echo", "always"),
            (Style.PREFIX_FLAG, "continue", "echo", "always"),
            (Style.PREFIX_FLAG, "differ", "echo", "always"),
            (Style.CONTINUE_FINAL, "continue", "echo", "never"),
            (Style.CONTINUE_FINAL, "differ", "echo", "never"),
            (Style.ASSISTANT_TAIL, "continue", "rstrip_prefix", True),
            (Style.ASSISTANT_TAIL, "strip", "rstrip_prefix", True),
            (Style.RESTART, "continue", "echo", "never"),
            (Style.RESTART, "continue", "echo", "always"),
        ]
    ):
        for sample in TEXTS if FULL else [TEXTS[at % len(TEXTS)]]:
            yield Case(style, behaviour, sample, ((key, value),))


def restarts() -> Iterator[Case]:
    """The original question, and an answer that begins anew."""
    for sample in TEXTS if FULL else TEXTS[:3]:
        yield Case(Style.RESTART, "continue", sample)


# -- what is right ---------------------------------------------------------------------------------


def expected(case: Case, committed_chars: int) -> str | None:
    """The canonical text, given what was committed; None for what nobody can tell."""
    text = case.sample.text
    committed, rest = text[:committed_chars], text[committed_chars:]
    if not committed or case.style is Style.RESTART:
        return text
    if case.behaviour == "differ" and rest:
        gap = rest[: len(rest) - len(rest.lstrip())]
        return committed + gap + OTHER
    if case.behaviour == "echo_tail":
        place = locate(committed, text, OTHER)
        assert place is not None
        said = BEHAVIOURS["echo_tail"](
            Resume(prefix=committed, place=place, whole=text, other=OTHER)
        )
        if len(said.removesuffix(rest).strip()) < MIN_ECHO_CHARS:
            return None  # too short a repetition to be told from an honest refrain
    return text


def check(case: Case, cut: int, answer: Answer) -> None:
    """The promises, for one answer."""
    check_contract(answer)
    facts = answer.metadata
    assert facts is not None
    failover = facts["failovers"][-1]
    committed = failover["committed_chars"]
    canonical = expected(case, committed)
    if canonical is None:
        return
    assert answer.canonical == canonical
    if case.behaviour != "differ":
        assert answer.delivered == case.sample.text
        assert facts["superseded"] == []
    for start, end in facts["superseded"]:
        # At most what was delivered and not committed, and what sets the new wording off.
        assert committed <= start < end
        assert end <= len("".join(tokenize(case.sample.text)[:cut])) + SEPARATOR_CHARS
    assert len(facts["superseded"]) <= 1


def check_request(case: Case, asked: RequestRecord, *, committed: bool) -> None:
    """The fallback was asked as its style says."""
    refused = case.behaviour == "refuse"
    if not committed or case.style is Style.RESTART:
        assert asked.style is None
        assert asked.body["messages"] == MESSAGES
    else:
        assert asked.style is (Style.INSTRUCT if refused else case.style)
        assert case.sample.text.startswith(asked.prefix)


async def ask(place: House, case: Case, cut: int) -> str | None:
    """One request, cut once; what was wrong with it, if anything."""
    primary, fallback = place.providers
    primary.set_faults(f"{('cut', 'rst')[cut % 2]}@{cut}")
    place.forget_refusals()
    before = place.asked(), place.asked(1)
    answer = await place.read()
    try:
        check(case, cut, answer)
        facts = answer.metadata or {}
        committed = facts["failovers"][-1]["committed_chars"] > 0
        refusals = case.behaviour == "refuse" and committed and case.style in PREFILLED
        assert (place.asked() - before[0], place.asked(1) - before[1]) == (1, 1 + refusals)
        check_request(case, fallback.requests[-1], committed=committed)
    except AssertionError as error:
        return f"{case.name}, cut after {cut}: {error}\n  {answer.metadata}"
    return None


async def run(case: Case) -> None:
    script = Script(text=case.sample.text, other_text=OTHER)
    async with house(
        case.sample.text,
        Conduct(prefix=case.behaviour),
        targets=[{}, case.target],
        route={"language": case.sample.language},
    ) as place:
        place.providers[1].manner.script = script
        wrong = [found for cut in case.cuts() if (found := await ask(place, case, cut))]
    assert not wrong, f"{len(wrong)} of {len(case.cuts())}:\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("case", [*matrix()], ids=lambda case: case.name)
async def test_every_style_with_every_behaviour(case: Case) -> None:
    await run(case)


@pytest.mark.parametrize("case", [*knobs()], ids=lambda case: case.name)
async def test_knobs(case: Case) -> None:
    await run(case)


@pytest.mark.parametrize("case", [*restarts()], ids=lambda case: case.name)
async def test_an_answer_that_begins_anew_is_aligned(case: Case) -> None:
    await run(case)


# -- restart that does not repeat, and none --------------------------------------------------------

TEXT = seeded(seed=3, chars=260)[0].text
CUTS = range(0, len(tokenize(TEXT)) + 1, 1 if FULL else 4)
DIFFERENT = Script(text=OTHER)


async def test_a_restart_that_does_not_repeat_is_an_error_with_everything_in_it() -> None:
    targets = [{}, {"continuation": {"style": "restart"}}]
    async with house(TEXT, DIFFERENT, targets=targets) as place:
        for cut in CUTS:
            place.providers[0].set_faults(f"cut@{cut}")
            heard = await place.hear()
            delivered = "".join(tokenize(TEXT)[:cut])
            committed = heard.facts["failovers"][0]["committed_chars"]
            if committed:
                assert heard.error is not None
                assert heard.error.code == "stream_interrupted"
                assert [one["fault"] for one in heard.facts["attempts"]] == ["cut", "diverged"]
                assert heard.delivered == delivered
                assert heard.finishes == []
            else:  # nothing to align with: the other wording takes over from the start
                assert heard.error is None
                assert heard.canonical == OTHER


async def test_after_a_restart_that_does_not_repeat_the_next_target_goes_on() -> None:
    targets = [{}, {"continuation": {"style": "restart"}}]
    async with house(TEXT, DIFFERENT, Conduct(), targets=targets) as place:
        for cut in CUTS:
            place.providers[0].set_faults(f"cut@{cut}")
            answer = await place.read()
            check_contract(answer)
            facts = answer.metadata
            assert facts is not None
            if facts["failovers"][0]["committed_chars"]:
                assert answer.delivered == TEXT
                assert [one["fault"] for one in facts["attempts"]] == ["cut", "diverged", None]


async def test_a_target_that_never_continues_is_asked_only_before_the_first_commit() -> None:
    none = {"continuation": {"style": "none"}}
    async with house(TEXT, Conduct(), targets=[none, none]) as place:
        for cut in CUTS:
            place.providers[0].set_faults(f"cut@{cut}")
            before = place.asked(1)
            heard = await place.hear()
            if place.asked(1) > before:
                assert heard.error is None
                assert heard.delivered == TEXT
                assert heard.facts["failovers"][0]["committed_chars"] == 0
            else:
                assert heard.error is not None
                assert heard.error.code == "stream_interrupted"
                assert [one["fault"] for one in heard.facts["attempts"]] == ["cut"]
                assert heard.delivered == "".join(tokenize(TEXT)[:cut])
                assert heard.finishes == []
        assert place.asked(1) < place.asked()  # both happened


async def test_past_a_target_that_never_continues_the_next_one_is_asked() -> None:
    none = {"continuation": {"style": "none"}}
    async with house(TEXT, Conduct(), Conduct(), targets=[none, none]) as place:
        for cut in CUTS:
            place.providers[0].set_faults(f"cut@{cut}")
            before = place.asked(1), place.asked(2)
            answer = await place.read()
            check_contract(answer)
            assert answer.delivered == TEXT
            facts = answer.metadata
            assert facts is not None
            committed = facts["failovers"][0]["committed_chars"] > 0
            asked = place.asked(1) - before[0], place.asked(2) - before[1]
            assert asked == ((0, 1) if committed else (1, 0))


async def test_a_refusal_is_remembered_and_never_shown() -> None:
    targets = [{}, {"continuation": {"style": "continue_final"}}]
    cut = len(tokenize(TEXT)) // 2
    async with house(TEXT, Conduct(prefix="refuse"), targets=targets) as place:
        place.providers[0].set_faults(f"cut@{cut}")
        for asked in (2, 3, 4):  # refused and asked in words; from then on in words at once
            heard = await place.hear()
            assert heard.error is None
            assert heard.delivered == TEXT
            assert place.asked(1) == asked
        styles = [one.style for one in place.providers[1].requests]
        assert styles == [Style.CONTINUE_FINAL, *[Style.INSTRUCT] * 3]
