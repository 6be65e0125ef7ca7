# SPDX-License-Identifier: Apache-2.0
"""The processes of an elastic job, as its supervisor sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional

from horovod.rendezvous.generations import UNKNOWN
from horovod.runner.elastic.placement import Candidate

# A worker's stages: its process starts (and imports), it asks for a place in the world, it has one.
STARTING, WAITING, MEMBER = "starting", "waiting", "member"


@dataclass(eq=False)
class Worker:
    """One process.

    Attributes:
        number: by which host runners know it.
        name: by which the store knows it, e.g. "node7[1]#12". Never used twice.
        slot: of its host.
        since: when its stage began.
        rank, generation: of its newest place.
        veteran: it was in a world that all of its members had reached.
        has_state: it got the state of the training, or made it.
        leaving: why the job goes on without it; "" if it does not.
        end_at: when it is ended, if it has not gone by itself.
    """

    number: int
    name: str
    host: str
    slot: int
    since: float
    stage: str = STARTING
    rank: int = UNKNOWN
    generation: int = 0
    veteran: bool = False
    has_state: bool = False
    leaving: str = ""
    end_at: Optional[float] = None

    def __str__(self) -> str:
        return f"{self.title()} on {self.host}"

    def title(self) -> str:
        """E.g. "rank 3", or "a new worker" before it has a rank."""
        return "a new worker" if self.rank == UNKNOWN else f"rank {self.rank}"

    def enter(self, stage: str, now: float) -> None:
        """Goes on to another stage."""
        self.stage, self.since = stage, now

    def candidate(self, newest: int) -> Candidate:
        """As somebody who wants a place after this generation."""
        rank = self.rank if self.generation == newest else UNKNOWN
        return Candidate(self.name, self.host, self.slot, rank, self.has_state)


class Workers:
    """All processes that live, by number."""

    def __init__(self) -> None:
        self._all: Dict[int, Worker] = {}
        self._last = -1

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def add(self, host: str, slot: int, now: float) -> Worker:
        """A process that is being started."""
        self._last += 1
        made = Worker(self._last, f"{host}[{slot}]#{self._last}", host, slot, now)
        self._all[made.number] = made
        return made

    def pop(self, number: int) -> Optional[Worker]:
        """Forgets a process that has ended."""
        return self._all.pop(number, None)

    def named(self, name: str) -> Optional[Worker]:
        """The one that the store knows by this name."""
        return next((one for one in self if one.name == name), None)

    def staying(self) -> List[Worker]:
        """Those that the job goes on with."""
        return [one for one in self if not one.leaving]

    def on(self, host: str) -> List[Worker]:
        """Those of a host."""
        return [one for one in self if one.host == host]

    def members(self, generation: int) -> List[Worker]:
        """Those that have a place in a generation, and stay."""
        return [one for one in self.staying() if generation and one.generation == generation]

    def waiting(self) -> List[Worker]:
        """Those that ask for a place, and stay."""
        return [one for one in self.staying() if one.stage == WAITING]
