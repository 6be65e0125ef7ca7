# SPDX-License-Identifier: Apache-2.0
"""A plain JAX network on handwritten digits, trained on several processes.

    horovodrun -np 2 python examples/jax_mnist.py
    python examples/jax_mnist.py                                  # one process: the same script
    horovodrun -np 4 python examples/jax_mnist.py --data-dir ~/mnist

Without --data-dir it uses the 1,797 small digits that come with scikit-learn. With it, the four MNIST files
(train-images-idx3-ubyte.gz, ...) in that directory.
"""

import argparse
import gzip
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax

import horovod.jax as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data-dir", help="directory with the MNIST files")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=64, help="per process")
parser.add_argument("--lr", type=float, default=1e-3, help="for one process")
args = parser.parse_args()


def load(directory):
    """(train images, train labels, test images, test labels), images flattened to 0..1."""
    if directory is None:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        x, y = (x / 16).astype(np.float32), y.astype(np.int32)
        return x[:1500], y[:1500], x[1500:], y[1500:]

    def read(name, header):
        with gzip.open(os.path.join(directory, name)) as f:
            return np.frombuffer(f.read(), np.uint8)[header:]

    parts = []
    for which in ("train", "t10k"):
        parts.append(read(f"{which}-images-idx3-ubyte.gz", 16).reshape(-1, 784).astype(np.float32) / 255)
        parts.append(read(f"{which}-labels-idx1-ubyte.gz", 8).astype(np.int32))
    return parts


def init_params(key, sizes):
    keys = jax.random.split(key, len(sizes))
    return [
        {"w": jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, "b": jnp.zeros(b)}
        for k, a, b in zip(keys, sizes, sizes[1:])
    ]


def logits(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y).mean()


# Horovod: join the job.
hvd.init()

# Horovod: each process trains on its own part of the data.
train_x, train_y, test_x, test_y = load(args.data_dir)
shard_x, shard_y = train_x[hvd.rank() :: hvd.size()], train_y[hvd.rank() :: hvd.size()]
steps = len(train_x) // hvd.size() // args.batch_size  # the same number on every process

params = init_params(jax.random.key(hvd.rank()), [train_x.shape[1], 128, 64, 10])

# Horovod: scale the learning rate with the number of processes, and average the gradients.
tx = hvd.DistributedOptimizer(optax.adam(args.lr * hvd.size()))

# Horovod: start from the same weights everywhere.
params = hvd.broadcast_parameters(params, root_rank=0)
opt_state = tx.init(params)


@jax.jit
def train_step(params, opt_state, x, y):
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    updates, opt_state = tx.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, value


@jax.jit
def correct(params, x, y):
    return (logits(params, x).argmax(axis=1) == y).sum()


for epoch in range(args.epochs):
    order = np.random.default_rng([epoch, hvd.rank()]).permutation(len(shard_x))
    for i in range(steps):
        batch = order[i * args.batch_size : (i + 1) * args.batch_size]
        params, opt_state, value = train_step(params, opt_state, shard_x[batch], shard_y[batch])
    # Horovod: each process tests its share; sum the counts and average the loss.
    right = hvd.allreduce(
        correct(params, test_x[hvd.rank() :: hvd.size()], test_y[hvd.rank() :: hvd.size()]), op=hvd.Sum
    )
    mean = hvd.allreduce(value)
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {mean:.4f}, test accuracy {right / len(test_x):.3f}", flush=True)
