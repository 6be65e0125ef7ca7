# SPDX-License-Identifier: Apache-2.0
"""JAX on a Ray cluster, with batches from Ray Data: every rank its own part, and as many steps as the others.

python examples/ray_jax_mnist.py
python examples/ray_jax_mnist.py --address auto --num-workers 8
"""

import argparse

import ray

from horovod.ray import RayExecutor


def train(parts, steps, batch_size, epochs):
    import jax
    import jax.numpy as jnp
    import optax

    import horovod.jax as hvd

    hvd.init()
    part = parts[hvd.rank()]  # an iterator over this rank's rows
    params = {"w": jnp.zeros((64, 10)), "b": jnp.zeros(10)}
    tx = hvd.DistributedOptimizer(optax.adam(0.02))
    params = hvd.broadcast_parameters(params, root_rank=0)
    opt_state = tx.init(params)

    def loss(params, x, y):
        scores = x @ params["w"] + params["b"]
        return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()

    @jax.jit
    def step(params, opt_state, x, y):
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        updates, opt_state = tx.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    done = 0
    for _ in range(epochs):
        losses = []
        for batch in part.iter_batches(batch_size=batch_size, drop_last=True):
            params, opt_state, value = step(
                params, opt_state, jnp.asarray(batch["x"]), jnp.asarray(batch["y"])
            )
            losses.append(value)
            done += 1
    assert done == epochs * steps, (done, epochs, steps)
    return {"rank": hvd.rank(), "steps": done, "loss": float(hvd.allreduce(jnp.stack(losses).mean()))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--address", help="of a running cluster, e.g. auto; default: start Ray here")
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    ray.init(address=args.address)
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rows = [{"x": (image / 16).astype("float32"), "y": label} for image, label in zip(images, labels)]
    # equal=True: every part has as many rows as the others, so no rank waits for a step that does not come.
    parts = ray.data.from_items(rows).streaming_split(args.num_workers, equal=True)
    steps = len(rows) // args.num_workers // args.batch_size

    executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=args.num_workers)
    executor.start(extra_env_vars={"JAX_PLATFORMS": "cpu"})
    for result in executor.run(train, (parts, steps, args.batch_size, args.epochs)):
        print("rank {rank}: {steps} steps, loss {loss:.4f}".format(**result))
    executor.shutdown()
