# SPDX-License-Identifier: Apache-2.0
"""Horovod for TensorFlow: ``import horovod.tensorflow as hvd``.

The five lines:

    hvd.init()
    ...                                                  # build the model, scale the learning rate
    tape = hvd.DistributedGradientTape(tape)             # or opt = hvd.DistributedOptimizer(opt)
    hvd.broadcast_variables(model.variables, root_rank=0)
    if hvd.rank() == 0: ...                              # save, print
"""

from __future__ import annotations

from typing import Any

from horovod.common.arguments import resolve_op as handle_average_backwards_compatibility
from horovod.common.lifecycle import *  # noqa: F403
from horovod.common.lifecycle import __all__ as _lifecycle_names
from horovod.common.util import check_extension, gpu_available, split_list
from horovod.common.util import num_rank_is_power_2 as check_num_rank_power_of_2
from horovod.tensorflow import compression, functions, mpi_ops, util
from horovod.tensorflow._reduction import make_allreduce_grads_fn as _make_allreduce_grads_fn
from horovod.tensorflow.collectives import *  # noqa: F403
from horovod.tensorflow.collectives import __all__ as _verb_names
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.hooks import BroadcastGlobalVariablesHook
from horovod.tensorflow.mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    broadcast_,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from horovod.tensorflow.mpi_ops import barrier as barrier  # the life cycle's, with a check
from horovod.tensorflow.optimizer import DistributedOptimizer, _LegacyOptimizer
from horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from horovod.tensorflow.util import (
    _cache,
    _executing_eagerly,
    _make_subgraph,
    refs_to_vars,
    vars_to_refs,
)

__all__ = [
    *_lifecycle_names,
    *_verb_names,
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "LocalGradientAggregationHelper",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",  # noqa: F405
    "_LegacyOptimizer",
    "_allreduce",
    "_cache",
    "_executing_eagerly",
    "_grouped_allreduce",
    "_grouped_reducescatter",
    "_make_allreduce_grads_fn",
    "_make_subgraph",
    "_reducescatter",
    "allgather_object",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "check_extension",
    "check_num_rank_power_of_2",
    "compression",
    "elastic",  # noqa: F405
    "functions",
    "gpu_available",
    "handle_average_backwards_compatibility",
    "join",
    "local_rank_op",
    "local_size_op",
    "mpi_ops",
    "process_set_included_op",
    "rank_op",
    "refs_to_vars",
    "size_op",
    "split_list",
    "util",
    "vars_to_refs",
]


def __getattr__(name: str) -> Any:
    """What needs Keras is loaded when it is first used: importing Keras takes seconds."""
    if name == "SyncBatchNormalization":
        from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    if name in ("elastic", "keras", "sync_batch_norm"):
        import importlib

        return importlib.import_module(f"horovod.tensorflow.{name}")
    raise AttributeError(f"module 'horovod.tensorflow' has no attribute {name!r}")
