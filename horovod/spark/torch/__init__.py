# SPDX-License-Identifier: Apache-2.0
"""A PyTorch model trained on a Spark DataFrame: TorchEstimator and what it returns."""

from __future__ import annotations

from horovod.spark.torch.estimator import TorchEstimator
from horovod.spark.torch.model import TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
