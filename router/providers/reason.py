"""Where providers hide their reasons: one shape out of many, still unjudged and unredacted.

`error.message`, an error that is a string, JSON inside a string inside `metadata.raw`, FastAPI's
`detail` (text or list), a list around the object, an HTML title, plain text, an SSE frame: each is
read into a `Reason`. `classify.py` judges it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

MAX_DEPTH = 6
"""Bound on nesting that is followed: real ones need four (body, error, metadata, raw)."""
MAX_LIST_ITEMS = 4
"""Bound on errors read of a list: the first names the cause."""
MAX_MESSAGES = 6
"""Bound on sentences kept of one body."""
MAX_NESTED_CHARS = 65_536
"""Bound on a string that is tried as JSON."""

_GENERIC = frozenset({"provider returned error", "error", "bad request", "upstream error"})
"""Outer sentences that say nothing once an inner one is known."""


@dataclass(slots=True)
class Reason:
    """What an error body says, outermost first.

    Args:
        messages: sentences for a person.
        words: codes and types as they came, for the table.
        code: the most telling machine-readable code, or "".
        type: the most telling type, or "".
        param: the request field that is blamed, or "".
        status: an HTTP status hidden in the body, or None.
        retry_after_s: a wait named in the body, in seconds, or None.
        headers: response headers of a provider behind the provider, names in lower case.
    """

    messages: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    code: str = ""
    type: str = ""
    param: str = ""
    status: int | None = None
    retry_after_s: float | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """All sentences as one text; generic ones are left out where another says more."""
        telling = [m for m in self.messages if m.lower().rstrip(".") not in _GENERIC]
        kept: list[str] = []
        for sentence in telling or self.messages:
            if not any(sentence in other for other in kept):
                kept.append(sentence)
        return ": ".join(kept)


def read_body(body: bytes) -> Reason:
    """The reason in the body of an error response. Never raises.

    Args:
        body: its first bytes, in any format or none.
    """
    reason = Reason()
    text = body.decode("utf-8", "replace").lstrip("\ufeff").strip()
    _read_text(reason, text, 0)
    return reason


def read_object(value: object) -> Reason:
    """The reason in an error object out of a stream, or in the event that holds it. Never raises.

    Args:
        value: parsed JSON.
    """
    reason = Reason()
    _walk(reason, value, 0)
    return reason


def _read_text(reason: Reason, text: str, depth: int) -> None:
    parsed = _parse(_unframe(text))
    if isinstance(parsed, (dict, list)):
        _walk(reason, parsed, depth)
    elif text[:1] == "<":
        _say(reason, _html_title(text))
    else:
        _say(reason, text)


def _parse(text: str) -> object:
    """JSON out of a text, or None: only objects and lists count, and only within bounds."""
    if text[:1] not in ("{", "[") or len(text) > MAX_NESTED_CHARS:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _unframe(text: str) -> str:
    """The data of the first SSE event, where an error body is framed as a stream."""
    if not text.startswith(("data:", "event:", ":")):
        return text
    data = (line[5:].strip() for line in text.splitlines() if line.startswith("data:"))
    return next(data, text)


def _html_title(text: str) -> str:
    """An error page's title or first heading: proxies put their reason there."""
    for tag in ("title", "h1"):
        if match := re.search(rf"(?is)<{tag}[^>]{{0,200}}>([^<]{{1,300}})", text):
            return html.unescape(match.group(1))
    return html.unescape(re.sub(r"<[^>]{0,500}>?", " ", text[:4_096]))


def _say(reason: Reason, sentence: str) -> None:
    sentence = sentence.strip()
    if sentence and len(reason.messages) < MAX_MESSAGES and sentence not in reason.messages:
        reason.messages.append(sentence)


