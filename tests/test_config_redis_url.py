"""Redis URLs, taken apart, and refused without being quoted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config.redis_url import MAX_HOSTS, Kind, RedisUrl, parse_redis_url

GOOD: dict[str, RedisUrl] = {
    "redis://127.0.0.1": RedisUrl(hosts=(("127.0.0.1", 6379),)),
    "redis://h:1/0": RedisUrl(hosts=(("h", 1),)),
    "redis://h/15": RedisUrl(hosts=(("h", 6379),), db=15),
    "redis://h/": RedisUrl(hosts=(("h", 6379),)),
    "rediss://[::1]:6380/2": RedisUrl(hosts=(("::1", 6380),), tls=True, db=2),
    "redis://user:pa%40ss@h": RedisUrl(hosts=(("h", 6379),), username="user", password="pa@ss"),
    "redis://:only@h": RedisUrl(hosts=(("h", 6379),), password="only"),
    "redis://a:b:c@h": RedisUrl(hosts=(("h", 6379),), username="a", password="b:c"),
    "unix:///run/redis.sock": RedisUrl(path="/run/redis.sock"),
    "unix://u:p@/run/a%20b.sock?db=3": RedisUrl(
        path="/run/a b.sock", username="u", password="p", db=3
    ),
    "redis+sentinel://user:pass@h1:1,h2,[::2]:3/my%2Fmaster/4": RedisUrl(
        kind=Kind.SENTINEL,
        hosts=(("h1", 1), ("h2", 26379), ("::2", 3)),
        username="user",
        password="pass",
        service="my/master",
        db=4,
    ),
    "rediss+sentinel://h1/m?sentinel_username=s&sentinel_password=t%25": RedisUrl(
        kind=Kind.SENTINEL,
        hosts=(("h1", 26379),),
        tls=True,
        service="m",
        sentinel_username="s",
        sentinel_password="t%",
    ),
    "redis+cluster://:p@h1:6379,h2:6380": RedisUrl(
        kind=Kind.CLUSTER, hosts=(("h1", 6379), ("h2", 6380)), password="p"
    ),
    "rediss+cluster://h1/0": RedisUrl(kind=Kind.CLUSTER, hosts=(("h1", 6379),), tls=True),
}

BAD: dict[str, str] = {
    "": "empty",
    "redis": "scheme",
    "http://h": "scheme",
    "redis+sentinels://h/m": "scheme",
    "redis://hunter2@h h": "white space",
    "redis://:hunter2@hé": "ASCII",
    "redis://": "host",
    "redis://:hunter2@": "host",
    "redis://:hunter2@/0": "host",
    "redis://h:0": "port",
    "redis://h:65536": "port",
    "redis://h:port": "host",
    "redis://::1": "[ and ]",
    "redis://h,h2": "several hosts",
    "redis://h/one": "database",
    "redis://h/99999999": "database",
    "redis://h/0/1": "database",
    "redis://:hunter2#x@h": "%23",
    "redis://:hunter2@x@h": "%40",
    "redis://h?timeout=3": "option",
    "redis://h?sentinel_password=hunter2": "option",
    "redis+sentinel://h1,h2": "lacks the name",
    "redis+sentinel://h1//0": "lacks the name",
    "redis+sentinel://h1,,h2/m": "host",
    "redis+sentinel://h1/m/x": "database",
    "redis+sentinel://h1/m?password=hunter2": "option",
    "redis+cluster://h1/1": "database 0",
    "redis+cluster://" + ",".join(["h"] * (MAX_HOSTS + 1)): "more than",
    "unix://": "absolute path",
    "unix://run/redis.sock": "absolute path",
    "unix:///run/r.sock?db=x": "database",
}


@pytest.mark.parametrize("url", GOOD)
def test_a_good_url(url: str) -> None:
    assert parse_redis_url(url) == GOOD[url]


@pytest.mark.parametrize("url", BAD)
def test_a_bad_url(url: str) -> None:
    with pytest.raises(ValueError, match="(?i)" + BAD[url].replace("[", r"\[")) as caught:
        parse_redis_url(url)
    assert "hunter2" not in str(caught.value)


def test_it_has_no_repr_that_shows_a_password() -> None:
    assert "hunter2" not in repr(parse_redis_url("redis://u:hunter2@h"))


@given(
    scheme=st.sampled_from(["redis", "rediss+sentinel", "redis+cluster", "unix", "x"]),
    rest=st.text(max_size=40),
)
def test_whatever_it_is_it_is_taken_or_refused(scheme: str, rest: str) -> None:
    try:
        found = parse_redis_url(f"{scheme}://{rest}")
    except ValueError:
        return
    assert found.hosts or found.path
