"""The fault table of `docs/failures.md`: every row in every column, through the whole router.

For each: how often every provider was asked, how the client's stream ended, and what the books say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from fault_kit import (
    ACT,
    AFTER_CALL,
    AFTER_TEXT,
    LIMITS,
    TEXT,
    TOKENS,
    Stage,
    finished,
    route,
    staged,
    unfinished,
)
from support.caller import calling

from router.core.faults import FaultKind, Verdict
from router.engine.observe import TargetEjected
from router.simulate import Ended, Pace, RawAnswer, Script
from router.simulate.text import seeded_text

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = {
    "chat": route(1, 2),
    "three": route(1, 2, 3),
    "larger": route(1, 2, windows=(4096, 8192)),
    "smaller": route(1, 2, windows=(4096, 2048)),
    "unknown": route(1, 2, windows=(None, 8192)),
    "hasty": route(1, 2, timeouts=LIMITS | {"first_output_s": 2, "total_s": 6}),
    "prefilled": route(1, 2, 3, styles={2: "assistant_tail"}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Stage]:
    async with staged(routes=ROUTES) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="module")
async def stage(shared: Stage) -> Stage:
    await shared.rest()
    return shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of fault with one verdict.

    Args:
        faults: what the first provider does; `{at}` is where it strikes.
        kind: of the fault in the books, once something was delivered.
        verdict: in the books.
        first_kind: of the fault where nothing was delivered yet; None if it is the same.
        code: the provider's own, where the verdict is returned.
        retried: before the first output, the same target is asked once more.
    """

    faults: str
    kind: FaultKind
    verdict: Verdict = Verdict.TRANSIENT
    first_kind: FaultKind | None = None
    code: str = ""
    retried: bool = False


STREAM_ERROR = FaultKind.STREAM_ERROR
WAITED = {"kind": FaultKind.IDLE_TIMEOUT, "first_kind": FaultKind.FIRST_OUTPUT_TIMEOUT}

WEATHER = (
    Row(faults="cut@{at}", kind=FaultKind.CUT),
    Row(faults="rst@{at}", kind=FaultKind.CUT),
    Row(faults="no_finish@{at}", kind=FaultKind.TRUNCATED),
    Row(faults="done_early@{at}", kind=FaultKind.TRUNCATED),
    Row(faults="malformed@{at}", kind=FaultKind.MALFORMED),
    Row(faults="big_line@{at},size_bytes=9000000", kind=FaultKind.MALFORMED),
    Row(faults="stall@{at}", kind=WAITED["kind"], first_kind=WAITED["first_kind"]),
    Row(
        faults="keepalive_forever@{at},form=comment",
        kind=WAITED["kind"],
        first_kind=WAITED["first_kind"],
    ),
    Row(
        faults="keepalive_forever@{at},form=empty",
        kind=WAITED["kind"],
        first_kind=WAITED["first_kind"],
    ),
    Row(
        faults="keepalive_forever@{at},form=role",
        kind=WAITED["kind"],
        first_kind=WAITED["first_kind"],
    ),
    *(
        Row(faults=f"error@{{at}},status=503,form={form}", kind=STREAM_ERROR, retried=True)
        for form in ("object", "choices", "event", "string", "field", "flat")
    ),
    Row(faults="error_then_done@{at},status=500", kind=STREAM_ERROR, retried=True),
    Row(faults="error@{at},status=429", kind=STREAM_ERROR, retried=True),
    Row(
        faults="error@{at},code=overloaded_error,type=overloaded_error",
        kind=STREAM_ERROR,
        retried=True,
    ),
    *(
        Row(faults=f"finish_error@{{at}},reason={reason}", kind=STREAM_ERROR, retried=True)
        for reason in ("error", "network_error", "abort", "insufficient_system_resource")
    ),
)
"""Another target may well succeed."""

ACCOUNT = tuple(
    Row(
        faults=f"error@{{at}},status={status},code={code}",
        kind=STREAM_ERROR,
        verdict=Verdict.ACCOUNT,
    )
    for status, code in (
        (401, "invalid_api_key"),
        (402, "insufficient_quota"),
        (403, "permission_denied"),
        (404, "model_not_found"),
    )
)
"""The key, the money or the model's name, told in the stream."""

