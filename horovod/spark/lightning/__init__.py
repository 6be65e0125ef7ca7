# SPDX-License-Identifier: Apache-2.0
"""A LightningModule trained on a Spark DataFrame: TorchEstimator and what it returns."""

from __future__ import annotations

from horovod.spark.lightning.estimator import TorchEstimator
from horovod.spark.lightning.model import TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
