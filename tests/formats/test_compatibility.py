"""`docs/compatibility.md` is what is measured; nothing is lost in silence; and a whole router, in
front of providers that refuse what the vendors refuse, does what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx
import pytest
from formats.compatibility import (
    BLOCKS,
    PAGE,
    Outcome,
    body_of,
    measure,
    parse,
    renewed,
)
from formats.compatibility_chat import CHAT
from formats.compatibility_messages import MESSAGES
from formats.compatibility_rows import TARGETS, Row, Table, Target
from support.routers import running_router

from router.core.conversation import Loss
from router.core.request import Format
from router.providers.base import Provider
from router.simulate import Script, SimulatedProvider

PATHS: Final[Mapping[Format, str]] = {
    Format.OPENAI: "/chat/completions",
    Format.ANTHROPIC: "/messages",
}
ANSWER: Final = '{"city": "Ulm"}'
"""Right for every row: text where text is asked for, and a document where that is."""


def test_the_page_says_what_is_measured() -> None:
    page = PAGE.read_text("utf-8")
    assert page == renewed(page), "run `make compatibility`, and read the difference"


def outcomes(table: Table) -> Iterator[tuple[Row, Target, Outcome]]:
    for row in table.rows:
        for target in table.targets:
            yield row, target, measure(table.client, row, target.provider())


@pytest.mark.parametrize(
    "table",
    [table for tables in BLOCKS.values() for table in tables],
    ids=lambda table: f"{table.client}-{table.title}",
)
def test_nothing_is_lost_in_silence_and_losses_name_the_clients_fields(table: Table) -> None:
    for row, target, outcome in outcomes(table):
        assert outcome.word != "silent", (row.what, target)
        asked = {*body_of(table.client, row), *row.headers}
        for loss in outcome.losses:
            field = re.split(r"[.\[]", loss.param)[0]
            assert field in asked | _OTHER_NAMES.get(field, set()), (row.what, loss)


_OTHER_NAMES: Final[Mapping[str, set[str]]] = {
    # Named by what it is, where a client may say it in several ways.
    "reasoning_effort": {"reasoning_effort"},
    "thinking": {"thinking"},
    "user": {"user"},
    "max_tokens": {"max_tokens"},
}


def test_a_clients_own_format_is_passed_on_as_it_came() -> None:
    for table in (*CHAT, *MESSAGES):
        for row, target, outcome in outcomes(table):
            if target.provider().format is table.client:
                assert outcome.word in {"same", "router", "refused"}, row.what


# -- A whole router --------------------------------------------------------------------------------


def foreign(client: Format) -> list[Target]:
    return [target for target in TARGETS if target.provider().format is not client]


@pytest.mark.parametrize(
    ("client", "target"),
    [(client, target) for client in PATHS for target in foreign(client)],
    ids=lambda value: str(getattr(value, "family", value)),
)
async def test_a_whole_router_does_what_the_page_says(client: Format, target: Target) -> None:
    async with (
        SimulatedProvider(script=Script(text=ANSWER)) as upstream,
        running_router(_config(target, upstream.base_url)) as router,
        httpx.AsyncClient(base_url=router.base_url) as http,
    ):
        provider = target.provider(upstream.base_url)
        for table in CHAT if client is Format.OPENAI else MESSAGES:
            for row in table.rows:
                await _play(client, row, provider, upstream, http)


def _config(target: Target, base_url: str) -> dict[str, Any]:
    targets = [{"provider": "p", "model": target.model}]
    return {
        "providers": {"p": {"type": target.family, "base_url": base_url}},
        "routes": {mode: {"targets": targets, "unsupported": mode} for mode in ("refuse", "drop")},
        "health": {"eject_after": 1_000, "eject_rate": 1},
    }


async def _play(
    client: Format,
    row: Row,
    provider: Provider,
    upstream: SimulatedProvider,
    http: httpx.AsyncClient,
) -> None:
    outcome = measure(client, row, provider)
    before = len(upstream.requests)
    answer = await _ask(client, row, http, "refuse")
    if outcome.word in {"refused", "passed over"}:
        error = answer.json()["error"]
        assert answer.status_code == 400, row.what
        assert len(upstream.requests) == before
        if outcome.error is not None:
            assert error["param"] == outcome.error.param
            return
        demands = [loss.param for loss in outcome.losses if not loss.hint]
        assert (error["code"], error["param"]) == ("unsupported_parameter", demands[0])
        answer = await _ask(client, row, http, "drop")
    assert answer.status_code == 200, (row.what, answer.text)
    sent = json.loads(provider.build(parse(client, row), None).body)
    assert upstream.requests[-1].body == sent, row.what
    assert len(upstream.requests) == before + 1
    told = answer.headers.get("x-router-dropped", "")
    assert told == _names(provider.losses(parse(client, row))), row.what


async def _ask(client: Format, row: Row, http: httpx.AsyncClient, route: str) -> httpx.Response:
    body = body_of(client, row, route=route)
    return await http.post(PATHS[client], json=body, headers=dict(row.headers))


def _names(losses: tuple[Loss, ...]) -> str:
    return ", ".join(dict.fromkeys(loss.param for loss in losses))
