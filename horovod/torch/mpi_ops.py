# SPDX-License-Identifier: Apache-2.0
"""The collectives and everything around them under the module name that scripts know."""

from __future__ import annotations

from typing import Any, Callable

import torch

from horovod.common import handles, lifecycle
from horovod.common.arguments import resolve_op as handle_average_backwards_compatibility
from horovod.common.barriers import join
from horovod.common.basics import basics as _basics
from horovod.common.calls import Call
from horovod.common.handles import poll
from horovod.common.handles import table as _handle_map
from horovod.common.lifecycle import *  # noqa: F403
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.util import check_installed_version, gpu_available, num_rank_is_power_2
from horovod.common.verbs import ALLREDUCE
from horovod.torch import _sparse, collectives
from horovod.torch._autograd import (
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    HorovodReducescatter,
)
from horovod.torch.collectives import *  # noqa: F403


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation and returns its output; None for an unknown handle.

    Returns:
        One tensor; a tuple for grouped operations; (output, received_splits) for alltoall.

    Raises:
        HorovodInternalError: the ranks disagree about the operation, a peer died, or the job was shut down.
    """
    return handles.synchronize(handle) if handles.is_known(handle) else None


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the reduction of a sparse COO tensor; returns a function that waits and gives the result.

    Each rank's rows are gathered; rows with the same index are added in the result. `op` is Average or Sum.
    """
    return _sparse.SparseAllreduce(Call(ALLREDUCE, name, process_set_id(process_set), op), tensor).result


__all__ = [
    "HorovodAllgather", "HorovodAllreduce", "HorovodAlltoall", "HorovodBroadcast", "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce", "HorovodGroupedReducescatter", "HorovodReducescatter", "_basics",
    "_handle_map", "check_installed_version", "gpu_available", "handle_average_backwards_compatibility",
    "join", "num_rank_is_power_2", "poll", "sparse_allreduce_async", "synchronize",
]  # fmt: skip
__all__ += lifecycle.__all__
__all__ += collectives.__all__
