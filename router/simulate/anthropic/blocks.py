"""Messages that Anthropic refuses, in its own words: roles, content blocks, tools and results.

Sources: https://platform.claude.com/docs/en/api/messages, the pages on tool use and extended
thinking beside it, and the API's answers as people report them, such as in
https://github.com/anthropics/claude-code/issues/18947
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from router.simulate.anthropic.models import FIRST_WITH_SYSTEM_TURNS, before
from router.simulate.dialect import Refused
from router.simulate.seals import is_sealed

Block: TypeAlias = Mapping[str, Any]

_CACHED: Final = "cache_control"
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"text", "citations", _CACHED}),
    "image": frozenset({"source", _CACHED}),
    "document": frozenset({"source", "title", "context", "citations", _CACHED}),
    "search_result": frozenset({"source", "title", "content", "citations", _CACHED}),
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
    "tool_use": frozenset({"id", "name", "input", "caller", "toolset_name", _CACHED}),
    "tool_result": frozenset({"tool_use_id", "content", "is_error", "toolset_name", _CACHED}),
}
"""The content blocks whose fields are known here, beside `type`."""
_OTHERS: Final = frozenset(
    {
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "container_upload",
        "compaction",
    }
)
"""Blocks of tools that the vendor runs itself: taken as they come."""
_TAGS: Final = ", ".join(f"'{tag}'" for tag in sorted({*_FIELDS, *_OTHERS}))
_OF_ASSISTANT: Final = frozenset({"tool_use", "thinking", "redacted_thinking", "server_tool_use"})
_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Messages of one role in a row, which the vendor takes for one.

    Args:
        index: of the first of them.
        role: `user`, `assistant` or `system`.
        blocks: all their content.
    """

    index: int
    role: str
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """Its text, joined."""
        return "".join(str(block["text"]) for block in self.blocks if block["type"] == "text")

    def of(self, kind: str) -> list[Block]:
        """Its blocks of one type."""
        return [block for block in self.blocks if block["type"] == kind]


def read_turns(messages: Sequence[object], model: str) -> list[Turn]:
    """Read messages, and refuse what is wrong with each of them.

    Args:
        messages: of the request, at least one.
        model: as asked for.

    Raises:
        Refused: in the vendor's words.
    """
    turns: list[Turn] = []
    for index, message in enumerate(messages):
        turn = _message(message, index, last=index == len(messages) - 1)
        if turn.role == "system":
            _check_system(turns, turn, model)
        if turns and turns[-1].role == turn.role:
            both = turns[-1].blocks + turn.blocks
            turns[-1] = Turn(index=turns[-1].index, role=turn.role, blocks=both)
        else:
            turns.append(turn)
    if turns[0].role != "user":
        raise Refused('messages: first message must use the "user" role')
    return turns


def _message(message: object, index: int, *, last: bool) -> Turn:
    where = f"messages.{index}"
    if not isinstance(message, dict):
        raise Refused(f"{where}: Input should be an object")
    role = message.get("role")
    if role not in {"user", "assistant", "system"}:
        raise Refused(f"{where}.role: Input should be 'user' or 'assistant'")
    if "content" not in message:
        raise Refused(f"{where}.content: Field required")
    _no_more(message, frozenset({"role", "content"}), where)
    if not message["content"] and not (last and role == "assistant"):
        raise Refused(
            f"{where}: all messages must have non-empty content except for the optional final "
            "assistant message"
        )
    blocks = tuple(_blocks(message["content"], f"{where}.content"))
    for block in blocks:
        _check_side(block, role, where)
    return Turn(index=index, role=role, blocks=blocks)


def _check_side(block: Block, role: str, where: str) -> None:
    kind = block["type"]
    if kind in _OF_ASSISTANT and role != "assistant":
        raise Refused(f"{where}: `{kind}` blocks can only be in `assistant` messages")
    if kind == "tool_result" and role != "user":
        raise Refused(f"{where}: `tool_result` blocks can only be in `user` messages")


def _check_system(turns: Sequence[Turn], turn: Turn, model: str) -> None:
    if before(model, FIRST_WITH_SYSTEM_TURNS) or not model.startswith("claude"):
        raise Refused(f"messages.{turn.index}: role 'system' is not supported on this model")
    if not turns or turns[-1].role != "user":
        raise Refused(
            f"messages.{turn.index}: a system message must come immediately after a user message"
        )


def _blocks(content: object, where: str) -> list[Block]:
    if isinstance(content, str):
        blocks: list[Block] = [{"type": "text", "text": content}]
    elif isinstance(content, list):
        blocks = [_block(block, f"{where}.{index}") for index, block in enumerate(content)]
    else:
        raise Refused(f"{where}: Input should be a valid list")
    if len(blocks) == 1 and content and _is_blank(blocks[0]):
        raise Refused("messages: text content blocks must contain non-whitespace text")
    return blocks


