"""Ejections told to the other replicas, and theirs heard, through Redis; nobody ever waits for it.

A target of another replica is the same as ours if its digest is: family, address, model, key and
headers. So two configurations that call different things by one name never eject each other's.
A Redis that is away changes nothing: each replica then judges by what it sees itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

import msgspec

from router.engine.clock import Clock
from router.engine.health import Health
from router.engine.observe import Detail, TargetEjected, TargetRestored
from router.errors import RecordUnavailable
from router.store.notices import Notice, Notices

POLL_S = 1.0
"""Between two looks at the notices, in seconds."""

JITTER = 0.2
"""Share by which that varies, so that replicas that began together do not ask together."""


class Ejection(msgspec.Struct, frozen=True, kw_only=True):
    """What a notice says; its end is its own time to live.

    Args:
        until: Unix time, for people.
        kind: of the fault.
        by: the replica that ejected.
    """

    until: float
    kind: str
    by: str


class _Change(msgspec.Struct, frozen=True):
    """What is to be told: the fault's kind and the end of the cool-down; no kind, a restoration."""

    kind: str | None
    ends_s: float


class SharedHealth:
    """Tells and hears.

    Args:
        notices: where.
        health: the condition of the targets, in this process.
        digests: name of each present target to its digest.
        replica: name of this process.
        clock: where time comes from.
        random: numbers in [0, 1), for jitter.
    """

    def __init__(
        self,
        notices: Notices,
        *,
        health: Health,
        digests: Callable[[], Mapping[str, str]],
        replica: str,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._notices = notices
        self._health = health
        self._digests = digests
        self._replica = replica
        self._clock = clock
        self._random = random
        self._log = logging.getLogger("router.health")
        self._unsent: dict[str, _Change] = {}
        self._heard: set[str] = set()
        self._told = self._missed = 0
        self._away = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def stats(self) -> Mapping[str, int]:
        """Notices sent, looks at the notices that failed, and targets held out by hearsay now."""
        return {"told": self._told, "failures": self._missed, "held_out": len(self._heard)}

    def start(self) -> None:
        """Begin. Needs a running loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="shared-health")

    async def aclose(self) -> None:
        """Stop."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def __call__(self, detail: Detail) -> None:
        """Note an ejection or a restoration, to be told; an `Observer`.

        Args:
            detail: what happened. Of each target only the latest is kept.
        """
        if isinstance(detail, TargetEjected):
            ends_s = self._clock.now_s() + detail.cool_down_s
            self._unsent[detail.target] = _Change(detail.fault.kind.value, ends_s)
            self._wake.set()
        elif isinstance(detail, TargetRestored):
            self._unsent[detail.target] = _Change(None, 0.0)
            self._wake.set()

    async def exchange(self) -> None:
        """Tell what is to be told, then hear. A store that is away is noted, and that is all."""
        try:
            await self._tell()
            await self._hear()
        except RecordUnavailable as error:
            self._missed += 1
            if not self._away:
                self._log.warning("health: not shared for now: %s", error)
            self._away = True
        else:
            if self._away:
                self._log.warning("health: shared again")
            self._away = False

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self.exchange()
            except Exception:  # noqa: BLE001 - one surprise must not end the sharing
                self._log.exception("health: could not be shared")
            await self._pause()

    async def _pause(self) -> None:
        """Until the next look, or until there is something to tell."""
        wait_s = POLL_S * (1 + JITTER * (2 * self._random() - 1))
        timer = self._clock.call_at(self._clock.now_s() + wait_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _tell(self) -> None:
        sending, digests = dict(self._unsent), self._digests()
        changes: dict[str, Notice | None] = {}
        for name, change in sending.items():
            notice = self._notice(change)
            if name in digests and (change.kind is None or notice is not None):
                changes[digests[name]] = notice
        if changes:
            await self._notices.post(changes)
            self._told += len(changes)
        for name, change in sending.items():
            if self._unsent.get(name) is change:
                del self._unsent[name]

    def _notice(self, change: _Change) -> Notice | None:
        """What to put up; nothing for a restoration, and for what has waited longer than it was to
        hold."""
        left_s = change.ends_s - self._clock.now_s()
        if change.kind is None or left_s <= 0:
            return None
        until = round(self._clock.unix_s() + left_s, 1)
        ejection = Ejection(until=until, kind=change.kind, by=self._replica)
        return Notice(msgspec.json.encode(ejection), left_s)

    async def _hear(self) -> None:
        digests = dict(self._digests())
        notices = await self._notices.read(tuple(digests.values()))
        out = {
            name: notices[digest].left_s
            for name, digest in digests.items()
            if digest in notices and self._by(notices[digest]) not in (None, self._replica)
        }
        for name, left_s in out.items():
            self._health.heard(name, for_s=left_s)
        for name in self._heard - out.keys():
            self._health.unheard(name)
        self._heard = set(out)

    def _by(self, notice: Notice) -> str | None:
        try:
            return msgspec.json.decode(notice.text, type=Ejection).by
        except msgspec.DecodeError:
            return None
