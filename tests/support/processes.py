# SPDX-License-Identifier: Apache-2.0
"""Ranks as bare processes, for tests that kill, freeze and watch them.

No launcher is involved, so nobody ends the survivors of a crash before they have said what they saw.

    with Processes("hvd.init(); say(hvd.rank())", 2) as ranks:
        ranks.kill(1)
        ranks.finish()          # waits for the others
        ranks.said(0)           # what rank 0 said, in order
"""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Optional, Sequence

from waiting import until
from world import worker_env

PREAMBLE = r"""
import faulthandler, json, os, signal, sys, time
import numpy as np
import horovod.numpy as hvd

faulthandler.enable()  # a crash shows where

def say(value):
    os.write(1, (json.dumps(value) + "\n").encode())  # one write: threads do not mix their lines

def attempt(function):
    start = time.monotonic()
    try:
        function()
    except Exception as error:
        say({"error": type(error).__name__, "text": str(error), "seconds": time.monotonic() - start,
             "at": time.time()})
    else:
        say({"error": None, "text": "", "seconds": time.monotonic() - start, "at": time.time()})

"""


def is_frozen(pid: int) -> bool:
    """Whether a process has stopped, as by SIGSTOP: all its threads, in no system call any more."""
    tasks = f"/proc/{pid}/task"
    states = set()
    for task in os.listdir(tasks):
        with open(f"{tasks}/{task}/stat") as file:
            states.add(file.read().rpartition(")")[2].split()[0])
    return states == {"T"}


class Processes:
    """`n` ranks running one script; use as a context manager, which ends them all."""

    def __init__(
        self,
        script: str,
        n: int,
        env: Optional[Dict[str, str]] = None,
        hosts: Optional[Sequence[str]] = None,
        prefix: Sequence[str] = (),
    ) -> None:
        from horovod.rendezvous.auth import make_secret
        from horovod.rendezvous.store_server import StoreServer

        self.n = n
        secret = make_secret()
        self._store = StoreServer(secret, ["127.0.0.1"], size=n)
        self._lines: List[queue.Queue[Any]] = [queue.Queue() for _ in range(n)]
        self.errors: List[List[str]] = [[] for _ in range(n)]
        self.processes: List[subprocess.Popen] = []
        self._readers: List[threading.Thread] = []
        hosts = hosts or ["localhost"] * n
        for rank in range(n):
            local = [r for r in range(n) if hosts[r] == hosts[rank]]
            own = {
                "HOROVOD_RANK": str(rank),
                "HOROVOD_SIZE": str(n),
                "HOROVOD_LOCAL_RANK": str(local.index(rank)),
                "HOROVOD_LOCAL_SIZE": str(len(local)),
                "HOROVOD_CROSS_RANK": "0",
                "HOROVOD_CROSS_SIZE": "1",
                "HOROVOD_HOSTNAME": hosts[rank],
                "HOROVOD_GLOO_RENDEZVOUS_ADDR": self._store.address,
                "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self._store.port),
                "_HOROVOD_SECRET_KEY": base64.b64encode(secret).decode(),
            }
            process = subprocess.Popen(
                [*prefix, sys.executable, "-c", PREAMBLE + script],
                env=dict(worker_env(env), **own),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self.processes.append(process)
            for reader in (self._read_said, self._read_errors):
                thread = threading.Thread(target=reader, args=(rank,), daemon=True)
                thread.start()
                self._readers.append(thread)

    def _read_said(self, rank: int) -> None:
        for line in self.processes[rank].stdout:  # type: ignore[union-attr]
            try:
                self._lines[rank].put([json.loads(line)])
            except ValueError:
                self.errors[rank].append(line)

    def _read_errors(self, rank: int) -> None:
        for line in self.processes[rank].stderr:  # type: ignore[union-attr]
            self.errors[rank].append(line)

    def heard(self, rank: int, timeout: float = 60) -> Any:
        """The next thing this rank says."""
        said = self._lines[rank].get(timeout=timeout) if self._will_speak(rank, timeout) else None
        if said is None and not self._readers[2 * rank].is_alive():  # it has ended: hear it out
            self._readers[2 * rank + 1].join(10)
        ended = self.processes[rank].poll()
        assert said is not None, f"rank {rank} said nothing more ({ended=}); stderr:\n{self.stderr(rank)}"
        return said[0]

    def _will_speak(self, rank: int, timeout: float) -> bool:
        """Waits until this rank has said something; False if it ended or took too long."""
        deadline = time.monotonic() + timeout
        while self._lines[rank].empty() and time.monotonic() < deadline:
            if not self._readers[2 * rank].is_alive():
                break
            time.sleep(0.01)
        return not self._lines[rank].empty()

    def stderr(self, rank: int) -> str:
        """What this rank has logged so far."""
        return "".join(self.errors[rank])

    def wait_for_stderr(self, rank: int, text: str, timeout: float = 60) -> str:
        """Waits until this rank has logged a text; what comes after its line may still be on its way."""
        deadline = time.monotonic() + timeout
        while text not in self.stderr(rank):
            assert time.monotonic() < deadline, f"rank {rank} did not log {text!r}:\n{self.stderr(rank)}"
            time.sleep(0.05)
        return self.stderr(rank)

    def send(self, rank: int, what: int) -> None:
        """Sends a signal to a rank."""
        os.kill(self.processes[rank].pid, what)

    def frozen(self, rank: int) -> bool:
        """Whether this rank has stopped."""
        return is_frozen(self.processes[rank].pid)

    def freeze(self, rank: int) -> None:
        """Stops a rank, and waits until it has."""

        def stopped() -> bool:
            self.send(rank, signal.SIGSTOP)  # again, should somebody else have woken it
            return self.frozen(rank)

        until(stopped, f"rank {rank} has stopped")

    def wake(self, rank: int) -> None:
        """Lets a rank go on that stops itself, once it has."""
        until(lambda: self.frozen(rank), f"rank {rank} has stopped")
        self.send(rank, signal.SIGCONT)

    def kill(self, rank: int) -> None:
        """kill -9."""
        self.send(rank, signal.SIGKILL)

    def finish(self, timeout: float = 60) -> List[int]:
        """Waits for all, and until all they have said and logged was read; exit codes in rank order."""
        codes = [process.wait(timeout) for process in self.processes]
        for thread in self._readers:
            thread.join(timeout)
        return codes

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        for thread in self._readers:
            thread.join(5)
        for process in self.processes:
            process.stdout.close()  # type: ignore[union-attr]
            process.stderr.close()  # type: ignore[union-attr]
        self._store.close()