REQUEST = (
    Row(
        faults="error@{at},status=400,type=invalid_request_error,code=invalid_value,message=No.",
        kind=STREAM_ERROR,
        verdict=Verdict.REQUEST,
        code="invalid_value",
    ),
    Row(
        faults="error@{at},status=400,code=content_policy_violation,message=No.",
        kind=FaultKind.CONTENT_POLICY,
        verdict=Verdict.REQUEST,
        code="content_policy_violation",
    ),
)
"""A verdict on the request, told in the stream."""

TOO_LONG = Row(
    faults="error@{at},status=400,code=context_length_exceeded,message=No.",
    kind=FaultKind.CONTEXT_LENGTH,
    verdict=Verdict.REQUEST,
    code="context_length_exceeded",
)


def rows(*listed: Row) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", listed, ids=[row.faults for row in listed])


def noted(stage: Stage, *attempts: tuple[str, FaultKind | None], outcome: str) -> None:
    """The books: every attempt that was made, in order, and the outcome of the whole."""
    report = stage.report
    seen = [(one.target.partition("/")[0], one.fault and one.fault.kind) for one in report.attempts]
    assert seen == list(attempts)
    assert report.outcome == outcome
    assert bool(report.finish) == (outcome == "completed")


def alarmed(stage: Stage) -> list[bool]:
    return [one.alarm for one in stage.told(TargetEjected)]


# --- before the first output --------------------------------------------------------------------


@rows(*WEATHER, *ACCOUNT)
async def test_before_output_another_target_answers(stage: Stage, row: Row) -> None:
    stage.faults(row.faults.format(at=0))
    answer, _ = await stage.ask()
    finished(answer)
    assert stage.asked == (2 if row.retried else 1, 1, 0)
    first = ("p1", row.first_kind or row.kind)
    noted(stage, *[first] * stage.asked[0], ("p2", None), outcome="completed")
    assert stage.report.attempts[0].fault is not None
    assert stage.report.attempts[0].fault.verdict is row.verdict
    assert alarmed(stage) == [True] * (row.verdict is Verdict.ACCOUNT)
    assert answer.metadata is not None
    assert answer.headers["x-router-target"] == "p2/model-p2"


@rows(*REQUEST, TOO_LONG)
async def test_before_output_a_verdict_is_returned(stage: Stage, row: Row) -> None:
    stage.faults(row.faults.format(at=0))
    answer, _ = await stage.ask()
    assert answer.status == 400
    error = unfinished(answer, code=row.code)
    assert error["message"] == "No."
    assert answer.headers["x-should-retry"] == "false"
    assert stage.asked == (1, 0, 0)
    noted(stage, ("p1", row.kind), outcome=row.code)
    assert alarmed(stage) == []


# Faults of a response that is no stream.

REFUSED = FaultKind.CONNECT
STATUS = FaultKind.STATUS


@rows(
    Row(faults="refuse", kind=REFUSED),
    Row(faults="reset", kind=REFUSED),
    Row(faults="close", kind=REFUSED),
    Row(faults="silent", kind=FaultKind.FIRST_OUTPUT_TIMEOUT),
    Row(faults="slow_header", kind=FaultKind.FIRST_OUTPUT_TIMEOUT),
    Row(faults="role_then_silence", kind=FaultKind.FIRST_OUTPUT_TIMEOUT),
    Row(faults="html", kind=FaultKind.MALFORMED),
    Row(faults="html,content_type=text/event-stream", kind=FaultKind.MALFORMED),
    Row(faults="done_only", kind=FaultKind.TRUNCATED),
    Row(faults="redirect", kind=STATUS, verdict=Verdict.ACCOUNT),
    *(
        Row(faults=f"status={status}", kind=STATUS, retried=True)
        for status in (408, 409, 425, 429, 500, 502, 503, 504, 529)
    ),
    *(
        Row(faults=f"status={status}", kind=STATUS, verdict=Verdict.ACCOUNT)
        for status in (401, 402, 403, 404)
    ),
    Row(faults="unauthorized", kind=STATUS, verdict=Verdict.ACCOUNT),
    Row(faults="no_model", kind=STATUS, verdict=Verdict.ACCOUNT),
)
async def test_no_stream_another_target_answers(stage: Stage, row: Row) -> None:
    if row.faults == "refuse":
        stage.providers[0].go_down()
    else:
        stage.faults(row.faults)
    answer, _ = await stage.ask()
    finished(answer)
    # A connection that is refused leaves no trace with the provider.
    assert stage.asked == (0 if row.faults == "refuse" else 1 + row.retried, 1, 0)
    noted(stage, *[("p1", row.kind)] * (1 + row.retried), ("p2", None), outcome="completed")
    assert stage.report.attempts[0].fault is not None
    assert stage.report.attempts[0].fault.verdict is row.verdict
    assert alarmed(stage) == [True] * (row.verdict is Verdict.ACCOUNT)


