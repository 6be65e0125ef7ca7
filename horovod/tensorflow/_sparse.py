# SPDX-License-Identifier: Apache-2.0
"""Reduction of tf.IndexedSlices.

Equal rows are added up locally. Then the ranks' rows are gathered or, where that is fewer bytes, the whole
tensor is reduced: many ranks that touch many rows would gather some of them many times. The ranks add up how
many rows they have and so decide alike, anew in every step. The result is IndexedSlices either way.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, Optional, Tuple

import tensorflow as tf

from horovod.common.basics import basics as _basics
from horovod.common.calls import Call
from horovod.common.constants import Adasum, Average, Sum
from horovod.common.log import log
from horovod.common.verbs import ALLGATHER, ALLREDUCE, Verb
from horovod.tensorflow import _library, _nodes
from horovod.tensorflow._library import ops
from horovod.tensorflow.util import elastic, normalize_name, tensor_name


def check(call: Call) -> None:
    """Refuses what cannot be done with IndexedSlices, before anything is sent."""
    if call.op == Adasum:
        raise NotImplementedError(
            "The Adasum reduction does not currently support sparse tensors. As a workaround please pass "
            "sparse_as_dense=True to DistributedOptimizer"
        )
    if call.op not in (Sum, Average):
        raise NotImplementedError("Only Sum and Average ops are supported with tf.IndexedSlices")
    if call.prescale != 1.0 or call.postscale != 1.0:
        raise NotImplementedError("Pre/postscale_factor are not supported with tf.IndexedSlices")


def allreduce(call: Call, slices: Any, ignore_name_scope: bool = False) -> Any:
    """Sum or average of the members' slices, as IndexedSlices. Unnamed nodes are named after the tensor."""
    mine = deduplicate(slices)
    name = call.name or tensor_name(slices.values)
    transfer = _Transfer(mine, name and normalize_name(name), call.process_set, ignore_name_scope)
    # Where nodes hold a thread while they wait, there should be few: no question of how many rows there are.
    if mine.dense_shape is None or not _library.kernels_defer():
        values, indices = transfer.gathered()
    else:
        values, indices = tf.cond(transfer.dense_is_smaller(), transfer.reduced, transfer.gathered)
        values.set_shape([None, *slices.values.shape[1:]])
    if call.op == Average:
        values = values / _size(call.process_set, values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def deduplicate(slices: Any) -> Any:
    """The same gradient with every row index at most once, so that fewer bytes are sent."""
    indices, positions = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, positions, tf.size(indices))
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


class _Transfer(NamedTuple):
    """Two ways to bring the ranks' rows together, and the choice between them."""

    mine: Any  # every row once
    name: Optional[str]  # what the nodes are named after
    process_set: int
    ignore_name_scope: bool

    def _call(self, verb: Verb, part: str) -> Call:
        grouped = part == "dense"
        name = self.name and f"{_nodes.op_type(verb, grouped)}_{self.name}_{part}"
        return Call(verb, name, self.process_set)

    def dense_is_smaller(self) -> Any:
        """Whether a rank moves fewer bytes if all rows are reduced than if the ranks' rows are gathered.

        Of n bytes, a gather moves n through every rank; a reduction moves them twice, there and back.
        """
        values, indices = self.mine.values, self.mine.indices
        count = tf.size(indices, tf.int64)
        total = _nodes.one(self._call(ALLREDUCE, "count"), count, self.ignore_name_scope)
        shape = tf.cast(self.mine.dense_shape, tf.int64)
        row = tf.reduce_prod(shape[1:]) * values.dtype.size
        dense, rows = 2 * shape[0] * (row + values.dtype.size), total * (row + indices.dtype.size)
        if not log.isEnabledFor(logging.INFO):
            return dense < rows
        smaller = tf.numpy_function(_Note(self.name or "IndexedSlices"), [dense, rows], tf.bool)
        return tf.ensure_shape(smaller, [])

    def gathered(self) -> Tuple[Any, Any]:
        """The ranks' rows, one after the other. The engine runs the two nodes in one batch."""
        pair = (("values", self.mine.values), ("indices", self.mine.indices))
        values, indices = (
            _nodes.one(self._call(ALLGATHER, part), tensor, self.ignore_name_scope) for part, tensor in pair
        )
        return values, indices

    def reduced(self) -> Tuple[Any, Any]:
        """All rows summed, and of them those that somebody touched: an optimizer leaves the others alone."""
        values, indices = self.mine.values, self.mine.indices
        shape, places = tf.cast(self.mine.dense_shape, indices.dtype), indices[:, tf.newaxis]
        touched = tf.scatter_nd(places, tf.ones_like(indices, values.dtype), shape[:1])
        dense = tf.scatter_nd(places, values, shape)
        call = self._call(ALLREDUCE, "dense")
        summed, counts = _nodes.group(call, [dense, touched], self.ignore_name_scope)
        rows = tf.where(counts > 0)[:, 0]
        return tf.gather(summed, rows), tf.cast(rows, indices.dtype)


class _Note:
    """The choice, made in Python so that it can be logged when it changes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last: Optional[bool] = None

    def __call__(self, dense: int, rows: int) -> bool:
        smaller = bool(dense < rows)
        if smaller != self.last:
            self.last = smaller
            log.info(
                "the gradients of %s are sent as %s: that moves %d bytes, the other way %d",
                self.name, "dense ones" if smaller else "rows", min(dense, rows), max(dense, rows),
            )  # fmt: skip
        return smaller


def _size(process_set: int, dtype: Any) -> Any:
    if elastic():
        return tf.cast(ops.horovod_size(process_set_id=process_set), dtype)
    return tf.cast(len(_basics.process_set_ranks(process_set)), dtype)
