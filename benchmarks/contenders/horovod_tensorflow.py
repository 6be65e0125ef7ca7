# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow inside a tf.function."""

from __future__ import annotations

from typing import Any, Callable, List

from benchmarks.contenders.horovod_numpy import InPlace


class Graph(InPlace):
    """One node for one tensor, or one for each of many. The caller keeps its tensors, so results are new."""

    def __init__(self) -> None:
        import tensorflow as tf

        import horovod.tensorflow as hvd

        self.tf = tf
        self.join(hvd)
        self._one = tf.function(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum, name="bench"))
        self._all = tf.function(
            lambda tensors: [hvd.allreduce(t, op=hvd.Sum, name=f"g{i}") for i, t in enumerate(tensors)]
        )

    def buffer(self, count: int) -> Any:
        return self.tf.ones([count])

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        return self._one(data)

    def many(self, tensors: List[Any]) -> None:
        self._all(tensors)

    def trainer(self, model: str) -> Callable[[], None]:
        """A small convolution net in Keras, 64 images a step."""
        import keras
        import numpy as np

        import horovod.keras as hvd_keras

        layers = keras.layers
        net = keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Conv2D(16, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(32, 3, activation="relu"),
                layers.Flatten(),
                layers.Dense(10, activation="softmax"),
            ]
        )
        optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.01))
        net.compile(optimizer, "sparse_categorical_crossentropy")
        x, y = np.zeros((64, 28, 28, 1), np.float32), np.zeros(64, np.int64)

        def step() -> None:
            net.train_on_batch(x, y)

        return step


class Alone(Graph):
    """The many without a collective: what TensorFlow takes to be given them and to run a node for each."""

    def __init__(self) -> None:
        super().__init__()
        self._all = self.tf.function(lambda tensors: [self.tf.negative(t) for t in tensors])
