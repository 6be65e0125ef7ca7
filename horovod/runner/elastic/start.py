# SPDX-License-Identifier: Apache-2.0
"""From what the user asks for to an elastic job: where hosts come from, how many ranks."""

from __future__ import annotations

import os
import shutil
from typing import List, Optional

from horovod.runner.allocation import allocated_hosts
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript
from horovod.runner.elastic.limits import Limits
from horovod.runner.hosts import HostInfo
from horovod.runner.settings import JobSettings


def make_limits(
    settings: JobSettings,
    num_proc: Optional[int],
    min_np: Optional[int],
    max_np: Optional[int],
    elastic_timeout: float,
    reset_limit: Optional[int],
    fixed_hosts: bool,
) -> Limits:
    """Checks what the user wants. Without a least number of ranks, the job needs all it starts with."""
    start = num_proc or min_np
    if start is None:
        raise ValueError("how many processes? Give -np, e.g. horovodrun -np 4 --min-np 2 python train.py")
    fewest = start if min_np is None else min_np
    if fewest < 1 or start < fewest:
        raise ValueError(f"--min-np {fewest} must be at least 1 and at most -np {start}")
    if max_np is not None and max_np < start:
        raise ValueError(f"--max-np {max_np} must be at least -np {start}")
    if reset_limit is not None and reset_limit < 0:
        raise ValueError(f"--reset-limit must be 0 or more, not {reset_limit}")
    return Limits(
        start, fewest, max_np, elastic_timeout, settings.start_timeout, settings.network_timeout, reset_limit,
        fixed_hosts,
    )  # fmt: skip


def make_discovery(
    script: Optional[str], slots: Optional[int], hosts: Optional[List[HostInfo]], num_proc: int
) -> HostDiscovery:
    """Where the hosts of a job come from: a script, a list, the allocation we are in, or this machine."""
    if script is not None:
        return HostDiscoveryScript(script, slots)
    if hosts:
        return FixedHosts({host.hostname: host.slots for host in hosts})
    if "SLURM_JOB_NODELIST" in os.environ and allocated_hosts(os.environ) and shutil.which("scontrol"):
        from horovod.runner.elastic.slurm import SlurmAllocation

        return SlurmAllocation()
    return FixedHosts({"localhost": num_proc})
