# SPDX-License-Identifier: Apache-2.0
"""Runs one trainer of Ray Train: train_script.py NAME ADDRESS FOLDER; prints what was seen as JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile

import ray
from ray import train


def with_backend(folder):
    """A DataParallelTrainer with our backend: rank 1 dies once; report and checkpoints work."""
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    from horovod.ray import HorovodConfig

    def loop(config):
        import numpy as np

        import horovod.numpy as hvd

        hvd.init()
        context = train.get_context()
        assert (hvd.rank(), hvd.local_rank()) == (context.get_world_rank(), context.get_local_rank())
        start, before = 0, train.get_checkpoint()
        if before is not None:
            with before.as_directory() as path, open(os.path.join(path, "step")) as file:
                start = int(file.read()) + 1
        if hvd.rank() == 0:
            with open(os.path.join(folder, "starts"), "a") as file:
                file.write(f"{start}\n")
        for step in range(start, 4):
            died = os.path.join(folder, "died")
            if hvd.rank() == 1 and step == 2 and not os.path.exists(died):
                train.get_all_reported_checkpoints()  # waits until that of step 1 is known
                open(died, "w").close()
                os._exit(3)
            total = hvd.allreduce(np.full(4, hvd.rank() + 1.0), op=hvd.Sum)
            with tempfile.TemporaryDirectory() as path:
                with open(os.path.join(path, "step"), "w") as file:
                    file.write(str(step))
                metrics = {"step": step, "size": hvd.size(), "sum": float(total[0])}
                train.report(
                    metrics, checkpoint=train.Checkpoint.from_directory(path) if hvd.rank() == 0 else None
                )

    trainer = DataParallelTrainer(
        loop,
        train_loop_config={},
        backend_config=HorovodConfig(),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=folder, failure_config=train.FailureConfig(max_failures=1)),
    )
    metrics = trainer.fit().metrics
    with open(os.path.join(folder, "starts")) as file:
        return {"starts": [int(line) for line in file], "last": metrics}


def all_reduced(**more):
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    total = hvd.allreduce(np.full(4, hvd.rank() + 1.0), op=hvd.Sum)
    return {"size": hvd.size(), "sum": float(total[0]), **more}


def with_ray_own(folder):
    """The HorovodTrainer that Ray Train's first version has."""
    from ray.train.horovod import HorovodTrainer

    trainer = HorovodTrainer(
        lambda: train.report(all_reduced()),
        scaling_config=train.ScalingConfig(num_workers=2, trainer_resources={"CPU": 0}),
        run_config=train.RunConfig(storage_path=folder, verbose=0),
    )
    metrics = trainer.fit().metrics
    return {name: metrics[name] for name in ("size", "sum")}


def with_torch_trainer(folder):
    """Ray's TorchTrainer, which knows nothing of us: the process group tells hvd.init() of its world."""
    from ray.train.torch import TorchTrainer

    def loop():
        from horovod.rendezvous.detection import detect

        seen = all_reduced(launcher=detect().launcher)
        with tempfile.TemporaryDirectory() as path:
            train.report(seen, checkpoint=train.Checkpoint.from_directory(path))

    trainer = TorchTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=folder),
    )
    return trainer.fit().metrics


RUNS = {"train_v2": with_backend, "train_v1": with_ray_own, "torch_trainer": with_torch_trainer}

if __name__ == "__main__":
    name, address, folder = sys.argv[1:]
    ray.init(address=address, log_to_driver=False)
    print("\n" + json.dumps(RUNS[name](folder)))
