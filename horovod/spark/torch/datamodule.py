# SPDX-License-Identifier: Apache-2.0
"""Data of a TorchEstimator's rank: batches as dictionaries of tensors by column name."""

from __future__ import annotations

from itertools import islice
from typing import Any

from horovod.data.torch import TorchBatches
from horovod.spark.common.datamodule import ParquetDataModule

__all__ = ["NVTabularDataModule", "ParquetDataModule", "PetastormDataModule", "TorchParquetDataModule"]


class TorchParquetDataModule(ParquetDataModule):
    """Reads Parquet; every iteration over the data is an epoch."""

    def train_data(self) -> Any:
        if self.steps_per_epoch_train is None:
            return TorchBatches(self.train_reader)
        return _Limited(self.train_reader, self.steps_per_epoch_train)

    def val_data(self) -> Any:
        assert self.val_reader is not None
        if self.steps_per_epoch_val is None:
            return TorchBatches(self.val_reader)
        return _Limited(self.val_reader, self.steps_per_epoch_val)


class _Limited:
    """Epochs of another length than the data has: they go on where the last one stopped."""

    def __init__(self, reader: Any, steps: int) -> None:
        endless = TorchBatches(reader)
        self._batches = (batch for _ in iter(int, 1) for batch in endless)
        self._steps = steps

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Any:
        return islice(self._batches, self._steps)


# The names of the original's modules; all of them read with Arrow.
PetastormDataModule = TorchParquetDataModule
NVTabularDataModule = TorchParquetDataModule
