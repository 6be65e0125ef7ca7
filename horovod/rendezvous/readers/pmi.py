# SPDX-License-Identifier: Apache-2.0
"""mpirun (mpiexec.hydra) of MPICH, Intel MPI and MVAPICH.

    PMI_RANK=3   PMI_SIZE=8   MPI_LOCALRANKID=1   MPI_LOCALNRANKS=2   PMI_FD=11   (MPICH 5.0)

srun --mpi=pmi2 sets PMI_RANK too, but not MPI_LOCALRANKID; that is left to the Slurm reader, which also
serves programs without any MPI library.
"""

from __future__ import annotations

from typing import Mapping, Optional

from horovod.rendezvous.generations import UNKNOWN
from horovod.rendezvous.identity import Identity, host_name
from horovod.rendezvous.mpi_library import MPICH
from horovod.rendezvous.over_mpi import meet_over_mpi
from horovod.rendezvous.readers import number

RANK, SIZE = "PMI_RANK", "PMI_SIZE"
LOCAL_RANK, LOCAL_SIZE = "MPI_LOCALRANKID", "MPI_LOCALNRANKS"


def read(env: Mapping[str, str]) -> Optional[Identity]:
    """The identity Hydra gave this process."""
    if RANK not in env or SIZE not in env:
        return None
    if "SLURM_PROCID" in env and LOCAL_RANK not in env:
        return None
    found_by = f"{RANK}={env[RANK]} {SIZE}={env[SIZE]}"
    return Identity(
        rank=number(env, RANK),
        size=number(env, SIZE),
        host=host_name(),
        launcher="MPICH's or Intel MPI's mpirun",
        local_rank=number(env, LOCAL_RANK, UNKNOWN),
        local_size=number(env, LOCAL_SIZE, UNKNOWN),
        meet=meet_over_mpi(MPICH, found_by),
        found_by=found_by,
    )
