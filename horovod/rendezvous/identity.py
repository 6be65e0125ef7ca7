# SPDX-License-Identifier: Apache-2.0
"""Who this process is in the job, and how it meets the others.

    identity = detect()                          who am I, according to the launcher (detection.py)
    store = identity.open_store(30)              where the ranks of this job meet
    seat = store.join(identity.claim(), 30)      which rank, of how many, in which generation
    me = identity.seated(seat)

In a static job the seat repeats what the launcher's variables say; in an elastic one (`worker` is set) the
driver decides, and rank and size are unknown before.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from horovod.rendezvous.errors import StoreError
from horovod.rendezvous.generations import UNKNOWN, Claim, Seat
from horovod.rendezvous.store import StoreClient


@dataclass(frozen=True)
class Identity:
    """One rank, as its launcher describes it. Numbers the launcher does not tell are UNKNOWN (-1)."""

    rank: int
    size: int
    host: str  # as shown in errors, e.g. "node7"
    launcher: str  # e.g. "horovodrun" or "Open MPI's mpirun"
    local_rank: int = UNKNOWN
    local_size: int = UNKNOWN
    cross_rank: int = UNKNOWN
    cross_size: int = UNKNOWN
    # Connects to the job's store within the given seconds, starting the server first where it is this
    # rank's duty. None for a world of one.
    meet: Optional[Callable[[Identity, float], StoreClient]] = None
    # How ranks found out who they are, in words, for `horovodrun --check` and errors.
    found_by: str = ""
    # Ranks with equal keys share memory, if they run on one machine; "": the host's name decides. For
    # launchers whose names of hosts are not for reading (a Ray node id).
    host_key: str = ""
    # The id by which an elastic driver knows this process while its rank changes, e.g. "node7[1]".
    worker: str = ""
    # The ranks of the job that form this world, in their new order: hvd.init(comm=[2, 0]). (): all.
    group: Tuple[int, ...] = ()
    # Which life of the world this is, once seated.
    generation: int = 0

    def __str__(self) -> str:
        who = f"rank {self.rank}" if self.rank != UNKNOWN else f"worker {self.worker}"
        return f"{who} on {self.host}"

    def open_store(self, timeout: float = 30.0) -> StoreClient:
        """A connection to the store that all ranks of this job share."""
        if self.meet is None:
            raise StoreError("a world of one process has no store")
        return self.meet(self, timeout)

    def claim(self) -> Claim:
        """What to ask the store for."""
        return Claim(self.worker, self.rank, self.size, self.group, self.host, os.getpid())

    def seated(self, seat: Seat) -> Identity:
        """This process in the generation it was given a place in."""
        given: Dict[str, Any] = dict(seat.as_dict())
        return replace(self, **{name: value for name, value in given.items() if value != UNKNOWN})


def subset(identity: Identity, ranks: Sequence[int]) -> Identity:
    """The world of only these ranks of a job, in this order, as seen by one of them: hvd.init(comm=[0, 2]).

    Each of them must name the same ranks. Other ranks may form worlds of their own with other lists.
    """
    chosen = [int(rank) for rank in ranks]
    if chosen == list(range(identity.size)) or not chosen:
        return identity
    if identity.worker:
        raise ValueError(
            f"hvd.init(comm={chosen}): the ranks of an elastic job are not known before hvd.init()"
        )
    if len(set(chosen)) != len(chosen) or not all(0 <= rank < identity.size for rank in chosen):
        raise ValueError(f"hvd.init(comm={chosen}): ranks must be different and below {identity.size}")
    if identity.rank not in chosen:
        raise ValueError(
            f"hvd.init(comm={chosen}) on rank {identity.rank}, which is not in the list; "
            "call it on the listed ranks only, or with a list that contains the caller"
        )
    return replace(
        identity,
        rank=chosen.index(identity.rank),
        size=len(chosen),
        local_rank=UNKNOWN,
        local_size=UNKNOWN,
        cross_rank=UNKNOWN,
        cross_size=UNKNOWN,
        meet=identity.meet if len(chosen) > 1 else None,
        found_by=f"{identity.found_by}; ranks {chosen} only",
        group=tuple(chosen),
    )


def alone() -> Identity:
    """A process that nobody launched: rank 0 of 1."""
    return Identity(0, 1, host_name(), "none", 0, 1, 0, 1, found_by="no launcher's variables are set")


def host_name() -> str:
    """This host as errors should call it."""
    return os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()


def check(identity: Identity) -> Identity:
    """Refuses numbers that cannot be, naming the launcher they came from."""
    if identity.worker:
        return identity  # the driver knows
    if not 0 <= identity.rank < identity.size:
        raise ValueError(
            f"{identity.launcher} says this is rank {identity.rank} of {identity.size}, which cannot be "
            f"({identity.found_by}). Were these variables copied from another job?"
        )
    if identity.size == 1:
        return replace(identity, rank=0, local_rank=0, local_size=1, cross_rank=0, cross_size=1, meet=None)
    return identity


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks as people write them, e.g. "rank 3" or "ranks 0-2, 7"."""
    runs: List[List[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return ("rank " if len(ranks) == 1 else "ranks ") + (text or "none")
