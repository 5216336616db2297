"""What a route's own check is asked about: one unit of an answer, before it is committed.

A check is a callable of one argument, plain or `async`. It accepts with `None` or `True`, and
rejects with `False`, a reason, or a `Reject`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

MAX_REASON_CHARS = 300
"""Of a check's reason: it stands in errors, logs and requests to other providers."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A unit must not stand.

    Args:
        reason: why, a clause; it is shown to the client, and to the next provider where words are
            possible.
    """

    reason: str


Verdict: TypeAlias = bool | str | Reject | None
"""What a check may return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A part of an answer that is about to be committed.

    Args:
        kind: "sentence" in text: one or more sentences, lines or, where neither ends, words;
            "value" in structured output.
        text: as the provider wrote it.
        value: the value as Python data; the text itself in text.
        path: where the value stands in its document; empty for the whole document, and in text.
        stream_id: whose.
        route: the public model name.
        so_far: gives `text_so_far`.
    """

    kind: Literal["sentence", "value"]
    text: str
    value: Any = None
    path: tuple[str | int, ...] = ()
    stream_id: str = ""
    route: str = ""
    so_far: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    @property
    def text_so_far(self) -> str:
        """The answer up to the end of this unit. It is put together when it is asked for."""
        return self.so_far() if self.so_far is not None else self.text


def reason_of(verdict: object) -> str:
    """What a check's answer means.

    Args:
        verdict: what it returned.

    Returns:
        Why the unit is rejected, "" if it is accepted.

    Raises:
        TypeError: it is no verdict.
    """
    if verdict is None or verdict is True:
        return ""
    if verdict is False:
        return "rejected by the route's check"
    reason = verdict.reason if isinstance(verdict, Reject) else verdict
    if not isinstance(reason, str):
        raise TypeError(f"a check gave {type(verdict).__name__}, which is no verdict")
    line = " ".join(reason.split())[:MAX_REASON_CHARS]
    return line or "rejected by the route's check"
