"""A client that tells exactly how a response ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import h11

from router.simulate import SimulatedProvider
from router.simulate.intake import HttpRequest


@dataclass
class Reply:
    """What came back. `how` is `end` (body whole), `fin` or `rst`."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    how: str = ""

    @property
    def events(self) -> list[str]:
        """The data of every event, comments left out."""
        lines = self.body.decode().splitlines()
        return [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(event) for event in self.events if event != "[DONE]"]

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [choice for chunk in self.chunks for choice in chunk.get("choices", [])]

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def pieces(self) -> list[str]:
        contents = [choice.get("delta", {}).get("content") for choice in self.choices]
        return [content for content in contents if content]

    @property
    def finish(self) -> str | None:
        reasons = [choice["finish_reason"] for choice in self.choices if choice["finish_reason"]]
        return reasons[-1] if reasons else None

    @property
    def done(self) -> bool:
        return bool(self.events) and self.events[-1] == "[DONE]"

    @property
    def message(self) -> str:
        return str(json.loads(self.body)["error"]["message"])


class Caller:
    """One connection; asks, and reads to the end of the response or for as long as told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def ask(self, **fields: object) -> Reply:
        """Post a chat request; `_headers`, `_path`, `_body` (all of it) are of the HTTP request."""
        await self.send(**fields)
        return await self.read()

    async def send(self, **fields: object) -> None:
        headers = {"host": "sim", "content-type": "application/json"}
        headers |= cast("dict[str, str]", fields.pop("_headers", {}))
        path = str(fields.pop("_path", "/v1/chat/completions"))
        chat = {"model": "sim", "messages": [USER], "stream": True} | fields
        body = json.dumps(fields.get("_body", chat)).encode()
        self._parser = h11.Connection(h11.CLIENT)
        head = h11.Request(
            method="POST",
            target=path,
            headers=[*headers.items(), ("content-length", str(len(body)))],
        )
        events = [head, h11.Data(data=body), h11.EndOfMessage()]
        self.writer.write(b"".join(self._parser.send(event) or b"" for event in events))
        await self.writer.drain()

    async def read(self, until: Callable[[Reply], bool] = lambda _: False) -> Reply:
        """Read on until the response ends or `until` holds."""
        reply = Reply()
        async with asyncio.timeout(10):
            try:
                await self._read(reply, until)
            except ConnectionResetError:
                reply.how = "rst"
            except h11.RemoteProtocolError:
                reply.how = "fin"
        return reply

    async def _read(self, reply: Reply, until: Callable[[Reply], bool]) -> None:
        while not until(reply):
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                self._parser.receive_data(await self._reader.read(65536))
            elif isinstance(event, h11.Response):
                reply.status = event.status_code
                reply.headers = {k.decode(): v.decode() for k, v in event.headers}
            elif isinstance(event, h11.Data):
                reply.body += bytes(event.data)
            else:
                reply.how = "end" if isinstance(event, h11.EndOfMessage) else "fin"
                return


USER = {"role": "user", "content": "Tell me everything."}


def post(path: str, headers: dict[str, str] | None = None) -> HttpRequest:
    """The head of a request, for what is read without a socket."""
    path, _, query = path.partition("?")
    return HttpRequest(
        method="POST",
        path=path,
        query=query,
        headers=headers or {},
        body=b"",
        keep_alive=True,
        old=False,
    )


@asynccontextmanager
async def connect(provider: SimulatedProvider) -> AsyncIterator[Caller]:
    """Open a connection to a provider."""
    reader, writer = await asyncio.open_connection(provider.host, provider.port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def ask(provider: SimulatedProvider, **fields: object) -> Reply:
    """One request on a connection of its own."""
    async with connect(provider) as caller:
        return await caller.ask(**fields)
