"""The failover record as the engine sees it: one interface, never awaited on the token path.

A stream has one `RecordWriter`. Its calls return at once; a store that talks to a network queues
them (bounded) and sends them in order from a writer task of its own. The record advances only at
boundaries, and only by appending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHead:
    """What is known of a stream when it opens.

    Args:
        stream_id: unguessable id, `[A-Za-z0-9_-]+`.
        kind: "text" or "json".
        route: public model name.
        request_digest: hex digest of the client's body; the prompt itself is never stored.
        owner: digest of the API key that asked, or "" when the server has no keys.
        created: Unix time in seconds.
    """

    stream_id: str
    kind: str
    route: str
    request_digest: str
    owner: str
    created: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as it was read back.

    Args:
        head: what was known at opening.
        epoch: fencing number of the present owner, from 1.
        text: the committed text.
        boundaries: number of commits so far.
        outcome: "" while open, else how the stream ended.
        stale: the store lost commits and says so; `text` is a true prefix but not the newest.
        meta: the engine's own small facts (targets tried, superseded ranges, tool flag, …).
    """

    head: RecordHead
    epoch: int
    text: str
    boundaries: int
    outcome: str = ""
    stale: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)


class RecordWriter(Protocol):
    """The one writer of a stream's record under one epoch. No call waits but `settled`.

    Attributes:
        on_fenced: called once when a newer epoch is seen, from the event loop or from within
            another stream's takeover; it may only set a flag or cancel something.
        source: gives the whole committed text, at least up to the last commit. With it a record
            that lost text (the queue overflowed, the store came back empty) catches up; without it
            such a record is marked stale. Only called after such a loss.
    """

    on_fenced: Callable[[], None] | None
    source: Callable[[], str] | None

    @property
    def epoch(self) -> int:
        """The epoch this writer holds."""
        ...

    @property
    def fenced(self) -> bool:
        """A newer epoch was seen: every later call is ignored and the stream must end."""
        ...

    def commit(self, delta: str, *, at_chars: int, meta: Mapping[str, Any] | None = None) -> None:
        """Move the record to the next boundary.

        Args:
            delta: text since the last commit; empty to replace facts only, which is no boundary.
            at_chars: committed length before this commit, in characters; the store refuses a commit
                that does not fit the length it holds.
            meta: facts to replace, or None.
        """
        ...

    async def settled(self) -> None:
        """Wait until the store has answered all that was said so far: with it away, until it is
        back. Whether a newer epoch was seen is certain then."""
        ...

    def close(self, outcome: str, *, keep_s: float) -> None:
        """The stream ended.

        Args:
            outcome: how: "completed", "interrupted", "client_gone", …
            keep_s: seconds the text is kept; 0 deletes it now.
        """
        ...


class RecordStore(Protocol):
    """All records. One per process."""

    async def start(self) -> None:
        """Begin to work; never fails because the backend is away."""
        ...

    async def aclose(self) -> None:
        """Send what is queued (bounded wait), then let go of everything."""
        ...

    async def flushed(self) -> None:
        """Wait until all that is queued was answered: with the backend away, until it is back."""
        ...

    def open(self, head: RecordHead) -> RecordWriter:
        """Begin a record with epoch 1 and nothing committed. Does not wait."""
        ...

    async def load(self, stream_id: str) -> Record:
        """Read a record back.

        Raises:
            RecordNotFound: no such record.
            RecordNotKept: no record is ever kept.
            RecordCorrupt: it cannot be read.
            RecordUnavailable: the store does not answer.
        """
        ...

    async def takeover(self, stream_id: str, *, expected_epoch: int) -> tuple[Record, RecordWriter]:
        """Become the owner: raise the epoch by one, atomically, if it is still the expected one.

        Raises:
            RecordConflict: another took it first.
            RecordNotFound: no such record.
            RecordNotKept: no record is ever kept.
            RecordCorrupt: it cannot be read.
            RecordUnavailable: the store does not answer.
        """
        ...

    @property
    def lasting(self) -> bool:
        """Records outlive this process, so that another one can resume a stream."""
        ...

    @property
    def stats(self) -> Mapping[str, int]:
        """Counters: commits queued, sent, dropped, fenced; queue length; reconnects."""
        ...

    @property
    def advice(self) -> Sequence[str]:
        """What about the backend is not as it should be, as sentences for its owner."""
        ...