def _walk(reason: Reason, value: object, depth: int) -> None:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        _read_text(reason, value, depth + 1)
    elif isinstance(value, list):
        for item in value[:MAX_LIST_ITEMS]:
            _walk(reason, item, depth + 1)
    elif isinstance(value, dict):
        _field_error(reason, value)
        for name, read in _FIELDS:
            if (found := value.get(name)) is not None:
                read(reason, found, depth)


def _field_error(reason: Reason, value: Mapping[str, Any]) -> None:
    """One entry of pydantic's error list; its `input` echoes the request and is never read."""
    sentence, where = value.get("msg"), value.get("loc")
    if isinstance(sentence, str):
        path = ".".join(str(part) for part in where[:8]) if isinstance(where, list) else ""
        _say(reason, f"{path}: {sentence}" if path else sentence)
        reason.param = reason.param or path.removeprefix("body.")


def _status_of(value: object) -> int | None:
    """400 to 599 where a code is really an HTTP status, as a number or in digits."""
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
        return value
    return None


def _read_code(reason: Reason, value: object, _depth: int) -> None:
    status = _status_of(value)
    if status is not None:
        reason.status = reason.status or status
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != "":
        word = str(value)
        reason.words.append(word)
        # A word says more than a number ("3505"), and an inner word more than an outer one.
        if not reason.code or not word.isdigit():
            reason.code = word


def _read_type(reason: Reason, value: object, _depth: int) -> None:
    status = _status_of(value)
    if status is not None:
        reason.status = reason.status or status
    elif isinstance(value, str) and value and value.lower() != "error":
        reason.words.append(value)
        reason.type = value


def _read_param(reason: Reason, value: object, _depth: int) -> None:
    if isinstance(value, str) and value:
        reason.param = value


def _read_metadata(reason: Reason, value: object, depth: int) -> None:
    """OpenRouter's: the upstream's own body as a string, its name, its headers."""
    if not isinstance(value, dict):
        return
    headers = value.get("headers")
    if isinstance(headers, dict):
        pairs = [(k, v) for k, v in headers.items() if isinstance(v, (str, int, float))]
        reason.headers.update((str(k).lower(), str(v)) for k, v in pairs[:32])
    _read_type(reason, value.get("error_type"), depth)
    if value.get("raw") is not None:
        _walk(reason, value["raw"], depth + 1)
    if isinstance(name := value.get("provider_name"), str) and reason.messages:
        reason.messages[-1] = f"{name}: {reason.messages[-1]}"


def _read_details(reason: Reason, value: object, depth: int) -> None:
    """Google's: a machine-readable reason and a wait, in a list of typed objects. Anthropic's: an
    object with a code. Text is a hint for a person, seldom more than the message."""
    if isinstance(value, dict):
        _read_code(reason, value.get("error_code"), depth)
    for detail in value[:MAX_LIST_ITEMS] if isinstance(value, list) else ():
        if not isinstance(detail, dict):
            continue
        _read_code(reason, detail.get("reason"), 0)
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and re.fullmatch(r"\d{1,6}(?:\.\d{1,9})?s", delay):
            reason.retry_after_s = float(delay[:-1])


def _read_nested(reason: Reason, value: object, depth: int) -> None:
    _walk(reason, value, depth + 1)


_FIELDS: tuple[tuple[str, Callable[[Reason, Any, int], None]], ...] = (
    ("status", _read_type),
    ("statusCode", _read_code),
    ("status_code", _read_code),
    ("code", _read_code),
    ("error_code", _read_code),
    ("type", _read_type),
    ("error_type", _read_type),
    ("errorType", _read_type),
    ("param", _read_param),
    ("message", _read_nested),
    ("detail", _read_nested),
    ("title", _read_nested),
    ("error", _read_nested),
    ("errors", _read_nested),
    ("innererror", _read_nested),
    ("inner_error", _read_nested),
    ("details", _read_details),
    ("metadata", _read_metadata),
)
"""Fields that hold a reason, in the order they are read: outer words first, hidden ones last."""
