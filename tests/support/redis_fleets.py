"""Several real redis-servers that belong together: a master with Sentinels, and a Cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from redis import asyncio as aioredis
from redis.crc import key_slot

from support.redis_servers import BINARY, free_port

CLI = "redis-cli"
SERVICE = "mymaster"
MAX_PORT = 65_535 - 10_000
"""A node of a Cluster speaks to the others 10,000 ports above its own."""
READY = (b"Ready to accept connections", b"Sentinel ID is")


async def tell(port: int, *words: str | int | bytes) -> Any:  # noqa: ANN401 - whatever it answers
    """One command to one server, on a connection of its own."""
    async with aioredis.Redis(host="127.0.0.1", port=port, protocol=2) as client:
        return await client.execute_command(*words)  # type: ignore[no-untyped-call] # the client's


class Member:
    """One process of a fleet."""

    def __init__(
        self, directory: Path, *options: str | int, sentinel: str = "", tls: bool = False
    ) -> None:
        self.port = next(port for port in iter(free_port, 0) if port <= MAX_PORT)
        directory.mkdir(parents=True)
        self._command = [BINARY or ""]
        if sentinel:
            path = directory / "sentinel.conf"
            path.write_text(f"port {self.port}\nbind 127.0.0.1\ndir {directory}\n{sentinel}")
            self._command += [str(path), "--sentinel"]
        else:
            port = ("--port", 0, "--tls-port", self.port) if tls else ("--port", self.port)
            plain = (*port, "--bind", "127.0.0.1", "--dir", directory, "--save", "")
            self._command += [str(word) for word in (*plain, *options)]
        self._process: subprocess.Popen[bytes] | None = None
        self._reading: threading.Thread | None = None

    def start(self) -> None:
        """Start, and wait for its own word."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        log = b""
        for line in self._process.stdout:
            log += line
            if any(word in line for word in READY):
                # What it goes on to say is read too: with a full pipe it would stand still.
                self._reading = threading.Thread(target=self._process.stdout.read, daemon=True)
                self._reading.start()
                return
        self.kill()
        raise RuntimeError(log.decode())

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._reading is not None:
                self._reading.join()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


class Guarded:
    """A master, a replica, three Sentinels."""

    def __init__(self, directory: Path) -> None:
        quick = ("--repl-diskless-sync-delay", 0, "--repl-timeout", 5)
        self.master = Member(directory / "one", *quick)
        self.replica = Member(
            directory / "two", *quick, "--replicaof", f"127.0.0.1 {self.master.port}"
        )
        self.sentinels: list[Member] = []
        self._directory = directory

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    async def start(self) -> None:
        """Start, and wait until the replica has what the master has."""
        self.master.start()
        self.replica.start()
        await tell(self.master.port, "SET", "begun", 1)
        assert await tell(self.master.port, "WAIT", 1, 10_000) == 1
        ids = [f"{n}" * 40 for n in range(3)]
        self.sentinels = [Member(self._directory / f"s{n}", sentinel=" ") for n in range(3)]
        for n, one in enumerate(self.sentinels):
            path = self._directory / f"s{n}" / "sentinel.conf"
            # They know each other and the replica from the start: finding out takes them seconds.
            others = "".join(
                f"sentinel known-sentinel {SERVICE} 127.0.0.1 {other.port} {ids[m]}\n"
                for m, other in enumerate(self.sentinels)
                if m != n
            )
            path.write_text(
                path.read_text() + f"sentinel myid {ids[n]}\n"
                f"sentinel monitor {SERVICE} 127.0.0.1 {self.master.port} 2\n"
                f"sentinel down-after-milliseconds {SERVICE} 400\n"
                f"sentinel failover-timeout {SERVICE} 1500\n"
                f"sentinel known-replica {SERVICE} 127.0.0.1 {self.replica.port}\n" + others
            )
            one.start()

    @contextlib.asynccontextmanager
    async def switching(self) -> AsyncIterator[None]:
        """Leaves the block when a Sentinel says that the replica is the master."""
        async with (
            aioredis.Redis(host="127.0.0.1", port=self.sentinels[0].port, protocol=2) as client,
            client.pubsub() as channel,
        ):
            await channel.subscribe("+switch-master")
            yield
            async for message in channel.listen():
                if message["type"] == "message":
                    break

    def kill(self) -> None:
        for one in (*self.sentinels, self.master, self.replica):
            one.kill()


