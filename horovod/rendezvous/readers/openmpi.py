# SPDX-License-Identifier: Apache-2.0
"""mpirun (mpiexec, prterun) of Open MPI and of IBM Spectrum MPI.

OMPI_COMM_WORLD_RANK=3   OMPI_COMM_WORLD_SIZE=8
OMPI_COMM_WORLD_LOCAL_RANK=1   OMPI_COMM_WORLD_LOCAL_SIZE=2
PMIX_NAMESPACE=prterun-node7-26505@1
"""

from __future__ import annotations

from typing import Mapping, Optional

from horovod.rendezvous.generations import UNKNOWN
from horovod.rendezvous.identity import Identity, host_name
from horovod.rendezvous.mpi_library import OPEN_MPI
from horovod.rendezvous.over_mpi import meet_over_mpi
from horovod.rendezvous.readers import number

RANK, SIZE = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"
LOCAL_RANK, LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"


def read(env: Mapping[str, str]) -> Optional[Identity]:
    """The identity Open MPI's mpirun gave this process."""
    if RANK not in env or SIZE not in env:
        return None
    found_by = f"{RANK}={env[RANK]} {SIZE}={env[SIZE]}"
    return Identity(
        rank=number(env, RANK),
        size=number(env, SIZE),
        host=host_name(),
        launcher="Open MPI's mpirun",
        local_rank=number(env, LOCAL_RANK, UNKNOWN),
        local_size=number(env, LOCAL_SIZE, UNKNOWN),
        meet=meet_over_mpi(OPEN_MPI, found_by),
        found_by=found_by,
    )
