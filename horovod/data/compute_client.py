# SPDX-License-Identifier: Apache-2.0
"""The other end of compute_service.py: registers a dispatcher or a worker there, or waits for them."""

from __future__ import annotations

import logging
import socket
import time
from typing import Any, Mapping, Sequence, Tuple

from horovod.common.exceptions import TimeoutException
from horovod.data import compute_wire as wire
from horovod.rendezvous import store_wire
from horovod.rendezvous.dialling import dial
from horovod.rendezvous.network import is_loopback, read_exactly

log = logging.getLogger("horovod")

Addresses = Mapping[str, Sequence[Tuple[str, int]]]  # by interface: {"eth0": [("10.0.0.1", 4711)]}
_LATE = (
    "Timed out waiting for {who} to register. Try to find out what takes the {what} so long to register or "
    "increase timeout."
)
_DIAL_SECONDS = 5.0  # for one address; the next one may be the right one
_GRACE_SECONDS = 30.0  # for an answer, beyond the time the service may wait itself
_DAY = 86400.0


class ComputeClient:
    """Talks to a ComputeService. Each call is a connection of its own; they may come from any thread.

    Args:
        addresses: the service's, by interface; the first that answers with the key is used.
        key: the service's.
        verbose: 2 logs each call.
    """

    def __init__(self, addresses: Addresses, key: bytes, verbose: int = 1) -> None:
        places = [(str(host), int(port)) for ports in addresses.values() for host, port in ports]
        # Elsewhere, the loopback interface leads to some other program.
        self._places = sorted(places, key=lambda place: is_loopback(place[0]))
        self._key = key
        self._verbose = verbose

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Says where a dispatcher is, e.g. (0, "grpc://10.0.0.1:4711").

        Raises:
            IndexError: there is no such dispatcher.
            ValueError: it is registered already, elsewhere.
        """
        self._ask("register_dispatcher", dispatcher_id, dispatcher_address)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """The address of a dispatcher; waits for it.

        Raises:
            IndexError: there is no such dispatcher.
            TimeoutException: it did not register in time.
        """
        late = _LATE.format(who=f"dispatcher {dispatcher_id}", what="dispatcher")
        return str(self._ask("wait_for_dispatcher", dispatcher_id, seconds=timeout, late=late))

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Says that a worker works for a dispatcher.

        Raises:
            IndexError: there is no such dispatcher.
        """
        self._ask("register_worker", dispatcher_id, worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Waits for all workers of a dispatcher.

        Raises:
            IndexError: there is no such dispatcher.
            TimeoutException: some did not register in time.
        """
        late = _LATE.format(who=f"workers for dispatcher {dispatcher_id}", what="workers")
        self._ask("wait_for_workers", dispatcher_id, seconds=timeout, late=late)

    def shutdown(self) -> None:
        """Ends the service, and with it its dispatchers and workers. Fine if it has ended already."""
        try:
            self._ask("shutdown")
        except ConnectionRefusedError:
            log.debug("the compute service has ended already")

    def wait_for_shutdown(self) -> None:
        """Returns when the service ends, in whatever way."""
        while True:
            try:
                self._ask("wait_for_shutdown", seconds=_DAY)
                return
            except TimeoutException:
                continue
            except OSError as error:
                log.info("the compute service is gone (%s)", error)
                return

    def _ask(self, do: str, *args: Any, seconds: float = 0.0, late: str = "") -> Any:
        if self._verbose >= 2:
            log.info("compute service: %s %s", do, args)
        sock, key = self._connect()
        with sock:
            sock.settimeout(seconds + _GRACE_SECONDS)
            signer = store_wire.Signer(key, store_wire.TO_SERVER)
            for part in wire.pack({"do": do, "args": args, "seconds": seconds}, signer):
                sock.sendall(part)
            payload = read_exactly(sock, wire.frame_length(read_exactly(sock, store_wire.LENGTH.size)))
            mac = read_exactly(sock, store_wire.MAC_BYTES)
        reply = wire.unpack(payload, mac, store_wire.Signer(key, store_wire.TO_CLIENT))
        if "error" in reply:
            text = str(reply.get("text")) or f"{late} Timeout after {seconds} seconds."
            raise wire.ERRORS.get(str(reply["error"]), RuntimeError)(text)
        return reply.get("value")

    def _connect(self) -> Tuple[socket.socket, bytes]:
        failure: OSError = ConnectionRefusedError("no address is known")
        for place in self._places:
            try:
                return dial(place, self._key, wire.PURPOSE, time.monotonic() + _DIAL_SECONDS, waits=False)
            except OSError as error:
                failure = error
        where = ", ".join(f"{host}:{port}" for host, port in self._places)
        kind = ConnectionRefusedError if isinstance(failure, ConnectionRefusedError) else ConnectionError
        raise kind(
            f"cannot reach the compute service at {where}: {failure}. Do its workers still run?"
        ) from failure
