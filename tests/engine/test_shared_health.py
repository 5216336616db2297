"""Ejections told and heard: what replicas know of each other's targets, through a real Redis."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis import asyncio as aioredis
from support.clock import FakeClock
from support.reading import ask, check_contract
from support.redis_servers import BINARY, RedisServer, free_port
from support.routers import Router, routed, running_router

from router.build import make_generation
from router.config import parse_config
from router.core.faults import Fault, FaultKind, Verdict
from router.engine.clock import LoopClock
from router.engine.health import HEARSAY_MARGIN_S, Health, HealthPolicy
from router.engine.observe import Detail, Observers, TargetEjected, TargetRestored
from router.engine.shared_health import SharedHealth
from router.simulate import Script, SimulatedProvider, seeded_text
from router.store.notices import PREFIX, Notice, Notices
from router.store.redis import RedisLink

CUT = Fault(kind=FaultKind.CUT)
BAD_KEY = Fault(kind=FaultKind.STATUS, verdict=Verdict.ACCOUNT, status=401)
TARGET = "p1/model"


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    if BINARY is None:
        pytest.skip("no redis-server binary: what replicas share is not tested here")
    server = RedisServer(tmp_path, free_port())
    server.start()
    yield server
    server.kill()


class Replica:
    """One process's health, and its way to the others."""

    names = itertools.count()

    def __init__(self, link: RedisLink, digests: Mapping[str, str], cool_down_s: float) -> None:
        self.clock = FakeClock()
        self.told: list[Detail] = []
        self.health = Health(
            HealthPolicy(eject_after=1, cool_down_s=cool_down_s, max_cool_down_s=100),
            self.clock,
            Observers((self.told.append, self._pass_on)),
        )
        self.shared = SharedHealth(
            Notices(link),
            health=self.health,
            digests=lambda: digests,
            replica=f"replica-{next(self.names)}",
            clock=self.clock,
            random=lambda: 0.5,
        )

    def _pass_on(self, detail: Detail) -> None:
        self.shared(detail)

    @property
    def standing(self) -> str:
        """As people are told."""
        found: str = self.health.summary(TARGET)["standing"]
        return found


