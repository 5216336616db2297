"""The composition root: a configuration becomes objects, objects become a server.

Nothing is global: whoever wants a router makes one with `build`, and may pass its own clock,
observers and randomness.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import os
import random
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from router.api.app import App
from router.api.endpoint import STALL_GRACE_S
from router.api.server import LATE_S, Lifespan, Server, listen
from router.api.serving import Generation, Serving, Settings
from router.api.workers import PARENT_VARIABLE, Workers
from router.books import Books
from router.config import Config, load_config
from router.config.checks import load_check
from router.config.schema import Provider as ProviderConfig
from router.config.schema import Route as RouteConfig
from router.config.schema import Target as TargetConfig
from router.core.boundary import make_boundary
from router.core.limits import Allowance
from router.engine.check import BoundaryCheck, OnReject
from router.engine.choice import Retention
from router.engine.clock import Clock, LoopClock
from router.engine.engine import Engine
from router.engine.health import Health, HealthPolicy
from router.engine.observe import Detail, Observer, Observers
from router.engine.options import OnInterrupt
from router.engine.route import Route, Stall, Target
from router.engine.shared_health import SharedHealth
from router.engine.upstream import Upstream, make_tls
from router.errors import ConfigError
from router.logs import LogObserver, set_up_logging
from router.metrics import Metrics
from router.providers.make import make_provider
from router.providers.resolve import overrides_in, rules_in
from router.store import make_limiter, make_shared, make_store
from router.store.ledger import MemoryLedger
from router.store.notices import Notices
from router.store.options import RedisOptions
from router.store.weather import Weather

_log = logging.getLogger("router")

STOP_SPARE_S = 5.0
"""How much longer than they should take to stop, workers are given before they are killed."""


def build(
    config: Config,
    *,
    clock: Clock | None = None,
    observers: Sequence[Observer] = (),
    random_number: Callable[[], float] = random.random,
    labels: Mapping[str, str] | None = None,
) -> Serving:
    """Make a router. Must be called inside a running event loop.

    Args:
        config: the configuration.
        clock: where time comes from; the loop's by default.
        observers: told everything.
        random_number: numbers in [0, 1), for jitter.
        labels: stand on every metric.

    Returns:
        What `App` serves, not started yet.
    """
    clock = clock or LoopClock()
    url = _redis(config)
    replica = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
    metrics = Metrics(labels)
    weather = Weather()
    books, notices = _books(config, metrics, replica, weather)

    def tell_others(detail: Detail) -> None:
        if serving.sharing is not None:
            serving.sharing(detail)

    tell = Observers((books, metrics, tell_others, *observers), on_error=_observer_failed)
    policy = HealthPolicy(
        eject_after=config.health.eject_after,
        eject_rate=config.health.eject_rate,
        cool_down_s=config.health.cool_down_s,
        max_cool_down_s=config.health.max_cool_down_s,
    )
    engine = Engine(
        store=make_store(
            url,
            # A record must outlive the longest silence between two commits of a live stream.
            ttl_s=config.record.resume_window_s
            + max(route.timeouts.total_s for route in config.routes.values()),
            clock=clock.now_s,
            options=_redis_options(config),
            keys=config.record.keys,
            retains=config.record.retain == "text",
            weather=weather,
        ),
        health=Health(policy, clock, tell),
        clock=clock,
        tell=tell,
        retention=Retention(
            completed_s=config.record.retain_s,
            interrupted_s=config.record.resume_window_s,
            nothing=config.record.retain == "none",
        ),
        random=random_number,
    )
    serving = Serving(engine, make_generation(config, clock), books=books, metrics=metrics)
    limits = config.server.limits
    serving.limiter = make_limiter(
        url,
        Allowance(
            concurrent_streams=limits.concurrent_streams,
            requests_per_minute=limits.requests_per_minute,
            tokens_per_minute=limits.tokens_per_minute,
        ),
        lease_s=max(route.timeouts.total_s for route in config.routes.values()) + STALL_GRACE_S,
        clock=clock.now_s,
        options=_redis_options(config),
    )
    if notices is not None:
        serving.sharing = SharedHealth(
            notices,
            health=engine.health,
            digests=lambda: serving.generation.digests,
            replica=replica,
            clock=clock,
            random=random_number,
        )
    return serving


def _redis(config: Config) -> str | None:
    return config.record.url.get_secret_value() if config.record.url else None


def _redis_options(config: Config) -> RedisOptions:
    record = config.record
    return RedisOptions(
        command_timeout_s=record.command_timeout_s,
        connect_timeout_s=record.connect_timeout_s,
        ca_file=record.ca_file,
        cert_file=record.cert_file,
        key_file=record.key_file,
    )


def _books(
    config: Config, metrics: Metrics, replica: str, weather: Weather
) -> tuple[Books, Notices | None]:
    kept = config.books
    shared = make_shared(
        _redis(config),
        max_rows=kept.max_rows,
        keep_s=kept.keep_s,
        options=_redis_options(config),
        weather=weather,
    )
    books = Books(
        MemoryLedger(max_rows=kept.max_rows),
        shared=shared.ledger if shared else None,
        counters=(metrics.count,),
        replica=replica,
    )
    return books, shared.notices if shared else None


def _observer_failed(error: Exception) -> None:
    _log.error("an observer failed", exc_info=error)


def make_generation(config: Config, clock: Clock) -> Generation:
    """The objects of one configuration.

    Args:
        config: the configuration.
        clock: where time comes from.

    Returns:
        Routes, targets and connections.
    """
    verify = make_tls()
    upstreams = {name: Upstream(verify=verify) for name in config.providers}
    return Generation(
        settings=Settings(
            key_digests=tuple(
                hashlib.sha256(key.get_secret_value().encode()).digest()
                for key in config.server.api_keys
            ),
            admin_digests=tuple(
                hashlib.sha256(key.get_secret_value().encode()).digest()
                for key in config.server.admin_keys
            ),
            max_body_bytes=config.server.max_body_bytes,
            commit_headers_after_s=config.server.commit_headers_after_s,
        ),
        routes={
            name: _route(name, route, config, upstreams) for name, route in config.routes.items()
        },
        upstreams=tuple(upstreams.values()),
        created_unix_s=clock.unix_s(),
        digests={
            target.name: _digest(config.providers[target.provider], target.model)
            for route in config.routes.values()
            for target in route.targets
        },
    )


def _digest(provider: ProviderConfig, model: str) -> str:
    """What makes a target the same one in another replica, or in another configuration. One-way:
    the key and the headers are in it."""
    key = provider.api_key.get_secret_value() if provider.api_key else ""
    headers = sorted((name, value.get_secret_value()) for name, value in provider.headers.items())
    parts = (provider.type, provider.base_url, provider.api_version, model, key, headers)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _route(
    name: str, route: RouteConfig, config: Config, upstreams: Mapping[str, Upstream]
) -> Route:
    return Route(
        name=name,
        targets=tuple(
            _target(route, one, config.providers[one.provider], upstreams[one.provider])
            for one in route.targets
        ),
        on_interrupt=OnInterrupt(route.on_interrupt),
        atomic_tools=route.tool_calls == "atomic",
        think_tags=route.think_tags == "reasoning",
        drop_unsupported=route.unsupported == "drop",
        json=route.boundary == "json",
        check=_check(route),
        make_boundary=functools.partial(
            make_boundary,
            "text",
            language=route.language,
            sentences=route.sentences,
            max_pending_chars=route.max_pending_chars,
        ),
        total_s=route.timeouts.total_s,
        max_attempts=route.attempts,
        same_target_retries=route.retry.same_target,
        max_wait_s=route.retry.max_wait_s,
        stall=Stall(route.stall),
    )


def _check(route: RouteConfig) -> BoundaryCheck | None:
    if route.boundary_check is None:
        return None
    return BoundaryCheck(
        load_check(route.boundary_check),
        limit_s=route.boundary_check_s,
        reject_on_failure=route.on_check_failure == "reject",
        on_reject=OnReject(route.on_reject),
    )


def _target(
    route: RouteConfig, target: TargetConfig, provider: ProviderConfig, upstream: Upstream
) -> Target:
    limits = route.timeouts_for(target)
    key = provider.api_key
    return Target(
        name=target.name,
        model=target.model,
        provider=make_provider(
            type=provider.type,
            base_url=provider.base_url,
            api_key=key.get_secret_value() if key else None,
            model=target.model,
            headers={name: value.get_secret_value() for name, value in provider.headers.items()},
            api_version=provider.api_version,
            overrides=overrides_in(target.continuation),
            rules=rules_in(provider),
        ),
        upstream=upstream,
        connect_s=limits.connect_s,
        first_output_s=limits.first_output_s,
        idle_s=limits.idle_s,
        context_window=target.context_window,
    )


# --- serving ------------------------------------------------------------------------------------


def serve(
    config: Config, *, path: Path, host: str, port: int, workers: int, fd: int | None = None
) -> int:
    """Run the router until it is told to stop.

    Args:
        config: the configuration.
        path: its file, read again on SIGHUP.
        host: address to listen on.
        port: TCP port; 0 takes a free one.
        workers: number of processes that share the socket.
        fd: a listening socket inherited from a parent, or None to make one.

    Returns:
        The process's exit status.
    """
    # Until there is a handler, a SIGHUP waits; it would end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    set_up_logging(sys.stderr)
    if fd is not None:
        parent = int(os.environ.get(PARENT_VARIABLE, os.getppid()))
        return _serve_one(config, path, socket.socket(fileno=fd), parent)
    try:
        sock = listen(host, port)
    except OSError as error:
        _log.error("cannot listen on %s:%s: %s", host, port, error)
        return 1
    with sock:
        if workers > 1:
            return _serve_many(config, path, sock, workers)
        return _serve_one(config, path, sock, None)


def _serve_one(config: Config, path: Path, sock: socket.socket, parent: int | None) -> int:
    host, port = sock.getsockname()[:2]
    # Workers share one address, so whoever asks for metrics meets one or the other.
    labels = {} if parent is None else {"worker": str(os.getpid())}
    process = _Process(config, path, host, labels)
    server = Server(
        Lifespan(process, process.start, process.stop),
        host=host,
        port=port,
        max_header_bytes=config.server.max_header_bytes,
        drain_s=config.server.drain_s,
        stopping=process.drain,
        late=process.interrupt,
        parent=parent,
    )
    server.run(sockets=[sock])
    return 0 if server.started else 1


class _Process:
    """The application of one process, and its reactions to signals."""

    def __init__(self, config: Config, path: Path, host: str, labels: Mapping[str, str]) -> None:
        self._config = config
        self._labels = labels
        self._path = path
        self._host = host
        self._serving: Serving | None = None
        self._app: App | None = None

    async def start(self) -> None:
        observer = LogObserver(logging.getLogger("router.stream"))
        self._serving = build(self._config, observers=(observer,), labels=self._labels)
        self._app = App(self._serving)
        await self._serving.start()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    async def stop(self) -> None:
        if self._serving is not None:
            await self._serving.aclose()
            await self._serving.engine.store.aclose()

    def drain(self) -> None:
        if self._serving is not None:
            self._serving.draining = True

    def interrupt(self) -> None:
        if self._serving is not None:
            self._serving.interrupt()

    async def __call__(self, *args: object) -> None:
        assert self._app is not None  # noqa: S101 - the server waits for `start`
        await self._app(*args)  # type: ignore[arg-type]

    def _reload(self) -> None:
        """A bad file changes nothing; live streams finish on the old configuration."""
        serving = self._serving
        if serving is None or serving.draining:
            return
        try:
            # The address in force counts: a file without keys may not open a public one.
            config = load_config(self._path, os.environ, host=self._host)
        except ConfigError as error:
            _log.error("reload refused, the old configuration stays: %s", error)
            return
        serving.replace(make_generation(config, serving.engine.clock))
        _log.info("reloaded %s: %d routes", self._path, len(config.routes))
        fixed = _only_at_start(self._config, config)
        if fixed:
            _log.warning("changed, and read only at start: %s; restart for it", ", ".join(fixed))


def _only_at_start(old: Config, new: Config) -> list[str]:
    """What differs between two configurations and is not replaced by a reload."""
    pairs: Mapping[str, tuple[object, object]] = {
        "server.max_header_bytes": (old.server.max_header_bytes, new.server.max_header_bytes),
        "server.drain_s": (old.server.drain_s, new.server.drain_s),
        "server.limits": (old.server.limits, new.server.limits),
        "record": (old.record, new.record),
        "books": (old.books, new.books),
        "health": (old.health, new.health),
    }
    return [name for name, (before, after) in pairs.items() if before != after]


def _serve_many(config: Config, path: Path, sock: socket.socket, count: int) -> int:
    host, port = sock.getsockname()[:2]
    command = [sys.executable, "-m", "router", "serve", str(path), "--fd", str(sock.fileno())]
    command += ["--host", str(host), "--port", str(port)]
    return Workers(
        command,
        count=count,
        sock=sock,
        where=f"http://{host}:{port}",
        stop_s=config.server.drain_s + 2 * LATE_S + STOP_SPARE_S,
    ).run()
