"""Short notices from one replica to the others, in Redis: each a key that expires by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from router.store.redis import RedisLink

PREFIX = "router-{health}:"
"""Before each notice's name. The braces keep all of them on one slot of a Cluster, so that one
command reads them."""


class Notice(NamedTuple):
    """A notice.

    Args:
        text: JSON.
        left_s: seconds until it expires.
    """

    text: bytes
    left_s: float


class Notices:
    """The notices in one Redis.

    Args:
        link: connections to it.
    """

    def __init__(self, link: RedisLink) -> None:
        self._link = link

    async def post(self, changes: Mapping[str, Notice | None]) -> None:
        """Put notices up, and take some down.

        Args:
            changes: by name; None takes it down.

        Raises:
            RecordUnavailable: the store does not answer; any of it may have been done.
        """
        await self._link.ask(*(_command(name, notice) for name, notice in changes.items()))

    async def read(self, names: Sequence[str]) -> Mapping[str, Notice]:
        """Read notices: one command, and one more for each notice that is up.

        The time that is left is taken from Redis, so clocks need not agree.

        Args:
            names: which.

        Returns:
            Those that are up, by name.

        Raises:
            RecordUnavailable: the store does not answer.
        """
        if not names:
            return {}
        (found,) = await self._link.ask(("MGET", *(PREFIX + name for name in names)))
        up = {name: text for name, text in zip(names, found, strict=True) if text is not None}
        if not up:
            return {}
        left_ms = await self._link.ask(*(("PTTL", PREFIX + name) for name in up))
        return {
            name: Notice(text, ms / 1000)
            for (name, text), ms in zip(up.items(), left_ms, strict=True)
            if ms > 0  # one without an end is none of ours
        }


def _command(name: str, notice: Notice | None) -> tuple[str | int | bytes, ...]:
    if notice is None:
        return ("DEL", PREFIX + name)
    return ("SET", PREFIX + name, notice.text, "PX", max(1, round(notice.left_s * 1000)))
