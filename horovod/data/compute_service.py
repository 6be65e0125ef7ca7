# SPDX-License-Identifier: Apache-2.0
"""Where the dispatchers and workers of a tf.data service, and the trainers that use it, find each other.

    ComputeService     runs once, beside the workers; tells everybody who asks
    ComputeClient      registers a dispatcher or a worker there, or waits for them

Both prove that they hold the key before a byte is parsed, as everywhere here (horovod.rendezvous.acceptor).
The data itself goes over TensorFlow's own connections, see docs/data_service.md.
"""

from __future__ import annotations

import errno
import json
import socket
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from horovod.data import compute_wire as wire
from horovod.data.compute_registry import ComputeRegistry
from horovod.rendezvous import store_wire
from horovod.rendezvous.acceptor import Acceptor
from horovod.rendezvous.connection import Connection, Conversation
from horovod.rendezvous.errors import CannotListen, StoreError, StoreTimeout, WireError
from horovod.rendezvous.network import address_of, interface_address, listen
from horovod.rendezvous.waits import Wait, Waits


class ComputeService:
    """Serves until shutdown(), on all interfaces of this machine or on those given.

    Args:
        dispatchers: how many dispatchers there will be.
        workers_per_dispatcher: how many workers each of them will have.
        key: what clients must prove to hold.
        nics: names of interfaces to listen on, e.g. {"eth0"}.

    Raises:
        ValueError: if there is to be no dispatcher or no worker, or an interface does not exist.
    """

    def __init__(
        self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Optional[Sequence[str]] = None
    ) -> None:
        self._registry = ComputeRegistry(dispatchers, workers_per_dispatcher)
        self._waits = Waits(lambda seconds, function: self._acceptor.later(seconds, function))
        self._shut_down = threading.Event()
        interfaces, listeners = _listen(nics)
        port = address_of(listeners[0])[1]
        self._addresses = {name: [(address, port)] for name, address in interfaces.items()}
        self._acceptor = Acceptor(listeners, key, wire.PURPOSE, self._serve, "horovod-compute", starts=False)
        self._acceptor.start()

    def addresses(self) -> Dict[str, List[Tuple[str, int]]]:
        """Where to reach it, by interface."""
        return {name: list(places) for name, places in self._addresses.items()}

    def wait_for_shutdown(self) -> None:
        """Returns once somebody has called shutdown(), here or through a client."""
        self._shut_down.wait()

    def shutdown(self) -> None:
        """Tells all who wait for it, and stops serving. Idempotent."""
        if self._acceptor.alive:
            self._acceptor.call(self._end).exception()
        self._shut_down.set()
        self._acceptor.close()

    def __enter__(self) -> ComputeService:
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()

    # ---------------------------------------------------------------------- the acceptor's thread

    def _serve(self, connection: Connection) -> Conversation:
        incoming = store_wire.Signer(connection.key, store_wire.TO_SERVER)
        outgoing = store_wire.Signer(connection.key, store_wire.TO_CLIENT)
        connection.take_your_time()

        def answer(message: Dict[str, Any]) -> None:
            for part in wire.pack(message, outgoing):
                connection.send(part)

        try:
            while True:
                length = wire.frame_length((yield store_wire.LENGTH.size))
                payload = yield length
                self._request(
                    wire.unpack(payload, (yield store_wire.MAC_BYTES), incoming), answer, connection
                )
        finally:
            self._waits.drop(connection)

    def _request(
        self, message: Dict[str, Any], answer: Callable[[Dict[str, Any]], None], owner: Connection
    ) -> None:
        try:
            do, args = str(message["do"]), list(message["args"])
            seconds = store_wire.seconds(float(message["seconds"]))
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"malformed request: {error!r}") from error
        try:
            if do == "register_dispatcher":
                self._registry.register_dispatcher(int(args[0]), str(args[1]))
                self._waits.look_again((0, "dispatchers"))
                answer({"value": None})
            elif do == "register_worker":
                self._registry.register_worker(int(args[0]), int(args[1]))
                self._waits.look_again((0, "workers"))
                answer({"value": None})
            elif do == "wait_for_dispatcher":
                number = int(args[0])
                self._wait("dispatchers", lambda: self._registry.dispatcher(number), answer, seconds, owner)
            elif do == "wait_for_workers":
                number = int(args[0])
                self._wait("workers", lambda: self._registry.complete(number) or None, answer, seconds, owner)
            elif do == "wait_for_shutdown":
                self._wait("shutdown", lambda: self._shut_down.is_set() or None, answer, seconds, owner)
            elif do == "shutdown":
                answer({"value": None})
                self._end()
            else:
                raise WireError(f"unknown request {do!r}")
        except (IndexError, ValueError) as error:
            answer({"error": type(error).__name__, "text": str(error)})

    def _wait(
        self, topic: str, found: Callable[[], Any], answer: Callable[[Dict[str, Any]], None], seconds: float,
        owner: Connection,
    ) -> None:  # fmt: skip
        """Answers with what is found, as soon as it is; the first look may raise."""

        def look() -> Optional[bytes]:
            value = found()
            return None if value is None else json.dumps(value).encode()

        def tell(error: Optional[StoreError], value: bytes) -> None:
            late = isinstance(error, StoreTimeout)
            answer({"error": "TimeoutException", "text": ""} if late else {"value": json.loads(value)})

        self._waits.add(Wait((0, topic), look, tell, lambda: "", owner), seconds)

    def _end(self) -> None:
        self._shut_down.set()
        self._waits.look_again((0, "shutdown"))


def _listen(nics: Optional[Sequence[str]]) -> Tuple[Dict[str, str], List[socket.socket]]:
    """Interfaces with their addresses, and a socket that listens on each."""
    while True:
        interfaces = _interfaces(nics)
        try:
            return interfaces, listen(list(interfaces.values()))
        except CannotListen as error:
            # One of all may have gone since they were listed, as those of containers do.
            if nics or error.errno != errno.EADDRNOTAVAIL or interfaces == _interfaces(nics):
                raise


def _interfaces(nics: Optional[Sequence[str]]) -> Dict[str, str]:
    """Interfaces with their addresses, e.g. {"lo": "127.0.0.1", "eth0": "10.0.0.1"}."""
    if nics:
        return {name: interface_address(name) for name in sorted(nics)}
    found: Dict[str, str] = {}
    for _, name in socket.if_nameindex():
        try:
            found[name] = interface_address(name)
        except ValueError:
            pass  # down
    return found
