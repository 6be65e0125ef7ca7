# SPDX-License-Identifier: Apache-2.0
"""Which workers a job should have, given the slots there are: who is too many, who is missing. Pure."""

from __future__ import annotations

from typing import List, Mapping, Optional, Sequence, Tuple

from horovod.runner.elastic.workers import Worker, Workers

Slots = Sequence[Tuple[str, int]]  # hosts in order, with how many ranks each may run


def in_slots(workers: Workers, usable: Slots) -> List[Worker]:
    """Those whose slots are still there."""
    slots = dict(usable)
    return [one for one in workers.staying() if one.slot < slots.get(one.host, 0)]


def surplus(workers: Workers, usable: Slots, fewest: int, state_exists: bool) -> List[Worker]:
    """Those whose slots are gone and whom the job can do without: others have the state, and are enough."""
    kept = in_slots(workers, usable)
    gone = [one for one in workers.staying() if one not in kept]
    if sum(slots for _, slots in usable) < fewest:
        return []
    heirs = not state_exists or any(one.has_state for one in kept)
    return [one for one in gone if one.generation == 0 or (heirs and len(kept) >= fewest)]


def vacancies(
    workers: Workers, usable: Slots, most: Optional[int], rests: Mapping[Tuple[str, int], float], now: float
) -> List[Tuple[str, int]]:
    """Slots in which a worker should be started, hosts filled in order.

    Args:
        most: ranks, all in all.
        rests: slots that are left alone until a time.
    """
    places = [(host, slot) for host, slots in usable for slot in range(slots)]
    taken = {(one.host, one.slot) for one in workers}
    free = [place for place in places if place not in taken and now >= rests.get(place, 0.0)]
    return free if most is None else free[: max(most - len(in_slots(workers, usable)), 0)]


def chosen(waiting: Sequence[Worker], workers: Workers, usable: Slots, most: Optional[int]) -> List[Worker]:
    """Those who get a place if there are more than may be: one that has the state, then who will stay."""
    stay = in_slots(workers, usable)
    first = next((one for one in waiting if one.has_state), waiting[0])
    order = sorted(waiting, key=lambda one: (one is not first, one not in stay, one.generation == 0))
    return order[:most]
