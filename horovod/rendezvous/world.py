# SPDX-License-Identifier: Apache-2.0
"""Who sits where: the ranks and hosts of a world, as one rank knows them after the bootstrap."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Sequence, Tuple

from horovod.common import _native
from horovod.common._native import Link
from horovod.common.exceptions import HorovodInternalError
from horovod.rendezvous.shared_memory import SharedMemory

Place = Tuple[int, int, int, int]


class World:
    """What a started rank remembers about its world, to open further links later.

    Attributes:
        generation: which life of the job's world this is; 0 for a process alone, whom nobody counts.
        secret: the job's; b"" for a process alone.
        place: local rank and size, cross rank and size where a driver has decided them, so that they survive
            a change of ranks; None: they follow from the order of the ranks.
    """

    def __init__(
        self,
        rank: int,
        table: List[Dict[str, Any]],
        secret: bytes,
        generation: int,
        place: Optional[Place] = None,
    ) -> None:
        self.place = place
        self.rank = rank
        self.size = len(table)
        self.secret = secret
        self.generation = generation
        self.address: str = table[rank]["address"]
        keys = [card["host_key"] for card in table]
        order = list(dict.fromkeys(keys))  # hosts in order of their first rank
        self.host_of_rank = [order.index(key) for key in keys]
        first = [keys.index(key) for key in order]
        self.host_names = distinct([str(table[r]["host"]) for r in first])
        mine = self.host_of_rank[rank]
        self.local_ranks = [r for r in range(self.size) if self.host_of_rank[r] == mine]

    @property
    def is_elastic(self) -> bool:
        """Whether a driver decides who is in this world, and with which numbers."""
        return self.place is not None

    @property
    def n_hosts(self) -> int:
        """Number of hosts in the world."""
        return len(self.host_names)

    def describe(self, rank: int) -> str:
        """For errors: "rank 3 on node7"."""
        return f"rank {rank} on {self.host_names[self.host_of_rank[rank]]}"

    def for_engine(self, memory: Optional[SharedMemory] = None) -> _native.World:
        """The engine's view."""
        doorbells = None
        if memory is not None:
            doorbells = (ctypes.c_int32 * len(memory.doorbells))(*memory.doorbells)
        return _native.World(
            ctypes.sizeof(_native.World),
            self.rank,
            self.size,
            self.n_hosts,
            self.generation,
            (ctypes.c_int32 * self.size)(*self.host_of_rank),
            (ctypes.c_char_p * self.n_hosts)(*[name.encode() for name in self.host_names]),
            memory.shm_fd if memory is not None else -1,
            doorbells,
        )

    def plan(self, members: Sequence[int], process_set: int) -> List[Link]:
        """The links this rank needs for a process set."""
        lib, world = _native.lib(), self.for_engine()
        ranks = (ctypes.c_int32 * max(len(members), 1))(*members)
        count = lib.hvd_plan_links(world, ranks, len(members), process_set, None, 0)
        if count < 0:
            raise HorovodInternalError(_native.last_error())
        planned = (Link * max(count, 1))()
        lib.hvd_plan_links(world, ranks, len(members), process_set, planned, count)
        return list(planned)[:count]


def distinct(names: List[str]) -> List[str]:
    """Host names as shown in errors; a second machine of the same name gets a number."""
    shown: List[str] = []
    for name in names:
        twins = sum(1 for earlier in names[: len(shown)] if earlier == name)
        shown.append(f"{name}#{twins + 1}" if twins else name)
    return shown


def alone(host: str, generation: int = 0, place: Optional[Place] = None) -> World:
    """The world of one process."""
    return World(0, [{"address": "", "host": host, "host_key": host}], b"", generation, place)
