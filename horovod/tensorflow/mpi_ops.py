# SPDX-License-Identifier: Apache-2.0
"""Everything of TensorFlow's collectives that is not written from the table of verbs: what other modules and
libraries call on dense tensors, variables, and the ops that ask the engine."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import tensorflow as tf

from horovod.common import barriers
from horovod.common.basics import basics as _basics  # noqa: F401
from horovod.common.calls import Call
from horovod.common.constants import Sum
from horovod.common.lifecycle import *  # noqa: F403
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.process_sets import process_set_id as _set_id
from horovod.common.verbs import ALLREDUCE, BROADCAST, REDUCESCATTER
from horovod.tensorflow import (
    _gradients,  # noqa: F401  registers the gradients
    _nodes,
)
from horovod.tensorflow._library import ops as MPI_LIB
from horovod.tensorflow.collectives import (  # noqa: F401
    allgather,
    alltoall,
    broadcast,
    grouped_allgather,
)
from horovod.tensorflow.util import normalize_name as _normalize_name  # noqa: F401


def _check_has_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))


def _allreduce(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces a dense tensor over the set; every rank gets the result."""
    call = Call(ALLREDUCE, name, _set_id(process_set), op, prescale_factor, postscale_factor)
    return _nodes.one(call, tensor, ignore_name_scope)


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """Reduces tensors of one dtype as one atomic group."""
    call = Call(ALLREDUCE, name, _set_id(process_set), op, prescale_factor, postscale_factor)
    return _nodes.group(call, tensors, ignore_name_scope)


def _grouped_broadcast(
    tensors: Sequence[Any],
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`broadcast` of tensors of any dtypes as one atomic group."""
    return _nodes.group(Call(BROADCAST, name, _set_id(process_set), root=root_rank), tensors)


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """Broadcasts variables into themselves.

    Returns:
        The updated values.

    Raises:
        ValueError: the variables are a mixture of TF1 reference and resource variables.
    """
    variables = list(variables)
    resource = [hasattr(v, "handle") for v in variables]
    if any(resource) and not all(resource):
        raise ValueError(
            "All variables passed to broadcast_() should be of the same kind, resource or reference"
        )
    values = _grouped_broadcast(variables, root_rank, name, process_set)
    return [tf.convert_to_tensor(v.assign(value)) for v, value in zip(variables, values)]


def _reducescatter(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces a tensor and gives each member its rows of the result."""
    call = Call(REDUCESCATTER, name, _set_id(process_set), op, prescale_factor, postscale_factor)
    return _nodes.one(call, tensor, ignore_name_scope)


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[Any]:
    """`_reducescatter` of tensors of one dtype as one atomic group."""
    call = Call(REDUCESCATTER, name, _set_id(process_set), op, prescale_factor, postscale_factor)
    return _nodes.group(call, tensors, ignore_name_scope)


def barrier(process_set: ProcessSet = global_process_set) -> None:  # type: ignore[no-redef]
    """Returns when all members of the process set have called it.

    Raises:
        RuntimeError: it is called while a function is traced, which it would wait for instead of its runs.
    """
    if tf.inside_function():
        raise RuntimeError(
            "hvd.barrier() waits where it is called, and inside a tf.function that is only while the "
            "function is traced. Call it outside of the function."
        )
    barriers.barrier(process_set)


def join() -> Any:
    """Says that this rank has no more data; waits for all and returns the rank that joined last."""
    return MPI_LIB.horovod_join()


def size_op(process_set_id: int = 0, name: Optional[str] = None) -> Any:
    """Number of processes (of a set) as an int32 tensor, read when the graph runs."""
    return MPI_LIB.horovod_size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> Any:
    """1 if this rank is a member of the set, 0 if not, -1 before init, -3 for an unknown set."""
    return MPI_LIB.horovod_process_set_included(process_set_id=process_set_id, name=name)


def local_size_op(name: Optional[str] = None) -> Any:
    """Number of processes on this host as an int32 tensor, read when the graph runs."""
    return MPI_LIB.horovod_local_size(name=name)


def rank_op(name: Optional[str] = None) -> Any:
    """This process' rank as an int32 tensor, read when the graph runs."""
    return MPI_LIB.horovod_rank(name=name)


def local_rank_op(name: Optional[str] = None) -> Any:
    """This process' rank on its host as an int32 tensor, read when the graph runs."""
    return MPI_LIB.horovod_local_rank(name=name)
