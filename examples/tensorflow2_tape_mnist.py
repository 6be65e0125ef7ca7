# SPDX-License-Identifier: Apache-2.0
"""A TF2 training loop of one's own: tf.data, a gradient tape, a checkpoint.

    horovodrun -np 2 python examples/tensorflow2_tape_mnist.py
    horovodrun -np 2 python examples/tensorflow2_tape_mnist.py --data mnist.npz --steps 10000

Without --data it uses scikit-learn's small digits when installed, else generated images.
"""

import argparse
import os
import tempfile

import tensorflow as tf
from tensorflow_example_data import load_digits

import horovod.tensorflow as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", help="mnist.npz with x_train and y_train")
parser.add_argument("--steps", type=int, default=600, help="steps over all ranks")
parser.add_argument("--checkpoints", help="directory for rank 0's checkpoints")
parser.add_argument("--seed", type=int, default=1, help="of the weights and of what is dropped out")
args = parser.parse_args()

hvd.init()  # 1. join the job: from here on there are rank() and size()
tf.keras.utils.set_random_seed(args.seed + hvd.rank())

gpus = tf.config.list_physical_devices("GPU")
if gpus:  # each process of a host takes another of its GPUs
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

x_train, y_train, x_test, y_test = load_digits(args.data)
dataset = tf.data.Dataset.from_tensor_slices((x_train[..., tf.newaxis], y_train))
dataset = dataset.repeat().shuffle(10000, seed=hvd.rank()).batch(64)

side = x_train.shape[1]
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((side, side, 1)),
        tf.keras.layers.Conv2D(16, [3, 3], activation="relu"),
        tf.keras.layers.Conv2D(32, [3, 3], activation="relu"),
        tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
        tf.keras.layers.Dropout(0.25),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
loss = tf.losses.SparseCategoricalCrossentropy()

# 2. size() batches make one step, so the step may be size() times as long.
opt = tf.optimizers.Adam(0.001 * hvd.size())

checkpoint_dir = args.checkpoints or tempfile.mkdtemp()
checkpoint = tf.train.Checkpoint(model=model, optimizer=opt)


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        predicted = model(images, training=True)
        loss_value = loss(labels, predicted)

    # 3. Average the gradients of all ranks.
    tape = hvd.DistributedGradientTape(tape)

    grads = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))
    return loss_value


# The ranks share the steps.
for batch, (images, labels) in enumerate(dataset.take(args.steps // hvd.size())):
    loss_value = train_step(images, labels)

    # 4. All ranks go on from rank 0's variables; after one step, because the optimizer makes its own then.
    if batch == 0:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables, root_rank=0)

    if batch % 50 == 0 and hvd.rank() == 0:
        print(f"step {batch}: loss {float(loss_value):.4f}")

accuracy = tf.reduce_mean(tf.cast(tf.argmax(model(x_test[..., tf.newaxis]), axis=1) == y_test, tf.float32))
# 5. One rank writes the files.
if hvd.rank() == 0:
    path = checkpoint.save(os.path.join(checkpoint_dir, "model"))
    print(f"saved {path}\ntest accuracy {float(accuracy):.3f}")
