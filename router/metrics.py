"""Counters for Prometheus, in its text format, from the same rows that the books keep.

Written by hand: the format is twenty lines, and a registry of its own kind would be a global. Every
label is a name from the configuration or a word of a closed set, so the number of series is bounded
by the configuration; no stream, client, key or model ever is a label.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from router import __version__
from router.books.rows import OUTCOMES, Entry, Row
from router.engine.observe import Detail, TargetEjected, TargetRestored

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text format."""

PAUSE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
FIRST_OUTPUT_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

OTHER = "other"
"""In place of a word that no table knows: it would otherwise be a label of unknown number."""

Labels = tuple[str, ...]


class Counter:
    """One number per combination of labels.

    Args:
        name: with its unit.
        text: what it counts.
        labels: names of the labels.
        kind: `counter` or `gauge`.
    """

    def __init__(self, name: str, text: str, *labels: str, kind: str = "counter") -> None:
        self.name = name
        self.text = text
        self.kind = kind
        self._labels = labels
        self._values: dict[Labels, float] = {}

    def add(self, value: float, *labels: str) -> None:
        """Count.

        Args:
            value: by how much.
            labels: their values, in order.
        """
        self._values[labels] = self._values.get(labels, 0) + value

    def lines(self) -> Iterator[tuple[str, Sequence[tuple[str, str]], float]]:
        """Every series: name, labels, value."""
        for values, number in sorted(self._values.items()):
            yield self.name, tuple(zip(self._labels, values, strict=True)), number


