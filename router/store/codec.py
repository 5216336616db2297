"""What a record looks like when it is written down: ids, head, meta, and the way back.

Both stores use it, so that what one accepts the other does, and what comes back is the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from router.errors import RecordCorrupt
from router.store.base import Record, RecordHead
from router.store.envelope import Envelope, Envelopes

FORMAT = "1"
"""Version of the layout; a record with another one is refused, never guessed at."""

MAX_ID_CHARS = 128
"""Longest stream id; ids are part of key names and come back in a client's header."""

_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_ID_CHARS}}}")

T = TypeVar("T")


def is_stream_id(text: str) -> bool:
    """Whether this may name a record: nothing that could leave the key's hash tag."""
    return _ID.fullmatch(text) is not None


def checked_id(text: str) -> str:
    """The id itself.

    Raises:
        ValueError: it is no stream id; ids are made by the router, so this is a bug there.
    """
    if not is_stream_id(text):
        raise ValueError(f"a stream id is 1 to {MAX_ID_CHARS} of [A-Za-z0-9_-], not {text[:40]!r}")
    return text


def encode_text(text: str) -> bytes:
    """UTF-8; a lone surrogate (half of a pair that a model never finished) survives as it is."""
    return text.encode("utf-8", "surrogatepass")


def encode_head(head: RecordHead) -> bytes:
    """The head as JSON."""
    return msgspec.json.encode(head)


def encode_meta(meta: Mapping[str, Any]) -> bytes:
    """The engine's facts as JSON, taken as they are now: later changes of `meta` do not reach it.

    Raises:
        TypeError: something in it is no JSON value.
    """
    return json.dumps(meta, separators=(",", ":")).encode()


def decode_record(
    stream_id: str, fields: Mapping[bytes, bytes], raw: bytes, envelopes: Envelopes
) -> tuple[Record, Envelope]:
    """A record from what the store held.

    Args:
        stream_id: the id that was asked for.
        fields: the state hash.
        raw: the text's bytes, as they are stored.
        envelopes: unwrap them.

    Returns:
        The record, and its envelope: at the end of the text, for whoever goes on.

    Raises:
        RecordCorrupt: another version's, a foreign value, one that lost a part, or one whose seal
            cannot be opened.
    """
    _check_format(stream_id, fields)
    envelope = envelopes.of(stream_id, fields)
    text = _text(stream_id, fields, raw, envelope)
    meta = fields.get(b"meta", b"")
    return Record(
        head=_head(stream_id, envelope.unwrap("head", fields.get(b"head", b""))),
        epoch=_number(stream_id, fields, b"epoch"),
        text=text,
        boundaries=_number(stream_id, fields, b"boundaries"),
        outcome=_read(stream_id, "outcome", fields.get(b"outcome", b""), bytes.decode),
        stale=fields.get(b"stale", b"0") != b"0",
        meta=decode_meta(stream_id, envelope.unwrap("meta", meta) if meta else b""),
    ), envelope


def _text(stream_id: str, fields: Mapping[bytes, bytes], raw: bytes, envelope: Envelope) -> str:
    chars, size = _number(stream_id, fields, b"chars"), _number(stream_id, fields, b"bytes")
    if len(raw) != size:
        raise RecordCorrupt(
            f"record {stream_id}: the text has {len(raw)} bytes, its state says {size}"
        )
    text: str = _read(
        stream_id, "text", envelope.read(raw), lambda data: data.decode("utf-8", "surrogatepass")
    )
    if len(text) != chars:
        raise RecordCorrupt(
            f"record {stream_id}: the text has {len(text)} characters, its state says {chars}"
        )
    return text


def decode_meta(stream_id: str, raw: bytes) -> dict[str, Any]:
    """The engine's facts; none were ever written: {}.

    Raises:
        RecordCorrupt: no JSON object.
    """
    meta = _read(stream_id, "meta", raw or b"{}", json.loads)
    if not isinstance(meta, dict):
        raise RecordCorrupt(f"record {stream_id}: its meta is no object")
    return meta


def _check_format(stream_id: str, fields: Mapping[bytes, bytes]) -> None:
    found = fields.get(b"v")
    if found is None:
        raise RecordCorrupt(f"record {stream_id}: a foreign hash lies under its key")
    if found != FORMAT.encode():
        newer = found.isdigit() and int(found[:20]) > int(FORMAT)
        raise RecordCorrupt(
            f"record {stream_id}: written by {'a newer' if newer else 'another'} version of the "
            f"router, in format {found[:20]!r}; this one reads {FORMAT}"
        )


def _head(stream_id: str, raw: bytes) -> RecordHead:
    head: RecordHead = _read(
        stream_id, "head", raw, lambda data: msgspec.json.decode(data, type=RecordHead)
    )
    if head.stream_id != stream_id:
        raise RecordCorrupt(f"record {stream_id}: its head names another stream")
    return head


def _number(stream_id: str, fields: Mapping[bytes, bytes], name: bytes) -> int:
    raw = fields.get(name, b"")
    if not raw.isdigit():
        raise RecordCorrupt(f"record {stream_id}: {name.decode()} is {raw[:20]!r}, no count")
    return int(raw)


def _read(stream_id: str, part: str, raw: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(raw)
    except (
        ValueError
    ) as exc:  # of which UnicodeDecodeError, JSONDecodeError and msgspec's are kinds
        raise RecordCorrupt(f"record {stream_id}: its {part} cannot be read") from exc
