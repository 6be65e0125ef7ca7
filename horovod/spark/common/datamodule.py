# SPDX-License-Identifier: Apache-2.0
"""How a rank of an estimator reads its data: a class that can be replaced (`data_module=...`)."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from horovod.data import ParquetReader


class DataModule:
    """Training and validation data of one rank, while the context is open.

    Args:
        train_dir: URL of the training data.
        val_dir: URL of the validation data.
        num_train_epochs: how often `train_data` is iterated over.
        has_val: whether there is validation data.
        train_batch_size: rows in a batch.
        val_batch_size: rows in a batch of validation.
        shuffle: mix the rows of the training data.
        transform_fn: is called with each batch, a dictionary of arrays, and returns what is yielded.
        inmemory_cache_all: keep the rank's part in memory.
        cur_shard: the rank.
        shard_count: the number of ranks.
        schema_fields: names of the columns to read.
        storage_options: what fsspec needs for the file system.
        steps_per_epoch_train: batches of an epoch.
        steps_per_epoch_val: batches of a validation.
        verbose: say what is done.
        kwargs: what a subclass wants beside that.
    """

    short_name = ""

    def __init__(
        self,
        train_dir: str,
        val_dir: str,
        num_train_epochs: int = 1,
        has_val: bool = True,
        train_batch_size: int = 32,
        val_batch_size: int = 32,
        shuffle: bool = True,
        transform_fn: Optional[Callable[[Any], Any]] = None,
        inmemory_cache_all: bool = False,
        cur_shard: int = 0,
        shard_count: int = 1,
        schema_fields: Optional[List[str]] = None,
        storage_options: Optional[Dict[str, Any]] = None,
        steps_per_epoch_train: int = 1,
        steps_per_epoch_val: int = 1,
        verbose: bool = True,
        **kwargs: Any,
    ) -> None:
        self.train_dir = train_dir
        self.val_dir = val_dir
        self.num_train_epochs = num_train_epochs
        self.has_val = has_val
        self.train_batch_size = train_batch_size
        self.val_batch_size = val_batch_size
        self.shuffle = shuffle
        self.transform_fn = transform_fn
        self.inmemory_cache_all = inmemory_cache_all
        self.cur_shard = cur_shard
        self.shard_count = shard_count
        self.schema_fields = schema_fields
        self.storage_options = storage_options
        self.steps_per_epoch_train = steps_per_epoch_train
        self.steps_per_epoch_val = steps_per_epoch_val
        self.verbose = verbose
        self.kwargs = kwargs

    def __enter__(self) -> DataModule:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def train_data(self) -> Any:
        """What the training loop of the framework iterates over."""
        raise NotImplementedError

    def val_data(self) -> Any:
        """The same for validation."""
        raise NotImplementedError


class ParquetDataModule(DataModule):
    """Reads with horovod.data.ParquetReader; frameworks say in which form they want the batches.

    Further keyword arguments: seed, window, train_workers, val_workers, prefetch.
    """

    short_name = "parquet"

    def __enter__(self) -> ParquetDataModule:
        self.train_reader = self._reader(self.train_dir, self.train_batch_size, self.shuffle, "train_workers")
        self.val_reader: Optional[ParquetReader] = None
        if self.has_val:
            self.val_reader = self._reader(self.val_dir, self.val_batch_size, False, "val_workers")
        return self

    def _reader(self, path: str, batch_size: int, shuffle: bool, workers: str) -> ParquetReader:
        more: Dict[str, Any] = {}
        if self.kwargs.get("window"):
            more["window"] = self.kwargs["window"]
        return ParquetReader(
            path,
            self.schema_fields,
            batch_size,
            shuffle=shuffle,
            seed=self.kwargs.get("seed") or 0,
            rank=self.cur_shard,
            size=self.shard_count,
            read_ahead=self.kwargs.get(workers, 2),
            transform=self.transform_fn,
            prefetch=self.kwargs.get("prefetch", 0),
            cache=self.inmemory_cache_all,
            storage_options=self.storage_options,
            **more,
        )
