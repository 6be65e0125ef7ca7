# SPDX-License-Identifier: Apache-2.0
"""Training speed of a transformer-like JAX model on random data, on one process or several.

python examples/jax_synthetic_benchmark.py
horovodrun -np 4 python examples/jax_synthetic_benchmark.py --layers 8 --width 512
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import horovod.jax as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--length", type=int, default=64, help="tokens of a sequence")
parser.add_argument("--batch-size", type=int, default=8, help="sequences per process")
parser.add_argument("--warmup", type=int, default=3, help="batches before measuring")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--batches", type=int, default=5, help="per round")
parser.add_argument("--bf16-allreduce", action="store_true", help="send gradients as bfloat16")
args = parser.parse_args()

hvd.init()


def init_params(key):
    d = args.width
    shapes = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
    keys = iter(jax.random.split(key, 4 * args.layers))
    return [
        {k: jax.random.normal(next(keys), s) * s[0] ** -0.5 for k, s in shapes.items()}
        for _ in range(args.layers)
    ]


def norm(x):
    return x / jnp.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)


def model(params, x):
    for layer in params:
        q, k, v = jnp.split(norm(x) @ layer["qkv"], 3, axis=-1)
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) * args.width**-0.5)
        x = x + weights @ v @ layer["out"]
        x = x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"]
    return x


def loss(params, x, y):
    return ((model(params, x) - y) ** 2).mean()


compression = hvd.Compression.bf16 if args.bf16_allreduce else hvd.Compression.none
tx = hvd.DistributedOptimizer(optax.sgd(0.01), compression=compression)
params = hvd.broadcast_parameters(init_params(jax.random.key(0)))
opt_state = tx.init(params)
shape = (args.batch_size, args.length, args.width)
x, y = (jax.random.normal(jax.random.key(1 + i + 2 * hvd.rank()), shape) for i in range(2))


@jax.jit
def train_step(params, opt_state):
    gradients = jax.grad(loss)(params, x, y)
    updates, opt_state = tx.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def run(batches):
    global params, opt_state
    start = time.perf_counter()
    for _ in range(batches):
        params, opt_state = train_step(params, opt_state)
    jax.block_until_ready(params)
    return args.batch_size * batches / (time.perf_counter() - start)


def log(text):
    if hvd.rank() == 0:
        print(text, flush=True)


elements = sum(leaf.size for leaf in jax.tree.leaves(params))
log(f"{elements / 1e6:.1f} million parameters, batch size {args.batch_size}, {hvd.size()} processes")
run(args.warmup)
speeds = []
for i in range(args.rounds):
    speeds.append(run(args.batches))
    log(f"round {i + 1}: {speeds[-1]:.1f} sequences/s per process")
mean, spread = np.mean(speeds), 1.96 * np.std(speeds)
log(f"per process: {mean:.1f} +- {spread:.1f} sequences/s")
log(f"all {hvd.size()}: {hvd.size() * mean:.1f} +- {hvd.size() * spread:.1f} sequences/s")
