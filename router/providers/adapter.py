"""What the adapters of all formats have in common: a target, its headers, its fault table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from router.core.continuation import Continuation, ContinuationStyle
from router.core.faults import Fault
from router.core.request import ChatRequest, Format
from router.providers import continuations
from router.providers.base import MAX_ERROR_BODY_BYTES, Sent
from router.providers.classify import Classifier
from router.providers.registry import Family
from router.providers.translate import native


@dataclass(frozen=True, slots=True, repr=False)
class Adapter:
    """One configured target. Pure and shareable.

    Args:
        family: its row of the registry.
        model: the name the server knows.
        continuation: the target's style and knobs.
        url: where a request goes.
        headers: all request headers, credentials included.
        classifier: the fault table, bound to this target.
    """

    family: Family
    model: str
    continuation: ContinuationStyle
    url: str
    headers: tuple[tuple[str, str], ...]
    classifier: Classifier

    FORMAT: ClassVar[Format]
    """What it speaks."""

    def __repr__(self) -> str:
        # A generated one would show the credential in `headers`.
        return f"{type(self).__name__}({self.family.name}, {self.model!r}, {self.url!r})"

    @property
    def format(self) -> Format:
        """What it speaks."""
        return self.FORMAT

    def sends(self, request: ChatRequest, continuation: Continuation) -> Sent:
        """What `build` makes of a continuation.

        Args:
            request: the client's request.
            continuation: how, and after what.
        """
        return continuations.sent(native(request, self.FORMAT).request, continuation)

    def classify(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """What a non-2xx response means. Never raises.

        Args:
            status: HTTP status.
            headers: response headers, names in lower case.
            body: the first bytes of the body; more than `MAX_ERROR_BODY_BYTES` is not read.
        """
        return self.classifier.response(status, headers, body[:MAX_ERROR_BODY_BYTES])
