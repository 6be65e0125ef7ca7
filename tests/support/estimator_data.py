# SPDX-License-Identifier: Apache-2.0
"""Rows for the estimators' tests, and a backend that starts ranks on this machine."""

from __future__ import annotations

import numpy as np
from world import worker_env

ROWS = 200


def rows(seed=0):
    """(features (a, b), y = 2a - 3b + 1, whether it is positive, weight, whether it is held out)."""
    from pyspark.ml.linalg import Vectors

    x = np.random.default_rng(seed).standard_normal((ROWS, 2))
    y = 2 * x[:, 0] - 3 * x[:, 1] + 1
    return [
        (Vectors.dense(x[i]), float(y[i]), int(y[i] > 0), 1.0 + i % 2, float(i % 5 == 0)) for i in range(ROWS)
    ]


def backend(num_proc=2):
    from horovod.spark.common.backend import LocalBackend

    return LocalBackend(num_proc, env=worker_env())
