# SPDX-License-Identifier: Apache-2.0
"""Gradients of the collectives.

allreduce        allreduce of the gradient, same reduction
allgather        average of the gradient over the set, then this rank's rows
broadcast        average of the gradient on the root, zero elsewhere
alltoall         alltoall back, by the received splits
reducescatter    allgather of the gradient (times the set's size for Sum)
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import tensorflow as tf

from horovod.common.basics import basics as _basics
from horovod.common.constants import Average, Sum
from horovod.tensorflow import mpi_ops


class _SetById:
    """Enough of a ProcessSet for an op: gradients know only the number."""

    def __init__(self, number: int) -> None:
        self.process_set_id = number


def _set(op: Any) -> Any:
    return _SetById(int(op.get_attr("process_set_id")))


def _reduction(op: Any) -> Dict[str, Any]:
    return {
        "op": int(op.get_attr("reduce_op")),
        "prescale_factor": float(op.get_attr("prescale_factor")),
        "postscale_factor": float(op.get_attr("postscale_factor")),
    }


def _common(op: Any) -> Dict[str, Any]:
    return {"process_set": _set(op), "ignore_name_scope": bool(op.get_attr("ignore_name_scope"))}


@tf.RegisterGradient("HorovodAllreduce")
def _allreduce_grad(op: Any, grad: Any) -> Any:
    return mpi_ops._allreduce(grad, **_reduction(op), **_common(op))


@tf.RegisterGradient("HorovodGroupedAllreduce")
def _grouped_allreduce_grad(op: Any, *grads: Any) -> List[Any]:
    return mpi_ops._grouped_allreduce(list(grads), **_reduction(op), **_common(op))


def _gather_grad(tensor: Any, grad: Any, common: Dict[str, Any]) -> Any:
    """This rank's rows of the averaged gradient."""
    averaged = mpi_ops._allreduce(grad, op=Average, **common)
    rows = mpi_ops.allgather(tf.shape(tensor, out_type=tf.int64)[:1], **common)
    members = _basics.process_set_ranks(common["process_set"].process_set_id)
    before = tf.reduce_sum(rows[: members.index(_basics.rank())])
    return averaged[before : before + tf.shape(tensor, out_type=tf.int64)[0]]


@tf.RegisterGradient("HorovodAllgather")
def _allgather_grad(op: Any, grad: Any) -> Any:
    return _gather_grad(op.inputs[0], grad, _common(op))


@tf.RegisterGradient("HorovodGroupedAllgather")
def _grouped_allgather_grad(op: Any, *grads: Any) -> List[Any]:
    return [_gather_grad(tensor, grad, _common(op)) for tensor, grad in zip(op.inputs, grads)]


def _root_only(op: Any, grad: Any) -> Any:
    if int(op.get_attr("root_rank")) == _basics.rank():
        return grad
    return grad * tf.cast(0, grad.dtype)


@tf.RegisterGradient("HorovodBroadcast")
def _broadcast_grad(op: Any, grad: Any) -> Any:
    return _root_only(op, mpi_ops._allreduce(grad, op=Average, **_common(op)))


@tf.RegisterGradient("HorovodGroupedBroadcast")
def _grouped_broadcast_grad(op: Any, *grads: Any) -> List[Any]:
    return [_root_only(op, mpi_ops._allreduce(grad, op=Average, **_common(op))) for grad in grads]


@tf.RegisterGradient("HorovodAlltoall")
def _alltoall_grad(op: Any, grad: Any, _: Any) -> Tuple[Any, None]:
    returned, _ = mpi_ops.alltoall(grad, splits=op.outputs[1], **_common(op))
    return returned, None


def _scatter_grad(op: Any, grad: Any) -> Any:
    factors = _reduction(op)
    factor = factors["prescale_factor"] * factors["postscale_factor"]
    if factors["op"] == Sum:
        factor *= len(_basics.process_set_ranks(_set(op).process_set_id))
    return mpi_ops.allgather(grad * tf.cast(factor, grad.dtype) if factor != 1.0 else grad, **_common(op))


@tf.RegisterGradient("HorovodReducescatter")
def _reducescatter_grad(op: Any, grad: Any) -> Any:
    return _scatter_grad(op, grad)


@tf.RegisterGradient("HorovodGroupedReducescatter")
def _grouped_reducescatter_grad(op: Any, *grads: Any) -> List[Any]:
    return [_scatter_grad(op, grad) for grad in grads]


for _op_type in (
    "HorovodJoin",
    "HorovodRank",
    "HorovodSize",
    "HorovodLocalRank",
    "HorovodLocalSize",
    "HorovodProcessSetIncluded",
):
    tf.no_gradient(_op_type)
