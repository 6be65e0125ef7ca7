# SPDX-License-Identifier: Apache-2.0
"""Loads the kernels into TensorFlow and tells its graph builder how to treat them."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import tensorflow as tf

from horovod.common import _native

_OP_TYPES = (
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllreduceEach",
    "HorovodAllgather",
    "HorovodGroupedAllgather",
    "HorovodBroadcast",
    "HorovodGroupedBroadcast",
    "HorovodAlltoall",
    "HorovodEnqueueAllreduce",
    "HorovodReducescatter",
    "HorovodGroupedReducescatter",
    "HorovodRank",
    "HorovodSize",
    "HorovodLocalRank",
    "HorovodLocalSize",
    "HorovodProcessSetIncluded",
)


def _path() -> str:
    return os.path.join(os.path.dirname(_native.library_path()), "libhorovod_tensorflow.so")


def _load() -> Any:
    """The module of generated op wrappers. TensorFlow must be the first to map the file."""
    _native.lib()  # the engine first: the kernels' file names it as a dependency
    path = _path()
    if not os.path.exists(path):
        raise ImportError(
            f"Horovod's TensorFlow kernels are not built: {path} does not exist. Install Horovod with "
            "`pip install horovod`, or run `make build` in a source tree."
        )
    return tf.load_op_library(path)


def _declare_independent() -> None:
    """Lets the collectives of a tf.function run in any order, all of them, as soon as their inputs are there.

    They are stateful, and automatic control dependencies put stateful ops in program order: each allreduce
    would wait for the one before, which forbids fusion and overlap. TensorFlow keeps such a list for its own
    collectives; where a version has none, the order only costs time.
    """
    from tensorflow.python.framework import auto_control_deps

    known = getattr(auto_control_deps, "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS", None)
    if known is not None:
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = frozenset(known) | frozenset(_OP_TYPES)


ops = _load()
_glue = ctypes.CDLL(_path())
_glue.horovod_tensorflow_problem.restype = ctypes.c_char_p
_problem = _glue.horovod_tensorflow_problem().decode()
if _problem:
    raise ImportError(f"Horovod cannot register its kernels in TensorFlow {tf.__version__}: {_problem}")
_declare_independent()


def compiled_calls_available() -> bool:
    """Whether code compiled by XLA for the CPU can reach the engine in this TensorFlow."""
    return bool(_glue.horovod_tensorflow_xla_available())


def kernels_defer() -> bool:
    """Whether collectives wait without holding a TensorFlow thread; tried out when none has run yet."""
    if _glue.horovod_tensorflow_can_defer() < 0:
        with tf.init_scope():  # out of the function being traced
            if not tf.executing_eagerly():
                return True  # a TF1 graph: nothing can be tried out, and the answer is seldom no
            ops.horovod_probe()
    return bool(_glue.horovod_tensorflow_can_defer() == 1)


def refuse_to_defer(refuse: bool) -> None:
    """For tests: behave as in a TensorFlow where collectives have to hold their thread."""
    _glue.horovod_tensorflow_refuse_to_defer(int(refuse))
    ops.horovod_probe()
