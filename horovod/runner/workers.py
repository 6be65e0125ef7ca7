# SPDX-License-Identifier: Apache-2.0
"""The worker processes of one host: start, relay what they print, notice their end, end them.

Used by the launcher for its own host and by the agent (horovod.runner.agent) on the others. Every worker
leads a process group of its own, so that ending it also ends what it started.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional

# Between asking a worker to end (SIGTERM) and ending it (SIGKILL).
GRACE_SECONDS = 5.0
# A worker has ended but something it started still holds its output open: how long to keep reading.
_LINGER_SECONDS = 1.0
_CHUNK = 1 << 16

STDOUT, STDERR = 1, 2


@dataclass(frozen=True)
class WorkerSpec:
    """What to start as one rank."""

    rank: int
    command: List[str]
    env: Dict[str, str]
    cwd: Optional[str] = None
    stdin: bytes = b""


class Workers:
    """Starts workers and reports through two callbacks, which run on this object's threads.

    on_output(rank, STDOUT or STDERR, data): data b"" marks the end of that stream.
    on_exit(rank, code): after all its output was delivered; 128 + n for an end by signal n.
    """

    def __init__(
        self,
        on_output: Callable[[int, int, bytes], None],
        on_exit: Callable[[int, int], None],
    ) -> None:
        self._on_output = on_output
        self._on_exit = on_exit
        self._processes: Dict[int, subprocess.Popen[bytes]] = {}
        self._watchdog = _start_watchdog()
        self._selector = selectors.DefaultSelector()
        self._open: Dict[int, int] = {}  # rank -> streams still open
        self._ended: Dict[int, float] = {}  # rank -> when its process was seen dead
        self._lock = threading.Lock()
        self._wake_read, self._wake_write = os.pipe()
        self._relay = threading.Thread(target=self._relay_output, name="horovod-output", daemon=True)
        self._waiters: List[threading.Thread] = []

    def start(self, specs: List[WorkerSpec]) -> None:
        """Starts them all. A command that cannot be started counts as a worker that ended with 127."""
        for spec in specs:
            self._start_one(spec)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._relay.start()
        for rank in list(self._processes):
            waiter = threading.Thread(
                target=self._wait_one, args=(rank,), name=f"horovod-wait-{rank}", daemon=True
            )
            waiter.start()
            self._waiters.append(waiter)

    def signal(self, number: int) -> None:
        """Signals every worker that is still there, with everything it started."""
        for process in self._processes.values():
            _signal_group(process.pid, number)

    def pause(self) -> None:
        """Nothing to do for workers of this machine; see RemoteHost.pause."""

    def terminate(self, grace: float = GRACE_SECONDS) -> None:
        """Asks all workers to end, and ends those that have not after the grace period."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        for process in self._processes.values():
            try:
                process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                break
        self.signal(signal.SIGKILL)  # also children that outlived their worker
        for waiter in self._waiters:
            waiter.join(_LINGER_SECONDS + 1.0)

    def close(self) -> None:
        """Delivers the rest of the output and stops guarding; call when all workers have ended."""
        if self._relay.ident is not None:
            self._relay.join()
        for waiter in self._waiters:
            waiter.join()
        if self._watchdog.stdin is not None:
            try:
                self._watchdog.stdin.write(b"bye\n")
                self._watchdog.stdin.close()
            except OSError:
                pass
        self._watchdog.wait()
        os.close(self._wake_write)
        os.close(self._wake_read)

    # ------------------------------------------------------------------------------------- private

    def _start_one(self, spec: WorkerSpec) -> None:
        try:
            process = subprocess.Popen(
                spec.command,
                env=spec.env,
                cwd=spec.cwd,
                stdin=subprocess.PIPE if spec.stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            text = f"cannot start {spec.command[0]!r}: {error.strerror}\n"
            self._on_output(spec.rank, STDERR, text.encode())
            self._on_exit(spec.rank, 127)
            return
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.write(b"%d\n" % process.pid)
            self._watchdog.stdin.flush()
        self._processes[spec.rank] = process
        self._open[spec.rank] = 2
        for channel, pipe in ((STDOUT, process.stdout), (STDERR, process.stderr)):
            assert pipe is not None
            self._selector.register(pipe, selectors.EVENT_READ, (spec.rank, channel))
        if process.stdin is not None:
            process.stdin.write(spec.stdin)
            process.stdin.close()

    def _wait_one(self, rank: int) -> None:
        code = self._processes[rank].wait()
        now = time.monotonic()
        with self._lock:
            self._ended[rank] = now + _LINGER_SECONDS
        os.write(self._wake_write, b"x")
        # Deliver what it printed first; a failure must not wait for a blocked terminal, though.
        while self._open[rank] and (code == 0 or time.monotonic() < now + 2 * _LINGER_SECONDS):
            time.sleep(0.005)
        self._on_exit(rank, 128 - code if code < 0 else code)

    def _relay_output(self) -> None:
        while any(self._open.values()):
            for key, _ in self._selector.select(0.2 if self._ended else None):
                if key.data is None:
                    os.read(self._wake_read, 4096)
                else:
                    self._relay_one(key)
            if self._ended:
                self._drop_lingering()
        self._selector.close()

    def _relay_one(self, key: selectors.SelectorKey) -> None:
        rank, channel = key.data
        data = os.read(key.fd, _CHUNK)
        self._on_output(rank, channel, data)
        if not data:
            self._close_stream(key)

    def _drop_lingering(self) -> None:
        """Gives up streams that a dead worker's children hold open without printing anything."""
        now = time.monotonic()
        readable = {key.fd for key, _ in self._selector.select(0)}
        for key in list(self._selector.get_map().values()):
            if key.data is not None and key.fd not in readable and self._ended.get(key.data[0], now) < now:
                self._on_output(key.data[0], key.data[1], b"")
                self._close_stream(key)

    def _close_stream(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        key.fileobj.close()  # type: ignore[union-attr]
        self._open[key.data[0]] -= 1


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _start_watchdog() -> subprocess.Popen[bytes]:
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watchdog.py")
    return subprocess.Popen([sys.executable, "-I", "-S", script], stdin=subprocess.PIPE, env={})
