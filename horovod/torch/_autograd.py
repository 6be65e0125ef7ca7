# SPDX-License-Identifier: Apache-2.0
"""Gradients of the collectives.

    forward                         gradient of the input
    allreduce                       allreduce of the output's gradient, same arguments
    allgather                       this rank's rows of the averaged gradient
    broadcast                       the averaged gradient on the root, zero elsewhere
    alltoall                        alltoall back, by the received splits
    reducescatter Average / Sum     allgather of the gradient, times the scales / and the size

Each function here takes the differentiable way only if something requires a gradient. The gradient of a named
operation is named after it; that of an unnamed one is unnamed, and so must come in the same order everywhere.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import torch

from horovod.common.basics import basics
from horovod.common.constants import Average, Sum
from horovod.torch._verbs import Operation, Options, allreduce_now, place_in

_AVERAGE = Options(op=Average)


def _grad_name(name: Optional[str]) -> Optional[str]:
    return None if name is None else f"{name}.grad"


def _wants_grad(tensors: Sequence[torch.Tensor]) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def my_rows(gathered: torch.Tensor, rows: int, name: Optional[str], set_id: int) -> torch.Tensor:
    """The rows of an allgathered tensor that came from this rank, which gave `rows` of them."""
    counts = Operation(
        "allgather", [torch.tensor([rows])], None if name is None else f"{name}.rows", Options(), set_id
    ).run()
    _, me = place_in(set_id)
    return gathered.narrow(0, int(counts[:me].sum()), rows)


def scatter_scale(options: Options, set_id: int) -> float:
    """What a gradient is multiplied with on its way back through reducescatter."""
    members = place_in(set_id)[0] if options.op == Sum else 1
    return options.prescale * options.postscale * members


class HorovodAllreduce(torch.autograd.Function):
    """Differentiable allreduce of one tensor."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, name: Optional[str], options: Options, set_id: int
    ) -> torch.Tensor:
        ctx.args = (_grad_name(name), options, set_id)
        return allreduce_now(tensor, name, options, set_id)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Tuple[Any, ...]:
        return allreduce(grad, *ctx.args), None, None, None


class HorovodGroupedAllreduce(torch.autograd.Function):
    """Differentiable allreduce of several tensors as one group."""

    @staticmethod
    def forward(ctx: Any, name: Optional[str], options: Options, set_id: int, *tensors: torch.Tensor) -> Any:
        ctx.args = (_grad_name(name), options, set_id)
        return Operation("allreduce", tensors, name, options, set_id, grouped=True).run()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        return (None, None, None, *grouped_allreduce(grads, *ctx.args))


class HorovodAllgather(torch.autograd.Function):
    """Differentiable allgather of one tensor."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: Optional[str], set_id: int) -> Any:
        ctx.args = (_grad_name(name), set_id)
        ctx.rows = tensor.shape[0]
        return Operation("allgather", [tensor], name, Options(), set_id).run()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Tuple[Any, ...]:
        name, set_id = ctx.args
        return my_rows(allreduce(grad, name, _AVERAGE, set_id), ctx.rows, name, set_id), None, None


class HorovodGroupedAllgather(torch.autograd.Function):
    """Differentiable allgather of several tensors as one group."""

    @staticmethod
    def forward(ctx: Any, name: Optional[str], set_id: int, *tensors: torch.Tensor) -> Any:
        ctx.args = (_grad_name(name), set_id)
        ctx.rows = [t.shape[0] for t in tensors]
        return Operation("allgather", tensors, name, Options(), set_id, grouped=True).run()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        name, set_id = ctx.args
        averaged = grouped_allreduce(grads, name, _AVERAGE, set_id)
        own = [my_rows(grad, rows, name, set_id) for grad, rows in zip(averaged, ctx.rows)]
        return (None, None, *own)


class HorovodBroadcast(torch.autograd.Function):
    """Differentiable broadcast."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: Optional[str], root: int, set_id: int) -> Any:
        ctx.args = (_grad_name(name), root, set_id)
        return Operation("broadcast", [tensor], name, Options(root=root), set_id).run()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Tuple[Any, ...]:
        name, root, set_id = ctx.args
        averaged = allreduce(grad, name, _AVERAGE, set_id)
        return averaged if basics.rank() == root else averaged * 0, None, None, None


