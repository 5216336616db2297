"""The adapter for servers that speak Anthropic's Messages.

A request in that format is passed on as it came, with a few fields replaced; one in another format
is translated. https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlunsplit

from router.core.continuation import Continuation, Style
from router.core.conversation import Loss
from router.core.request import ChatRequest, Format
from router.providers import continuations
from router.providers.adapter import Adapter
from router.providers.base import StreamReader, UpstreamRequest
from router.providers.claude_models import ClaudeModel, claude_model, settle, think_on
from router.providers.continue_anthropic import forget_thinking
from router.providers.counts import read_count
from router.providers.http import ROUTER_FIELDS, Account, encode, is_header_value, split_url
from router.providers.translate import named, native
from router.wire.anthropic.reader import MessagesReader

_MESSAGES_PATH = "/v1/messages"
_COUNT_PATH = "/count_tokens"
_VERSION, _BETA = "anthropic-version", "anthropic-beta"

ANSWER_FIELDS = frozenset(
    {
        "max_tokens",
        "stream",
        "temperature",
        "top_k",
        "top_p",
        "stop_sequences",
        "metadata",
        "service_tier",
        "container",
        "inference_geo",
    }
)
"""Fields that speak of an answer: a count of the prompt's tokens refuses them ("Extra inputs are
not permitted"). https://platform.claude.com/docs/en/api/messages/count_tokens"""


@dataclass(frozen=True, slots=True, repr=False)
class AnthropicProvider(Adapter):
    """One configured target that speaks Messages. Pure and shareable.

    Args:
        traits: what the model takes of a translated request.
        own_version: `anthropic-version` was configured, so a client's does not replace it.
    """

    traits: ClaudeModel
    own_version: bool

    FORMAT = Format.ANTHROPIC

    def losses(self, request: ChatRequest, *, first: bool = True) -> tuple[Loss, ...]:
        """What of a request cannot be said in Messages.

        Args:
            request: the client's request.
            first: nobody else is asked before.

        Raises:
            RequestError: it is wrong in a way that only shows when it is translated.
        """
        body, losses = self._said(request, onward=not first)
        asked = native(request, Format.ANTHROPIC).request
        return (*losses, *continuations.go_on(body, asked, request, self.continuation))

    def build(
        self, request: ChatRequest, continuation: Continuation | None, *, first: bool = True
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
        asked = native(request, Format.ANTHROPIC).request
        body, _ = self._said(request, onward=continuation is not None or not first)
        body["stream"] = True
        style = Style.RESTART
        if continuation is not None:
            style = continuations.apply(
                body, asked, continuation, schema_types=self.family.schema_types
            )
        if style is Style.RESTART:
            continuations.go_on(body, asked, request, self.continuation)
        return UpstreamRequest(
            method="POST", url=self.url, headers=self._headers(request), body=encode(body)
        )

    def reader(self, *, continuing: bool = False) -> StreamReader:  # noqa: ARG002 - all the same
        """A fresh reader for one 2xx response body.

        Args:
            continuing: it answers a continuation.
        """
        return MessagesReader(on_error=self.classifier.error_object)

    def count_request(self, request: ChatRequest) -> UpstreamRequest | None:
        """The HTTP request that counts the tokens of a prompt.

        Args:
            request: the client's request; its token budget need not be there.

        Raises:
            RequestError: the request cannot be translated.
        """
        body, _ = self._said(request)
        return UpstreamRequest(
            method="POST",
            url=_with_path(self.url, _COUNT_PATH),
            headers=tuple(
                (name, "application/json" if name.lower() == "accept" else value)
                for name, value in self._headers(request)
            ),
            body=encode({name: body[name] for name in body if name not in ANSWER_FIELDS}),
        )

    def read_count(self, body: bytes) -> int:
        """The number of tokens in a 2xx answer to it.

        Args:
            body: the answer's, whole.

        Raises:
            MalformedStream: there is no such number in it.
        """
        return read_count(body, "input_tokens")

    def _said(
        self, request: ChatRequest, *, onward: bool = False
    ) -> tuple[dict[str, Any], tuple[Loss, ...]]:
        """The body of a request to this model, and what could not be said in it.

        A client's own words are between it and the provider, until another model was asked: then a
        word that only this one refuses would end the failover. Or until another family has taken a
        turn, of which the client cannot know.
        """
        asked = native(request, Format.ANTHROPIC)
        body = {k: v for k, v in asked.request.raw.items() if k not in ROUTER_FIELDS}
        losses = asked.losses
        if onward or request.format is not Format.ANTHROPIC:
            body, more = settle(body, self.traits)
        else:
            body, more = think_on(body, self.traits)
            if more and "thinking" not in body:
                forget_thinking(body)
        losses = (*losses, *named(more, request.format))
        body["model"] = self.model
        return body, losses

    def _headers(self, request: ChatRequest) -> tuple[tuple[str, str], ...]:
        """The target's headers, and what a client of the same format says of the format: the
        version, unless one is configured, and betas beside those that are."""
        if request.format is not Format.ANTHROPIC or not request.headers:
            return self.headers
        said = {name: value for name, value in request.headers if is_header_value(value)}
        headers = {name.lower(): (name, value) for name, value in self.headers}
        if _VERSION in said and not self.own_version:
            headers[_VERSION] = (_VERSION, said[_VERSION])
        if _BETA in said:
            name, own = headers.get(_BETA, (_BETA, ""))
            both = (beta.strip() for beta in f"{own},{said[_BETA]}".split(","))
            headers[_BETA] = (name, ",".join(dict.fromkeys(filter(None, both))))
        return tuple(headers.values())


def make(account: Account) -> AnthropicProvider:
    """The provider of a target that speaks Messages.

    Args:
        account: the target.

    Raises:
        ValueError: its URL is no HTTP URL, or a header could not be sent. A sentence.
    """
    return AnthropicProvider(
        family=account.family,
        model=account.model,
        continuation=account.continuation,
        url=_messages_url(account.base_url),
        headers=account.sent_headers(),
        traits=claude_model(account.model),
        own_version=any(name.lower() == _VERSION for name in account.headers),
        classifier=account.classifier(),
    )


def _messages_url(root: str) -> str:
    """`{root}/v1/messages`, of which the root may have a part already."""
    parts = split_url(root)
    path = parts.path.rstrip("/").removesuffix("/messages").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, path + _MESSAGES_PATH, parts.query, ""))


def _with_path(url: str, more: str) -> str:
    parts = split_url(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path + more, parts.query, ""))
