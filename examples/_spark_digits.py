# SPDX-License-Identifier: Apache-2.0
"""A Spark session and the digits as DataFrames, for the examples with estimators."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Tuple

import numpy as np
from _data import load_digits


def options(description: str) -> argparse.ArgumentParser:
    """The options that they share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--master", default="local[2]", help="of Spark; an empty one is left to spark-submit")
    parser.add_argument("--num-proc", type=int, default=2, help="ranks")
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--work-dir", default="/tmp/horovod-spark", help="a path or URL that all ranks reach")
    parser.add_argument("--data-dir", help="folder with the MNIST files")
    return parser


def start_spark(master: str) -> Any:
    """A session whose tasks run this Python."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("horovod").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.execution.arrow.pyspark.enabled", "true")
    return (builder.master(master) if master else builder).getOrCreate()


def digits_frames(spark: Any, data_dir: str) -> Tuple[Any, Any]:
    """DataFrames to train and to test with: `features`, a vector of pixels, and `label`, 0 to 9."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql.functions import col

    digits = load_digits(data_dir)

    def frame(x: np.ndarray, y: np.ndarray) -> Any:
        import pandas as pd

        rows = pd.DataFrame({"pixels": list(x.reshape(len(x), -1).astype(float)), "label": y})
        table = spark.createDataFrame(rows)
        return table.select(array_to_vector(col("pixels")).alias("features"), "label")

    return frame(digits.train_x, digits.train_y), frame(digits.test_x, digits.test_y)


def accuracy(predicted: Any) -> float:
    """The part of the rows where the highest of `label__output` is that of the label."""
    rows = predicted.select("label", "label__output").collect()
    return sum(int(np.argmax(row["label__output"])) == row["label"] for row in rows) / len(rows)
