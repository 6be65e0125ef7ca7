# SPDX-License-Identifier: Apache-2.0
"""The job's notice board: an authenticated key-value store, served by a thread of its own.

It listens on the addresses it is given (never on all of them by default), speaks to nobody before they proved
the job's secret (acceptor.py, auth.py), and stores bytes without ever looking inside them.
"""

from __future__ import annotations

import concurrent.futures
import socket
from typing import Callable, List, Mapping, Optional, Sequence, TypeVar

from horovod.rendezvous import store_wire as wire
from horovod.rendezvous.acceptor import Acceptor
from horovod.rendezvous.errors import StoreError
from horovod.rendezvous.generations import Seat
from horovod.rendezvous.network import address_of, listen, loopback
from horovod.rendezvous.store_service import Event, StoreService
from horovod.rendezvous.waits import Wait

__all__ = ["Event", "StoreServer"]

T = TypeVar("T")
_CLOSED = "the job's store is closed"


class StoreServer:
    """Serves the store of one job until close(). All methods may be called from any thread.

    Args:
        size: how many ranks are expected, so that others are refused.
        notice: called with a line of text for things worth telling the user that are not errors.
        sockets: listening already, instead of addresses and port; so that workers may be started before.
        on_event: called with what a driver wants to know, on the server's thread: it must not wait for it.
        driven: an elastic driver will `assign` ranks; workers that come before wait for it.
    """

    def __init__(
        self,
        secret: bytes,
        addresses: Optional[Sequence[str]] = None,
        port: int = 0,
        size: Optional[int] = None,
        notice: Callable[[str], None] = lambda text: None,
        sockets: Optional[List[socket.socket]] = None,
        on_event: Callable[[Event], None] = lambda event: None,
        driven: bool = False,
    ) -> None:
        self.secret = secret
        self._service = StoreService(self._later, size, notice, on_event, driven)
        listeners = sockets or listen(addresses or [loopback()], port)
        self.addresses = [address_of(one)[0] for one in listeners]
        self.address, self.port = address_of(listeners[0])
        serve = self._service.converse  # which needs `_acceptor` as soon as somebody comes
        self._acceptor = Acceptor(listeners, secret, wire.PURPOSE, serve, "horovod-store", starts=False)
        self._acceptor.start()

    @property
    def failure(self) -> Optional[str]:
        """The first reason given to fail(), if any."""
        return self._service.generations.failure

    def set(self, key: str, value: bytes) -> None:
        """Puts a value on the job's own board."""
        self._run(lambda: self._service.set(None, key, value))

    def get(self, key: str, timeout: float = 30.0) -> bytes:
        """A value of the job's own board; waits until somebody sets it, the job fails or the time is up."""
        found: concurrent.futures.Future[bytes] = concurrent.futures.Future()

        def answer(error: Optional[StoreError], value: bytes) -> None:
            if error is None:
                found.set_result(value)
            else:
                found.set_exception(error)

        def look() -> Optional[bytes]:
            self._service.generations.raise_failure()
            return self._service.values.get(key)

        wait = Wait((0, key), look, answer, lambda: f"waited {timeout:g} s for '{key}'", self)
        self._run(lambda: self._service.waits.add(wait, timeout))
        return found.result()

    def pop(self, key: str) -> Optional[bytes]:
        """Takes a value off the job's own board without waiting; None if nobody has set it."""
        return self._service.values.pop(key, None)

    def fail(self, reason: str) -> None:
        """The job has failed: every present and future call of every rank raises StoreError(reason)."""
        self._run(lambda: self._service.fail_job(reason))

    def lost(self, worker: str, cause: str) -> None:
        """A worker's process has ended; who waits for it in hvd.init() hears the cause at once.

        Args:
            worker: its rank as a text, or the id by which a driver knows it.
            cause: e.g. "rank 3 on node7 ended with exit code 1".
        """
        self._run(lambda: self._service.generations.lost(worker, cause))

    def assign(self, seats: Mapping[str, Seat]) -> int:
        """Opens the next generation of an elastic job: these workers, in these places. Returns its number."""
        return self._run(lambda: self._service.assign(seats))

    def dismiss(self, worker: str, reason: str) -> None:
        """The job goes on without this worker: it is told so when it asks for its place."""
        self._run(lambda: self._service.dismiss(worker, reason))

    def listen_also(self, address: str) -> int:
        """Serves on one more address of this machine; returns the port. For hosts that join a job later."""
        (sock,) = listen([address])
        self.addresses.append(address)
        self._run(lambda: self._acceptor.add(sock))
        return int(address_of(sock)[1])

    def linger(self, seconds: float) -> None:
        """Waits until nobody who is connected needs the store any more; for servers inside rank 0."""
        self._service.idle.wait(seconds)

    def close(self) -> None:
        """Hangs up on everybody and frees the ports. Idempotent."""
        if self._acceptor.alive:
            self._acceptor.call(lambda: self._service.waits.drop(self, StoreError(_CLOSED)))
        self._acceptor.close()

    def __enter__(self) -> StoreServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _later(self, seconds: float, function: Callable[[], None]) -> None:
        self._acceptor.later(seconds, function)

    def _run(self, function: Callable[[], T]) -> T:
        try:
            return self._acceptor.call(function).result()
        except concurrent.futures.CancelledError:
            raise StoreError(_CLOSED) from None
