# SPDX-License-Identifier: Apache-2.0
"""Horovod for PyTorch.

import horovod.torch as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
"""

from __future__ import annotations

from horovod.common import lifecycle
from horovod.common.lifecycle import *  # noqa: F403
from horovod.torch import (
    _compile,
    _version,  # noqa: F401  before anything that an old PyTorch lacks
    collectives,
    elastic,
    mpi_ops,
)
from horovod.torch.collectives import *  # noqa: F403
from horovod.torch.compression import Compression
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import join, poll, sparse_allreduce_async, synchronize
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm

_compile.register()

_MPI_LIB_AVAILABLE = True


def _check_has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


__all__ = [
    "Compression", "DistributedOptimizer", "SyncBatchNorm", "allgather_object", "broadcast_object",
    "broadcast_optimizer_state", "broadcast_parameters", "elastic", "join", "mpi_ops", "poll",
    "sparse_allreduce_async", "synchronize",
]  # fmt: skip
__all__ += lifecycle.__all__
__all__ += collectives.__all__
