# SPDX-License-Identifier: Apache-2.0
"""What an estimator tells its ranks, as far as it is the same for all frameworks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type

import numpy as np

from horovod.spark.common.datamodule import DataModule
from horovod.spark.common.filesystem_store import RemoteStore
from horovod.spark.common.metadata import Dataset

Batch = Dict[str, Any]


@dataclass(frozen=True)
class FitSpec:
    """The common parameters of a fit, and where its data is."""

    store: RemoteStore
    dataset: Dataset
    feature_cols: Tuple[str, ...]
    label_cols: Tuple[str, ...]
    sample_weight_col: Optional[str]
    label_shapes: Optional[Sequence[Sequence[int]]]
    batch_size: int
    val_batch_size: int
    epochs: int
    train_steps_per_epoch: Optional[int]
    validation_steps_per_epoch: Optional[int]
    shuffle: bool
    shuffle_buffer_size: Optional[int]
    random_seed: Optional[int]
    transformation_fn: Optional[Callable[[Any], Any]]
    transformation_removed_fields: Optional[Sequence[str]]
    train_reader_num_workers: int
    val_reader_num_workers: int
    inmemory_cache_all: bool
    use_gpu: bool
    verbose: int
    gradient_compression: Any
    backward_passes_per_step: int
    callbacks: List[Any]
    metrics: Any
    loss_weights: Any
    data_module: Type[DataModule]

    @property
    def columns(self) -> List[str]:
        """Names of the columns to read, each once."""
        weight = [self.sample_weight_col] if self.sample_weight_col else []
        return list(dict.fromkeys([*self.feature_cols, *self.label_cols, *weight]))

    @property
    def has_validation(self) -> bool:
        """Whether there are rows to validate on."""
        return self.dataset.val_rows > 0

    def steps(self, size: int) -> Tuple[int, int]:
        """Batches of an epoch and of a validation, on each of `size` ranks."""
        train = -(-(self.dataset.train_rows // size) // self.batch_size)
        val = -(-(self.dataset.val_rows // size) // self.val_batch_size)
        return self.train_steps_per_epoch or train, self.validation_steps_per_epoch or val

    def open_data(self, rank: int, size: int, form: Callable[[Batch], Any], **more: Any) -> DataModule:
        """The data of a rank, to be used as a context manager.

        Args:
            form: turns a dictionary of arrays into what the framework's loop wants.
            more: further keyword arguments for the data module.
        """
        train_steps, val_steps = self.steps(size)
        return self.data_module(
            train_dir=self.store.train_data_path,
            val_dir=self.store.val_data_path,
            num_train_epochs=self.epochs,
            has_val=self.has_validation,
            train_batch_size=self.batch_size,
            val_batch_size=self.val_batch_size,
            shuffle=self.shuffle,
            transform_fn=_Transform(self.transformation_fn, self.transformation_removed_fields, form),
            inmemory_cache_all=self.inmemory_cache_all,
            cur_shard=rank,
            shard_count=size,
            schema_fields=self.columns if self.transformation_fn is None else None,
            storage_options=self.store.store.storage_options,
            steps_per_epoch_train=train_steps,
            steps_per_epoch_val=val_steps,
            verbose=bool(self.verbose),
            seed=self.random_seed,
            window=self.shuffle_buffer_size,
            train_workers=self.train_reader_num_workers,
            val_workers=self.val_reader_num_workers,
            **more,
        )


class _Transform:
    """The user's function on a DataFrame, then the form that the framework wants."""

    def __init__(
        self,
        function: Optional[Callable[[Any], Any]],
        removed: Optional[Sequence[str]],
        form: Callable[[Batch], Any],
    ) -> None:
        self._function = function
        self._removed = set(removed or ())
        self._form = form

    def __call__(self, batch: Batch) -> Any:
        if self._function is not None:
            batch = from_pandas(self._function(to_pandas(batch)))
        return self._form({name: array for name, array in batch.items() if name not in self._removed})


def to_pandas(batch: Batch) -> Any:
    """A batch as a DataFrame; rows of arrays become cells."""
    import pandas as pd

    return pd.DataFrame({name: array if array.ndim == 1 else list(array) for name, array in batch.items()})


def from_pandas(frame: Any) -> Batch:
    """The opposite."""
    return {str(name): _stacked(frame[name].to_numpy()) for name in frame.columns}


def _stacked(values: np.ndarray) -> np.ndarray:
    if values.dtype == object and len(values) and isinstance(values[0], (np.ndarray, list, tuple)):
        return np.stack([np.asarray(value) for value in values])
    return values
