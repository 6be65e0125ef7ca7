# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow inside a tf.function."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from benchmarks.contenders.horovod_numpy import InPlace

LEARNING_RATE = 1e-4  # so small that values stay ordinary numbers however often the step is made


class Graph(InPlace):
    """One tensor, or the gradients of a step, reduced as the tapes and optimizers do it."""

    def __init__(self) -> None:
        import tensorflow as tf

        import horovod.tensorflow as hvd

        self.tf = tf
        self.join(hvd)
        self._one = tf.function(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum, name="bench"))
        self._in_and_out = tf.function(lambda some: [self.reduced(t, f"t{i}") for i, t in enumerate(some)])
        self._steps: Dict[int, Callable[[], None]] = {}  # by the number of variables

    def reduced(self, tensor: Any, name: str) -> Any:
        """One tensor on its way through a graph."""
        return self.hvd.allreduce(tensor, op=self.hvd.Sum, name=name)

    def all_reduced(self, gradients: List[Any]) -> List[Any]:
        """The gradients of a step."""
        reduce = self.hvd._make_allreduce_grads_fn("Step", op=self.hvd.Sum)
        summed: List[Any] = reduce(gradients)
        return summed

    def buffer(self, count: int) -> Any:
        return self.tf.ones([count])

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        return self._one(data)

    def many(self, tensors: List[Any]) -> None:
        """A step: gradients of variables, made in the graph, reduced, and applied to the variables there."""
        if len(tensors) not in self._steps:
            self._steps = {len(tensors): self._step(tensors)}
        self._steps[len(tensors)]()

    def in_and_out(self, tensors: List[Any]) -> None:
        self._in_and_out(tensors)

    def _step(self, tensors: List[Any]) -> Callable[[], None]:
        variables = [self.tf.Variable(tensor) for tensor in tensors]

        def step() -> None:
            gradients = [self.tf.add(variable, variable) for variable in variables]  # of the sum of squares
            for variable, gradient in zip(variables, self.all_reduced(gradients)):
                self.tf.raw_ops.ResourceApplyGradientDescent(
                    var=variable.handle, alpha=LEARNING_RATE, delta=gradient
                )

        made: Callable[[], None] = self.tf.function(step)
        return made

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
    """The same graphs without collectives: what TensorFlow takes for itself."""

    def reduced(self, tensor: Any, name: str) -> Any:
        return self.tf.negative(tensor)  # an argument that is a result would not go through the graph

    def all_reduced(self, gradients: List[Any]) -> List[Any]:
        return gradients
