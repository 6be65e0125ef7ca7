# SPDX-License-Identifier: Apache-2.0
"""Horovod on Spark: ``horovod.spark.run(fn)`` and ``run_elastic(fn)`` run ranks in Spark tasks.

Estimators are in horovod.spark.keras, horovod.spark.torch and horovod.spark.lightning.
"""

from __future__ import annotations

from horovod.spark.elastic_runner import run_elastic
from horovod.spark.runner import run

__all__ = ["run", "run_elastic"]
