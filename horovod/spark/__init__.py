# SPDX-License-Identifier: Apache-2.0
"""Horovod on Spark: ``horovod.spark.run(fn)`` runs ranks in Spark tasks.

Estimators are in horovod.spark.keras, horovod.spark.torch and horovod.spark.lightning.
"""

from __future__ import annotations

from horovod.spark.runner import run

__all__ = ["run"]
