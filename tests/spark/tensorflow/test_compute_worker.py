# SPDX-License-Identifier: Apache-2.0
"""A tf.data service in Spark tasks, used from outside of Spark."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
from spark_here import SMALL
from world import worker_env

tf = pytest.importorskip("tensorflow")


def test_from_start_to_end(tmp_path):
    from horovod.tensorflow.data.compute_service import TfDataServiceConfig

    path = str(tmp_path / "service.json")
    words = [f"--conf {name}={shlex.quote(value)}" for name, value in SMALL.items()]
    env = worker_env({
        "PYSPARK_PYTHON": sys.executable, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "",
        "PYSPARK_SUBMIT_ARGS": " ".join(["--master local[2]", *words, "pyspark-shell"]),
    })  # fmt: skip
    command = [sys.executable, "-m", "horovod.spark.tensorflow.compute_worker", path, "--timeout", "120"]
    with open(tmp_path / "log", "w") as log:
        driver = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            _wait_for(path, driver)
            config = TfDataServiceConfig.read(path)
            assert (config.dispatchers, config.workers_per_dispatcher, config.timeout) == (1, 2, 120)
            dataset = tf.data.Dataset.range(20).map(lambda x: x * x).send_to_data_service(config, 0)
            assert sorted(int(x) for x in dataset) == [x * x for x in range(20)]
            config.compute_client().shutdown()
            assert driver.wait(120) == 0, (tmp_path / "log").read_text()[-3000:]
        finally:
            driver.kill()
            driver.wait()


def _wait_for(path, process):
    while not os.path.exists(path):
        with pytest.raises(subprocess.TimeoutExpired):  # that is: it has not ended
            process.wait(0.1)
