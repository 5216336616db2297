"""Ids of tool calls for a server that takes only its own kind: a history may hold another's."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Mapping, Sequence
from typing import Any, Final

_ALPHABET: Final = string.digits + string.ascii_letters


def short_ids(messages: Sequence[Mapping[str, Any]], chars: int) -> list[Mapping[str, Any]]:
    """Messages whose tool calls have ids of letters and digits, of one length.

    An id that fits stays. Another becomes what its hash spells, so that a call and its result still
    name each other, and the same history gives the same request.

    Args:
        messages: of a request; what they hold is shared, and not changed.
        chars: the length.
    """
    return [_renamed(message, chars) for message in messages]


def _renamed(message: Mapping[str, Any], chars: int) -> Mapping[str, Any]:
    changes: dict[str, Any] = {}
    calls, answered = message.get("tool_calls"), message.get("tool_call_id")
    if isinstance(calls, list):
        changes["tool_calls"] = [
            call | {"id": _short(call["id"], chars)} if isinstance(call.get("id"), str) else call
            for call in calls
        ]
    if isinstance(answered, str):
        changes["tool_call_id"] = _short(answered, chars)
    return {**message, **changes} if changes else message


def _short(call_id: str, chars: int) -> str:
    if len(call_id) == chars and call_id.isascii() and call_id.isalnum():
        return call_id
    digest = hashlib.blake2b(call_id.encode("utf-8", "replace"), digest_size=16).digest()
    number, spelt = int.from_bytes(digest), ""
    for _ in range(chars):
        number, rest = divmod(number, len(_ALPHABET))
        spelt += _ALPHABET[rest]
    return spelt
