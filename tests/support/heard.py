"""A router asked through the SDK of either client format, and what that made of the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import anthropic
import httpx
import openai

from support.continuity import without
from support.messages import MessageAnswer, check_message, read_messages
from support.reading import Answer, check_contract, read_stream

FINISHES: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "pause_turn": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""Anthropic's stop reasons in the words of chat completions."""
QUESTION: Final = "Tell me something long."
MAX_TOKENS: Final = 4_096
"""What is asked for where a test says nothing: Messages must say something."""

SdkError: TypeAlias = openai.APIError | anthropic.APIError
Taken: TypeAlias = Answer | MessageAnswer
"""An answer's bytes, taken apart."""


@dataclass(kw_only=True)
class Heard:
    """What an SDK made of one answer.

    Args:
        delivered: all text.
        thoughts: all reasoning.
        calls: id, name and arguments of the tool calls, in order.
        words: every finish in the format's own words.
        matched: the stop sequence that ended it, where the format tells.
        usage: tokens of prompt and answer.
        cached: of the prompt, tokens that were read from a cache; None if it was not said.
        signatures: of thoughts, in order.
        ids: of the chunks, or of the message.
        models: the same.
        metadata: the `router` objects.
        message: what goes into the history of the next request.
        error: the error that was raised, or None.
    """

    delivered: str = ""
    thoughts: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    matched: str | None = None
    usage: tuple[int, int] | None = None
    cached: int | None = None
    signatures: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    message: dict[str, Any] = field(default_factory=dict)
    error: SdkError | None = None

    @property
    def finishes(self) -> list[str]:
        """Every finish, in the words of chat completions."""
        return [FINISHES.get(word, word) for word in self.words]

    @property
    def failure(self) -> dict[str, Any]:
        """The error object, whatever SDK raised it."""
        assert self.error is not None
        body: Any = self.error.body
        return dict(body.get("error", body))

    @property
    def facts(self) -> dict[str, Any]:
        """The metadata, wherever they came; empty if nothing happened."""
        if self.error is not None:
            return dict(self.failure.get("router") or {})
        return self.metadata[0] if self.metadata else {}

    @property
    def canonical(self) -> str:
        """The delivered text without what was superseded."""
        return without(self.delivered, self.facts.get("superseded", []))

    @property
    def content(self) -> tuple[str, str, list[tuple[str, str, Any]], list[str]]:
        """What the answer says, however it came: text, thoughts, calls, finish."""
        calls = [(id_, name, json.loads(arguments)) for id_, name, arguments in self.calls]
        return self.canonical, self.thoughts, calls, self.finishes


class Client(Protocol):
    """One client format, behind its SDK."""

    @property
    def name(self) -> str:
        """`chat` or `messages`."""
        ...

    async def stream(self, **fields: Any) -> Heard:  # noqa: ANN401 - of a request
        """One streamed request."""
        ...

    async def whole(self, **fields: Any) -> Heard:  # noqa: ANN401 - of a request
        """One blocking request."""
        ...

    async def raw(
        self,
        headers: Mapping[str, str] | None = None,
        **fields: Any,  # noqa: ANN401 - as above
    ) -> Taken:
        """One streamed request, its bytes taken apart."""
        ...

    async def post(
        self,
        headers: Mapping[str, str] | None = None,
        **fields: Any,  # noqa: ANN401 - as above
    ) -> httpx.Response:
        """One request as it is."""
        ...


