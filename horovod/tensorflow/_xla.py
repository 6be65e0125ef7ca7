# SPDX-License-Identifier: Apache-2.0
"""Collectives in code that XLA compiles (`jit_compile=True`).

XLA cannot compile our kernels. On the CPU it can call the engine through a custom call, when this TensorFlow
offers the registry for it; all tensors of a call go into one blocking submission. On a GPU it cannot.
"""

from __future__ import annotations

import struct
from typing import Any, List, NoReturn, Optional, Sequence

import tensorflow as tf

from horovod.common import constants
from horovod.common.calls import Call
from horovod.common.verbs import Verb
from horovod.tensorflow import _library

_ENGINE_DTYPE = {
    tf.uint8: constants.UINT8,
    tf.int8: constants.INT8,
    tf.uint16: constants.UINT16,
    tf.int16: constants.INT16,
    tf.int32: constants.INT32,
    tf.int64: constants.INT64,
    tf.float16: constants.FLOAT16,
    tf.float32: constants.FLOAT32,
    tf.float64: constants.FLOAT64,
    tf.bool: constants.BOOL,
    tf.bfloat16: constants.BFLOAT16,
    tf.uint32: constants.UINT32,
    tf.uint64: constants.UINT64,
}

_ADVICE = (
    "Compile without XLA: model.compile(..., jit_compile=False), or tf.function without jit_compile around "
    "the step, with jit_compile=True kept on functions that hold no Horovod call."
)


def inside() -> bool:
    """Whether the function being traced is one that XLA must compile."""
    if tf.executing_eagerly():
        return False
    from tensorflow.python.ops import control_flow_util

    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def why_not() -> Optional[str]:
    """The reason why compiled code cannot call the engine here; None when it can."""
    if tf.config.list_physical_devices("GPU"):
        return "XLA compiles for the GPU, and code compiled for a GPU cannot call Horovod's engine"
    if not _library.compiled_calls_available():
        return f"TensorFlow {tf.__version__} does not export XLA's registry of custom calls"
    return None


def _bits(value: float) -> int:
    """The integer with the bits of a double: text that means the same in every locale."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def custom_call(call: Call, tensors: Sequence[Any], name: str) -> List[Any]:
    """The collective as one custom call; the outputs have the inputs' shapes."""
    if not tensors:
        return []
    reason = why_not()
    if reason is None and not all(t.shape.is_fully_defined() for t in tensors):
        reason = f"the shape of a tensor of {name} is not known when the function is compiled"
    if reason is not None:
        raise RuntimeError(
            f"Horovod's {call.verb.name} is inside a function with jit_compile=True, but {reason}. {_ADVICE}"
        )
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    unique = tf.compat.v1.get_default_graph().unique_name(name)
    lines = [
        unique,
        f"{call.verb.kind} {call.op} {_bits(call.prescale)} {_bits(call.postscale)} {call.process_set} "
        f"{call.root} {len(tensors)}",
    ]
    for t in tensors:
        dims = t.shape.as_list()
        lines.append(" ".join(str(v) for v in [_ENGINE_DTYPE[t.dtype], len(dims), *dims]))
    return list(
        gen_xla_ops.xla_custom_call_v2(
            operands=list(tensors),
            call_target_name="horovod_collective",
            backend_config="\n".join(lines) + "\n",
            has_side_effect=True,
            result_dtypes=[t.dtype for t in tensors],
            result_shapes=[t.shape for t in tensors],
        )
    )


def refuse(verb: Verb) -> NoReturn:
    """Collectives whose output size is known only when they run cannot be compiled."""
    raise RuntimeError(
        f"Horovod's {verb.name} is inside a function with jit_compile=True, but its "
        f"result's size is only known when it runs, which XLA cannot compile. {_ADVICE}"
    )
