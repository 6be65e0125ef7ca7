# SPDX-License-Identifier: Apache-2.0
"""Collectives that autograd can follow; what their gradients are is in horovod/common/gradients.py.

The differentiable way is taken only if something requires a gradient.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import torch

from horovod.common import gradients
from horovod.common.calls import Call
from horovod.common.gradients import Saved
from horovod.common.members import place_in
from horovod.common.verbs import ALLGATHER, Result
from horovod.torch._operation import Operation, run_one


class _Toolkit:
    """What backward does with torch tensors."""

    def run(self, call: Call, tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        if len(tensors) > 1:
            return list(run_group(call, tensors))
        output = run(call, tensors[0])
        return [output[0] if call.verb.result is Result.EXCHANGED else output]

    def zeros(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(tensor)

    def scaled(self, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        return tensor * factor

    def own_rows(
        self, call: Call, gathered: Sequence[torch.Tensor], rows: Sequence[int]
    ) -> List[torch.Tensor]:
        starts = first_rows(call, rows)
        return [tensor.narrow(0, start, own) for tensor, start, own in zip(gathered, starts, rows)]

    def padded(self, tensor: torch.Tensor, rows: int) -> torch.Tensor:
        missing = rows - tensor.shape[0]
        if not missing:
            return tensor
        return torch.cat([tensor, tensor.new_zeros((missing, *tensor.shape[1:]))])


TOOLKIT = _Toolkit()


def first_rows(call: Call, rows: Sequence[int]) -> List[int]:
    """Where this rank's rows start in gathered tensors of which it gave `rows`: the ranks tell each other."""
    name = None if call.name is None else f"{call.name}.grad.rows"
    everyone = run_one(Call(ALLGATHER, name, call.process_set), torch.tensor([list(rows)]))
    _, me = place_in(call.process_set, call.verb)
    starts: List[int] = everyone[:me].sum(dim=0).tolist()
    return starts


class Collective(torch.autograd.Function):
    """Any collective, on one tensor or on several as one operation."""

    @staticmethod
    def forward(ctx: Any, call: Call, grouped: bool, *tensors: torch.Tensor) -> Any:
        outputs = _run(call, tensors, grouped)
        ctx.call = call
        ctx.rows = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        ctx.received = None
        if call.verb.result is Result.EXCHANGED:
            ctx.mark_non_differentiable(outputs[1])
            ctx.received = outputs[1].tolist()
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        saved = Saved(ctx.rows, ctx.received)
        return (None, None, *gradients.backward(TOOLKIT, ctx.call, grads[: len(ctx.rows)], saved))


# The names that graphs and profiles show.


class HorovodAllreduce(Collective):
    """Differentiable allreduce of one tensor."""


class HorovodAllgather(Collective):
    """Differentiable allgather of one tensor."""


class HorovodBroadcast(Collective):
    """Differentiable broadcast of one tensor."""


class HorovodAlltoall(Collective):
    """Differentiable alltoall of one tensor."""


class HorovodReducescatter(Collective):
    """Differentiable reducescatter of one tensor."""


class HorovodGroupedAllreduce(Collective):
    """Differentiable allreduce of several tensors as one operation."""


class HorovodGroupedAllgather(Collective):
    """Differentiable allgather of several tensors as one operation."""


class HorovodGroupedReducescatter(Collective):
    """Differentiable reducescatter of several tensors as one operation."""


_NAMED: Dict[str, Any] = {function.__name__: function for function in Collective.__subclasses__()}


def _run(call: Call, tensors: Sequence[torch.Tensor], grouped: bool) -> Any:
    return Operation(call, tensors, grouped=True).run() if grouped else run_one(call, tensors[0])


def _apply(call: Call, tensors: Sequence[torch.Tensor], grouped: bool) -> Any:
    name = f"Horovod{'Grouped' if grouped else ''}{call.verb.title}"
    return _NAMED.get(name, Collective).apply(call, grouped, *tensors)


def run(call: Call, tensor: torch.Tensor) -> Any:
    """Blocking, of one tensor; alltoall gives its output and the received splits."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return _apply(call, (tensor,), False)
    return run_one(call, tensor)


def run_group(call: Call, tensors: Sequence[torch.Tensor]) -> Tuple[torch.Tensor, ...]:
    """Blocking, of several tensors as one operation."""
    wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    outputs: Tuple[torch.Tensor, ...] = (_apply if wanted else _run)(call, tensors, True)
    return outputs
