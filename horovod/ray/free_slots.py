# SPDX-License-Identifier: Apache-2.0
"""How many workers of an elastic job each node has room for, beside what others use of it.

A worker counts from the moment it is asked for to its end. What Ray says is free on a node is late by up to a
second, so such a worker may be counted twice for a moment. Hence the number of a node changes only after it
was seen a few times in a row.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Collection, Dict, Mapping, Tuple

from horovod.ray.nodes import Node, name_of
from horovod.ray.room import Resources, workers_in
from horovod.runner.elastic.discovery import HostDiscovery

_TIMES = 3


class Running:
    """How many workers a job has on each node, by its id. All methods from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, node: str, count: int) -> None:
        """So many more, or fewer."""
        with self._lock:
            self._counts[node] += count

    def on(self, node: str) -> int:
        """Those of a node."""
        with self._lock:
            return self._counts[node]


class Steady:
    """The last value that was seen several times in a row; the first one counts at once. Pure."""

    def __init__(self, times: int = _TIMES) -> None:
        self._times = times
        self._values: Dict[str, int] = {}
        self._seen: Dict[str, Tuple[int, int]] = {}  # value, how often in a row

    def take(self, found: Mapping[str, int], idle: Collection[str] = ()) -> Dict[str, int]:
        """What to believe, after this was seen.

        Args:
            idle: nodes without workers of ours, where more room is no mistake.
        """
        for name, value in found.items():
            before, count = self._seen.get(name, (value, 0))
            self._seen[name] = (value, count + 1 if value == before else 1)
            more = name in idle and value > self._values.get(name, 0)
            if name not in self._values or more or self._seen[name][1] >= self._times:
                self._values[name] = value
        for name in [name for name in self._values if name not in found]:
            del self._values[name], self._seen[name]
        return dict(self._values)


def free_slots(node: Node, free: Resources, running: int, worker: Resources) -> int:
    """Workers that a node can have: those that are there, and as many more as there is room for."""
    return min(running + workers_in(free, worker), workers_in(node["Resources"], worker))


class FreeSlots(HostDiscovery):
    """The nodes of the cluster, with the slots that others leave.

    Args:
        worker: what each worker takes.
        running: kept up to date by whoever starts workers.
    """

    def __init__(self, worker: Resources, running: Running) -> None:
        self._worker, self._running, self._steady = worker, running, Steady()

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        """E.g. {"gpu7-1f0c22aa": 4}."""
        import ray
        from ray._private.state import available_resources_per_node

        free: Dict[str, Any] = available_resources_per_node()
        nodes = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] in free]
        found, idle = {}, []
        for node in nodes:
            running = self._running.on(node["NodeID"])
            found[name_of(node)] = free_slots(node, free[node["NodeID"]], running, self._worker)
            if not running:
                idle.append(name_of(node))
        return self._steady.take(found, idle)
