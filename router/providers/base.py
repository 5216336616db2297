"""What a provider is to the engine: a pure builder of requests and reader of answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from router.core.continuation import Continuation, ContinuationStyle, Style
from router.core.conversation import Loss
from router.core.events import Event
from router.core.faults import Fault
from router.core.request import ChatRequest, Format


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """One HTTP request, ready to send.

    Args:
        method: such as "POST".
        url: absolute.
        headers: name and value pairs; credentials are in here, so never log it.
        body: encoded.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a continuation request really amounts to; the splice must know.

    Args:
        style: the style that is used: `restart` where the target's own cannot be.
        prefix: the assistant text that the request ends with, exactly what an echo repeats; with
            `restart` the committed text, which the new answer must begin with.
    """

    style: Style
    prefix: str


class StreamReader(Protocol):
    """Reads one response body. Any split of the bytes into feeds gives the same events."""

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes of the body; give the events they complete, in order.

        After a `Failed` nothing more is given, whatever is fed.
        """
        ...

    def close(self) -> list[Event]:
        """The body ended cleanly: give what was still waiting for its end.

        Whether the stream was whole is not judged here: the engine has seen `Finish` or it has not.
        """
        ...


class Provider(Protocol):
    """One configured target, seen as request builder and answer reader. Pure and shareable."""

    @property
    def url(self) -> str:
        """Where an original question is sent; a continuation goes to the same host."""
        ...

    @property
    def format(self) -> Format:
        """What it speaks. A request in another format is translated by `build`."""
        ...

    def losses(self, request: ChatRequest, *, first: bool = True) -> tuple[Loss, ...]:
        """What of a request this target is not told; of one in its own format hints alone.

        Args:
            request: the client's request.
            first: nobody else is asked before; see `build`.

        Raises:
            RequestError: it is wrong in a way that only shows when it is translated.
        """
        ...

    @property
    def continuation(self) -> ContinuationStyle:
        """This target's style: the family's default for its model, with configured overrides."""
        ...

    def build(
        self, request: ChatRequest, continuation: Continuation | None, *, first: bool = True
    ) -> UpstreamRequest:
        """The HTTP request for a streamed answer, or for its continuation.

        Args:
            request: the client's request.
            continuation: None asks the original question.
            first: it is the stream's first. Then a client's words in the target's own format are
                between it and the provider. Later ones may leave out what this model refuses, or
                a failover would end in a verdict on words that were right for another.

        Returns:
            The request to send; `stream` is always true in it.
        """
        ...

    def sends(self, request: ChatRequest, continuation: Continuation) -> Sent:
        """What `build` makes of a continuation.

        Args:
            request: the client's request.
            continuation: how, and after what.
        """
        ...

    def reader(self, *, continuing: bool = False) -> StreamReader:
        """A fresh reader for one 2xx response body.

        Args:
            continuing: it answers a continuation, which may have nothing left to say.
        """
        ...

    def classify(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """What a non-2xx response means.

        Args:
            status: HTTP status.
            headers: response headers, names in lower case.
            body: at most the first `MAX_ERROR_BODY_BYTES` of the body.
        """
        ...

    def count_request(self, request: ChatRequest) -> UpstreamRequest | None:
        """The HTTP request that counts the tokens of a prompt, or None: the server cannot.

        Args:
            request: the client's request; its token budget need not be there.
        """
        ...

    def read_count(self, body: bytes) -> int:
        """The number of tokens in a 2xx answer to it.

        Args:
            body: the answer's, whole.

        Raises:
            MalformedStream: there is no such number in it.
        """
        ...


MAX_ERROR_BODY_BYTES = 65_536
"""Bound on what is read of an error response: reasons are short, and a peer may be hostile."""
