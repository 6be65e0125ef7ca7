# SPDX-License-Identifier: Apache-2.0
"""What horovod.spark costs: run() beside a barrier job of Spark, an estimator's epoch beside a loop by hand.

    make bench-spark
    .venv-spark/bin/python benchmarks/spark_jobs.py [--turns 5] [--rows 200000] [--json out.json]

On a session that is running (local[2]), two ranks. The loop by hand reads the same Parquet files with
horovod.data and takes the same steps; both run in Spark tasks, in turns, and the fastest epoch of each
counts, as the machine is shared with whatever else it does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List

BATCH, WIDTH, FEATURES, RANKS = 256, 512, 32, 2
# At most so many seconds above Spark's own job, and so many times the epoch by hand.
RUN_GOAL_S, EPOCH_GOAL = 3.0, 1.1


def start_session() -> Any:
    """A session on this machine, with this Python and this tree for the tasks."""
    from pyspark.sql import SparkSession

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = root
    sys.path.insert(0, root)
    builder = SparkSession.builder.master(f"local[{RANKS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR")
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()


# ---------------------------------------------------------------------------------------------- run --


def barrier_job(context: Any) -> None:
    """Spark's own: tasks that start together and do nothing."""
    tasks = context.parallelize(range(RANKS), RANKS).barrier()
    tasks.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()


def horovod_job(context: Any) -> None:
    """Ours: ranks that do nothing."""
    import horovod.spark

    horovod.spark.run(lambda: None, num_proc=RANKS, verbose=0)


def seconds(job: Callable[[Any], None], context: Any) -> float:
    """How long a job takes."""
    start = time.perf_counter()
    job(context)
    return time.perf_counter() - start


def compare_run(context: Any, turns: int) -> Dict[str, float]:
    """Medians, after a job of each that is not counted."""
    times: Dict[str, List[float]] = {"spark": [], "horovod": []}
    for turn in range(turns + 1):
        for name, job in (("spark", barrier_job), ("horovod", horovod_job)):
            took = seconds(job, context)
            if turn:
                times[name].append(took)
    return {name: statistics.median(values) for name, values in times.items()}


# -------------------------------------------------------------------------------------------- epochs --


def make_model() -> Any:
    """The network that both train."""
    import torch

    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(FEATURES, WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.ReLU(),
    ]
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 10))


def by_hand(folder: str, epochs: int) -> List[float]:
    """The loop as one writes it; the time of each epoch on this rank."""
    import torch

    import horovod.torch as hvd
    from horovod.data import ParquetReader

    hvd.init()
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    reader = ParquetReader(folder, ["x", "y"], BATCH).to_torch()
    times = []
    for _ in range(epochs):
        start, total = time.perf_counter(), torch.zeros(())
        for batch in reader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])
            torch.autograd.backward(loss)
            optimizer.step()
            total += loss.detach()
        hvd.allreduce(total)
        times.append(time.perf_counter() - start)
    return times


def note_time(epoch: int, logs: Dict[str, Any], model: Any, optimizer: Any) -> None:
    """A callback of the estimator: when the epoch was over."""
    logs["at"] = time.perf_counter()


def by_estimator(store: Any, epochs: int) -> List[float]:
    """The times of the epochs, from the end of one to the end of the next: with its checkpoint, too."""
    import torch

    from horovod.spark.torch import TorchEstimator

    model = make_model()
    estimator = TorchEstimator(
        num_proc=RANKS,
        store=store,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.01),
        loss=torch.nn.functional.cross_entropy,
        feature_cols=["x"],
        label_cols=["y"],
        batch_size=BATCH,
        epochs=epochs + 1,
        callbacks=[note_time],
        run_id=f"run-{time.time()}",
        verbose=0,
    )
    ends = [logs["at"] for logs in estimator.fit_on_parquet().getHistory()]
    return [after - before for before, after in zip(ends, ends[1:])]


def compare_epochs(rows: int, turns: int) -> Dict[str, float]:
    """The fastest epoch of each."""
    import horovod.spark
    from benchmarks.data_reader import write_files
    from horovod.spark.common.store import Store

    times: Dict[str, List[float]] = {"by hand": [], "estimator": []}
    with tempfile.TemporaryDirectory(prefix="horovod-bench-") as folder:
        store: Any = Store.create(folder)
        path = store.get_localized_path(store.get_train_data_path())
        os.makedirs(path)
        write_files(path, rows)
        for _ in range(turns):
            times["by hand"] += horovod.spark.run(by_hand, (path, 4), num_proc=RANKS, verbose=0)[0][1:]
            times["estimator"] += by_estimator(store, 3)
    return {name: min(values) for name, values in times.items()}


def verdict(reached: bool) -> str:
    """In words."""
    return "reached" if reached else "MISSED"


def main() -> None:
    """Prints both comparisons and whether they reach the goals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--json", help="where to write the times")
    args = parser.parse_args()
    spark = start_session()
    run = compare_run(spark.sparkContext, args.turns)
    epoch = compare_epochs(args.rows, max(1, args.turns // 2))
    spark.stop()
    above, ratio = run["horovod"] - run["spark"], epoch["estimator"] / epoch["by hand"]
    print(f"an empty function: horovod.spark.run {run['horovod']:.2f} s, barrier job {run['spark']:.2f} s")
    print(f"    {above:.2f} s above it (goal: at most {RUN_GOAL_S:g} s): {verdict(above <= RUN_GOAL_S)}")
    print(f"an epoch: estimator {epoch['estimator']:.2f} s, loop by hand {epoch['by hand']:.2f} s")
    print(f"    {ratio:.2f} times as long (goal: at most {EPOCH_GOAL:g}): {verdict(ratio <= EPOCH_GOAL)}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"run_s": run, "epoch_s": epoch}, file, indent=1)


if __name__ == "__main__":
    main()
