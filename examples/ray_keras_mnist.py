# SPDX-License-Identifier: Apache-2.0
"""Keras 3 on a Ray cluster, with any of its backends.

python examples/ray_keras_mnist.py --backend torch
python examples/ray_keras_mnist.py --address auto --num-workers 8 --backend jax
"""

import argparse

import ray
from sklearn.datasets import load_digits

from horovod.ray import RayExecutor


def train(images, labels, epochs):
    import keras

    import horovod.keras as hvd

    hvd.init()
    keras.utils.set_random_seed(42)
    images = (images / 16).astype("float32")
    mine = slice(hvd.rank(), 1500 // hvd.size() * hvd.size(), hvd.size())  # as many images on every rank

    model = keras.Sequential(
        [keras.layers.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
    )
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.002 * hvd.size())),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    history = model.fit(
        images[mine], labels[mine], batch_size=32, epochs=epochs, callbacks=callbacks, verbose=0
    )
    _, accuracy = model.evaluate(images[1500:], labels[1500:], verbose=0)
    return {"rank": hvd.rank(), "loss": history.history["loss"][-1], "accuracy": accuracy}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--address", help="of a running cluster, e.g. auto; default: start Ray here")
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--backend", choices=["tensorflow", "torch", "jax"], default="tensorflow")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()

    ray.init(address=args.address)
    images, labels = load_digits(return_X_y=True)  # sent to each node once
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=args.num_workers)
    executor.start(extra_env_vars={"KERAS_BACKEND": args.backend})  # set before Keras is imported there
    for result in executor.run(train, (images, labels, args.epochs)):
        print("rank {rank}: loss {loss:.4f}, test accuracy {accuracy:.3f}".format(**result))
    executor.shutdown()