class Replicas:
    """Makes them, on one Redis."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._links: list[RedisLink] = []

    def one(self, digest: str = "the-same", cool_down_s: float = 10) -> Replica:
        link = RedisLink(self._url, command_timeout_s=1, connect_timeout_s=1)
        self._links.append(link)
        return Replica(link, {TARGET: digest}, cool_down_s)

    async def aclose(self) -> None:
        for link in self._links:
            await link.aclose()


@pytest.fixture
async def replicas(redis_server: RedisServer) -> AsyncIterator[Replicas]:
    made = Replicas(redis_server.url)
    yield made
    await made.aclose()


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[aioredis.Redis]:
    made = aioredis.Redis.from_url(redis_server.url, protocol=2)
    yield made
    await made.aclose()


async def test_an_ejection_is_heard_for_as_long_as_it_lasts(
    replicas: Replicas, client: aioredis.Redis
) -> None:
    one, other = replicas.one(), replicas.one()
    one.health.failed(TARGET, CUT)
    await one.shared.exchange()
    assert 9_000 < await client.pttl(PREFIX + "the-same") <= 10_000
    await other.shared.exchange()
    assert not other.health.available(TARGET)
    assert other.health.summary(TARGET)["heard_of"]
    assert 9 < other.health.summary(TARGET)["cool_down_left_s"] <= 10
    await other.clock.advance(10.1)
    assert other.health.available(TARGET)  # for one probe
    other.health.asked(TARGET)
    assert not other.health.available(TARGET)
    assert other.told == []  # hearsay is nobody's ejection here


async def test_what_is_restored_there_is_restored_here(
    replicas: Replicas, client: aioredis.Redis
) -> None:
    one, other = replicas.one(), replicas.one()
    one.health.failed(TARGET, BAD_KEY)
    await one.shared.exchange()
    await other.shared.exchange()
    assert not other.health.available(TARGET)
    one.health.answering(TARGET)
    await one.shared.exchange()
    assert await client.exists(PREFIX + "the-same") == 0
    await other.shared.exchange()
    assert (other.standing, other.health.available(TARGET)) == ("well", True)


async def test_a_notice_that_has_run_out_leaves_it_to_a_probe(
    replicas: Replicas, client: aioredis.Redis
) -> None:
    one, other = replicas.one(), replicas.one()
    one.health.failed(TARGET, CUT)
    await one.shared.exchange()
    await other.shared.exchange()
    await other.clock.advance(10 - HEARSAY_MARGIN_S)
    await client.delete(PREFIX + "the-same")  # as Redis does a moment later
    await other.shared.exchange()
    assert (other.standing, other.health.available(TARGET)) == ("ejected", False)
    await other.clock.advance(1)
    other.health.asked(TARGET)
    assert other.standing == "probing"


async def test_ones_own_ejection_is_not_taken_back_by_another(replicas: Replicas) -> None:
    one, other = replicas.one(), replicas.one()
    for replica in (one, other):
        replica.health.failed(TARGET, CUT)
        await replica.shared.exchange()
    await one.shared.exchange()  # hears the other's
    other.health.answering(TARGET)
    await other.shared.exchange()
    await one.shared.exchange()
    assert one.standing == "ejected"
    assert not one.health.summary(TARGET)["heard_of"]


async def test_a_longer_ejection_holds_longer_here_too(replicas: Replicas) -> None:
    one, other = replicas.one(cool_down_s=5), replicas.one()
    one.health.failed(TARGET, CUT)
    await one.shared.exchange()
    await other.shared.exchange()
    await one.clock.advance(5.1)
    one.health.asked(TARGET)
    one.health.failed(TARGET, CUT)  # the probe failed: ten seconds now
    await one.shared.exchange()
    await other.clock.advance(4)
    await other.shared.exchange()
    await other.clock.advance(5)
    assert not other.health.available(TARGET)


async def test_another_account_or_model_of_that_name_is_another_target(replicas: Replicas) -> None:
    one, other = replicas.one("digest-1"), replicas.one("digest-2")
    one.health.failed(TARGET, CUT)
    await one.shared.exchange()
    await other.shared.exchange()
    assert other.health.available(TARGET)


async def test_nobody_hears_himself(replicas: Replicas) -> None:
    one = replicas.one()
    one.health.failed(TARGET, CUT)
    await one.shared.exchange()
    await one.clock.advance(10.1)  # Redis still has the notice: its clock is not ours
    await one.shared.exchange()
    assert one.health.available(TARGET)


async def test_only_the_latest_is_told(replicas: Replicas, client: aioredis.Redis) -> None:
    one = replicas.one()
    for _ in range(50):
        one.health.failed(TARGET, CUT)
        one.health.answering(TARGET)
    await one.shared.exchange()
    assert await client.exists(PREFIX + "the-same") == 0
    assert one.shared.stats["told"] == 1


async def test_redis_away_changes_nothing_and_what_is_still_true_is_told_later(
    redis_server: RedisServer, replicas: Replicas, client: aioredis.Redis
) -> None:
    one, other = replicas.one(), replicas.one()
    one.health.failed(TARGET, CUT)
    await one.shared.exchange()
    await other.shared.exchange()
    redis_server.kill()
    for replica in (one, other):
        await replica.shared.exchange()
        assert not replica.health.available(TARGET)
    one.health.answering(TARGET)
    one.health.failed(TARGET, CUT)
    await one.shared.exchange()
    assert one.shared.stats["failures"] == 2
    await one.clock.advance(4)
    redis_server.start()
    await one.shared.exchange()
    # Its second time out is twenty seconds, and that is what is left of it.
    assert 15_000 < await client.pttl(PREFIX + "the-same") <= 16_000


async def test_what_is_over_by_then_is_not_told(
    redis_server: RedisServer, replicas: Replicas, client: aioredis.Redis
) -> None:
    one = replicas.one()
    redis_server.kill()
    one.health.failed(TARGET, CUT)
    await one.shared.exchange()
    await one.clock.advance(11)
    redis_server.start()
    await client.set(PREFIX + "the-same", "another's", px=60_000)
    await one.shared.exchange()
    assert await client.exists(PREFIX + "the-same") == 1


@pytest.mark.parametrize("text", [b"", b"{}", b"nonsense", b'{"by": 7}', b"\xff"])
async def test_a_notice_that_cannot_be_read_is_none(
    replicas: Replicas, client: aioredis.Redis, text: bytes
) -> None:
    one = replicas.one()
    await client.set(PREFIX + "the-same", text, px=60_000)
    await one.shared.exchange()
    assert one.health.available(TARGET)


async def test_a_notice_without_an_end_is_none_of_ours(
    replicas: Replicas, client: aioredis.Redis
) -> None:
    one = replicas.one()
    text = b'{"until": 0, "kind": "cut", "by": "somebody"}'
    await client.set(PREFIX + "the-same", text)
    await one.shared.exchange()
    assert one.health.available(TARGET)
    await client.set(PREFIX + "the-same", text, px=60_000)
    await one.shared.exchange()
    assert not one.health.available(TARGET)


async def test_notices_cost_one_command_while_none_is_up(
    redis_server: RedisServer, client: aioredis.Redis
) -> None:
    link = RedisLink(redis_server.url, command_timeout_s=1, connect_timeout_s=1)
    notices = Notices(link)
    assert await notices.read(["a", "b"]) == {}
    before = (await client.info("stats"))["total_commands_processed"]
    assert await notices.read(["a", "b"]) == {}
    assert await notices.read([]) == {}
    after = (await client.info("stats"))["total_commands_processed"]
    assert after - before == 2  # ours, and the question itself
    await notices.post({"a": Notice(b"text", 30)})
    assert set(await notices.read(["a", "b"])) == {"a"}
    await link.aclose()


# --- two whole routers ----------------------------------------------------------------------------


@asynccontextmanager
async def pair(config: dict[str, Any], seen: list[Detail]) -> AsyncIterator[list[Router]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(running_router(config, observers=(seen.append,)))
            for _ in range(2)
        ]


async def stands(router: Router, target: str, standing: str) -> None:
    """Wait until one does: by looks at what other replicas say, which nobody else waits for."""
    sharing = router.serving.sharing
    assert sharing is not None
    async with asyncio.timeout(10):
        while router.serving.engine.health.summary(target)["standing"] != standing:
            await sharing.exchange()


async def test_a_router_does_not_ask_whom_another_has_found_dead(
    redis_server: RedisServer,
) -> None:
    text = seeded_text(3, 300)
    seen: list[Detail] = []
    async with (
        SimulatedProvider(script=Script(text=text)) as first,
        SimulatedProvider(script=Script(text=text)) as second,
        pair(
            routed(
                first,
                second,
                record={"url": redis_server.url},
                health={"eject_after": 1, "cool_down_s": 60, "max_cool_down_s": 60},
                route={"retry": {"same_target": 0}},
            ),
            seen,
        ) as (one, other),
    ):
        first.set_faults("status=500,times=1")
        check_contract(await ask(one.base_url))
        await stands(one, "p1/model-p1", "ejected")
        await stands(other, "p1/model-p1", "ejected")
        answer = await ask(other.base_url)
        check_contract(answer)
        assert answer.headers["x-router-target"] == "p2/model-p2"
        assert len(first.requests) == 1
        # It is well again there: so it is here.
        one.serving.engine.health.answering("p1/model-p1")
        await stands(other, "p1/model-p1", "well")
        answer = await ask(other.base_url)
        assert answer.headers["x-router-target"] == "p1/model-p1"
    assert [type(one) for one in seen if isinstance(one, (TargetEjected, TargetRestored))] == [
        TargetEjected,
        TargetRestored,
    ]


async def test_the_same_target_has_the_same_digest_in_every_configuration() -> None:
    def digests(provider: dict[str, Any], model: str = "m") -> dict[str, str]:
        config = {
            "providers": {"p": {"type": "vllm", "base_url": "http://a/v1", **provider}},
            "routes": {"r": {"targets": [{"provider": "p", "model": model}]}},
        }
        parsed = parse_config(yaml.safe_dump(config), "test.yaml", {})
        return dict(make_generation(parsed, LoopClock()).digests)

    base = digests({})
    assert digests({}) == base
    (digest,) = base.values()
    others = [
        digests({"base_url": "http://b/v1"}),
        digests({"api_key": "one"}),
        digests({"api_key": "two"}),
        digests({"headers": {"x-key": "one"}}),
        digests({"type": "sglang"}),
    ]
    assert len({digest, *(one["p/m"] for one in others), *digests({}, "n").values()}) == 7
