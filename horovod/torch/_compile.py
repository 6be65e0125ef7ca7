# SPDX-License-Identifier: Apache-2.0
"""The collectives as `torch.library` operators, so that `torch.compile(fullgraph=True)` takes them.

A compiled region cannot call into ctypes, but it can hold operators whose bodies do. The public verbs return
these while a region is traced; outside of compilation they are not used, being slower than a direct call.
Every verb of the table becomes an operator of one schema. An empty name means unnamed: the number is drawn
when the operator runs, not when it was traced.

This needs torch 2.4; before, a compiled region is left for a collective and entered again after it.
`allgather`, and `alltoall` with splits, have outputs whose size is known only at run time: `fullgraph=True`
needs `torch._dynamo.config.capture_dynamic_output_shape_ops = True`.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from horovod.common import gradients
from horovod.common.calls import Call
from horovod.common.gradients import Saved
from horovod.common.members import place_in
from horovod.common.verbs import VERBS, Result, Verb, scattered_rows
from horovod.torch._autograd import TOOLKIT
from horovod.torch._operation import Operation, run_one

Tensors = Sequence[torch.Tensor]

# `rows` has the outputs' first dimensions where they are known when tracing, else it is empty.
_SCHEMA = (
    "(Tensor[] xs, Tensor? splits, str name, int process_set, int op, float prescale, float postscale, "
    "int root, SymInt[] rows) -> Tensor[]"
)
_OWN_ROWS = "own_rows(Tensor[] gathered, SymInt[] rows, str name, int process_set) -> Tensor[]"

_AVAILABLE = hasattr(torch.library, "register_autograd")


def tracing() -> bool:
    """Whether the caller is being traced by torch.compile, and the operators are there."""
    return _AVAILABLE and torch.compiler.is_compiling()


def run(call: Call, tensors: Tensors, splits: Optional[torch.Tensor] = None) -> List[torch.Tensor]:
    """The operator of a call, with `splits` instead of the call's; alltoall also gives the received ones."""
    operator = getattr(torch.ops.horovod, call.verb.name)
    outputs: List[torch.Tensor] = operator(
        list(tensors), splits, call.name or "", call.process_set, call.op, call.prescale, call.postscale,
        call.root, list(call.rows or ()),
    )  # fmt: skip
    return outputs


def _call(verb: Verb, name: str, process_set: int, *rest: Any) -> Call:
    """What an operator's arguments after its tensors say."""
    op, prescale, postscale, root, rows = rest
    return Call(verb, name or None, process_set, op, prescale, postscale, root, rows=tuple(rows) or None)


def _body(verb: Verb) -> Callable[..., List[torch.Tensor]]:
    def body(xs: List[torch.Tensor], splits: Optional[torch.Tensor], *rest: Any) -> List[torch.Tensor]:
        call = _call(verb, *rest)
        if verb.result is Result.EXCHANGED:
            return list(run_one(call._replace(splits=None if splits is None else splits.tolist()), xs[0]))
        if len(xs) == 1:
            return [run_one(call, xs[0])]
        return list(Operation(call, xs, grouped=True).run())

    return body


def _own_rows(gathered: List[torch.Tensor], rows: List[int], name: str, set_id: int) -> List[torch.Tensor]:
    call = Call(VERBS["allgather"], name or None, set_id)
    return [part.clone() for part in TOOLKIT.own_rows(call, gathered, rows)]


# ---------------------------------------------------------------------------- shapes for tracing --


def _same(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _with_rows(x: torch.Tensor, rows: Any) -> torch.Tensor:
    return x.new_empty((rows, *x.shape[1:]))


def _unknown_rows(x: torch.Tensor) -> torch.Tensor:
    return _with_rows(x, torch.library.get_ctx().new_dynamic_size())


def _fake(verb: Verb) -> Callable[..., List[torch.Tensor]]:
    def fake(xs: List[torch.Tensor], splits: Optional[torch.Tensor], *rest: Any) -> List[torch.Tensor]:
        call = _call(verb, *rest)
        if verb.result is Result.SAME:
            return [_same(x) for x in xs]
        members, position = place_in(call.process_set, verb)
        if verb.result is Result.SCATTERED:
            return [_with_rows(x, scattered_rows(x.shape[0], members, position)) for x in xs]
        if verb.result is Result.EXCHANGED:
            output = _same(xs[0]) if splits is None else _unknown_rows(xs[0])
            return [output, torch.empty(members, dtype=torch.int32)]
        return [_with_rows(x, n) for x, n in zip(xs, call.rows)] if call.rows else [*map(_unknown_rows, xs)]

    return fake


# ------------------------------------------------------------------------------------- gradients --


class _TracedToolkit(type(TOOLKIT)):  # type: ignore[misc]
    """As outside of compilation, with operators for what must not be traced."""

    def run(self, call: Call, tensors: Tensors) -> List[torch.Tensor]:
        splits: Any = call.splits  # the received ones, which are a tensor here
        return run(call, tensors, splits)[: len(tensors)]

    def own_rows(self, call: Call, gathered: Tensors, rows: Sequence[int]) -> List[torch.Tensor]:
        parts: List[torch.Tensor] = torch.ops.horovod.own_rows(
            list(gathered), list(rows), call.name or "", call.process_set
        )
        return parts

    def padded(self, tensor: torch.Tensor, rows: int) -> torch.Tensor:
        return torch.cat([tensor, tensor.new_zeros((rows - tensor.shape[0], *tensor.shape[1:]))])


def _remember(ctx: Any, inputs: Tuple[Any, ...], output: List[torch.Tensor]) -> None:
    xs, splits, *ctx.rest = inputs
    ctx.rows = [x.shape[0] if x.dim() else 0 for x in xs]
    ctx.exchanged = splits is not None
    if ctx.exchanged:
        ctx.save_for_backward(output[1])


def _backward(verb: Verb) -> Callable[..., Tuple[Any, ...]]:
    def backward(ctx: Any, grads: List[torch.Tensor]) -> Tuple[Any, ...]:
        saved = Saved(ctx.rows, ctx.saved_tensors[0] if ctx.exchanged else None)
        own = gradients.backward(_TracedToolkit(), _call(verb, *ctx.rest), grads[: len(ctx.rows)], saved)
        *_, rows = ctx.rest
        return (own, *[None] * len(ctx.rest), [None] * len(rows))

    return backward


@functools.cache
def register() -> Any:
    """Defines the operators; called when `horovod.torch` is imported."""
    if not _AVAILABLE:
        return None
    make_library: Any = torch.library.Library
    library = make_library("horovod", "DEF")
    library.define(_OWN_ROWS)
    _implement(
        library, "own_rows", _own_rows, lambda gathered, rows, *_: list(map(_with_rows, gathered, rows))
    )
    for verb in VERBS.values():
        library.define(verb.name + _SCHEMA)
        _implement(library, verb.name, _body(verb), _fake(verb))
        torch.library.register_autograd(
            f"horovod::{verb.name}", _backward(verb), setup_context=_remember, lib=library
        )
    return library


def _implement(library: Any, name: str, body: Callable[..., Any], fake: Callable[..., Any]) -> None:
    library.impl(name, body, "CompositeExplicitAutograd")
    torch.library.register_fake(f"horovod::{name}", fake, lib=library)