class Histogram:
    """How values are distributed, per combination of labels.

    Args:
        name: with its unit.
        text: what it measures.
        bounds: upper bounds of the buckets, rising.
        labels: names of the labels.
    """

    kind = "histogram"

    def __init__(self, name: str, text: str, bounds: Sequence[float], *labels: str) -> None:
        self.name = name
        self.text = text
        self._bounds = tuple(bounds)
        self._labels = labels
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def add(self, value: float, *labels: str) -> None:
        """Measure.

        Args:
            value: in the unit of the name.
            labels: their values, in order.
        """
        counts = self._counts.setdefault(labels, [0] * (len(self._bounds) + 1))
        counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sums[labels] = self._sums.get(labels, 0.0) + value

    def lines(self) -> Iterator[tuple[str, Sequence[tuple[str, str]], float]]:
        """Every series: name, labels, value."""
        for values, counts in sorted(self._counts.items()):
            labels = tuple(zip(self._labels, values, strict=True))
            bounds = (*(f"{bound:g}" for bound in self._bounds), "+Inf")
            for bound, total in zip(bounds, itertools.accumulate(counts), strict=True):
                yield f"{self.name}_bucket", (*labels, ("le", bound)), total
            yield f"{self.name}_sum", labels, self._sums[values]
            yield f"{self.name}_count", labels, sum(counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What is read at the moment of asking, and not counted.

    Args:
        in_flight: streams that run.
        tasks: of the event loop; at rest there are a few, and each stream has a few.
        targets_up: name of a target to whether it may be asked now.
        events: name of a part to its counters and gauges, as its `stats` gives them.
    """

    in_flight: int = 0
    tasks: int = 0
    targets_up: Mapping[str, bool] = field(default_factory=dict)
    events: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


_GAUGES = ("queue_", "waiting_", "held_", "record", "circuit_open")
"""How names in a `stats` begin that are no counters."""


class Metrics:
    """All counters of one process.

    Args:
        labels: stand on every series; a worker's name, where several share one address.
    """

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        self._everywhere = tuple((labels or {}).items())
        self._requests = Counter(
            "router_requests_total", "Requests that are over.", "route", "outcome"
        )
        self._refused = Counter(
            "router_requests_refused_total",
            "Requests that no target was asked for, by HTTP status.",
            "status",
        )
        self._attempts = Counter(
            "router_attempts_total", "Upstream calls.", "target", "outcome", "fault"
        )
        self._failovers = Counter(
            "router_failovers_total", "Changes of target after output.", "from", "to", "fault"
        )
        self._pauses = Histogram(
            "router_failover_pause_seconds",
            "What the client waited at a failover.",
            PAUSE_BUCKETS_S,
            "route",
        )
        self._first_outputs = Histogram(
            "router_first_output_seconds",
            "From the request to its first output.",
            FIRST_OUTPUT_BUCKETS_S,
            "route",
        )
        self._delivered = Counter(
            "router_delivered_chars_total", "Characters sent to clients.", "route"
        )
        self._superseded = Counter(
            "router_superseded_chars_total", "Of these, replaced by a continuation.", "route"
        )
        self._tokens = Counter(
            "router_tokens_total",
            "Tokens, as reported by the provider or estimated.",
            "target",
            "direction",
            "source",
        )
        self._ejections = Counter(
            "router_ejections_total", "Times a target was taken out.", "target", "fault"
        )
        self._restored = Counter(
            "router_restorations_total", "Times a target was taken back.", "target"
        )

    def count(self, row: Row) -> None:
        """Count a request and its attempts.

        Args:
            row: of the books.
        """
        route = row.route
        self._requests.add(1, route, row.outcome if row.outcome in OUTCOMES else OTHER)
        self._delivered.add(row.delivered_chars, route)
        self._superseded.add(row.superseded_chars, route)
        if row.first_output_ms is not None:
            self._first_outputs.add(row.first_output_ms / 1000, route)
        for entry in row.attempts:
            self._count_attempt(entry)
        for change in row.failovers:
            self._failovers.add(1, change.from_target, change.to_target, change.fault)
            if change.pause_ms is not None:
                self._pauses.add(change.pause_ms / 1000, route)

    def refused(self, status: int) -> None:
        """Count a request that came to nothing before any target was asked.

        Args:
            status: HTTP status of the answer.
        """
        self._refused.add(1, str(status))

    def __call__(self, detail: Detail) -> None:
        """Count ejections; an `Observer`.

        Args:
            detail: what happened.
        """
        if isinstance(detail, TargetEjected):
            self._ejections.add(1, detail.target, detail.fault.kind.value)
        elif isinstance(detail, TargetRestored):
            self._restored.add(1, detail.target)

    def text(self, present: Present) -> bytes:
        """Everything in Prometheus's text format.

        Args:
            present: what is read at this moment.
        """
        counted: tuple[Counter | Histogram, ...] = (
            self._requests,
            self._refused,
            self._attempts,
            self._failovers,
            self._pauses,
            self._first_outputs,
            self._delivered,
            self._superseded,
            self._tokens,
            self._ejections,
            self._restored,
        )
        lines = itertools.chain.from_iterable(
            self._written(one) for one in (*counted, *_gauges(present))
        )
        return "".join(f"{line}\n" for line in lines).encode()

    def _count_attempt(self, entry: Entry) -> None:
        self._attempts.add(1, entry.target, entry.outcome, entry.fault or "none")
        source = "estimated" if entry.usage_estimated else "reported"
        for direction, name in (("input", "prompt_tokens"), ("output", "completion_tokens")):
            self._tokens.add(entry.usage.get(name, 0), entry.target, direction, source)

    def _written(self, one: Counter | Histogram) -> Iterator[str]:
        yield f"# HELP {one.name} {one.text}"
        yield f"# TYPE {one.name} {one.kind}"
        for name, labels, number in one.lines():
            inside = ",".join(f'{key}="{_quoted(it)}"' for key, it in (*labels, *self._everywhere))
            yield f"{name}{{{inside}}} {number:.15g}" if inside else f"{name} {number:.15g}"


def _gauges(present: Present) -> Iterable[Counter]:
    build = Counter("router_build_info", "The router that answers.", "version", kind="gauge")
    build.add(1, __version__)
    flight = Counter("router_streams_in_flight", "Requests that are being answered.", kind="gauge")
    flight.add(present.in_flight)
    tasks = Counter("router_tasks", "Tasks of the event loop.", kind="gauge")
    tasks.add(present.tasks)
    up = Counter("router_target_up", "Whether a target may be asked now.", "target", kind="gauge")
    for target, available in present.targets_up.items():
        up.add(available, target)
    yield from (build, flight, tasks, up)
    for part, stats in present.events.items():
        counted = Counter(f"router_{part}_events_total", f"What befell the {part}.", "event")
        for name, number in stats.items():
            if name.startswith(_GAUGES):
                held = Counter(f"router_{part}_{name}", f"Of the {part}, now.", kind="gauge")
                held.add(number)
                yield held
            else:
                counted.add(number, name)
        yield counted


def _quoted(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
