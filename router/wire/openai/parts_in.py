"""Reads the messages of chat completions as turns of a canonical conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from router.core.conversation import CallPart, MediaPart, Part, ResultPart, TextPart, Turn
from router.wire.calls import CallBook, check_arguments
from router.wire.checks import (
    Object,
    check_base64,
    check_object,
    check_string,
    check_word,
    quote,
    refuse,
    required,
)
from router.wire.losses import CACHE_MARK, Losses, Unheld

_Role: TypeAlias = Literal["system", "user", "assistant"]
_Simple: TypeAlias = TextPart | MediaPart

_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+-]+=[^;,]*)*)(;base64)?,")
"""https://www.rfc-editor.org/rfc/rfc2397; what follows the comma is the data."""
_CALL_KINDS: Final = ("function", "custom")
_AUDIO: Final = ("wav", "mp3")
"""https://developers.openai.com/api/docs/guides/audio"""
_MEDIA_TYPES: Final[Mapping[str, str]] = {"image/jpg": "image/jpeg"}
"""What clients write that is no media type, and what they mean."""
PDF_TYPE: Final = "application/pdf"


class MessageReader:
    """Reads the messages of one request, in order.

    Args:
        losses: what has no place is added here.
    """

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._calls = CallBook(unique=False)
        self._legacy: dict[str, str] = {}
        self.system: list[TextPart] = []
        """Instructions that stand before everything else."""
        self.turns: list[Turn] = []
        """What follows them."""

    def read(self, message: Object, where: str) -> None:
        """One message.

        Args:
            message: as it was parsed.
            where: its path.

        Raises:
            RequestError: a part is wrong, or a result belongs to no call.
        """
        role = message["role"]
        match role:
            case "system" | "developer":
                self._system(message, where)
            case "user":
                self._calls.turn("user")
                self._losses.fields(message, _SAID, _SAID_UNHELD, where)
                self._add("user", self._content(message, where), where, message.get("name"))
            case "assistant":
                self._calls.turn("assistant")
                self._losses.fields(message, _ANSWERED, _ANSWERED_UNHELD, where)
                parts = list(self._answer(message, where))
                self._add("assistant", parts, where, message.get("name"))
            case _:
                self._calls.turn("user")
                self._losses.fields(message, _RESULT, _SAID_UNHELD, where)
                self._add("user", [self._result(message, where)], where)

    def close(self) -> None:
        """There are no more messages.

        Raises:
            RequestError: a call has no result.
        """
        self._calls.close()

    def _add(self, role: _Role, parts: Iterable[Part], where: str, name: object = None) -> None:
        held = tuple(parts) or (TextPart(where=where, text=""),)
        self.turns.append(Turn(where=where, role=role, parts=held, name=str(name or "")))

    def _system(self, message: Object, where: str) -> None:
        self._losses.fields(message, _SAID, _SAID_UNHELD, where)
        parts = self._content(message, where)
        if self.turns:
            self._add("system", parts, where, message.get("name"))
            return
        if message.get("name"):
            self._losses.add(f"{where}.name", "Who gives instructions is left out.", hint=True)
        for part in parts:
            if isinstance(part, TextPart):
                self.system.append(part)
            else:
                self._losses.add(part.where, "Instructions are text alone.")

    def _content(self, message: Object, where: str) -> list[_Simple]:
        content, at = message.get("content"), f"{where}.content"
        if content is None:
            return []
        if isinstance(content, str):
            return [TextPart(where=at, text=content)]
        return [
            part
            for number, item in enumerate(content)
            for part in self._part(item, f"{at}[{number}]")
        ]

    def _part(self, part: Object, where: str) -> Iterable[_Simple]:
        kind = part["type"]
        self._losses.fields(part, frozenset({"type", kind}), _PART_UNHELD, where)
        match kind:
            case "text":
                return [TextPart(where=where, text=part["text"])]
            case "refusal":
                return [TextPart(where=where, text=_text(part, "refusal", where))]
            case "image_url":
                return [_image(part, where)]
            case "input_audio":
                return [_audio(part, where)]
            case "file":
                return self._file(part, where)
            case _:
                message = f"A part of the kind {quote(kind)} is not known to other formats."
                self._losses.add(where, message)
                return []

    def _file(self, part: Object, where: str) -> Iterable[_Simple]:
        file, at = _inner(part, "file", where), f"{where}.file"
        self._losses.fields(file, _FILE, {}, at)
        if file.get("file_data") is None:
            message = "A file that is stored at its provider is known to it alone; send its data."
            self._losses.add(at, message)
            return []
        data, name = _text(file, "file_data", at), file.get("filename") or ""
        media_type = PDF_TYPE
        if data.startswith("data:"):
            media_type, data = _from_data_url(data, f"{at}.file_data")
        else:
            check_base64(data, f"{at}.file_data")
        return [
            MediaPart(
                where=where, kind="document", media_type=media_type, data=data, name=str(name)
            )
        ]

    def _answer(self, message: Object, where: str) -> Iterable[Part]:
        yield from self._content(message, where)
        refusal = message.get("refusal")
        if refusal:
            check_string(refusal, f"{where}.refusal")
            yield TextPart(where=f"{where}.refusal", text=refusal)
        for number, call in enumerate(message.get("tool_calls") or ()):
            yield self._call(call, f"{where}.tool_calls[{number}]")
        if message.get("function_call") is not None:
            yield self._legacy_call(message, where)

    def _call(self, call: Object, where: str) -> CallPart:
        kind = call.get("type") or "function"
        check_word(kind, f"{where}.type", _CALL_KINDS)
        self._losses.fields(call, _CALL, _CALL_UNHELD, where)
        call_id, at = _text(call, "id", where), f"{where}.{kind}"
        if not call_id:
            refuse(f"'{where}.id' is empty: its result could not name it.", f"{where}.id", _WRONG)
        inner = _inner(call, kind, where)
        name = _text(inner, "name", at)
        custom = kind == "custom"
        arguments = _text(inner, "input", at) if custom else _arguments(inner, at)
        self._calls.call(call_id, name, where)
        return CallPart(where=where, id=call_id, name=name, arguments=arguments, custom=custom)

    def _legacy_call(self, message: Object, where: str) -> CallPart:
        """The form before there were ids: the next message of the role `function` is its result."""
        inner, at = _inner(message, "function_call", where), f"{where}.function_call"
        name = _text(inner, "name", at)
        call_id = f"function_call_{len(self.turns)}"
        arguments = _arguments(inner, at)
        self._calls.call(call_id, name, at, field="name")
        self._legacy = {name: call_id}
        return CallPart(where=at, id=call_id, name=name, arguments=arguments)

    def _result(self, message: Object, where: str) -> ResultPart:
        if message["role"] == "function":
            call_id, field = self._legacy.pop(message["name"], message["name"]), "name"
        else:
            call_id, field = message["tool_call_id"], "tool_call_id"
        name = self._calls.result(call_id, f"{where}.{field}")
        parts = [part for part in self._content(message, where) if part != _blank(part)]
        return ResultPart(where=where, call_id=call_id, name=name, parts=tuple(parts))


