# SPDX-License-Identifier: Apache-2.0
"""What the environment says before hvd.init(), under its old path."""

from __future__ import annotations

import os
from typing import Tuple

from horovod.runner.ssh import KUBEXEC, KUBEXEC_VARIABLE
from horovod.runner.worker_env import is_exportable

__all__ = ["LOG_LEVEL_STR", "get_env_rank_and_size", "is_exportable", "is_kubeflow_mpi"]

LOG_LEVEL_STR = ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]

_PAIRS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def get_env_rank_and_size() -> Tuple[int, int]:
    """Rank and size as the launcher's variables give them; (0, 1) without any."""
    for rank_name, size_name in _PAIRS:
        rank, size = os.environ.get(rank_name), os.environ.get(size_name)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            raise RuntimeError(
                "Could not determine process rank and size: only one of "
                f"{rank_name} and {size_name} found in environment"
            )
    return 0, 1


def is_kubeflow_mpi() -> bool:
    """Whether Kubeflow's MPI operator, without sshd, started this."""
    return os.environ.get(KUBEXEC_VARIABLE) == KUBEXEC
