# SPDX-License-Identifier: Apache-2.0
"""Horovod for JAX: collectives on jax arrays and pytrees, in and out of jit, and optax training.

import horovod.jax as hvd

hvd.init()
params = hvd.broadcast_parameters(params)
tx = hvd.DistributedOptimizer(optax.adam(1e-3 * hvd.size()))
"""

from __future__ import annotations

from horovod.common import lifecycle
from horovod.common.lifecycle import *  # noqa: F403
from horovod.common.objects import allgather_object, broadcast_object
from horovod.jax import collectives
from horovod.jax._programs import barrier, join
from horovod.jax.collectives import *  # noqa: F403
from horovod.jax.compression import Compression
from horovod.jax.functions import broadcast_optimizer_state, broadcast_parameters
from horovod.jax.optimizer import (
    DistributedOptimizer,
    DistributedState,
    grad,
    reduce_gradients,
    value_and_grad,
)

__all__ = [
    "Compression", "DistributedOptimizer", "DistributedState", "allgather_object", "barrier",
    "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters", "grad", "join",
    "reduce_gradients", "value_and_grad",
]  # fmt: skip
__all__ += [name for name in lifecycle.__all__ if name not in __all__]
__all__ += collectives.__all__