@pytest.mark.parametrize("status", [400, 405, 413, 415, 422, 431, 451])
async def test_a_verdict_by_status_is_returned(stage: Stage, status: int) -> None:
    stage.faults(f"status={status},code=bad_thing,message=Not like this.,param=messages")
    answer, _ = await stage.ask()
    if status == 405:  # a wrong address, not a wrong request: docs/failures.md
        finished(answer)
        return
    assert answer.status == status
    error = unfinished(answer, code="bad_thing")
    assert (error["message"], error["param"]) == ("Not like this.", "messages")
    assert stage.asked == (1, 0, 0)
    noted(stage, ("p1", STATUS), outcome="bad_thing")


@pytest.mark.parametrize(
    ("name", "asked"), [("larger", (1, 1, 0)), ("smaller", (1, 0, 0)), ("unknown", (1, 0, 0))]
)
async def test_too_long_goes_only_to_a_larger_window(
    stage: Stage, name: str, asked: tuple[int, ...]
) -> None:
    stage.faults("context_length")
    answer, _ = await stage.ask(model=name)
    assert stage.asked == asked
    if asked[1]:
        finished(answer)
    else:
        assert answer.status == 400
        unfinished(answer, code="context_length_exceeded")


async def test_a_policy_is_never_routed_around(stage: Stage) -> None:
    stage.faults("content_policy")
    answer, _ = await stage.ask()
    assert answer.status == 400
    unfinished(answer, code="content_policy_violation")
    assert stage.asked == (1, 0, 0)
    noted(stage, ("p1", FaultKind.CONTENT_POLICY), outcome="content_policy_violation")


# --- after text ---------------------------------------------------------------------------------


@rows(*WEATHER, *ACCOUNT, TOO_LONG)
async def test_after_text_another_target_goes_on(stage: Stage, row: Row) -> None:
    stage.faults(row.faults.format(at=AFTER_TEXT))
    answer, _ = await stage.ask()
    finished(answer)
    assert answer.delivered == TEXT  # the same words, so nothing is sent twice
    assert stage.asked == (1, 1, 0)
    noted(stage, ("p1", row.kind), ("p2", None), outcome="completed")
    (continued,) = stage.requests(2)
    assert continued.prefix
    assert TEXT.startswith(continued.prefix)
    assert answer.headers["x-router-target"] == "p1/model-p1"
    assert alarmed(stage) == [True] * (row.verdict is Verdict.ACCOUNT)


@rows(*REQUEST)
async def test_after_text_a_verdict_ends_the_stream(stage: Stage, row: Row) -> None:
    stage.faults(row.faults.format(at=AFTER_TEXT))
    answer, _ = await stage.ask()
    error = unfinished(answer, code="stream_interrupted")
    assert "No" in error["message"]
    assert "the request's condition" in error["message"]
    assert TEXT.startswith(answer.delivered)
    assert answer.delivered == "".join(TOKENS[:AFTER_TEXT])
    assert stage.asked == (1, 0, 0)
    noted(stage, ("p1", row.kind), outcome="stream_interrupted")


CONTINUATIONS = (
    ("status=503", FaultKind.STATUS),
    ("status=429,retry_after=1", FaultKind.STATUS),
    ("unauthorized", FaultKind.STATUS),
    ("status=400,message=No idea what this is.", FaultKind.STATUS),
    ("context_length", FaultKind.CONTEXT_LENGTH),
    ("reset", FaultKind.CONNECT),
    ("silent", FaultKind.FIRST_OUTPUT_TIMEOUT),
    ("html", FaultKind.MALFORMED),
    ("cut@0", FaultKind.CUT),
    ("done_only", FaultKind.TRUNCATED),
    ("error@0,status=503", FaultKind.STREAM_ERROR),
)


