"""How Redis is connected to, beside its URL."""

from __future__ import annotations

from dataclasses import dataclass

COMMAND_TIMEOUT_S = 1.0
"""Longest wait for a batch's answers, or for one read, in seconds: a healthy Redis needs a
thousandth of it, and a client that resumes should not wait long for a refusal."""

CONNECT_TIMEOUT_S = 1.0
"""Longest wait for a connection, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """How Redis is connected to, beside its URL.

    Args:
        command_timeout_s: longest wait for answers, in seconds.
        connect_timeout_s: longest wait for a connection, in seconds.
        ca_file: certificates by which servers are known, PEM, or None for the system's.
        cert_file: certificate that is shown to servers, PEM, or None.
        key_file: its key.
    """

    command_timeout_s: float = COMMAND_TIMEOUT_S
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
