"""A report as a row: the one form in which the log, the books and every counter see a request.

A row holds no text of a prompt or an answer. What a provider says of itself (its model's name, its
error, its usage) is cut to a bound here, so that no peer decides how long a row is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from router.core.faults import Fault, FaultKind
from router.engine.report import AttemptReport, FailoverReport, StreamReport

MAX_NAME_CHARS = 256
"""Bound on a model's name as the provider reports it; real ones have some dozens."""

MAX_WORD_CHARS = 100
"""Bound on an error code."""

MAX_REASON_CHARS = 500
"""Bound on a provider's own words; they were redacted where they were read."""

MAX_ROW_BYTES = 65_536
"""Bound on a row that is kept. A usual one has one or two kilobytes; one with a hundred attempts
that each have a long story loses the stories."""

OUTCOMES: Mapping[str, str] = {
    "completed": "the client got a finish",
    "client_gone": "the client left first",
    "router_stopped": "the router was stopped, and said so",
    "internal_error": "the router has a bug, and said so",
    "refused": "a provider's verdict on the request was passed on",
    "all_targets_failed": "no target gave any output",
    "stream_interrupted": "the answer broke off and could not be continued",
    "tool_call_interrupted": "it broke off after a tool call was delivered",
    "schema_violation": "structured output broke its schema",
    "boundary_rejected": "the route's check rejected what was written",
    "deadline_exceeded": "the time allowed was over",
    "record_fenced": "another router took the stream over",
    "partial_complete": "what was delivered stands, by the client's choice",
}
"""How a request may end: a closed set, since it is a label of counters."""

_HOW_IT_ENDED: Mapping[FaultKind | None, str] = {
    None: "completed",
    FaultKind.HEDGED: "hedged",
    FaultKind.CLIENT_GONE: "abandoned",
    FaultKind.ABANDONED: "abandoned",
}
"""Of an attempt; every other fault makes it `failed`."""

_USAGE_FIELDS = ("prompt_tokens", "completion_tokens", "total_tokens")
_USAGE_DETAILS = (
    ("prompt_tokens_details", "cached_tokens"),
    ("completion_tokens_details", "reasoning_tokens"),
)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt.

    Args:
        number: position in its stream, from 1.
        target: name of the target.
        model: as the provider reported it, else as it was asked for.
        style: continuation style, or "" for an original request.
        outcome: `completed`; `failed`; `hedged`, another attempt spoke first; `abandoned`, nobody
            needed it any more.
        fault: kind of the fault, or None.
        verdict: what the fault says about a next try, or None.
        condition: whose condition it is, `request`, `account` or `provider`, or None.
        status: HTTP status of the fault, or None.
        code: the provider's word for it, or "".
        reason: the provider's words, redacted, or "".
        started_ms: since the request.
        first_output_ms: since the attempt's start, or None.
        last_output_ms: the same.
        duration_ms: from its start to its end.
        chunks: events with output.
        output_chars: characters of text.
        reasoning_chars: characters of reasoning.
        usage: token counts.
        usage_estimated: the provider reported none.
    """

    number: int
    target: str
    model: str
    style: str
    outcome: str
    fault: str | None
    verdict: str | None
    condition: str | None
    status: int | None
    code: str
    reason: str
    started_ms: float
    first_output_ms: float | None
    last_output_ms: float | None
    duration_ms: float
    chunks: int
    output_chars: int
    reasoning_chars: int
    usage: dict[str, int]
    usage_estimated: bool


class Handover(
    msgspec.Struct, frozen=True, kw_only=True, rename={"from_target": "from", "to_target": "to"}
):
    """One change of target after output.

    Args:
        from_target: who failed.
        to_target: who went on.
        fault: kind of the fault.
        style: how the next one was asked.
        committed_chars: length of the prefix.
        join: how the seam was explained, "" if it never came to one.
        pause_ms: what the client waited, or None.
    """

    from_target: str
    to_target: str
    fault: str
    style: str
    committed_chars: int
    join: str
    pause_ms: float | None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    Args:
        stream_id: its id.
        route: the public model name.
        outcome: a key of `OUTCOMES`.
        code: the error code under which it ended, a provider's for a verdict; "" where it is whole.
        finish: the finish reason, or "".
        started_unix_s: wall-clock time of the request.
        ended_unix_s: and of its end.
        duration_ms: between the two.
        first_output_ms: from the request to the first output, or None.
        delivered_chars: length of the delivered text.
        superseded_chars: how much of it is not part of the answer.
        superseded: the ranges.
        committed_chars: length of the committed text.
        boundaries: number of commits.
        usage: token counts, summed over the attempts.
        attempts: every upstream call, in order.
        failovers: every change after output, in order.
        resumed_from: of a resumed stream, the delivered offset at which it started, else None.
        replica: which router answered; "" in the log, which knows by its place.
    """

    stream_id: str
    route: str
    outcome: str
    code: str
    finish: str
    started_unix_s: float
    ended_unix_s: float
    duration_ms: float
    first_output_ms: float | None
    delivered_chars: int
    superseded_chars: int
    superseded: tuple[tuple[int, int], ...]
    committed_chars: int
    boundaries: int
    usage: dict[str, int]
    attempts: tuple[Entry, ...]
    failovers: tuple[Handover, ...]
    resumed_from: int | None
    replica: str = ""


