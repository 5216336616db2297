"""How to say it: what a wire encoder does, and the quirks that healthy servers have in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from router.simulate.answer import Answer, Ask, Piece
from router.simulate.faults import FaultSpec
from router.simulate.intake import HttpRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Shapes of a healthy stream. One that a format cannot have changes nothing there.

    Args:
        line_end: of every line: "\\n", "\\r\\n" or "\\r".
        no_space: `data:` without a space after it.
        bom: a byte order mark before everything.
        comment_every: a comment after every so many chunks; 0 is never.
        tokens_per_chunk: pieces of one kind in a chunk.
        no_role: no role delta at the start.
        role_every_chunk: the role in every delta.
        azure_first: a first chunk with empty `choices` and `prompt_filter_results`.
        error_null: `"error": null` in every chunk.
        usage_every_chunk: cumulative usage in every chunk.
        usage_null: `"usage": null` in every chunk but the last.
        no_usage: no usage even if asked for.
        text_in_finish: the last piece comes in the chunk with the finish.
        finish_twice: the finish comes in two chunks.
        bare_finish: the finish comes without `delta` (`content`).
        finish_word: what the server calls a `stop`, such as `eos`.
        ascii_json: everything beyond ASCII is escaped.
        reasoning_field: name of the delta's field for reasoning.
    """

    line_end: str = "\n"
    no_space: bool = False
    bom: bool = False
    comment_every: int = 0
    tokens_per_chunk: int = 1
    no_role: bool = False
    role_every_chunk: bool = False
    azure_first: bool = False
    error_null: bool = False
    usage_every_chunk: bool = False
    usage_null: bool = False
    no_usage: bool = False
    text_in_finish: bool = False
    finish_twice: bool = False
    bare_finish: bool = False
    finish_word: str = "stop"
    ascii_json: bool = False
    reasoning_field: str = "reasoning_content"


_LINE_ENDS = {"crlf": "\r\n", "cr": "\r", "lf": "\n"}


def parse_dialect(words: str, base: Dialect | None = None) -> Dialect:
    """Read a dialect such as `crlf,no_space,tokens_per_chunk=4`.

    Args:
        words: with commas between them; a field name alone means true.
        base: what the words change.

    Raises:
        ValueError: there is no such word, or its value is of the wrong type.
    """
    changes: dict[str, Any] = {}
    for word in filter(None, (word.strip() for word in words.split(","))):
        changes.update(_change(word))
    return replace(base or Dialect(), **changes)


def _change(word: str) -> dict[str, Any]:
    if word in _LINE_ENDS:
        return {"line_end": _LINE_ENDS[word]}
    name, _, value = word.partition("=")
    kinds: dict[str, type] = {field.name: type(field.default) for field in fields(Dialect)}
    if name not in kinds or name == "line_end":
        known = ", ".join([*_LINE_ENDS, *(name for name in kinds if name != "line_end")])
        raise ValueError(f"Unknown shape {name!r}; known: {known}.")
    if kinds[name] is bool:
        return {name: value.lower() not in {"false", "0", "no"}}
    try:
        return {name: kinds[name](value)}
    except ValueError:
        raise ValueError(f"{word!r}: {name} is a number.") from None


class Encoder(Protocol):
    """Writes one answer in one wire format. Every method gives bytes of the body."""

    @property
    def content_type(self) -> str:
        """Of the stream."""
        ...

    def opening(self) -> bytes:
        """What comes before the first piece."""
        ...

    def pieces(self, pieces: tuple[Piece, ...]) -> bytes:
        """Some pieces of one kind and choice, as one increment."""
        ...

    def ending(self, answer: Answer, last: tuple[Piece, ...]) -> bytes:
        """The finish of every choice and the usage; `last` is held back for it, or empty."""
        ...

    def done(self) -> bytes:
        """The terminal marker; empty where the format has none."""
        ...

    def broken(self, piece: Piece | None) -> bytes:
        """An event that should have held this piece and cannot be decoded."""
        ...

    def error(self, fault: FaultSpec) -> bytes:
        """An error inside the stream."""
        ...

    def finish_error(self, reason: str) -> bytes:
        """A finish whose reason is a failure."""
        ...

    def alive(self, form: str) -> bytes:
        """A sign of life without content: `comment`, `empty`, `role`, or "", the usual one."""
        ...

    def whole(self, answer: Answer) -> bytes:
        """The answer as one document."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """An error response.

    Args:
        status: HTTP status.
        body: JSON.
        headers: beside those that every response has.
    """

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Refused(ValueError):
    """A request that the vendor refuses; the message is in its own words."""


class Wire(Protocol):
    """One wire format: reads its requests, writes its errors, makes its encoders.

    A format to come implements this and `Encoder`, and gets a line in the server's table `WIRES`.
    """

    def model(self, request: HttpRequest, body: Mapping[str, Any]) -> str:
        """The model's name as it was asked for, directives and all."""
        ...

    def key(self, request: HttpRequest) -> str:
        """The credential that came with the request, or ""."""
        ...

    def ask(self, request: HttpRequest, body: Mapping[str, Any]) -> Ask:
        """Read a request.

        Raises:
            ValueError: the request is wrong; `Refused` says why in the vendor's words.
        """
        ...

    def encoder(self, ask: Ask, dialect: Dialect, *, model: str, number: int) -> Encoder:
        """An encoder of one answer.

        Args:
            ask: the request.
            dialect: quirks.
            model: name that the answer reports.
            number: of the request; ids are made of it.
        """
        ...

    def rejection(self, fault: FaultSpec) -> Rejection:
        """An error response, in the vendor's shape and words."""
        ...
