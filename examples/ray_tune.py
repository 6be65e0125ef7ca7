# SPDX-License-Identifier: Apache-2.0
"""Ray Tune: each trial is a job of several ranks in its own placement group; a scheduler ends bad ones.

    python examples/ray_tune.py
    python examples/ray_tune.py --address auto --ranks 4 --trials 16

Bundle 0 is the trial itself, the others are its ranks. A trial that is stopped takes its ranks with it.
"""

import argparse

import ray
from ray import tune

from horovod.ray import RayExecutor


class Learner:
    """What each rank of a trial keeps from epoch to epoch: a line through points y = 3 x."""

    def __init__(self, lr):
        import numpy as np

        import horovod.numpy as hvd

        hvd.init()
        self.hvd, self.np, self.lr, self.slope = hvd, np, lr, 0.0
        self.x = np.random.default_rng(hvd.rank()).normal(size=64)

    def epoch(self):
        error = self.slope * self.x - 3 * self.x
        gradient = self.hvd.allreduce(self.np.array([(2 * error * self.x).mean()]), name="gradient")
        self.slope -= self.lr * float(gradient[0])
        return float(self.hvd.allreduce(self.np.array([(error**2).mean()]), name="loss")[0])


def trial(config):
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=config["ranks"])
    executor.start(executable_cls=Learner, executable_kwargs={"lr": config["lr"]})
    try:
        for _ in range(config["epochs"]):
            losses = executor.execute(lambda learner: learner.epoch())
            tune.report({"loss": losses[0]})
    finally:
        executor.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--address", help="of a running cluster, e.g. auto; default: start Ray here")
    parser.add_argument("--ranks", type=int, default=2, help="of each trial")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--concurrent", type=int, default=2, help="trials at a time")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--storage", help="folder for the results")
    args = parser.parse_args()

    ray.init(address=args.address)
    bundles = tune.PlacementGroupFactory([{"CPU": 0.5}] + [{"CPU": 1}] * args.ranks)
    tuner = tune.Tuner(
        tune.with_resources(trial, bundles),
        param_space={
            "lr": tune.grid_search([0.3 * 0.03**i for i in range(args.trials)]),
            "ranks": args.ranks,
            "epochs": args.epochs,
        },
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", max_concurrent_trials=args.concurrent,
            scheduler=tune.schedulers.ASHAScheduler(max_t=args.epochs, grace_period=1, reduction_factor=2),
        ),
        run_config=tune.RunConfig(storage_path=args.storage, verbose=0),
    )  # fmt: skip
    for result in tuner.fit():
        epochs = result.metrics["training_iteration"]
        print(f"lr {result.config['lr']:.4f}: {epochs} epochs, loss {result.metrics['loss']:.6f}")
