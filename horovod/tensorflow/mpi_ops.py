# SPDX-License-Identifier: Apache-2.0
"""The collectives as TensorFlow ops: one call, one node, in eager mode, tf.function and TF1 graphs.

Node names are what ranks match by. In a graph an unnamed op is named after its tensor; in eager mode, where
nodes have no names, the op type or the given name is sent.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import tensorflow as tf

from horovod.common import constants
from horovod.common.basics import basics as _basics
from horovod.common.constants import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.tensorflow import _xla
from horovod.tensorflow._basics import *  # noqa: F403
from horovod.tensorflow._library import ops as MPI_LIB
from horovod.tensorflow.util import _executing_eagerly, normalize_name, tensor_name

_normalize_name = normalize_name


def _check_has_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))


def _name_arguments(op_type: str, tensors: Sequence[Any], name: Optional[str]) -> Dict[str, Any]:
    """How the generated wrapper is told the name: as an attribute in eager mode, as the node's in a graph."""
    if _executing_eagerly():
        return {"tensor_name": name or ""}
    if name is None and tensors:
        names = [tensor_name(t) for t in (tensors[:1] if len(tensors) == 1 else [tensors[0], tensors[-1]])]
        name = "_".join([op_type, *(normalize_name(n) for n in names if n)])
    return {"name": name}


def _tensors(values: Sequence[Any]) -> List[Any]:
    return [tf.convert_to_tensor(v) for v in values]


def _compiled(
    kind: int, op_type: str, tensors: Sequence[Any], name: Optional[str], **options: Any
) -> List[Any]:
    """The op inside a function that XLA compiles; the gradient is the same collective's."""
    wire = _name_arguments(op_type, tensors, name)["name"] or op_type

    @tf.custom_gradient  # type: ignore[misc]
    def forward(*inputs: Any) -> Any:
        outputs = _xla.call(kind, inputs, wire, **options)

        def backward(*gradients: Any) -> List[Any]:
            if kind == constants.ALLREDUCE:
                return _xla.call(kind, gradients, wire + "_grad", **options)
            scale = 1.0 if options["root"] == _basics.rank() else 0.0
            options_of_sum = {**options, "op": Average, "root": -1}
            reduced = _xla.call(constants.ALLREDUCE, gradients, wire + "_grad", **options_of_sum)
            return [g * tf.cast(scale, g.dtype) for g in reduced]

        return outputs, backward

    return list(forward(*tensors))


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
    (tensor,) = _tensors([tensor])
    number = process_set_id(process_set)
    if _xla.inside():
        options = {
            "op": op,
            "prescale": prescale_factor,
            "postscale": postscale_factor,
            "process_set_id": number,
        }
        return _compiled(constants.ALLREDUCE, "HorovodAllreduce", [tensor], name, **options)[0]
    return MPI_LIB.horovod_allreduce(
        tensor,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=number,
        **_name_arguments("HorovodAllreduce", [tensor], name),
    )


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
    tensors = _tensors(tensors)
    number = process_set_id(process_set)
    if _xla.inside():
        options = {
            "op": op,
            "prescale": prescale_factor,
            "postscale": postscale_factor,
            "process_set_id": number,
        }
        return _compiled(constants.ALLREDUCE, "HorovodGroupedAllreduce", tensors, name, **options)
    return list(
        MPI_LIB.horovod_grouped_allreduce(
            tensors,
            reduce_op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            ignore_name_scope=ignore_name_scope,
            process_set_id=number,
            **_name_arguments("HorovodGroupedAllreduce", tensors, name),
        )
    )


def _enqueue_and_wait(
    tensors: Sequence[Any],
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    names: Sequence[Optional[str]] = (),
) -> List[Any]:
    """Allreduces of tensors that are submitted one by one and waited for together, by one thread."""
    tensors = _tensors(tensors)
    tickets = [
        MPI_LIB.horovod_enqueue_allreduce(
            tensor,
            reduce_op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            ignore_name_scope=ignore_name_scope,
            process_set_id=process_set_id(process_set),
            **_name_arguments("HorovodAllreduce", [tensor], name),
        )
        for tensor, name in zip(tensors, names or [None] * len(tensors))
    ]
    results = MPI_LIB.horovod_wait(tickets, T=[t.dtype for t in tensors])
    for result, tensor in zip(results, tensors):
        result.set_shape(tensor.shape)
    return list(results)