class _Heard:
    """An answer that is coming in."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.said: list[str] = []
        self.thought: list[str] = []
        self.calls: dict[int, list[str]] = {}

    def fold(self) -> Heard:
        """As far as it came."""
        self.heard.delivered, self.heard.thoughts = "".join(self.said), "".join(self.thought)
        self.heard.calls = [(one[0], one[1], one[2]) for one in self.calls.values()]
        return self.heard


# -- chat completions ------------------------------------------------------------------------------


class ChatClient:
    """`openai`, asking for chat completions.

    Args:
        sdk: of a router.
        http: a plain client.
        base_url: of the router.
    """

    name = "chat"

    def __init__(self, sdk: openai.AsyncOpenAI, http: httpx.AsyncClient, base_url: str) -> None:
        self.sdk = sdk
        self._http = http
        self._url = f"{base_url}/chat/completions"

    async def stream(self, **fields: Any) -> Heard:  # noqa: ANN401 - of a request
        """See `Client.stream`."""
        coming = _Heard()
        options: Any = {"include_usage": True}
        try:
            stream = await self.sdk.chat.completions.create(
                stream=True, stream_options=options, **chat(fields)
            )
            async for chunk in stream:
                _take_chunk(coming, chunk)
        except openai.APIError as error:
            coming.heard.error = error
        heard = coming.fold()
        heard.message = {"role": "assistant", "content": heard.delivered}
        if heard.thoughts:  # many applications send them back
            heard.message["reasoning_content"] = heard.thoughts
        if heard.calls:
            heard.message["tool_calls"] = [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id_, name, arguments in heard.calls
            ]
        return heard

    async def whole(self, **fields: Any) -> Heard:  # noqa: ANN401 - of a request
        """See `Client.whole`."""
        heard = Heard()
        try:
            whole = await self.sdk.chat.completions.create(stream=False, **chat(fields))
        except openai.APIError as error:
            heard.error = error
            return heard
        (choice,) = whole.choices
        message = choice.message
        heard.ids, heard.models = {whole.id}, {whole.model}
        heard.delivered = message.content or ""
        heard.thoughts = (message.model_extra or {}).get("reasoning_content") or ""
        for call in message.tool_calls or ():
            assert call.type == "function"
            heard.calls.append((call.id, call.function.name, call.function.arguments))
        heard.words.append(choice.finish_reason)
        heard.message = message.to_dict()
        _count(heard, whole.usage)
        router = (whole.model_extra or {}).get("router")
        heard.metadata = [] if router is None else [router]
        return heard

    async def raw(
        self,
        headers: Mapping[str, str] | None = None,
        **fields: Any,  # noqa: ANN401 - as above
    ) -> Answer:
        """See `Client.raw`."""
        response = await self.post(headers, stream=True, **fields)
        return read_stream(response.status_code, response.headers, response.content)

    async def post(
        self,
        headers: Mapping[str, str] | None = None,
        **fields: Any,  # noqa: ANN401 - as above
    ) -> httpx.Response:
        """See `Client.post`."""
        return await self._http.post(self._url, json=chat(fields), headers=dict(headers or {}))


def chat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A request, of which the fields say what is not usual."""
    return {"model": "chat", "messages": [{"role": "user", "content": QUESTION}], **fields}


def _take_chunk(coming: _Heard, chunk: Any) -> None:  # noqa: ANN401 - of the SDK
    heard = coming.heard
    heard.ids.add(chunk.id)
    heard.models.add(chunk.model)
    for choice in chunk.choices:
        coming.said.append(choice.delta.content or "")
        coming.thought.append((choice.delta.model_extra or {}).get("reasoning_content") or "")
        for delta in choice.delta.tool_calls or ():
            call = coming.calls.setdefault(delta.index, ["", "", ""])
            call[0] += delta.id or ""
            call[1] += delta.function.name or ""
            call[2] += delta.function.arguments or ""
        if choice.finish_reason:
            heard.words.append(choice.finish_reason)
    _count(heard, chunk.usage)
    router = (chunk.model_extra or {}).get("router")
    if router is not None:
        assert any(choice.finish_reason for choice in chunk.choices)
        heard.metadata.append(router)


def _count(heard: Heard, usage: Any) -> None:  # noqa: ANN401 - of the SDK
    if usage:
        heard.usage = usage.prompt_tokens, usage.completion_tokens
        details = usage.prompt_tokens_details
        heard.cached = details.cached_tokens if details else None


# -- Messages --------------------------------------------------------------------------------------


