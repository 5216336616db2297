"""What the benchmarks share: processes of their own, a bare client that notes when bytes arrive,
and how a number came about.

Everything that is measured runs in a process of its own, so that its CPU time can be read from
outside and does not blur with the client's. Times are seconds of `time.perf_counter` in the
client's process, taken when the event loop hands over what a socket held.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import platform
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
import uvloop
import yaml

from router.api.server import listen

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"

START_S = 20.0
"""A child that does not answer within this is an error."""
STREAM_S = 120.0
"""A stream that does not end within this is an error."""

_PACKAGES = ("aiohttp", "httpx", "httptools", "msgspec", "pysbd", "redis", "uvicorn", "uvloop")


# --- processes ------------------------------------------------------------------------------------


class Child:
    """A process of its own, its output in a file or read as its first line.

    Args:
        command: what to run.
        log: where its output goes; None keeps standard output as a pipe (`first_line`), and errors
            go where ours do.
        fds: descriptors it inherits.
    """

    def __init__(self, command: Sequence[str], log: Path | None, fds: Sequence[int] = ()) -> None:
        self._log: IO[bytes] | None = log.open("wb") if log else None
        self._process = subprocess.Popen(
            list(command),
            cwd=ROOT,
            pass_fds=fds,
            stdout=self._log or subprocess.PIPE,
            stderr=self._log,
        )

    def first_line(self) -> str:
        """Its first line of output: how it says where it listens."""
        pipe = self._process.stdout
        assert pipe is not None
        return pipe.readline().decode()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """It still runs."""
        return self._process.poll() is None

    def cpu_s(self) -> float:
        """CPU time of all its threads so far, in seconds.

        `schedstat` counts nanoseconds; `stat`, for kernels without it, hundredths of a second.
        """
        tasks = Path(f"/proc/{self._process.pid}/task")
        try:
            return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks.iterdir()) / 1e9
        except FileNotFoundError:
            fields = (tasks.parent / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """Memory that is its own: what the machine would get back if it ended."""
        lines = Path(f"/proc/{self._process.pid}/smaps_rollup").read_text().splitlines()
        private = [line.split() for line in lines if line.startswith("Private_")]
        return 1024 * sum(int(columns[1]) for columns in private)

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._log):
            if stream is not None:
                stream.close()


@dataclass(frozen=True)
class Server:
    """A child that answers chat completions.

    Args:
        name: how tables call it.
        child: its process.
        host: where it listens.
        port: where it listens.
    """

    name: str
    child: Child
    host: str
    port: int

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://{self.host}:{self.port}/v1"


@contextlib.contextmanager
def simulated_provider(name: str, *options: str) -> Iterator[Server]:
    """A provider in a process of its own.

    Args:
        name: how tables call it.
        options: of `router simulate`.
    """
    command = [sys.executable, "-m", "router", "simulate", "--port", "0", *options]
    with contextlib.closing(Child(command, None)) as child:
        line = child.first_line()
        found = urlsplit(next((word for word in line.split() if word.startswith("http")), ""))
        if found.hostname is None or found.port is None:
            raise RuntimeError(f"the simulated provider did not start: {line!r}")
        yield Server(name, child, found.hostname, found.port)


@contextlib.contextmanager
def served(name: str, command: Sequence[str], log: Path) -> Iterator[Server]:
    """A server that takes its listening socket as `--fd`: its address is known before it runs.

    Args:
        name: how tables call it.
        command: what to run, without `--fd`.
        log: where its output goes.
    """
    with listen("127.0.0.1", 0) as sock:
        sock.listen(1024)
        port = sock.getsockname()[1]
        fd = sock.fileno()
        child = Child([*command, "--fd", str(fd)], log, [fd])
    # Ours is closed: if the child dies, a connection is refused instead of waiting for ever.
    with contextlib.closing(child):
        try:
            yield Server(name, child, "127.0.0.1", port)
        except (OSError, ValueError) as error:
            raise RuntimeError(f"{name}: {log.read_text()[-3000:]}") from error


@contextlib.contextmanager
def real_router(name: str, config: dict[str, Any], folder: Path) -> Iterator[Server]:
    """`router serve` with a YAML file, in a process of its own.

    Args:
        name: how tables call it.
        config: what the file says.
        folder: for the file and the log.
    """
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "router", "serve", str(file)]
    with served(name, command, folder / f"{name}.log") as server:
        yield server


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[str | None]:
    """A Redis of one's own, without persistence; gives its URL, or None where there is no binary.

    Args:
        folder: for its log and its socket.
    """
    binary = shutil.which("redis-server")
    if binary is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly"]
    with contextlib.closing(Child([*command, "no"], folder / "redis.log")) as child:
        _wait_for_port(child, port)
        yield f"redis://127.0.0.1:{port}/0"


def _wait_for_port(child: Child, port: int) -> None:
    give_up = time.monotonic() + START_S
    while child.alive and time.monotonic() < give_up:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"nothing listens on port {port}")


# --- the client -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Heard:
    """One response as it came.

    Args:
        sent_s: when the request went out, on a connection that stood.
        raw: every byte, the head included.
        ends: length of `raw` after each read.
        times_s: when that read was.
    """

    sent_s: float = 0.0
    raw: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)


class _Client(asyncio.Protocol):
    """Sends one request and notes what comes, with as little work as can be."""

    def __init__(self, request: bytes, over: asyncio.Future[Heard]) -> None:
        self._request = request
        self._over = over
        self._transport: asyncio.Transport | None = None
        self.heard = Heard()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        self.heard.sent_s = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        heard = self.heard
        heard.times_s.append(time.perf_counter())
        heard.raw += data
        heard.ends.append(len(heard.raw))
        if data.endswith(b"0\r\n\r\n") and self._transport is not None:
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        if not self._over.done():
            self._over.set_result(self.heard)


class OpenStream:
    """One request on a connection of its own, which is being answered.

    Args:
        transport: its connection.
        over: done when the connection is.
        heard: what came so far.
    """

    def __init__(
        self, transport: asyncio.Transport, over: asyncio.Future[Heard], heard: Heard
    ) -> None:
        self._transport = transport
        self._over = over
        self.heard = heard

    async def end(self) -> Heard:
        """Wait for the end."""
        async with asyncio.timeout(STREAM_S):
            return await self._over

    async def abandon(self) -> None:
        """Leave in the middle."""
        self._transport.abort()
        await self._over


async def open_stream(server: Server, *, model: str, **fields: object) -> OpenStream:
    """Ask for a stream.

    Args:
        server: whom.
        model: public name.
        fields: further fields of the request.
    """
    over: asyncio.Future[Heard] = asyncio.get_running_loop().create_future()
    question = {"role": "user", "content": "Tell me something long."}
    asked = {"model": model, "messages": [question], "stream": True, **fields}
    body = json.dumps(asked).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    transport, protocol = await asyncio.get_running_loop().create_connection(
        lambda: _Client(head.encode() + body, over), server.host, server.port
    )
    return OpenStream(transport, over, protocol.heard)


async def ask(server: Server, *, model: str, **fields: object) -> Heard:
    """One stream, to its end.

    Args:
        server: whom to ask.
        model: public name.
        fields: further fields of the request.
    """
    return await (await open_stream(server, model=model, **fields)).end()


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one chunk.

    Args:
        text: not empty.
        at_s: when its last byte was read.
    """

    text: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A stream that was read to its end.

    Args:
        sent_s: when it was asked for.
        pieces: its text, in order.
        router: the failover metadata, or None.
        whole: there was exactly one finish and one `[DONE]`.
    """

    sent_s: float
    pieces: tuple[Piece, ...]
    router: dict[str, Any] | None
    whole: bool

    @property
    def text(self) -> str:
        """All that was delivered."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def first_token_s(self) -> float:
        """From the request to the first text, in seconds."""
        return self.pieces[0].at_s - self.sent_s


