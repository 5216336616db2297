"""A gate for tests: holds a stream before a token until it is told to go on."""

from __future__ import annotations

import asyncio
from typing import Final

HELD_WAIT_S: Final = 20.0
"""Bound of a test's wait for a stream to be held: a mistake fails, and does not hang."""


class Turnstile:
    """Lets tokens through up to a number, then holds; no test needs to sleep.

    Give it as `gate=` of a `SimulatedProvider`.

    Args:
        before: index of the token before which it holds.
        request: number of the request it holds, or None for every one.
    """

    def __init__(self, before: int, *, request: int | None = None) -> None:
        self._before = before
        self._request = request
        self._held = asyncio.Event()
        self._open = asyncio.Event()

    async def __call__(self, request: int, token: int) -> None:
        """Called by the provider before each token."""
        if token < self._before or self._request not in {None, request}:
            return
        self._held.set()
        await self._open.wait()

    async def held(self) -> None:
        """Wait until a stream is held: all tokens before are with the socket.

        Raises:
            TimeoutError: none came so far within `HELD_WAIT_S` seconds.
        """
        async with asyncio.timeout(HELD_WAIT_S):
            await self._held.wait()

    def open(self) -> None:
        """Let it go on to its end."""
        self._open.set()

    def move(self, before: int) -> None:
        """Let it go on to a later token and hold there."""
        self._before = before
        self._held.clear()
        self._open.set()
        self._open = asyncio.Event()
