# SPDX-License-Identifier: Apache-2.0
"""Run by test_connect.py: jobs through Spark Connect. Prints a line of JSON for each."""

from __future__ import annotations

import json
import os
import sys

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
        say(job="estimator", result=estimate(spark, folder))


if __name__ == "__main__":
    main(sys.argv[1])
