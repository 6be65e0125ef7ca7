# SPDX-License-Identifier: Apache-2.0
"""From Spark tasks that have said where they are to ranks. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, List, Sequence, Tuple

from horovod.runner.placement import SlotInfo, place_ranks


@dataclass(frozen=True)
class TaskFacts:
    """What a task says about itself when it calls."""

    task: int  # its number in the Spark job, 0 to size - 1
    attempt: int  # of Spark to run it
    host: str  # the machine's name
    machine: str  # equal for tasks that can share memory
    address: str  # where it reaches the launcher
    python: str  # the interpreter it runs
    folder: str  # its working directory, with Spark's files in it
    devices: Tuple[str, ...] = ()  # addresses of GPUs that Spark gave it

    def to_tag(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_facts(facts: Dict[str, Any]) -> TaskFacts:
        """From what an agent said about itself."""
        found = json.loads(facts["tag"])
        return TaskFacts(**dict(found, devices=tuple(found["devices"])))


def in_rank_order(tasks: Sequence[TaskFacts]) -> List[TaskFacts]:
    """The machine of task 0 first, the others by name; tasks of a machine follow each other by number.

    Machines of one name are told apart: the second is called "name#2".
    """
    ordered = sorted(tasks, key=lambda one: one.task)
    first = ordered[0].machine
    machines = sorted({(one.host, one.machine) for one in ordered}, key=lambda m: (m[1] != first, m))
    seen: Dict[str, int] = {}
    names: Dict[str, str] = {}
    for host, machine in machines:
        if machine not in names:
            seen[host] = seen.get(host, 0) + 1
            names[machine] = host if seen[host] == 1 else f"{host}#{seen[host]}"
    order = list(names)
    placed = sorted(ordered, key=lambda one: (order.index(one.machine), one.task))
    return [replace(one, host=names[one.machine]) for one in placed]


def slots_of(tasks: Sequence[TaskFacts]) -> List[SlotInfo]:
    """The places of ranks, for tasks in rank order."""
    return place_ranks([one.host for one in tasks])


def shown(task: TaskFacts) -> str:
    """A task in errors: each is a host of its own to the supervisor, e.g. "node7 (Spark task 3)"."""
    again = f", attempt {task.attempt + 1}" if task.attempt else ""
    return f"{task.host} (Spark task {task.task}{again})"
