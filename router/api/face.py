"""What a client's format is to the HTTP face: how it is read, and in what words it is answered.

A new format is a package in `wire/`, a `Face` in a file of its own here, and a line in `app.py`.
Everything else about an answer is the same for all: `endpoint.py` and `sinks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from router.core.events import Event, Finish
from router.core.request import ChatRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which stream it is, and where this response of it begins.

    Args:
        stream_id: id of the stream.
        created: Unix time in seconds of its beginning.
        part: name of this response: a stream that is resumed comes in several.
        resume_from: delivered offset at which it begins, None for a stream's first response.
        received: characters that the client has from earlier ones.
    """

    stream_id: str
    created: int
    part: str
    resume_from: int | None = None
    received: int = 0

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """What the client needs to come back, and to join what it gets to what it has."""
        start = self.resume_from
        resumed = [] if start is None else [(b"x-router-resume-from", b"%d" % start)]
        return [
            (b"x-router-stream-id", self.stream_id.encode()),
            (b"x-router-part", self.part.encode()),
            *resumed,
        ]


class Writer(Protocol):
    """One client's stream, whatever number of attempts feeds it."""

    def write(self, events: Sequence[Event]) -> bytes:
        """What the client is to see of these events; b"" if that is nothing."""
        ...

    def finish(
        self,
        finishes: Sequence[Finish],
        usage: Mapping[str, Any] | None,
        router: Mapping[str, Any] | None,
    ) -> bytes:
        """The end of a stream that succeeded; `router` is the failover metadata, if it is told."""
        ...

    def error(self, error: Mapping[str, Any]) -> bytes:
        """The end of a stream that failed: `Face.error`'s object in band."""
        ...


class Fold(Protocol):
    """The answer to a blocking request, folded from the events that would have been streamed."""

    def add(self, events: Sequence[Event]) -> None:
        """Take the next events."""
        ...

    def result(
        self,
        finishes: Sequence[Finish],
        usage: Mapping[str, Any] | None,
        router: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        """The whole answer."""
        ...

    def message(self) -> dict[str, Any]:
        """The message as far as it came: an answer that was broken off."""
        ...


class Face(Protocol):
    """One format."""

    @property
    def salt(self) -> bytes:
        """Goes into the digest of a request: the same bytes elsewhere are another question."""
        ...

    @property
    def always_usage(self) -> bool:
        """The usage belongs to every answer, asked for or not."""
        ...

    @property
    def sign_of_life(self) -> bytes:
        """Sent while there is nothing to send; no client may take it for output."""
        ...

    def parse(self, body: bytes, headers: Mapping[str, str]) -> ChatRequest:
        """Read and check a request.

        Args:
            body: as it came.
            headers: names in lower case.

        Raises:
            RequestError: it cannot be served.
        """
        ...

    def writer(self, origin: Origin, model: str) -> Writer:
        """For a stream.

        Args:
            origin: which stream it is.
            model: shown where the provider names none.
        """
        ...

    def fold(self, origin: Origin, model: str) -> Fold:
        """For a blocking answer; arguments as for `writer`."""
        ...

    def headers(self, origin: Origin) -> list[tuple[bytes, bytes]]:
        """Response headers that this format's clients read."""
        ...

    def clean(self, result: dict[str, Any], superseded: Sequence[tuple[int, int]]) -> None:
        """Take what was superseded out of a blocking answer, whose client never saw it.

        Args:
            result: what `Fold.result` gave; changed in place.
            superseded: ranges in characters of the delivered text, in order.
        """
        ...

    def error(
        self,
        message: str,
        *,
        status: int,
        type: str,  # noqa: A002 - OpenAI's own word on the wire
        param: str | None,
        code: str | None,
        router: Mapping[str, Any] | None = None,
        partial: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """An error's body.

        Args:
            message: a sentence a person can act on.
            status: HTTP status that it has, or would have.
            type: OpenAI's error type.
            param: the request field at fault, in the words of chat completions where a check that
                serves all formats named it, or None.
            code: a stable word, or None.
            router: the failover metadata, where there is something to tell.
            partial: what came of an answer whose client wanted that to stand.
        """
        ...


def canonical(delivered: str, superseded: Sequence[tuple[int, int]]) -> str:
    """The answer: what was delivered without the superseded ranges.

    Args:
        delivered: the delivered text.
        superseded: ranges in characters of it, in order.
    """
    kept = []
    at = 0
    for start, end in superseded:
        kept.append(delivered[at:start])
        at = end
    return "".join((*kept, delivered[at:]))
