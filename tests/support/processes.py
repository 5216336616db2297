"""`router serve` as a process of its own, and its log as it is written."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

WAIT_S = 20.0
"""Bound of every wait: a mistake fails, and does not hang."""


class Served:
    """A running `router serve`.

    Args:
        process: it.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._changed = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @property
    def log(self) -> list[dict[str, Any]]:
        """Every line, which must be JSON."""
        return [json.loads(line) for line in self.lines]

    @property
    def raw_log(self) -> str:
        """The same as text."""
        return "\n".join(self.lines)

    async def until(
        self, condition: Callable[[dict[str, Any]], bool], *, count: int = 1
    ) -> list[dict[str, Any]]:
        """Wait for lines of the log.

        Args:
            condition: on a line.
            count: how many such lines.

        Returns:
            Those lines.
        """

        def found() -> list[dict[str, Any]]:
            return [line for line in self.log if condition(line)]

        try:
            async with asyncio.timeout(WAIT_S), self._changed:
                await self._changed.wait_for(lambda: len(found()) >= count)
        except TimeoutError:
            raise TimeoutError(f"the log has: {self.raw_log}") from None
        return found()

    async def said(self, words: str, *, count: int = 1) -> list[dict[str, Any]]:
        """Wait for a message that holds these words."""
        return await self.until(lambda line: words in line["message"], count=count)

    async def base_url(self, *, listeners: int = 1) -> str:
        """Wait until so many processes listen; where."""
        lines = await self.said("listening on", count=listeners)
        return re.sub(r".*listening on (\S+).*", r"\1/v1", str(lines[0]["message"]))

    async def ended(self) -> int:
        """Wait for its end, and give its exit status."""
        async with asyncio.timeout(WAIT_S):
            status = await self.process.wait()
            await self._reading
        return status

    def children(self) -> list[int]:
        """Its workers' process ids."""
        pid = self.process.pid
        return [int(one) for one in _text(f"/proc/{pid}/task/{pid}/children").split()]

    def memory_bytes(self) -> int:
        """The most that it ever had in memory."""
        found = re.search(r"VmHWM:\s+(\d+) kB", _text(f"/proc/{self.process.pid}/status"))
        assert found is not None
        return 1024 * int(found[1])

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            async with self._changed:
                self.lines.append(line.decode().rstrip("\n"))
                self._changed.notify_all()


def alive(pid: int) -> bool:
    """The process exists and is no zombie."""
    with contextlib.suppress(OSError):
        return ") Z " not in _text(f"/proc/{pid}/stat")
    return False


async def until_gone(pids: list[int]) -> None:
    """Wait until these processes, which are not ours, are no more."""
    async with asyncio.timeout(WAIT_S):
        while any(alive(pid) for pid in pids):  # noqa: ASYNC110 - nobody tells of a stranger's end
            await asyncio.sleep(0.02)


@asynccontextmanager
async def served(
    file: Path, *options: str, env: Mapping[str, str] | None = None, fd: int | None = None
) -> AsyncIterator[Served]:
    """Run `router serve`; it is killed, with its workers, if it still runs at the block's end.

    Args:
        file: the configuration.
        options: further ones.
        env: further variables.
        fd: an open file that it inherits, or None.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "router", "serve", str(file), "--port", "0", *options,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
        pass_fds=() if fd is None else (fd,),
    )  # fmt: skip
    it = Served(process)
    try:
        yield it
    finally:
        if process.returncode is None:
            workers = it.children()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
        await it.ended()


def _text(path: str) -> str:
    return Path(path).read_text()
