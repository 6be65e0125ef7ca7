# SPDX-License-Identifier: Apache-2.0
"""The collectives as `torch.library` operators, so that `torch.compile(fullgraph=True)` takes them.

A compiled region cannot call into ctypes, but it can hold operators whose bodies do. The public verbs return
these while a region is traced; outside of compilation they are not used, being slower than a direct call.
An empty name means unnamed: the number is drawn when the operator runs, not when it was traced.

Gradients need torch 2.4 or newer. `allgather`, and `alltoall` with splits, have outputs whose size is known
only at run time: `fullgraph=True` needs `torch._dynamo.config.capture_dynamic_output_shape_ops = True`.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from horovod.common.basics import basics
from horovod.common.constants import Average
from horovod.torch._autograd import my_rows, scatter_scale
from horovod.torch._verbs import Operation, Options, allreduce_now, scattered_rows

_SCHEMAS = (
    "allreduce(Tensor x, str name, int op, float prescale, float postscale, int process_set) -> Tensor",
    "grouped_allreduce(Tensor[] xs, str name, int op, float prescale, float postscale, int process_set)"
    " -> Tensor[]",
    "allgather(Tensor x, str name, int process_set) -> Tensor",
    "gathered_rows(Tensor x, SymInt rows, str name, int process_set) -> Tensor",
    "allgather_grad(Tensor grad, SymInt rows, str name, int process_set) -> Tensor",
    "broadcast(Tensor x, int root, str name, int process_set) -> Tensor",
    "alltoall(Tensor x, Tensor? splits, str name, int process_set) -> (Tensor, Tensor)",
    "alltoall_grad(Tensor grad, Tensor received, SymInt rows, str name, int process_set) -> Tensor",
    "reducescatter(Tensor x, str name, int op, float prescale, float postscale, int process_set) -> Tensor",
)

_is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)


def tracing() -> bool:
    """Whether the caller is being traced by torch.compile."""
    return _is_compiling()


def ops() -> Any:
    """The operators; `torch.ops.horovod` once `register` has run."""
    return torch.ops.horovod


# ---------------------------------------------------------------------------------------- bodies --


def _allreduce(x: torch.Tensor, name: str, op: int, pre: float, post: float, set_id: int) -> torch.Tensor:
    return allreduce_now(x, name or None, Options(op, prescale=pre, postscale=post), set_id)


def _grouped_allreduce(
    xs: List[torch.Tensor], name: str, op: int, pre: float, post: float, set_id: int
) -> List[torch.Tensor]:
    options = Options(op, prescale=pre, postscale=post)
    return list(Operation("allreduce", xs, name or None, options, set_id, grouped=True).run())


def _allgather(x: torch.Tensor, name: str, set_id: int) -> torch.Tensor:
    result: torch.Tensor = Operation("allgather", [x], name or None, Options(), set_id).run()
    return result


def _gathered_rows(x: torch.Tensor, rows: int, name: str, set_id: int) -> torch.Tensor:
    """An allgather whose total number of rows the caller knows, so that the traced shape is fixed."""
    return _allgather(x, name, set_id)


def _allgather_grad(grad: torch.Tensor, rows: int, name: str, set_id: int) -> torch.Tensor:
    averaged = allreduce_now(grad, name or None, Options(op=Average), set_id)
    return my_rows(averaged, rows, name or None, set_id).clone()


def _broadcast(x: torch.Tensor, root: int, name: str, set_id: int) -> torch.Tensor:
    result: torch.Tensor = Operation("broadcast", [x], name or None, Options(root=root), set_id).run()
    return result


def _alltoall(
    x: torch.Tensor, splits: Optional[torch.Tensor], name: str, set_id: int
) -> Tuple[torch.Tensor, torch.Tensor]:
    options = Options(splits=None if splits is None else splits.tolist())
    output, received = Operation("alltoall", [x], name or None, options, set_id).run()
    return output, received


def _alltoall_grad(
    grad: torch.Tensor, received: torch.Tensor, rows: int, name: str, set_id: int
) -> torch.Tensor:
    returned, _ = _alltoall(grad, received, name, set_id)
    padding = returned.new_zeros((rows - returned.shape[0], *returned.shape[1:]))
    return torch.cat([returned, padding])


def _reducescatter(x: torch.Tensor, name: str, op: int, pre: float, post: float, set_id: int) -> torch.Tensor:
    options = Options(op, prescale=pre, postscale=post)
    result: torch.Tensor = Operation("reducescatter", [x], name or None, options, set_id).run()
    return result


# ---------------------------------------------------------------------------- shapes for tracing --


def _same(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _unknown_rows(x: torch.Tensor) -> torch.Tensor:
    rows = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty((rows, *x.shape[1:]))


def _fake_alltoall(
    x: torch.Tensor, splits: Optional[torch.Tensor], name: str, set_id: int
) -> Tuple[torch.Tensor, torch.Tensor]:
    members = len(basics.process_set_ranks(set_id))
    received = torch.empty(members, dtype=torch.int32)
    return (_unknown_rows(x) if splits is not None else torch.empty_like(x)), received


def _with_rows(x: torch.Tensor, rows: int) -> torch.Tensor:
    return x.new_empty((rows, *x.shape[1:]))


_FAKES: Dict[str, Any] = {
    "allreduce": _same,
    "grouped_allreduce": lambda xs, *_: [_same(x) for x in xs],
    "allgather": lambda x, *_: _unknown_rows(x),
    "gathered_rows": lambda x, rows, *_: _with_rows(x, rows),
    "allgather_grad": lambda grad, rows, *_: _with_rows(grad, rows),
    "broadcast": _same,
    "alltoall": _fake_alltoall,
    "alltoall_grad": lambda grad, received, rows, *_: _with_rows(grad, rows),
    "reducescatter": lambda x, name, op, pre, post, set_id: _with_rows(x, scattered_rows(x.shape[0], set_id)),
}

# ------------------------------------------------------------------------------------- gradients --


def _grad_name(name: str) -> str:
    return f"{name}.grad" if name else ""


def _remember(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    """Keeps the arguments; of tensors only the first dimension is needed."""
    first, *ctx.args = inputs
    ctx.rows = None if isinstance(first, (list, tuple)) else first.shape[0] if first.dim() else 0


def _remember_received(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[torch.Tensor, torch.Tensor]) -> None:
    _remember(ctx, inputs, output)
    ctx.save_for_backward(output[1])


def _allreduce_backward(ctx: Any, grad: torch.Tensor) -> Tuple[Any, ...]:
    name, *rest = ctx.args
    return (ops().allreduce(grad, _grad_name(name), *rest), None, None, None, None, None)


def _grouped_allreduce_backward(ctx: Any, grads: List[torch.Tensor]) -> Tuple[Any, ...]:
    name, *rest = ctx.args
    return (ops().grouped_allreduce(list(grads), _grad_name(name), *rest), None, None, None, None, None)


def _allgather_backward(ctx: Any, grad: torch.Tensor) -> Tuple[Any, ...]:
    name, set_id = ctx.args
    return ops().allgather_grad(grad, ctx.rows, _grad_name(name), set_id), None, None


def _broadcast_backward(ctx: Any, grad: torch.Tensor) -> Tuple[Any, ...]:
    root, name, set_id = ctx.args
    averaged = ops().allreduce(grad, _grad_name(name), Average, 1.0, 1.0, set_id)
    return averaged if basics.rank() == root else averaged * 0, None, None, None


def _alltoall_backward(ctx: Any, grad: torch.Tensor, _received: Any) -> Tuple[Any, ...]:
    (received,) = ctx.saved_tensors
    _, name, set_id = ctx.args
    return ops().alltoall_grad(grad, received, ctx.rows, _grad_name(name), set_id), None, None, None


def _reducescatter_backward(ctx: Any, grad: torch.Tensor) -> Tuple[Any, ...]:
    name, op, pre, post, set_id = ctx.args
    scaled = grad * scatter_scale(Options(op, prescale=pre, postscale=post), set_id)
    whole = ops().gathered_rows(scaled, ctx.rows, _grad_name(name), set_id)
    return whole, None, None, None, None, None


_BACKWARDS: Dict[str, Any] = {
    "allreduce": (_allreduce_backward, _remember),
    "grouped_allreduce": (_grouped_allreduce_backward, _remember),
    "allgather": (_allgather_backward, _remember),
    "broadcast": (_broadcast_backward, _remember),
    "alltoall": (_alltoall_backward, _remember_received),
    "reducescatter": (_reducescatter_backward, _remember),
}


@functools.cache
def register() -> Any:
    """Defines the operators; called when `horovod.torch` is imported."""
    make_library: Any = torch.library.Library
    library = make_library("horovod", "DEF")
    for schema in _SCHEMAS:
        name = schema[: schema.index("(")]
        library.define(schema)
        library.impl(name, globals()[f"_{name}"], "CompositeExplicitAutograd")
        register_fake = getattr(torch.library, "register_fake", None) or torch.library.impl_abstract
        register_fake(f"horovod::{name}", _FAKES[name], lib=library)
        if name in _BACKWARDS and hasattr(torch.library, "register_autograd"):
            backward, setup = _BACKWARDS[name]
            torch.library.register_autograd(f"horovod::{name}", backward, setup_context=setup, lib=library)
    return library
