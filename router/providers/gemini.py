"""The adapter for servers that speak Gemini's `streamGenerateContent`.

Every request is translated, since no client speaks the format; then the model takes of it what it
knows. https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlunsplit

from router.core.continuation import Continuation, Style
from router.core.conversation import Loss
from router.core.request import ChatRequest, Format
from router.providers import continuations
from router.providers.adapter import Adapter
from router.providers.base import StreamReader, UpstreamRequest
from router.providers.counts import read_count
from router.providers.gemini_models import GeminiModel, gemini_model, settle
from router.providers.http import Account, encode, split_url
from router.providers.translate import named, native
from router.wire.gemini.reader import GenerateContentReader

_VERSION = "/v1beta"
_HAS_VERSION = re.compile(r"/v\d+(?:alpha|beta)?\d*(?:/|\Z)")
_STREAM, _COUNT = ":streamGenerateContent", ":countTokens"


@dataclass(frozen=True, slots=True, repr=False)
class GeminiProvider(Adapter):
    """One configured target that speaks Gemini. Pure and shareable.

    Args:
        count_url: where a count of tokens is asked for.
        traits: what the model takes.
        vertex: the server is Vertex AI.
    """

    count_url: str
    traits: GeminiModel
    vertex: bool

    FORMAT = Format.GEMINI

    def losses(
        self,
        request: ChatRequest,
        *,
        first: bool = True,  # noqa: ARG002 - all the same
    ) -> tuple[Loss, ...]:
        """What of a request this model cannot be told.

        Args:
            request: the client's request.
            first: nobody else is asked before.

        Raises:
            RequestError: it is wrong in a way that only shows when it is translated.
        """
        asked = native(request, Format.GEMINI)
        body = dict(asked.request.raw)
        begun = continuations.go_on(body, asked.request, request, self.continuation)
        _, more = settle(body, self.traits, vertex=self.vertex)
        return (*asked.losses, *named(more, request.format), *begun)

    def build(
        self,
        request: ChatRequest,
        continuation: Continuation | None,
        *,
        first: bool = True,  # noqa: ARG002 - all the same
    ) -> UpstreamRequest:
        """The HTTP request for a streamed answer, or for its continuation.

        Args:
            request: the client's request.
            continuation: None asks the original question.
            first: it is the stream's first.

        Raises:
            ValueError: the continuation's style is `none`.
            RequestError: the request cannot be translated.
        """
        asked = native(request, Format.GEMINI).request
        body, style = dict(asked.raw), Style.RESTART
        if continuation is not None:
            style = continuations.apply(
                body, asked, continuation, schema_types=self.family.schema_types
            )
        if style is Style.RESTART:
            continuations.go_on(body, asked, request, self.continuation)
        return UpstreamRequest(
            method="POST", url=self.url, headers=self.headers, body=encode(self._settled(body))
        )

    def reader(self, *, continuing: bool = False) -> StreamReader:
        """A fresh reader for one 2xx response body.

        Args:
            continuing: it answers a continuation, which may have nothing left to say.
        """
        return GenerateContentReader(on_error=self.classifier.error_object, continuing=continuing)

    def count_request(self, request: ChatRequest) -> UpstreamRequest | None:
        """The HTTP request that counts the tokens of a prompt.

        https://ai.google.dev/api/tokens#method:-models.counttokens; Vertex AI takes the fields as
        they are, and not all of them.

        Args:
            request: the client's request; its token budget need not be there.

        Raises:
            RequestError: the request cannot be translated.
        """
        body = self._settled(native(request, Format.GEMINI).request.raw)
        if self.vertex:
            counted = {name: body[name] for name in _COUNTED if name in body}
        else:
            counted = {"generateContentRequest": {"model": _resource(self.model), **body}}
        return UpstreamRequest(
            method="POST",
            url=self.count_url,
            headers=tuple(
                (name, "application/json" if name.lower() == "accept" else value)
                for name, value in self.headers
            ),
            body=encode(counted),
        )

    def read_count(self, body: bytes) -> int:
        """The number of tokens in a 2xx answer to it.

        Args:
            body: the answer's, whole.

        Raises:
            MalformedStream: there is no such number in it.
        """
        return read_count(body, "totalTokens")

    def _settled(self, body: Mapping[str, Any]) -> dict[str, Any]:
        settled, _ = settle(body, self.traits, vertex=self.vertex)
        return settled


_COUNTED = ("contents", "systemInstruction", "tools")


def make(account: Account) -> GeminiProvider:
    """The provider of a target that speaks Gemini.

    Args:
        account: the target.

    Raises:
        ValueError: its URL is no HTTP URL, or a header could not be sent. A sentence.
    """
    parts = split_url(account.base_url)
    return GeminiProvider(
        family=account.family,
        model=account.model,
        continuation=account.continuation,
        url=_url(account.base_url, account.model, _STREAM, "alt=sse"),
        count_url=_url(account.base_url, account.model, _COUNT),
        headers=account.sent_headers(),
        traits=gemini_model(account.model),
        vertex="/publishers/" in f"{parts.path}/{account.model}",
        classifier=account.classifier(),
    )


def _url(root: str, model: str, method: str, query: str = "") -> str:
    """`{root}/v1beta/models/{model}:{method}`; a root that names a version has it already, as
    Vertex AI's has: `…/v1/projects/P/locations/L/publishers/google`."""
    parts = split_url(root)
    path = parts.path.rstrip("/").removesuffix("/models")
    if not _HAS_VERSION.search(path):
        path += _VERSION
    path = f"{path}/{quote(_resource(model), safe='/@')}{method}"
    query = "&".join(filter(None, (parts.query, query)))
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def _resource(model: str) -> str:
    """A name with a path (`tunedModels/x`, `publishers/google/models/x`) stands as it is."""
    return model if "/" in model else f"models/{model}"
