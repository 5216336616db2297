"""What the soak looks at from outside while it runs: processes, Redis, the books.

A leak is a line that rises: a sample each second or so, and a straight line through those after the
warm-up, with the error of its slope.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis.asyncio as aioredis

from benchmarks.common import Child, Server
from benchmarks.soak_client import Entry, Log

MIB = 1024 * 1024

PAGE_ROWS = 1_000
"""Rows of the books in one answer."""

KEPT_ROWS = 1_000
"""`books.max_rows`: soon reached, so that full books count as warm. More than come between two
looks, so that none is missed."""

MAX_SETTLED = 20_000
"""Streams whose end is remembered: those of minutes, and a client comes back within seconds."""

ASK_S = 10.0
"""Longest wait for an answer of the owner's endpoints."""


# --- samples --------------------------------------------------------------------------------------


def memory_of(child: Child) -> dict[str, float]:
    """Resident memory and open files of a process.

    Args:
        child: it.
    """
    folder = Path(f"/proc/{child.pid}")
    found = re.search(r"VmRSS:\s+(\d+) kB", (folder / "status").read_text())
    assert found is not None
    fds = sum(1 for _ in (folder / "fd").iterdir())
    return {"rss_mib": int(found[1]) / 1024, "fds": float(fds)}


@dataclass(frozen=True)
class Slope:
    """A straight line through samples.

    Args:
        first: its value at the first sample.
        last: its value at the last one.
        per_hour: how much it rises.
        error_per_hour: standard error of that.
        hours: between the first sample and the last one.
        samples: how many there are.
    """

    first: float
    last: float
    per_hour: float
    error_per_hour: float
    hours: float
    samples: int

    @property
    def rise(self) -> float:
        """From the first sample to the last: what is left of it if the noise was against us."""
        return (self.per_hour - 2 * self.error_per_hour) * self.hours

    @classmethod
    def through(cls, times_s: Sequence[float], values: Sequence[float]) -> Slope:
        """Least squares.

        Args:
            times_s: of the samples, rising; at least three.
            values: one each.
        """
        n = len(times_s)
        mean_t, mean_v = sum(times_s) / n, sum(values) / n
        spread = sum((t - mean_t) ** 2 for t in times_s)
        pairs = list(zip(times_s, values, strict=True))
        slope = sum((t - mean_t) * (v - mean_v) for t, v in pairs) / spread
        left = sum((v - mean_v - slope * (t - mean_t)) ** 2 for t, v in pairs)
        error = math.sqrt(left / (n - 2) / spread)
        first, last = (mean_v + slope * (t - mean_t) for t in (times_s[0], times_s[-1]))
        hours = (times_s[-1] - times_s[0]) / 3600
        return cls(first, last, 3600 * slope, 3600 * error, hours, n)


# --- the owner's endpoints ------------------------------------------------------------------------


def _get(server: Server, path: str, key: str) -> bytes:
    url = f"http://{server.host}:{server.port}{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=ASK_S) as answer:
        body: bytes = answer.read()
    return body


async def ask(server: Server, path: str, key: str) -> bytes:
    """Ask one of the owner's endpoints, in a thread.

    Args:
        server: a replica.
        path: with its query.
        key: an admin key.
    """
    return await asyncio.to_thread(_get, server, path, key)


async def metrics_of(server: Server, key: str) -> Counter[str]:
    """Every series of a replica; its name has its labels in it.

    Args:
        server: a replica.
        key: an admin key.
    """
    text = (await ask(server, "/metrics", key)).decode()
    pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return Counter({name: int(float(value)) for name, _, value in pairs})


def plain_of(series: Mapping[str, float], name: str) -> float:
    """A gauge, whatever labels stand on it.

    Args:
        series: from `metrics_of`.
        name: of the gauge.
    """
    return sum(value for key, value in series.items() if key.partition("{")[0] == name)


def labelled(series: Mapping[str, float], name: str, label: str) -> Counter[str]:
    """A counter, added up by one label.

    Args:
        series: from `metrics_of`.
        name: of the counter.
        label: of those that it has.
    """
    found: Counter[str] = Counter()
    for key, value in series.items():
        inside = re.fullmatch(rf"{name}\{{.*?\b{label}=\"([^\"]*)\".*\}}", key)
        if inside and value:
            found[inside[1]] += int(value)
    return found


# --- the books ------------------------------------------------------------------------------------


