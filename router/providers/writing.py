"""What a format must know to write a continuation down: a handful of functions, a set for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from router.core.continuation import Continuation, Style
from router.core.request import ChatRequest

Body: TypeAlias = dict[str, Any]
"""The body to send: a shallow copy of the request's, changed in place. What it holds is shared with
the client's request, and is replaced, never changed."""


class Loosen(Protocol):
    """Takes what constrains decoding out of a body."""

    def __call__(self, body: Body, *, every: bool) -> None:
        """Take it out.

        Args:
            body: changed in place.
            every: grammars of any kind; else only what `response_format` asked for.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationWriter:
    """How one format writes a continuation down. All functions take a request of that format.

    Args:
        constrained: a body asks for a grammar in a way that `response_format` does not tell.
        tail_text: the text of the client's own trailing assistant message (its own prefill), ""
            where there is none.
        begun: ends the messages with the answer so far, in one of the styles that put it there. A
            client that ended with an assistant message of its own gets one message, not two: the
            answer was its continuation.
        ask: adds a message of the user.
        loosen: takes out what constrains decoding.
        spend: takes tokens off the budget, and leaves at least one; then, as the last one to touch
            the body, mends what no longer goes together in it.
    """

    constrained: Callable[[Mapping[str, Any]], bool]
    tail_text: Callable[[ChatRequest], str]
    begun: Callable[[Body, ChatRequest, Continuation, Style], None]
    ask: Callable[[Body, str], None]
    loosen: Loosen
    spend: Callable[[Body, int], None]


def left(budget: int, spent: int) -> int:
    """What is left of a token budget: at least one, since none is no request.

    Args:
        budget: tokens that the client allows.
        spent: tokens that the answer has cost so far.
    """
    return max(budget - spent, 1)


def as_budget(value: object) -> int | None:
    """A token budget as a client sent it, or None where it is none.

    Args:
        value: of a JSON type.
    """
    return value if isinstance(value, int) and not isinstance(value, bool) else None
