# SPDX-License-Identifier: Apache-2.0
"""Meeting without a launcher of ours: rank 0 serves the store itself and tells the others where it is.

How it tells them is the only thing that differs: over MPI (over_mpi.py), through a private file
(over_file.py), through torchrun's store (readers/torchrun.py), or they know already (readers/plain.py).
"""

from __future__ import annotations

import atexit
import base64
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, List, Optional

from horovod.rendezvous import auth
from horovod.rendezvous.network import LOOPBACK, own_addresses, route_to
from horovod.rendezvous.store import StoreClient

if TYPE_CHECKING:
    from horovod.rendezvous.identity import Identity
    from horovod.rendezvous.store_server import StoreServer


@dataclass(frozen=True)
class Offer:
    """Where the store is, and the secret to enter it."""

    addresses: List[str]
    port: int
    secret: bytes

    def to_bytes(self) -> bytes:
        """As JSON."""
        secret = base64.b64encode(self.secret).decode()
        return json.dumps({"addresses": self.addresses, "port": self.port, "secret": secret}).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Offer:
        """From JSON."""
        found = json.loads(data)
        return Offer(
            [str(a) for a in found["addresses"]], int(found["port"]), base64.b64decode(found["secret"])
        )

    def connect(self, me: Identity, timeout: float) -> StoreClient:
        """Enters the store at the first address that answers."""
        error: Optional[Exception] = None
        for address in self.addresses:
            share = timeout / len(self.addresses)
            try:
                return StoreClient(
                    address, self.port, self.secret, rank=me.rank, size=me.size, host=me.host, timeout=share
                )
            except RuntimeError as failure:
                error = failure
        assert error is not None
        raise error


# One server and one offer per job and process: a later hvd.init() meets at the same place.
_servers: Dict[str, StoreServer] = {}
_offers: Dict[str, Offer] = {}


def serve(job: str, addresses: List[str], size: int, port: int = 0, secret: Optional[bytes] = None) -> Offer:
    """Starts the store in this process (rank 0) and returns where it is."""
    from horovod.rendezvous.store_server import StoreServer

    server = StoreServer(secret or auth.make_secret(), addresses, port, size)
    _servers[job] = server
    atexit.register(_leave, server, os.getpid())
    return remember(job, Offer(server.addresses, server.port, server.secret))


def _leave(server: StoreServer, owner: int) -> None:
    """A short script's rank 0 may end while others still read the board: it waits for them, not for ever."""
    if os.getpid() == owner:
        server.linger(5.0)
        server.close()


def remember(job: str, offer: Offer) -> Offer:
    """Keeps an offer for the next hvd.init() of this process."""
    _offers[job] = offer
    return offer


def remembered(job: str) -> Optional[Offer]:
    """The offer of an earlier hvd.init()."""
    return _offers.get(job)


def primary_address(towards: Optional[str] = None) -> str:
    """This machine's address on the route towards a host (or the world); loopback without a network."""
    somewhere = "203.0.113.1"  # reserved for documentation: any route will do
    found = (route_to(towards) if towards else None) or route_to(somewhere)
    return found or next(iter(own_addresses()), LOOPBACK)
