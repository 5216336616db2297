"""Real servers for the tests to ill-treat, and what their model says when nobody does."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from support.reading import Answer, read_stream

SCRIPT = Path(__file__).with_name("llama_server.py")
PATIENCE_S = 60.0
"""For a server to come up, and for a whole answer: far beyond what a loaded machine needs."""

SYSTEM = "Be brief."
PROMPTS = (
    "Write a SQL query that counts users.",
    "Write a JSON object with a name and an age.",
    "Write a Python function that adds two numbers.",
    "Give me three tips for a job interview.",
    "Write one sentence with a quotation by Einstein.",
    "What is a prime number? Give an example.",
    "Summarize the story of Little Red Riding Hood in three sentences.",
    "What is an atom?",
    "Was ist die Hauptstadt von Deutschland?",
    "What does a doctor do?",
)
"""Their answers hold code, a list, quotations, abbreviations, numbers and refrains, and end by
themselves after 40 to 150 tokens."""

MAX_TOKENS = 400
"""So far above every answer that none ends by it: what the router leaves of a budget after a
failover is an estimate, and here it must not decide where an answer ends."""


@dataclass(frozen=True)
class RealModel:
    """What `tools/real-model` made.

    Args:
        python: an interpreter that has xllamacpp.
        file: the model.
    """

    python: Path
    file: Path


class LlamaServer:
    """One llama.cpp server as a process of its own.

    Args:
        model: from `tools/real-model`.
        log: file for what the server says.
        flags: further arguments of `llama_server.py`.
    """

    def __init__(self, model: RealModel, log: Path, *flags: str) -> None:
        self._command = [str(model.python), str(SCRIPT), str(model.file), *flags]
        self._log = log
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self._listens = False

    @property
    def base_url(self) -> str:
        """Root of its API, `/v1` included; the same after a restart."""
        assert self._port, "the server was not awaited"
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        """Start the process; `wait_ready` awaits it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "--port", str(self._port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # a Ctrl-C is pytest's, which then cleans up
            )
        self._listens = False

    def wait_ready(self) -> None:
        """Return once it answers `/health` with 200.

        Raises:
            AssertionError: it does not in `PATIENCE_S`, or it is dead.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        if not self._listens:
            self._read_address()
        with httpx.Client(timeout=PATIENCE_S, trust_env=False) as client:
            while client.get(f"http://127.0.0.1:{self._port}/health").status_code != 200:
                assert time.monotonic() < deadline_s, self._last_words()
                time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL: sockets are closed by the kernel, wherever the answer was."""
        process = self._process
        if process is None:
            return
        self._signal(signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        self._process = None

    def stop(self) -> None:
        """SIGSTOP: sockets stay open, and nothing comes any more."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Start it again at its old address; `wait_ready` awaits it."""
        self.kill()
        self.start()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def _read_address(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        line = self._process.stdout.readline() if readable else ""
        port = urlsplit(line.strip()).port
        assert port, self._last_words()
        self._port = port
        self._listens = True

    def _last_words(self) -> str:
        return f"llama.cpp does not serve: …{self._log.read_text(errors='replace')[-2000:]}"


@dataclass(frozen=True)
class Uncut:
    """An answer that nobody disturbed.

    Args:
        text: the whole.
        chunks: how many pieces it came in, one per token.
    """

    text: str
    chunks: int


def body(prompt: str, model: str = "chat") -> dict[str, Any]:
    """A request whose answer is always the same.

    Args:
        prompt: the question.
        model: a route; to llama.cpp itself it means nothing.
    """
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
    return {
        "model": model,
        "messages": messages,
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
        "stream": True,
    }


def ask_directly(server: LlamaServer, prompt: str) -> Answer:
    """Ask a server itself, without a router."""
    with httpx.Client(timeout=PATIENCE_S, trust_env=False) as client:
        response = client.post(f"{server.base_url}/chat/completions", json=body(prompt))
        return read_stream(response.status_code, response.headers, response.content)


def uncut_answers(servers: Sequence[LlamaServer], prompts: Sequence[str]) -> dict[str, Uncut]:
    """Every prompt's undisturbed answer; the servers share the work.

    Args:
        servers: of the same model and build.
        prompts: distinct.
    """
    asked = [servers[at % len(servers)] for at in range(len(prompts))]
    with ThreadPoolExecutor(len(prompts)) as pool:  # a server takes one at a time; the others queue
        answers = list(pool.map(ask_directly, asked, prompts))
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer.finish_reasons == ["stop"], prompt
    return {
        prompt: Uncut(answer.delivered, count_texts(answer.raw))
        for prompt, answer in zip(prompts, answers, strict=True)
    }


def count_texts(raw: bytes | bytearray) -> int:
    """How many chunks of a stream carry answer text; inside text, a quote would be escaped."""
    return raw.count(b'"content":"') - raw.count(b'"content":""')