@pytest.mark.parametrize(("fault", "kind"), CONTINUATIONS)
async def test_a_continuation_that_fails_goes_to_the_next(
    stage: Stage, fault: str, kind: FaultKind
) -> None:
    """The client never asked for it, so its fault is never the client's."""
    stage.faults(f"cut@{AFTER_TEXT}", fault)
    answer, _ = await stage.ask(model="three")
    finished(answer)
    assert answer.delivered == TEXT
    assert stage.asked == (1, 1, 1)
    noted(stage, ("p1", FaultKind.CUT), ("p2", kind), ("p3", None), outcome="completed")


async def test_a_refused_prefix_is_asked_for_in_words(stage: Stage) -> None:
    message = "This model does not support assistant message prefill."
    stage.faults(f"cut@{AFTER_TEXT}", f"status=400,times=1,message={message}")
    answer, _ = await stage.ask(model="prefilled")
    finished(answer)
    assert stage.asked == (1, 2, 0)
    assert [str(one.style) for one in stage.requests(2)] == ["assistant_tail", "instruct"]
    noted(
        stage,
        ("p1", FaultKind.CUT),
        ("p2", FaultKind.STATUS),
        ("p2", None),
        outcome="completed",
    )


async def test_all_fail_after_text(stage: Stage) -> None:
    stage.faults(f"cut@{AFTER_TEXT}", "status=503", "reset")
    answer, _ = await stage.ask(model="three")
    error = unfinished(answer, code="stream_interrupted")
    assert error["router"]["outcome"] == "stream_interrupted"
    # The last one that is left is asked again, until the budget of four attempts is spent.
    assert len(error["router"]["attempts"]) == 4
    assert answer.canonical == "".join(TOKENS[:AFTER_TEXT])
    assert sum(stage.asked) == 4


# --- after a tool call --------------------------------------------------------------------------


@rows(*WEATHER, *ACCOUNT, *REQUEST, TOO_LONG)
async def test_after_a_call_nobody_else_is_asked(stage: Stage, row: Row) -> None:
    stage.faults(row.faults.format(at=AFTER_CALL), script=ACT)
    answer, _ = await stage.ask()
    error = unfinished(answer, code="tool_call_interrupted")
    assert "tool" in error["message"]
    assert stage.asked == (1, 0, 0)
    noted(stage, ("p1", row.kind), outcome="tool_call_interrupted")


# --- in every column ----------------------------------------------------------------------------

COLUMNS = pytest.mark.parametrize(
    ("script", "at"),
    [(Script(text=TEXT), 0), (Script(text=TEXT), AFTER_TEXT), (ACT, AFTER_CALL)],
    ids=["before", "text", "call"],
)


@COLUMNS
async def test_a_finish_by_filter_is_passed_on(stage: Stage, script: Script, at: int) -> None:
    stage.faults(f"finish_error@{at},reason=content_filter", script=script)
    answer, _ = await stage.ask()
    assert answer.finish_reasons == ["content_filter"]
    assert answer.done == 1
    assert stage.asked == (1, 0, 0)
    noted(stage, ("p1", None), outcome="completed")


@COLUMNS
async def test_the_deadline_ends_it(stage: Stage, script: Script, at: int) -> None:
    stage.faults("-", "-", script=script)
    # The token before which it would be over comes once in two seconds.
    stage.providers[0].manner.pace = Pace(tokens_per_s=at / 5 if at else 1 / 1.5)
    if not at:
        stage.faults("keepalive_forever@0,form=comment", "silent")
    answer, call = await stage.ask(model="hasty")
    if at:
        error = unfinished(answer, code="deadline_exceeded")
        assert answer.delivered
        assert call.ended_s == pytest.approx(6, abs=0.01)
        assert stage.asked == (1, 0, 0)
    else:
        assert answer.status == 504
        error = unfinished(answer, code="deadline_exceeded")
        assert call.ended_s == pytest.approx(6)
        assert stage.asked == (1, 2, 0)  # two seconds each
    assert error["router"]["outcome"] == "deadline_exceeded"
    assert stage.report.outcome == "deadline_exceeded"