class MessagesClient:
    """`anthropic`, asking for Messages.

    Args:
        sdk: of a router.
        http: a plain client.
        base_url: of the router.
    """

    name = "messages"

    def __init__(
        self, sdk: anthropic.AsyncAnthropic, http: httpx.AsyncClient, base_url: str
    ) -> None:
        self.sdk = sdk
        self._http = http
        self._url = f"{base_url}/messages"

    async def stream(self, **fields: Any) -> Heard:  # noqa: ANN401 - of a request
        """See `Client.stream`. Read twice: delta by delta, and by the helper that accumulates."""
        coming = _Heard()
        try:
            async with self.sdk.messages.stream(**_for_sdk(fields)) as stream:
                async for event in stream:
                    _take_event(coming, event)
                message = await stream.get_final_message()
        except anthropic.APIError as error:
            coming.heard.error = error
            return coming.fold()
        accumulated = Heard()
        _take_message(accumulated, message)
        heard = coming.fold()
        assert (heard.delivered, heard.thoughts) == (accumulated.delivered, accumulated.thoughts)
        assert [(one[:2], json.loads(one[2] or "{}")) for one in heard.calls] == [
            (one[:2], json.loads(one[2])) for one in accumulated.calls
        ]
        heard.usage, heard.cached = accumulated.usage, accumulated.cached
        heard.message = accumulated.message
        return heard

    async def whole(self, **fields: Any) -> Heard:  # noqa: ANN401 - of a request
        """See `Client.whole`."""
        heard = Heard()
        try:
            message = await self.sdk.messages.create(stream=False, **_for_sdk(fields))
        except anthropic.APIError as error:
            heard.error = error
            return heard
        _take_message(heard, message)
        heard.ids, heard.models = {message.id}, {message.model}
        heard.words, heard.matched = [message.stop_reason or ""], message.stop_sequence
        heard.signatures = [b.signature for b in message.content if b.type == "thinking"]
        router = (message.model_extra or {}).get("router")
        heard.metadata = [] if router is None else [router]
        return heard

    async def raw(
        self,
        headers: Mapping[str, str] | None = None,
        **fields: Any,  # noqa: ANN401 - as above
    ) -> MessageAnswer:
        """See `Client.raw`."""
        response = await self.post(headers, stream=True, **fields)
        return read_messages(response.status_code, response.headers, response.content)

    async def post(
        self,
        headers: Mapping[str, str] | None = None,
        **fields: Any,  # noqa: ANN401 - as above
    ) -> httpx.Response:
        """See `Client.post`."""
        return await self._http.post(self._url, json=messages(fields), headers=dict(headers or {}))


def messages(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A request, of which the fields say what is not usual."""
    return {"max_tokens": MAX_TOKENS, **chat(fields)}


def _for_sdk(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Newer versions of the SDK have no arguments for what the newest models do not take."""
    asked = messages(fields)
    older = {name: asked.pop(name) for name in ("temperature", "top_p", "top_k") if name in asked}
    return asked | ({"extra_body": older} if older else {})


def _take_event(coming: _Heard, event: Any) -> None:  # noqa: ANN401 - of the SDK
    heard = coming.heard
    match event.type:
        case "message_start":
            heard.ids.add(event.message.id)
            heard.models.add(event.message.model)
        case "content_block_start" if event.content_block.type == "tool_use":
            coming.calls[event.index] = [event.content_block.id, event.content_block.name, ""]
        case "content_block_delta":
            _take_delta(coming, event.index, event.delta)
        case "message_delta":
            heard.words.append(event.delta.stop_reason or "")
            heard.matched = event.delta.stop_sequence
            router = (event.model_extra or {}).get("router")
            if router is not None:
                heard.metadata.append(router)


def _take_delta(coming: _Heard, index: int, delta: Any) -> None:  # noqa: ANN401 - of the SDK
    match delta.type:
        case "text_delta":
            coming.said.append(delta.text)
        case "thinking_delta":
            coming.thought.append(delta.thinking)
        case "signature_delta":
            coming.heard.signatures.append(delta.signature)
        case "input_json_delta":
            coming.calls[index][2] += delta.partial_json


def _take_message(heard: Heard, message: Any) -> None:  # noqa: ANN401 - of the SDK, parsed or not
    usage = message.usage
    heard.cached = usage.cache_read_input_tokens
    prompt = usage.input_tokens + (heard.cached or 0) + (usage.cache_creation_input_tokens or 0)
    heard.usage = prompt, usage.output_tokens
    blocks = message.content
    heard.delivered = "".join(block.text for block in blocks if block.type == "text")
    heard.thoughts = "".join(block.thinking for block in blocks if block.type == "thinking")
    heard.calls = [
        (block.id, block.name, json.dumps(block.input))
        for block in blocks
        if block.type == "tool_use"
    ]
    content = [block.to_dict(exclude_none=True) for block in blocks]
    heard.message = {"role": "assistant", "content": content}


def check_whole(answer: Taken) -> None:
    """What every finished stream keeps to, in its format."""
    if isinstance(answer, Answer):
        check_contract(answer)
    else:
        check_message(answer)