def read(heard: Heard) -> Answer:
    """Take a response apart: after the run, so that the client does nothing else during it.

    Args:
        heard: as it came.

    Raises:
        ValueError: it is no stream.
    """
    raw = bytes(heard.raw)
    head, gap, _ = raw.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise ValueError(f"no stream: {raw[:500]!r}")
    pieces: list[Piece] = []
    router = None
    finishes = dones = 0
    for data, end in _events(raw, len(head) + len(gap)):
        if data == b"[DONE]":
            dones += 1
            continue
        chunk = msgspec.json.decode(data)
        router = chunk.get("router", router)
        for choice in chunk.get("choices", ()):
            text = choice["delta"].get("content")
            finishes += choice["finish_reason"] is not None
            if text:
                pieces.append(Piece(text, heard.times_s[bisect_left(heard.ends, end)]))
    return Answer(heard.sent_s, tuple(pieces), router, finishes == 1 and dones == 1)


def _events(raw: bytes, at: int) -> Iterator[tuple[bytes, int]]:
    """Data of each event, and where in the raw bytes it was complete; events do not cross chunks
    of the transfer coding here, as neither server nor simulated provider splits one."""
    while at < len(raw):
        line_end = raw.index(b"\r\n", at)
        size = int(raw[at:line_end], 16)
        start, at = line_end + 2, line_end + 2 + size + 2
        for event in raw[start : start + size].split(b"\n\n"):
            start += len(event) + 2
            if event.startswith(b"data: "):
                yield event[6:], start


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the client on uvloop.

    Args:
        work: the client.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


