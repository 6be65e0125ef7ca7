# SPDX-License-Identifier: Apache-2.0
"""Which rank sits where: one SlotInfo a rank. Pure: nothing here starts or asks anything.

`get_host_assignments` fills hosts in the order listed; `place_ranks` takes the hosts of the ranks as given,
for schedulers that have decided already (Ray actors, Spark tasks, the survivors of an elastic job).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from horovod.runner.hosts import HostInfo


@dataclass
class SlotInfo:
    """The place of one rank."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """The numbers as "rank,size,local_rank,local_size,cross_rank,cross_size"."""
        fields = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(str(field) for field in fields)


# The most processes that Linux can number.
MAX_RANKS_OF_HOST = 1 << 22
INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: Optional[int] = None
) -> List[SlotInfo]:
    """Places ranks: hosts in the order listed, all slots of one before the next, up to max_num_proc."""
    available = sum(info.slots for info in hosts)
    if available < min_num_proc:
        raise ValueError(
            f"Requested more processes ({min_num_proc}) than there are available slots ({available})"
        )
    size = available if max_num_proc is None else min(available, max_num_proc)
    counts = ranks_per_host(hosts, size)
    for host, count in counts.items():
        if count > MAX_RANKS_OF_HOST:
            raise ValueError(f"{count} processes on host {host} are more than a machine can run")
    return place_ranks([host for host, count in counts.items() for _ in range(count)])


def place_ranks(hosts: Sequence[str]) -> List[SlotInfo]:
    """The places of ranks whose hosts are given, in rank order: ["a", "b", "a"] is a world of three.

    Ranks of a host need not follow each other: the second rank on a host has local rank 1 wherever it comes.
    """
    columns: Dict[int, Dict[str, int]] = {}  # local rank -> host -> its number among the hosts that have it
    local_sizes: Dict[str, int] = {}
    local_ranks: List[int] = []
    for host in hosts:
        local = local_sizes.get(host, 0)
        local_ranks.append(local)
        local_sizes[host] = local + 1
    for host, count in local_sizes.items():
        for local in range(count):
            column = columns.setdefault(local, {})
            column[host] = len(column)
    return [
        SlotInfo(
            host,
            rank,
            local_ranks[rank],
            columns[local_ranks[rank]][host],
            len(hosts),
            local_sizes[host],
            len(columns[local_ranks[rank]]),
        )
        for rank, host in enumerate(hosts)
    ]


def ranks_per_host(hosts: Sequence[HostInfo], num_proc: int) -> Dict[str, int]:
    """How many of num_proc ranks each host gets, hosts filled in order; those without any are left out."""
    counts: Dict[str, int] = {}
    left = num_proc
    for info in hosts:
        count = min(info.slots, left)
        if count > 0:
            counts[info.hostname] = counts.get(info.hostname, 0) + count
            left -= count
    return counts


def slots_by_host(slots: Sequence[SlotInfo]) -> Dict[str, List[SlotInfo]]:
    """The slots of each host, hosts in the order of their first rank."""
    found: Dict[str, List[SlotInfo]] = {}
    for slot in slots:
        found.setdefault(slot.hostname, []).append(slot)
    return found
