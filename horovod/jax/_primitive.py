# SPDX-License-Identifier: Apache-2.0
"""The one jax primitive behind all collectives, and how jax evaluates, compiles and batches it.

Concrete arrays go to the engine at once. Inside a program it becomes a call of the XLA handler in
csrc/glue/jax: operands and results share their memory where the operation allows it, the ordered effect ties
the calls to each other, and a future completes them, so that no XLA thread ever waits.
"""

from __future__ import annotations

import functools
from typing import Any, List, Sequence, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from horovod.common import _native
from horovod.common.constants import ALLREDUCE, BROADCAST
from horovod.jax import _eager
from horovod.jax._call import Call
from horovod.jax._compat import abstract_token, all_effects, collective_effect

_TARGET = "hvd_jax_collective"

collective_p = Primitive("horovod_collective")
collective_p.multiple_results = True


def bind(call: Call, arrays: Sequence[Any]) -> List[Any]:
    """Runs the collective, or records it in the program that is being traced."""
    for array in arrays:
        _eager.dtype_number(array.dtype)  # refused here, with a Python traceback, rather than at run time
    return list(collective_p.bind(*arrays, call=call))  # type: ignore[no-untyped-call]


@collective_p.def_impl  # type: ignore[untyped-decorator]
def _evaluate(*arrays: Any, call: Call) -> List[jax.Array]:
    return _eager.run(call, arrays)[0]


@collective_p.def_effectful_abstract_eval  # type: ignore[untyped-decorator]
def _shapes(*avals: Any, call: Call) -> Tuple[List[Any], Any]:
    outputs = [jax.core.ShapedArray(call.output_shape(aval.shape), aval.dtype) for aval in avals]
    return outputs, all_effects


@functools.cache
def _register_target() -> None:
    handler = _native.lib().hvd_jax_collective
    capsule = jax.ffi.pycapsule(handler)  # type: ignore[no-untyped-call]
    jax.ffi.register_ffi_target(_TARGET, capsule, platform="cpu")


def _lower(ctx: Any, *operands: Any, call: Call) -> Any:
    _register_target()
    in_place = call.kind in (ALLREDUCE, BROADCAST)
    lower = jax.ffi.ffi_lowering(
        _TARGET,
        has_side_effect=True,
        operand_output_aliases={i: i for i in range(1, len(operands) + 1)} if in_place else None,
    )
    with_token = ctx.replace(
        avals_in=[abstract_token, *ctx.avals_in], avals_out=[abstract_token, *ctx.avals_out]
    )
    token, *outputs = lower(
        with_token,
        ctx.tokens_in.get(collective_effect),
        *operands,
        kind=np.int32(call.kind),
        name=call.compiled_name(len(operands)),
        reduce_op=np.int32(call.op),
        root=np.int32(call.root),
        process_set=np.int32(call.process_set),
        prescale=np.float64(call.prescale),
        postscale=np.float64(call.postscale),
        splits=np.array(call.splits or (), np.int64),
    )
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({collective_effect: token})))
    return outputs


mlir.register_lowering(collective_p, _lower, platform="cpu")


def _lower_elsewhere(ctx: Any, *operands: Any, call: Call) -> Any:
    raise NotImplementedError(
        "horovod.jax compiles collectives for the CPU only. On other devices call them outside of jit: "
        "compute the gradients in a jitted function, reduce them with hvd.allreduce(grads), and apply them "
        "in another one."
    )


mlir.register_lowering(collective_p, _lower_elsewhere)


def _batch(arrays: Sequence[Any], axes: Sequence[Any], *, call: Call) -> Tuple[List[Any], List[int]]:
    """vmap: collectives work along the first axis, or on every element, so the mapped axis goes last."""
    size = next(a.shape[axis] for a, axis in zip(arrays, axes) if axis is not None)
    moved = [
        jnp.broadcast_to(a[..., None], (*a.shape, size)) if axis is None else jnp.moveaxis(a, axis, -1)
        for a, axis in zip(arrays, axes)
    ]
    outputs = bind(call, moved)
    return outputs, [output.ndim - 1 for output in outputs]


batching.primitive_batchers[collective_p] = _batch
