# SPDX-License-Identifier: Apache-2.0
"""Which life of the world a worker belongs to, and which rank it has there. Does no input or output.

A *generation* is one life of a world: who is in it, with which ranks. Every hvd.init() asks the job's store
for a place in one (`Generations.sit`). There are two ways to be given one:

- *A static job*: each worker knows its rank and size. The first to come opens a generation, the others of the
  same world sit down in it until all are there; who comes after that opens the next. So it does not matter
  how often each process has called init before: survivors and a process that took a dead one's place meet.
- *A job with a driver* (elastic): the driver gives ranks to workers, which it knows by an id that outlives
  ranks (`assign`). A worker gets its place in the newest generation, waits for a newer one if it was in that
  already, and is told when the job goes on without it.

Worlds of part of the ranks, hvd.init(comm=[0, 1]), have generations of their own. No number is used twice.

A failure belongs to its generation. Each worker that was expected hears of it once, however late it comes,
and sits down in the next when it tries again. A worker that still talks to an old generation is turned away
by name.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from horovod.rendezvous.errors import Dismissed, StoreError, Superseded

UNKNOWN = -1
Group = Tuple[int, ...]


@dataclass(frozen=True)
class Seat:
    """A worker's place in one generation. Numbers that nobody told are UNKNOWN (-1)."""

    rank: int
    size: int
    local_rank: int = UNKNOWN
    local_size: int = UNKNOWN
    cross_rank: int = UNKNOWN
    cross_size: int = UNKNOWN
    generation: int = 0

    def as_dict(self) -> Dict[str, int]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Claim:
    """What a worker says about itself when it asks for its place.

    Attributes:
        worker: the id by which a driver knows this worker, e.g. "node7[1]"; "" without a driver.
        rank, size: in its world; UNKNOWN where only the driver knows.
        group: the ranks of the job that form this world, in their new order; () for all.
        host, pid: for errors.
    """

    worker: str
    rank: int
    size: int
    group: Group
    host: str
    pid: int

    def as_dict(self) -> Dict[str, Any]:
        """For JSON."""
        return dict(asdict(self), group=list(self.group))

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> Claim:
        """From JSON; raises ValueError, KeyError or TypeError for anything else."""
        return Claim(
            str(found["worker"]), int(found["rank"]), int(found["size"]),
            tuple(int(rank) for rank in found["group"]), str(found["host"]), int(found["pid"]),
        )  # fmt: skip


@dataclass(eq=False)
class Member:
    """A worker in a generation."""

    claim: Claim
    seat: Seat
    done: bool = False  # may hang up from now on

    def __str__(self) -> str:
        return f"rank {self.seat.rank} on {self.claim.host}"


class Generation:
    """One life of a world, while it forms."""

    def __init__(self, number: int, seats: Mapping[str, Seat]) -> None:
        self.number = number
        self.seats = dict(seats)  # worker -> place
        self.size = len(self.seats)
        self.members: Dict[str, Member] = {}
        self.values: Dict[str, bytes] = {}
        self.failure: Optional[str] = None
        self.told: Set[str] = set()  # workers that came too late for it and have heard of the failure

    @property
    def complete(self) -> bool:
        """Whether everybody has come."""
        return len(self.members) == self.size

    def missing(self) -> List[int]:
        """Ranks that have not come."""
        return sorted(seat.rank for worker, seat in self.seats.items() if worker not in self.members)


