# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of Spark jobs and of the reader run. Nothing here looks at how long anything took."""

from __future__ import annotations

from benchmarks import data_reader, spark_jobs


def test_jobs_and_epochs(spark):
    assert set(spark_jobs.compare_run(spark.sparkContext, 1)) == {"spark", "horovod"}
    epochs = spark_jobs.compare_epochs(4096, 1)
    assert set(epochs) == {"by hand", "estimator"} and min(epochs.values()) > 0


def test_the_reader(tmp_path):
    data_reader.write_files(str(tmp_path), 8000)
    found = data_reader.measure("horovod", str(tmp_path), True)
    assert found["rows"] == 8000 * data_reader.EPOCHS and found["cpu_s"] > 0