def _blank(part: _Simple) -> TextPart:
    """The part itself, if it is a text that is empty."""
    return TextPart(where=part.where, text="")


def _image(part: Object, where: str) -> MediaPart:
    image, at = _inner(part, "image_url", where), f"{where}.image_url"
    url, detail = _text(image, "url", at), image.get("detail") or ""
    media_type = data = ""
    if url.startswith("data:"):
        media_type, data = _from_data_url(url, f"{at}.url")
        url = ""
    elif not url.startswith(("https://", "http://")):
        message = f"'{at}.url' must be an address (https://…) or the data itself (data:…;base64,…)."
        refuse(message, f"{at}.url", _WRONG)
    return MediaPart(
        where=where, kind="image", media_type=media_type, data=data, url=url, detail=str(detail)
    )


def _audio(part: Object, where: str) -> MediaPart:
    audio, at = _inner(part, "input_audio", where), f"{where}.input_audio"
    check_word(required(audio, "format", at), f"{at}.format", _AUDIO)
    data = _text(audio, "data", at)
    check_base64(data, f"{at}.data")
    return MediaPart(where=where, kind="audio", media_type=f"audio/{audio['format']}", data=data)


def _from_data_url(url: str, where: str) -> tuple[str, str]:
    """Media type and data of a data URL."""
    found = _DATA_URL.match(url)
    if found is None or not found[3] or not found[1]:
        message = f"'{where}' must name its media type and be in base64: data:image/png;base64,…"
        refuse(f"{message}.", where, _WRONG)
    data = url[found.end() :]
    check_base64(data, where)
    media_type = found[1].lower()
    return _MEDIA_TYPES.get(media_type, media_type), data


def _arguments(inner: Object, where: str) -> str:
    text = inner.get("arguments")
    check_string("" if text is None else text, f"{where}.arguments")
    return check_arguments(text or "", f"{where}.arguments")


def _inner(holder: Object, name: str, where: str) -> Object:
    inner: Object = required(holder, name, where)
    check_object(inner, f"{where}.{name}")
    return inner


def _text(holder: Object, name: str, where: str) -> str:
    value = required(holder, name, where)
    check_string(value, f"{where}.{name}")
    return str(value)


_WRONG: Final = "invalid_value"
_IDENTITY: Final = Unheld(message="What a message is called is left out.", hint=True)
_SAID: Final = frozenset({"role", "content", "name"})
_SAID_UNHELD: Final[Mapping[str, Unheld]] = {"cache_control": CACHE_MARK, "id": _IDENTITY}
_RESULT: Final = _SAID | {"tool_call_id"}
_ANSWERED: Final = _SAID | {"refusal", "tool_calls", "function_call"}
_REASONING: Final = Unheld(
    message="Reasoning belongs to the provider that reasoned; it is not passed on.",
    hint=True,
    idle=("", []),
)
_BEGUN: Final = Unheld(
    message="A last message of the assistant is gone on with in other formats too.",
    hint=True,
    idle=(False,),
)
_ANSWERED_UNHELD: Final[Mapping[str, Unheld]] = {
    **_SAID_UNHELD,
    "annotations": Unheld(message="What an answer cited is left out.", hint=True, idle=([],)),
    "audio": Unheld(message="An answer in sound is known to its provider alone."),
    "partial": _BEGUN,
    "prefix": _BEGUN,
    "reasoning": _REASONING,
    "reasoning_content": _REASONING,
    "reasoning_details": _REASONING,
}
_CALL: Final = frozenset({"id", "type", "function", "custom"})
_CALL_UNHELD: Final[Mapping[str, Unheld]] = {
    "cache_control": CACHE_MARK,
    "extra_content": Unheld(message="What a provider put beside a call is left out.", hint=True),
    "index": Unheld(message="The place of a call is its place in the list.", hint=True),
}
_PART_UNHELD: Final[Mapping[str, Unheld]] = {
    "cache_control": CACHE_MARK,
    "prompt_cache_breakpoint": CACHE_MARK,
}
_FILE: Final = frozenset({"file_data", "file_id", "filename"})
