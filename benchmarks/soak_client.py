"""A client of the soak: asks, leaves, comes back, and judges what it was given.

Nothing here believes the router: a response is taken apart from its raw bytes, and a text is right
if it is the topic's own, character for character.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import msgspec

from benchmarks.common import Server
from benchmarks.soak_provider import TOPICS, Topic

PATIENCE_S = 60.0
"""A response that takes longer hangs: every limit of the router's is far below."""

MAX_RETURNS = 5
"""How often a client comes back for one answer."""

LEAVES = 0.25
"""Share of requests that the client leaves in the middle."""
RETURNS = 0.8
"""Share of those who come back: of those who left, and of those whose answer broke off."""
RACES = 0.1
"""Share of those coming back who come twice at the same time."""
BLOCKS = 0.1
"""Share of requests for a whole answer instead of a stream."""
ATOMIC = 0.5
"""Share of requests with tools that want each call whole."""

MAX_WRONG = 20
"""Wrongs that are kept for the report, of each kind."""


@dataclass(slots=True)
class Reply:
    """A response, taken apart.

    Args:
        status: of the response, 0 if its head did not come.
        headers: names in lower case.
        text: of all deltas.
        calls: arguments of each tool call, by index, with its name.
        finishes: how many chunks had one.
        dones: how many `[DONE]`.
        error: the error, in band or not.
        router: the failover metadata.
        whole: the body came to its end in order.
        left: this client closed the connection.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    finishes: int = 0
    dones: int = 0
    error: dict[str, Any] | None = None
    router: dict[str, Any] = field(default_factory=dict)
    whole: bool = False
    left: bool = False

    @property
    def finished(self) -> bool:
        """It is an answer."""
        return self.finishes > 0


def take_apart(raw: bytes, *, left: bool) -> Reply:
    """Read a response.

    Args:
        raw: as much as came.
        left: this client closed the connection.
    """
    head, gap, body = raw.partition(b"\r\n\r\n")
    reply = Reply(left=left)
    if not gap:
        return reply
    first, *lines = head.decode("latin-1").split("\r\n")
    reply.status = int(first.split()[1])
    reply.headers = {name.lower(): value for name, _, value in (it.partition(": ") for it in lines)}
    if reply.headers.get("transfer-encoding") == "chunked":
        body, reply.whole = _dechunked(body)
    else:
        reply.whole = len(body) == int(reply.headers.get("content-length", -1))
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        for data in _events(body):
            _take(reply, data)
    elif reply.whole:
        _take_whole(reply, msgspec.json.decode(body))
    return reply


def _dechunked(data: bytes) -> tuple[bytes, bool]:
    out, at = bytearray(), 0
    while (end := data.find(b"\r\n", at)) >= 0:
        size, at = int(data[at:end], 16), end + 2
        if not size:
            return bytes(out), True
        out += data[at : at + size]
        at += size + 2
    return bytes(out), False


def _events(body: bytes) -> Iterator[bytes]:
    """Data of each event that is whole."""
    lines = body.split(b"\n")
    for line, after in pairwise(lines):
        if line.startswith(b"data: ") and not after:
            yield line[6:]


def _take(reply: Reply, data: bytes) -> None:
    if data == b"[DONE]":
        reply.dones += 1
        return
    chunk = msgspec.json.decode(data)
    if "error" in chunk:
        reply.error = chunk["error"]
        reply.router = chunk["error"].get("router") or {}
        return
    reply.router = chunk.get("router", reply.router)
    for choice in chunk["choices"]:
        delta = choice["delta"]
        reply.text += delta.get("content") or ""
        reply.finishes += choice["finish_reason"] is not None
        for call in delta.get("tool_calls") or ():
            _take_call(reply, call)


def _take_call(reply: Reply, call: dict[str, Any]) -> None:
    got = reply.calls.setdefault(call.get("index", 0), ["", ""])
    function = call["function"]
    got[0] += function.get("name") or ""
    got[1] += function.get("arguments") or ""


def _take_whole(reply: Reply, body: dict[str, Any]) -> None:
    if "error" in body:
        reply.error = body["error"]
        reply.router = body["error"].get("router") or {}
        return
    (choice,) = body["choices"]
    reply.text = choice["message"].get("content") or ""
    for index, call in enumerate(choice["message"].get("tool_calls") or ()):
        _take_call(reply, {**call, "index": index})
    reply.finishes = reply.dones = 1
    reply.router = body.get("router", {})


# --- one request ----------------------------------------------------------------------------------


class _Connection(asyncio.Protocol):
    """Sends one request and keeps what comes; leaves once it has enough."""

    def __init__(self, request: bytes, enough: int | None, over: asyncio.Future[None]) -> None:
        self._request = request
        self._enough = enough
        self._over = over
        self._transport: asyncio.Transport | None = None
        self.raw = bytearray()
        self.left = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.raw += data
        if self._enough is not None and len(self.raw) >= self._enough:
            self.leave()

    def leave(self) -> None:
        """Close, whatever is still to come."""
        self.left = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, _: Exception | None) -> None:
        if not self._over.done():
            self._over.set_result(None)


async def fetch(
    server: Server, body: bytes, headers: dict[str, str], *, enough: int | None = None
) -> Reply:
    """One request on a connection of its own.

    Args:
        server: whom to ask.
        body: of the request.
        headers: further ones.
        enough: leave after so many bytes, or None.

    Raises:
        TimeoutError: it hangs.
    """
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
    )
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    _, connection = await loop.create_connection(
        lambda: _Connection(head.encode() + body, enough, over), server.host, server.port
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            await over
    except TimeoutError:
        connection.leave()
        raise
    return take_apart(bytes(connection.raw), left=connection.left)


# --- the log --------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Entry:
    """One request, as the client saw it: what the books must say of it.

    Args:
        route: asked for.
        outcomes: what a row may say; empty for whatever may befall a stream that was left.
        chars: delivered text in characters, or None where the client cannot know.
    """

    route: str
    outcomes: frozenset[str]
    chars: int | None


@dataclass
class Log:
    """All that clients saw. Bounded: what was matched with the books is taken out."""

    seen: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    open: dict[str, list[Entry]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    """Streams that a client came back for, and was told that there are none."""
    nameless: int = 0
    """Requests that were left before the head came: their row has an id that nobody knows."""
    chars: int = 0

    def blame(self, what: str, story: str) -> None:
        """Something is wrong.

        Args:
            what: a word for it.
            story: an example.
        """
        self.wrong[what] += 1
        if self.wrong[what] <= MAX_WRONG:
            self.examples.append(f"{what}: {story[:600]}")

    def note(self, topic: Topic, reply: Reply, text: str | None) -> None:
        """A response came, whole or not.

        Args:
            topic: asked for.
            reply: what came.
            text: all of the delivered text, or None where that is not known.
        """
        stream_id = reply.headers.get("x-router-stream-id")
        self.chars += len(reply.text)
        if reply.status >= 400 and stream_id is None:  # left or not: it was refused
            self.seen[str((reply.error or {}).get("code"))] += 1
            self.refused[str(reply.status)] += 1
            return
        if reply.left:
            self.seen["left"] += 1
            outcomes = frozenset[str]()
        elif reply.finished:
            self.seen["completed"] += 1
            outcomes = frozenset({"completed"})
        else:
            code = str((reply.error or {}).get("code"))
            self.seen[code] += 1
            outcomes = frozenset({code, "refused"})
        if stream_id is None:
            self.nameless += 1
            return
        chars = None if reply.left or text is None else len(text)
        self.open.setdefault(stream_id, []).append(Entry(topic.name, outcomes, chars))


# --- one visit ------------------------------------------------------------------------------------


_TAKEN = frozenset({"record_fenced", "resume_conflict"})
"""What the one is told who comes back for a stream that another has taken over."""


class Client:
    """Asks for one answer after the other.

    Args:
        servers: the replicas.
        key: its API key.
        log: gets what it saw.
        rng: where chance comes from.
        topics: what it may ask for.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        key: str,
        log: Log,
        rng: random.Random,
        topics: Sequence[Topic] = TOPICS,
    ) -> None:
        self._servers = servers
        self._key = key
        self._log = log
        self._rng = rng
        self._topics = topics
        self.stop_s = float("inf")

    async def run(self) -> None:
        """Go on until `stop_s`."""
        while time.monotonic() < self.stop_s:
            await self.visit(self._rng.choice(self._topics))

    async def visit(self, topic: Topic) -> None:
        """One answer, left and resumed as chance has it."""
        stream = self._rng.random() >= BLOCKS
        question = {"role": "user", "content": f"{topic.name} {self._rng.random()}"}
        asked = {"model": topic.name, "messages": [question], "stream": stream, **topic.fields}
        body = json.dumps(asked).encode()
        headers = {"Authorization": f"Bearer {self._key}"}
        if topic.calls and self._rng.random() < ATOMIC:
            headers["X-Router-Tool-Calls"] = "atomic"
        text = ""
        for returns in range(MAX_RETURNS + 1):
            reply = await self._ask(topic, body, headers, text, stream=stream)
            if reply is None:
                return
            text += reply.text
            stream_id = reply.headers.get("x-router-stream-id")
            if not stream or stream_id is None or reply.finished or reply.status != 200:
                return
            if returns == MAX_RETURNS or self._rng.random() >= RETURNS:
                return
            headers["X-Router-Resume"] = stream_id
            headers["X-Router-Received"] = str(len(text))
            headers["X-Router-Part"] = reply.headers.get("x-router-part", "")

    async def _ask(
        self, topic: Topic, body: bytes, headers: dict[str, str], text: str, *, stream: bool
    ) -> Reply | None:
        """Ask once. Who comes back may come twice at once: one is served, and is followed."""
        rng = self._rng
        twice = "X-Router-Resume" in headers and rng.random() < RACES
        leaves = stream and not twice and rng.random() < LEAVES
        # A character takes about 60 bytes on the wire.
        enough = rng.randint(0, 60 * len(topic.text)) if leaves else None
        servers = [rng.choice(self._servers) for _ in range(1 + twice)]
        try:
            replies = await asyncio.gather(
                *(fetch(server, body, headers, enough=enough) for server in servers)
            )
        except (OSError, TimeoutError) as error:
            self._log.blame("hung or refused", f"{topic.name}: {error!r}")
            return None
        for reply in replies:
            if (reply.error or {}).get("code") == "resume_unknown":
                self._log.unknown.add(headers["X-Router-Resume"])
            self._log.note(topic, reply, text + reply.text if stream else None)
            self._judge(topic, reply, text + reply.text)
        served = [one for one in replies if (one.error or {}).get("code") not in _TAKEN]
        ends = [one for one in served if one.finished] if twice else []
        if len(ends) > 1:
            # One may be whole before the other takes it over, which then asks nobody.
            wrote = sum(bool(one.router.get("attempts")) for one in ends)
            self._log.seen["two wrote the end" if wrote > 1 else "two were given the end"] += 1
        return served[0] if served else replies[0]

    def _judge(self, topic: Topic, reply: Reply, text: str) -> None:
        """What is promised, held against what came."""
        if reply.left:
            return
        where = f"{topic.name} {reply.headers.get('x-router-stream-id')} {reply.status}"
        blame = self._log.blame
        if not reply.whole or (reply.status == 200 and not reply.finished and not reply.error):
            blame("silent end", f"{where}: ...{text[-80:]!r}")
        elif reply.finished != bool(reply.dones) or reply.dones > 1 or reply.finishes > 1:
            blame("ends", f"{where}: {reply.finishes} finishes, {reply.dones} [DONE]")
        elif reply.finished:
            self._judge_answer(topic, reply, text, where)
        elif reply.error and reply.error.get("code") == "internal_error":
            blame("internal error", f"{where}: {reply.error}")
        elif "superseded" in reply.router:
            so_far = without(text, reply.router["superseded"])
            if not topic.text.startswith(so_far):
                blame("text so far", f"{where}: {so_far[-80:]!r}; {reply.error}")

    def _judge_answer(self, topic: Topic, reply: Reply, text: str, where: str) -> None:
        answer = without(text, reply.router.get("superseded", ()))
        if answer != topic.text:
            at = next(
                (i for i, (a, b) in enumerate(zip(answer, topic.text, strict=False)) if a != b), -1
            )
            self._log.blame(
                "text", f"{where}: at {at} of {len(answer)}, wanted {len(topic.text)}: "
                f"{answer[max(0, at - 40):at + 40]!r}; {msgspec.json.encode(reply.router)!r}",
            )  # fmt: skip
        calls = [tuple(call) for _, call in sorted(reply.calls.items())]
        if calls != [(call.name, call.arguments) for call in topic.calls]:
            self._log.blame("tool calls", f"{where}: {calls}")
        # Who comes back may have more than the record had by then; a failover replaces nothing.
        resumed = reply.router.get("resumed_from") is not None
        if topic.structured and reply.router.get("superseded") and not resumed:
            self._log.blame("superseded JSON", where)


def without(text: str, ranges: Sequence[Sequence[int]]) -> str:
    """The delivered text without the superseded ranges.

    Args:
        text: all that was delivered.
        ranges: half-open, in order.
    """
    for start, end in reversed(ranges):
        text = text[:start] + text[end:]
    return text
