"""Which servers were in trouble a moment ago, so that what they do not know may still come.

What a server has lost, or missed while it was away, the routers that own it write once more; each
after its own pause, and it is not there before. Noted by all of a process's links, so that one
which was idle meanwhile knows it too.
"""

from __future__ import annotations

SETTLING_S = 5.0
"""How long after its last trouble a server may lack what it is to have, in seconds: the longest
pause of a writer (2), a command of its that hung (1), its queue, and a second in which nobody here
had looked."""

MAX_SERVERS = 1_000
"""Bound on the servers that are remembered."""


class Weather:
    """What a process has seen of its servers' troubles."""

    __slots__ = ("_struck_s",)

    def __init__(self) -> None:
        self._struck_s: dict[str, float] = {}

    def struck(self, server: str, now_s: float) -> None:
        """A server did not answer, or took the place of another one and may know less.

        Args:
            server: its name, as `Node.name` gives it.
            now_s: the loop's time, in seconds.
        """
        self._struck_s.pop(server, None)
        while self._struck_s:
            oldest = next(iter(self._struck_s))
            if self._settling(oldest, now_s) and len(self._struck_s) < MAX_SERVERS:
                break
            del self._struck_s[oldest]
        self._struck_s[server] = now_s

    def settling(self, server: str, now_s: float) -> bool:
        """Whether a server may still lack what it is to have.

        Args:
            server: its name.
            now_s: the loop's time, in seconds.
        """
        return server in self._struck_s and self._settling(server, now_s)

    def _settling(self, server: str, now_s: float) -> bool:
        return now_s - self._struck_s[server] < SETTLING_S
