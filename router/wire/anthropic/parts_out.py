"""Writes the turns of a canonical conversation as Messages: alternating roles, valid ids, and no
block that Anthropic would refuse."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from router.core.conversation import (
    NOTHING_SAID,
    CallPart,
    MediaPart,
    Part,
    ResultPart,
    TextPart,
    Turn,
)
from router.wire.anthropic.blocks import IMAGE_TYPES, PDF_TYPE, TEXT_TYPE
from router.wire.calls import arguments_object
from router.wire.checks import quote
from router.wire.losses import Losses

CUSTOM_INPUT: Final = "input"
"""Field of a call's input that holds the free text of OpenAI's custom tools."""

_Block: TypeAlias = dict[str, Any]
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
"""A tool call's id, by https://platform.claude.com/docs/en/api/messages/create."""
_NO_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")


class CallIds:
    """Ids of tool calls that Anthropic takes: of few characters, and no two alike in a request.

    A result follows its call within two turns, so a call's new id is found by its old one in the
    assistant's last turn.
    """

    __slots__ = ("_current", "_used")

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._current: dict[str, str] = {}

    def turn(self) -> None:
        """The assistant begins a turn."""
        self._current.clear()

    def call(self, call_id: str) -> str:
        """The id of a call.

        Args:
            call_id: in the client's request.
        """
        stem = call_id if _ID.fullmatch(call_id) else _NO_ID.sub("_", call_id) or "call"
        valid, count = stem, 1
        while valid in self._used:
            count += 1
            valid = f"{stem}_{count}"
        self._used.add(valid)
        self._current[call_id] = valid
        return valid

    def result(self, call_id: str) -> str:
        """The id that a result names.

        Args:
            call_id: in the client's request.
        """
        return self._current.get(call_id, call_id)


def write_messages(turns: Iterable[Turn], losses: Losses) -> list[dict[str, Any]]:
    """The turns of user and assistant, joined so that they alternate.

    In the user's turns the results of tools come first, as Anthropic demands:
    https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls. Blank texts are
    left out, and the white space at the end of a turn of the assistant that is to be gone on with.

    Args:
        turns: without those of the system.
        losses: what cannot be said is added here.

    Returns:
        At least one message.
    """
    writer = _TurnWriter(losses)
    messages: list[dict[str, Any]] = []
    for turn in turns:
        if not messages or messages[-1]["role"] != turn.role:
            messages.append({"role": turn.role, "content": []})
            writer.begins(turn.role)
        messages[-1]["content"] += writer.blocks(turn)
        if not messages[-1]["content"]:
            messages.pop()
    for message in messages:
        if message["role"] == "user":
            message["content"].sort(key=lambda block: block["type"] != "tool_result")
    _strip_end(messages)
    _let_the_user_begin(messages, losses)
    return [{**message, "content": _short(message["content"])} for message in messages]


def _let_the_user_begin(messages: list[dict[str, Any]], losses: Losses) -> None:
    """Where the assistant spoke first (a greeting, a history that was cut) Anthropic answers 400:
    'messages: first message must use the "user" role'."""
    if messages and messages[0]["role"] == "user":
        return
    message = f"Anthropic wants the user to speak first; {NOTHING_SAID!r} stands there."
    losses.add("messages", message, hint=True)
    messages.insert(0, {"role": "user", "content": [{"type": "text", "text": NOTHING_SAID}]})


def _strip_end(messages: list[dict[str, Any]]) -> None:
    """Anthropic refuses an answer's beginning that ends in white space."""
    if not messages or messages[-1]["role"] != "assistant":
        return
    content = messages[-1]["content"]
    if content[-1]["type"] == "text":
        content[-1] = content[-1] | {"text": content[-1]["text"].rstrip()}


def _short(blocks: list[_Block]) -> str | list[_Block]:
    """Text alone is a string."""
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return str(blocks[0]["text"])
    return blocks


class _TurnWriter:
    """Writes turns in order.

    Args:
        losses: what cannot be said is added here.
    """

    __slots__ = ("_ids", "_losses")

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._ids = CallIds()

    def begins(self, role: str) -> None:
        if role == "assistant":
            self._ids.turn()

    def blocks(self, turn: Turn) -> list[_Block]:
        return [
            block
            for part in turn.parts
            for block in self._blocks(part, by_assistant=turn.role == "assistant")
        ]

    def _blocks(self, part: Part, *, by_assistant: bool) -> Iterable[_Block]:
        match part:
            case CallPart():
                return [self._call(part)]
            case ResultPart():
                return [self._result(part)]
            case MediaPart() if by_assistant:
                message = f"Anthropic takes no {part.kind} in what the assistant said."
                self._losses.add(part.where, message)
                return []
            case _:
                return self._simple(part)

    def _simple(self, part: TextPart | MediaPart) -> Iterable[_Block]:
        if isinstance(part, TextPart):
            return [{"type": "text", "text": part.text}] if part.text.strip() else []
        match part.kind:
            case "image":
                return self._image(part)
            case "document":
                return self._document(part)
            case "audio":
                self._losses.add(part.where, "Anthropic takes no audio.")
                return []

    def _image(self, part: MediaPart) -> Iterable[_Block]:
        if part.detail not in ("", "auto"):
            message = "Anthropic takes no level of detail of a picture."
            self._losses.add(part.where, message, hint=True)
        if part.url:
            return [{"type": "image", "source": {"type": "url", "url": part.url}}]
        if part.media_type not in IMAGE_TYPES:
            message = f"Anthropic takes no pictures of the type {quote(part.media_type)}."
            self._losses.add(part.where, message)
            return []
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
        return [{"type": "image", "source": source}]

    def _document(self, part: MediaPart) -> Iterable[_Block]:
        source = self._document_source(part)
        if source is None:
            return []
        titled = {"title": part.name} if part.name else {}
        return [{"type": "document", "source": source, **titled}]

    def _document_source(self, part: MediaPart) -> _Block | None:
        if part.url:
            return {"type": "url", "url": part.url}
        if part.media_type == PDF_TYPE:
            return {"type": "base64", "media_type": PDF_TYPE, "data": part.data}
        text = plain_text(part)
        if text is None:
            message = f"Anthropic takes no documents of the type {quote(part.media_type)}."
            self._losses.add(part.where, message)
        elif text.strip():
            return {"type": "text", "media_type": TEXT_TYPE, "data": text}
        return None

    def _call(self, part: CallPart) -> _Block:
        if part.custom:
            message = f"The free text of a call is written as its field {CUSTOM_INPUT!r}."
            self._losses.add(part.where, message, hint=True)
        given = {CUSTOM_INPUT: part.arguments} if part.custom else arguments_object(part.arguments)
        call_id = self._ids.call(part.id)
        return {"type": "tool_use", "id": call_id, "name": part.name, "input": given or {}}

    def _result(self, part: ResultPart) -> _Block:
        content = [block for inner in part.parts for block in self._simple(inner)]
        written: _Block = {"type": "tool_result", "tool_use_id": self._ids.result(part.call_id)}
        if content:
            written["content"] = _short(content)
        if part.error:
            written["is_error"] = True
        return written


def plain_text(part: MediaPart) -> str | None:
    """What a document of plain text says; None if it is of another kind.

    Args:
        part: a document by its bytes.
    """
    if not part.media_type.startswith("text/"):
        return None
    try:
        return base64.b64decode(part.data).decode()
    except UnicodeDecodeError:
        return None
