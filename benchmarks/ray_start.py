# SPDX-License-Identifier: Apache-2.0
"""Ray: from start() to the first allreduce; after a killed actor; when a node joins. Ray Train beside it.

    .venv-ray/bin/python benchmarks/ray_start.py            # on a small cluster of its own

"join" counts from the moment when Ray knows the node to the first step that its rank takes part in. The start
of empty actors is shown for comparison: it is Ray's own part, and grows with whatever else the machine does.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", PYTHONPATH=ROOT)
os.environ["RAY_worker_niceness"] = "0"  # by default 15: on a busy machine one would measure the others
NODE = {"object_store_memory": 10**8}


def steps_elastic(folder: str) -> int:
    """Trains until the file "enough" exists; leaves a line a step: time, size, process of the last rank."""
    import horovod.numpy as hvd
    from horovod.common.elastic import ObjectState, run_fn

    hvd.init()
    state = ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, step=0)

    def loop(state: Any) -> int:
        while not hvd.broadcast_object(os.path.exists(os.path.join(folder, "enough"))):
            write_step(folder, hvd)
            state.step += 1
            state.commit()
        return int(state.step)

    def reset() -> None:
        hvd.shutdown()
        hvd.init()

    return int(run_fn(loop, reset)(state))


def write_step(folder: str, hvd: Any) -> None:
    """One step of any job."""
    pids = hvd.allgather_object(os.getpid())
    if hvd.rank() == 0:
        with open(os.path.join(folder, "steps"), "a") as file:
            file.write(f"{time.time()} {hvd.size()} {pids[-1]}\n")
    time.sleep(0.02)


class Steps:
    """What a job that runs on a thread has written."""

    def __init__(self, job: Callable[[str], Any]) -> None:
        self.folder = tempfile.mkdtemp(prefix="ray-start-")
        self._thread = threading.Thread(target=job, args=(self.folder,), daemon=True)
        self._thread.start()

    def read(self) -> List[List[str]]:
        path = os.path.join(self.folder, "steps")
        if not os.path.exists(path):
            return []
        with open(path) as file:
            return [line.split() for line in file.read().splitlines() if line.count(" ") == 2]

    def first(self, size: int, after: float, limit: float = 120.0) -> float:
        """When the first step of so many ranks was done, after a time."""
        end = time.time() + limit
        while time.time() < end:
            for at, ranks, _ in self.read():
                if float(at) > after and int(ranks) == size:
                    return float(at)
            time.sleep(0.02)
        raise TimeoutError(f"no step of {size} ranks within {limit:g} s")

    def kill_last(self) -> float:
        """kill -9 for the process of the last rank; when that was."""
        os.kill(int(self.read()[-1][2]), signal.SIGKILL)
        return time.time()

    def finish(self) -> None:
        open(os.path.join(self.folder, "enough"), "w").close()
        self._thread.join(120)


def disturb(steps: Steps, cluster: Any, after_kill: int) -> Dict[str, float]:
    """Kills a rank of three, then lets a node join; seconds to the next step each time."""
    steps.first(3, 0)
    killed = steps.kill_last()
    found = {"killed": steps.first(after_kill, killed) - killed}
    steps.first(3, killed + 0.1)
    node = cluster.add_node(num_cpus=1, **NODE)
    there = time.time()
    found["join"] = steps.first(4, there) - there
    steps.finish()
    cluster.remove_node(node)
    return found


def executor_start(ranks: int) -> float:
    """Seconds from start() to the end of the first allreduce."""
    import horovod.ray

    def first() -> float:
        import numpy as np

        import horovod.numpy as hvd

        hvd.init()
        return float(hvd.allreduce(np.ones(1), op=hvd.Sum)[0])

    executor = horovod.ray.RayExecutor(num_workers=ranks)
    began = time.perf_counter()
    executor.start()
    assert executor.run(first) == [float(ranks)] * ranks
    took = time.perf_counter() - began
    executor.shutdown()
    return took


def elastic_job(folder: str) -> None:
    """Our elastic executor."""
    from horovod.ray import RayExecutor

    executor = RayExecutor(min_workers=1, max_workers=4)
    executor.start()
    executor.run(steps_elastic, (folder,))
    executor.shutdown()


def train_job(folder: str) -> None:
    """Ray Train with our backend, elastic in its own way."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    from horovod.ray import HorovodConfig

    def loop() -> None:
        import horovod.numpy as hvd

        hvd.init()
        while not hvd.broadcast_object(os.path.exists(os.path.join(folder, "enough"))):
            write_step(folder, hvd)

    DataParallelTrainer(
        loop,
        backend_config=HorovodConfig(),
        scaling_config=ScalingConfig(num_workers=(1, 4)),
        run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=-1)),
    ).fit()


def actors_start(count: int) -> float:
    """Seconds until so many empty actors answer, each in a process that is not there yet."""
    import ray

    class Empty:
        def answer(self) -> int:
            return 1

    actors: Any = ray.remote(num_cpus=1)(Empty)
    began = time.perf_counter()
    started = [actors.remote() for _ in range(count)]
    ray.get([actor.answer.remote() for actor in started])
    took = time.perf_counter() - began
    for actor in started:
        ray.kill(actor)
    return took


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--without-train", action="store_true", help="leave Ray Train out")
    args = parser.parse_args()
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False, **NODE}
    )
    second = cluster.add_node(num_cpus=1, **NODE)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        executor_start(4)  # uses up the processes that Ray has started ahead
        starts = [(executor_start(4), actors_start(4)) for _ in range(4)]
        print("4 ranks of a RayExecutor, start() to first allreduce, and 4 empty actors, in turns:")
        print(", ".join(f"{ours:.2f} s and {empty:.2f} s" for ours, empty in starts))
        cluster.remove_node(second)
        rows = {"elastic RayExecutor": disturb(Steps(elastic_job), cluster, 2)}
        if not args.without_train:
            rows["Ray Train"] = disturb(Steps(train_job), cluster, 3)
        print(f"{'':22} {'killed actor -> next step':>26} {'node there -> step with it':>27}")
        for name, row in rows.items():
            print(f"{name:22} {row['killed']:24.2f} s {row['join']:25.2f} s")
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
