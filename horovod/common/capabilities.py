# SPDX-License-Identifier: Apache-2.0
"""What this installation can use. Nothing is compiled in, so "built" means "found on this machine"."""

from __future__ import annotations

import functools

from horovod.common import nvidia
from horovod.rendezvous import mpi_library


@functools.cache
def mpi_built() -> bool:
    """Whether an MPI library can be loaded here, from the system or from a PyPI wheel."""
    return mpi_library.found()


def gloo_built() -> bool:
    """Whether this package's own sockets and shared memory can be used: always."""
    return True


def nccl_built() -> int:
    """The version of NCCL that GPU tensors can use, e.g. 22809; 0 for none."""
    found = nvidia.nccl() if nvidia.driver() else None
    if found is None:
        return 0
    major, minor, patch = found.version
    return major * 10000 + minor * 100 + patch


def ddl_built() -> bool:
    """IBM's DDL is not supported."""
    return False


def ccl_built() -> bool:
    """Intel's oneCCL is not supported."""
    return False


def cuda_built() -> bool:
    """Whether collectives run on CUDA devices: whether there is a driver."""
    return nvidia.driver() is not None


def rocm_built() -> bool:
    """Whether collectives run on ROCm devices."""
    return False
