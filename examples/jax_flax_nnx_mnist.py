# SPDX-License-Identifier: Apache-2.0
"""A convolutional network in flax.nnx on handwritten digits, trained on several processes.

    horovodrun -np 2 python examples/jax_flax_nnx_mnist.py
    python examples/jax_flax_nnx_mnist.py                         # one process: the same script
    horovodrun -np 4 python examples/jax_flax_nnx_mnist.py --data-dir ~/mnist

Without --data-dir it uses the 1,797 small digits that come with scikit-learn. With it, the four MNIST files
(train-images-idx3-ubyte.gz, ...) in that directory.
"""

import argparse
import gzip
import os

import numpy as np
import optax
from flax import nnx

import horovod.jax as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data-dir", help="directory with the MNIST files")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=64, help="per process")
parser.add_argument("--lr", type=float, default=2e-3, help="for one process")
args = parser.parse_args()


def load(directory):
    """(train images, train labels, test images, test labels), images as [n, side, side, 1] in 0..1."""
    if directory is None:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        x, y = (x / 16).astype(np.float32).reshape(-1, 8, 8, 1), y.astype(np.int32)
        return x[:1500], y[:1500], x[1500:], y[1500:]

    def read(name, header):
        with gzip.open(os.path.join(directory, name)) as f:
            return np.frombuffer(f.read(), np.uint8)[header:]

    parts = []
    for which in ("train", "t10k"):
        parts.append(
            read(f"{which}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1).astype(np.float32) / 255
        )
        parts.append(read(f"{which}-labels-idx1-ubyte.gz", 8).astype(np.int32))
    return parts


class Net(nnx.Module):
    def __init__(self, side, rngs):
        self.conv1 = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(16, 32, (3, 3), rngs=rngs)
        self.dense1 = nnx.Linear((side // 4) ** 2 * 32, 64, rngs=rngs)
        self.dense2 = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.conv1(x)), (2, 2), (2, 2))
        x = nnx.max_pool(nnx.relu(self.conv2(x)), (2, 2), (2, 2))
        return self.dense2(nnx.relu(self.dense1(x.reshape(len(x), -1))))


# Horovod: join the job, and take this process' part of the data.
hvd.init()
train_x, train_y, test_x, test_y = load(args.data_dir)
shard_x, shard_y = train_x[hvd.rank() :: hvd.size()], train_y[hvd.rank() :: hvd.size()]
steps = len(train_x) // hvd.size() // args.batch_size  # the same number on every process

# Horovod: start from the same weights everywhere.
model = Net(train_x.shape[1], nnx.Rngs(hvd.rank()))
nnx.update(model, hvd.broadcast_parameters(nnx.state(model), root_rank=0))

# Horovod: scale the learning rate with the number of processes, and average the gradients.
tx = hvd.DistributedOptimizer(optax.adam(args.lr * hvd.size()))
optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)


@nnx.jit
def train_step(model, optimizer, x, y):
    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return value


@nnx.jit
def correct(model, x, y):
    return (model(x).argmax(axis=1) == y).sum()


for epoch in range(args.epochs):
    order = np.random.default_rng([epoch, hvd.rank()]).permutation(len(shard_x))
    for i in range(steps):
        batch = order[i * args.batch_size : (i + 1) * args.batch_size]
        value = train_step(model, optimizer, shard_x[batch], shard_y[batch])
    # Horovod: each process tests its share; sum the counts and average the loss.
    right = hvd.allreduce(
        correct(model, test_x[hvd.rank() :: hvd.size()], test_y[hvd.rank() :: hvd.size()]), op=hvd.Sum
    )
    mean = hvd.allreduce(value)
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {mean:.4f}, test accuracy {right / len(test_x):.3f}", flush=True)
