"""Two llama.cpp servers with a small real model, gone when their tests are over; a skip that says
why, where the platform has none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from real_model.llama_kit import PROMPTS, LlamaServer, RealModel, Uncut, uncut_answers

SETUP = Path(__file__).parents[2] / "tools" / "real-model"
UNAVAILABLE = 3
"""How `tools/real-model` ends where nothing is to be had: no wheel for this machine, or, but not in
CI, no package index."""


@pytest.fixture(scope="session")
def real_model() -> RealModel:
    """The model and what serves it; made ready if this is the first time."""
    made = subprocess.run(
        [SETUP, sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode == UNAVAILABLE:
        pytest.skip(made.stderr.strip().rpartition("\n")[2])
    assert made.returncode == 0, made.stderr
    directory = Path(made.stdout.strip())
    return RealModel(python=directory / "bin" / "python", file=directory / "model.gguf")


@pytest.fixture(scope="module")
def pair(
    real_model: RealModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LlamaServer, LlamaServer]]:
    """Two equal servers. Whoever kills or stops one brings it back."""
    logs = tmp_path_factory.mktemp("llama")
    one, other = (LlamaServer(real_model, logs / f"{name}.log") for name in ("one", "other"))
    with ExitStack() as stack:
        for server in (one, other):
            stack.callback(server.kill)
            server.start()
        for server in (one, other):
            server.wait_ready()
        yield one, other


@pytest.fixture(scope="module")
def no_prefill(
    real_model: RealModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlamaServer]:
    """A server to which a trailing assistant message is a turn of its own."""
    server = LlamaServer(real_model, tmp_path_factory.mktemp("llama") / "log", "--no-prefill")
    try:
        server.start()
        server.wait_ready()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def uncut(pair: tuple[LlamaServer, LlamaServer]) -> dict[str, Uncut]:
    """What the model says to every prompt when nobody disturbs it."""
    return uncut_answers(pair, PROMPTS)
