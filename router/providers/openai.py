"""The one adapter for OpenAI-compatible servers; what differs between them is a registry row.

It writes the client's own body with a few fields replaced, so fields that the router does not know
reach the provider unharmed. A request in another format is translated before, and then the model
and the server take of it what they know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from router.core.continuation import Continuation, Style
from router.core.conversation import Loss
from router.core.request import ChatRequest, Format
from router.errors import MalformedStream
from router.providers import continuations
from router.providers.adapter import Adapter
from router.providers.base import StreamReader, UpstreamRequest
from router.providers.http import ROUTER_FIELDS, Account, encode, split_url
from router.providers.openai_models import OpenAIModel, openai_model, settle
from router.providers.registry import Family
from router.providers.translate import named, native
from router.wire.openai.call_ids import short_ids
from router.wire.openai.reader import ChatStreamReader

_CHAT_PATH = "/chat/completions"


@dataclass(frozen=True, slots=True, repr=False)
class OpenAIProvider(Adapter):
    """One configured target on an OpenAI-compatible server. Pure and shareable.

    Args:
        continuation_url: where a prefix request in the style `prefix_flag` goes.
        sends_usage_option: `stream_options.include_usage` may be sent.
        traits: what the model takes of a translated request.
    """

    continuation_url: str
    sends_usage_option: bool
    traits: OpenAIModel

    FORMAT = Format.OPENAI

    def losses(
        self,
        request: ChatRequest,
        *,
        first: bool = True,  # noqa: ARG002 - all the same
    ) -> tuple[Loss, ...]:
        """What of a request this model cannot be told; nothing where it is a chat completion.

        Args:
            request: the client's request.
            first: nobody else is asked before.

        Raises:
            RequestError: it is wrong in a way that only shows when it is translated.
        """
        said, losses = self._said(request)
        asked = native(request, Format.OPENAI).request
        return (*losses, *continuations.go_on(dict(said), asked, request, self.continuation))

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

        Returns:
            The request to send; its body was encoded exactly once.

        Raises:
            ValueError: the continuation's style is `none`.
            RequestError: the request cannot be translated.
        """
        asked = native(request, Format.OPENAI).request
        said, _ = self._said(request, onward=continuation is not None)
        body = self._original(said, translated=request.format is not Format.OPENAI)
        style = Style.RESTART
        if continuation is not None:
            style = continuations.apply(
                body, asked, continuation, schema_types=self.family.schema_types
            )
        if style is Style.RESTART:
            continuations.go_on(body, asked, request, self.continuation)
        if self.family.call_id_chars is not None:
            body["messages"] = short_ids(body["messages"], self.family.call_id_chars)
        return UpstreamRequest(
            method="POST",
            url=self.continuation_url if style is Style.PREFIX_FLAG else self.url,
            headers=self.headers,
            body=encode(body),
        )

    def reader(self, *, continuing: bool = False) -> StreamReader:  # noqa: ARG002 - all the same
        """A fresh reader for one 2xx response body.

        Args:
            continuing: it answers a continuation.
        """
        return ChatStreamReader(on_error=self.classifier.error_object)

    def count_request(self, request: ChatRequest) -> UpstreamRequest | None:  # noqa: ARG002
        """None: chat completions have no such question."""
        return None

    def read_count(self, body: bytes) -> int:  # noqa: ARG002 - nothing was asked
        """Never called: nothing asks.

        Raises:
            MalformedStream: always.
        """
        raise MalformedStream("an OpenAI-compatible server counts no tokens")

    def _said(
        self, request: ChatRequest, *, onward: bool = False
    ) -> tuple[Mapping[str, Any], tuple[Loss, ...]]:
        """The words of a request to this model, and what could not be said.

        A client's own words are between it and the provider, until an answer has begun: then a word
        that only this model refuses would break it off.
        """
        asked = native(request, Format.OPENAI)
        translated = request.format is not Format.OPENAI
        if not (translated or onward):
            return asked.request.raw, asked.losses
        said, more = settle(asked.request.raw, self.traits, self.family, translated=translated)
        return said, (*asked.losses, *named(more, request.format))

    def _original(self, said: Mapping[str, Any], *, translated: bool) -> dict[str, Any]:
        rename = self.family.rename
        if translated:
            rename = {"max_completion_tokens": self.family.budget, **rename}
        body = {
            rename.get(name, name): value
            for name, value in said.items()
            if name not in ROUTER_FIELDS
        }
        body["model"] = self.model
        body["stream"] = True
        if self.sends_usage_option:
            # Always asked for, so that the books know what an attempt cost; whether the client sees
            # it is the writer's business.
            options = said.get("stream_options")
            options = options if isinstance(options, Mapping) else {}
            body["stream_options"] = {**options, "include_usage": True}
        else:
            body.pop("stream_options", None)
        return body


def make(account: Account) -> OpenAIProvider:
    """The provider of a target on an OpenAI-compatible server.

    Args:
        account: the target.

    Raises:
        ValueError: its URL is no HTTP URL, or a header could not be sent. A sentence.
    """
    family, model, version = account.family, account.model, account.api_version
    url = _chat_url(family, account.base_url, model, version)
    moved = _continuation_root(family, account.base_url)
    return OpenAIProvider(
        family=family,
        model=model,
        continuation=account.continuation,
        url=url,
        continuation_url=_chat_url(family, moved, model, version) if moved else url,
        headers=account.sent_headers(),
        sends_usage_option=_takes_usage(family, url, version),
        traits=openai_model(model, family),
        classifier=account.classifier(),
    )


def _takes_usage(family: Family, url: str, version: str) -> bool:
    dated = family.usage_since and "api-version=" in url
    return family.usage_option and not (dated and version[:10] < family.usage_since)


def _chat_url(family: Family, root: str, model: str, api_version: str) -> str:
    parts = split_url(root)
    path, query = parts.path.rstrip("/").removesuffix(_CHAT_PATH), parts.query
    # Azure's newer API (`…/openai/v1`) is OpenAI's own: no deployment in the path, no version.
    if family.deployments and not path.endswith("/v1"):
        if "/deployments/" not in path:
            path = f"{path.removesuffix('/openai')}/openai/deployments/{quote(model, safe='')}"
        if "api-version=" not in query:
            query = "&".join(filter(None, (query, f"api-version={quote(api_version, safe='')}")))
    return urlunsplit((parts.scheme, parts.netloc, path + _CHAT_PATH, query, ""))


def _continuation_root(family: Family, root: str) -> str | None:
    """The family's other base URL for a prefix, if the configured host is the vendor's own."""
    moved = family.continuation_base_url
    if moved is None or urlsplit(moved).netloc != urlsplit(root).netloc:
        return None
    return moved
