"""An error that a provider reports inside a 2xx answer, in whatever format the answer is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from router.core.events import Failed
from router.core.faults import Fault, FaultKind
from router.wire.jsontext import Json, mend_tree

Judge: TypeAlias = Callable[[Mapping[str, Any]], Fault]
"""Judges an error that an answer reports. It is given an object whose `error` is never empty: the
provider's own object where it has such a field (`{"error": "…", "error_type": "…"}` arrives whole),
else what it said, wrapped as `{"error": …}`."""

FAILURE_FINISHES: Final = frozenset(
    {
        "error",
        "network_error",
        "abort",
        "insufficient_system_resource",
        "malformed_function_call",
    }
)
"""Words in the place of a reason to stop that say that the answer did not finish. Gemini's filter
takes a call that the model wrote wrongly out of the answer: `function_call_filter:
MALFORMED_FUNCTION_CALL`."""


def failed(said: Json, on_error: Judge) -> Failed:
    """The event for an error that is reported.

    Args:
        said: the provider's object, or its words.
        on_error: judges it.
    """
    said = mend_tree(said)
    if not (isinstance(said, dict) and said.get("error")):
        said = {"error": said or "The provider reported an error without a word."}
    return Failed(on_error(said))


def unfinished(word: str) -> Failed:
    """The event for an answer that ended with one of `FAILURE_FINISHES`.

    Args:
        word: as the provider wrote it.
    """
    message = f'The provider ended the answer with the finish reason "{word}".'
    return Failed(Fault(kind=FaultKind.STREAM_ERROR, code=word, message=message))


def says_something(error: Json) -> bool:
    """Is it an error at all? A healthy answer may hold one that is null, or has only empty fields.

    Args:
        error: an object's `error`, as decoded.
    """
    return any(error.values()) if isinstance(error, dict) else bool(error)


def is_flat(obj: Mapping[str, Any]) -> bool:
    """Is it an error that is not wrapped: `{"object": "error", …}`, `{"code": …, "message": …}`?

    Args:
        obj: an object that is no part of an answer.
    """
    return (
        "error" in (obj.get("object"), obj.get("type"))
        or bool(obj.get("detail"))
        or (bool(obj.get("message")) and bool(obj.get("code")))
    )
