"""Between a Messages request and a canonical conversation; and a request as it goes on to a server
of the same format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from router.wire.anthropic.conversation_in import read_conversation
from router.wire.anthropic.conversation_out import DEFAULT_MAX_TOKENS, write_conversation
from router.wire.anthropic.parts_out import CallIds
from router.wire.anthropic.signature import is_unsigned
from router.wire.checks import Object

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "drop_unsigned",
    "read_conversation",
    "valid_ids",
    "write_conversation",
]

_Body: TypeAlias = Mapping[str, Any]


def drop_unsigned(raw: _Body) -> _Body:
    """A request without the thoughts that nobody signed, which its provider would refuse.

    Args:
        raw: a checked body; never mutated.

    Returns:
        `raw` itself where there is no such thought.
    """
    messages: list[Object] = raw["messages"]
    marked = {number for number, message in enumerate(messages) if _has_unsigned(message)}
    if not marked:
        return raw
    kept = [_signed(message) if i in marked else message for i, message in enumerate(messages)]
    return {**raw, "messages": [message for message in kept if message["content"]]}


def valid_ids(raw: _Body) -> _Body:
    """A request whose tool calls have ids that Anthropic takes: other providers write others, and
    the client sends them back with the history.

    Args:
        raw: a checked body; never mutated.

    Returns:
        `raw` itself where all ids are right.
    """
    ids = CallIds()
    renamed = {
        block["id"]: ids.call(block["id"])
        for message in raw["messages"]
        for block in _of_kind(message, "tool_use")
    }
    if all(old == new for old, new in renamed.items()):
        return raw
    return {**raw, "messages": [_renamed(message, renamed) for message in raw["messages"]]}


def _of_kind(message: Object, kind: str) -> list[Object]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if block["type"] == kind]


def _has_unsigned(message: Object) -> bool:
    return any(is_unsigned(block) for block in _of_kind(message, "thinking"))


def _signed(message: Object) -> Object:
    return {**message, "content": [b for b in message["content"] if not is_unsigned(b)]}


def _renamed(message: Object, ids: Mapping[str, str]) -> Object:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    fields = {"tool_use": "id", "tool_result": "tool_use_id"}
    blocks = [
        {**block, field: ids[block[field]]} if (field := fields.get(block["type"])) else block
        for block in content
    ]
    return {**message, "content": blocks}