@dataclass
class Audit:
    """Holds the books against the clients' log.

    Args:
        log: of the clients.
        key: an admin key.
    """

    log: Log
    key: str
    rows: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    settled: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """How the last `MAX_SETTLED` streams ended, and how much of them was committed."""
    full_s: float = 0.0
    """When there were `KEPT_ROWS`; 0 before."""
    unknown: int = 0
    forgotten: list[str] = field(default_factory=list)
    _seen: tuple[object, ...] | None = None

    async def look(self, server: Server) -> None:
        """Take in the rows that are new, and settle what can be.

        Args:
            server: a replica; each has them all.
        """
        new: list[dict[str, Any]] = []
        query, newest = "", None
        while True:
            path = f"/router/requests?limit={PAGE_ROWS}{query}"
            page = json.loads(await ask(server, path, self.key))
            if page["books"] != "all":
                return  # Redis is paused; the next look sees them
            rows = page["data"]
            newest = newest or (_name(rows[0]) if rows else None)
            fresh = list(_until(rows, self._seen))
            new += fresh
            if len(fresh) < len(rows) or not page["next_cursor"]:
                break
            query = f"&cursor={page['next_cursor']}"
        self._seen = newest or self._seen
        for row in new:
            self.rows += 1
            self.outcomes[row["outcome"]] += 1
            self.waiting.setdefault(row["stream_id"], []).append(row)
        if self.rows >= KEPT_ROWS and not self.full_s:
            self.full_s = time.monotonic()
        self._settle()

    def _settle(self) -> None:
        """Streams of which there are as many rows as the clients made requests."""
        for stream_id, rows in tuple(self.waiting.items()):
            entries = self.log.open.get(stream_id, ())
            if len(entries) == len(rows):
                del self.waiting[stream_id], self.log.open[stream_id]
                ends = [(row["outcome"], row["committed_chars"]) for row in rows]
                self.settled[stream_id] = self.settled.pop(stream_id, []) + ends
                self._match(stream_id, list(entries), rows)

        while len(self.settled) > MAX_SETTLED:
            del self.settled[next(iter(self.settled))]
        for stream_id in tuple(self.log.unknown):
            found = self.settled.get(stream_id)
            # Of two requests at once one may have been refused because the other one has just
            # completed the answer: that one's row is still to come.
            if found is not None and stream_id not in self.log.open:
                self.log.unknown.discard(stream_id)
                self.unknown += 1
                # Of a completed stream there is nothing to resume. Any other was to be kept.
                if "completed" not in dict(found):
                    self.forgotten.append(f"{stream_id}: {found}")

    def _match(self, stream_id: str, entries: list[Entry], rows: list[dict[str, Any]]) -> None:
        """Each row to a request that it fits; those that say most are served first."""
        for entry in sorted(entries, key=lambda one: (not one.outcomes, one.chars is None)):
            row = next((row for row in rows if _fits(entry, row)), None)
            if row is None:
                told = [(one["outcome"], one["delivered_chars"]) for one in rows]
                self.log.blame("books", f"{stream_id}: {entry} has no row among {told}")
                return
            rows.remove(row)

    def close(self) -> dict[str, int]:
        """What is left when all is quiet: the rows without a request, and the other way round."""
        rows = [row for rows in self.waiting.values() for row in rows]
        strangers = [row for row in rows if row["stream_id"] not in self.log.open]
        early = [row for row in strangers if row["outcome"] in _EARLY]
        return {
            "requests without a row": len(self.log.open),
            "rows without a request": len(strangers) - len(early),
            # Who leaves before the head of the answer does not know its id.
            "rows of who left before the head": len(early),
            "resumed too late, as it was completed": self.unknown - len(self.forgotten),
            "interrupted and not found": len(self.forgotten),
        }


_EARLY = frozenset({"client_gone", "completed", "all_targets_failed", "refused"})


def _name(row: dict[str, Any]) -> tuple[object, ...]:
    return row["stream_id"], row["started_unix_s"], row["ended_unix_s"], row["replica"]


def _until(
    rows: Sequence[dict[str, Any]], seen: tuple[object, ...] | None
) -> Iterator[dict[str, Any]]:
    for row in rows:
        if _name(row) == seen:
            return
        yield row


def _fits(entry: Entry, row: dict[str, Any]) -> bool:
    if row["route"] != entry.route or row["outcome"] == "internal_error":
        return False
    chars = entry.chars is None or row["delivered_chars"] == entry.chars
    return chars and (not entry.outcomes or row["outcome"] in entry.outcomes)


# --- Redis ----------------------------------------------------------------------------------------


async def keys_of(client: aioredis.Redis) -> Counter[str]:
    """How many keys of each kind there are; a stream's id and a key's digest become `*`, and the
    state of a record that is but a tombstone is one.

    Args:
        client: of the Redis.
    """
    kinds: Counter[str] = Counter()
    async for key in client.scan_iter(count=1_000):
        name = re.sub(r"router:\{[^}]*\}", "router:{*}", key.decode())
        if name.endswith("}:state") and await client.hexists(key, "gone"):
            name = "tombstones"
        kinds[re.sub(r"(:writer:|\{health\}:|limit:).*", r"\1*", name)] += 1
    return kinds


async def trouble(client: aioredis.Redis, pauses_s: Iterator[float], *, every_s: float) -> None:
    """Hold Redis still now and then.

    Args:
        client: of the Redis.
        pauses_s: how long, one after the other.
        every_s: in seconds.
    """
    for pause_s in pauses_s:
        await asyncio.sleep(every_s)
        await client.client_pause(int(1000 * pause_s))
