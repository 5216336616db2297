"""What a request in Gemini's format asks, and how one is turned down."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import msgspec

from router.simulate.answer import Ask
from router.simulate.calls import Offer
from router.simulate.dialect import Dialect, Rejection
from router.simulate.faults import FaultSpec, Misdeed, in_words
from router.simulate.gemini.checks import Fields, check, declared, parts_of
from router.simulate.gemini.encoder import GeminiEncoder, error_object
from router.simulate.gemini.fields import read_message
from router.simulate.gemini.models import takes_prefix
from router.simulate.intake import HttpRequest
from router.simulate.openai import bearer
from router.simulate.prefix import Said, asked_prefix
from router.simulate.text import tokenize

_MESSAGE_TOKENS: Final = 4  # what a chat template adds to each message
_TYPES: Final = "type.googleapis.com/google.rpc"
_WORDS: Final[Mapping[str, FaultSpec]] = {
    "rate_limit": FaultSpec(
        kind=Misdeed.STATUS,
        status=429,
        message="You exceeded your current quota, please check your plan and billing details.",
    ),
    "context_length": FaultSpec(
        kind=Misdeed.STATUS,
        status=400,
        message=(
            "The input token count (1048577) exceeds the maximum number of tokens allowed "
            "(1048576)."
        ),
    ),
    "content_policy": FaultSpec(
        kind=Misdeed.STATUS,
        status=400,
        message="The request was blocked due to safety reasons.",
    ),
    "unauthorized": FaultSpec(
        kind=Misdeed.STATUS,
        status=400,
        code="API_KEY_INVALID",
        message="API key not valid. Please pass a valid API key.",
    ),
    "no_model": FaultSpec(
        kind=Misdeed.STATUS,
        status=404,
        message=(
            "models/gemini-0 is not found for API version v1beta, or is not supported for "
            "generateContent. Call ListModels to see the list of available models and their "
            "supported methods."
        ),
    ),
}
"""The common error responses, as this vendor words them; a wrong key is a 400."""


class GeminiWire:
    """The format of `…/models/<model>:streamGenerateContent` and its two siblings."""

    def model(self, request: HttpRequest, _body: Mapping[str, Any]) -> str:
        """As the path says, percent-decoded."""
        path = request.path.rpartition(":")[0]
        return unquote(path.rpartition("/models/")[2].rpartition("/")[2])

    def key(self, request: HttpRequest) -> str:
        """The header `x-goog-api-key`, the query's `key`, or the bearer token."""
        named = parse_qs(request.query).get("key", [""])[0]
        return request.headers.get("x-goog-api-key", "") or named or bearer(request)

    def ask(self, request: HttpRequest, body: Mapping[str, Any]) -> Ask:
        """Read a request; raises ValueError for one that the vendor would refuse."""
        model = self.model(request, body).partition("!")[0]
        method = request.path.rpartition(":")[2]
        counts = method == "countTokens"
        asked = _counted(body) if counts else read_message(body, "GenerateContentRequest")
        check(asked, model)
        stream = method == "streamGenerateContent"
        config = asked.get("generationConfig") or {}
        thinking = config.get("thinkingConfig") or {}
        return Ask(
            model=model,
            stream=stream,
            include_usage=True,
            prompt_tokens=sum(_sizes(asked)),
            max_tokens=config.get("maxOutputTokens"),
            stop=tuple(config.get("stopSequences") or ()),
            choices=config.get("candidateCount") or 1,
            structured=config.get("responseMimeType") == "application/json",
            prefix=asked_prefix(list(map(_said, asked["contents"]))),
            messages=len(asked["contents"]),
            tools=tuple(str(function["name"]) for function in declared(asked)),
            offers=tuple(
                Offer(
                    name=str(function["name"]),
                    schema=function.get("parameters") or function.get("parametersJsonSchema") or {},
                )
                for function in declared(asked)
            ),
            has_results=bool(parts_of(asked["contents"][-1], "functionResponse")),
            thinking=thinking.get("thinkingBudget") != 0 if thinking else None,
            hides_thinking=not thinking.get("includeThoughts"),
            whole_calls=True,
            counts=counts,
            array=stream and parse_qs(request.query).get("alt") != ["sse"],
            refusal="gemini",
            takes_prefix=takes_prefix(model),
        )

    def encoder(self, ask: Ask, dialect: Dialect, *, model: str, number: int) -> GeminiEncoder:
        """An encoder of one answer."""
        return GeminiEncoder(ask, dialect, model=model, number=number)

    def rejection(self, fault: FaultSpec) -> Rejection:
        """Google's error object; how long to wait stands in it, and not in a header."""
        fault = in_words(fault, _WORDS)
        body = error_object(fault)
        if details := list(_details(fault)):
            body["error"]["details"] = details
        return Rejection(status=fault.status, body=msgspec.json.encode(body))


def _details(fault: FaultSpec) -> Iterator[dict[str, Any]]:
    if fault.retry_after:
        yield {"@type": f"{_TYPES}.RetryInfo", "retryDelay": f"{fault.retry_after}s"}
    if fault.code:
        yield {
            "@type": f"{_TYPES}.ErrorInfo",
            "reason": fault.code,
            "domain": "googleapis.com",
            "metadata": {"service": "generativelanguage.googleapis.com"},
        }
    if fault.message.startswith("Invalid "):
        lines = fault.message.split("\n")
        yield {
            "@type": f"{_TYPES}.BadRequest",
            "fieldViolations": [{"description": line} for line in lines],
        }


def _counted(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request whose tokens are to be counted."""
    read = read_message(body, "CountTokensRequest")
    inner: dict[str, Any] = read.get("generateContentRequest") or read
    return inner


def _said(content: Fields) -> Said:
    text = "".join(_texts(content))
    if content.get("role", "user") == "model":
        return Said(role="assistant", text=text)
    plain = not parts_of(content, "functionResponse")
    return Said(role="user" if plain else "other", text=text)


def _texts(content: Fields) -> Iterator[str]:
    """What a content says, thoughts left out."""
    for part in content["parts"]:
        if "text" in part and not part.get("thought"):
            yield part["text"]


def _sizes(request: Fields) -> Iterator[int]:
    """Tokens of each content."""
    system = [request["systemInstruction"]] if "systemInstruction" in request else []
    for content in [*system, *request["contents"]]:
        results = [json.dumps(r.get("response")) for r in parts_of(content, "functionResponse")]
        yield _MESSAGE_TOKENS + len(tokenize("".join([*_texts(content), *results])))
