# SPDX-License-Identifier: Apache-2.0
"""The workers of this machine: start, relay what they print, notice their end, end them.

Used by the launcher for its own host and by the agent (agent.py) on the others. Every worker leads a process
group of its own, so that ending it also ends what it started. Their parent is the guard (guard.py), a process
that outlives this one if it must.

Two threads: one reads what the workers print (and stands still while a slow terminal takes it), one hears
from the guard how they end; so that a failure is reported even while the terminal is blocked.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from typing import Dict, Optional, Tuple

from horovod.rendezvous import fork
from horovod.runner import guard
from horovod.runner.host_runner import (
    GRACE_SECONDS,
    STDERR,
    STDOUT,
    HostReady,
    OutputFunction,
    ReportFunction,
    WorkerExited,
    WorkerSpec,
)
from horovod.runner.streams import Streams

# A failure is reported after this even if its output still waits for a slow terminal.
_FAILURE_SECONDS = 2.0
_KILLED = 128 + 9
_SPARE_DESCRIPTORS = 64  # of the launcher itself: the store, the guard, the workers' first connections


class LocalHost:
    """Runs workers on this machine. See host_runner.HostRunner."""

    def __init__(self, host: str, output: OutputFunction, report: ReportFunction) -> None:
        self.host = host
        self._output = output
        self._report = report
        self._streams = Streams(output, self._drained)
        self._lock = threading.Lock()
        self._running: Dict[int, bool] = {}  # worker -> whether its process is there
        self._exits: Dict[int, Tuple[int, float]] = {}  # worker -> code and when to report it at the latest
        self._all_ended = threading.Condition(self._lock)
        self._link: Optional[socket.socket] = None
        self._guard: Optional[subprocess.Popen[bytes]] = None
        self._listener = threading.Thread(target=self._listen, name="horovod-guard", daemon=True)

    def open(self) -> None:
        """Starts the guard."""
        self._link, theirs = socket.socketpair()
        fork.guard(self._link)
        with theirs:
            # A session of its own: Ctrl-C in the terminal is for the launcher, which ends all in order.
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", os.path.abspath(guard.__file__), str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._listener.start()
        self._streams.start()
        self._report(HostReady(self.host))

    def start(self, spec: WorkerSpec) -> None:
        """Starts one more worker."""
        with self._lock:
            self._running[spec.worker] = True
        try:
            pipes = _pipes()
        except OSError as error:
            self._output(spec.worker, STDERR, f"cannot start it: {error.strerror} (ulimit -n)\n".encode())
            self._ended(spec.worker, guard.CANNOT_START)
            return
        self._streams.add(spec.worker, {STDOUT: pipes[0], STDERR: pipes[2]})
        command = [os.fsencode(word) for word in spec.command]
        env = {os.fsencode(name): os.fsencode(value) for name, value in spec.env.items()}
        message = guard.pack((guard.START, spec.worker, command, env, os.fsencode(spec.cwd or os.getcwd())))
        try:
            with self._lock:
                assert self._link is not None
                socket.send_fds(self._link, [message[: guard.LENGTH.size]], [pipes[1], pipes[3]])
                self._link.sendall(message[guard.LENGTH.size :])
        except OSError:
            self._ended(spec.worker, _KILLED)  # the guard is gone
        finally:
            os.close(pipes[1])
            os.close(pipes[3])

    def end(self, worker: int, grace: float = GRACE_SECONDS) -> None:
        """Ends one worker, with everything it started."""
        self._tell(guard.END, worker, float(grace))

    def signal(self, number: int) -> None:
        """Signals every worker that is still there, with everything it started."""
        self._tell(guard.SIGNAL, int(number))

    def pause(self) -> None:
        """Nothing to do for workers of this machine."""

    def silence(self) -> float:
        """This machine is always heard."""
        return 0.0

    def terminate(self, grace: float = GRACE_SECONDS) -> None:
        """Ends all workers; returns when they are gone, or cannot be ended."""
        self.end(guard.ALL, grace)
        with self._all_ended:
            self._all_ended.wait_for(lambda: not any(self._running.values()), grace + 2.0)

    def close(self, limit: float = 5.0) -> None:
        """Delivers the rest of the output and lets the guard go."""
        self._streams.close(limit)
        self._tell(guard.BYE)
        if self._guard is not None:
            try:
                self._guard.wait(2.0)
            except subprocess.TimeoutExpired:
                self._guard.kill()
                self._guard.wait()
            self._listener.join(1.0)
        if self._link is not None:
            self._link.close()

    # ------------------------------------------------------------------------------------- private

    def _tell(self, *message: object) -> None:
        with self._lock:
            if self._link is not None:
                try:
                    self._link.sendall(guard.pack(message))
                except OSError:
                    pass  # the guard is gone: _listen reports it

    def _listen(self) -> None:
        """Hears from the guard how workers end."""
        assert self._link is not None
        incoming = guard.Incoming(self._link)
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        try:
            while True:
                wait = self._overdue()
                readable = poll.poll(None if wait is None else wait * 1000 + 1)
                for _, worker, code in incoming.receive() if readable else ():
                    self._ended(worker, code)
        except (OSError, EOFError):
            self._guard_is_gone()

    def _guard_is_gone(self) -> None:
        with self._lock:
            left = [worker for worker, running in self._running.items() if running]
        for worker in left:  # they went with it
            self._output(worker, STDERR, b"ended together with the process that guards this host's workers\n")
            self._ended(worker, _KILLED)
        while (wait := self._overdue()) is not None:
            time.sleep(wait)

    def _ended(self, worker: int, code: int) -> None:
        with self._lock:
            self._running[worker] = False
            latest = time.monotonic() + _FAILURE_SECONDS if code else float("inf")
            self._exits[worker] = (code, latest)
            self._all_ended.notify_all()
        if not self._streams.ended(worker):
            self._drained(worker)

    def _drained(self, worker: int) -> None:
        """All that a worker printed was delivered: its end can be reported, once."""
        with self._lock:
            known = self._exits.pop(worker, None)
        if known is not None:
            self._report(WorkerExited(self.host, worker, known[0]))

    def _overdue(self) -> Optional[float]:
        """Reports failures whose output takes too long; returns when to look again."""
        now = time.monotonic()
        with self._lock:
            waiting = dict(self._exits)
        for worker, (_, latest) in waiting.items():
            if latest <= now:
                self._drained(worker)
        left = [latest - now for _, latest in waiting.values() if now < latest < float("inf")]
        return max(min(left), 0.0) if left else None


def _pipes() -> Tuple[int, int, int, int]:
    """Two pipes, or none."""
    first = os.pipe()
    try:
        return (*first, *os.pipe())
    except OSError:
        os.close(first[0])
        os.close(first[1])
        raise


def check_room(workers: int, files: bool = False) -> None:
    """Raises ValueError if this machine cannot run so many workers; `files`: each also gets output files."""
    descriptors = _SPARE_DESCRIPTORS + workers * (4 if files else 2)
    limits = (
        (descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[0], "open files", "ulimit -n"),
        (workers, resource.getrlimit(resource.RLIMIT_NPROC)[0], "processes", "ulimit -u"),
        (workers, _pid_max(), "processes", "kernel.pid_max"),
    )
    for needed, limit, what, where in limits:
        if limit != resource.RLIM_INFINITY and needed > limit:
            raise ValueError(
                f"{workers} processes on this host need {needed} {what}, but the limit is {limit} ({where}): "
                "lower -np, use more hosts, or raise it"
            )


def _pid_max() -> int:
    try:
        with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return resource.RLIM_INFINITY
