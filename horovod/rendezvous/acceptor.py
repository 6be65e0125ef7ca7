# SPDX-License-Identifier: Apache-2.0
"""Takes connections and lets nobody further who has not proved the job's secret.

One thread serves everything that listens: the store, the links between ranks, the hand-out of shared memory.
A connection is led by a *conversation*, a generator that yields how many bytes it wants next and is sent
exactly those. The first conversation is always the handshake (auth.accept); the service's own follows:

    def serve(connection):              # runs on the acceptor's thread, must not block
        size = yield 8
        text = yield int.from_bytes(size, "big")
        connection.send(text.upper())

So the thread never waits for a single peer, and what a stranger sends or leaves unsent costs the job nothing:

- at most `stranger_limit()` connections may be unproven at a time; for one more, the oldest is dropped. The
  limit stays far below the process' limit of descriptors. (A real rank that is dropped so dials again.)
- each has HANDSHAKE_SECONDS to prove itself.
- whatever goes wrong with a connection ends that connection; the thread goes on.
- refusals are logged, at most one line a second.
"""

from __future__ import annotations

import collections
import concurrent.futures
import errno
import heapq
import itertools
import logging
import resource
import selectors
import socket
import threading
import time
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple, TypeVar

from horovod.rendezvous import auth
from horovod.rendezvous.complaints import Complaints
from horovod.rendezvous.connection import Connection, Conversation
from horovod.rendezvous.errors import AuthenticationError, OutOfDescriptors, is_exhaustion
from horovod.rendezvous.fork import guard
from horovod.rendezvous.network import tune

log = logging.getLogger("horovod")
T = TypeVar("T")

MAX_STRANGERS = 512
# New connections taken before those that already knocked are heard: a flood must not starve a handshake.
_GREETINGS = 32
# Without a descriptor left the kernel keeps newcomers waiting; how long until we look at them again.
_PAUSE_SECONDS = 0.1
_EXHAUSTED_SECONDS = 1.0


