# SPDX-License-Identifier: Apache-2.0
"""jsrun of LSF's job step manager.

    JSM_NAMESPACE_RANK=3   JSM_NAMESPACE_SIZE=8   JSM_NAMESPACE_LOCAL_RANK=1   JSM_NAMESPACE_LOCAL_SIZE=2
    LSB_JOBID=81234   JSM_JOBSTEP_ID=1

jsrun usually comes with Spectrum MPI, but a script may run without any MPI library: ranks meet through a
private file in the user's home (over_file.py), which needs none.
"""

from __future__ import annotations

from typing import Mapping, Optional

from horovod.rendezvous.generations import UNKNOWN
from horovod.rendezvous.identity import Identity, host_name
from horovod.rendezvous.over_file import meet_by_file
from horovod.rendezvous.readers import number

RANK, SIZE = "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"
LOCAL_RANK, LOCAL_SIZE = "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"


def read(env: Mapping[str, str]) -> Optional[Identity]:
    """The identity jsrun gave this process."""
    if RANK not in env or SIZE not in env:
        return None
    job = f"lsf-{env.get('LSB_JOBID', '')}.{env.get('JSM_JOBSTEP_ID', env.get('PMIX_NAMESPACE', ''))}"
    one_host = env.get(LOCAL_SIZE) == env[SIZE]
    return Identity(
        rank=number(env, RANK),
        size=number(env, SIZE),
        host=host_name(),
        launcher="jsrun",
        local_rank=number(env, LOCAL_RANK, UNKNOWN),
        local_size=number(env, LOCAL_SIZE, UNKNOWN),
        meet=meet_by_file(job, one_host),
        found_by=f"{RANK}={env[RANK]} {SIZE}={env[SIZE]}",
    )
