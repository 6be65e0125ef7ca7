# SPDX-License-Identifier: Apache-2.0
"""Reduction of tf.IndexedSlices.

Equal rows are added up locally. Then the ranks' rows are gathered or, where that is fewer bytes, the whole
tensor is reduced: many ranks that touch many rows would gather some of them many times. The ranks add up how
many rows they have and so decide alike, anew in every step. The result is IndexedSlices either way.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import tensorflow as tf

from horovod.common.constants import Adasum, Average, Sum
from horovod.common.process_sets import process_set_id
from horovod.tensorflow import _library, mpi_ops
from horovod.tensorflow.util import elastic, normalize_name, tensor_name


def check(op: int, prescale_factor: float, postscale_factor: float) -> None:
    """Refuses what cannot be done with IndexedSlices, before anything is sent."""
    if op == Adasum:
        raise NotImplementedError(
            "The Adasum reduction does not currently support sparse tensors. As a workaround please pass "
            "sparse_as_dense=True to DistributedOptimizer"
        )
    if op not in (Sum, Average):
        raise NotImplementedError("Only Sum and Average ops are supported with tf.IndexedSlices")
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError("Pre/postscale_factor are not supported with tf.IndexedSlices")


def allreduce(slices: Any, op: int, process_set: Any) -> Any:
    """Sum or average of the members' slices, as IndexedSlices."""
    mine = deduplicate(slices)
    name = tensor_name(slices.values)  # names in the branches are made of it: they must differ from others'
    base = None if name is None else normalize_name(name)
    # Where nodes hold a thread while they wait, there should be few: no question of how many rows there are.
    if mine.dense_shape is None or not _library.kernels_defer():
        values, indices = _gathered(mine, base, process_set)
    else:
        total = mpi_ops._allreduce(tf.size(mine.indices, tf.int64), op=Sum, process_set=process_set)
        values, indices = tf.cond(
            _dense_is_smaller(mine, total),
            lambda: _reduced(mine, base, process_set),
            lambda: _gathered(mine, base, process_set),
        )
        values.set_shape([None, *slices.values.shape[1:]])
    if op == Average:
        values = values / _size(process_set, values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def grouped_allreduce(tensors: Sequence[Any], op: int, process_set: Any) -> List[Any]:
    """`allreduce` of several IndexedSlices. Their nodes do not depend on each other: the engine runs them in
    one batch."""
    return [allreduce(slices, op, process_set) for slices in tensors]


def deduplicate(slices: Any) -> Any:
    """The same gradient with every row index at most once, so that fewer bytes are sent."""
    indices, positions = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, positions, tf.size(indices))
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def _dense_is_smaller(mine: Any, total: Any) -> Any:
    """Whether a rank moves fewer bytes if all rows are reduced than if the ranks' `total` rows are gathered.

    Of n bytes, a gather moves n through every rank; a reduction moves them twice, there and back.
    """
    shape = tf.cast(mine.dense_shape, tf.int64)
    row = tf.reduce_prod(shape[1:]) * mine.values.dtype.size
    return 2 * shape[0] * (row + mine.values.dtype.size) < total * (row + mine.indices.dtype.size)


def _gathered(mine: Any, base: Optional[str], process_set: Any) -> Tuple[Any, Any]:
    names = [None if base is None else f"HorovodAllgather_{base}_{part}" for part in ("values", "indices")]
    # Two nodes that do not depend on each other: the engine runs them in one batch.
    values = mpi_ops.allgather(mine.values, name=names[0], process_set=process_set)
    indices = mpi_ops.allgather(mine.indices, name=names[1], process_set=process_set)
    return values, indices


def _reduced(mine: Any, base: Optional[str], process_set: Any) -> Tuple[Any, Any]:
    """All rows summed, and of them those that somebody touched: an optimizer leaves the others alone."""
    shape, places = tf.cast(mine.dense_shape, mine.indices.dtype), mine.indices[:, tf.newaxis]
    touched = tf.scatter_nd(places, tf.ones_like(mine.indices, mine.values.dtype), shape[:1])
    name = None if base is None else f"HorovodGroupedAllreduce_{base}_dense"
    dense = tf.scatter_nd(places, mine.values, shape)
    summed, counts = mpi_ops._grouped_allreduce([dense, touched], name=name, process_set=process_set)
    indices = tf.where(counts > 0)[:, 0]
    return tf.gather(summed, indices), tf.cast(indices, mine.indices.dtype)


def _size(process_set: Any, dtype: Any) -> Any:
    if elastic():
        return tf.cast(mpi_ops.size_op(process_set_id(process_set)), dtype)
    return tf.cast(process_set.size(), dtype)
