# SPDX-License-Identifier: Apache-2.0
"""Keras `fit` with the usual callbacks, on tf.keras (Keras 3, or Keras 2 with TF_USE_LEGACY_KERAS=1).

    horovodrun -np 2 python examples/tensorflow2_keras_mnist.py
    horovodrun -np 2 python examples/tensorflow2_keras_mnist.py --data mnist.npz --epochs 24

Without --data it uses scikit-learn's small digits when installed, else generated images.
"""

import argparse
import os
import tempfile

import tensorflow as tf
from tensorflow_example_data import load_digits

import horovod.tensorflow.keras as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", help="mnist.npz with x_train and y_train")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--steps", type=int, default=60, help="steps of an epoch, over all ranks")
parser.add_argument("--checkpoints", help="directory for rank 0's checkpoints")
args = parser.parse_args()

hvd.init()  # 1. join the job: from here on there are rank() and size()

gpus = tf.config.list_physical_devices("GPU")
if gpus:  # each process of a host takes another of its GPUs
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

x_train, y_train, x_test, y_test = load_digits(args.data)
# Each rank trains on its own part.
x_mine, y_mine = x_train[hvd.rank() :: hvd.size()], y_train[hvd.rank() :: hvd.size()]
dataset = tf.data.Dataset.from_tensor_slices((x_mine[..., tf.newaxis], y_mine))
dataset = dataset.repeat().shuffle(10000, seed=hvd.rank()).batch(32)

side = x_train.shape[1]
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((side, side, 1)),
        tf.keras.layers.Conv2D(16, [3, 3], activation="relu"),
        tf.keras.layers.Conv2D(32, [3, 3], activation="relu"),
        tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)

# 2. size() batches make one step, so the step may be size() times as long.
# 3. Average the gradients of all ranks before they are applied.
opt = hvd.DistributedOptimizer(tf.optimizers.Adam(0.001 * hvd.size()))

# `experimental_run_tf_function=False`, which scripts of Keras 2's time pass here, is not taken by Keras 3 and
# not needed by either: leave it out.
model.compile(loss=tf.losses.SparseCategoricalCrossentropy(), optimizer=opt, metrics=["accuracy"])

callbacks = [
    # 4. All ranks start from rank 0's variables.
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # Metrics of all ranks, not of rank 0's part only; before the callbacks that look at metrics.
    hvd.callbacks.MetricAverageCallback(),
    # The long steps only after three epochs of growing ones: fresh weights do not stand them.
    hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=3, verbose=1),
]

# 5. One rank writes the files and the log.
if hvd.rank() == 0:
    directory = args.checkpoints or tempfile.mkdtemp()
    callbacks.append(tf.keras.callbacks.ModelCheckpoint(os.path.join(directory, "checkpoint-{epoch}.keras")))

model.fit(
    dataset,
    steps_per_epoch=args.steps // hvd.size(),  # the ranks share the steps
    callbacks=callbacks,
    epochs=args.epochs,
    verbose=2 if hvd.rank() == 0 else 0,
)
loss, accuracy = model.evaluate(x_test[..., tf.newaxis], y_test, verbose=0)
if hvd.rank() == 0:
    print(f"test accuracy {accuracy:.3f}")