class Generations:
    """The generations of one job.

    Args:
        size: how many ranks the launcher started, if known: others are refused.
        on_change: called with a generation whose waiting members have something to hear, and whether that is
            that it has just failed.
        driven: a driver will assign ranks; workers that come before wait for it.
    """

    def __init__(
        self,
        size: Optional[int] = None,
        on_change: Callable[[Generation, bool], None] = lambda generation, failed: None,
        driven: bool = False,
    ) -> None:
        self.size = size
        self.driven = driven
        self.failure: Optional[str] = None  # of the whole job
        self._on_change = on_change
        self._last = 0
        self._newest: Dict[Group, Generation] = {}
        self._lost: Dict[str, str] = {}  # workers whose processes have ended, and why
        self._dismissed: Dict[str, str] = {}

    # ------------------------------------------------------------------------------------ workers --

    def sit(self, claim: Claim) -> Optional[Tuple[Generation, Member]]:
        """A worker's place, or None: it must wait for the driver's next word.

        Raises:
            StoreError: the generation it was expected in has failed, or its claim cannot be.
        """
        self.raise_failure()
        return self._sit_assigned(claim) if self.driven else self._sit_claimed(claim)

    def _sit_claimed(self, claim: Claim) -> Tuple[Generation, Member]:
        worker = self._check_claim(claim)
        found = self._newest.get(claim.group)
        if self._lost.pop(worker, None) and found is not None:
            found.told.add(worker)  # a new process took its place: what its predecessor caused is no news
        if found is None or not self._has_room(found, worker, claim):
            found = self._open(claim.group, _claimed_seats(claim))
        if worker not in found.seats or found.size != claim.size:
            self._fail(
                found,
                f"rank {claim.rank} on {claim.host} believes in {claim.size} ranks, others in {found.size}",
            )
        gone = [self._lost[other] for other in found.seats if other in self._lost]
        if gone:
            self._fail(found, gone[0])
        return found, self._seated(found, worker, claim)

    def _has_room(self, found: Generation, worker: str, claim: Claim) -> bool:
        """Whether this generation still waits for this worker; raises what it has not heard yet."""
        there = found.members.get(worker)
        if there is None and found.failure is None:
            return True
        if there is None and worker not in found.told:
            found.told.add(worker)
            raise StoreError(found.failure)
        if there is None or found.failure is not None:
            return False
        first, second = (f"process {one.pid} on {one.host}" for one in (there.claim, claim))
        if not found.complete and not there.done and first != second:
            self._fail(
                found,
                f"two processes say they are rank {claim.rank}: {first} and {second}. Start the script once "
                "per rank, with one launcher only",
            )
            raise StoreError(found.failure)
        return False

    def _check_claim(self, claim: Claim) -> str:
        """The name under which a static job knows a worker: its rank in the job."""
        if not 0 <= claim.rank < claim.size or len(claim.group) not in (0, claim.size):
            raise StoreError(
                f"worker {claim.worker!r} on {claim.host} asks for its rank, but its launcher assigns none"
            )
        if self.size is not None and not claim.group and claim.size != self.size:
            self.fail(
                f"rank {claim.rank} on {claim.host} believes the job has {claim.size} ranks, the launcher "
                f"started {self.size}. Do not set HOROVOD_SIZE by hand and do not nest launchers"
            )
            self.raise_failure()
        return str(claim.group[claim.rank] if claim.group else claim.rank)

    def _sit_assigned(self, claim: Claim) -> Optional[Tuple[Generation, Member]]:
        if claim.worker in self._dismissed:
            raise Dismissed(self._dismissed[claim.worker])
        newest = self._newest.get(())
        if newest is None or newest.failure is not None or claim.worker in newest.members:
            return None
        if claim.worker not in newest.seats:
            return None
        return newest, self._seated(newest, claim.worker, claim)

    def _seated(self, found: Generation, worker: str, claim: Claim) -> Member:
        if found.failure is not None:
            found.told.add(worker)
            raise StoreError(found.failure)
        member = found.members[worker] = Member(claim, found.seats[worker])
        return member

    def left(self, found: Generation, member: Member) -> None:
        """A member's connection has ended."""
        if not member.done:
            self._fail(found, f"{member} disappeared while the job was starting (its process ended)")

    def check(self, found: Generation, member: Member) -> None:
        """Raises if a member has nothing to wait for any more: its world has failed, or was given up.

        A static world that all have joined goes on to form while a fast rank may be back for the next.
        """
        self.raise_failure()
        # A driver that lost one generation assigns the next: its workers ask again instead of failing.
        error = Superseded if self.driven else StoreError
        newest = self._newest.get(member.claim.group)
        if newest is not None and newest.number > found.number and (found.failure or self.driven):
            late = f"{member} belongs to generation {found.number}; the job is at {newest.number}"
            raise error(f"{late} ({found.failure})" if found.failure else late)
        if found.failure is not None:
            raise error(found.failure)

    # --------------------------------------------------------------------------- launcher, driver --

    def assign(self, seats: Mapping[str, Seat]) -> int:
        """Opens the next generation of a driven job: these workers, with these ranks. Returns its number.

        Whoever still waits in an older one is sent on to this.
        """
        ranks = sorted(seat.rank for seat in seats.values())
        if not seats or ranks != list(range(len(seats))) or any(s.size != len(seats) for s in seats.values()):
            raise ValueError(f"these are not the ranks of a world of {len(seats)}: {dict(seats)}")
        self.driven = True
        for worker in seats:
            self._lost.pop(worker, None)
            self._dismissed.pop(worker, None)
        before = self._newest.get(())
        opened = self._open((), seats)
        if before is not None:
            self._on_change(before, False)
        return opened.number

    def dismiss(self, worker: str, reason: str) -> None:
        """The job goes on without this worker: it is told so when it asks for a place."""
        self._dismissed[worker] = reason

    def lost(self, worker: str, cause: str) -> None:
        """A worker's process has ended: nobody need wait for it, unless a new one takes its place."""
        self._lost[worker] = cause
        for found in list(self._newest.values()):
            member = found.members.get(worker)
            if worker in found.seats and (member is None or not member.done):
                self._fail(found, cause)

    def fail(self, reason: str) -> None:
        """The whole job has failed, for ever."""
        if self.failure is None:
            self.failure = reason
        for found in list(self._newest.values()):
            self._on_change(found, False)

    def fail_generation(self, found: Generation, reason: str) -> None:
        """This life of the world has failed; its members may try again."""
        self._fail(found, reason)

    def raise_failure(self) -> None:
        """Raises if the whole job has failed."""
        if self.failure is not None:
            raise StoreError(self.failure)

    def newest(self, group: Group = ()) -> Optional[Generation]:
        """The newest generation of a world."""
        return self._newest.get(group)

    # ------------------------------------------------------------------------------------ private --

    def _open(self, group: Group, seats: Mapping[str, Seat]) -> Generation:
        self._last += 1
        numbered = {worker: replace(seat, generation=self._last) for worker, seat in seats.items()}
        made = self._newest[group] = Generation(self._last, numbered)
        return made

    def _fail(self, found: Generation, reason: str) -> None:
        if found.failure is None:
            found.failure = reason
            self._on_change(found, True)


def _claimed_seats(claim: Claim) -> Dict[str, Seat]:
    workers: Sequence[int] = claim.group or range(claim.size)
    return {str(worker): Seat(rank, claim.size) for rank, worker in enumerate(workers)}
