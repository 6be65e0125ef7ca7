# SPDX-License-Identifier: Apache-2.0
"""The forms of a collective on torch tensors: blocking or not, in place or not, of one tensor or of several.

The public functions in collectives.py make a `Call` of their arguments and end here.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union, overload

import torch

from horovod.common.arguments import check_splits
from horovod.common.calls import Call
from horovod.common.members import place_in
from horovod.common.verbs import ALLREDUCE
from horovod.torch import _autograd, _compile, _sparse
from horovod.torch._operation import Operation, run_one
from horovod.torch.compression import Compression

Tensors = Sequence[torch.Tensor]


def run(call: Call, tensor: torch.Tensor, compression: Any = Compression.none) -> torch.Tensor:
    """Blocking, into a new tensor; differentiable."""
    output: torch.Tensor
    if tensor.layout is not torch.strided and call.verb is ALLREDUCE:
        return _sparse.allreduce(call, tensor)
    if compression is Compression.none:
        if _compile.tracing():
            return _compile.run(call, [tensor])[0]
        output = _autograd.run(call, tensor)
        return output
    wire, context = compression.compress(tensor)
    output = compression.decompress(run(call, wire), context)
    return output


def run_in_place(call: Call, tensor: torch.Tensor) -> torch.Tensor:
    """Blocking, into the tensor itself, which is returned."""
    output: torch.Tensor = run_one(call, tensor, in_place=True)
    return output


def start(call: Call, tensor: torch.Tensor) -> int:
    """Asynchronous, into a new tensor."""
    return Operation(call, (tensor,), lasting=True).start()


def start_in_place(call: Call, tensor: torch.Tensor) -> int:
    """Asynchronous, into the tensor itself."""
    return Operation(call, (tensor,), in_place=True, lasting=True).start()


@overload
def run_group(call: Call, tensors: Tensors) -> Tuple[torch.Tensor, ...]: ...


@overload
def run_group(call: Call, tensors: Tensors, compression: Any) -> List[torch.Tensor]: ...


def run_group(call: Call, tensors: Tensors, compression: Any = None) -> Any:
    """Blocking, of several tensors, into new ones; differentiable. A list if it may be compressed."""
    if compression is None:
        return _autograd.run_group(call, tensors)
    pairs = [compression.compress(tensor) for tensor in tensors]
    wires = [wire for wire, _ in pairs]
    outputs = _compile.run(call, wires) if _compile.tracing() else _autograd.run_group(call, wires)
    return [compression.decompress(output, context) for output, (_, context) in zip(outputs, pairs)]


def run_group_in_place(call: Call, tensors: Tensors) -> Tuple[torch.Tensor, ...]:
    """Blocking, of several tensors, into themselves."""
    outputs: Tuple[torch.Tensor, ...] = Operation(call, tensors, in_place=True, grouped=True).run()
    return outputs


def start_group(call: Call, tensors: Tensors) -> int:
    """Asynchronous, of several tensors, into new ones."""
    return Operation(call, tensors, grouped=True, lasting=True).start()


def start_group_in_place(call: Call, tensors: Tensors) -> int:
    """Asynchronous, of several tensors, into themselves."""
    return Operation(call, tensors, in_place=True, grouped=True, lasting=True).start()


def exchange(call: Call, tensor: torch.Tensor) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Blocking; also returns how many rows came from each member, if splits were given; differentiable."""
    splits: Any = call.splits
    if _compile.tracing():
        given = None if splits is None else torch.as_tensor(splits, dtype=torch.int32)
        output, received = _compile.run(call, [tensor], given)
    else:
        output, received = _autograd.run(call._replace(splits=_rows(call, tensor)), tensor)
    if splits is None:
        return output
    return output, received.to(splits.device) if isinstance(splits, torch.Tensor) else received


def start_exchange(call: Call, tensor: torch.Tensor) -> int:
    """Asynchronous; the result is always both."""
    return Operation(call._replace(splits=_rows(call, tensor)), (tensor,), lasting=True).start()


def _rows(call: Call, tensor: torch.Tensor) -> Optional[List[int]]:
    """Checked splits; an even split is left to the engine."""
    splits: Any = call.splits
    if splits is not None:
        if not isinstance(splits, torch.Tensor):
            splits = torch.tensor(splits, dtype=torch.int32)
        if splits.dim() > 1:
            raise ValueError("alltoall expects a 1D splits tensor")
        if splits.dtype is not torch.int32:
            raise ValueError("alltoall expects splits to contain 32-bit integer elements.")
        splits = splits.tolist()
    if tensor.dim() == 0:
        return None  # refused by all ranks together
    return check_splits(splits, tensor.shape[0], place_in(call.process_set, call.verb)[0])
