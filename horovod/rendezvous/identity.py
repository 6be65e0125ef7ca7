# SPDX-License-Identifier: Apache-2.0
"""Who this process is in the job, and how it meets the others.

`detect()` asks the readers (horovod/rendezvous/readers, one file per launcher) in order; the first that
recognises its launcher's environment wins. Without a launcher the process is a world of its own.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Callable, List, Mapping, Optional, Sequence

from horovod.rendezvous.store import StoreClient, StoreError

UNKNOWN = -1


@dataclass(frozen=True)
class Identity:
    """One rank, as its launcher describes it. Numbers the launcher does not tell are UNKNOWN (-1)."""

    rank: int
    size: int
    host: str  # shown in errors; ranks with equal host share memory
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

    def open_store(self, timeout: float = 30.0) -> StoreClient:
        """A connection to the store that all ranks of this job share."""
        if self.meet is None:
            raise StoreError("a world of one process has no store")
        return self.meet(self, timeout)


def subset(identity: Identity, ranks: Sequence[int]) -> Identity:
    """The world of only these ranks of a job, in this order, as seen by one of them: hvd.init(comm=[0, 2]).

    Each of them must name the same ranks. Other ranks may form worlds of their own with other lists.
    """
    chosen = [int(rank) for rank in ranks]
    if chosen == list(range(identity.size)) or not chosen:
        return identity
    if len(set(chosen)) != len(chosen) or not all(0 <= rank < identity.size for rank in chosen):
        raise ValueError(f"hvd.init(comm={chosen}): ranks must be different and below {identity.size}")
    if identity.rank not in chosen:
        raise ValueError(
            f"hvd.init(comm={chosen}) on rank {identity.rank}, which is not in the list; "
            "call it on the listed ranks only, or with a list that contains the caller"
        )

    def meet(me: Identity, timeout: float) -> StoreClient:
        store = identity.open_store(timeout)
        store.scope = f"only {chosen}/"
        return store

    mine = chosen.index(identity.rank)
    meets = meet if len(chosen) > 1 else None
    text = f"{identity.found_by}; ranks {chosen} only"
    return Identity(mine, len(chosen), identity.host, identity.launcher, meet=meets, found_by=text)


def alone() -> Identity:
    """A process that nobody launched: rank 0 of 1."""
    return Identity(0, 1, host_name(), "none", 0, 1, 0, 1, found_by="no launcher's variables are set")


def host_name() -> str:
    """This host as errors should call it."""
    return os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()


def detect(env: Optional[Mapping[str, str]] = None) -> Identity:
    """Who this process is, according to the first launcher recognised."""
    from horovod.rendezvous.readers import READERS

    variables = os.environ if env is None else env
    for read in READERS:
        identity = read(variables)
        if identity is not None:
            return check(identity)
    return alone()


def check(identity: Identity) -> Identity:
    """Refuses numbers that cannot be, naming the launcher they came from."""
    if not 0 <= identity.rank < identity.size:
        raise ValueError(
            f"{identity.launcher} says this is rank {identity.rank} of {identity.size}, which cannot be "
            f"({identity.found_by}). Were these variables copied from another job?"
        )
    if identity.size == 1:
        return Identity(0, 1, identity.host, identity.launcher, 0, 1, 0, 1, None, identity.found_by)
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