def stranger_limit() -> int:
    """How many unproven connections to hold: a quarter of the process' descriptors at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(min(MAX_STRANGERS, soft // 4), 4)


class Acceptor:
    """Serves listening sockets in a thread of its own until close().

    Args:
        listeners: taken over, and closed with the acceptor.
        secret: the job's.
        purpose: which service this is; a connection meant for another is refused.
        serve: the conversation with a peer that has proved the secret.
        starts: False: serves after `start()`, so that its owner can be complete before.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        secret: bytes,
        purpose: bytes,
        serve: Callable[[Connection], Conversation],
        name: str = "horovod-accept",
        starts: bool = True,
    ) -> None:
        self._secret, self._purpose, self._serve = secret, purpose, serve
        self._listeners = list(listeners)
        self._limit = stranger_limit()
        self._strangers: Dict[Connection, None] = {}  # unproven, the oldest first
        self._timed: Dict[Connection, None] = {}  # all that have a deadline, the nearest first
        self._connections: Dict[Connection, None] = {}
        self._timers: List[Tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._calls: Deque[Callable[[], None]] = collections.deque()
        self._log = Complaints()
        self._closing = self._over = False
        self._closing_lock = threading.Lock()
        self._exhausted_since: Optional[float] = None
        self._waker, self._wakened = (guard(end) for end in socket.socketpair())
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        for sock in (*self._listeners, self._wakened):
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        if starts:
            self.start()

    def start(self) -> None:
        """Serves from now on."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive() and not self._closing

    @property
    def exhausted(self) -> bool:
        """Whether newcomers cannot be taken for want of descriptors, though no stranger holds one."""
        since = self._exhausted_since
        return since is not None and time.monotonic() - since > _EXHAUSTED_SECONDS

    def call(self, function: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Runs a function on the acceptor's thread, where conversations run too: no locks needed.

        The future is cancelled if the acceptor is closed.
        """
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)

        self._calls.append(run)
        self._wake()
        if self._over:
            future.cancel()
        return future

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Runs a function after that time, if the acceptor still serves; from conversations only."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), function))

    def add(self, listener: socket.socket) -> None:
        """Serves one more listening socket; on the acceptor's thread only."""
        listener.setblocking(False)
        self._listeners.append(listener)
        self._selector.register(listener, selectors.EVENT_READ)

    def close(self) -> None:
        """Hangs up on everybody and frees the ports. Idempotent."""
        with self._closing_lock:
            self._closing = True
            self._wake()
            self._thread.join()
            for sock in (self._waker, self._wakened):
                sock.close()

    # ----------------------------------------------------------------------------- the thread

    def _wake(self) -> None:
        try:
            self._waker.send(b"x")
        except OSError:
            pass  # full: it will wake anyway; closed: there is nobody to wake

    def _run(self) -> None:
        while not self._closing:
            try:
                self._take_turn()
            except Exception as error:  # nobody's bytes, and no mistake of ours, may end this thread
                self._log.say(f"in {self._thread.name}: {error!r}")
        self._clear_away()

    def _take_turn(self) -> None:
        for key, mask in self._selector.select(self._patience()):
            if isinstance(key.data, Connection):
                self._guarded(key.data, mask)
            elif key.fileobj is self._wakened:
                self._wakened.recv(4096)
            else:
                self._greet(key.fileobj)  # type: ignore[arg-type]
        self._run_due()

    def _patience(self) -> Optional[float]:
        """How long nothing can be due."""
        moments = [when for when, _, _ in self._timers[:1]]
        moments += [connection.deadline for connection in itertools.islice(self._timed, 1)]
        return max(min(moments) - time.monotonic(), 0.0) if moments else None

    def _run_due(self) -> None:
        self._run_calls()
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        for connection in list(itertools.takewhile(lambda one: one.deadline <= now, self._timed)):
            late = "it did not prove the job's secret in time"
            self.drop(connection, TimeoutError(late), late)

    def _run_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()

    def _greet(self, listener: socket.socket) -> None:
        for _ in range(_GREETINGS):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if not is_exhaustion(error):
                    continue  # that one is gone again
                if not self._make_room():
                    self._pause(listener)
                    return
                continue
            self._exhausted_since = None
            self._welcome(guard(sock), address)

    def _welcome(self, sock: socket.socket, address: Any) -> None:
        local = not (isinstance(address, tuple) and len(address) > 1)
        connection = Connection(self, sock, "a local process" if local else f"{address[0]}:{address[1]}")
        sock.setblocking(False)
        for group in (self._strangers, self._timed, self._connections):
            group[connection] = None
        self._selector.register(sock, connection.events, connection)
        try:
            connection.begin(self._handshake(connection))
        except Exception as error:
            self.drop(connection, error, str(error))
        if len(self._strangers) > self._limit:
            self._make_room()

    def _handshake(self, connection: Connection) -> Conversation:
        connection.key = yield from auth.accept(self._secret, self._purpose, connection.send)
        del self._strangers[connection]
        tune(connection.sock)
        yield from self._serve(connection)

    def _guarded(self, connection: Connection, mask: int) -> None:
        """Whatever a connection does, it does to itself only."""
        try:
            if mask & selectors.EVENT_WRITE and connection.open:
                connection.on_writable()
            if mask & selectors.EVENT_READ and connection.open:  # it may have been dropped for another
                connection.on_readable()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.drop(connection, error, str(error))
        except Exception as error:
            log.exception("closing the connection from %s", connection.peer)
            self.drop(connection, error, str(error))

    def _make_room(self) -> bool:
        """Drops the oldest unproven connection; False if there is none."""
        oldest = next(iter(self._strangers), None)
        if oldest is None:
            return False
        crowd = ConnectionAbortedError(errno.ECONNABORTED, "too many connections that prove nothing")
        self.drop(oldest, crowd, "too many connections that prove nothing")
        return True

    def _pause(self, listener: socket.socket) -> None:
        self._exhausted_since = self._exhausted_since or time.monotonic()
        self._log.say(str(OutOfDescriptors()))
        self._selector.unregister(listener)

        def resume() -> None:
            self._selector.register(listener, selectors.EVENT_READ)

        self.later(_PAUSE_SECONDS, resume)

    def drop(self, connection: Connection, error: Optional[BaseException], why: str) -> None:
        """Ends a connection; says so in the log if it was one that should not get in."""
        if not connection.open:
            return
        if why and (connection in self._strangers or isinstance(error, AuthenticationError)):
            self._log.say(f"refused a connection from {connection.peer}: {why}")
        self.forget(connection)
        try:
            connection.end(error)
        except Exception:
            log.exception("after the connection from %s", connection.peer)
        connection.sock.close()

    def drop_soon(self, connection: Connection, error: OSError) -> None:
        """Ends a connection, but not in the middle of somebody else's turn."""
        self._calls.append(lambda: self.drop(connection, error, str(error)))
        self._wake()

    def trust(self, connection: Connection) -> None:
        """A connection has no time limit any more."""
        self._timed.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        """A connection is none of the acceptor's any more."""
        connection.open = False
        for group in (self._strangers, self._timed, self._connections):
            group.pop(connection, None)
        self._selector.unregister(connection.sock)

    def watch(self, connection: Connection) -> None:
        """Waits for what a connection wants now."""
        if connection.open:
            self._selector.modify(connection.sock, connection.events, connection)

    def _clear_away(self) -> None:
        for connection in list(self._connections):
            self.drop(connection, None, "")
        self._over = True
        self._run_calls()
        self._selector.close()
        for listener in self._listeners:
            listener.close()
        self._log.close()
