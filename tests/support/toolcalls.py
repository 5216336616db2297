"""Tool calls on the wire: what a provider sends, and what a client must get of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from router.core.events import ToolCall
from router.simulate import RawAnswer, Script, SimulatedProvider
from support.reading import Answer, read_stream
from support.routers import Router, routed, running_router

DONE = b"data: [DONE]\n\n"
PAY = ToolCall(index=0, id="call_1", name="pay", arguments='{"amount": 36, "to": "Ada"}')
LOOK = ToolCall(index=1, id="call_2", name="look_up", arguments='{"word": "tide}"}')
NOW = ToolCall(index=0, id="call_3", name="now", arguments="")

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "pay",
            "parameters": {
                "type": "object",
                "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}},
                "required": ["amount"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
        },
    },
    {"type": "function", "function": {"name": "now"}},
]

ATOMIC = {"x-router-tool-calls": "atomic"}


@dataclass(kw_only=True)
class Call:
    """A call as a client folds it.

    Args:
        id: of the call.
        name: of the tool.
        arguments: joined.
        increments: how many deltas it came in.
    """

    id: str
    name: str
    arguments: str
    increments: int = 1

    @property
    def key(self) -> tuple[str, str, str]:
        """What of it counts."""
        return self.id, self.name, self.arguments


def wanted(*calls: ToolCall) -> list[tuple[str, str, str]]:
    """The keys of these calls, whole."""
    return [(call.id, call.name, call.arguments) for call in calls]


def keys_of(answer: Answer, *, choice: int = 0) -> list[tuple[str, str, str]]:
    """The keys of the calls that a client has."""
    return [call.key for call in calls_of(answer, choice=choice)]


def calls_of(answer: Answer, *, choice: int = 0) -> list[Call]:
    """The calls that a client has, in order. Anything but the canonical shape fails the test: the
    id, the type and the name come once, with the first increment of an index."""
    calls: list[Call] = []
    for delta in deltas_of(answer, choice=choice):
        for one in delta.get("tool_calls", ()):
            index, function = one["index"], one["function"]
            assert isinstance(function["arguments"], str)
            if index == len(calls):
                assert set(one) == {"index", "id", "type", "function"}
                assert set(function) == {"name", "arguments"}
                assert one["type"] == "function"
                assert one["id"]
                calls.append(Call(id=one["id"], **function))
            else:
                assert set(one) == {"index", "function"}
                assert set(function) == {"arguments"}
                calls[index].arguments += function["arguments"]
                calls[index].increments += 1
    return calls


def deltas_of(answer: Answer, *, choice: int = 0) -> list[dict[str, Any]]:
    """The deltas of a choice."""
    return [
        one["delta"]
        for chunk in answer.chunks
        for one in chunk.get("choices", ())
        if one["index"] == choice
    ]


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None) -> bytes:
    """One event of a provider, as short as one may be."""
    choice: dict[str, Any] = {"delta": delta or {}}
    if finish is not None:
        choice["finish_reason"] = finish
    return b"data: " + json.dumps({"choices": [choice]}, separators=(",", ":")).encode() + b"\n\n"


def text(said: str) -> bytes:
    """An event with text."""
    return chunk({"content": said})


def begun(call: ToolCall, arguments: str = "") -> bytes:
    """The first event of a call."""
    function = {"name": call.name, "arguments": arguments}
    if call.legacy:
        return chunk({"function_call": function})
    return chunk({"tool_calls": [{"index": call.index, "id": call.id, "function": function}]})


def more(call: ToolCall, arguments: str) -> bytes:
    """A further event of a call."""
    if call.legacy:
        return chunk({"function_call": {"arguments": arguments}})
    return chunk({"tool_calls": [{"index": call.index, "function": {"arguments": arguments}}]})


def ends(body: bytes, after: str = "fin") -> RawAnswer:
    """A provider's answer that ends here.

    Args:
        body: all that comes.
        after: how it ends, as of `RawAnswer`.
    """
    return RawAnswer(body=body, after=after)


@dataclass(kw_only=True)
class Bench:
    """A router over some providers.

    Args:
        router: running.
        providers: in priority order.
    """

    router: Router
    providers: list[SimulatedProvider]
    _client: httpx.AsyncClient
    _seen: list[int]

    async def ask(
        self,
        raw: RawAnswer | bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = TOOLS,
        **fields: Any,  # noqa: ANN401 - of the request
    ) -> Answer:
        """One streamed request.

        Args:
            raw: what the first provider answers, or None for its script.
            headers: of the request.
            tools: that are offered.
            fields: further ones of the request.
        """
        response = await self.post(raw, headers=headers, tools=tools, stream=True, **fields)
        return read_stream(response.status_code, response.headers, response.content)

    async def post(
        self,
        raw: RawAnswer | bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = TOOLS,
        **fields: Any,  # noqa: ANN401 - of the request
    ) -> httpx.Response:
        """The same, as an HTTP response, streamed or not."""
        self.providers[0].manner.raw = RawAnswer(body=raw) if isinstance(raw, bytes) else raw
        self._seen = [provider._journal.count for provider in self.providers]
        body = {
            "model": "chat",
            "messages": [{"role": "user", "content": "Pay."}],
            **({"tools": tools} if tools else {}),
            **fields,
        }
        url = f"{self.router.base_url}/chat/completions"
        return await self._client.post(url, json=body, headers=dict(headers or {}))

    @property
    def asked(self) -> tuple[int, ...]:
        """How often each provider was asked by the last request."""
        counts = (provider._journal.count for provider in self.providers)
        return tuple(now - before for now, before in zip(counts, self._seen, strict=True))


@asynccontextmanager
async def bench(
    *scripts: Script,
    route: Mapping[str, Any] | None = None,
    routes: Mapping[str, Sequence[int]] | None = None,
    **sections: Any,  # noqa: ANN401 - of YAML
) -> AsyncIterator[Bench]:
    """Providers in their order, and a router that ejects none of them.

    Args:
        scripts: what each says.
        route: further keys of the route.
        routes: names to numbers of providers, from 1, beside the one over all.
        sections: further ones of the configuration.
    """
    async with AsyncExitStack() as stack:
        providers = [
            await stack.enter_async_context(SimulatedProvider(script=script, keep_requests=50))
            for script in scripts
        ]
        config = routed(
            *providers,
            route={"retry": {"same_target": 0}, **(route or {})},
            health={"eject_after": 1000},
            **sections,
        )
        config["routes"] |= {
            name: {
                "targets": [{"provider": f"p{one}", "model": f"model-p{one}"} for one in over],
                "retry": {"same_target": 0},
            }
            for name, over in (routes or {}).items()
        }
        router = await stack.enter_async_context(running_router(config))
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=30, trust_env=False))
        yield Bench(router=router, providers=providers, _client=client, _seen=[0] * len(providers))


def interrupted(answer: Answer) -> dict[str, Any]:
    """The client has been refused a second provider: the error, and nothing like a success."""
    assert answer.error is not None, answer.raw
    assert answer.error["code"] == "tool_call_interrupted"
    assert answer.error["type"] == "server_error"
    assert answer.finish_reasons == []
    assert answer.done == 0
    assert b"[DONE]" not in answer.raw
    return answer.error
