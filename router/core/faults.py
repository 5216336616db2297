"""Faults: why an attempt ended badly, as facts without a decision.

What is done about a fault is decided in `core/failover.py`; who recognises it is the provider's row
(`providers/`), the wire reader (`wire/`) or the engine's clocks (`engine/attempt.py`).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class FaultKind(StrEnum):
    """The kinds of the fault table (`docs/failures.md`)."""

    CONNECT = "connect"
    STATUS = "status"
    CONTEXT_LENGTH = "context_length"
    CONTENT_POLICY = "content_policy"
    FIRST_OUTPUT_TIMEOUT = "first_output_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    CUT = "cut"
    TRUNCATED = "truncated"
    STREAM_ERROR = "stream_error"
    MALFORMED = "malformed"
    DIVERGED = "diverged"
    SCHEMA_VIOLATION = "schema_violation"
    BOUNDARY_REJECTED = "boundary_rejected"
    DEADLINE = "deadline"
    CLIENT_GONE = "client_gone"
    HEDGED = "hedged"
    ABANDONED = "abandoned"


class Verdict(StrEnum):
    """What a fault says about the next try; decided by table where the fault is recognised."""

    TRANSIENT = "transient"
    """Weather: the same request may succeed, here or elsewhere."""
    ACCOUNT = "account"
    """The key, the quota or the model name: this target will not serve until a person acts."""
    REQUEST = "request"
    """A judgement on the request itself: no target would serve it, so it is returned."""
    PREFIX_REFUSED = "prefix_refused"
    """This target does not take an assistant prefix: ask it again in the style `instruct`."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt ended badly.

    Args:
        kind: row of the fault table.
        verdict: what it says about a next try.
        status: HTTP status, from the response or from the error's own code; None if there was none.
        code: the provider's machine-readable word, or "".
        type: the provider's error type, or "".
        param: the request field the provider blames, or "".
        message: the provider's own words, redacted and bounded, or ours where it said nothing.
        retry_after_s: seconds the provider asked to wait, or None.
    """

    kind: FaultKind
    verdict: Verdict = Verdict.TRANSIENT
    status: int | None = None
    code: str = ""
    type: str = ""
    param: str = ""
    message: str = ""
    retry_after_s: float | None = None

    @property
    def condition(self) -> str:
        """Whose condition it is: `request`, `account` or `provider`."""
        if self.verdict is Verdict.REQUEST:
            return "request"
        return "account" if self.verdict is Verdict.ACCOUNT else "provider"
