# SPDX-License-Identifier: Apache-2.0
"""Worlds of ranks for tests.

    run_world(fn, np=2)                    start, call fn on every rank, end; results in rank order
    shared_world(2).run(fn, argument)      the same on a world that stays up for the whole test session

Functions are sent by value, so they may live in test modules, and may use what those import.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import traceback
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import cloudpickle

SUPPORT = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(SUPPORT))


class RanksFailed(AssertionError):
    """A function failed on some ranks; the text has every traceback."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the main thread after that time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(signum: int, frame: Any) -> None:
        raise TimeoutError(f"the ranks did not finish within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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

    with time_limit(timeout):
        return horovod.run(_call, (by_value(fn), args), np=np, env=worker_env(env), hosts=hosts)


class World:
    """Ranks that stay up and run one function after another."""

    def __init__(self, np: int, env: Optional[Dict[str, str]] = None, hosts: Optional[str] = None) -> None:
        self.np = np
        self.broken = False
        directory = tempfile.mkdtemp(prefix="hvd-test-")
        address, key = os.path.join(directory, "s"), secrets.token_bytes(16)
        listener = Listener(address, "AF_UNIX", backlog=64, authkey=key)
        self._thread = threading.Thread(
            target=self._launch, args=(np, worker_env(env), hosts, address, key), daemon=True
        )
        self._failure: Optional[BaseException] = None
        self._thread.start()
        self._ranks: Dict[int, Connection] = {}
        try:
            with time_limit(240):
                while len(self._ranks) < np:
                    connection = listener.accept()
                    self._ranks[connection.recv()] = connection
        except (OSError, EOFError, AuthenticationError) as error:
            raise RanksFailed(f"a world of {np} did not start: {self._failure or error!r}") from error
        finally:
            listener.close()
            with contextlib.suppress(OSError):
                os.unlink(address)
            os.rmdir(directory)

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
        """Calls fn(*args) on every rank; results in rank order. Raises RanksFailed with all tracebacks."""
        payload = by_value(fn)
        try:
            for rank in range(self.np):
                self._ranks[rank].send_bytes(cloudpickle.dumps((payload, args)))
            with time_limit(timeout):
                replies = [cloudpickle.loads(self._ranks[rank].recv_bytes()) for rank in range(self.np)]
        except (TimeoutError, EOFError, OSError) as error:
            self.close()
            raise RanksFailed(f"a world of {self.np} was lost: {error!r} {self._failure or ''}") from error
        texts = [f"rank {rank}:\n{text}" for rank, (ok, text) in enumerate(replies) if not ok]
        if texts:
            raise RanksFailed("\n".join(texts))
        return [value for _, value in replies]

    def close(self) -> None:
        """Ends the ranks."""
        self.broken = True
        for connection in self._ranks.values():
            connection.close()
        self._thread.join(60)


def _serve(address: str, key: bytes) -> None:
    """What every rank of a World runs."""
    import horovod.numpy as hvd

    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    hvd.init()
    with Client(address, "AF_UNIX", authkey=key) as connection:
        connection.send(hvd.rank())
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
