"""JSON as the formats need it: a lenient way in, a safe way out, and text that is valid Unicode.

Lone surrogates are half a character in a JSON escape, which no UTF-8 encoder takes. A provider that
cuts its text into UTF-16 units sends an emoji as `"\\ud83d"` and, one event later, `"\\ude00"`. The
halves are joined where both come; a half that stays alone becomes U+FFFD.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

Json: TypeAlias = Any
"""What a decoder gives for JSON of unknown shape: it is looked at before it is used."""

Key = TypeVar("Key")

REPLACEMENT: Final = "\ufffd"
MAX_MEND_DEPTH = 64
"""Bound on the nesting that `mend_tree` follows; what lies deeper is no answer and no reason."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_LINE_ENDS: Final = (
    (b"\xe2\x80\xa8", rb"\u2028"),
    (b"\xe2\x80\xa9", rb"\u2029"),
    (b"\xc2\x85", rb"\u0085"),
)
"""Line ends for Unicode, not for SSE: escaped, since some clients split decoded text into lines."""


def loads(data: bytes) -> tuple[Json, bool]:
    """Decode one JSON value leniently: lone surrogates, NaN and Infinity are let in.

    Args:
        data: UTF-8.

    Returns:
        The value, and whether its strings may hold lone surrogates.

    Raises:
        ValueError: it is no JSON, or nested beyond all reason.
    """
    try:
        return _decode(data), False
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8", "surrogatepass")), True
    except RecursionError:
        raise ValueError("nested too deep") from None


def plain_loads(data: bytes) -> Json | None:
    """Decode one JSON value that is as the standard says; None for all that `loads` lets in beside.

    Args:
        data: UTF-8, no `null`.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def dumps(value: Json) -> bytes:
    """Encode a value for a client, on one line by any reading of "line".

    Args:
        value: of JSON types; NaN becomes null, a lone surrogate U+FFFD.
    """
    try:
        encoded = _encode(value)
    except UnicodeEncodeError:
        encoded = mend(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
    if not encoded.isascii():
        for raw, escaped in _LINE_ENDS:
            if raw in encoded:
                encoded = encoded.replace(raw, escaped)
    return encoded


def mend(text: str) -> str:
    """The same text as valid Unicode: pairs joined, lone halves replaced.

    Args:
        text: any str.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def split_high(text: str) -> tuple[str, str]:
    """Cut a trailing high surrogate off, which may find its other half in the next piece.

    Args:
        text: any str.

    Returns:
        The text before it, mended, and the surrogate or "".
    """
    if text and "\ud800" <= text[-1] <= "\udbff":
        return mend(text[:-1]), text[-1]
    return mend(text), ""


def sew(waiting: dict[Key, str], key: Key, text: str) -> str:
    """Join a text to the half that waits for it, and keep the one that it ends with.

    Args:
        waiting: halves that wait for their other one; changed in place.
        key: where the text goes.
        text: any str.

    Returns:
        The text that can be given on, mended.
    """
    whole, high = split_high(waiting.pop(key, "") + text)
    if high:
        waiting[key] = high
    return whole


def mend_tree(value: Json, *, depth: int = MAX_MEND_DEPTH) -> Json:
    """A JSON value with every string in it mended, keys too.

    Args:
        value: as a decoder gives it.
        depth: levels to follow; what lies deeper becomes None.
    """
    if isinstance(value, str):
        return mend(value)
    if not isinstance(value, list | dict):
        return value
    if depth <= 0:
        return None
    if isinstance(value, list):
        return [mend_tree(item, depth=depth - 1) for item in value]
    return {mend(key): mend_tree(item, depth=depth - 1) for key, item in value.items()}


def deeper_than(value: Json, limit: int) -> bool:
    """Is a JSON value nested in more than `limit` levels of objects and lists?

    Args:
        value: as a decoder gives it.
        limit: levels; a bare object is one.
    """
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        if not level:
            return False
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
    return bool(level)
