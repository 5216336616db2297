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
    "drop_refused",
    "read_conversation",
    "valid_ids",
    "write_conversation",
]

_Body: TypeAlias = Mapping[str, Any]


def drop_refused(raw: _Body) -> _Body:
    """A request without what models of other families put into its history and Anthropic refuses:
    thoughts that nobody signed, and texts of white space alone.

    Args:
        raw: a checked body; never mutated.

    Returns:
        `raw` itself where there is nothing of the kind.
    """
    messages: list[Object] = raw["messages"]
    kept = [_without_refused(message) for message in messages]
    if all(new is old for new, old in zip(kept, messages, strict=True)):
        return raw
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


def _without_refused(message: Object) -> Object:
    content = message["content"]
    if message["role"] != "assistant":
        return message
    if isinstance(content, str):
        return {**message, "content": ""} if content.isspace() else message
    kept = [block for block in content if not (is_unsigned(block) or _is_blank(block))]
    return {**message, "content": kept} if len(kept) < len(content) else message


def _is_blank(block: Object) -> bool:
    return bool(block["type"] == "text" and not block["text"].strip())


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
