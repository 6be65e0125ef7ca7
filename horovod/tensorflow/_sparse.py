# SPDX-License-Identifier: Apache-2.0
"""Reduction of tf.IndexedSlices: equal rows are added up locally, then the ranks' rows are gathered."""

from __future__ import annotations

from typing import Any, List, Sequence

import tensorflow as tf

from horovod.common.constants import Average, Sum
from horovod.common.process_sets import process_set_id
from horovod.tensorflow import mpi_ops
from horovod.tensorflow.util import elastic


def _check(op: int, prescale_factor: float, postscale_factor: float) -> None:
    if op not in (Sum, Average):
        raise NotImplementedError("Only Sum and Average ops are supported with tf.IndexedSlices")
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError("Pre/postscale_factor are not supported with tf.IndexedSlices")


def deduplicate(slices: Any) -> Any:
    """The same gradient with every row index at most once, so that fewer bytes are sent."""
    indices, positions = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, positions, tf.size(indices))
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def _size(process_set: Any, dtype: Any) -> Any:
    if elastic():
        return tf.cast(mpi_ops.size_op(process_set_id(process_set)), dtype)
    return tf.cast(process_set.size(), dtype)


def _finish(values: Any, indices: Any, original: Any, op: int, process_set: Any) -> Any:
    if op == Average:
        values = values / _size(process_set, values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=original.dense_shape)


def allreduce(slices: Any, op: int, prescale_factor: float, postscale_factor: float, process_set: Any) -> Any:
    """Sum or average of the members' slices, as IndexedSlices."""
    return grouped_allreduce([slices], op, prescale_factor, postscale_factor, process_set)[0]


def grouped_allreduce(
    tensors: Sequence[Any], op: int, prescale_factor: float, postscale_factor: float, process_set: Any
) -> List[Any]:
    """`allreduce` of several IndexedSlices."""
    _check(op, prescale_factor, postscale_factor)
    unique = [deduplicate(t) for t in tensors]
    results = []
    for original, slices in zip(tensors, unique):
        # Two nodes that do not depend on each other: the engine runs them in one batch.
        values = mpi_ops.allgather(slices.values, process_set=process_set)
        indices = mpi_ops.allgather(slices.indices, process_set=process_set)
        results.append(_finish(values, indices, original, op, process_set))
    return results
