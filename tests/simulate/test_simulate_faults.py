from __future__ import annotations

import re
from pathlib import Path

import pytest

from router.simulate import (
    Dialect,
    FaultSpec,
    Misdeed,
    parse_dialect,
    parse_directives,
    parse_fault,
)
from router.simulate.casting import FaultPlan


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("cut@40", FaultSpec(kind=Misdeed.CUT, at=40)),
        ("stall@30,for_s=2.5", FaultSpec(kind=Misdeed.STALL, at=30, for_s=2.5)),
        (
            "status=429,retry_after=2,times=1",
            FaultSpec(kind=Misdeed.STATUS, status=429, retry_after="2", times=1),
        ),
        ("refuse,until_s=60", FaultSpec(kind=Misdeed.REFUSE, until_s=60.0)),
        ("no_finish,requests=2-4", FaultSpec(kind=Misdeed.NO_FINISH, requests=(2, 4))),
        ("error@1,message=a%2Cb%3B", FaultSpec(kind=Misdeed.ERROR, at=1, message="a,b;")),
    ],
)
def test_a_fault_is_read(text: str, spec: FaultSpec) -> None:
    assert parse_fault(text) == spec


PAGE = Path(__file__).parents[2] / "docs" / "simulate.md"


def test_the_documented_orders_are_orders_and_none_is_missing() -> None:
    orders_alone = PAGE.read_text("utf-8").split("## How it continues")[0]
    rows = [line.split("|")[1] for line in orders_alone.splitlines() if "| `" in line]
    words = [word for row in rows for word in re.findall(r"`([^`]+)`", row)]
    orders = [parse_directives(word) for word in words]
    assert {fault.kind for order in orders for fault in order.faults} == {*Misdeed}


def test_the_documented_conducts_are_conducts() -> None:
    conducts = PAGE.read_text("utf-8").split("## How it continues")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in conducts.splitlines() if line.startswith("| `")]
    words = [word for row in rows for word in re.findall(r"`([^`]+)`", row)]
    assert len(words) > 5
    for word in words:
        parse_directives(f"prefix={word}")


@pytest.mark.parametrize("kind", list(Misdeed))
def test_every_misdeed_has_a_word(kind: Misdeed) -> None:
    assert parse_fault(kind.value).kind is kind


def test_an_alias_takes_keys() -> None:
    fault = parse_fault("context_length,times=2")
    assert (fault.status, fault.code, fault.times) == (400, "context_length_exceeded", 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("explode@3", "Unknown fault 'explode'"),
        ("cut@many", "cut@many: behind the @ stands a whole number"),
        ("cut,speed=3", "Unknown key 'speed'"),
        ("cut,times=x", "times=x: behind the = stands"),
    ],
)
def test_nonsense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_directives(text)


def test_directives_hold_faults_and_settings() -> None:
    read = parse_directives("prefix=echo; cut@3 ;tokens_per_s=50;first_token_s=0.2;reset,times=1")
    assert [fault.kind for fault in read.faults] == [Misdeed.CUT, Misdeed.RESET]
    assert (read.prefix, read.tokens_per_s, read.first_token_s) == ("echo", 50.0, 0.2)
    assert parse_directives("-") == parse_directives("")


def strikes(fault: str, count: int, elapsed_s: float = 0.0) -> list[bool]:
    plan, spec = FaultPlan(None), parse_fault(fault)
    return [plan.strike([spec], elapsed_s) is spec for _ in range(count)]


def test_a_fault_is_limited_by_count_window_and_time() -> None:
    assert strikes("cut", 3) == [True] * 3
    assert strikes("cut,times=1", 3) == [True, False, False]
    assert strikes("cut,requests=1-2", 4) == [False, True, True, False]
    assert strikes("cut,requests=1", 3) == [False, True, False]
    assert strikes("cut,until_s=60", 1, elapsed_s=59.9) == [True]
    assert strikes("cut,until_s=60", 1, elapsed_s=60) == [False]
    assert strikes("cut,from_s=60", 1, elapsed_s=59.9) == [False]


def test_the_first_fault_that_applies_strikes() -> None:
    plan = FaultPlan("reset,times=1;cut@3")
    faults = plan.orders(0, "", "").faults
    struck = [plan.strike(faults, 0) for _ in range(2)]
    assert [fault.kind for fault in struck if fault] == [Misdeed.RESET, Misdeed.CUT]


def test_header_comes_before_name_comes_before_server() -> None:
    plan = FaultPlan(["-", "reset;prefix=afresh;tokens_per_s=1"])
    orders = plan.orders(1, "cut@1!prefix=echo", "stall;prefix=strip")
    assert [fault.kind for fault in orders.faults] == [Misdeed.STALL, Misdeed.CUT, Misdeed.RESET]
    assert (orders.prefix, orders.tokens_per_s) == ("strip", 1.0)
    assert plan.orders(0, "", "").faults == plan.orders(2, "", "").faults == ()


def test_a_dialect_is_read() -> None:
    read = parse_dialect("crlf,no_space,tokens_per_chunk=4,finish_word=eos,bom=false")
    assert read == Dialect(line_end="\r\n", no_space=True, tokens_per_chunk=4, finish_word="eos")


@pytest.mark.parametrize("words", ["loud", "line_end=x", "tokens_per_chunk=many"])
def test_an_unknown_shape_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r"Unknown shape|is a number"):
        parse_dialect(words)
