# SPDX-License-Identifier: Apache-2.0
"""The forms of a collective on MXNet's arrays: into new ones or in place, of one array or of several.

The public functions in collectives.py make a `Call` of their arguments and end here. What keeps its shape is
pushed into MXNet's dependency engine; the rest runs at once, because the size of its result is not known
before.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import mxnet as mx

from horovod.common._native import Request
from horovod.common.arguments import check_splits
from horovod.common.basics import basics
from horovod.common.calls import Call
from horovod.common.constants import Adasum
from horovod.common.members import check_member, place_in
from horovod.common.verbs import BROADCAST, Result
from horovod.mxnet import _push


def run(call: Call, tensor: Any, priority: int = 0) -> Any:
    """Of one array, into a new one."""
    return _run(call, [tensor], priority, grouped=False)[0]


def run_in_place(call: Call, tensor: Any, priority: int = 0) -> Any:
    """Of one array, into itself."""
    _pushed(call, [tensor], [tensor], priority, grouped=False)
    return tensor


def run_group(call: Call, tensors: Sequence[Any], priority: int = 0) -> Sequence[Any]:
    """Of several arrays, into new ones."""
    return _run(call, tensors, priority, grouped=True) if tensors else tensors


def run_group_in_place(call: Call, tensors: Sequence[Any], priority: int = 0) -> Sequence[Any]:
    """Of several arrays, into themselves."""
    if tensors:
        _pushed(call, tensors, tensors, priority, grouped=True)
    return tensors


def exchange(call: Call, tensor: Any, priority: int = 0) -> Any:
    """Of one array; also how many rows came from each member, if splits were given."""
    assert isinstance(tensor, mx.nd.NDArray)
    splits = None if call.splits is None else _split_list(call.splits)
    with _push.mxnet_errors():
        checked = check_splits(splits, tensor.shape[0], place_in(call.process_set, call.verb)[0])
    (output,), (received,) = _run_now(call._replace(splits=checked), [tensor], grouped=False)
    return output if splits is None else (output, mx.nd.array(received, dtype="int32"))


def _run(call: Call, tensors: Sequence[Any], priority: int, grouped: bool) -> Sequence[Any]:
    if call.verb.result is not Result.SAME:
        return _run_now(call, tensors, grouped)[0]
    outputs = [_push.empty_like(tensor, tensor.shape) for tensor in tensors]
    _pushed(call, tensors, outputs, priority, grouped)
    return outputs


def _pushed(call: Call, inputs: Sequence[Any], outputs: Sequence[Any], priority: int, grouped: bool) -> None:
    """Hands the collective to MXNet's engine, after the checks that need no other rank."""
    assert call.op != Adasum, "Adasum is not supported by horovod.mxnet"
    with _push.mxnet_errors():
        check_member(call.verb, call.process_set)
        if call.verb is BROADCAST and call.root not in basics.process_set_ranks(call.process_set):
            raise ValueError(f"broadcast received invalid root rank {call.root} for provided process set")
        requests = _requests(call, inputs, [0] * len(inputs), grouped)
    _push.push(requests, inputs, outputs, priority)


def _run_now(call: Call, tensors: Sequence[Any], grouped: bool) -> Tuple[List[Any], List[List[int]]]:
    assert not call.verb.reductions or call.op in call.verb.reductions
    assert all(isinstance(tensor, mx.nd.NDArray) for tensor in tensors)
    if call.verb.result is Result.SCATTERED and any(tensor.ndim == 0 for tensor in tensors):
        name = "groued_reducescatter" if grouped else "reducescatter"  # sic: scripts match this text
        raise ValueError(f"{name} does not support scalar inputs")
    with _push.mxnet_errors():
        check_member(call.verb, call.process_set)
        addresses = [_push.address(tensor) for tensor in tensors]
        return _push.run(_requests(call, tensors, addresses, grouped), tensors)


def _requests(call: Call, tensors: Sequence[Any], addresses: Sequence[int], grouped: bool) -> List[Request]:
    if not isinstance(call.name, str):
        call = call._replace(name=None)
    names = call.wire_names(len(tensors)) if grouped else [call.wire_name()]
    for tensor in tensors:
        _push.check_dense(tensor)
    return [
        call.request(name, _push.dtype_number(tensor), tensor.shape, address, 0)
        for name, tensor, address in zip(names, tensors, addresses)
    ]


def _split_list(splits: Any) -> List[int]:
    values = splits.asnumpy().tolist() if isinstance(splits, mx.nd.NDArray) else splits
    return [int(rows) for rows in values]