def row_of(report: StreamReport, *, replica: str = "") -> Row:
    """A request as a row.

    Args:
        report: how it went.
        replica: which router answered.
    """
    return Row(
        stream_id=report.stream_id,
        route=report.route,
        outcome=_outcome(report),
        code="" if report.finish else report.outcome[:MAX_WORD_CHARS],
        finish=report.finish,
        started_unix_s=round(report.started_unix_s, 3),
        ended_unix_s=round(report.started_unix_s + report.duration_ms / 1000, 3),
        duration_ms=round(report.duration_ms, 1),
        first_output_ms=_ms(report.first_output_ms),
        delivered_chars=report.delivered_chars,
        superseded_chars=sum(end - start for start, end in report.superseded),
        superseded=report.superseded,
        committed_chars=report.committed_chars,
        boundaries=report.boundaries,
        usage=_counts(report.usage),
        attempts=tuple(entry_of(one) for one in report.attempts),
        failovers=tuple(handover_of(one) for one in report.failovers),
        resumed_from=report.resumed_from,
        replica=replica,
    )


def entry_of(report: AttemptReport) -> Entry:
    """An attempt as an entry.

    Args:
        report: how it went.
    """
    fault = report.fault
    return Entry(
        number=report.number,
        target=report.target,
        model=report.model[:MAX_NAME_CHARS],
        style=report.style,
        outcome=_HOW_IT_ENDED.get(fault.kind if fault else None, "failed"),
        **fault_fields(fault),
        started_ms=round(report.started_ms, 1),
        first_output_ms=_ms(report.first_output_ms),
        last_output_ms=_ms(report.last_output_ms),
        duration_ms=round(report.duration_ms, 1),
        chunks=report.chunks,
        output_chars=report.output_chars,
        reasoning_chars=report.reasoning_chars,
        usage=_counts(report.usage),
        usage_estimated=report.usage_estimated,
    )


def handover_of(report: FailoverReport) -> Handover:
    """A failover as part of a row.

    Args:
        report: how it went.
    """
    return Handover(
        from_target=report.from_target,
        to_target=report.to_target,
        fault=report.fault.kind.value,
        style=report.style,
        committed_chars=report.committed_chars,
        join=report.join,
        pause_ms=_ms(report.pause_ms),
    )


def fault_fields(fault: Fault | None) -> dict[str, Any]:
    """A fault as the fields of an entry.

    Args:
        fault: or None.
    """
    return {
        "fault": fault.kind.value if fault else None,
        "verdict": fault.verdict.value if fault else None,
        "condition": fault.condition if fault else None,
        "status": fault.status if fault else None,
        "code": fault.code[:MAX_WORD_CHARS] if fault else "",
        "reason": fault.message[:MAX_REASON_CHARS] if fault else "",
    }


def encode(row: Row) -> bytes:
    """A row as JSON.

    Args:
        row: without a bound of its own on the number of attempts.

    Returns:
        At most `MAX_ROW_BYTES`: a longer one loses its reasons, then its failovers and attempts
        but for the last ones.
    """
    whole = msgspec.json.encode(row)
    if len(whole) <= MAX_ROW_BYTES:
        return whole
    entries = tuple(msgspec.structs.replace(one, reason="", code="") for one in row.attempts)
    kept = len(entries)
    while len(whole) > MAX_ROW_BYTES and kept:
        row = msgspec.structs.replace(
            row,
            attempts=entries[-kept:],
            failovers=row.failovers[-kept:],
            superseded=row.superseded[-kept:],
        )
        whole = msgspec.json.encode(row)
        kept //= 2
    return whole


def _outcome(report: StreamReport) -> str:
    """One of our own words. A verdict is reported under the provider's word, which may be any: even
    `completed`, which nothing may be called that had no finish."""
    known = report.outcome in OUTCOMES and (report.outcome != "completed" or report.finish)
    return report.outcome if known else "refused"


def _counts(usage: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of a usage object, under OpenAI's names; its other fields may be anything."""
    counts = {name: usage.get(name) for name in _USAGE_FIELDS}
    for group, name in _USAGE_DETAILS:
        details = usage.get(group)
        counts[name] = details.get(name) if isinstance(details, Mapping) else None
    return {name: value for name, value in counts.items() if _is_count(value)}  # type: ignore[misc] # as checked


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
