"""A provider's count of a prompt's tokens."""

from __future__ import annotations

import msgspec

from router.errors import MalformedStream

MAX_COUNT = 2**53 - 1
"""Bound on a count: the largest whole number that every client reads as such."""


def read_count(body: bytes, field: str) -> int:
    """The number in a 2xx answer to a request for a count.

    Args:
        body: the answer's, whole.
        field: its name for the number.

    Raises:
        MalformedStream: there is no such number in it.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    count = value.get(field) if isinstance(value, dict) else None
    if type(count) is int and 0 <= count <= MAX_COUNT:
        return count
    raise MalformedStream(f"the count of tokens holds no number `{field}`")