def allgather(
    tensor: Any,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenates the members' tensors along the first dimension, in rank order.

    Args:
        tensor: at least one dimension; only the first may differ between ranks.
        name: what the ranks match by; in a graph made from the tensor's name when absent.
        ignore_name_scope: leave TensorFlow's name scopes out of the name.
        process_set: the ranks that take part.
    """
    _xla.refuse(constants.ALLGATHER)
    (tensor,) = _tensors([tensor])
    return MPI_LIB.horovod_allgather(
        tensor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=process_set_id(process_set),
        **_name_arguments("HorovodAllgather", [tensor], name),
    )


def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`allgather` of several tensors of one dtype as one atomic group."""
    _xla.refuse(constants.ALLGATHER)
    if not tensors:
        return list(tensors)
    tensors = _tensors(tensors)
    return list(
        MPI_LIB.horovod_grouped_allgather(
            tensors,
            ignore_name_scope=ignore_name_scope,
            process_set_id=process_set_id(process_set),
            **_name_arguments("HorovodGroupedAllgather", tensors, name),
        )
    )


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's value on every member. `root_rank` is a global rank, also with a process set."""
    (tensor,) = _tensors([tensor])
    number = process_set_id(process_set)
    if _xla.inside():
        options = {"root": root_rank, "process_set_id": number}
        return _compiled(constants.BROADCAST, "HorovodBroadcast", [tensor], name, **options)[0]
    return MPI_LIB.horovod_broadcast(
        tensor,
        root_rank=root_rank,
        ignore_name_scope=ignore_name_scope,
        process_set_id=number,
        **_name_arguments("HorovodBroadcast", [tensor], name),
    )


def _grouped_broadcast(
    tensors: Sequence[Any],
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`broadcast` of tensors of any dtypes as one atomic group."""
    if not tensors:
        return []
    tensors = _tensors(tensors)
    return list(
        MPI_LIB.horovod_grouped_broadcast(
            tensors,
            root_rank=root_rank,
            process_set_id=process_set_id(process_set),
            **_name_arguments("HorovodGroupedBroadcast", tensors, name),
        )
    )


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
    values = _grouped_broadcast([tf.convert_to_tensor(v) for v in variables], root_rank, name, process_set)
    return [tf.convert_to_tensor(v.assign(value)) for v, value in zip(variables, values)]


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends slices of the first dimension to the members and concatenates what they send.

    Args:
        tensor: at least one dimension.
        splits: int32 vector, rows for each member; None for equal parts.
        name: what the ranks match by.
        ignore_name_scope: leave TensorFlow's name scopes out of the name.
        process_set: the ranks that take part.

    Returns:
        The output; with `splits`, the output and the rows received from each member.
    """
    _xla.refuse(constants.ALLTOALL)
    (tensor,) = _tensors([tensor])
    rows = tf.convert_to_tensor(splits if splits is not None else [], dtype=tf.int32)
    output, received = MPI_LIB.horovod_alltoall(
        tensor,
        splits=rows,
        ignore_name_scope=ignore_name_scope,
        process_set_id=process_set_id(process_set),
        **_name_arguments("HorovodAlltoall", [tensor], name),
    )
    return output if splits is None else (output, received)


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
    _xla.refuse(constants.REDUCESCATTER)
    (tensor,) = _tensors([tensor])
    return MPI_LIB.horovod_reducescatter(
        tensor,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=process_set_id(process_set),
        **_name_arguments("HorovodReducescatter", [tensor], name),
    )


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
    _xla.refuse(constants.REDUCESCATTER)
    tensors = _tensors(tensors)
    return list(
        MPI_LIB.horovod_grouped_reducescatter(
            tensors,
            reduce_op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            ignore_name_scope=ignore_name_scope,
            process_set_id=process_set_id(process_set),
            **_name_arguments("HorovodGroupedReducescatter", tensors, name),
        )
    )


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


from horovod.tensorflow import _gradients  # noqa: E402, F401  registers the gradients
