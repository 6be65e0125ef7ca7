# SPDX-License-Identifier: Apache-2.0
"""The one jax primitive behind all collectives, and how jax evaluates, compiles and batches it.

Concrete arrays go to the engine at once. Inside a program it becomes a call of the XLA handler in
csrc/glue/jax: operands and results share their memory where the operation allows it, the ordered effect ties
the calls to each other. On CPUs a future completes them, so that no XLA thread ever waits; on GPUs they are
put in the order of XLA's stream.
"""

from __future__ import annotations

import functools
from typing import Any, List, Sequence, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from horovod.common import _native, names
from horovod.common.calls import Call
from horovod.common.members import place_in
from horovod.common.verbs import Result, scattered_rows
from horovod.jax import _eager
from horovod.jax._compat import abstract_token, all_effects, collective_effect

# By platform: the name of the XLA handler, which is also its symbol in the engine.
_TARGETS = {"cpu": "hvd_jax_collective", "cuda": "hvd_jax_collective_cuda"}

# Unnamed collectives of compiled programs share one name. They are ordered by the program and at most one
# is in flight, so it cannot clash; it does not depend on the order in which ranks happen to trace; and ranks
# that have come out of step meet under it and get an error that says how they differ, instead of waiting.
COMPILED_NAME = "jax.jit"

collective_p = Primitive("horovod_collective")
collective_p.multiple_results = True


def bind(call: Call, arrays: Sequence[Any]) -> List[Any]:
    """Runs the collective, or records it in the program that is being traced."""
    for array in arrays:
        _eager.dtype_number(array.dtype)  # refused here, with a Python traceback, rather than at run time
    return list(collective_p.bind(*arrays, call=call))  # type: ignore[no-untyped-call]


def run(call: Call, arrays: Sequence[Any]) -> List[jax.Array]:
    """The collective of arrays that have values.

    On a CUDA device a program of this one call does it, in the order of the device's stream, where the shape
    of the result is known. Otherwise it goes through host memory.
    """
    if call.verb.result in (Result.SAME, Result.SCATTERED) and all(_on_cuda(array) for array in arrays):
        return list(_program(call._replace(name=None))(*arrays))
    return _eager.run(call, arrays)[0]


@functools.lru_cache(maxsize=256)
def _program(call: Call) -> Any:
    return jax.jit(lambda *arrays: bind(call, arrays))


def _on_cuda(array: Any) -> bool:
    if not isinstance(array, jax.Array):
        return False
    devices = array.devices()
    return len(devices) == 1 and _is_cuda(next(iter(devices)))


@functools.lru_cache(maxsize=256)
def _is_cuda(device: Any) -> bool:
    return device.platform in ("gpu", "cuda") and "cuda" in device.client.platform_version.lower()


@collective_p.def_impl  # type: ignore[untyped-decorator]
def _evaluate(*arrays: Any, call: Call) -> List[jax.Array]:
    return run(call, arrays)


@collective_p.def_effectful_abstract_eval  # type: ignore[untyped-decorator]
def _shapes(*avals: Any, call: Call) -> Tuple[List[Any], Any]:
    shapes = [_output_shape(call, index, aval.shape) for index, aval in enumerate(avals)]
    outputs = [jax.core.ShapedArray(shape, aval.dtype) for shape, aval in zip(shapes, avals)]
    return outputs, all_effects


def _output_shape(call: Call, index: int, shape: Sequence[int]) -> Tuple[int, ...]:
    """Shape of an output inside a program, where it must follow from what this rank knows."""
    result = call.verb.result
    if result is Result.SAME:
        return tuple(shape)
    members, position = place_in(call.process_set, call.verb)
    if result is Result.SCATTERED:
        return (scattered_rows(shape[0], members, position), *shape[1:])
    if result is Result.GATHERED:
        return (shape[0] * members if call.rows is None else call.rows[index], *shape[1:])
    if call.splits is None:
        return tuple(shape)
    if len(set(call.splits)) > 1:
        raise ValueError(
            f"{call.verb.name} inside jit needs equal splits: the shape of the output must be known when the "
            "program is compiled. Call it outside of jit, or pad the tensor."
        )
    return (call.splits[0] * members, *shape[1:])


def _compiled_name(call: Call, count: int) -> str:
    if call.name is None:
        return COMPILED_NAME
    name = f"{call.verb.prefix(grouped=count > 1)}.{call.name}"
    names.encoded(name)  # refused here rather than in the middle of a program
    return name


@functools.cache
def _registered_target(platform: str) -> str:
    target = _TARGETS[platform]
    capsule = jax.ffi.pycapsule(getattr(_native.lib(), target))  # type: ignore[no-untyped-call]
    jax.ffi.register_ffi_target(target, capsule, platform="CUDA" if platform == "cuda" else platform)
    return target


def _lower(ctx: Any, *operands: Any, call: Call, platform: str) -> Any:
    in_place = call.verb.result is Result.SAME
    lower = jax.ffi.ffi_lowering(
        _registered_target(platform),
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
        kind=np.int32(call.verb.kind),
        name=_compiled_name(call, len(operands)),
        reduce_op=np.int32(call.op),
        root=np.int32(call.root),
        process_set=np.int32(call.process_set),
        prescale=np.float64(call.prescale),
        postscale=np.float64(call.postscale),
        splits=np.array(call.splits or (), np.int64),
    )
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({collective_effect: token})))
    return outputs


for _platform in _TARGETS:
    mlir.register_lowering(collective_p, functools.partial(_lower, platform=_platform), platform=_platform)


def _lower_elsewhere(ctx: Any, *operands: Any, call: Call) -> Any:
    raise NotImplementedError(
        "horovod.jax compiles collectives for CPUs and CUDA only. On other devices call them outside of jit: "
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
