# SPDX-License-Identifier: Apache-2.0
"""The collectives as TensorFlow ops: one call, one node, in eager mode, tf.function and TF1 graphs.

Node names are what ranks match by. In a graph an unnamed op is named after its tensor; in eager mode, where
nodes have no names, the op type or the given name is sent.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import tensorflow as tf

from horovod.common.basics import basics
from horovod.common.calls import Call
from horovod.common.constants import Average
from horovod.common.verbs import ALLREDUCE, ALLTOALL, BROADCAST, Result, Verb
from horovod.tensorflow import _xla
from horovod.tensorflow._library import ops
from horovod.tensorflow.util import normalize_name, tensor_name, without_autograph

EACH = "HorovodAllreduceEach"


@without_autograph
def one(call: Call, tensor: Any, ignore_name_scope: bool = False) -> Any:
    """A collective on a tensor: its output. Alltoall: output and received splits."""
    tensor = tf.convert_to_tensor(tensor)
    if _xla.inside():
        return _compiled(call, [tensor], grouped=False)[0]
    return getattr(ops, f"horovod_{call.verb.name}")(
        tensor,
        ignore_name_scope=ignore_name_scope,
        **_attributes(call),
        **name_arguments(op_type(call.verb), [tensor], call.name),
    )


@without_autograph
def group(call: Call, tensors: Sequence[Any], ignore_name_scope: bool = False) -> List[Any]:
    """A collective on several tensors as one atomic group; of one dtype, except for broadcast."""
    if not tensors:
        return []
    tensors = [tf.convert_to_tensor(t) for t in tensors]
    if _xla.inside():
        return _compiled(call, tensors, grouped=True)
    return _in_one_go(
        getattr(ops, f"horovod_{call.verb.prefix(grouped=True)}")(
            tensors,
            ignore_name_scope=ignore_name_scope,
            **_attributes(call),
            **name_arguments(op_type(call.verb, grouped=True), tensors, call.name),
        )
    )


def each(
    call: Call, tensors: Sequence[Any], names: Sequence[str], ignore_name_scope: bool = False
) -> List[Any]:
    """Allreduces in a graph that share one node, and are called as if each had its own of these names."""
    graph = tf.compat.v1.get_default_graph()
    return _in_one_go(
        ops.horovod_allreduce_each(
            tensors,
            ignore_name_scope=ignore_name_scope,
            tensor_names=[graph.unique_name(name).rpartition("/")[2] for name in names],
            **_attributes(call),
        )
    )


def _in_one_go(outputs: Sequence[Any]) -> List[Any]:
    """The outputs of a node, whose followers run one after the other on one thread if they are cheap.

    A collective is done asynchronously, and what follows such a node is handed to the threads of the pool one
    by one: 160 variables to be updated, say, which takes longer than their gradients took to be reduced. What
    follows an ordinary node goes on where that ran, so there is one in between.
    """
    if len(outputs) == 1 or tf.executing_eagerly():
        return list(outputs)
    return list(tf.identity_n(outputs))


def enqueue_and_wait(
    call: Call, tensors: Sequence[Any], names: Sequence[Optional[str]], ignore_name_scope: bool = False
) -> List[Any]:
    """Allreduces of tensors that are submitted one by one and waited for together, by one thread."""
    tickets = [
        ops.horovod_enqueue_allreduce(
            tensor,
            ignore_name_scope=ignore_name_scope,
            **_attributes(call),
            **name_arguments(op_type(call.verb), [tensor], name),
        )
        for tensor, name in zip(tensors, names)
    ]
    results = ops.horovod_wait(tickets, T=[t.dtype for t in tensors])
    for result, tensor in zip(results, tensors):
        result.set_shape(tensor.shape)
    return list(results)


def op_type(verb: Verb, grouped: bool = False) -> str:
    """The type of the nodes, e.g. HorovodGroupedAllreduce."""
    return "Horovod" + verb.prefix(grouped).title().replace("_", "")


def _attributes(call: Call) -> Dict[str, Any]:
    """What a node knows of its call."""
    attributes: Dict[str, Any] = {"process_set_id": call.process_set}
    if call.verb.reductions:
        attributes.update(reduce_op=call.op, prescale_factor=call.prescale, postscale_factor=call.postscale)
    if call.verb is BROADCAST:
        attributes["root_rank"] = call.root
    if call.verb is ALLTOALL:
        attributes["splits"] = tf.convert_to_tensor(
            call.splits if call.splits is not None else [], dtype=tf.int32
        )
    return attributes


def name_arguments(node_type: str, tensors: Sequence[Any], name: Optional[str]) -> Dict[str, Any]:
    """How the generated wrapper is told the name: as an attribute in eager mode, as the node's in a graph."""
    if tf.executing_eagerly():
        return {"tensor_name": name or ""}
    return {"name": default_name(node_type, tensors) if name is None else name}


def default_name(node_type: str, tensors: Sequence[Any]) -> Optional[str]:
    """What an unnamed node of these tensors is called in a graph."""
    if tf.executing_eagerly() or not tensors:
        return None
    names = [tensor_name(t) for t in (tensors[:1] if len(tensors) == 1 else [tensors[0], tensors[-1]])]
    return "_".join([node_type, *(normalize_name(n) for n in names if n)])


def _compiled(call: Call, tensors: Sequence[Any], grouped: bool) -> List[Any]:
    """The call inside a function that XLA compiles; the gradient is the same collective's."""
    if call.verb.result is not Result.SAME:
        _xla.refuse(call.verb)
    node_type = op_type(call.verb, grouped)
    wire = name_arguments(node_type, tensors, call.name)["name"] or node_type

    @tf.custom_gradient  # type: ignore[misc]
    def forward(*inputs: Any) -> Any:
        def backward(*gradients: Any) -> List[Any]:
            if call.verb is ALLREDUCE:
                return _xla.custom_call(call, gradients, wire + "_grad")
            average = Call(ALLREDUCE, process_set=call.process_set, op=Average)
            scale = 1.0 if call.root == basics.rank() else 0.0
            return [g * tf.cast(scale, g.dtype) for g in _xla.custom_call(average, gradients, wire + "_grad")]

        return _xla.custom_call(call, inputs, wire), backward

    return list(forward(*tensors))
