"""What `docs/deploy` gives away works: the proxies' files in front of real routers, and every
manifest held against the program that it deploys.

The proxies are started with the very files of the documentation; only addresses and folders are
replaced. Envoy, Compose and Kubernetes cannot run here: of their files the facts are checked that
a stream depends on.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import yaml
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from support.caller import called, calling
from support.processes import WAIT_S, Served, served
from support.reading import Answer, check_contract
from support.redis_servers import BINARY, RedisServer, free_port
from support.routers import routed, running_router

from router.api.server import KEEP_ALIVE_S, LATE_S
from router.config import Config, load_config
from router.config.schema import Server
from router.simulate import (
    Ended,
    Pace,
    Script,
    SimulatedProvider,
    Turnstile,
    seeded_text,
    tokenize,
)

DEPLOY = Path(__file__).parent.parent / "docs" / "deploy"
TEXT = seeded_text("deploy", 700)
SECRETS = {
    "ROUTER_API_KEY": "sk-router-0123456789",
    "ROUTER_ADMIN_KEY": "sk-admin-0123456789",
    "OPENAI_API_KEY": "sk-openai-0123456789",
    "REDIS_URL": "redis://redis:6379/0",
}

needs_redis = pytest.mark.skipif(BINARY is None, reason="there is no redis-server")


# --- the proxies, running -------------------------------------------------------------------------


@dataclass(frozen=True)
class Proxy:
    """A proxy and its file.

    Args:
        binary: what it is called.
        file: in `docs/deploy`.
        listens: how the file says where it listens, and how the test's own says it.
        command: starts it in the foreground, with a file.
        try_it: option that only reads the file.
    """

    binary: str
    file: str
    listens: tuple[str, str]
    try_it: str
    command: Callable[[str, Path], list[str]]


PROXIES = {
    "nginx": Proxy(
        "nginx",
        "nginx.conf",
        ("listen 8000;", "listen 127.0.0.1:{port};"),
        "-t",
        lambda binary, file: [binary, "-p", str(file.parent), "-c", str(file), "-g", "daemon off;"],
    ),
    "haproxy": Proxy(
        "haproxy",
        "haproxy.cfg",
        ("bind :8000", "bind 127.0.0.1:{port}"),
        "-c",
        lambda binary, file: [binary, "-db", "-f", str(file)],
    ),
}


def binary_of(proxy: Proxy) -> str | None:
    """Where it is, or None."""
    # Debian has both in /usr/sbin, which not everybody's PATH knows.
    return shutil.which(proxy.binary) or shutil.which(proxy.binary, path="/usr/sbin:/sbin")


def moved(text: str, proxy: Proxy, port: int, routers: list[int], folder: Path) -> str:
    """The documentation's file with other addresses, and with a folder of the test's own."""
    there, here = proxy.listens
    changes = {there: here.format(port=port)}
    changes |= {f"router-{at}:8080": f"127.0.0.1:{where}" for at, where in enumerate(routers, 1)}
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text.replace(" /tmp/", f" {folder}/")


@pytest.mark.parametrize("kind", PROXIES)
def test_a_proxy_takes_its_file(kind: str, tmp_path: Path) -> None:
    proxy = PROXIES[kind]
    binary = binary_of(proxy)
    if binary is None:
        pytest.skip(f"there is no {proxy.binary} here, so its file is not tried")
    text = (DEPLOY / proxy.file).read_text()
    file = tmp_path / proxy.file
    file.write_text(moved(text, proxy, free_port(), [free_port(), free_port()], tmp_path))
    done = subprocess.run(
        [*proxy.command(binary, file), proxy.try_it], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not re.search(r"warn|deprecated", done.stderr, re.IGNORECASE)


@asynccontextmanager
async def proxied(
    proxy: Proxy, binary: str, folder: Path, routers: list[int]
) -> AsyncIterator[str]:
    """The proxy in front of routers on these ports; gives its base URL."""
    port = free_port()
    file = folder / proxy.file
    file.write_text(moved((DEPLOY / proxy.file).read_text(), proxy, port, routers, folder))
    with (folder / "proxy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *proxy.command(binary, file), stdout=log, stderr=log
        )
    try:
        await listening(process, port, folder / "proxy.log")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            await process.wait()


async def listening(process: asyncio.subprocess.Process, port: int, log: Path) -> None:
    """Wait until somebody listens there."""
    async with asyncio.timeout(WAIT_S):
        while process.returncode is None:
            with contextlib.suppress(ConnectionRefusedError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.02)  # it does not say when it is ready
    raise RuntimeError(log.read_text())  # noqa: ASYNC240 - a few lines, and the test is over


@asynccontextmanager
async def one_redis(folder: Path) -> AsyncIterator[RedisServer]:
    record = RedisServer(folder, free_port())
    record.start()
    try:
        yield record
    finally:
        record.kill()


def written(
    folder: Path, provider: SimulatedProvider, quick: SimulatedProvider, record: RedisServer
) -> Path:
    """The routers' file: a route whose answers a gate may hold, and one whose answers flow. The
    time to drain is so short that what is held must come back for the rest."""
    file = folder / "router.yaml"
    patient = {"timeouts": {"idle_s": 60}}  # to be held is no fault
    config = routed(provider, route=patient, server={"drain_s": 0.2}, record={"url": record.url})
    config["providers"]["quick"] = {"type": "vllm", "base_url": quick.base_url}
    config["routes"]["quick"] = {"targets": [{"provider": "quick", "model": "m"}]}
    file.write_text(yaml.safe_dump(config))
    return file


@needs_redis
async def test_streams_through_proxies(tmp_path: Path) -> None:
    """Through all that are here at once: a router takes seconds to start."""
    here = {one: binary for one in PROXIES.values() if (binary := binary_of(one))}
    if not here:
        pytest.skip("there is neither nginx nor HAProxy here")
    gate = Turnstile(1)
    async with AsyncExitStack() as stack:
        record = await stack.enter_async_context(one_redis(tmp_path))
        provider, quick = [
            await stack.enter_async_context(one)
            for one in (
                SimulatedProvider(script=Script(text=TEXT), gate=gate),
                SimulatedProvider(script=Script(text=TEXT), pace=Pace(tokens_per_s=600)),
            )
        ]
        file = written(tmp_path, provider, quick, record)
        ports = [free_port(), free_port()]
        routers = [Replica(file, port) for port in ports]
        await asyncio.gather(*(one.start(stack) for one in routers))
        urls = [
            await stack.enter_async_context(proxied(proxy, binary, tmp_path, ports))
            for proxy, binary in here.items()
        ]
        for url in urls:
            await tokens_pass_one_by_one(url, provider, gate)
            await who_leaves_is_let_go_upstream(url, provider, gate)
            await nothing_but_the_api_is_there(url)
        await a_rolling_restart_loses_nothing(urls, routers, provider, gate, stack)


async def tokens_pass_one_by_one(url: str, provider: SimulatedProvider, gate: Turnstile) -> None:
    """The client has each token while the provider still holds the next one."""
    tokens = tokenize(TEXT)
    gate.move(1)
    async with calling(url) as call:
        for sent in range(1, 6):
            await gate.held()
            text = "".join(tokens[:sent])
            async with asyncio.timeout(WAIT_S):
                while call.so_far().delivered != text:
                    assert await call.read(), call.so_far()
            assert provider.requests[-1].tokens_sent == sent
            gate.move(sent + 1)


async def who_leaves_is_let_go_upstream(
    url: str, provider: SimulatedProvider, gate: Turnstile
) -> None:
    """Noticed while nothing is sent: no write is needed to find out."""
    number = len(provider.requests)
    gate.move(3)
    async with calling(url) as call:
        await gate.held()
        async with asyncio.timeout(WAIT_S):
            while not call.so_far().delivered:
                await call.read()
    assert (await provider.wait_ended(number)).ended is Ended.CLIENT_CLOSED


async def nothing_but_the_api_is_there(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{url}/models")).status_code == 200
        for path in ("/metrics", "/router/requests", "/health", "/ready", "/"):
            assert (await client.get(url.removesuffix("/v1") + path)).status_code == 404


# --- a rolling restart ----------------------------------------------------------------------------


class Replica:
    """A `router serve` on a port of its own, which may be started again.

    Args:
        file: its configuration.
        port: where it listens.
    """

    def __init__(self, file: Path, port: int) -> None:
        self._file = file
        self._port = port
        self.now: Served

    async def start(self, stack: AsyncExitStack) -> None:
        """Start it, and wait until it takes requests."""
        process = served(self._file, "--port", str(self._port))
        self.now = await stack.enter_async_context(process)
        await self.now.base_url()

    async def restart(self, stack: AsyncExitStack) -> None:
        """Stop it as a platform does; wait until the new one has answered somebody to the end."""
        self.now.process.send_signal(signal.SIGTERM)
        assert await self.now.ended() == 0
        await self.start(stack)
        await self.now.said("stream ended")


@dataclass
class Client:
    """Asks for one answer after the other, and comes back for one that broke off.

    Args:
        url: of the proxy.
        model: the route.
    """

    url: str
    model: str = "chat"
    whole: int = 0
    resumed: int = 0

    async def run(self, enough: asyncio.Event) -> None:
        """Go on until it is enough."""
        while not enough.is_set():
            await self.one()

    async def one(self) -> None:
        """One answer, however many routers it takes."""
        text, headers = "", dict[str, str]()
        while True:
            answer, call = await called(self.url, model=self.model, headers=headers)
            assert answer.status == 200, answer.raw
            text += answer.delivered
            if answer.done:
                self.check(answer, text, resumed=bool(headers))
                return
            assert call.whole or not answer.error  # an error in band is followed by a clean end
            self.resumed += 1
            headers = {
                "X-Router-Resume": answer.headers["x-router-stream-id"],
                "X-Router-Received": str(len(text)),
            }

    def check(self, answer: Answer, text: str, *, resumed: bool) -> None:
        """The answer is the one that would have come without any restart."""
        check_contract(answer)
        metadata = answer.metadata or {}
        assert resumed == ("resumed_from" in metadata)
        for start, end in reversed(metadata.get("superseded", [])):
            text = text[:start] + text[end:]
        assert text == TEXT
        self.whole += 1


HELD_AT = 50
"""Token before which a stream is held, and again so many tokens after it was resumed."""


async def a_rolling_restart_loses_nothing(
    urls: list[str],
    routers: list[Replica],
    provider: SimulatedProvider,
    gate: Turnstile,
    stack: AsyncExitStack,
) -> None:
    """Streams that are held in the middle outlive both routers, while others come and go."""
    gate.move(HELD_AT)
    started = len(provider.requests)
    held = [Client(url) for url in urls for _ in range(3)]
    others = [Client(url, "quick") for url in urls]
    enough = asyncio.Event()

    def all_held() -> bool:
        new = provider.requests[started:]
        running = [one for one in new if one.ended is None and one.tokens_sent >= HELD_AT]
        return len(running) == len(held)

    async with asyncio.TaskGroup() as group:
        for client in held:
            group.create_task(client.one())
        for client in others:
            group.create_task(client.run(enough))
        try:
            for router in routers:
                await provider.until(all_held, what="streams that are held")
                await router.restart(stack)
            await provider.until(all_held, what="streams that are held")
            gate.open()
        finally:
            enough.set()
    assert [client.whole for client in held] == [1] * len(held)
    assert all(client.whole for client in others)
    # Each began at one of them, and was driven out of that one, or out of both.
    assert {client.resumed for client in held} <= {1, 2}
    assert sum(client.resumed for client in held) > len(held)


# --- the files, read ------------------------------------------------------------------------------


def config_of(file: str) -> Config:
    return load_config(DEPLOY / file, SECRETS)


CONFIGS = ["router.yaml", "kubernetes/router-config.yaml"]


@pytest.mark.parametrize("file", CONFIGS)
def test_a_configuration_is_taken(file: str) -> None:
    config = config_of(file)
    assert config.record.url is not None
    assert config.server.api_keys
    assert config.server.admin_keys  # /metrics is not every client's
    assert str(config.server.host) == "0.0.0.0"


def stop_s(file: str) -> float:
    """How long a router may take to stop: draining, the last errors, the last commits."""
    return config_of(file).server.drain_s + 2 * LATE_S


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def test_compose_runs_what_is_there() -> None:
    services = compose()["services"]
    assert set(services) == {"router-1", "router-2", "redis", "nginx"}
    for name in ("router-1", "router-2"):
        one = services[name]
        assert (DEPLOY / one["build"] / "Dockerfile").is_file()
        assert seconds(one["stop_grace_period"]) > stop_s("router.yaml")
        assert one["volumes"] == ["./router.yaml:/etc/router/router.yaml:ro"]
        wanted = set(re.findall(r"\$\{(\w+)", (DEPLOY / "router.yaml").read_text()))
        assert set(one["environment"]) == wanted
        assert one["environment"]["REDIS_URL"].startswith("redis://redis:")
    assert services["nginx"]["volumes"] == ["./nginx.conf:/etc/nginx/nginx.conf:ro"]
    assert all(one["cap_drop"] == ["ALL"] and one["read_only"] for one in services.values())


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    """Every object that kustomization.yaml names, by kind and name."""
    folder = DEPLOY / "kubernetes"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())
    rest = {one.name for one in folder.iterdir()} - {"kustomization.yaml", "router-config.yaml"}
    assert rest == set(listed["resources"])
    (generated,) = listed["configMapGenerator"]
    assert generated["files"] == ["router.yaml=router-config.yaml"]
    docs = (one for name in rest for one in yaml.safe_load_all((folder / name).read_text()))
    found = {(one["kind"], one["metadata"]["name"]): one for one in docs}
    assert all(one["apiVersion"] for one in found.values())
    return {**found, ("ConfigMap", generated["name"]): generated}


def pod_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = manifests()["Deployment", name]["spec"]["template"]["spec"]
    return found


def test_kubernetes_asks_the_router_what_it_answers() -> None:
    pod = pod_of("router")
    (container,) = pod["containers"]
    (port,) = container["ports"]
    asked = {
        one: container[f"{one}Probe"]["httpGet"] for one in ("startup", "readiness", "liveness")
    }
    # Only readiness may be lost while it drains: a liveness that is would kill its streams.
    assert {one: get["path"] for one, get in asked.items()} == {
        "startup": "/health",
        "readiness": "/ready",
        "liveness": "/health",
    }
    assert {get["port"] for get in asked.values()} == {port["name"]}
    assert port["containerPort"] == config_of("kubernetes/router-config.yaml").server.port
    assert container["args"][-1] == str(port["containerPort"])


def test_kubernetes_gives_the_router_time_to_stop() -> None:
    pod = pod_of("router")
    before = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert before[0] == "sleep"
    needed_s = float(before[1]) + stop_s("kubernetes/router-config.yaml")
    assert pod["terminationGracePeriodSeconds"] > needed_s
    strategy = manifests()["Deployment", "router"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxUnavailable": 0, "maxSurge": 1}


@pytest.mark.parametrize("name", ["router", "redis"])
def test_kubernetes_runs_it_without_rights(name: str) -> None:
    pod = pod_of(name)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_kubernetes_runs_it_as_the_image_does() -> None:
    image = (DEPLOY.parent.parent / "Dockerfile").read_text()
    user = re.search(r"--uid (\d+)", image)
    assert user is not None
    assert pod_of("router")["securityContext"]["runAsUser"] == int(user[1])


def test_kubernetes_names_agree() -> None:
    found = manifests()
    pod = pod_of("router")
    assert ("ConfigMap", pod["volumes"][0]["configMap"]["name"]) in found
    text = (DEPLOY / "kubernetes/router-config.yaml").read_text()
    secret = pod["containers"][0]["envFrom"][0]["secretRef"]["name"]
    told = (DEPLOY / "kubernetes/kustomization.yaml").read_text()
    assert f"secret generic {secret} " in told
    assert set(re.findall(r"--from-literal=(\w+)", told)) == set(re.findall(r"\$\{(\w+)", text))
    for kind, name in (("Service", "router"), ("Service", "redis")):
        selected = found[kind, name]["spec"]["selector"]
        labels = found["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        assert selected.items() <= labels.items()
    (rule,) = found["HTTPRoute", "router"]["spec"]["rules"]
    assert ("Service", rule["backendRefs"][0]["name"]) in found
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}]
    assert rule["timeouts"]["request"] == "0s"


@needs_redis
def test_redis_takes_its_options(tmp_path: Path) -> None:
    commands = [compose()["services"]["redis"]["command"], pod_of("redis")["containers"][0]["args"]]
    assert commands[0] == commands[1]
    assert commands[0][0] == "redis-server"
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path)]
    with subprocess.Popen([str(BINARY), *commands[0][1:], *options]) as server:
        try:
            assert asked_of_redis(port) == {
                "save": "",
                "appendonly": "no",
                "maxmemory": str(512 * 1024 * 1024),
                "maxmemory-policy": "noeviction",
            }
        finally:
            server.terminate()


def asked_of_redis(port: int) -> dict[str, str]:
    """What it was told, in its own words."""
    retry = Retry(ConstantBackoff(0.05), retries=400)  # it does not say when it is ready
    with redis.Redis(port=port, retry=retry, decode_responses=True) as client:
        client.ping()
        found: dict[str, str] = client.config_get("save", "appendonly", "maxmemory*")
    return {name: value for name, value in found.items() if name in OPTIONS}


OPTIONS = {"save", "appendonly", "maxmemory", "maxmemory-policy"}


# --- the limits of time, wherever they stand ------------------------------------------------------


def total_s() -> float:
    """The longest request of any configuration that is given away."""
    routes = (route for file in CONFIGS for route in config_of(file).routes.values())
    return max(route.timeouts.total_s for route in routes)


def seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)s", text)
    assert found is not None, text
    return float(found[1])


def envoy() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "envoy.yaml").read_text())["static_resources"]
    return found


def directives(file: str) -> Mapping[str, str]:
    """Last value of each directive of a file in nginx's or HAProxy's language."""
    lines = (
        line.partition("#")[0].strip(" ;") for line in (DEPLOY / file).read_text().splitlines()
    )
    pairs = (re.fullmatch(r"((?:timeout )?\S+)\s+(.*)", line) for line in lines)
    return {pair[1]: pair[2] for pair in pairs if pair}


def waits() -> Iterator[tuple[str, float]]:
    """How long each proxy lets a stream be silent."""
    nginx, haproxy = directives("nginx.conf"), directives("haproxy.cfg")
    yield "nginx", seconds(nginx["proxy_read_timeout"])
    yield "nginx, a slow reader", seconds(nginx["send_timeout"])
    yield "haproxy", seconds(haproxy["timeout server"])
    yield "haproxy, a slow reader", seconds(haproxy["timeout client"])
    yield "envoy", seconds(manager()["stream_idle_timeout"])


def manager() -> dict[str, Any]:
    (listener,) = envoy()["listeners"]
    found: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return found


def test_a_proxy_waits_longer_than_the_router() -> None:
    assert {name for name, wait_s in waits() if wait_s <= total_s()} == set()


def test_a_proxy_closes_an_idle_connection_first() -> None:
    (cluster,) = envoy()["clusters"]
    (options,) = cluster["typed_extension_protocol_options"].values()
    nginx = (DEPLOY / "nginx.conf").read_text()
    upstream = re.search(r"upstream .*?keepalive_timeout (\d+s)", nginx, re.DOTALL)
    assert upstream is not None
    assert seconds(upstream[1]) < KEEP_ALIVE_S
    assert seconds(directives("haproxy.cfg")["timeout http-keep-alive"]) < KEEP_ALIVE_S
    assert seconds(options["common_http_protocol_options"]["idle_timeout"]) < KEEP_ALIVE_S


def test_nginx_lets_in_what_the_router_lets_in() -> None:
    assert directives("nginx.conf")["client_max_body_size"] == "10m"
    assert Server().max_body_bytes == 10 * 1024 * 1024


def test_envoy_leaves_streams_alone() -> None:
    (cluster,) = envoy()["clusters"]
    api, rest = manager()["route_config"]["virtual_hosts"][0]["routes"]
    assert api["match"] == {"prefix": "/v1/"}
    assert api["route"]["cluster"] == cluster["name"]
    assert api["route"]["timeout"] == "0s"
    assert not re.search(r"5xx|gateway-error|retriable", api["route"]["retry_policy"]["retry_on"])
    assert rest["direct_response"] == {"status": 404}
    assert [one["name"] for one in manager()["http_filters"]] == ["envoy.filters.http.router"]
    assert cluster["health_checks"][0]["http_health_check"]["path"] == "/ready"


# --- what to be woken for -------------------------------------------------------------------------


@needs_redis
async def test_the_alarms_ask_for_what_is_there(tmp_path: Path) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus-rules.yaml").read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert len(asked) > 5
    async with AsyncExitStack() as stack:
        record = await stack.enter_async_context(one_redis(tmp_path))
        providers = [SimulatedProvider(script=Script(text=TEXT)) for _ in range(2)]
        one, two = [await stack.enter_async_context(provider) for provider in providers]
        one.set_faults("cut@40")
        config = routed(one, two, record={"url": record.url})
        router = await stack.enter_async_context(running_router(config))
        await called(router.base_url)
        await called(router.base_url, model="none")
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        answer = await client.get(router.base_url.removesuffix("/v1") + "/metrics")
    series = set(re.findall(r"^(\w+)(?:\{|\s)", answer.text, re.MULTILINE))
    events = set(re.findall(r'event="(\w+)"', answer.text))
    for expr in asked:
        assert set(re.findall(r"\brouter_\w+", expr)) <= series
        for words in re.findall(r'event=~?"([^"]+)"', expr):
            assert set(words.split("|")) <= events
