# SPDX-License-Identifier: Apache-2.0
"""Horovod for Keras 3 on TensorFlow, PyTorch or JAX: ``import horovod.keras as hvd``.

The backend is the one Keras runs on (KERAS_BACKEND); no other framework is imported. Optimizers of `tf_keras`
(Keras 2) are taken too.
"""

from __future__ import annotations

import importlib
from typing import Any, Optional

import keras as _keras

from horovod._keras import front_end as _front_end
from horovod._keras.front_end import *  # noqa: F403
from horovod._keras.front_end import NAMES as __all__  # noqa: F401
from horovod._keras.saving import Saving as _Saving
from horovod._keras.values import Values as _Values
from horovod.common.constants import Average
from horovod.common.lifecycle import *  # noqa: F403
from horovod.keras import callbacks, elastic  # noqa: F401

_BACKEND = _keras.config.backend()
_values = _Values(_BACKEND)
allreduce = _values.allreduce
allgather = _values.allgather
broadcast = _values.broadcast
reducescatter = _values.reducescatter
load_model = _Saving(_keras).load_model


def __getattr__(name: str) -> Any:
    """`Compression` is that of the backend's own front end, which is loaded when it is used."""
    if name == "Compression":
        return importlib.import_module(f"horovod.{_BACKEND}").Compression
    raise AttributeError(f"module 'horovod.keras' has no attribute {name!r}")


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
    **options: Any,
) -> Any:
    # The positions of 0.28, where horovod.tensorflow.keras has others; the rest goes by keyword.
    return _front_end.DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        num_groups=num_groups,
        groups=groups,
        **options,
    )


DistributedOptimizer.__doc__ = _front_end.DistributedOptimizer.__doc__