# --- numbers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """A sample in a few numbers, in the unit of its values.

    Args:
        n: how many.
        median: the middle.
        p95: 95th percentile.
        low: 2.5th percentile of the median, by bootstrap.
        high: 97.5th percentile of the median.
    """

    n: int
    median: float
    p95: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], *, digits: int = 3) -> Spread:
        """Sum a sample up.

        Args:
            values: at least one.
            digits: to round to.
        """
        rng = random.Random(1)
        medians = sorted(
            statistics.median(rng.choices(values, k=len(values))) for _ in range(BOOTSTRAPS)
        )
        return cls(
            n=len(values),
            median=round(statistics.median(values), digits),
            p95=round(quantile(values, 0.95), digits),
            low=round(quantile(medians, 0.025), digits),
            high=round(quantile(medians, 0.975), digits),
        )


BOOTSTRAPS = 400


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of a sample lies (linear between two values).

    Args:
        values: at least one.
        share: from 0 to 1.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def how_it_was_measured() -> dict[str, Any]:
    """The machine and the versions, for the result's file."""
    return {
        "when": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "machine": {
            "system": platform.system(),
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "cpu": _cpu_name(),
            "cores": os.cpu_count(),
            "load_average_before": os.getloadavg()[0],
        },
        "python": platform.python_version(),
        "packages": {name: version(name) for name in (*_PACKAGES, "seam-router")},
        "clock": "time.perf_counter in the client's process, at each read of its socket",
    }


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def plain(value: object) -> Any:  # noqa: ANN401 - JSON of any shape
    """Dataclasses as objects, for JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(type(value).__name__)


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a result.

    Args:
        file: where to.
        content: what.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    spread = json.dumps(content, indent=1, default=plain)
    # A list of numbers stays on one line.
    file.write_text(re.sub(r"\[[\d\s.,-]+\]", lambda m: " ".join(m[0].split()), spread) + "\n")


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table that also reads well on a terminal.

    Args:
        header: one title per column.
        rows: the cells; numbers stand to the right.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(3, *(len(line[at]) for line in (header, *cells))) for at in range(len(header))]
    numeric = [all(not isinstance(row[at], str) for row in rows) for at in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * (width - 1) + (":" if right else "-")
        for width, right in zip(widths, numeric, strict=True)
    ]
    return "\n".join((line(header), f"| {' | '.join(rule)} |", *(line(row) for row in cells)))
