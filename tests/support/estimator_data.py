# SPDX-License-Identifier: Apache-2.0
"""Rows for the estimators' tests, and backends that start ranks on this machine."""

from __future__ import annotations

import os

import numpy as np
from world import shared_world, worker_env

ROWS = 200
COLUMNS = ["features", "y", "positive", "weight", "held_out"]


def rows(seed=0):
    """(features (a, b), y = 2a - 3b + 1, whether it is positive, weight, whether it is held out)."""
    from pyspark.ml.linalg import Vectors

    x = np.random.default_rng(seed).standard_normal((ROWS, 2))
    y = 2 * x[:, 0] - 3 * x[:, 1] + 1
    return [
        (Vectors.dense(x[i]), float(y[i]), int(y[i] > 0), 1.0 + i % 2, float(i % 5 == 0)) for i in range(ROWS)
    ]


def two_ranks():
    """Two processes."""
    from horovod.spark.common.backend import LocalBackend

    return LocalBackend(2, env=worker_env())


def kept_ranks():
    """Two processes that stay from fit to fit: they import TensorFlow once."""
    from horovod.spark.common.backend import Backend

    class Kept(Backend):
        def run(self, fn, args=(), kwargs=None, env=None):
            def call():
                os.environ.update(env or {})
                return fn(*args, **(kwargs or {}))

            return shared_world(2).run(call, timeout=600)

        def num_processes(self):
            return 2

    return Kept()


def one_rank():
    """This process: for tests that are not about ranks."""
    from horovod.spark.common.backend import Backend

    class InThisProcess(Backend):
        def run(self, fn, args=(), kwargs=None, env=None):
            from horovod.common.basics import basics

            try:
                return [fn(*args, **(kwargs or {}))]
            finally:
                basics.shutdown()

        def num_processes(self):
            return 1

    return InThisProcess()
