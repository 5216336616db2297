"""What is being served: the present configuration's objects, replaced as a whole on reload.

A live stream holds the `Generation` it began with, and finishes on it. The connections of a retired
generation are closed when its last stream is over.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from router.books import Books
from router.core.json_schema import Schemas
from router.engine.engine import Engine
from router.engine.route import Route
from router.engine.shared_health import SharedHealth
from router.engine.upstream import Upstream
from router.metrics import Metrics
from router.store.limits import Limiter


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the HTTP face needs of the configuration.

    Args:
        key_digests: SHA-256 of each API key; empty lets everyone in.
        admin_digests: the same of each of the owner's keys; where there are none, `key_digests`
            count for the owner too.
        max_body_bytes: bound on a request body.
        commit_headers_after_s: wait for the first output after which the status line goes out, in
            seconds.
    """

    key_digests: tuple[bytes, ...] = ()
    admin_digests: tuple[bytes, ...] = ()
    max_body_bytes: int = 10_485_760
    commit_headers_after_s: float = 10.0

    def owner_of(self, authorization: str | None) -> str | None:
        """Who asks.

        Args:
            authorization: the header's value, or None.

        Returns:
            Hex digest of the key, "" where no key is asked for, None if the key is not known. Every
            known key is compared, in constant time, so that the time tells nothing.
        """
        if not self.key_digests:
            return ""
        return _holder(authorization, self.key_digests)

    def is_admin(self, authorization: str | None) -> bool:
        """Whether it is the owner who asks; where no keys are set at all, nobody is.

        Args:
            authorization: the header's value, or None.
        """
        return _holder(authorization, self.admin_digests or self.key_digests) is not None


def _holder(authorization: str | None, digests: Sequence[bytes]) -> str | None:
    scheme, _, key = (authorization or "").partition(" ")
    digest = hashlib.sha256(key.strip().encode()).digest()
    known = [hmac.compare_digest(digest, one) for one in digests]
    return digest.hex() if any(known) and scheme.lower() == "bearer" else None


class Generation:
    """The objects of one configuration.

    Args:
        settings: for the HTTP face.
        routes: by public model name.
        upstreams: the connections that the routes use.
        created_unix_s: when it was loaded.
        digests: name of each target to what makes it the same target elsewhere.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        routes: Mapping[str, Route],
        upstreams: Sequence[Upstream],
        created_unix_s: float,
        digests: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = settings
        self.digests = digests or {}
        self.routes = routes
        self.created_unix_s = created_unix_s
        self._upstreams = upstreams
        self._streams = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """While a stream runs on it, its connections stay."""
        self._streams += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._streams -= 1
            if not self._streams:
                self._idle.set()

    async def retire(self) -> None:
        """Wait for the last stream, then close the connections."""
        await self._idle.wait()
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, whoever uses them."""
        for upstream in self._upstreams:
            await upstream.aclose()
        for route in self.routes.values():
            if route.check is not None:
                route.check.close()


class Serving:
    """The present generation, and whether new streams are taken.

    Args:
        engine: runs the streams.
        generation: the first one.
        books: are told how every request went, by the engine.
        metrics: likewise.
        sharing: exchanges ejections with other replicas, or None; given later, as it asks for the
            present generation.
    """

    def __init__(
        self, engine: Engine, generation: Generation, *, books: Books, metrics: Metrics
    ) -> None:
        self.engine = engine
        self.generation = generation
        self.books = books
        self.metrics = metrics
        self.sharing: SharedHealth | None = None
        self.limiter: Limiter | None = None
        """Counts what each API key uses, or None where nothing is limited."""
        self.draining = False
        """The process is being stopped: live streams run on, new ones are refused."""
        self.schemas = Schemas()
        self._retiring: set[asyncio.Task[None]] = set()
        self._stops: dict[object, Callable[[], None]] = {}

    async def start(self) -> None:
        """Begin to keep records, and to hear of other replicas."""
        await self.engine.store.start()
        if self.sharing is not None:
            self.sharing.start()

    @property
    def in_flight(self) -> int:
        """Streams that run."""
        return len(self._stops)

    @contextmanager
    def running(self, stop: Callable[[], None]) -> Iterator[None]:
        """A stream runs inside the block.

        Args:
            stop: ends it with an error to its client.
        """
        key = object()
        self._stops[key] = stop
        try:
            yield
        finally:
            del self._stops[key]

    def interrupt(self) -> None:
        """The time to drain is over: every stream that still runs is ended, and its client told."""
        self.draining = True
        for stop in tuple(self._stops.values()):
            stop()

    def replace(self, generation: Generation) -> None:
        """Serve another configuration from now on.

        Args:
            generation: its objects.
        """
        old, self.generation = self.generation, generation
        task = asyncio.create_task(old.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def aclose(self) -> None:
        """Close everything; live streams are over by now."""
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await self.generation.aclose()
        if self.sharing is not None:
            await self.sharing.aclose()
        if self.limiter is not None:
            await self.limiter.aclose()
        await self.books.aclose()
