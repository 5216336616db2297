"""The `input` of a tool's block, which comes as the pieces of a JSON text."""

from __future__ import annotations

from router.core.json_gate import JsonGate
from router.core.json_values import JsonReader
from router.errors import MalformedStream
from router.wire.jsontext import MAX_MEND_DEPTH, Json, deeper_than, dumps, loads, mend, mend_tree

INVALID_JSON = "INVALID_JSON"
"""Under this key stands a text that is no JSON at all, as Anthropic advises for such a case:
https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming"""

MAX_BROKEN_CHARS = 65_536
"""Bound on a text that is broken off and yet read for what is whole in it: a megabyte would hold
all other streams for seconds."""


def read_input(text: str) -> Json:
    """What the joined pieces say.

    Args:
        text: may be broken off, by `max_tokens` or by a cut; may be empty, or no JSON.

    Returns:
        The value: of a text that is broken off what is whole in it, of one that is no JSON, or is
        broken off and larger than `MAX_BROKEN_CHARS`, the text itself under `INVALID_JSON`.
    """
    if not text.strip():
        return {}
    try:
        value, _ = loads(mend(text).encode())
    except ValueError:
        return _whole_part(text)
    return {INVALID_JSON: mend(text)} if deeper_than(value, MAX_MEND_DEPTH) else mend_tree(value)


def input_text(value: Json) -> str:
    """The JSON text of an input that came as a value.

    Args:
        value: as decoded; a text is taken for the JSON text itself.

    Raises:
        MalformedStream: it is neither text nor an object, or nested too deep.
    """
    if not value:
        return "{}"
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, dict | list) and not deeper_than(value, MAX_MEND_DEPTH):
        return dumps(value).decode()
    raise MalformedStream("A tool's input is neither text nor an object.")


def _whole_part(text: str) -> Json:
    gate = JsonGate(openers="")
    if len(text) > MAX_BROKEN_CHARS or gate.feed(text).fault is not None:
        return {INVALID_JSON: mend(text)}
    whole = gate.committed
    if not whole:
        return {}
    closed, _ = loads(mend(whole + JsonReader.after(whole).closers).encode())
    return mend_tree(closed)
