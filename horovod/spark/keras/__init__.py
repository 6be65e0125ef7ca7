# SPDX-License-Identifier: Apache-2.0
"""A Keras model trained on a Spark DataFrame: KerasEstimator and what it returns."""

from __future__ import annotations

from horovod.spark.keras.estimator import KerasEstimator
from horovod.spark.keras.model import KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
