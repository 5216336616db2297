"""Several processes on one socket: a parent that starts them, replaces one that dies, and stops.

The parent acts on signals one after another, from a pipe, and never inside a handler: a worker that
is being started when the signal to stop comes is stopped like the others.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

PAUSE_S = 1.0
"""Between a worker's end and its replacement, in seconds: a worker that cannot start (its file is
broken meanwhile) must not be a busy loop."""

PARENT_VARIABLE = "ROUTER_PARENT_PID"
"""Environment variable that tells a worker whom it may not outlive."""

_STOP = frozenset({signal.SIGTERM, signal.SIGINT})
_WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

_log = logging.getLogger("router")


class Workers:
    """The processes.

    Args:
        command: starts one; it inherits the socket.
        count: how many.
        sock: that they share.
        where: their address, for the log.
        stop_s: how long they may take to stop before they are killed, in seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        count: int,
        sock: socket.socket,
        where: str,
        stop_s: float,
    ) -> None:
        self._command = command
        self._sock = sock
        self._where = where
        self._stop_s = stop_s
        self._running: list[subprocess.Popen[bytes]] = []
        self._due_s = [0.0] * count
        self._kill_s: float | None = None

    @property
    def _stopping(self) -> bool:
        return self._kill_s is not None

    def run(self) -> int:
        """Go on until told to stop and every worker has ended. SIGHUP may be blocked until here.

        Returns:
            The process's exit status: 0, or 1 if a worker had to be killed.
        """
        killed = False
        with _inbox() as next_signals:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
            _log.info("%d workers on %s", len(self._due_s), self._where)
            while self._running or not self._stopping:
                self._fill()
                for number in next_signals(self._wait_s()):
                    self._act(number)
                self._reap()
                if self._kill_s is not None and time.monotonic() >= self._kill_s:
                    killed = killed or bool(self._running)
                    self._send(signal.SIGKILL)
        return 1 if killed else 0

    def _act(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._send(signal.SIGHUP)
        elif number in _STOP and not self._stopping:
            self._kill_s = time.monotonic() + self._stop_s
            self._due_s.clear()
            self._sock.close()  # while it is open here, connections queue up that nobody takes
            self._send(signal.SIGTERM)
        elif number == signal.SIGINT:
            self._send(signal.SIGINT)  # asked twice: hurry

    def _send(self, number: signal.Signals) -> None:
        for worker in self._running:
            worker.send_signal(number)

    def _fill(self) -> None:
        """Start the workers that are due."""
        now_s = time.monotonic()
        due = [one for one in self._due_s if one <= now_s]
        self._due_s = [one for one in self._due_s if one > now_s]
        self._running += [self._start() for _ in due]

    def _start(self) -> subprocess.Popen[bytes]:
        # In a group of its own, or Ctrl-C would reach it twice. SIGHUP is held back from it until
        # it is ready for one, as before that it would die of it; a mask is inherited.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            return subprocess.Popen(  # noqa: S603 - our own command
                self._command,
                pass_fds=[self._sock.fileno()],
                process_group=0,
                env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _reap(self) -> None:
        for worker in tuple(self._running):
            status = worker.poll()
            if status is None:
                continue
            self._running.remove(worker)
            if not self._stopping:
                _log.error("worker %d ended (%d) and is replaced", worker.pid, status)
                self._due_s.append(time.monotonic() + PAUSE_S)

    def _wait_s(self) -> float | None:
        until = [*self._due_s, *([] if self._kill_s is None else [self._kill_s])]
        return max(0.0, min(until) - time.monotonic()) if until else None


@contextmanager
def _inbox() -> Iterator[Callable[[float | None], bytes]]:
    """Signals as bytes in a pipe, for as long as the block lasts.

    Yields:
        A function that waits, at most so many seconds, and gives the numbers that came.
    """
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    previous = {number: signal.signal(number, lambda *_: None) for number in _WATCHED}
    wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def wait(limit_s: float | None) -> bytes:
        ready, _, _ = select.select([read], [], [], limit_s)
        return os.read(read, 1024) if ready else b""

    try:
        yield wait
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)
