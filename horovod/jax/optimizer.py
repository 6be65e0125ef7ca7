# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with optax: an optimizer and gradient functions that reduce over the ranks."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Type, Union

import jax
import jax.numpy as jnp

from horovod.common.arguments import check_passes, check_predivide
from horovod.common.constants import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.jax._weights import FirstUpdate
from horovod.jax.collectives import allreduce
from horovod.jax.compression import Compression, Compressor


class DistributedState(NamedTuple):
    """State of `DistributedOptimizer`: the wrapped optimizer's, and sums of gradients not yet reduced."""

    inner: Any
    passes: Any  # updates since the last reduction, or None when every update reduces
    sums: Any


def reduce_gradients(
    gradients: Any,
    *,
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    groups: Optional[int] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces a pytree of gradients over the ranks, inside or outside of jit.

    Args:
        gradients: pytree of arrays; None leaves are passed through.
        compression: e.g. `Compression.bf16`.
        op: Average (default), Sum or Adasum.
        gradient_predivide_factor: with Average, divide by this before and by size over this after the sum.
        groups: send the leaves in this many operations instead of one, so that transfers overlap.
        process_set: the ranks that take part; the gradients of other ranks stay as they are.
    """
    check_predivide(gradient_predivide_factor, op)
    if not process_set.included():
        return gradients
    leaves, structure = jax.tree.flatten(gradients)
    reduced: List[Any] = []
    for part in split_list(leaves, groups or 1):
        reduced += allreduce(
            part,
            compression=compression,
            op=op,
            prescale_factor=1.0 / gradient_predivide_factor,
            postscale_factor=gradient_predivide_factor,
            process_set=process_set,
        )
    return jax.tree.unflatten(structure, reduced)


def DistributedOptimizer(  # noqa: N802 - the name that all front ends share
    optimizer: Any,
    compression: Type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    groups: Optional[int] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps an optax optimizer: gradients are reduced over the ranks before it sees them.

        tx = hvd.DistributedOptimizer(optax.adam(1e-3))
        updates, opt_state = tx.update(grads, opt_state, params)      # inside jit, or not

    Args:
        optimizer: an `optax.GradientTransformation`.
        backward_passes_per_step: sum this many gradients locally before reducing and stepping; the updates in
            between are zero.
        average_aggregated_gradients: divide that sum by `backward_passes_per_step`.
        compression, op, gradient_predivide_factor, groups, process_set: see `reduce_gradients`.

    Returns:
        An `optax.GradientTransformationExtraArgs`.
    """
    import optax

    check_passes(backward_passes_per_step)
    check_predivide(gradient_predivide_factor, op)
    check = FirstUpdate(process_set)
    inner = optax.with_extra_args_support(optimizer)
    reduce = functools.partial(
        reduce_gradients,
        compression=compression,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups,
        process_set=process_set,
    )

    def init(params: Any) -> DistributedState:
        if backward_passes_per_step == 1:
            return DistributedState(inner.init(params), None, None)
        sums = jax.tree.map(jnp.zeros_like, params)
        return DistributedState(inner.init(params), jnp.zeros((), jnp.int32), sums)

    def step(gradients: Any, state: Any, params: Any, extra: Any) -> Tuple[Any, Any]:
        updates, inner_state = inner.update(reduce(gradients), state, params, **extra)
        return updates, inner_state

    def update(gradients: Any, state: DistributedState, params: Any = None, **extra: Any) -> Tuple[Any, Any]:
        check.look_at(params)
        if backward_passes_per_step == 1:
            updates, inner_state = step(gradients, state.inner, params, extra)
            return updates, DistributedState(inner_state, None, None)

        sums = jax.tree.map(jnp.add, state.sums, gradients)
        passes = state.passes + 1

        def communicate() -> Tuple[Any, DistributedState]:
            total = sums
            if average_aggregated_gradients:
                total = jax.tree.map(lambda s: s / backward_passes_per_step, sums)
            updates, inner_state = step(total, state.inner, params, extra)
            cleared = jax.tree.map(jnp.zeros_like, sums)
            return updates, DistributedState(inner_state, jnp.zeros_like(passes), cleared)

        def accumulate() -> Tuple[Any, DistributedState]:
            return jax.tree.map(jnp.zeros_like, sums), DistributedState(state.inner, passes, sums)

        updates, new_state = jax.lax.cond(passes >= backward_passes_per_step, communicate, accumulate)
        return updates, new_state

    return optax.GradientTransformationExtraArgs(init, update)


def value_and_grad(
    fun: Callable[..., Any],
    argnums: Union[int, Sequence[int]] = 0,
    has_aux: bool = False,
    *,
    average_value: bool = False,
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    groups: Optional[int] = None,
    process_set: ProcessSet = global_process_set,
    **jax_options: Any,
) -> Callable[..., Any]:
    """`jax.value_and_grad` with the gradients reduced over the ranks.

    Args:
        average_value: also average the value, so that all ranks see the loss of the whole batch.
        jax_options: passed on to `jax.value_and_grad`.
    """
    local = jax.value_and_grad(fun, argnums, has_aux, **jax_options)

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Tuple[Any, Any]:
        value, gradients = local(*args, **kwargs)
        reduced = reduce_gradients(
            gradients,
            compression=compression,
            op=op,
            gradient_predivide_factor=gradient_predivide_factor,
            groups=groups,
            process_set=process_set,
        )
        if average_value and process_set.included():
            loss, rest = (value[0], value[1:]) if has_aux else (value, ())
            mean = allreduce(loss, process_set=process_set)
            value = (mean, *rest) if has_aux else mean
        return value, reduced

    return wrapped


def grad(
    fun: Callable[..., Any], argnums: Union[int, Sequence[int]] = 0, has_aux: bool = False, **options: Any
) -> Callable[..., Any]:
    """`jax.grad` with the gradients reduced over the ranks; options as for `value_and_grad`."""
    both = value_and_grad(fun, argnums, has_aux, **options)

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return wrapped
