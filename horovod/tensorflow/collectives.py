# SPDX-License-Identifier: Apache-2.0
# Written by scripts/generate_verbs.py from horovod/common/verbs.py: edit there, run `make verbs`.
"""The collectives on TensorFlow's tensors, in eager mode, tf.function and TF1 graphs.

In a graph they are matched by the names of their nodes; an unnamed one is named after its tensor.

Raises, in all of them: tf.errors.InvalidArgumentError for a wrong argument; FailedPreconditionError if the
ranks disagree about an operation or Horovod is not initialised; UnknownError if a peer died or the job was
shut down.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from horovod.common.arguments import resolve_op
from horovod.common.calls import Call
from horovod.common.constants import Average
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.verbs import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from horovod.tensorflow import _forms
from horovod.tensorflow.compression import Compression

# fmt: off

__all__ = [
    "allreduce", "grouped_allreduce", "allgather", "grouped_allgather", "broadcast", "alltoall",
    "reducescatter", "grouped_reducescatter",
]


def allreduce(
    tensor: Any, average: Optional[bool] = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over the ranks, element by element; all of them get the result.

    The sum or average of tf.IndexedSlices is tf.IndexedSlices again.

    Args:
        tensor: tf.Tensor, tf.Variable or anything that becomes one.
        average: former `op`: True is Average, False is Sum.
        device_dense: accepted for compatibility; TensorFlow places what it computes.
        device_sparse: accepted for compatibility; TensorFlow places what it computes.
        compression: how to shrink what travels, e.g. Compression.fp16.
        op: Average (default), Sum, Adasum, Min, Max or Product.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
        name: matched across the ranks; unnamed operations are matched by their order.
        process_set: the ranks that take part.
        ignore_name_scope: leave TensorFlow's name scopes out of the name.
    """
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.run(call, tensor, compression=compression, ignore_name_scope=ignore_name_scope)


def grouped_allreduce(
    tensors: Sequence[Any], average: Optional[bool] = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False, name: Optional[str] = None,
) -> List[Any]:
    """`allreduce` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.run_group(call, tensors, compression=compression, ignore_name_scope=ignore_name_scope)


def allgather(
    tensor: Any, name: Optional[str] = None, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenates the ranks' tensors along the first dimension, which may differ from rank to rank.

    Args:
        tensor: tf.Tensor, tf.Variable or anything that becomes one.
        name: matched across the ranks; unnamed operations are matched by their order.
        ignore_name_scope: leave TensorFlow's name scopes out of the name.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    call = Call(ALLGATHER, name, set_id)
    return _forms.run(call, tensor, ignore_name_scope=ignore_name_scope)


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`allgather` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(ALLGATHER, name, set_id)
    return _forms.run_group(call, tensors, ignore_name_scope=ignore_name_scope)


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank the root's tensor.

    Args:
        tensor: tf.Tensor, tf.Variable or anything that becomes one.
        root_rank: the sender, a global rank also with a process set.
        name: matched across the ranks; unnamed operations are matched by their order.
        ignore_name_scope: leave TensorFlow's name scopes out of the name.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    call = Call(BROADCAST, name, set_id, root=root_rank)
    return _forms.run(call, tensor, ignore_name_scope=ignore_name_scope)


def alltoall(
    tensor: Any, splits: Any = None, name: Optional[str] = None, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends each rank a slice of the first dimension and concatenates what comes from all, in rank order.

    Args:
        tensor: tf.Tensor, tf.Variable or anything that becomes one.
        splits: rows for each member; None sends each the same number.
        name: matched across the ranks; unnamed operations are matched by their order.
        ignore_name_scope: leave TensorFlow's name scopes out of the name.
        process_set: the ranks that take part.

    Returns:
        The received rows; with `splits`, also how many came from each member (int32).
    """
    set_id = process_set_id(process_set)
    call = Call(ALLTOALL, name, set_id, splits=splits)
    return _forms.exchange(call, tensor, ignore_name_scope=ignore_name_scope)


def reducescatter(
    tensor: Any, device_dense: str = "", compression: Any = Compression.none, op: int = Average,
    name: Optional[str] = None, process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Any:
    """Reduces a tensor and leaves each rank its share of the rows; the first ranks get what does not divide.

    Args:
        tensor: tf.Tensor, tf.Variable or anything that becomes one.
        device_dense: accepted for compatibility; TensorFlow places what it computes.
        compression: how to shrink what travels, e.g. Compression.fp16.
        op: Average or Sum.
        name: matched across the ranks; unnamed operations are matched by their order.
        process_set: the ranks that take part.
        ignore_name_scope: leave TensorFlow's name scopes out of the name.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
    """
    set_id = process_set_id(process_set)
    call = Call(REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)
    return _forms.run(call, tensor, compression=compression, ignore_name_scope=ignore_name_scope)


def grouped_reducescatter(
    tensors: Sequence[Any], device_dense: str = "", compression: Any = Compression.none, op: int = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    name: Optional[str] = None, ignore_name_scope: bool = False,
) -> List[Any]:
    """`reducescatter` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)
    return _forms.run_group(call, tensors, compression=compression, ignore_name_scope=ignore_name_scope)
