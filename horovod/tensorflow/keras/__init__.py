# SPDX-License-Identifier: Apache-2.0
"""Horovod for tf.keras: ``import horovod.tensorflow.keras as hvd``.

`tf.keras` is Keras 3, or Keras 2 when TF_USE_LEGACY_KERAS=1 is set. Both work, as do optimizers of
`tf_keras` itself.
"""

from __future__ import annotations

from tensorflow import keras as _keras

from horovod._keras.front_end import *  # noqa: F403
from horovod._keras.front_end import NAMES as __all__  # noqa: F401
from horovod._keras.front_end import DistributedOptimizer  # noqa: F401
from horovod._keras.saving import Saving as _Saving
from horovod._keras.values import Values as _Values
from horovod.common.lifecycle import *  # noqa: F403
from horovod.tensorflow.compression import Compression  # noqa: F401
from horovod.tensorflow.keras import callbacks, elastic  # noqa: F401

_values = _Values("tensorflow")
allreduce = _values.allreduce
allgather = _values.allgather
broadcast = _values.broadcast
reducescatter = _values.reducescatter
load_model = _Saving(_keras).load_model
