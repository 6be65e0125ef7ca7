# SPDX-License-Identifier: Apache-2.0
"""Data of a Lightning estimator's rank: as that of TorchEstimator."""

from __future__ import annotations

from horovod.spark.torch.datamodule import NVTabularDataModule, PetastormDataModule, TorchParquetDataModule

__all__ = ["NVTabularDataModule", "PetastormDataModule", "TorchParquetDataModule"]
