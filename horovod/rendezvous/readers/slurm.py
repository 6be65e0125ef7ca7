# SPDX-License-Identifier: Apache-2.0
"""srun of Slurm, without any MPI.

    SLURM_PROCID=3   SLURM_STEP_NUM_TASKS=8   SLURM_LOCALID=1   SLURM_NODEID=1
    SLURM_JOB_ID=1234   SLURM_STEP_ID=0   SLURM_STEP_NUM_NODES=4   SLURM_STEP_NODELIST=node[001-003],gpu1
    SLURM_STEP_TASKS_PER_NODE=2(x3),1   SLURM_LAUNCH_NODE_IPADDR=10.0.0.1   SLURMD_NODENAME=node002

Only a step that srun started has SLURM_STEP_NUM_TASKS; the batch script itself, which also has a
SLURM_PROCID, does not, and stays a world of one. Ranks
meet through a private file in the user's home (over_file.py).
"""

from __future__ import annotations

from typing import Mapping, Optional

from horovod.rendezvous.generations import UNKNOWN
from horovod.rendezvous.identity import Identity, host_name
from horovod.rendezvous.over_file import meet_by_file
from horovod.rendezvous.readers import number

RANK, SIZE, LOCAL_RANK = "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"


def read(env: Mapping[str, str]) -> Optional[Identity]:
    """The identity srun gave this process."""
    if RANK not in env or SIZE not in env or "SLURM_STEP_ID" not in env:
        return None
    job = f"slurm-{env.get('SLURM_CLUSTER_NAME', '')}-{env.get('SLURM_JOB_ID', '')}.{env['SLURM_STEP_ID']}"
    one_host = env.get("SLURM_STEP_NUM_NODES", "1") == "1"
    return Identity(
        rank=number(env, RANK),
        size=number(env, SIZE),
        host=env.get("SLURMD_NODENAME") or host_name(),
        launcher="srun",
        local_rank=number(env, LOCAL_RANK, UNKNOWN),
        meet=meet_by_file(job, one_host, env.get("SLURM_LAUNCH_NODE_IPADDR")),
        found_by=f"{RANK}={env[RANK]} {SIZE}={env[SIZE]} of job step {job[6:].lstrip('-')}",
    )
