"""A real redis-server that a test may kill and bring back."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

BINARY = shutil.which("redis-server")


OPERATION = Path(__file__).parents[2] / "docs" / "operation.md"


def rights() -> list[str]:
    """What a router's user may do, as the documentation asks for it."""
    found = re.search(r"if Redis has ACLs: `([^`]+)`", OPERATION.read_text())
    assert found is not None
    return found[1].split()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RedisServer:
    """A redis-server on a port of its own, without persistence; it can be killed and come back."""

    def __init__(self, directory: Path, port: int) -> None:
        self.port = port
        self.url = f"redis://127.0.0.1:{port}/0"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait for its own word that it accepts connections."""
        assert BINARY is not None
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        options += ["--dir", str(self._directory), "--enable-debug-command", "local"]
        process = subprocess.Popen([BINARY, *options], stdout=subprocess.PIPE)
        assert process.stdout is not None
        log = b""
        for line in process.stdout:
            log += line
            if b"Ready to accept connections" in line:
                self._process = process
                return
        process.wait()
        process.stdout.close()
        raise RuntimeError(log.decode())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