@COLUMNS
async def test_a_client_that_leaves_is_followed_at_once(
    stage: Stage, script: Script, at: int
) -> None:
    stage.faults(f"stall@{at}", script=script)
    marks = {0: "", AFTER_TEXT: TOKENS[AFTER_TEXT - 1].strip(), AFTER_CALL: "amount"}
    async with calling(stage.router.base_url, now_s=stage.clock.now_s) as call:
        if at:
            await stage.heard(call, marks[at])
        else:
            await stage.clock.settle()
        before_s = stage.clock.now_s()
        assert stage.asked == (1, 0, 0)
        await call.leave()
        assert await stage.ended(1) is Ended.CLIENT_CLOSED
        assert stage.clock.now_s() == before_s
    noted(stage, ("p1", FaultKind.CLIENT_GONE), outcome="client_gone")
    assert stage.asked == (1, 0, 0)


@pytest.mark.parametrize("fault", ["no_done", "cut_after_finish", "after_done_forever"])
@pytest.mark.parametrize("script", [Script(text=TEXT), ACT], ids=["text", "call"])
async def test_a_finish_that_was_seen_is_an_end(stage: Stage, fault: str, script: Script) -> None:
    stage.faults(fault, script=script)
    answer, _ = await stage.ask()
    assert answer.finish_reasons == ["tool_calls" if script is ACT else "stop"]
    assert (answer.done, answer.error) == (1, None)
    assert stage.asked == (1, 0, 0)
    noted(stage, ("p1", None), outcome="completed")


async def test_an_empty_answer_is_an_answer(stage: Stage) -> None:
    """A finish without a word is what the model said."""
    stage.faults(script=Script(text=""))
    answer, _ = await stage.ask()
    assert answer.finish_reasons == ["stop"]
    assert answer.done == 1
    assert stage.asked == (1, 0, 0)


async def test_an_empty_body_is_none(stage: Stage) -> None:
    stage.providers[0].manner.raw = RawAnswer(body=b"")
    answer, _ = await stage.ask()
    finished(answer)
    noted(stage, ("p1", FaultKind.TRUNCATED), ("p2", None), outcome="completed")


@pytest.mark.parametrize(
    ("faults", "status", "code"),
    [
        (("status=503", "status=500"), 502, "all_targets_failed"),
        (("rate_limit,retry_after=30", "rate_limit,retry_after=40"), 429, "all_targets_failed"),
        (("silent", "silent"), 504, "all_targets_failed"),
        (("reset", "refuse"), 503, "all_targets_failed"),
        (("cut@0", "no_finish@0"), 502, "all_targets_failed"),
        (("unauthorized", "no_model"), 502, "all_targets_failed"),
    ],
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "blocking"])
async def test_when_all_fail_the_status_is_real(
    stage: Stage, faults: tuple[str, str], status: int, code: str, *, stream: bool
) -> None:
    stage.faults(*faults)
    answer, _ = await stage.ask(stream=stream)
    assert answer.status == status
    unfinished(answer, code=code)
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers.get("retry-after") == ("40" if status == 429 else None)
    assert stage.report.outcome == code
    unseen = 2 if "refuse" in faults else 0  # nobody saw what was refused at the door
    assert len(stage.report.attempts) == sum(stage.asked) + unseen


async def test_a_blocking_request_fails_over_unseen(stage: Stage) -> None:
    stage.faults(f"cut@{AFTER_TEXT}")
    answer, _ = await stage.ask(stream=False)
    assert answer.status == 200
    assert TEXT in answer.raw.decode()
    assert stage.asked == (1, 1, 0)


async def test_a_long_text_is_not_doubled_by_many_faults(stage: Stage) -> None:
    text = seeded_text("many faults", 2_500)
    stage.faults("cut@150", "stall@100", "error@60,status=503", script=Script(text=text))
    answer, _ = await stage.ask(model="three")
    # Three targets broke; the last one is asked again, and breaks at its sixtieth token again.
    error = unfinished(answer, code="stream_interrupted")
    assert len(error["router"]["attempts"]) == 4
    assert text.startswith(answer.canonical)
    assert len(answer.canonical) > 600