def _is_blank(block: Block) -> bool:
    return block["type"] == "text" and not str(block["text"]).strip()


def _block(block: object, where: str) -> Block:
    if not isinstance(block, dict):
        raise Refused(f"{where}: Input should be an object")
    kind = str(block.get("type"))
    if kind not in _FIELDS and kind not in _OTHERS:
        raise Refused(
            f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected "
            f"tags: {_TAGS}"
        )
    if kind in _FIELDS:
        _no_more(block, _FIELDS[kind] | {"type"}, f"{where}.{kind}")
    if kind in _CHECKS:
        _CHECKS[kind](block, f"{where}.{kind}")
    return block


def _no_more(given: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise Refused(f"{where}.{name}: Extra inputs are not permitted")


def _text(block: Block, where: str) -> None:
    if not isinstance(block.get("text"), str):
        raise Refused(f"{where}.text: Field required")
    if not block["text"]:
        raise Refused("messages: text content blocks must be non-empty")


def _image(block: Block, where: str) -> None:
    source = block.get("source")
    if not isinstance(source, dict):
        raise Refused(f"{where}.source: Field required")
    if source.get("type") == "base64" and source.get("media_type") not in _IMAGES:
        raise Refused(
            f"{where}.source.base64.media_type: Input should be 'image/jpeg', 'image/png', "
            "'image/gif' or 'image/webp'"
        )


def _thinking(block: Block, where: str) -> None:
    for name in ("thinking", "signature"):
        if not isinstance(block.get(name), str):
            raise Refused(f"{where}.{name}: Field required")
    if not is_sealed(block["signature"], block["thinking"]):
        place = where.removesuffix(".thinking")
        raise Refused(f"{place}: Invalid `signature` in `thinking` block")


def _tool_use(block: Block, where: str) -> None:
    for name in ("id", "name", "input"):
        if name not in block:
            raise Refused(f"{where}.{name}: Field required")
    if not _CALL_ID.fullmatch(str(block["id"])):
        raise Refused(f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block["input"], dict):
        raise Refused(f"{where}.input: Input should be an object")


def _tool_result(block: Block, where: str) -> None:
    if "tool_use_id" not in block:
        raise Refused(f"{where}.tool_use_id: Field required")
    content = block.get("content")
    if block.get("is_error") and not content:
        raise Refused(f"{where}: content cannot be empty if `is_error` is true")
    for index, part in enumerate(content if isinstance(content, list) else ()):
        _block(part, f"{where}.content.{index}")


_CHECKS: Final = {
    "text": _text,
    "image": _image,
    "thinking": _thinking,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
}


def check_pairs(turns: Sequence[Turn]) -> None:
    """Refuse calls without results and results without calls.

    Raises:
        Refused: in the vendor's words.
    """
    seen: set[str] = set()
    for at, turn in enumerate(turns):
        calls = [str(block["id"]) for block in turn.of("tool_use")]
        if len({*calls} | seen) < len(calls) + len(seen):
            raise Refused("messages: `tool_use` ids must be unique")
        seen |= {*calls}
        answer = turns[at + 1] if at + 1 < len(turns) else None
        _check_answered(turn, calls, answer)
        _check_asked(turn, turns[at - 1] if at else None)


def _check_answered(turn: Turn, calls: Sequence[str], answer: Turn | None) -> None:
    leading: list[str] = []
    for block in answer.blocks if answer else ():
        if block["type"] != "tool_result":
            break
        leading.append(str(block["tool_use_id"]))
    if missing := [call for call in calls if call not in leading]:
        raise Refused(
            f"messages.{turn.index}: `tool_use` ids were found without `tool_result` blocks "
            f"immediately after: {', '.join(missing)}. Each `tool_use` block must have a "
            "corresponding `tool_result` block in the next message."
        )


def _check_asked(turn: Turn, question: Turn | None) -> None:
    asked = {str(block["id"]) for block in question.of("tool_use")} if question else set()
    given: set[str] = set()
    for at, block in enumerate(turn.blocks):
        if block["type"] != "tool_result":
            continue
        call, where = str(block["tool_use_id"]), f"messages.{turn.index}.content.{at}"
        if call not in asked:
            raise Refused(
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous "
                "message."
            )
        if call in given:
            raise Refused(
                f"{where}: each tool_use must have a single result. Found multiple `tool_result` "
                f"blocks with id: {call}"
            )
        given.add(call)
