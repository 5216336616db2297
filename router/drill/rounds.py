"""The drill itself: for each pair of targets the uncut answer, two accidents, and the books."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from router.config import Config
from router.drill.advice import Pair
from router.drill.findings import (
    AFTER,
    BEFORE,
    UNCUT,
    Finding,
    before,
    books,
    midst,
    no_control,
    unstreamed,
)
from router.drill.judge import Mark, worst
from router.drill.question import Question
from router.drill.relay import Cut
from router.drill.stage import Round, Stage, set_stage


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResult:
    """One pair, drilled.

    Args:
        pair: who.
        control: the uncut answer.
        rounds: every request by its name, in order.
        findings: the answers to the questions, in order.
    """

    pair: Pair
    control: Round
    rounds: dict[str, Round]
    findings: tuple[Finding, ...]

    @property
    def mark(self) -> Mark:
        """The worst of the three."""
        return worst([one.mark for one in self.findings])


async def drill(
    config: Config, route: str, pairs: Sequence[tuple[int, int]], question: Question, after: int
) -> AsyncIterator[PairResult]:
    """Drill pair by pair.

    Args:
        config: the owner's.
        route: the public model name.
        pairs: positions of the target that is cut and of the one that goes on.
        question: what is asked.
        after: tokens after which it is cut in mid-answer.

    Yields:
        Each pair's result, as soon as it is there.
    """
    controls: dict[int, Round] = {}
    for cut, goes_on in pairs:
        pair = Pair(config=config, route=route, cut=cut, goes_on=goes_on)
        async with set_stage(config, route, cut, goes_on) as stage:
            asker = _Asker(stage, question)
            if cut not in controls:
                controls[cut] = await asker.ask()
            result = await _drill_pair(pair, asker, controls[cut], after)
            question = asker.question
        yield result


class _Asker:
    """Asks, and leaves out a field that a provider refuses.

    Args:
        stage: where.
        question: what; its present wording is kept.
    """

    def __init__(self, stage: Stage, question: Question) -> None:
        self._stage = stage
        self.question = question

    async def ask(self, cut: Cut | None = None) -> Round:
        """One round; asked again, once per field, after such a refusal."""
        while True:
            told = await self._stage.ask(self.question, cut)
            other = None if told.finished else self.question.reworded(told.faults)
            if other is None:
                return told
            self.question = other


def answered_by(told: Round, target: str) -> bool:
    """The client has a whole answer, and it is that target's.

    Args:
        told: the round.
        target: its name.
    """
    return told.finished and told.report.attempts[-1].target == target


async def _drill_pair(pair: Pair, asker: _Asker, control: Round, after: int) -> PairResult:
    name = pair.victim.name
    rounds = {UNCUT: control}
    if not answered_by(control, name):
        failed = (*no_control(pair, control), books(pair, rounds))
        return PairResult(pair=pair, control=control, rounds=rounds, findings=failed)
    first = rounds[BEFORE] = await asker.ask(Cut(after_texts=0, how="fin", returns=pair.alone))
    findings = [before(pair, first)]
    texts = control.seen[-1].texts if control.seen else 0
    place = after if texts > after else texts // 2
    if place:
        rounds[AFTER] = await asker.ask(Cut(after_texts=place, returns=pair.alone))
        findings.append(midst(pair, rounds, place, after))
    else:
        findings.append(unstreamed(pair, texts))
    findings.append(books(pair, rounds))
    return PairResult(pair=pair, control=control, rounds=rounds, findings=tuple(findings))
