"""How long a provider asks to wait, in seconds, wherever it says so. Without a clock.

Absolute times are measured against the response's own `Date` header, so a peer with a wrong clock
still names the right wait; without that header they are ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_S = 86_400.0
"""Bound on a wait: a day. Anything longer is as good as for ever here."""

_GO_DURATION = re.compile(
    r"(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,9}(?:\.\d+)?)s)?"
    r"(?:(\d{1,12}(?:\.\d+)?)ms)?"
)
_IN_WORDS = re.compile(
    r"(?i)(?:try again|retry|wait)(?: (?:in|after|for))? (?:about )?"
    r"((?:\d+h)?(?:\d+m)?\d{1,7}(?:\.\d+)?(?:ms|s\b)|\d{1,7} ?(?:seconds?|secs?)\b)"
)
_RESETS = (
    # header with the reset, header that says how much is left
    ("x-ratelimit-reset-requests", "x-ratelimit-remaining-requests"),
    ("x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"),
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
    ("ratelimit-reset", "ratelimit-remaining"),
    ("anthropic-ratelimit-requests-reset", "anthropic-ratelimit-requests-remaining"),
    ("anthropic-ratelimit-tokens-reset", "anthropic-ratelimit-tokens-remaining"),
    ("anthropic-ratelimit-input-tokens-reset", "anthropic-ratelimit-input-tokens-remaining"),
    ("anthropic-ratelimit-output-tokens-reset", "anthropic-ratelimit-output-tokens-remaining"),
)


def retry_after_s(headers: Mapping[str, str], *, words: str = "") -> float | None:
    """The wait that a response asks for.

    Args:
        headers: response headers, names in lower case.
        words: the provider's sentence, read where no header says it ("try again in 7.66s").

    Returns:
        Seconds, between 0 and `MAX_RETRY_AFTER_S`, or None where nothing is said.

    RFC 9110 section 10.2.3 for `Retry-After`; the rest are vendors' own headers.
    """
    now = _http_date(headers.get("date", ""))
    for wait in (
        _milliseconds(headers.get("retry-after-ms", "")),
        _explicit(headers.get("retry-after", ""), now),
        _resets(headers, now),
        in_words(words),
    ):
        if wait is not None:
            return min(max(wait, 0.0), MAX_RETRY_AFTER_S)
    return None


def in_words(text: str) -> float | None:
    """A wait named in a sentence, in seconds, or None."""
    match = _IN_WORDS.search(text)
    if match is None:
        return None
    named = match.group(1)
    return _number(re.sub(r" ?sec\w*", "", named)) if "sec" in named.lower() else _duration(named)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _milliseconds(text: str) -> float | None:
    value = _number(text)
    return None if value is None else value / 1000


def _duration(text: str) -> float | None:
    """`1s`, `6m0s`, `17ms`, `2m59.56s`: Go's notation, in seconds."""
    match = _GO_DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds, millis = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds + millis / 1000


def _epoch_or_delta(text: str, now: float | None) -> float | None:
    """A bare number: Unix milliseconds, Unix seconds or plain seconds, told apart by size."""
    value = _number(text)
    if value is None:
        return None
    if value < 1e9:
        return value
    moment = value / 1000 if value > 1e11 else value
    return None if now is None else moment - now


def _http_date(text: str) -> float | None:
    try:
        return _utc(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _rfc3339(text: str) -> float | None:
    try:
        return _utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def _utc(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _until(parse: Callable[[str], float | None], text: str, now: float | None) -> float | None:
    moment = parse(text)
    return None if moment is None or now is None else moment - now


def _explicit(text: str, now: float | None) -> float | None:
    seconds = _number(text)
    return seconds if seconds is not None else _until(_http_date, text, now)


def _reset(text: str, now: float | None) -> float | None:
    for wait in (_epoch_or_delta(text, now), _duration(text), _until(_rfc3339, text, now)):
        if wait is not None:
            return wait
    return None


def _resets(headers: Mapping[str, str], now: float | None) -> float | None:
    """The longest wait among the limits that are used up; a limit with something left is not why.

    Where none says that it is used up, a limit without a `remaining` header is believed.
    """
    spent: list[float] = []
    unknown: list[float] = []
    for reset, remaining in _RESETS:
        wait = _reset(headers.get(reset, ""), now) if reset in headers else None
        if wait is None or wait < 0:
            continue
        left = _number(headers.get(remaining, ""))
        if left is None:
            unknown.append(wait)
        elif left <= 0:
            spent.append(wait)
    return max(spent or unknown, default=None)
