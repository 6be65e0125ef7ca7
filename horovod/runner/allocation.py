# SPDX-License-Identifier: Apache-2.0
"""The hosts a batch system has given us, so that horovodrun inside an allocation needs no -H.

Slurm   SLURM_JOB_NODELIST=node[001-003,7],gpu1   SLURM_TASKS_PER_NODE=2(x3),1,4
LSF     LSB_MCPU_HOSTS=batch1 1 node1 4 node2 4    (LSB_JOBID set; the first is the batch node)
"""

from __future__ import annotations

import re
from typing import List, Mapping, Optional

from horovod.runner.hosts import HostInfo


def allocated_hosts(env: Mapping[str, str]) -> Optional[List[HostInfo]]:
    """Hosts and slots of the allocation this process runs in, or None outside of one."""
    if "SLURM_JOB_NODELIST" in env and "SLURM_PROCID" not in env or _in_batch_step(env):
        names = expand_nodelist(env["SLURM_JOB_NODELIST"])
        counts = expand_counts(env.get("SLURM_TASKS_PER_NODE", "1"), len(names))
        return [HostInfo(name, count) for name, count in zip(names, counts)]
    if "LSB_JOBID" in env and env.get("LSB_MCPU_HOSTS"):
        words = env["LSB_MCPU_HOSTS"].split()
        hosts = [HostInfo(name, int(count)) for name, count in zip(words[::2], words[1::2])]
        return hosts[1:] if len(hosts) > 1 else hosts
    return None


def _in_batch_step(env: Mapping[str, str]) -> bool:
    # The batch script itself is "task 0" of a step that no srun started.
    return "SLURM_JOB_NODELIST" in env and env.get("SLURM_STEP_ID") in (None, "4294967291")


def expand_nodelist(text: str) -> List[str]:
    """Slurm's short form, e.g. "node[001-003,7],gpu1" -> node001 node002 node003 node7 gpu1."""
    names: List[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", text):
        names += _expand(part)
    return names


def _expand(part: str) -> List[str]:
    match = re.match(r"^([^\[]*)\[([^\]]*)\](.*)$", part)
    if match is None:
        return [part]
    head, ranges, tail = match.groups()
    names: List[str] = []
    for one in ranges.split(","):
        low, _, high = one.partition("-")
        numbers = [f"{n:0{len(low)}d}" for n in range(int(low), int(high or low) + 1)]
        names += [head + number + rest for number in numbers for rest in _expand(tail)]
    return names


def expand_counts(text: str, hosts: int) -> List[int]:
    """Slurm's "2(x3),1" -> [2, 2, 2, 1]."""
    counts: List[int] = []
    for part in text.split(","):
        match = re.match(r"^(\d+)(?:\(x(\d+)\))?$", part.strip())
        if match is None:
            raise ValueError(f"cannot read SLURM_TASKS_PER_NODE={text}")
        counts += [int(match[1])] * int(match[2] or 1)
    if len(counts) != hosts:
        raise ValueError(f"SLURM_TASKS_PER_NODE={text} does not describe {hosts} nodes")
    return counts
