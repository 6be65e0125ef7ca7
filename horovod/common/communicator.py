# SPDX-License-Identifier: Apache-2.0
"""A world from an mpi4py communicator: ``hvd.init(comm=MPI.COMM_WORLD.Split(...))``."""

from __future__ import annotations

import socket
from typing import Any, List

from horovod.common import auth


def identity_of(comm: Any) -> Any:
    """An identity whose rank and size are the communicator's, meeting over a store that its rank 0 serves."""
    from horovod.runner.identity import Identity, host_name
    from horovod.runner.store import StoreClient

    rank, size = comm.Get_rank(), comm.Get_size()
    servers: List[Any] = []  # kept alive by the closure below

    def meet(identity: Identity, timeout: float) -> StoreClient:
        offer = None
        if rank == 0:
            from horovod.runner.store_server import StoreServer

            secret = auth.make_secret()
            server = StoreServer(secret, [_own_address()], size=size)
            servers.append(server)
            offer = (server.address, server.port, secret)
        address, port, secret = comm.bcast(offer, root=0)
        return StoreClient(address, port, secret, rank=rank, size=size, host=identity.host, timeout=timeout)

    return Identity(rank, size, host_name(), "an mpi4py communicator", meet=meet if size > 1 else None)


def _own_address() -> str:
    """This host's address on the way to others; loopback when it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 9))  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
