"""What befalls the Redis of live routers, step by step: it is struck, it gets worse, it is mended.

Each step ends when the servers say so, and nothing mends itself meanwhile, so that whatever else is
to happen in an outage happens in it. The routers have a user of their own, with the rights that
docs/operation.md names and no more.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from redis import asyncio as aioredis
from redis.crc import key_slot

from support.redis_fleets import SERVICE, Cluster, Guarded, Member, Move, tell
from support.redis_servers import rights

USER, PASSWORD, SENTINEL_PASSWORD = "seam", "swordfish-for-redis", "swordfish-for-sentinels"
LONG_MS, SHORT_MS = 3_600_000, 400
"""How long Sentinels wait for a master: until they are told, and then."""

WAIT_S = 30.0
"""Bound of every wait: a mistake fails, and does not hang."""


class Outage(Protocol):
    """A Redis, and what befalls it."""

    @property
    def url(self) -> str:
        """For `record.url`."""
        ...

    async def begin(self) -> None:
        """Start all servers."""
        ...

    async def replicated(self) -> None:
        """Wait until every replica has what its master has."""
        ...

    async def strike(self) -> None:
        """The outage begins."""
        ...

    async def worsen(self) -> None:
        """It goes on in another way."""
        ...

    async def mend(self) -> None:
        """A replica takes the place of the master that died."""
        ...

    async def kept(self) -> set[str]:
        """The keys of every record that is there, of those that take writes."""
        ...

    def kill(self) -> None:
        """All of it."""
        ...


class MasterDies:
    """A master is killed, and Sentinels put its replica in its place.

    Args:
        directory: for the servers.
        hangs: it only hangs, and wakes up when another has its place.
    """

    def __init__(self, directory: Path, *, hangs: bool = False) -> None:
        self._fleet = Guarded(directory)
        self._hangs = hangs
        self._parted_s = 0.0

    @property
    def url(self) -> str:
        mine = f"?sentinel_username={USER}&sentinel_password={SENTINEL_PASSWORD}"
        return self._fleet.url.replace("//", f"//{USER}:{PASSWORD}@") + mine

    async def begin(self) -> None:
        fleet = self._fleet
        await fleet.start()
        await let_in((fleet.master, fleet.replica))
        for one in fleet.sentinels:
            await tell(
                one.port, "ACL", "SETUSER", USER, "on", f">{SENTINEL_PASSWORD}", "+sentinel|master"
            )
        await self._patience(LONG_MS)

    async def replicated(self) -> None:
        await settled(self._fleet.master, self._fleet.replica)

    async def part(self) -> None:
        """The replica loses its master, and learns nothing new from then on."""
        self._parted_s = time.monotonic()
        port = self._fleet.replica.port
        await tell(port, "CONFIG", "SET", "masteruser", "nobody", "masterauth", "wrong")
        await tell(port, "CLIENT", "KILL", "TYPE", "master")

    async def strike(self) -> None:
        self._parted_s = self._parted_s or time.monotonic()
        if self._hangs:
            self._fleet.master.signal(signal.SIGSTOP)
        else:
            self._fleet.master.kill()

    async def worsen(self) -> None:
        """It is as bad as can be."""

    async def mend(self) -> None:
        # A replica that has been without its master for ten times as long is not chosen.
        patience_ms = max(SHORT_MS, round((time.monotonic() - self._parted_s) * 250))
        async with asyncio.timeout(WAIT_S), self._fleet.switching():
            await self._patience(patience_ms)
        if self._hangs:
            self._fleet.master.signal(signal.SIGCONT)

    async def kept(self) -> set[str]:
        return await records(self._fleet.replica)

    def kill(self) -> None:
        self._fleet.kill()

    async def _patience(self, down_after_ms: int) -> None:
        words = ("SENTINEL", "SET", SERVICE, "down-after-milliseconds", down_after_ms)
        for one in self._fleet.sentinels:
            await tell(one.port, *words)


class NodeDies:
    """Every slot of a node that has a live stream moves to another node, which is then killed; its
    replica takes its place.

    Args:
        directory: for the servers.
    """

    def __init__(self, directory: Path) -> None:
        self._cluster = Cluster(directory)
        self._source, self._target, _ = self._cluster.nodes
        self._moves: list[tuple[Move, list[str]]] = []
        self._replica: Member

    @property
    def url(self) -> str:
        return self._cluster.url.replace("//", f"//{USER}:{PASSWORD}@")

    @property
    def moved(self) -> int:
        """Streams whose slots have moved."""
        return sum(len(states) for _, states in self._moves)

    async def begin(self) -> None:
        await asyncio.to_thread(self._cluster.start)
        self._replica = await self._cluster.replicate(self._target)
        await let_in((*self._cluster.nodes, self._replica))
        await tell(self._replica.port, "CONFIG", "SET", "cluster-replica-no-failover", "yes")

    async def replicated(self) -> None:
        await settled(self._target, self._replica)

    async def strike(self) -> None:
        """Of each record one key is on its way, and the other still where it was."""
        slots: dict[int, list[str]] = {}
        for key in await records(self._source):
            if key.endswith(":state"):
                slots.setdefault(key_slot(key.encode()), []).append(key)
        for states in slots.values():
            move = Move(self._cluster, states[0], self._source, self._target)
            self._moves.append((move, states))
            await move.begin()
            await move.carry(states)

    async def worsen(self) -> None:
        for move, states in self._moves:
            await move.carry([state.removesuffix("state") + "text" for state in states])
            await move.end()
        await self.replicated()
        self._target.kill()

    async def mend(self) -> None:
        await tell(self._replica.port, "CONFIG", "SET", "cluster-replica-no-failover", "no")
        while (await tell(self._replica.port, "ROLE"))[0] != b"master":  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)

    async def kept(self) -> set[str]:
        first, _, third = self._cluster.nodes
        found = [await records(one) for one in (first, third, self._replica)]
        return set().union(*found)

    def kill(self) -> None:
        self._cluster.kill()


async def let_in(servers: Iterable[Member]) -> None:
    """Make the routers' user."""
    for one in servers:
        await tell(one.port, "ACL", "SETUSER", USER, "on", f">{PASSWORD}", *rights())


async def records(server: Member) -> set[str]:
    """The keys of the records that a server holds; of one that was deleted a tombstone is none."""
    found = set()
    async with aioredis.Redis(host="127.0.0.1", port=server.port, protocol=2) as client:
        async for key in client.scan_iter("router:{*}:*"):
            if key.endswith(b":text") or not await client.hexists(key, "gone"):
                found.add(key.decode())
    return found


async def settled(master: Member, replica: Member) -> None:
    """Wait until a replica has all that its master has at this moment."""
    _, wanted, *_ = await tell(master.port, "ROLE")
    while (await tell(replica.port, "ROLE"))[4] < wanted:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.01)
