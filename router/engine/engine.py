"""The engine: everything a stream needs, and a `Run` for each."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from router.core.request import ChatRequest
from router.core.structured import Structured
from router.engine.choice import Means, Retention
from router.engine.clock import Clock
from router.engine.health import Health
from router.engine.observe import Observers
from router.engine.options import Options
from router.engine.report import StreamReport
from router.engine.resume import Resumed
from router.engine.route import Route
from router.engine.run import Run
from router.engine.sink import Sink
from router.engine.stream import Stream
from router.store.base import RecordHead, RecordStore

STREAM_ID_BYTES = 18
"""144 random bits: a stream id is also the right to resume the stream, so it cannot be guessed."""


PART_BYTES = 4
"""A stream comes in a handful of parts; their names are no secret."""


class Engine:
    """Runs streams.

    Args:
        store: the failover records.
        health: the condition of the targets.
        clock: where time comes from.
        tell: the observers.
        retention: how long the record's text is kept.
        random: numbers in [0, 1), for jitter.
    """

    def __init__(
        self,
        *,
        store: RecordStore,
        health: Health,
        clock: Clock,
        tell: Observers,
        retention: Retention,
        random: Callable[[], float],
    ) -> None:
        self.store = store
        self.health = health
        self.clock = clock
        self._means = Means(
            health=health, clock=clock, tell=tell, retention=retention, random=random
        )

    def new_stream_id(self) -> str:
        """An id that cannot be guessed."""
        return secrets.token_urlsafe(STREAM_ID_BYTES)

    def new_part(self) -> str:
        """A name for one response of a stream, unique among its responses."""
        return secrets.token_hex(PART_BYTES)

    async def run(
        self,
        request: ChatRequest,
        route: Route,
        sink: Sink,
        *,
        stream_id: str,
        part: str = "",
        digest: str,
        owner: str,
        options: Options | None = None,
        structured: Structured | None = None,
        resumed: Resumed | None = None,
        on_end: Callable[[StreamReport], None] | None = None,
        on_fenced: Callable[[], None] | None = None,
    ) -> StreamReport:
        """Answer one request.

        Args:
            request: what was asked.
            route: where it may be answered.
            sink: the client.
            stream_id: from `new_stream_id`.
            part: from `new_part`.
            digest: hex digest of the request's body.
            owner: digest of the API key that asked, or "".
            options: what the client chose, or None for the defaults.
            structured: the JSON document that is asked for, or None for text.
            resumed: what another writer left of this stream, or None for a new one.
            on_end: told how it went, whatever happens, also if this call is cancelled.
            on_fenced: told that another router has taken the stream over; this call will end.

        Returns:
            How it went; the client was told already.
        """
        head = (
            resumed.record.head
            if resumed
            else RecordHead(
                stream_id=stream_id,
                kind="text" if structured is None else "json",
                route=route.name,
                request_digest=digest,
                owner=owner,
                created=self.clock.unix_s(),
            )
        )
        stream = Stream(
            head=head,
            request=request,
            route=route,
            sink=sink,
            store=self.store,
            clock=self.clock,
            tell=self._means.tell,
            options=options or Options(),
            structured=structured,
            resumed=resumed,
            part=part,
        )
        stream.on_fenced = on_fenced
        return await Run(self._means, stream, route, sink, on_end).run()
