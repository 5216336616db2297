"""Which server a command goes to: the one there is, the one that Sentinels name, or a slot's.

A `Node` is one server with its connections. Each topology finds nodes by what others say
(Sentinels, `CLUSTER SLOTS`) and believes it until somebody doubts it: a command that failed, a
server that says that it only reads. redis-py's own Sentinel and Cluster clients are not used: the
one asks for the server only when it connects, and believes the first Sentinel; the other sends
`ASKING` on whichever connection is free, and loses every node's answers when one node fails.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from redis import asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import ClusterDownError, RedisError
from redis.exceptions import TimeoutError as ConnectTimeout

from router.config.redis_url import Host, Kind, RedisUrl
from router.store.options import RedisOptions
from router.store.weather import Weather

MAX_READERS = 16
"""Connections for reads, to each server; many clients that resume at once share them."""

BELIEF_S = 0.5
"""How long what Sentinels said is believed unasked, in seconds: a master that was cut off, or that
hung and woke up, takes commands for a while after another has taken its place, and loses them."""

SILENT_S = 5.0
"""How long a Sentinel that let us wait is not asked, in seconds, unless no other answers."""

SLOTS = 16_384
"""Slots of a Cluster."""

ASK_SHARE = 1 / 3
"""Share of the command timeout that one Sentinel or node is given to say where things are, so that
a hung one leaves time for the others and for the command itself."""

WEATHER = (RedisError, OSError, TimeoutError)
"""What goes wrong with connections."""


class Node:
    """One server: a connection for writes, some for reads.

    Args:
        url: how it is spoken to.
        options: likewise.
        host: where it is, or None for the URL's socket.
    """

    __slots__ = ("host", "primed", "reader", "rests_until_s", "writer")

    def __init__(self, url: RedisUrl, options: RedisOptions, host: Host | None) -> None:
        self.host = host
        self.writer = _client(url, options, host, 1)
        self.reader = _client(url, options, host, MAX_READERS)
        self.primed = False
        """The write script is known there."""
        self.rests_until_s = 0.0
        """Loop time before which it is asked only if nobody else is: it let us wait in vain."""

    @property
    def name(self) -> str:
        """For the log."""
        return "{}:{}".format(*self.host) if self.host else "socket"

    async def aclose(self) -> None:
        """Close its connections."""
        await self.writer.aclose()
        await self.reader.aclose()


class Topology(Protocol):
    """Where commands go."""

    @property
    def redirects(self) -> bool:
        """Servers may send a command on to another one."""
        ...

    async def ready(self) -> None:
        """Find out what is not known, or not believed any more.

        Raises:
            RedisError: nobody knows.
            OSError: likewise.
            TimeoutError: nobody said in time.
        """
        ...

    def node(self, key: str) -> Node:
        """The server that takes commands on a key; asked right after `ready`.

        Args:
            key: of the command; all of its keys share a slot.

        Raises:
            ClusterDownError: there is none for its slot.
        """
        ...

    def nodes(self) -> Sequence[Node]:
        """Every server that takes commands; asked right after `ready`."""
        ...

    def at(self, host: Host) -> Node:
        """The server at an address that another one gave."""
        ...

    def moved(self, slot: int, host: Host) -> None:
        """A slot is served there from now on."""
        ...

    def doubt(self, node: Node) -> None:
        """A server did not do what was asked: believe nothing that leads to it."""
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...


def make_topology(
    url: RedisUrl, options: RedisOptions, rng: random.Random, weather: Weather
) -> Topology:
    """The topology that a URL means.

    Args:
        url: taken apart.
        options: how servers are connected to.
        rng: for the order in which nodes are asked.
        weather: told of servers that take another's place.
    """
    if url.kind is Kind.SENTINEL:
        return Sentinels(url, options, weather)
    if url.kind is Kind.CLUSTER:
        return Cluster(url, options, rng, weather)
    return Alone(url, options)


class Alone:
    """One server.

    Args:
        url: where it is.
        options: how it is connected to.
    """

    redirects = False

    def __init__(self, url: RedisUrl, options: RedisOptions) -> None:
        self._node = Node(url, options, url.hosts[0] if url.hosts else None)

    async def ready(self) -> None:
        """Nothing is to be found out."""

    def node(self, key: str) -> Node:
        """Always the same."""
        del key
        return self._node

    def nodes(self) -> Sequence[Node]:
        """The one."""
        return (self._node,)

    def at(self, host: Host) -> Node:
        """There is no other."""
        del host
        return self._node

    def moved(self, slot: int, host: Host) -> None:
        """Nothing moves."""

    def doubt(self, node: Node) -> None:
        """There is no other."""

    async def aclose(self) -> None:
        """Close every connection."""
        await self._node.aclose()


class _Said(NamedTuple):
    """What a Sentinel says.

    Args:
        epoch: of its configuration.
        host: the server that takes writes.
        down: what keeps that server from it, in the Sentinel's words, or "".
        connected: the Sentinel has a connection to it. One that has only just heard of a master has
            none yet, and is right all the same.
    """

    epoch: int
    host: Host
    down: str
    connected: bool


class Sentinels:
    """The server that Sentinels name.

    Args:
        url: of the Sentinels.
        options: how they and the server are connected to.
        weather: told of a server that takes another's place.
    """

    redirects = False

    def __init__(self, url: RedisUrl, options: RedisOptions, weather: Weather) -> None:
        self._url = url
        self._options = options
        self._weather = weather
        asked = RedisUrl(
            tls=url.tls, username=url.sentinel_username, password=url.sentinel_password
        )
        # Each with the loop time before which it is not asked.
        self._sentinels = {_client(asked, options, host, 1): 0.0 for host in url.hosts}
        self._named: Node | None = None
        self._doubted = True
        self._asked_s = 0.0
        self._finding = asyncio.Lock()

    async def ready(self) -> None:
        """Ask the Sentinels, if need be; see `Topology.ready`."""
        if self._is_due():
            async with self._finding:
                if self._is_due():
                    await self._find()

    def node(self, key: str) -> Node:
        """The server that takes writes."""
        del key
        if self._named is None:
            raise ClusterDownError("no server is known to take writes")
        return self._named

    def nodes(self) -> Sequence[Node]:
        """The one that takes writes."""
        return (self.node(""),)

    def at(self, host: Host) -> Node:
        """Nobody sends commands on."""
        raise NotImplementedError(host)

    def moved(self, slot: int, host: Host) -> None:
        """Nothing moves."""

    def doubt(self, node: Node) -> None:
        """Ask the Sentinels again before the next command."""
        if node is self._named:
            self._doubted = True

    async def aclose(self) -> None:
        """Close every connection."""
        if self._named is not None:
            await self._named.aclose()
        for sentinel in self._sentinels:
            await sentinel.aclose()

    def _is_due(self) -> bool:
        return self._doubted or asyncio.get_running_loop().time() > self._asked_s + BELIEF_S

    async def _find(self) -> None:
        """Of the Sentinels that answer, believe those with the newest configuration: one that is
        cut off together with a former master, or has not heard of a failover yet, still names
        that."""
        now_s = asyncio.get_running_loop().time()
        awake = [one for one, silent_s in self._sentinels.items() if silent_s <= now_s]
        heard = await asyncio.gather(*(self._ask(one) for one in awake or self._sentinels))
        said = [one for one in heard if isinstance(one, _Said)]
        newest = [one for one in said if one.epoch == max(other.epoch for other in said)]
        up = [one for one in newest if not one.down]
        self._asked_s = now_s
        if up:
            await self._name(max(up, key=lambda one: one.connected).host)
        elif self._doubted:
            words = [f"it is said to be {one.down}" for one in newest]
            words += [str(one) for one in heard if isinstance(one, BaseException)]
            why = next(filter(None, words), "none answers in time")
            self._sentinels = dict.fromkeys(self._sentinels, 0.0)
            raise RedisError(f"no Sentinel names a server that is up: {why}")

    async def _name(self, host: Host) -> None:
        former, self._doubted = self._named, False
        if former is None or former.host != host:
            self._named = Node(self._url, self._options, host)
            if former is not None:
                self._weather.struck(self._named.name, asyncio.get_running_loop().time())
                await former.aclose()

    async def _ask(self, sentinel: aioredis.Redis) -> _Said | BaseException:
        try:
            async with asyncio.timeout(self._options.command_timeout_s * ASK_SHARE):
                reply = await _execute(sentinel, "SENTINEL", "MASTER", self._url.service)
            fields = {name.decode(): value.decode() for name, value in _pairs(reply)}
            flags = set(fields["flags"].split(","))
            role = fields.get("role-reported", "master")
            down = flags & {"s_down", "o_down"} or "master" not in flags
            return _Said(
                epoch=int(fields["config-epoch"]),
                host=(fields["ip"], int(fields["port"])),
                down=fields["flags"] if down else f"a {role}" if role != "master" else "",
                connected="disconnected" not in flags,
            )
        except WEATHER as error:
            if isinstance(error, (TimeoutError, ConnectTimeout)):
                self._sentinels[sentinel] = asyncio.get_running_loop().time() + SILENT_S
            return error
        except (KeyError, ValueError, TypeError, AttributeError):
            return RedisError("what a Sentinel says cannot be read")


class Cluster:
    """Slots, and who serves them.

    Args:
        url: some of its nodes.
        options: how nodes are connected to.
        rng: for the order in which they are asked.
        weather: told of nodes that take another's place.
    """

    redirects = True

    def __init__(
        self, url: RedisUrl, options: RedisOptions, rng: random.Random, weather: Weather
    ) -> None:
        self._url = url
        self._options = options
        self._rng = rng
        self._weather = weather
        self._nodes: dict[Host, Node] = {}
        self._slots: list[Node | None] = []
        self._doubted: set[Node] = set()
        self._patchy = False
        self._finding = asyncio.Lock()

    async def ready(self) -> None:
        """Ask who serves what, if need be; see `Topology.ready`."""
        if self._patchy or not self._slots:
            async with self._finding:
                if self._patchy or not self._slots:
                    await self._find()

    def node(self, key: str) -> Node:
        """The node that serves a key's slot; see `Topology.node`."""
        node = self._slots[key_slot(key.encode())] if self._slots else None
        if node is None:
            self._patchy = True
            raise ClusterDownError("no node serves this slot")
        return node

    def nodes(self) -> Sequence[Node]:
        """Every node that serves a slot."""
        return tuple(dict.fromkeys(node for node in self._slots if node is not None))

    def at(self, host: Host) -> Node:
        """The node at an address."""
        node = self._nodes.get(host)
        if node is None:
            node = self._nodes[host] = Node(self._url, self._options, host)
        return node

    def moved(self, slot: int, host: Host) -> None:
        """A slot is served there from now on; the others' places are still believed."""
        if self._slots and 0 <= slot < SLOTS:
            self._slots[slot] = self.at(host)

    def doubt(self, node: Node) -> None:
        """Ask who serves what before the next command; until then the others' places are known."""
        self._patchy = True
        self._doubted.add(node)

    async def aclose(self) -> None:
        """Close every connection."""
        for node in self._nodes.values():
            await node.aclose()

    async def _find(self) -> None:
        slots = await self._ask_around()
        self._note_heirs(slots)
        gone = self._doubted - set(slots)
        self._slots, self._doubted, self._patchy = slots, set(), False
        for node in gone:
            if node.host is not None and self._nodes.get(node.host) is node:
                del self._nodes[node.host]
            await node.aclose()

    def _note_heirs(self, slots: Sequence[Node | None]) -> None:
        """Whoever serves what another one did may know less of it."""
        pairs = zip(self._slots, slots, strict=False)
        now_s = asyncio.get_running_loop().time()
        for heir in {new for old, new in pairs if old is not new and None not in (old, new)}:
            if heir is not None:
                self._weather.struck(heir.name, now_s)

    async def _ask_around(self) -> list[Node | None]:
        hosts = list(dict.fromkeys((*self._nodes, *self._url.hosts)))
        self._rng.shuffle(hosts)
        hosts.sort(key=lambda host: self._nodes.get(host) in self._doubted)
        error: BaseException = RedisError("no node of the Cluster answers")
        for host in hosts:
            try:
                async with asyncio.timeout(self._options.command_timeout_s * ASK_SHARE):
                    reply = await _execute(self.at(host).reader, "CLUSTER", "SLOTS")
                return self._served(reply, host)
            except WEATHER as failure:
                error = failure if str(failure) else error
            except (ValueError, TypeError, IndexError, AttributeError):
                error = RedisError("what a node says of the slots cannot be read")
        raise error

    def _served(self, reply: Iterable[Any], asked: Host) -> list[Node | None]:
        slots: list[Node | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in reply:
            # A node that does not know its own address leaves it away: it is where it was asked.
            name = (host or b"").decode()
            node = self.at((asked[0] if name in ("", "?") else name, int(port)))
            for slot in range(first, last + 1):
                slots[slot] = node
        return slots


def _client(
    url: RedisUrl, options: RedisOptions, host: Host | None, connections: int
) -> aioredis.Redis:
    pool = aioredis.BlockingConnectionPool(
        max_connections=connections,
        timeout=options.command_timeout_s,
        protocol=2,
        decode_responses=False,
        db=url.db,
        username=url.username,
        password=url.password,
        socket_connect_timeout=options.connect_timeout_s,
        # Every use is under one deadline for the whole of it; a second per read costs CPU.
        socket_timeout=None,
        # A retry inside the client would be blind to what was already written.
        retry=Retry(NoBackoff(), 0),
        **_place(url, options, host),
    )
    return aioredis.Redis.from_pool(pool)


def _place(url: RedisUrl, options: RedisOptions, host: Host | None) -> Mapping[str, Any]:
    if host is None:
        return {"connection_class": aioredis.UnixDomainSocketConnection, "path": url.path}
    place = {"host": host[0], "port": host[1]}
    if not url.tls:
        return {"connection_class": aioredis.Connection, **place}
    return {
        "connection_class": aioredis.SSLConnection,
        **place,
        "ssl_ca_certs": options.ca_file,
        "ssl_certfile": options.cert_file,
        "ssl_keyfile": options.key_file,
        "ssl_check_hostname": True,
    }


async def _execute(client: aioredis.Redis, *words: str) -> Any:  # noqa: ANN401 - whatever it says
    return await client.execute_command(*words)  # type: ignore[no-untyped-call] # the client's


def _pairs(flat: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)
