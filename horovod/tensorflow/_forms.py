# SPDX-License-Identifier: Apache-2.0
"""The forms of a collective on TensorFlow's tensors: dense or IndexedSlices, compressed, alone or in groups.

The public functions in collectives.py make a `Call` of their arguments and end here.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

import tensorflow as tf

from horovod.common.basics import basics as _basics
from horovod.common.calls import Call
from horovod.common.verbs import ALLREDUCE
from horovod.tensorflow import _nodes, _sparse
from horovod.tensorflow.compression import Compression


def run(call: Call, tensor: Any, compression: Any = Compression.none, ignore_name_scope: bool = False) -> Any:
    """The collective of one tensor."""
    _check_known(call)
    if isinstance(tensor, tf.IndexedSlices) and call.verb is ALLREDUCE:
        _sparse.check(call)
        return _sparse.allreduce(call, tensor, ignore_name_scope)
    tensor = tf.convert_to_tensor(tensor)
    sent, context = compression.compress(tensor)
    call = call._replace(name=_own_name(call, tensor))
    return compression.decompress(_nodes.one(call, sent, ignore_name_scope), context)


def run_group(
    call: Call, tensors: Sequence[Any], compression: Any = Compression.none, ignore_name_scope: bool = False
) -> List[Any]:
    """The collective of several tensors, those of each dtype as one atomic group; IndexedSlices alone."""
    if not tensors:
        return list(tensors)
    _check_known(call)
    results: List[Any] = list(tensors)
    sparse = [i for i, t in enumerate(tensors) if isinstance(t, tf.IndexedSlices) and call.verb is ALLREDUCE]
    if sparse:
        _sparse.check(call)  # before the dense ones are sent
    dense = [i for i in range(len(results)) if i not in sparse]
    pairs = [compression.compress(tf.convert_to_tensor(tensors[i])) for i in dense]
    outputs = _by_dtype(
        lambda part, some: _nodes.group(part, some, ignore_name_scope), call, [sent for sent, _ in pairs]
    )
    for i, output, (_, context) in zip(dense, outputs, pairs):
        results[i] = compression.decompress(output, context)
    for i in sparse:
        part = call._replace(name=None if call.name is None else f"{call.name}_{i}")
        results[i] = _sparse.allreduce(part, tensors[i], ignore_name_scope)
    return results


def run_each(
    call: Call,
    tensors: Sequence[Any],
    names: Sequence[Optional[str]],
    compression: Any = Compression.none,
    ignore_name_scope: bool = False,
) -> List[Any]:
    """Allreduces in a graph, each under its own name; several dense ones share a node."""
    calls = [call._replace(name=name) for name in names]
    if len(tensors) == 1:
        return [run(calls[0], tensors[0], compression, ignore_name_scope)]
    _check_known(call)
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    pairs = [compression.compress(tensor) for tensor in tensors]
    own_names = [_own_name(part, tensor) or part.verb.name for part, tensor in zip(calls, tensors)]
    outputs = _nodes.each(call, [sent for sent, _ in pairs], own_names, ignore_name_scope)
    return [compression.decompress(output, context) for output, (_, context) in zip(outputs, pairs)]


def exchange(call: Call, tensor: Any, ignore_name_scope: bool = False) -> Any:
    """Alltoall of one tensor; also how many rows came from each member, if splits were given."""
    output, received = _nodes.one(call, tensor, ignore_name_scope)
    return output if call.splits is None else (output, received)


def _by_dtype(
    function: Callable[[Call, List[Any]], List[Any]], call: Call, tensors: Sequence[Any]
) -> List[Any]:
    """Runs a grouped op once for each dtype, and returns the results in the tensors' order."""
    places: Dict[Any, List[int]] = {}
    for i, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(i)
    results: List[Any] = [None] * len(tensors)
    for dtype, where in places.items():
        name = call.name if call.name is None or len(places) == 1 else f"{call.name}_{dtype.name}"
        for i, result in zip(where, function(call._replace(name=name), [tensors[i] for i in where])):
            results[i] = result
    return results


def _own_name(call: Call, tensor: Any) -> Optional[str]:
    """After the tensor as it was handed in: compressed ones are called Cast, Cast_1, ... by their number, and
    the same number is another gradient on a rank that has one less."""
    return _nodes.default_name(_nodes.op_type(call.verb), [tensor]) if call.name is None else call.name


def _check_known(call: Call) -> None:
    """Raises ValueError for an allreduce on a set that was removed, or that belonged to a job that ended."""
    if call.process_set and call.verb is ALLREDUCE:
        _basics.process_set_ranks(call.process_set)
