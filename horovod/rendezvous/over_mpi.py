# SPDX-License-Identifier: Apache-2.0
"""Meeting over MPI itself: rank 0's offer is broadcast on a communicator of ours.

The secret travels over MPI's own transport, so it is as private as the messages of your MPI job are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

from horovod.common import _native, config
from horovod.common.constants import OK
from horovod.rendezvous import mpi_library, offers
from horovod.rendezvous.errors import StoreError
from horovod.rendezvous.identity import Identity, host_name
from horovod.rendezvous.network import loopback, machine_key, own_addresses, route_to
from horovod.rendezvous.store import StoreClient


@dataclass(frozen=True)
class _Meeting:
    """What ranks that met over MPI keep for the next hvd.init()."""

    comm: mpi_library.Communicator
    offer: offers.Offer


_meetings: Dict[str, _Meeting] = {}


def meet_over_mpi(family: Optional[str], expected: str) -> Callable[[Identity, float], StoreClient]:
    """A meet function for ranks that an mpirun started.

    family: whose mpirun it was. expected: what the launcher's variables say, for the error text.
    """

    def meet(me: Identity, timeout: float) -> StoreClient:
        name = offers.name_of("mpi", me)
        try:
            if name not in _meetings:
                _meetings[name] = _agree(_communicator(me, family, expected), name, timeout)
            meeting = _meetings[name]
            _tell_engine(meeting.comm)
        except mpi_library.MpiError as error:
            raise StoreError(str(error)) from error
        return meeting.offer.connect(me, timeout)

    return meet


def _communicator(me: Identity, family: Optional[str], expected: str) -> mpi_library.Communicator:
    """One of our own over the ranks of this world. Collective over them."""
    library = mpi_library.load(family)
    library.start()
    world = library.world()
    job_rank = me.group[me.rank] if me.group else me.rank
    if world.rank != job_rank or (not me.group and world.size != me.size):
        raise mpi_library.MpiError(
            f"the launcher says this is rank {job_rank} ({expected}), but {library.path} "
            f"({library.version()}) says rank {world.rank} of {world.size}. The mpirun used and this libmpi "
            "belong to different MPI installations: use the mpirun beside that library, or set "
            f"{mpi_library.LIBRARY_VARIABLE}"
        )
    return world.part(me.group) if me.group else world.duplicate()


def _agree(comm: mpi_library.Communicator, name: str, timeout: float) -> _Meeting:
    """Rank 0 of a communicator serves the store; everybody learns where. Collective."""
    cards = [json.loads(one) for one in comm.allgather(_facts(), timeout)]
    mine: Optional[offers.Offer] = None
    if comm.rank == 0:
        mine = offers.serve(name, _addresses_for(cards), comm.size)
    data = comm.bcast(mine.to_bytes() if mine else None, 0, timeout)
    return _Meeting(comm, mine or offers.Offer.from_bytes(data))


def identity_of(comm: Any) -> Identity:
    """The world of an mpi4py communicator: hvd.init(comm=MPI.COMM_WORLD.Split(...)). Collective over it."""
    library = mpi_library.load()
    own = library.adopt(comm).duplicate()

    def meet(me: Identity, timeout: float) -> StoreClient:
        _tell_engine(own)
        return _agree(own, f"communicator {own.handle}", timeout).offer.connect(me, timeout)

    meets = meet if own.size > 1 else None
    name = "an mpi4py communicator"
    return Identity(own.rank, own.size, host_name(), name, meet=meets, found_by=f"{name} of {own.size} ranks")


def _facts() -> bytes:
    return json.dumps({"addresses": own_addresses(), "machine": machine_key()}).encode()


def _addresses_for(cards: List[Dict[str, Any]]) -> List[str]:
    """Rank 0's addresses on the routes to the others; loopback when all of them are here.

    An address that both machines have (a container bridge such as 172.17.0.1) leads nowhere and is skipped.
    """
    ours = set(cards[0]["addresses"])
    found: List[str] = []
    for card in cards:
        if card["machine"] != cards[0]["machine"]:
            routes = (route_to(theirs) for theirs in card["addresses"] if theirs not in ours)
            found += [route for route in routes if route is not None][:1]
    return list(dict.fromkeys(found)) or [loopback()]


def _tell_engine(comm: mpi_library.Communicator) -> None:
    """Hands library and communicator to the engine's MPI transport, if the user wants data over MPI."""
    if str(config.get("cpu_operations")).lower() != "mpi":
        return
    level = comm.mpi.thread_level()
    if level == "none":
        raise mpi_library.MpiError(
            "HOROVOD_CPU_OPERATIONS=mpi needs an MPI that allows calls from another thread, but MPI was "
            "initialised without it (by mpi4py?). Set mpi4py.rc.thread_level = 'multiple' before importing "
            "mpi4py.MPI, "
            "or leave HOROVOD_CPU_OPERATIONS unset"
        )
    if _native.lib().hvd_mpi_attach(comm.mpi.path.encode(), comm.handle) != OK:
        raise mpi_library.MpiError(
            f"{comm.mpi.path} lacks calls that the data path needs; unset HOROVOD_CPU_OPERATIONS"
        )
