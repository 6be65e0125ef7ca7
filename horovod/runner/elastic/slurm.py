# SPDX-License-Identifier: Apache-2.0
"""The nodes of a Slurm allocation that are up: asked of `scontrol`, since nodes of a running job may fail.

SLURM_JOB_NODELIST=node[1-4]   SLURM_TASKS_PER_NODE=2(x4)          what was given
scontrol show node node[1-4] --oneliner                            NodeName=node3 ... State=DOWN+DRAIN ...
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import Dict, Mapping, Optional

from horovod.runner.allocation import allocated_hosts
from horovod.runner.elastic.discovery import HostDiscovery

_NODE = re.compile(r"NodeName=(\S+).*?\bState=(\S+)")
_GONE = (
    "DOWN",
    "FAIL",
    "NOT_RESPONDING",
    "POWERED_DOWN",
    "POWERING_DOWN",
)  # a draining node keeps what runs there


class SlurmAllocation(HostDiscovery):
    """The nodes of the allocation this process runs in, without those that Slurm calls down.

    Args:
        env: default this process's.
    """

    def __init__(self, env: Optional[Mapping[str, str]] = None) -> None:
        self._env = dict(os.environ if env is None else env)
        given = allocated_hosts(self._env)
        if given is None or "SLURM_JOB_NODELIST" not in self._env:
            raise ValueError("this process runs in no Slurm allocation: SLURM_JOB_NODELIST is not set")
        self._given = {info.hostname: info.slots for info in given}

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        command = ["scontrol", "show", "node", self._env["SLURM_JOB_NODELIST"], "--oneliner"]
        try:
            done = subprocess.run(
                command, env=self._env, capture_output=True, text=True, timeout=30, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"{' '.join(command)}: {error}") from error
        return up_nodes(self._given, done.stdout)


def up_nodes(given: Mapping[str, int], text: str) -> Dict[str, int]:
    """Those of the given nodes that `scontrol show node --oneliner` does not call down."""
    gone = {name for name, state in _NODE.findall(text) if any(word in state for word in _GONE)}
    return {name: slots for name, slots in given.items() if name not in gone}
