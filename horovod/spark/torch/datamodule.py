# SPDX-License-Identifier: Apache-2.0
"""Data of a TorchEstimator's rank: batches as dictionaries of tensors by column name."""

from __future__ import annotations

from typing import Any, Iterator

from horovod.data import ParquetReader
from horovod.data.torch import TorchBatches
from horovod.spark.common.datamodule import ParquetDataModule

__all__ = ["NVTabularDataModule", "ParquetDataModule", "PetastormDataModule", "TorchParquetDataModule"]


class TorchParquetDataModule(ParquetDataModule):
    """Reads Parquet; every iteration over the data is an epoch."""

    def train_data(self) -> Any:
        return _Epochs(self.train_reader, self.steps_per_epoch_train)

    def val_data(self) -> Any:
        assert self.val_reader is not None
        return _Epochs(self.val_reader, self.steps_per_epoch_val)


class _Epochs:
    """Epochs of a number of steps: if it is not that of the data, one goes on where the last one stopped."""

    def __init__(self, reader: ParquetReader, steps: int) -> None:
        self._reader = reader
        self._steps = steps
        self._batches: Iterator[Any] = iter(())

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self._steps):
            batch = next(self._batches, None)
            if batch is None:
                self._batches = iter(TorchBatches(self._reader))
                batch = next(self._batches)
            yield batch


# The names of the original's modules; all of them read with Arrow.
PetastormDataModule = TorchParquetDataModule
NVTabularDataModule = TorchParquetDataModule
