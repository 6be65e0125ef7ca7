# SPDX-License-Identifier: Apache-2.0
"""Who gets which rank when the world re-forms. Pure.

- Rank 0 has the state that the others get: it goes to a worker that has it.
- Whoever had a rank keeps it, if it is still one of the new world; newcomers fill the holes.
- Local ranks follow the slots of the hosts, not the ranks: a worker keeps its number, hence its device, while
  its host is full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

from horovod.rendezvous.generations import UNKNOWN, Seat


@dataclass(frozen=True)
class Candidate:
    """A worker that wants a place.

    Attributes:
        name: by which the store knows it.
        host, slot: where it runs.
        rank: in the world before, UNKNOWN if it had none.
        has_state: what the training has come to is in its memory.
    """

    name: str
    host: str
    slot: int
    rank: int = UNKNOWN
    has_state: bool = False


def rank_order(candidates: Sequence[Candidate]) -> List[Candidate]:
    """The candidates in the order of their new ranks. Those without a rank follow the order given."""
    size = len(candidates)
    first = min(candidates, key=lambda one: (not one.has_state, _rank_or_last(one)))
    places: Dict[int, Candidate] = {0: first}
    homeless = []
    for one in sorted(candidates, key=_rank_or_last):  # stable: newcomers stay in the order given
        if one is first:
            continue
        if 0 <= one.rank < size and one.rank not in places:
            places[one.rank] = one
        else:
            homeless.append(one)
    holes = (rank for rank in range(size) if rank not in places)
    places.update(zip(list(holes), homeless))
    return [places[rank] for rank in range(size)]


def seats(ordered: Sequence[Candidate], addresses: Dict[str, str]) -> Dict[str, Seat]:
    """The places of a new world, given in rank order.

    Args:
        addresses: of hosts that cannot find out by themselves where others reach them.
    """
    slots: Dict[str, List[int]] = {}
    for one in ordered:
        slots.setdefault(one.host, []).append(one.slot)
    for taken in slots.values():
        taken.sort()
    hosts = list(slots)
    made = {}
    for rank, one in enumerate(ordered):
        local = slots[one.host].index(one.slot)
        cross = [host for host in hosts if len(slots[host]) > local]
        made[one.name] = Seat(
            rank, len(ordered), local, len(slots[one.host]), cross.index(one.host), len(cross),
            address=addresses.get(one.host, ""),
        )  # fmt: skip
    return made


def _rank_or_last(one: Candidate) -> Tuple[bool, int]:
    return (one.rank == UNKNOWN, one.rank)