class HorovodAlltoall(torch.autograd.Function):
    """Differentiable alltoall; the received splits are not differentiable."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Optional[List[int]], name: Optional[str], set_id: int
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        output, received = Operation("alltoall", [tensor], name, Options(splits=splits), set_id).run()
        ctx.args = (received.tolist(), _grad_name(name), set_id)
        ctx.rows = tensor.shape[0]
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _received: Any) -> Tuple[Any, ...]:
        returned, _ = alltoall(grad, *ctx.args)
        surplus = ctx.rows - returned.shape[0]  # rows that no split covered went nowhere
        if surplus:
            returned = torch.cat([returned, returned.new_zeros((surplus, *returned.shape[1:]))])
        return returned, None, None, None


class HorovodReducescatter(torch.autograd.Function):
    """Differentiable reducescatter of one tensor."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: Optional[str], options: Options, set_id: int) -> Any:
        ctx.args = (_grad_name(name), options, set_id)
        return Operation("reducescatter", [tensor], name, options, set_id).run()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Tuple[Any, ...]:
        name, options, set_id = ctx.args
        return allgather(grad * scatter_scale(options, set_id), name, set_id), None, None, None


class HorovodGroupedReducescatter(torch.autograd.Function):
    """Differentiable reducescatter of several tensors as one group."""

    @staticmethod
    def forward(ctx: Any, name: Optional[str], options: Options, set_id: int, *tensors: torch.Tensor) -> Any:
        ctx.args = (_grad_name(name), options, set_id)
        return Operation("reducescatter", tensors, name, options, set_id, grouped=True).run()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        name, options, set_id = ctx.args
        scale = scatter_scale(options, set_id)
        return (None, None, None, *grouped_allgather([g * scale for g in grads], name, set_id))


def _apply(function: Any, *args: Any) -> Any:
    return function.apply(*args)


def allreduce(tensor: torch.Tensor, name: Optional[str], options: Options, set_id: int) -> Any:
    """Blocking allreduce of one tensor."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return _apply(HorovodAllreduce, tensor, name, options, set_id)
    return allreduce_now(tensor, name, options, set_id)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor], name: Optional[str], options: Options, set_id: int
) -> Any:
    """Blocking allreduce of a group."""
    if _wants_grad(tensors):
        return _apply(HorovodGroupedAllreduce, name, options, set_id, *tensors)
    return Operation("allreduce", tensors, name, options, set_id, grouped=True).run()


def allgather(tensor: torch.Tensor, name: Optional[str], set_id: int) -> Any:
    """Blocking allgather of one tensor."""
    if _wants_grad((tensor,)):
        return _apply(HorovodAllgather, tensor, name, set_id)
    return Operation("allgather", [tensor], name, Options(), set_id).run()


def grouped_allgather(tensors: Sequence[torch.Tensor], name: Optional[str], set_id: int) -> Any:
    """Blocking allgather of a group."""
    if _wants_grad(tensors):
        return _apply(HorovodGroupedAllgather, name, set_id, *tensors)
    return Operation("allgather", tensors, name, Options(), set_id, grouped=True).run()


def broadcast(tensor: torch.Tensor, name: Optional[str], root: int, set_id: int) -> Any:
    """Blocking broadcast into a new tensor."""
    if _wants_grad((tensor,)):
        return _apply(HorovodBroadcast, tensor, name, root, set_id)
    return Operation("broadcast", [tensor], name, Options(root=root), set_id).run()


def alltoall(tensor: torch.Tensor, splits: Optional[List[int]], name: Optional[str], set_id: int) -> Any:
    """Blocking alltoall; returns the output and the received splits."""
    if _wants_grad((tensor,)):
        return _apply(HorovodAlltoall, tensor, splits, name, set_id)
    return Operation("alltoall", [tensor], name, Options(splits=splits), set_id).run()


def reducescatter(tensor: torch.Tensor, name: Optional[str], options: Options, set_id: int) -> Any:
    """Blocking reducescatter of one tensor."""
    if _wants_grad((tensor,)):
        return _apply(HorovodReducescatter, tensor, name, options, set_id)
    return Operation("reducescatter", [tensor], name, options, set_id).run()


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor], name: Optional[str], options: Options, set_id: int
) -> Any:
    """Blocking reducescatter of a group."""
    if _wants_grad(tensors):
        return _apply(HorovodGroupedReducescatter, name, options, set_id, *tensors)
    return Operation("reducescatter", tensors, name, options, set_id, grouped=True).run()
