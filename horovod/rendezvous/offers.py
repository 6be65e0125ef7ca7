# SPDX-License-Identifier: Apache-2.0
"""Meeting without a launcher of ours: rank 0 serves the store itself and tells the others where it is.

How it tells them is the only thing that differs: over MPI (over_mpi.py), through a private file
(over_file.py), through PyTorch's store (readers/torchrun.py), or they know already (readers/plain.py).
"""

from __future__ import annotations

import atexit
import base64
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from horovod.rendezvous import auth
from horovod.rendezvous.errors import StoreError
from horovod.rendezvous.store import StoreClient

if TYPE_CHECKING:
    from horovod.rendezvous.identity import Identity
    from horovod.rendezvous.store_server import Event, StoreServer


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
        failure = StoreError("the job's store has no address")
        for address in self.addresses:
            share = timeout / len(self.addresses)
            try:
                return StoreClient(address, self.port, self.secret, host=me.host, rank=me.rank, timeout=share)
            except StoreError as error:
                failure = error
        raise failure


# One server and one offer per job and process: a later hvd.init() meets at the same place.
_servers: Dict[str, StoreServer] = {}
_offers: Dict[str, Offer] = {}


def name_of(job: str, me: Identity) -> str:
    """The name of a meeting: worlds of part of a job's ranks meet at places of their own.

    So hvd.init(comm=[1, 2]) works while rank 0, which serves the whole job's store, has not called it yet.
    """
    return f"{job} only {','.join(map(str, me.group))}" if me.group else job


def serve(
    job: str,
    addresses: List[str],
    size: Optional[int],
    port: int = 0,
    secret: Optional[bytes] = None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> Offer:
    """Starts the store in this process (rank 0) and returns where it is."""
    from horovod.rendezvous.store_server import StoreServer

    server = StoreServer(secret or auth.make_secret(), addresses, port, size, on_event=on_event)
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
