# SPDX-License-Identifier: Apache-2.0
"""The reductions users call: dense or IndexedSlices, with compression and the old `average` argument."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

import tensorflow as tf

from horovod.common.arguments import resolve_op
from horovod.common.constants import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _sparse, mpi_ops
from horovod.tensorflow.compression import Compression


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over all ranks of the set; every one of them gets the result.

    Args:
        tensor: tf.Tensor, tf.Variable, tf.IndexedSlices or anything convertible; same shape on all ranks.
        average: deprecated, use `op`.
        device_dense: accepted for compatibility; the kernels run on the CPU.
        device_sparse: as device_dense.
        compression: Compression.none, fp16, bf16 or a class with their two methods.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
        name: what the ranks match by; in a graph made from the tensor's name when absent.
        process_set: the ranks that take part.
        ignore_name_scope: leave TensorFlow's name scopes out of the name.
    """
    op = resolve_op(op, average)
    _check_known(process_set)
    if isinstance(tensor, tf.IndexedSlices):
        _sparse.check(op, prescale_factor, postscale_factor)
        return _sparse.allreduce(tensor, op, process_set)
    compressed, context = compression.compress(tf.convert_to_tensor(tensor))
    reduced = mpi_ops._allreduce(
        compressed,
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
    )
    return compression.decompress(reduced, context)


def _check_known(process_set: ProcessSet) -> None:
    """Raises ValueError for a set that was removed, or that belongs to a job which has ended."""
    if isinstance(process_set, ProcessSet) and process_set.process_set_id:
        process_set.size()


def _by_dtype(
    function: Callable[[List[Any], Optional[str]], List[Any]], tensors: Sequence[Any], name: Optional[str]
) -> List[Any]:
    """Runs a grouped op once for each dtype, and returns the results in the tensors' order."""
    places: Dict[Any, List[int]] = {}
    for i, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(i)
    results: List[Any] = [None] * len(tensors)
    for dtype, where in places.items():
        part = name if name is None or len(places) == 1 else f"{name}_{dtype.name}"
        for i, result in zip(where, function([tensors[i] for i in where], part)):
            results[i] = result
    return results


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
) -> List[Any]:
    """`allreduce` of several tensors, dense ones (of each dtype) as one atomic group.

    The arguments are those of `allreduce`. IndexedSlices may be among the tensors.
    """
    if not tensors:
        return list(tensors)
    op = resolve_op(op, average)
    _check_known(process_set)
    results: List[Any] = list(tensors)
    sparse = [i for i, t in enumerate(tensors) if isinstance(t, tf.IndexedSlices)]
    dense = [i for i, t in enumerate(tensors) if not isinstance(t, tf.IndexedSlices)]
    if sparse:
        _sparse.check(op, prescale_factor, postscale_factor)
    if dense:
        pairs = [compression.compress(tf.convert_to_tensor(tensors[i])) for i in dense]
        reduced = _by_dtype(
            lambda part, part_name: mpi_ops._grouped_allreduce(
                part,
                name=part_name,
                op=op,
                prescale_factor=prescale_factor,
                postscale_factor=postscale_factor,
                ignore_name_scope=ignore_name_scope,
                process_set=process_set,
            ),
            [compressed for compressed, _ in pairs],
            name,
        )
        for i, tensor, (_, context) in zip(dense, reduced, pairs):
            results[i] = compression.decompress(tensor, context)
    if sparse:
        parts = _sparse.grouped_allreduce([tensors[i] for i in sparse], op, process_set)
        for i, part in zip(sparse, parts):
            results[i] = part
    return results


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces a tensor (Average or Sum) and gives each member its share of the rows.

    With d rows and n members, member i gets d // n rows, one more if i < d % n.
    """
    compressed, context = compression.compress(tf.convert_to_tensor(tensor))
    reduced = mpi_ops._reducescatter(
        compressed,
        name=name,
        op=op,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )
    return compression.decompress(reduced, context)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[Any]:
    """`reducescatter` of several tensors, those of each dtype as one atomic group."""
    if not tensors:
        return list(tensors)
    pairs = [compression.compress(tf.convert_to_tensor(t)) for t in tensors]
    reduced = _by_dtype(
        lambda part, name: mpi_ops._grouped_reducescatter(
            part,
            name=name,
            op=op,
            process_set=process_set,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        ),
        [compressed for compressed, _ in pairs],
        None,
    )
    return [compression.decompress(t, context) for t, (_, context) in zip(reduced, pairs)]
