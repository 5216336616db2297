"""Checks of the content of a message: each kind of block, and where it may stand.

The rules are those of https://platform.claude.com/docs/en/api/messages/create. A block of a kind
that is not known here is passed over: a target of the same format may know it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from router.wire.anthropic.signature import check_signature
from router.wire.calls import CallBook
from router.wire.checks import (
    Object,
    check_base64,
    check_boolean,
    check_object,
    check_objects,
    check_string,
    check_word,
    quote,
    refuse,
    refuse_type,
    required,
)
from router.wire.jsontext import Json

IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
PDF_TYPE: Final = "application/pdf"
TEXT_TYPE: Final = "text/plain"

_ONLY_ASSISTANT: Final = frozenset({"tool_use", "thinking", "redacted_thinking", "server_tool_use"})
_ONLY_USER: Final = frozenset({"tool_result"})


def check_content(content: Json, where: str, role: str, calls: CallBook) -> None:
    """The content of one message.

    Args:
        content: text, or blocks; not empty. The assistant's may be white space alone, as in
            `check_block`.
        where: its path.
        role: whose it is.
        calls: the request's, up to here.

    Raises:
        RequestError: a block is wrong, or may not stand here.
    """
    if isinstance(content, str):
        if role != "assistant" or not content:
            filled(content, where)
        return
    if not isinstance(content, list):
        refuse_type(content, where, "a string or an array of content blocks")
    if not content:
        refuse(f"'{where}' is empty: send at least one block.", where, "empty_array")
    for number, block in enumerate(content):
        at = f"{where}[{number}]"
        kind = check_block(block, at, blank=role == "assistant")
        _check_place(kind, role, at)
        if kind == "tool_use":
            calls.call(block["id"], block["name"], at)
        elif kind == "tool_result":
            calls.result(block["tool_use_id"], f"{at}.tool_use_id")


def check_block(block: Json, where: str, *, blank: bool = False) -> str:
    """One content block.

    Args:
        block: as the client sent it.
        where: its path.
        blank: its text may be white space alone: a model wrote it, and it comes back with the
            history.

    Returns:
        Its kind.
    """
    check_object(block, where)
    kind = required(block, "type", where)
    check_string(kind, f"{where}.type")
    check = _BLOCKS.get(kind)
    if blank and kind == "text":
        check_string(required(block, "text", where), f"{where}.text")
    elif check is not None:
        check(block, where)
    return str(kind)


def check_text_blocks(blocks: Json, where: str, *, only: bool = True) -> None:
    """Text, or an array of text blocks.

    Args:
        blocks: of the client.
        where: its path.
        only: other kinds are refused; where not, they are passed over.
    """
    if isinstance(blocks, str):
        return
    if not isinstance(blocks, list):
        refuse_type(blocks, where, "a string or an array of text blocks")
    for number, block in enumerate(blocks):
        at = f"{where}[{number}]"
        kind = check_block(block, at)
        if only and kind != "text":
            message = f"'{at}.type' is {quote(kind)}; only text blocks may stand here."
            refuse(message, f"{at}.type", "invalid_value")


def filled(text: Json, where: str) -> None:
    """Text with more than white space in it: Anthropic refuses any other."""
    check_string(text, where)
    if not text.strip():
        what = "blank" if text else "empty"
        refuse(f"'{where}' is {what}: leave it out, or give it text.", where, "empty_text")


def _check_place(kind: str, role: str, where: str) -> None:
    wanted = "assistant" if kind in _ONLY_ASSISTANT else "user" if kind in _ONLY_USER else role
    if role != wanted:
        message = f"'{where}.type' is '{kind}', which only a message of role '{wanted}' may hold."
        refuse(message, f"{where}.type", "invalid_value")


def _named(block: Object, name: str, where: str) -> None:
    """A field that holds a name or an id."""
    value = required(block, name, where)
    check_string(value, f"{where}.{name}")
    if not value:
        refuse(f"'{where}.{name}' is empty.", f"{where}.{name}", "invalid_value")


def _text(block: Object, where: str) -> None:
    filled(required(block, "text", where), f"{where}.text")


def _tool_use(block: Object, where: str) -> None:
    _named(block, "id", where)
    _named(block, "name", where)
    check_object(required(block, "input", where), f"{where}.input")


def _tool_result(block: Object, where: str) -> None:
    _named(block, "tool_use_id", where)
    if block.get("is_error") is not None:
        check_boolean(block["is_error"], f"{where}.is_error")
    content = block.get("content")
    if isinstance(content, list):
        for number, part in enumerate(content):
            check_block(part, f"{where}.content[{number}]")
    elif content is not None and not isinstance(content, str):
        refuse_type(content, f"{where}.content", "a string or an array of content blocks")


def _thinking(block: Object, where: str) -> None:
    check_string(required(block, "thinking", where), f"{where}.thinking")
    signature = required(block, "signature", where)
    check_string(signature, f"{where}.signature")
    check_signature(signature, f"{where}.signature")


def _redacted_thinking(block: Object, where: str) -> None:
    _named(block, "data", where)


def _search_result(block: Object, where: str) -> None:
    for name in ("source", "title"):
        check_string(required(block, name, where), f"{where}.{name}")
    at = f"{where}.content"
    check_text_blocks(check_objects(required(block, "content", where), at), at)


def _image(block: Object, where: str) -> None:
    _source(block, where, _IMAGE_SOURCES)


def _document(block: Object, where: str) -> None:
    for name in ("title", "context"):
        if block.get(name) is not None:
            check_string(block[name], f"{where}.{name}")
    _source(block, where, _DOCUMENT_SOURCES)


_SourceCheck = Callable[[Object, str], None]


def _source(block: Object, where: str, kinds: Mapping[str, _SourceCheck]) -> None:
    source, at = required(block, "source", where), f"{where}.source"
    check_object(source, at)
    kind = required(source, "type", at)
    check_string(kind, f"{at}.type")
    if kind in kinds:
        kinds[kind](source, at)


def _base64_of(types: tuple[str, ...]) -> _SourceCheck:
    def check(source: Object, where: str) -> None:
        check_word(required(source, "media_type", where), f"{where}.media_type", types)
        check_base64(required(source, "data", where), f"{where}.data")

    return check


def _url(source: Object, where: str) -> None:
    _named(source, "url", where)
    if not source["url"].startswith(("https://", "http://")):
        message = f"'{where}.url' must be an address that begins with https:// or http://."
        refuse(message, f"{where}.url", "invalid_value")


def _file(source: Object, where: str) -> None:
    _named(source, "file_id", where)


def _plain_text(source: Object, where: str) -> None:
    check_word(required(source, "media_type", where), f"{where}.media_type", (TEXT_TYPE,))
    filled(required(source, "data", where), f"{where}.data")


def _blocks(source: Object, where: str) -> None:
    check_text_blocks(required(source, "content", where), f"{where}.content", only=False)


_IMAGE_SOURCES: Final[Mapping[str, _SourceCheck]] = {
    "base64": _base64_of(IMAGE_TYPES),
    "url": _url,
    "file": _file,
}
_DOCUMENT_SOURCES: Final[Mapping[str, _SourceCheck]] = {
    "base64": _base64_of((PDF_TYPE,)),
    "text": _plain_text,
    "content": _blocks,
    "url": _url,
    "file": _file,
}
_BLOCKS: Final[Mapping[str, Callable[[Object, str], None]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "tool_use": _tool_use,
    "server_tool_use": _tool_use,
    "tool_result": _tool_result,
    "thinking": _thinking,
    "redacted_thinking": _redacted_thinking,
}
