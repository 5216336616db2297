"""Clients in Python of chat completions and of Messages: what `families.mjs` has in JavaScript.

Each asks one question, runs the tool where the model calls it, and says in the same words what came
of it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, TypeAlias

import anthropic
import httpx
import openai
import pytest
from pydantic import BaseModel, ConfigDict

from support.till import PARAMETERS

langchain_anthropic = pytest.importorskip(
    "langchain_anthropic", reason="LangChain is not installed: make test-clients"
)
langchain_openai = pytest.importorskip("langchain_openai")
messages = pytest.importorskip("langchain_core.messages")

Asked: TypeAlias = Mapping[str, Any]
"""What is asked for: the fields that `families.mjs` lists."""
Read: TypeAlias = dict[str, Any]
"""What came of it: the same."""

PROMPT: Final = "Tell me a tale, or pay."
MAX_TURNS: Final = 4


class Person(BaseModel):
    """Of a tale."""

    model_config = ConfigDict(extra="forbid")
    name: str
    age: int


class Tale(BaseModel):
    """The document that structured output is asked for as."""

    model_config = ConfigDict(extra="forbid")
    title: str
    people: list[Person]
    rating: float
    year: int
    pages: int
    truth: bool | None


async def read(asked: Asked) -> Read:
    """One reading.

    Args:
        asked: the client, and what of it is wanted.
    """
    routers: list[Any] = []
    try:
        async with AsyncExitStack() as stack:
            told = await CLIENTS[asked["client"]](asked, routers, stack)
    except (openai.APIError, anthropic.APIError) as error:
        return {"routers": routers, "raised": _brief(error), "errors": []}
    return {**told, "routers": routers, "raised": None, "errors": []}


def _brief(error: openai.APIError | anthropic.APIError) -> dict[str, Any]:
    body: Any = error.body
    fields = body.get("error", body)
    return {"name": type(error).__name__, "code": fields.get("code")}


async def _pay(till: str, arguments: object) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.post(till, content=json.dumps(arguments))).text


def _note(answer: BaseModel, routers: list[Any]) -> None:
    """What a chunk, an event or a whole answer tells about the router."""
    router = (answer.model_extra or {}).get("router")
    if router is not None:
        routers.append(router)


# -- The vendors' own ------------------------------------------------------------------------------


async def _openai(asked: Asked, routers: list[Any], stack: AsyncExitStack) -> Read:
    client = await stack.enter_async_context(
        openai.AsyncOpenAI(
            base_url=f"{asked['origin']}/v1",
            api_key="none",
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        )
    )
    fields: dict[str, Any] = {
        "model": "chat",
        "messages": [{"role": "user", "content": _chat_content(asked["image"])}],
    }
    if asked["till"]:
        # The helpers that parse, streams among them, want it strict.
        function = {"name": "pay", "parameters": PARAMETERS, "strict": True}
        fields["tools"] = [{"type": "function", "function": function}]
    if asked["document"]:
        fields["response_format"] = Tale
    for _ in range(MAX_TURNS):
        answer = await _openai_answer(client, fields, asked, routers)
        (choice,) = answer.choices
        if choice.finish_reason != "tool_calls":
            value = getattr(choice.message, "parsed", None)
            return _told(choice.message.content, choice.finish_reason, value)
        fields["messages"].append(choice.message)
        for call in choice.message.tool_calls:
            paid = await _pay(asked["till"], json.loads(call.function.arguments))
            result = {"role": "tool", "tool_call_id": call.id, "content": paid}
            fields["messages"].append(result)
    raise AssertionError("the model calls for ever")


async def _openai_answer(
    client: openai.AsyncOpenAI, fields: Asked, asked: Asked, routers: list[Any]
) -> Any:  # noqa: ANN401 - parsed or not
    completions = client.chat.completions
    if asked["stream"]:
        async with completions.stream(**fields) as stream:
            async for event in stream:
                if event.type == "chunk":
                    _note(event.chunk, routers)
            return await stream.get_final_completion()
    ask: Any = completions.parse if asked["document"] else completions.create
    answer = await ask(**fields)
    _note(answer, routers)
    return answer


async def _anthropic(asked: Asked, routers: list[Any], stack: AsyncExitStack) -> Read:
    client = await stack.enter_async_context(
        anthropic.AsyncAnthropic(
            base_url=asked["origin"],
            api_key="none",
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False),
        )
    )
    fields: dict[str, Any] = {
        "model": "chat",
        "max_tokens": 2_000,
        "messages": [{"role": "user", "content": _messages_content(asked["image"])}],
    }
    if asked["till"]:
        fields["tools"] = [{"name": "pay", "input_schema": PARAMETERS}]
    if asked["document"]:
        fields["output_format"] = Tale
    for _ in range(MAX_TURNS):
        answer = await _anthropic_answer(client, fields, asked, routers)
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            text = "".join(block.text for block in answer.content if block.type == "text")
            value = answer.parsed_output if asked["document"] else None
            return _told(text, answer.stop_reason, value)
        results = [
            {
                "type": "tool_result",
                "tool_use_id": call.id,
                "content": await _pay(asked["till"], call.input),
            }
            for call in calls
        ]
        fields["messages"] += [
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": results},
        ]
    raise AssertionError("the model calls for ever")


async def _anthropic_answer(
    client: anthropic.AsyncAnthropic, fields: Asked, asked: Asked, routers: list[Any]
) -> Any:  # noqa: ANN401 - parsed or not
    if asked["stream"]:
        async with client.messages.stream(**fields) as stream:
            async for event in stream:
                if event.type == "message_delta":
                    _note(event, routers)
            return await stream.get_final_message()
    ask: Any = client.messages.parse if asked["document"] else client.messages.create
    answer = await ask(**fields)
    _note(answer, routers)
    return answer


def _chat_content(image: str | None) -> list[dict[str, Any]]:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
    return [{"type": "text", "text": PROMPT}, *([picture] if image else [])]


def _messages_content(image: str | None) -> list[dict[str, Any]]:
    source = {"type": "base64", "media_type": "image/png", "data": image}
    picture = {"type": "image", "source": source}
    return [*([picture] if image else []), {"type": "text", "text": PROMPT}]


def _told(text: str | None, finish: str | None, value: BaseModel | None) -> Read:
    parsed = None if value is None else value.model_dump()
    return {"text": text, "finish": finish, "value": parsed}


# -- LangChain -------------------------------------------------------------------------------------


async def _langchain_chat(asked: Asked, routers: list[Any], stack: AsyncExitStack) -> Read:
    http_client = await stack.enter_async_context(openai.DefaultAsyncHttpxClient(trust_env=False))
    model = langchain_openai.ChatOpenAI(
        model="chat",
        base_url=f"{asked['origin']}/v1",
        api_key="none",
        max_retries=0,
        http_async_client=http_client,
    )
    return await _langchain(model, _chat_content(asked["image"]), asked, routers)


async def _langchain_messages(asked: Asked, routers: list[Any], _stack: AsyncExitStack) -> Read:
    model = langchain_anthropic.ChatAnthropic(
        model="chat",
        anthropic_api_url=asked["origin"],
        anthropic_api_key="none",
        max_retries=0,
        max_tokens=2_000,
    )
    return await _langchain(model, _messages_content(asked["image"]), asked, routers)


async def _langchain(model: Any, content: Any, asked: Asked, routers: list[Any]) -> Read:  # noqa: ANN401
    history = [messages.HumanMessage(content)]
    if asked["document"]:
        return await _langchain_document(model, history, asked, routers)
    tool = {"name": "pay", "description": "Pay.", "parameters": PARAMETERS}
    asking = model.bind_tools([tool]) if asked["till"] else model
    for _ in range(MAX_TURNS):
        answer = await _langchain_answer(asking, history, stream=asked["stream"])
        _langchain_note(answer, routers)
        if not answer.tool_calls:
            return _told(answer.text, _langchain_finish(answer), None)
        history.append(answer)
        for call in answer.tool_calls:
            result = await _pay(asked["till"], call["args"])
            history.append(messages.ToolMessage(result, tool_call_id=call["id"]))
    raise AssertionError("the model calls for ever")


async def _langchain_document(
    model: Any,  # noqa: ANN401 - a chat model
    history: Any,  # noqa: ANN401 - its messages
    asked: Asked,
    routers: list[Any],
) -> Read:
    asking = model.with_structured_output(Tale, method="json_schema", include_raw=True)
    if not asked["stream"]:
        whole = await asking.ainvoke(history)
    else:
        whole = {}
        async for part in asking.astream(history):
            whole |= part
    _langchain_note(whole["raw"], routers)
    return _told(whole["raw"].text, _langchain_finish(whole["raw"]), whole["parsed"])


async def _langchain_answer(model: Any, history: Any, *, stream: bool) -> Any:  # noqa: ANN401
    if not stream:
        return await model.ainvoke(history)
    folded = None
    async for piece in model.astream(history):
        folded = piece if folded is None else folded + piece
    return folded


def _langchain_finish(answer: Any) -> str | None:  # noqa: ANN401 - a message
    said = answer.response_metadata
    finish: str | None = said.get("stop_reason") or said.get("finish_reason")
    return finish


def _langchain_note(answer: Any, routers: list[Any]) -> None:  # noqa: ANN401 - a message
    if "router" in answer.response_metadata:
        routers.append(answer.response_metadata["router"])


CLIENTS: Final[Mapping[str, Callable[[Asked, list[Any], AsyncExitStack], Awaitable[Read]]]] = {
    "openai-python": _openai,
    "anthropic-python": _anthropic,
    "langchain chat": _langchain_chat,
    "langchain messages": _langchain_messages,
}
