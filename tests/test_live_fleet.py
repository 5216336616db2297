"""Whole routers under live streams while their Redis changes hands: Sentinels put a replica in the
place of a killed master; a Cluster moves the slots of live streams to a node that then dies.

Meanwhile providers die, so that a part of the streams fails over once or twice in the outage. No
stream notices; who was cut off comes back to the rest of the same answer, or is told that there is
none; the routers tell of it, and of nothing secret. With `SEAM_FULL=1` a hundred streams, and more
that are cut off.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.continuity import FULL
from support.live_house import (
    ADMIN_KEY,
    API_KEY,
    HELD,
    MINE,
    PROVIDER_KEY,
    ROUTES,
    House,
    house,
)
from support.outages import PASSWORD, SENTINEL_PASSWORD, MasterDies, NodeDies, Outage
from support.reading import Answer, ask, check_contract
from support.redis_servers import BINARY
from support.resuming import Comer, always, to_the_end

from router.simulate import seeded_text, tokenize

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(BINARY is None, reason="no redis-server binary on this machine"),
]

TEXT = seeded_text(43, 2_000)
assert len(tokenize(TEXT)) > (len(ROUTES) + 1) * HELD, "a stream could end before its time"

STAYING = 100 if FULL else 20
LEAVING = 10 if FULL else 3
"""Of each kind of those that are cut off."""
TOKENS_PER_S = 20 if FULL else 60
SPREAD_S = 4.0 if FULL else 0.8
"""Over how long the streams begin, so that no two are at the same place."""

PROMPT = "A word that nobody else uses: quixotry."
SEAL = "c2VhbS1yb3V0ZXItdGVzdHMtc2VhbC0zMi1ieXRlcyE="
SECRETS = (PROMPT, API_KEY, ADMIN_KEY, PROVIDER_KEY, SEAL, PASSWORD, SENTINEL_PASSWORD)
PIECES = tuple(TEXT[at : at + 20] for at in range(0, len(TEXT) - 20, 10))

Tally = Counter[str]


# -- clients ---------------------------------------------------------------------------------------


def begun(it: House, count: int, routes: Sequence[str], begin: Callable[[str, str], Any]) -> Any:  # noqa: ANN401 - tasks of whatever it gives
    """Streams that begin one after another, in turn at either router and on each route.

    Args:
        it: where.
        count: how many.
        routes: theirs.
        begin: given a route and a router.
    """

    async def later(number: int, route: str) -> Any:  # noqa: ANN401 - as above
        await asyncio.sleep(number * SPREAD_S / count)
        return await begin(route, it.urls[number // len(routes) % 2])

    tasks = []
    for number, route in zip(range(count), itertools.cycle(routes), strict=False):
        it.came(route)
        tasks.append(asyncio.create_task(later(number, route)))
    it.clients += tasks
    return tasks


def staying(it: House) -> list[asyncio.Task[Answer]]:
    """Clients that stay to the end."""
    return begun(  # type: ignore[no-any-return] # its own word
        it,
        STAYING,
        tuple(ROUTES),
        lambda route, url: ask(url, model=route, content=PROMPT, headers=MINE),
    )


class Leavers:
    """Clients that are cut off, all at one moment, and come back elsewhere.

    Args:
        it: where.
        routes: theirs; of those that are gone when a provider dies none may have it.
    """

    def __init__(self, it: House, *routes: str) -> None:
        self._it = it
        self._routes: list[str] = []
        self.comers: list[Comer] = []
        self._lost: list[str] = []
        self._tasks: list[asyncio.Task[str]] = begun(it, LEAVING, routes, self._begin)

    async def _begin(self, route: str, url: str) -> str:
        comer = Comer(headers=MINE, model=route, messages=[{"role": "user", "content": PROMPT}])
        self._routes.append(route)
        self._lost.append(url)
        self.comers.append(comer)
        return await comer.listen(url)

    async def leave(self) -> None:
        """Their connections break."""
        for route, task in zip(self._routes, self._tasks, strict=True):
            assert not task.done()
            task.cancel()
            self._it.left(route)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert all(comer.text for comer in self.comers)

    async def come_back(self) -> Tally:
        """Each to the router that it did not have, until there is an end.

        Returns:
            How they ended. Every answer is that of an uncut stream, or honestly refused, and
            nothing else was ever shown.
        """
        places = [next(url for url in self._it.urls if url != lost) for lost in self._lost]
        how = await asyncio.gather(
            *(
                to_the_end(comer, always(place))
                for comer, place in zip(self.comers, places, strict=True)
            )
        )
        for comer, end in zip(self.comers, how, strict=True):
            assert TEXT.startswith(comer.shown)
            assert len(comer.ids) == 1
            assert (end, comer.finish) in {("finished", "stop"), ("resume_unknown", "")}
            if end == "finished":
                assert comer.canonical == comer.shown == TEXT
        return Counter(how)


ALL_BACK = Counter(finished=LEAVING)


# -- verdicts --------------------------------------------------------------------------------------


def check_unnoticed(answers: Iterable[Answer]) -> Tally:
    """Every answer is that of an uncut stream, however often its providers died."""
    seen: Tally = Counter()
    for answer, route in zip(answers, itertools.cycle(ROUTES), strict=False):
        check_contract(answer)
        assert answer.canonical == TEXT
        assert answer.finish_reasons == ["stop"]
        changes = (answer.metadata or {}).get("failovers", [])
        assert [one["fault"] for one in changes] == ["cut"] * (len(ROUTES[route]) - 1)
        seen[route] += 1
    return seen


async def check_discreet(it: House, *clients: Leavers) -> None:
    """Nothing secret is told, wherever one asks; nor a word of an answer, but to its client."""
    told = [one.raw_log for one in it.replicas]
    for path in ("/ready", "/metrics", "/router/requests?limit=1000", "/router/targets"):
        told += await it.get(path)
    told += [str(error) for group in clients for comer in group.comers for error in comer.errors]
    for text in told:
        for secret in (*SECRETS, *PIECES):
            assert secret not in text


async def check_told(it: House, *, finished: int) -> Tally:
    """The routers' owner hears of the outage, of its end, and of every stream.

    Args:
        it: the routers, at rest.
        finished: how many clients have got a finish.

    Returns:
        What has befallen the record, at both together.
    """
    seen: Tally = Counter()
    completed = 0.0
    told = zip(it.replicas, await it.records(), await it.metrics(), strict=True)
    for replica, record, metrics in told:
        record.pop("advice")
        for name in ("queue_streams", "queue_bytes", "circuit_open", "records_behind"):
            assert record[name] == metrics[f"router_record_{name}"] == 0
        counts = {name: count for name, count in record.items() if count}
        for name, count in counts.items():
            assert metrics[f'router_record_events_total{{event="{name}"}}'] == count
        assert not counts.keys() & {"foreign", "commits_refused", "forgotten"}
        assert counts["failures"] + counts.get("deferred", 0) > 0
        assert counts["reconnects"] > 0
        completed += sum(
            number
            for name, number in metrics.items()
            if name.startswith("router_requests_total{") and 'outcome="completed"' in name
        )
        seen += Counter(counts)
        lines = [one["message"] for one in replica.log if one["logger"] == "router.store"]
        for words in ("not written for now", "the store answers again"):
            assert any(f"record: {words}" in line or words in line for line in lines)
    assert completed == finished
    return seen


# -- the story -------------------------------------------------------------------------------------


async def live_through(
    it: House, outage: Outage, part: Callable[[], Awaitable[None]] | None = None
) -> Tally:
    """Everything at once, step by step.

    Args:
        it: the routers.
        outage: of their Redis.
        part: before the outage replicas stop to learn of what their masters do.

    Returns:
        What has befallen the record.
    """
    clients = staying(it)
    groups = {
        "before": Leavers(it, "steady"),
        "within": Leavers(it, "steady", "once"),
        "seeking": Leavers(it, "steady", "once"),
        "after": Leavers(it, *ROUTES),
    }
    expected = dict.fromkeys(groups, ALL_BACK)
    await it.flowing()
    await groups["before"].leave()
    await it.until(lambda record: record["queue_streams"] == 0)
    await outage.replicated()
    if part is not None:
        await part()
        lost = groups["lost"] = Leavers(it, "steady")
        await it.flowing()
        await lost.leave()
        await it.until(lambda record: record["queue_streams"] == 0)
        expected["lost"] = Counter(resume_unknown=LEAVING)

    await outage.strike()
    late = groups["late"] = Leavers(it, "steady")
    expected["late"] = ALL_BACK
    await it.dies(0)
    await groups["within"].leave()
    await groups["seeking"].leave()
    await outage.worsen()
    await it.dies(1)
    await it.until(lambda record: record["queue_streams"] > 0)
    seeking = asyncio.create_task(groups["seeking"].come_back())
    await late.leave()
    await check_discreet(it, *groups.values())
    assert not any(client.done() for client in clients)
    await outage.mend()
    back = {"late": asyncio.create_task(late.come_back()), "seeking": seeking}
    await it.until(lambda record: record["reconnects"] > 0)
    await groups["after"].leave()
    assert not any(client.done() for client in clients)

    it.go_on()
    seen = check_unnoticed(await asyncio.gather(*clients))
    for name in groups.keys() - back.keys():
        back[name] = asyncio.create_task(groups[name].come_back())
    ends = dict(zip(back, await asyncio.gather(*back.values()), strict=True))
    print(f"\nstayed: {dict(seen)}; came back: {ends}")
    assert ends == expected
    await it.until(lambda record: record["queue_streams"] == record["circuit_open"] == 0)
    befell = await check_told(it, finished=STAYING + sum(one["finished"] for one in ends.values()))
    print(f"record: {dict(befell)}")
    await check_discreet(it, *groups.values())
    assert await outage.kept() == set()
    return befell


@pytest.mark.parametrize("how", ["killed", "hung", "lagging"])
async def test_a_master_dies_and_no_stream_notices(tmp_path: Path, how: str) -> None:
    """Lagging: it is killed, and its replica was cut off from it a while before."""
    outage = MasterDies(tmp_path / "redis", hangs=how == "hung")
    try:
        await outage.begin()
        record = {"url": outage.url}
        async with house(tmp_path, text=TEXT, tokens_per_s=TOKENS_PER_S, record=record) as it:
            lagging = how == "lagging"
            befell = await live_through(it, outage, outage.part if lagging else None)
            if lagging:
                assert 0 < befell["recovered"] <= befell["stale"]
    finally:
        outage.kill()


async def test_slots_move_and_their_node_dies_and_no_stream_notices(tmp_path: Path) -> None:
    """What Redis holds is encrypted, which must be put back from its first frame on."""
    outage = NodeDies(tmp_path / "redis")
    try:
        await outage.begin()
        record = {"url": outage.url, "encryption_key": SEAL}
        async with house(tmp_path, text=TEXT, tokens_per_s=TOKENS_PER_S, record=record) as it:
            befell = await live_through(it, outage)
            assert outage.moved > 0
            assert befell["deferred"] > 0
            print(f"slots of {outage.moved} streams moved")
    finally:
        outage.kill()
