"""Reads content blocks as the parts of a canonical conversation."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from router.core.conversation import CallPart, MediaPart, Part, ResultPart, TextPart
from router.wire.anthropic.blocks import PDF_TYPE, TEXT_TYPE
from router.wire.calls import CallBook
from router.wire.checks import Object, quote
from router.wire.jsontext import dumps
from router.wire.losses import CACHE_MARK, Losses, Unheld

_Simple: TypeAlias = TextPart | MediaPart

_CITATIONS: Final = "Only Anthropic cites what it was given."
_STORED: Final = "A file that is stored at Anthropic is known to it alone; send its data instead."


class BlockReader:
    """Reads the blocks of one request, in order.

    Args:
        losses: what has no place is added here.
    """

    __slots__ = ("_calls", "_losses")

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._calls = CallBook(unique=False)

    def content(self, message: Object, where: str) -> Iterable[Part]:
        """The parts of one message.

        Args:
            message: of the client.
            where: its path.

        Raises:
            RequestError: a result belongs to no call.
        """
        role, at = message["role"], f"{where}.content"
        if role != "system":
            self._calls.turn(role)
        content = message.get("content") or ()
        if isinstance(content, str):
            return [TextPart(where=at, text=content)]
        return [
            part
            for number, block in enumerate(content)
            for part in self._part(block, f"{at}[{number}]")
        ]

    def text(self, block: Object, where: str) -> TextPart:
        """A text block.

        Args:
            block: of the client.
            where: its path.
        """
        self._losses.fields(block, _TEXT_HELD, _TEXT_UNHELD, where)
        return TextPart(where=where, text=block["text"])

    def _part(self, block: Object, where: str) -> Iterable[Part]:
        match block["type"]:
            case "tool_use":
                return [self._call(block, where)]
            case "tool_result":
                return [self._result(block, where)]
            case "thinking" | "redacted_thinking":
                message = "Thinking belongs to the provider that thought; it is not passed on."
                self._losses.add(where, message, hint=True)
                return []
            case _:
                return self._simple(block, where)

    def _simple(self, block: Object, where: str) -> Iterable[_Simple]:
        match block["type"]:
            case "text":
                return [self.text(block, where)]
            case "image":
                return self._image(block, where)
            case "document":
                return self._document(block, where)
            case "search_result":
                return self._search_result(block, where)
            case kind:
                self._losses.add(where, f"A block of the kind {quote(kind)} is Anthropic's own.")
                return []

    def _inner(self, content: object, where: str) -> list[_Simple]:
        """Text and media that stand within another block."""
        if isinstance(content, str):
            return [TextPart(where=where, text=content)] if content else []
        blocks = content if isinstance(content, list) else []
        return [
            part
            for number, block in enumerate(blocks)
            for part in self._simple(block, f"{where}[{number}]")
        ]

    def _call(self, block: Object, where: str) -> CallPart:
        self._losses.fields(block, _CALL_HELD, _CALL_UNHELD, where)
        self._calls.call(block["id"], block["name"], where)
        arguments = dumps(block["input"]).decode()
        return CallPart(where=where, id=block["id"], name=block["name"], arguments=arguments)

    def _result(self, block: Object, where: str) -> ResultPart:
        self._losses.fields(block, _RESULT_HELD, _CALL_UNHELD, where)
        call_id = block["tool_use_id"]
        return ResultPart(
            where=where,
            call_id=call_id,
            name=self._calls.result(call_id, f"{where}.tool_use_id"),
            parts=tuple(self._inner(block.get("content"), f"{where}.content")),
            error=bool(block.get("is_error")),
        )

    def _image(self, block: Object, where: str) -> Iterable[_Simple]:
        self._losses.fields(block, _IMAGE_HELD, _IMAGE_UNHELD, where)
        source = block["source"]
        match source["type"]:
            case "base64":
                return [
                    MediaPart(
                        where=where,
                        kind="image",
                        media_type=source["media_type"],
                        data=source["data"],
                    )
                ]
            case "url":
                return [MediaPart(where=where, kind="image", url=source["url"])]
            case kind:
                return self._elsewhere(kind, where)

    def _document(self, block: Object, where: str) -> Iterable[_Simple]:
        self._losses.fields(block, _DOCUMENT_HELD, _DOCUMENT_UNHELD, where)
        # What Anthropic shows the model beside a document is text for any other.
        context = block.get("context")
        before = [TextPart(where=f"{where}.context", text=context)] if context else []
        return [*before, *self._document_source(block, where)]

    def _document_source(self, block: Object, where: str) -> Iterable[_Simple]:
        source, name = block["source"], block.get("title") or ""
        titled = [TextPart(where=f"{where}.title", text=name)] if name else []
        match source["type"]:
            case "base64":
                media_type, data, url = source["media_type"], source["data"], ""
            case "text":
                data = base64.b64encode(source["data"].encode()).decode()
                media_type, url = TEXT_TYPE, ""
            case "url":
                media_type, data, url = PDF_TYPE, "", source["url"]
            case "content":
                return [*titled, *self._inner(source["content"], f"{where}.source.content")]
            case kind:
                return [*titled, *self._elsewhere(kind, where)]
        return [
            MediaPart(
                where=where, kind="document", media_type=media_type, data=data, url=url, name=name
            )
        ]

    def _elsewhere(self, kind: str, where: str) -> Iterable[_Simple]:
        unknown = f"A source of the kind {quote(kind)} is Anthropic's own."
        self._losses.add(f"{where}.source", _STORED if kind == "file" else unknown)
        return []

    def _search_result(self, block: Object, where: str) -> Iterable[_Simple]:
        self._losses.fields(block, _SEARCH_HELD, _DOCUMENT_UNHELD, where)
        texts = [
            self.text(inner, f"{where}.content[{number}]").text
            for number, inner in enumerate(block["content"])
        ]
        head = f"{block['title']}\n{block['source']}"
        return [TextPart(where=where, text="\n\n".join([head, *texts]))]


_TEXT_HELD: Final = frozenset({"type", "text"})
_TEXT_UNHELD: Final[Mapping[str, Unheld]] = {
    "cache_control": CACHE_MARK,
    "citations": Unheld(message="What an answer cited is left out.", hint=True, idle=([],)),
}
_IMAGE_HELD: Final = frozenset({"type", "source"})
_IMAGE_UNHELD: Final[Mapping[str, Unheld]] = {
    "cache_control": CACHE_MARK,
    "transformations": Unheld(
        message="How a picture is scaled is left to the provider.", hint=True, idle=({},)
    ),
}
_DOCUMENT_HELD: Final = frozenset({"type", "source", "title", "context"})
_DOCUMENT_UNHELD: Final[Mapping[str, Unheld]] = {
    "cache_control": CACHE_MARK,
    "citations": Unheld(message=_CITATIONS, idle=({"enabled": False}, {})),
}
_SEARCH_HELD: Final = frozenset({"type", "source", "title", "content"})
_CALL_HELD: Final = frozenset({"type", "id", "name", "input"})
_RESULT_HELD: Final = frozenset({"type", "tool_use_id", "content", "is_error"})
_CALL_UNHELD: Final[Mapping[str, Unheld]] = {
    "cache_control": CACHE_MARK,
    "caller": Unheld(
        message="Who called a tool is left out.", hint=True, idle=({"type": "direct"},)
    ),
    "toolset_name": Unheld(message="Which set a tool is of is left out.", hint=True),
}
