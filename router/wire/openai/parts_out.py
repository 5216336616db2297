"""Writes the turns of a canonical conversation as messages of chat completions."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from router.core.conversation import CallPart, MediaPart, Part, ResultPart, TextPart, Turn
from router.wire.checks import quote
from router.wire.losses import Losses
from router.wire.openai.parts_in import PDF_TYPE

BETWEEN: Final = "\n\n"
"""What stands between texts that become one: many servers take no list of parts where there is
text alone."""
ERROR: Final = "Error: "
"""What the result of a tool that failed begins with: there is no other place to say so."""
SHOWN_BELOW: Final = "The result is in the next message of the user."
"""The result of a tool that is no text."""

_Json: TypeAlias = dict[str, Any]
_AUDIO: Final[Mapping[str, str]] = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
}
_DOCUMENT: Final = "document.pdf"
"""What a document is called that has no name: OpenAI wants one."""


def write_messages(turns: Sequence[Turn], losses: Losses) -> list[_Json]:
    """The turns as messages.

    The results of tools stand right behind the message that called them, whatever else the user
    says in that turn: https://platform.openai.com/docs/guides/function-calling.

    Args:
        turns: of all sides.
        losses: what cannot be said is added here.
    """
    writer = _TurnWriter(losses)
    messages: list[_Json] = []
    asked: list[Turn] = []
    for turn in turns:
        if turn.role == "assistant":
            messages += writer.questions(asked)
            asked = []
            messages.append(writer.answer(turn))
        else:
            asked.append(turn)
    return messages + writer.questions(asked)


class _TurnWriter:
    """Writes turns in order.

    Args:
        losses: what cannot be said is added here.
    """

    __slots__ = ("_losses",)

    def __init__(self, losses: Losses) -> None:
        self._losses = losses

    def answer(self, turn: Turn) -> _Json:
        """A message of the assistant."""
        for part in turn.parts:
            if isinstance(part, MediaPart):
                message = f"OpenAI takes no {part.kind} in what the assistant said."
                self._losses.add(part.where, message)
        text = "".join(part.text for part in turn.parts if isinstance(part, TextPart))
        calls = [_call(part) for part in turn.parts if isinstance(part, CallPart)]
        called = {"tool_calls": calls} if calls else {}
        content = text or (None if calls else "")
        return {"role": "assistant", "content": content, **_named(turn), **called}

    def questions(self, turns: Iterable[Turn]) -> list[_Json]:
        """What stands between two answers: results first, then everything else."""
        results: list[_Json] = []
        others: list[_Json] = []
        for turn in turns:
            shown: list[Part] = []
            given = [part for part in turn.parts if isinstance(part, ResultPart)]
            results += [self._result(part, shown) for part in given]
            said = [part for part in turn.parts if not isinstance(part, ResultPart)]
            parts = [*shown, *said]
            if parts:
                content = self._content(parts)
                others.append({"role": turn.role, "content": content, **_named(turn)})
        return results + others

    def _result(self, part: ResultPart, shown: list[Part]) -> _Json:
        """A result in text; what else it holds is shown in a message of the user."""
        text = _joined(part.parts)
        media = [inner for inner in part.parts if isinstance(inner, MediaPart)]
        if media:
            message = "A tool's result is text alone; the user's message behind it shows the rest."
            self._losses.add(media[0].where, message, hint=True)
            head = f"The result of the call {part.call_id} of {part.name}:"
            shown += [TextPart(where=part.where, text=head), *media]
            text = text or SHOWN_BELOW
        content = ERROR + text if part.error else text
        return {"role": "tool", "tool_call_id": part.call_id, "content": content}

    def _content(self, parts: Sequence[Part]) -> str | list[_Json]:
        written = [item for part in parts for item in self._part(part)]
        if all(item["type"] == "text" for item in written):
            return BETWEEN.join(item["text"] for item in written if item["text"])
        return written

    def _part(self, part: Part) -> Iterable[_Json]:
        if isinstance(part, MediaPart):
            match part.kind:
                case "image":
                    return [_image(part)]
                case "audio":
                    return self._audio(part)
                case "document":
                    return self._document(part)
        return [{"type": "text", "text": part.text}] if isinstance(part, TextPart) else []

    def _audio(self, part: MediaPart) -> Iterable[_Json]:
        word = _AUDIO.get(part.media_type)
        if word is None or part.url:
            what = "an address" if part.url else f"the type {quote(part.media_type)}"
            self._losses.add(part.where, f"OpenAI takes audio as mp3 or wav data, not as {what}.")
            return []
        return [{"type": "input_audio", "input_audio": {"data": part.data, "format": word}}]

    def _document(self, part: MediaPart) -> Iterable[_Json]:
        if part.media_type.startswith("text/") and part.data:
            titled = f"{part.name}{BETWEEN}" if part.name else ""
            text = base64.b64decode(part.data).decode(errors="replace")
            return [{"type": "text", "text": titled + text}]
        if part.url or part.media_type != PDF_TYPE:
            what = "the address of a document" if part.url else quote(part.media_type)
            self._losses.add(part.where, f"OpenAI takes documents as PDF data, not {what}.")
            return []
        data = f"data:{PDF_TYPE};base64,{part.data}"
        return [{"type": "file", "file": {"filename": part.name or _DOCUMENT, "file_data": data}}]


def _call(part: CallPart) -> _Json:
    if part.custom:
        inner = {"name": part.name, "input": part.arguments}
        return {"id": part.id, "type": "custom", "custom": inner}
    inner = {"name": part.name, "arguments": part.arguments}
    return {"id": part.id, "type": "function", "function": inner}


def _image(part: MediaPart) -> _Json:
    url = part.url or f"data:{part.media_type};base64,{part.data}"
    detail = {"detail": part.detail} if part.detail else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _joined(parts: Iterable[Part]) -> str:
    return BETWEEN.join(part.text for part in parts if isinstance(part, TextPart) and part.text)


def _named(turn: Turn) -> _Json:
    return {"name": turn.name} if turn.name else {}
