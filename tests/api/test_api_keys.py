"""Who may come in, and what is open to everyone."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from support.routers import Router, routed, running_router

from router.api.serving import Settings
from router.simulate import Script, SimulatedProvider

KEYS = ["key-one-1234", "key-two-5678"]
GOOD = {"authorization": f"Bearer {KEYS[1]}"}
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "Go."}]}


@pytest.fixture
async def provider() -> AsyncIterator[SimulatedProvider]:
    async with SimulatedProvider(script=Script(text="Hello.")) as one:
        yield one


@pytest.fixture
async def router(provider: SimulatedProvider) -> AsyncIterator[Router]:
    async with running_router(routed(provider, server={"api_keys": KEYS})) as it:
        yield it


@pytest.fixture
async def http(router: Router) -> AsyncIterator[httpx.AsyncClient]:
    root = router.base_url.removesuffix("/v1")
    async with httpx.AsyncClient(base_url=root, trust_env=False) as client:
        yield client


WRONG: list[dict[str, str]] = [
    {},
    {"authorization": "Bearer wrong"},
    {"authorization": f"Bearer {KEYS[0]}x"},
    {"authorization": f"Bearer {KEYS[0][:-1]}"},
    {"authorization": f"Basic {KEYS[0]}"},
    {"authorization": KEYS[0]},
    {"authorization": "Bearer"},
    {"authorization": ""},
    {"x-api-key": f"{KEYS[0]}x"},
    {"x-api-key": ""},
]


async def test_who_has_no_key_learns_nothing(
    http: httpx.AsyncClient, provider: SimulatedProvider
) -> None:
    for headers in WRONG:
        for method, path in (
            ("POST", "/v1/chat/completions"),
            ("GET", "/v1/chat/completions"),
            ("GET", "/v1/models"),
            ("GET", "/v1/models/chat"),
            ("GET", "/v1/whatever"),
            ("GET", "/v1"),
        ):
            answer = await http.request(method, path, headers=headers, json={"bad": "body"})
            assert answer.status_code == 401, (headers, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            error = answer.json()["error"]
            assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
            assert not any(key in answer.text for key in KEYS)
    assert provider.requests == []


async def test_a_key_opens_as_the_other_family_sends_it(http: httpx.AsyncClient) -> None:
    for headers in ({"x-api-key": KEYS[1]}, {"x-api-key": KEYS[1], "authorization": "Bearer x"}):
        answer = await http.post("/v1/chat/completions", headers=headers, json=CHAT)
        assert answer.json()["choices"][0]["message"]["content"] == "Hello."


async def test_every_key_opens(http: httpx.AsyncClient, provider: SimulatedProvider) -> None:
    for authorization in (f"Bearer {KEYS[0]}", f"Bearer {KEYS[1]}", f"bearer  {KEYS[0]} "):
        headers = {"authorization": authorization.strip()}
        answer = await http.post("/v1/chat/completions", headers=headers, json=CHAT)
        assert answer.json()["choices"][0]["message"]["content"] == "Hello."
    # The client's key is the router's business, and no provider's.
    assert all("authorization" not in one.headers for one in provider.requests)


async def test_health_and_readiness_are_open(http: httpx.AsyncClient, router: Router) -> None:
    for method in ("GET", "HEAD"):
        assert (await http.request(method, "/health")).status_code == 200
        assert (await http.request(method, "/ready")).status_code == 200
    ready = (await http.get("/ready")).json()
    assert ready["status"] == "ready"
    assert "queue_streams" in ready["record"]
    assert "chat" not in str(ready)  # no names: it is open to everyone
    router.serving.draining = True
    drained = await http.get("/ready")
    assert (drained.status_code, drained.json()["status"]) == (503, "draining")
    assert (await http.get("/health")).status_code == 200  # alive, though it takes nothing new


async def test_there_is_no_page_of_documentation(http: httpx.AsyncClient) -> None:
    for path in ("/docs", "/redoc", "/openapi.json"):
        for headers in ({}, GOOD):
            answer = await http.get(path, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_a_draining_router_refuses_new_requests(
    http: httpx.AsyncClient, router: Router, provider: SimulatedProvider
) -> None:
    router.serving.draining = True
    answer = await http.post("/v1/chat/completions", headers=GOOD, json=CHAT)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "x-should-retry" not in answer.headers  # another replica will answer
    assert answer.json()["error"]["code"] == "draining"
    assert provider.requests == []


async def test_models_through_openai(router: Router) -> None:
    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    async with openai.AsyncOpenAI(
        base_url=router.base_url, api_key=KEYS[0], http_client=http, max_retries=0
    ) as client:
        models = await client.models.list()
        assert [(one.id, one.object, one.owned_by) for one in models.data] == [
            ("chat", "model", "router")
        ]
        one = await client.models.retrieve("chat")
        assert one.id == "chat"
        assert one.created > 0
        with pytest.raises(openai.NotFoundError) as caught:
            await client.models.retrieve("vendor/absent")
        assert caught.value.code == "model_not_found"
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="wrong").models.list()


async def test_a_model_may_have_a_slash_in_its_name(provider: SimulatedProvider) -> None:
    config = routed(provider)
    config["routes"]["vendor/chat:v1"] = config["routes"].pop("chat")
    async with running_router(config) as it, httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{it.base_url}/models/vendor/chat:v1")
        quoted = await client.get(f"{it.base_url}/models/vendor%2Fchat%3Av1")
    assert answer.json()["id"] == quoted.json()["id"] == "vendor/chat:v1"


def test_every_key_is_compared_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time a comparison takes tells neither which key came close nor how close."""
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def spy(one: Any, other: Any) -> bool:  # noqa: ANN401 - as hmac's own
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    digests = tuple(hashlib.sha256(key.encode()).digest() for key in KEYS)
    settings = Settings(key_digests=digests)
    assert settings.owner_of(f"Bearer {KEYS[0]}") == digests[0].hex()
    assert settings.owner_of("Bearer k") is None
    assert settings.owner_of("Bearer " + "k" * 10_000) is None
    assert settings.owner_of(None) is None
    assert compared == [(32, 32)] * 8
    assert Settings().owner_of(None) == ""


async def test_a_key_that_is_taken_away_by_a_reload(
    router: Router, provider: SimulatedProvider, http: httpx.AsyncClient
) -> None:
    async with running_router(routed(provider, server={"api_keys": ["other-key"]})) as other:
        router.serving.replace(other.serving.generation)
        await asyncio.sleep(0)
        assert (await http.get("/v1/models", headers=GOOD)).status_code == 401
        new = {"authorization": "Bearer other-key"}
        assert (await http.get("/v1/models", headers=new)).status_code == 200
