# SPDX-License-Identifier: Apache-2.0
"""Data of a KerasEstimator's rank, as `fit` takes it."""

from __future__ import annotations

from typing import Any

from horovod.data import ParquetReader
from horovod.spark.common.datamodule import ParquetDataModule

__all__ = ["KerasParquetDataModule", "NVTabularDataModule", "ParquetDataModule", "PetastormDataModule"]


class KerasParquetDataModule(ParquetDataModule):
    """Endless batches: a tf.data.Dataset where Keras runs on TensorFlow, else a generator."""

    def train_data(self) -> Any:
        return self._endless(self.train_reader)

    def val_data(self) -> Any:
        assert self.val_reader is not None
        return self._endless(self.val_reader)

    def _endless(self, reader: ParquetReader) -> Any:
        if self.kwargs.get("backend") != "tensorflow":
            return reader.forever()
        from horovod.data.tensorflow import dataset_of

        data = dataset_of(reader).repeat()
        ahead = self.kwargs.get("tf_prefetch") or 0
        return data.prefetch(ahead) if ahead else data


# The names of the original's modules; all of them read with Arrow.
PetastormDataModule = KerasParquetDataModule
NVTabularDataModule = KerasParquetDataModule
