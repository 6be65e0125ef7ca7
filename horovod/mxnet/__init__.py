# SPDX-License-Identifier: Apache-2.0
"""Horovod for MXNet: collectives inside MXNet's dependency engine, a gluon trainer and an optimizer.

import horovod.mxnet as hvd

hvd.init()
hvd.broadcast_parameters(net.collect_params())
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.01 * hvd.size()})
"""

from __future__ import annotations

from horovod.mxnet import mpi_ops
from horovod.mxnet.compression import Compression
from horovod.mxnet.functions import allgather_object, broadcast_object, broadcast_parameters
from horovod.mxnet.mpi_ops import *  # noqa: F403
from horovod.mxnet.optimizer import DistributedOptimizer
from horovod.mxnet.trainer import DistributedTrainer

__all__ = [
    "Compression", "DistributedOptimizer", "DistributedTrainer", "allgather_object", "broadcast_object",
    "broadcast_parameters",
]  # fmt: skip
__all__ += mpi_ops.__all__
