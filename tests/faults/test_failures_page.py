"""`docs/failures.md` is held to the code: no fault, code or word is missing from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from router.core.failover import RULES, RULES_TEXT, Want
from router.core.faults import FaultKind, Verdict
from router.engine import attempt, gaps, health, upstream
from router.wire.reports import FAILURE_FINISHES

PAGE = (Path(__file__).parents[2] / "docs" / "failures.md").read_text("utf-8")
TABLE = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("## The table")[2].partition("### ")[0].splitlines()
    if line.startswith("| `")
]


@pytest.mark.parametrize("kind", FaultKind)
def test_every_fault_has_a_row(kind: FaultKind) -> None:
    assert [row for row in TABLE if row[0].startswith(f"`{kind.value}`")]


WORDS = {
    Want.RETRY: "same target once more|as `status`, passing",
    Want.NEXT: "next target|as `status`, account",
    Want.LARGER: "larger",
    Want.INSTRUCT: "instruct",
    Want.RETURN: "returned|error",
}
VERDICTS = {
    "passing": Verdict.TRANSIENT,
    "account": Verdict.ACCOUNT,
    "request": Verdict.REQUEST,
}


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_a_row_says_what_the_rules_say(row: list[str]) -> None:
    name, _, word = row[0].partition(", ")
    kind = FaultKind(name.strip("`"))
    if kind in (FaultKind.CLIENT_GONE, FaultKind.HEDGED):
        return  # nothing is decided: nobody listens, or another goes on
    verdict = VERDICTS.get(word, Verdict.TRANSIENT)
    for rules, cell in ((RULES, row[2]), (RULES_TEXT, row[3])):
        if cell != "–":
            said = {"the same": row[2]}.get(cell, cell).replace("resume", "next target")
            assert re.search(WORDS[rules[kind][verdict]], said), cell


@pytest.mark.parametrize("word", sorted(FAILURE_FINISHES))
def test_every_finish_that_is_a_failure_is_named(word: str) -> None:
    assert f"`{word}`" in PAGE


def test_every_code_is_named() -> None:
    source = (Path(attempt.__file__).parent / "failures.py").read_text("utf-8")
    codes = set(re.findall(r'code="(\w+)"', source))
    codes |= set(re.findall(r'code="(\w+)" if', source))
    assert len(codes) > 4
    assert [code for code in codes if f"`{code}`" not in PAGE] == []


def test_the_numbers_are_those_of_the_code() -> None:
    assert attempt.FINISH_GRACE_S == 0.5
    assert upstream.MAX_CODED_BODY_BYTES == 64 << 20
    policy = health.HealthPolicy()
    assert (policy.eject_after, policy.cool_down_s, policy.max_cool_down_s) == (3, 10, 30)
    assert (policy.eject_rate, health.RATE_WINDOW, health.MIN_RATE_ATTEMPTS) == (0.5, 20, 10)
    assert (gaps.SAMPLES, gaps.MIN_SAMPLES, gaps.QUANTILE) == (64, 8, 0.5)
    assert (gaps.FACTOR, gaps.FLOOR_S) == (5, 0.25)
