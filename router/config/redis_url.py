"""Redis URLs: the four ways to say where the record is kept, parsed.

    redis://[user:password@]host[:6379][/db]                                 one server
    unix://[user:password@]/path.sock[?db=0]                                 one server
    redis+sentinel://[user:password@]host[:26379][,…]/name[/db]              Sentinels that know it
    redis+cluster://[user:password@]host[:6379][,…]                          nodes of a Cluster

`rediss` in place of `redis` is TLS, to Sentinels too. User and password are Redis's; a Sentinel's
own are `?sentinel_username=` and `?sentinel_password=`. What needs escaping is percent-encoded. No
message quotes the URL, as it may hold a password.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, unquote

MAX_HOSTS = 32
"""Bound on the hosts of one URL; Sentinels come in threes and fives."""

MAX_DB = 1_000_000
"""Bound on a database's number; Redis has 16 unless told otherwise."""

Host = tuple[str, int]
"""Host name or address, and TCP port."""


class Kind(enum.Enum):
    """How a URL leads to the server that takes writes."""

    SERVER = "server"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RedisUrl:
    """A URL, taken apart. Has no `repr` that shows it.

    Args:
        kind: how the hosts lead to the server.
        hosts: servers, Sentinels or nodes; empty for a socket.
        path: of a Unix socket, or "".
        tls: connections are encrypted.
        db: number of the database.
        username: at Redis, or None for its default user.
        password: at Redis, or None.
        service: the name by which the Sentinels know the server, or "".
        sentinel_username: at the Sentinels, or None.
        sentinel_password: at the Sentinels, or None.
    """

    kind: Kind = Kind.SERVER
    hosts: tuple[Host, ...] = ()
    path: str = ""
    tls: bool = False
    db: int = 0
    username: str | None = None
    password: str | None = None
    service: str = ""
    sentinel_username: str | None = None
    sentinel_password: str | None = None


def parse_redis_url(url: str) -> RedisUrl:
    """Take a URL apart.

    Args:
        url: as the configuration has it, `${…}` replaced.

    Raises:
        ValueError: it is none; the message says why, and quotes nothing of it.
    """
    if not re.fullmatch(r"[!-~]+", url):
        raise ValueError("it is empty, or holds white space or a character that is not ASCII")
    parts = _split(url)
    parse = _SCHEMES.get(parts.scheme)
    if parse is None:
        raise ValueError(f"its scheme is none of {', '.join(sorted(_SCHEMES))}")
    if parts.fragment:
        raise ValueError("it holds a `#`; in a password write it as %23")
    return parse(parts, dict(parse_qsl(parts.query, keep_blank_values=True)))


_URL = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?")
"""Of RFC 3986, appendix B."""


def _split(url: str) -> SplitResult:
    """The parts of a URL that may name several hosts, which `urlsplit` refuses in newer Pythons
    where one of them is an IPv6 address; the hosts are looked at in `_host`."""
    found = _URL.fullmatch(url)
    scheme, *others = found.groups("") if found else [""] * 5
    return SplitResult(scheme.lower(), *others)


_Query = dict[str, str]


def _server(parts: SplitResult, query: _Query) -> RedisUrl:
    username, password, hosts = _authority(parts.netloc, 6379)
    if len(hosts) > 1:
        raise ValueError("it names several hosts, which needs `+sentinel` or `+cluster`")
    _no_more(query)
    return RedisUrl(
        hosts=hosts, tls=_tls(parts), db=_db(parts.path), username=username, password=password
    )


def _unix(parts: SplitResult, query: _Query) -> RedisUrl:
    credentials, _, host = parts.netloc.rpartition("@")
    username, password = _credentials(credentials)
    if host or parts.path in ("", "/"):
        raise ValueError("a `unix://` URL needs an absolute path, such as `unix:///run/redis.sock`")
    db = _db("/" + query.pop("db", ""))
    _no_more(query)
    return RedisUrl(path=unquote(parts.path), db=db, username=username, password=password)


def _sentinel(parts: SplitResult, query: _Query) -> RedisUrl:
    username, password, hosts = _authority(parts.netloc, 26379)
    service, _, db = parts.path.removeprefix("/").partition("/")
    if not service:
        raise ValueError("it lacks the name by which the Sentinels know the server")
    sentinel = query.pop("sentinel_username", None), query.pop("sentinel_password", None)
    _no_more(query)
    return RedisUrl(
        kind=Kind.SENTINEL,
        hosts=hosts,
        tls=_tls(parts),
        db=_db("/" + db),
        username=username,
        password=password,
        service=unquote(service),
        sentinel_username=sentinel[0],
        sentinel_password=sentinel[1],
    )


def _cluster(parts: SplitResult, query: _Query) -> RedisUrl:
    username, password, hosts = _authority(parts.netloc, 6379)
    if _db(parts.path):
        raise ValueError("a Cluster has database 0 only")
    _no_more(query)
    return RedisUrl(
        kind=Kind.CLUSTER, hosts=hosts, tls=_tls(parts), username=username, password=password
    )


_SCHEMES: Mapping[str, Callable[[SplitResult, _Query], RedisUrl]] = {
    "redis": _server,
    "rediss": _server,
    "unix": _unix,
    "redis+sentinel": _sentinel,
    "rediss+sentinel": _sentinel,
    "redis+cluster": _cluster,
    "rediss+cluster": _cluster,
}


def _tls(parts: SplitResult) -> bool:
    return parts.scheme.startswith("rediss")


def _authority(netloc: str, port: int) -> tuple[str | None, str | None, tuple[Host, ...]]:
    credentials, _, places = netloc.rpartition("@")
    hosts = tuple(_host(place, port) for place in places.split(","))
    if len(hosts) > MAX_HOSTS:
        raise ValueError(f"it names more than {MAX_HOSTS} hosts")
    return (*_credentials(credentials), hosts)


def _credentials(text: str) -> tuple[str | None, str | None]:
    if "@" in text or "/" in text:
        raise ValueError("a password with `@` or `/` in it needs these as %40 and %2F")
    username, _, password = text.partition(":")
    return unquote(username) or None, unquote(password) or None


def _host(place: str, port: int) -> Host:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?", place)
    if found is None:
        raise ValueError("a host in it is none; an address with colons needs [ and ] around it")
    number = int(found[3]) if found[3] else port
    if not 0 < number < 65_536:
        raise ValueError("a port in it is out of range")
    return found[1] or found[2], number


def _db(path: str) -> int:
    text = path.removeprefix("/")
    if not text:
        return 0
    if not re.fullmatch(r"[0-9]{1,7}", text) or int(text) > MAX_DB:
        raise ValueError("the database behind its last `/` is no number")
    return int(text)


def _no_more(query: _Query) -> None:
    if query:
        raise ValueError(
            "it holds an option after `?` that is not known; certificates have keys of their own "
            "in `record`"
        )
