"""How a stream that cannot go on is explained to its client: status, code, and a sentence.

The sentence says what happened, at which provider, whose condition it is, and what can be done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from router.core.failover import GiveUp, Refuse, Return
from router.core.faults import Fault, FaultKind
from router.engine.report import AttemptReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the client is told.

    Args:
        status: HTTP status, should nothing have been sent yet.
        type: OpenAI's error type.
        code: why, as a stable word; the provider's own for a verdict on the request.
        message: a sentence a person can act on.
        param: the request field at fault, or None.
        retry_after_s: when a new try makes sense, or None.
    """

    status: int
    type: str
    code: str | None
    message: str
    param: str | None = None
    retry_after_s: float | None = None


_STATUS_BY_KIND = {
    FaultKind.FIRST_OUTPUT_TIMEOUT: 504,
    FaultKind.IDLE_TIMEOUT: 504,
    FaultKind.CONNECT: 503,
}
"""For a request that no target answered; 502 where the table says nothing."""

_SEEN_AS = {
    FaultKind.CONNECT: "could not be reached",
    FaultKind.STATUS: "answered with an error",
    FaultKind.CONTEXT_LENGTH: "says the request is too long for its model",
    FaultKind.CONTENT_POLICY: "refused the content",
    FaultKind.FIRST_OUTPUT_TIMEOUT: "sent no output in time",
    FaultKind.IDLE_TIMEOUT: "fell silent in mid-answer",
    FaultKind.CUT: "closed the connection in mid-answer",
    FaultKind.TRUNCATED: "ended its stream without a finish",
    FaultKind.STREAM_ERROR: "reported an error in its stream",
    FaultKind.MALFORMED: "sent something that is no answer",
    FaultKind.DIVERGED: "answered anew instead of going on",
    FaultKind.SCHEMA_VIOLATION: "broke the requested schema",
    FaultKind.BOUNDARY_REJECTED: "wrote what the route's check rejects",
    FaultKind.DEADLINE: "had not finished when the time was over",
    FaultKind.CLIENT_GONE: "was no longer needed",
    FaultKind.ABANDONED: "was given up by the router itself",
    FaultKind.HEDGED: "was asked beside another target, which went on",
}


_UNFIT = frozenset({FaultKind.SCHEMA_VIOLATION, FaultKind.BOUNDARY_REJECTED})
"""Kinds that say of the answer itself that it is not what was asked for."""


def explain(
    fault: Fault | None,
    action: Return | Refuse | GiveUp,
    attempts: Sequence[AttemptReport],
    *,
    begun: bool,
    tools: str = "",
    sealed: str = "",
    passed_over: Mapping[str, str] | None = None,
) -> Explanation:
    """Put a failure into words.

    Args:
        fault: the last one, or None if another router took over.
        action: what was decided.
        attempts: every upstream call.
        begun: something was delivered already.
        tools: the tool calls that were delivered or that the provider ran, as a clause.
        sealed: what else was delivered that no other provider can take up, as a clause.
        passed_over: targets that could not be asked at all, and what they cannot be told.

    Returns:
        What the client is told.
    """
    told = _explain(fault, action, attempts, begun=begun, tools=tools, sealed=sealed)
    if passed_over and told.code in _MIGHT_HAVE_HELPED:
        left_out = ", ".join(f"'{name}' ({what})" for name, what in passed_over.items())
        more = f" Not asked, since they cannot be told all of this request: {left_out}."
        return replace(told, message=told.message + more)
    return told


_MIGHT_HAVE_HELPED = frozenset({"all_targets_failed", "stream_interrupted", "schema_violation"})
"""Ends that another target could have averted."""


