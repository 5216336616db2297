"""How Redis is set up, and what of it is not right for the record: facts in, sentences out.

Nothing here forbids anything: a router starts with any Redis, and says what it saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COMMANDS: Sequence[Sequence[str]] = (
    ("INFO",),
    ("CONFIG", "GET", "appendfsync"),
    ("CONFIG", "GET", "save"),
    ("CONFIG", "GET", "min-replicas-to-write"),
)
"""What is asked. `CONFIG` is often forbidden or taken away; then less can be said."""

OLDEST = (6, 0)
"""Oldest Redis whose scripts may do what ours do."""

Facts = Mapping[str, str]
"""What `INFO` and `CONFIG GET` said, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What of our own side matters.

    Args:
        sealed: the text is encrypted before Redis has it.
        cluster: the URL is a Cluster's.
    """

    sealed: bool
    cluster: bool


def advise(found: Mapping[str, Sequence[Any]], ours: Ours) -> tuple[str, ...]:
    """What should be set up otherwise.

    Args:
        found: by server, the answers to `COMMANDS`, or their exceptions.
        ours: our own side.

    Returns:
        One sentence for each thing, each once.
    """
    said = []
    for server, answers in found.items():
        facts = _facts(answers)
        if not facts:
            said.append(f"Redis at {server} tells nothing of its settings (INFO is forbidden).")
        said += [f"Redis at {server} {what}" for rule in _RULES for what in rule(facts, ours)]
    return tuple(dict.fromkeys(said))


def _facts(answers: Sequence[Any]) -> Facts:
    facts: dict[str, str] = {}
    for answer in answers:
        if isinstance(answer, Mapping):
            facts.update((_text(name), _text(value)) for name, value in answer.items())
        elif isinstance(answer, list):
            pairs = zip(answer[::2], answer[1::2], strict=False)
            facts.update((_text(name), _text(value)) for name, value in pairs)
    return facts


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _too_old(facts: Facts, _: Ours) -> Iterator[str]:
    version = facts.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < OLDEST:
        yield f"is version {version}; the record needs 6.0 or newer."


def _of_another_kind(facts: Facts, ours: Ours) -> Iterator[str]:
    mode = facts.get("redis_mode")
    if mode == "sentinel":
        yield "is a Sentinel; give `record.url` the form `redis+sentinel://…`."
    if mode == "cluster" and not ours.cluster:
        yield "belongs to a Cluster; give `record.url` the form `redis+cluster://…`."


def _read_only(facts: Facts, _: Ours) -> Iterator[str]:
    if facts.get("role") == "slave":
        yield "is a replica, which takes no writes; name its master, or its Sentinels."


def _evicts(facts: Facts, _: Ours) -> Iterator[str]:
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield (
            f"may throw records out when its memory is full (maxmemory-policy {policy}); "
            "set it to noeviction."
        )


def _writes_to_disk(facts: Facts, ours: Ours) -> Iterator[str]:
    kept = [
        name
        for name, found in (
            ("appendonly yes", facts.get("aof_enabled") == "1"),
            (f"save {facts.get('save')}", bool(facts.get("save"))),
        )
        if found
    ]
    if kept and not ours.sealed:
        yield (
            f"writes the text of answers to its disk ({', '.join(kept)}), where it outlives the "
            "record; set `record.encryption_key`, or switch persistence off."
        )


def _syncs_each_write(facts: Facts, _: Ours) -> Iterator[str]:
    if facts.get("aof_enabled") == "1" and facts.get("appendfsync") == "always":
        yield "waits for its disk at each commit (appendfsync always); everysec is enough."


def _writes_alone(facts: Facts, _: Ours) -> Iterator[str]:
    replicated = facts.get("connected_slaves", "0") != "0"
    if replicated and facts.get("min-replicas-to-write") == "0":
        yield (
            "goes on taking writes when it is cut off from its replicas, and loses them when one "
            "of these takes over; set min-replicas-to-write 1."
        )


_RULES: tuple[Callable[[Facts, Ours], Iterator[str]], ...] = (
    _too_old,
    _of_another_kind,
    _read_only,
    _evicts,
    _writes_to_disk,
    _syncs_each_write,
    _writes_alone,
)
