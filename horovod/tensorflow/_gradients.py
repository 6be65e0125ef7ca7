# SPDX-License-Identifier: Apache-2.0
"""Gradients of the collectives' nodes, by the rules of horovod/common/gradients.py."""

from __future__ import annotations

from typing import Any, List, Sequence

import tensorflow as tf

from horovod.common import gradients as rules
from horovod.common.calls import Call
from horovod.common.members import place_in
from horovod.common.verbs import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, VERBS, Verb
from horovod.tensorflow import _nodes


class _Toolkit:
    """What TensorFlow does with tensors on the way back; rows are tensors here, known when the graph runs."""

    def __init__(self, grouped: bool, ignore_name_scope: bool) -> None:
        self.grouped = grouped
        self.ignore_name_scope = ignore_name_scope

    def run(self, call: Call, tensors: Sequence[Any]) -> List[Any]:
        if self.grouped:
            return _nodes.group(call, tensors, self.ignore_name_scope)
        results = [_nodes.one(call, t, self.ignore_name_scope) for t in tensors]
        return [output for output, _ in results] if call.verb is ALLTOALL else results

    def zeros(self, tensor: Any) -> Any:
        with tf.control_dependencies([tensor]):  # the others wait for this rank's part in it
            return tf.zeros_like(tensor)

    def scaled(self, tensor: Any, factor: float) -> Any:
        return tensor * tf.cast(factor, tensor.dtype)

    def own_rows(self, call: Call, gathered: Sequence[Any], rows: Sequence[Any]) -> List[Any]:
        _, position = place_in(call.process_set, ALLGATHER)
        parts = []
        for tensor, count in zip(gathered, rows):
            (every,) = self.run(Call(ALLGATHER, process_set=call.process_set), [count[tf.newaxis]])
            before = tf.reduce_sum(every[:position])
            parts.append(tensor[before : before + count])
        return parts

    def padded(self, tensor: Any, rows: Any) -> Any:
        missing = tf.concat([[rows - _rows(tensor)], tf.shape(tensor, out_type=tf.int64)[1:]], axis=0)
        return tf.concat([tensor, tf.zeros(missing, tensor.dtype)], axis=0)


def _rows(tensor: Any) -> Any:
    return tf.shape(tensor, out_type=tf.int64)[0]


def _call(verb: Verb, op: Any) -> Call:
    """The call that made a node."""
    call = Call(verb, process_set=int(op.get_attr("process_set_id")))
    if verb.reductions:
        call = call._replace(
            op=int(op.get_attr("reduce_op")),
            prescale=float(op.get_attr("prescale_factor")),
            postscale=float(op.get_attr("postscale_factor")),
        )
    return call._replace(root=int(op.get_attr("root_rank"))) if verb is BROADCAST else call


def _register(verb: Verb, grouped: bool, op_type: str) -> None:
    def gradient(op: Any, *grads: Any) -> Any:
        # The gradients of a grouped allreduce are a group again; others may be of several dtypes.
        toolkit = _Toolkit(grouped and verb.gradient == verb.name, bool(op.get_attr("ignore_name_scope")))
        tensors = op.inputs[:1] if verb is ALLTOALL else list(op.inputs)
        rows = [_rows(t) for t in tensors] if verb.by_rows else []
        if verb is not ALLTOALL:
            return rules.backward(toolkit, _call(verb, op), grads, rules.Saved(rows))
        (back,) = rules.backward(toolkit, _call(verb, op), grads[:1], rules.Saved(rows, op.outputs[1]))
        return back, None

    tf.RegisterGradient(op_type)(gradient)


for _verb in VERBS.values():
    _register(_verb, False, _nodes.op_type(_verb))
    if _verb is not ALLTOALL:
        _register(_verb, True, _nodes.op_type(_verb, grouped=True))
_register(ALLREDUCE, False, _nodes.EACH)

for _op_type in (
    "HorovodJoin",
    "HorovodRank",
    "HorovodSize",
    "HorovodLocalRank",
    "HorovodLocalSize",
    "HorovodProcessSetIncluded",
):
    tf.no_gradient(_op_type)