def _explain(
    fault: Fault | None,
    action: Return | Refuse | GiveUp,
    attempts: Sequence[AttemptReport],
    *,
    begun: bool,
    tools: str,
    sealed: str,
) -> Explanation:
    if fault is None:
        return _fenced()
    if isinstance(action, GiveUp) and action.reason == "partial":
        return Explanation(
            status=502,
            type="server_error",
            code="partial_complete",
            message=f"The answer broke off. {_what(fault, attempts)} "
            "What was delivered stands, as was asked for.",
        )
    if isinstance(action, GiveUp) and action.reason == "deadline":
        return _too_late(fault, attempts, tools)
    if isinstance(action, Refuse) and (tools or fault.kind not in _UNFIT):
        return _refused(fault, attempts, tools, sealed)
    if begun or fault.kind in _UNFIT:
        unfit = fault.kind in _UNFIT
        return _unfit(fault, attempts, begun=begun) if unfit else _broken_off(fault, attempts)
    return _returned(fault) if isinstance(action, Return) else _nobody(fault, attempts)


def _too_late(fault: Fault, attempts: Sequence[AttemptReport], tools: str) -> Explanation:
    return Explanation(
        status=504,
        type="server_error",
        code="deadline_exceeded",
        message=f"The time allowed for this request is over. {_what(fault, attempts)}"
        f"{_called(tools)}",
    )


def _broken_off(fault: Fault, attempts: Sequence[AttemptReport]) -> Explanation:
    return Explanation(
        status=502,
        type="server_error",
        code="stream_interrupted",
        message=f"The answer broke off and could not be continued. {_what(fault, attempts)} "
        "What was delivered is incomplete.",
    )


def _fenced() -> Explanation:
    return Explanation(
        status=409,
        type="server_error",
        code="record_fenced",
        message="Another router has taken this stream over; this connection is closed.",
    )


def _refused(
    fault: Fault, attempts: Sequence[AttemptReport], tools: str, sealed: str
) -> Explanation:
    why = (
        f"A tool had been called, {tools}, so the answer was not handed to another provider: "
        "the tool may have run."
        if tools
        else f"What had been delivered is {sealed}, and another provider cannot take that up."
    )
    return Explanation(
        status=502,
        type="server_error",
        code="tool_call_interrupted" if tools else "stream_interrupted",
        message=f"The answer broke off. {_what(fault, attempts)} {why}",
    )


def _unfit(fault: Fault, attempts: Sequence[AttemptReport], *, begun: bool) -> Explanation:
    """No target could bring the answer to an end that is what was asked for."""
    rejected = fault.kind is FaultKind.BOUNDARY_REJECTED
    stands = "incomplete, and its end rejected" if rejected else "valid and incomplete"
    delivered = f"What was delivered is {stands}." if begun else "Nothing was delivered."
    return Explanation(
        status=502,
        type="server_error",
        code=fault.kind.value,
        message=f"The answer could not be brought to a valid end in {len(attempts)} attempt(s). "
        f"{_what(fault, attempts)} {delivered}",
    )


def _called(tools: str) -> str:
    return f" A tool had been called, {tools}: it may have run." if tools else ""


def _returned(fault: Fault) -> Explanation:
    """A verdict on the request: the provider's own reason, under its own status."""
    status = fault.status if fault.status and 400 <= fault.status < 600 else 400
    return Explanation(
        status=status,
        type=fault.type or "invalid_request_error",
        code=fault.code or (None if fault.kind is FaultKind.STATUS else fault.kind.value),
        message=fault.message or "The provider refused the request without saying why.",
        param=fault.param or None,
    )


def _nobody(fault: Fault, attempts: Sequence[AttemptReport]) -> Explanation:
    limited = fault.status == 429
    return Explanation(
        status=429 if limited else _STATUS_BY_KIND.get(fault.kind, 502),
        type="rate_limit_error" if limited else "server_error",
        code="all_targets_failed",
        message=f"No provider gave an answer, in {len(attempts)} attempt(s). "
        f"{_what(fault, attempts)}",
        retry_after_s=fault.retry_after_s,
    )


def _what(fault: Fault, attempts: Sequence[AttemptReport]) -> str:
    """Who did what, whose condition it is, and in the provider's own words."""
    who = f"'{attempts[-1].target}'" if attempts else "The provider"
    said = f": {fault.message.rstrip('.')}" if fault.message else ""
    status = f" (HTTP {fault.status})" if fault.status else ""
    return f"{who} {_SEEN_AS[fault.kind]}{status}{said} (the {fault.condition}'s condition)."
