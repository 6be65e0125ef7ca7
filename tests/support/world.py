# SPDX-License-Identifier: Apache-2.0
"""Worlds of ranks for tests.

    run_world(fn, np=2)                    start, call fn on every rank, end; results in rank order
    shared_world(2).run(fn, argument)      the same on a world that stays up for the whole test session

Functions are sent by value, so they may live in test modules, and may use what those import.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import cloudpickle
from native_stacks import native_stacks
from time_limits import time_limit

SUPPORT = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(SUPPORT))

# Once a function has failed on one rank, the others need not come back: they may wait for that rank.
AFTER_A_FAILURE = 45.0


class RanksFailed(AssertionError):
    """A function failed on some ranks; the text has every traceback."""


def worker_env(extra: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """The environment of test workers: this tree and the test support first, one thread for BLAS."""
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join([ROOT, SUPPORT, env.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    env.setdefault("OMP_NUM_THREADS", "1")
    env.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", "60")
    env.setdefault("HOROVOD_FLIGHT_RECORDER", "off")  # tests of failures would leave files behind
    env.update(extra or {})
    return env


def by_value(fn: Callable[..., Any]) -> bytes:
    """The function as bytes; those of test modules carry their code with them."""
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    path = getattr(module, "__file__", None) or ""
    if module is not None and path.startswith(os.path.join(ROOT, "tests")) and not path.startswith(SUPPORT):
        cloudpickle.register_pickle_by_value(module)
        try:
            return cloudpickle.dumps(fn)
        finally:
            cloudpickle.unregister_pickle_by_value(module)
    return cloudpickle.dumps(fn)


def _call(payload: bytes, args: Sequence[Any]) -> Any:
    return cloudpickle.loads(payload)(*args)


def run_world(
    fn: Callable[..., Any],
    np: int,
    timeout: float = 300,
    env: Optional[Dict[str, str]] = None,
    args: Sequence[Any] = (),
    hosts: Optional[str] = None,
) -> List[Any]:
    """Calls fn(*args) on every rank of a new world and returns the results in rank order.

    Args:
        env: variables to add for the workers.
        hosts: e.g. "localhost:2,127.0.0.1:2" for two "hosts" on this machine that share no memory.
    """
    import horovod

    with time_limit(timeout, "the job"):
        return horovod.run(_call, (by_value(fn), args), np=np, env=worker_env(env), hosts=hosts)


class World:
    """Ranks that stay up and run one function after another."""

    def __init__(self, np: int, env: Optional[Dict[str, str]] = None, hosts: Optional[str] = None) -> None:
        self.np = np
        self.broken = False
        self._directory = tempfile.mkdtemp(prefix="hvd-test-")
        address, key = os.path.join(self._directory, "s"), secrets.token_bytes(16)
        listener = Listener(address, "AF_UNIX", backlog=64, authkey=key)
        self._thread = threading.Thread(
            target=self._launch, args=(np, worker_env(env), hosts, address, key), daemon=True
        )
        self._failure: Optional[BaseException] = None
        self._thread.start()
        self._ranks: Dict[int, Connection] = {}
        self._pids: Dict[int, int] = {}
        try:
            with time_limit(240, f"starting a world of {np}"):
                while len(self._ranks) < np:
                    connection = listener.accept()
                    rank, pid = connection.recv()
                    self._ranks[rank], self._pids[rank] = connection, pid
        except (OSError, EOFError, AuthenticationError) as error:
            raise RanksFailed(f"a world of {np} did not start: {self._failure or error!r}") from error
        finally:
            listener.close()
            with contextlib.suppress(OSError):
                os.unlink(address)

    def _launch(self, np: int, env: Dict[str, str], hosts: Optional[str], address: str, key: bytes) -> None:
        import horovod

        try:
            horovod.run(_serve, (address, key), np=np, env=env, hosts=hosts)
        except BaseException as error:
            self._failure = error
            with contextlib.suppress(OSError):  # wake an accept() that would wait for ever
                sock = socket.socket(socket.AF_UNIX)
                sock.connect(address)
                sock.close()

    def run(self, fn: Callable[..., Any], *args: Any, timeout: float = 120) -> List[Any]:
        """Calls fn(*args) on every rank; results in rank order. Raises RanksFailed with all tracebacks.

        Ranks that do not come back are killed; the error says where they were.
        """
        payload = by_value(fn)
        try:
            for rank in range(self.np):
                self._ranks[rank].send_bytes(cloudpickle.dumps((payload, args)))
            replies = self._replies(timeout)
        except (EOFError, OSError) as error:
            self.close()
            raise RanksFailed(f"a world of {self.np} was lost: {error!r} {self._failure or ''}") from error
        late = [rank for rank in range(self.np) if rank not in replies]
        texts = [f"rank {rank}:\n{text}" for rank, (ok, text) in sorted(replies.items()) if not ok]
        if late:
            texts += [f"rank {rank} did not come back, it was at:\n{self._stacks(rank)}" for rank in late]
            self.kill()
        if texts:
            raise RanksFailed("\n".join(texts))
        return [replies[rank][1] for rank in range(self.np)]

    def _replies(self, seconds: float) -> Dict[int, Tuple[bool, Any]]:
        """What ranks answer within that time, in whichever thread this is."""
        replies: Dict[int, Tuple[bool, Any]] = {}
        deadline = time.monotonic() + seconds
        while len(replies) < self.np:
            waited_for = {self._ranks[rank]: rank for rank in self._ranks if rank not in replies}
            ready = wait(list(waited_for), max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for connection in ready:
                assert isinstance(connection, Connection)
                ok, value = cloudpickle.loads(connection.recv_bytes())
                replies[waited_for[connection]] = ok, value
                if not ok:
                    deadline = min(deadline, time.monotonic() + AFTER_A_FAILURE)
        return replies

    def _stacks(self, rank: int) -> str:
        """The stacks of a rank's threads, whatever it is doing; the native ones if there is a gdb."""
        path = _stack_file(self._directory, rank)
        with contextlib.suppress(OSError):
            os.kill(self._pids[rank], signal.SIGUSR2)
            deadline = time.monotonic() + 10
            text, before = "", None
            while (not text or text != before) and time.monotonic() < deadline:  # until all of it is written
                time.sleep(0.2)
                before = text
                with open(path, encoding="utf-8", errors="replace") as file:
                    text = file.read()
            return f"{text or '(it does not answer)'}\n{native_stacks(self._pids[rank])}"
        return "(it is gone)"

    def kill(self) -> None:
        """Ends ranks that do not listen."""
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Ends the ranks."""
        self.broken = True
        for connection in self._ranks.values():
            connection.close()
        self._thread.join(60)
        shutil.rmtree(self._directory, ignore_errors=True)


def _stack_file(directory: str, rank: int) -> str:
    return os.path.join(directory, f"stacks.{rank}")


def _serve(address: str, key: bytes) -> None:
    """What every rank of a World runs."""
    import horovod.numpy as hvd

    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    hvd.init()
    stacks = open(_stack_file(os.path.dirname(address), hvd.rank()), "w")  # noqa: SIM115 it stays open
    faulthandler.register(signal.SIGUSR2, file=stacks)
    with Client(address, "AF_UNIX", authkey=key) as connection:
        connection.send((hvd.rank(), os.getpid()))
        while True:
            try:
                payload, args = cloudpickle.loads(connection.recv_bytes())
            except (EOFError, OSError):
                return
            try:
                reply = (True, cloudpickle.loads(payload)(*args))
            except BaseException:
                reply = (False, traceback.format_exc())
            connection.send_bytes(cloudpickle.dumps(reply))


_shared: Dict[Any, World] = {}


def shared_world(np: int, hosts: Optional[str] = None) -> World:
    """A world of that size, started at first use and kept for the session; a broken one is replaced."""
    world = _shared.get((np, hosts))
    if world is None or world.broken:
        world = _shared[(np, hosts)] = World(np, hosts=hosts)
    return world


@atexit.register
def close_all() -> None:
    """Ends all shared worlds."""
    for world in _shared.values():
        if not world.broken:
            world.close()
    _shared.clear()