class Cluster:
    """Three nodes without replicas; while one is down the others go on."""

    def __init__(self, directory: Path) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
        quick = ("--cluster-node-timeout", 1000, "--repl-diskless-sync-delay", 0)
        self._options = (*options, *quick)
        self._directory = directory
        self.nodes = [Member(directory / str(n), *self._options) for n in range(3)]
        self.replicas: list[Member] = []

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{one.port}" for one in self.nodes)

    def start(self) -> None:
        """Start, and give out the slots."""
        for one in self.nodes:
            one.start()
        self.cli("create", *(f"127.0.0.1:{one.port}" for one in self.nodes), "--cluster-yes")
        asyncio.run(self.agreed())

    async def agreed(self) -> None:
        """Wait until every node finds the Cluster in order; it tells nobody when it does."""
        for one in self.nodes:
            while b"cluster_state:ok" not in await tell(one.port, "CLUSTER", "INFO"):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)

    def cli(self, *words: str | int) -> None:
        """`redis-cli --cluster …`, to its end."""
        subprocess.run(
            [CLI, "--cluster", *map(str, words)], check=True, stdout=subprocess.PIPE, timeout=60
        )

    async def replicate(self, node: Member) -> Member:
        """Give a node a replica, and wait until that has what the node has."""
        replica = Member(self._directory / f"of-{node.port}", *self._options)
        self.replicas.append(replica)
        replica.start()
        await asyncio.to_thread(
            self.cli,
            "add-node", f"127.0.0.1:{replica.port}", f"127.0.0.1:{node.port}",
            "--cluster-slave", "--cluster-master-id", (await self.ids())[node.port],
        )  # fmt: skip
        while (await tell(replica.port, "ROLE"))[3:4] != [b"connected"]:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        return replica

    async def ids(self) -> dict[int, str]:
        """Node id by port."""
        return {one.port: (await tell(one.port, "CLUSTER", "MYID")).decode() for one in self.nodes}

    async def serves(self, key: str) -> Member:
        """Who serves a key."""
        ranges = await tell(self.nodes[0].port, "CLUSTER", "SLOTS")
        slot = key_slot(key.encode())
        (port,) = (part[2][1] for part in ranges if part[0] <= slot <= part[1])
        return next(one for one in self.nodes if one.port == port)

    def kill(self) -> None:
        for one in (*self.nodes, *self.replicas):
            one.kill()


class Move:
    """One slot on its way from one node to another, step by step."""

    def __init__(self, cluster: Cluster, key: str, source: Member, target: Member) -> None:
        self._cluster = cluster
        self._slot = key_slot(key.encode())
        self._source, self._target = source, target

    async def begin(self) -> None:
        ids = await self._cluster.ids()
        source, target = ids[self._source.port], ids[self._target.port]
        await tell(self._target.port, "CLUSTER", "SETSLOT", self._slot, "IMPORTING", source)
        await tell(self._source.port, "CLUSTER", "SETSLOT", self._slot, "MIGRATING", target)

    async def carry(self, keys: Sequence[str]) -> None:
        to = ("127.0.0.1", self._target.port, "", 0, 5000, "KEYS")
        await tell(self._source.port, "MIGRATE", *to, *keys)

    async def end(self) -> None:
        ids = await self._cluster.ids()
        for one in (self._target, self._source, *self._cluster.nodes):
            await tell(one.port, "CLUSTER", "SETSLOT", self._slot, "NODE", ids[self._target.port])


@contextlib.contextmanager
def killed_at_the_end(fleet: Guarded | Cluster) -> Iterator[None]:
    """Whatever happens."""
    try:
        yield
    finally:
        fleet.kill()
