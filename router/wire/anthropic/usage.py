"""Token counts: Anthropic's `usage` and the canonical one, both ways.

Anthropic counts what was read from a cache and what was written to one apart from `input_tokens`;
the canonical count of a prompt is the sum of the three.
https://platform.claude.com/docs/en/api/messages#usage
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.core.events import Usage
from router.wire.jsontext import Json
from router.wire.streams import check_depth

_READ: Final = "cache_read_input_tokens"
_WRITTEN: Final = "cache_creation_input_tokens"
_COUNTS: Final = frozenset({"input_tokens", _READ, _WRITTEN, "output_tokens"})
_TRANSLATED: Final = _COUNTS | {
    "output_tokens_details",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_tokens_details",
    "completion_tokens_details",
}
_OWN: Final = ("cache_creation", "server_tool_use", "service_tier", "inference_geo", "speed")
"""What only Anthropic reports, and its own clients know."""


class UsageCount:
    """What one answer has cost so far. Its reports are cumulative, and each may leave some out."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def take(self, usage: Json) -> Usage | None:
        """Read the next report.

        A later count replaces an earlier one; but a 0 takes nothing back, since some servers fill
        in what they leave out.

        Args:
            usage: as decoded.

        Returns:
            All that is known now, or None if nothing is new.

        Raises:
            MalformedStream: it is nested too deep.
        """
        if type(usage) is not dict:
            return None
        check_depth(usage)
        known = dict(self._known)
        for name, value in usage.items():
            if name in _COUNTS:
                count = _count(value)
                if count is not None and (count or name not in known):
                    known[name] = count
            elif value is not None:
                known[name] = value
        if known == self._known:
            return None
        self._known = known
        return _canonical(known)


def write_usage(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """The canonical usage in Anthropic's shape.

    Args:
        usage: in the shape of chat completions, or None if nothing is known.
    """
    usage = usage or {}
    asked = _details(usage, "prompt_tokens_details")
    cached, created = _count(asked.get("cached_tokens")), _count(asked.get("cache_creation_tokens"))
    fresh = (_count(usage.get("prompt_tokens")) or 0) - (cached or 0) - (created or 0)
    out: dict[str, Any] = {
        "input_tokens": max(0, fresh),
        "output_tokens": _count(usage.get("completion_tokens")) or 0,
    }
    if created is not None:
        out[_WRITTEN] = created
    if cached is not None:
        out[_READ] = cached
    thought = _count(_details(usage, "completion_tokens_details").get("reasoning_tokens"))
    if thought is not None:
        out["output_tokens_details"] = {"thinking_tokens": thought}
    return out | {name: usage[name] for name in _OWN if usage.get(name) is not None}


def _canonical(known: Mapping[str, Any]) -> Usage:
    read, written = known.get(_READ), known.get(_WRITTEN)
    asked = known.get("input_tokens", 0) + (read or 0) + (written or 0)
    said = known.get("output_tokens", 0)
    raw: dict[str, Any] = {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
    }
    details = {"cached_tokens": read, "cache_creation_tokens": written}
    details = {name: count for name, count in details.items() if count is not None}
    if details:
        raw["prompt_tokens_details"] = details
    thought = _count(_details(known, "output_tokens_details").get("thinking_tokens"))
    if thought is not None:
        raw["completion_tokens_details"] = {"reasoning_tokens": thought}
    raw |= {name: value for name, value in known.items() if name not in _TRANSLATED}
    return Usage(asked, said, raw)


def _details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    details = usage.get(name)
    return details if isinstance(details, Mapping) else {}


def _count(value: Json) -> int | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if number and 0 <= value < float("inf") else None
