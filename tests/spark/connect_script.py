# SPDX-License-Identifier: Apache-2.0
"""Run by test_connect.py: jobs through Spark Connect. Prints a line of JSON for each."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

import horovod.spark
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator, TorchModel


def say(**facts):
    print("\n" + json.dumps(facts), flush=True)


def total(fail_on=-1):
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    print(f"hello from {hvd.rank()}", flush=True)
    if hvd.rank() == fail_on:
        raise ValueError("no luck today")
    return hvd.rank(), hvd.size(), hvd.allreduce(np.ones(2), op=hvd.Sum).tolist()


def wait_for_ever(folder):
    import horovod.numpy as hvd

    hvd.init()
    with open(os.path.join(folder, f"rank-{os.getpid()}"), "w"):
        pass
    time.sleep(600)


def pids(folder):
    return [int(name[5:]) for name in os.listdir(folder) if name.startswith("rank-")]


def proc(folder):
    return [f"/proc/{pid}" for pid in pids(folder)]


def until(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def interrupt_when_running(folder):
    if until(lambda: len(pids(folder)) == 2):
        os.kill(os.getpid(), signal.SIGINT)


def estimate(spark, folder):
    """An estimator from end to end."""
    import torch
    from pyspark.ml.linalg import Vectors

    rows = [(Vectors.dense([i / 40, 1.0]), i / 20) for i in range(40)]
    frame = spark.createDataFrame(rows, ["x", "y"])
    model = torch.nn.Linear(2, 1)
    estimator = TorchEstimator(
        num_proc=2,
        store=Store.create(folder),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.1),
        loss=torch.nn.functional.mse_loss,
        feature_cols=["x"],
        label_cols=["y"],
        partitions_per_process=1,
        verbose=0,
        epochs=2,
    )
    trained = estimator.fit(frame)
    for _ in range(2):
        trained.write().overwrite().save(os.path.join(folder, "model"))
    again = TorchModel.load(os.path.join(folder, "model"))
    return len(again.getHistory()), again.transform(frame).count()


def main(folder):
    from spark_here import connect_session

    with connect_session(2) as spark:
        say(job="total", result=horovod.spark.run(total, num_proc=2))
        say(job="default", result=len(horovod.spark.run(total)))
        try:
            horovod.spark.run(total, (1,), num_proc=2)
        except ValueError as error:
            say(job="raised", error=str(error), cause=str(error.__cause__))
        try:
            horovod.spark.run(total, num_proc=3, start_timeout=4)
        except Exception as error:
            say(job="few", error=f"{type(error).__name__}: {error}")
        threading.Thread(target=interrupt_when_running, args=(folder,), daemon=True).start()
        try:
            horovod.spark.run(wait_for_ever, (folder,), num_proc=2)
        except KeyboardInterrupt:
            say(job="cancelled", left=not until(lambda: not any(map(os.path.exists, proc(folder)))))
        try:
            horovod.spark.run_elastic(total, num_proc=2)
        except RuntimeError as error:
            say(job="elastic", error=str(error))
        say(job="estimator", result=estimate(spark, folder))


if __name__ == "__main__":
    main(sys.argv[1])
