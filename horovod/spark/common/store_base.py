# SPDX-License-Identifier: Apache-2.0
"""What every store offers."""

from __future__ import annotations

from typing import Any, Callable, List, Optional


class Store:
    """Paths are given and returned as URLs unless they are called localized."""

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> Store:
        """The store for a path: HDFS, DBFS (on Databricks), or whatever fsspec makes of it.

        Args:
            prefix_path: e.g. "/mnt/shared/run1", "hdfs://namenode:8020/run1", "s3://bucket/run1".
            args: for the store's class, as are the keyword arguments.
        """
        from horovod.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore

        prefix = str(prefix_path)
        if HDFSStore.matches(prefix):
            return HDFSStore(prefix, *args, **kwargs)
        if DBFSLocalStore.matches(prefix):
            return DBFSLocalStore(prefix, *args, **kwargs)
        return FilesystemStore(prefix, *args, **kwargs)

    def is_parquet_dataset(self, path: str) -> bool:
        """Whether there are Parquet files in a folder."""
        raise NotImplementedError

    def get_parquet_dataset(self, path: str) -> Any:
        """Arrow's ParquetDataset of a folder."""
        raise NotImplementedError

    def get_train_data_path(self, idx: Optional[int] = None) -> str:
        """Where the training data of a DataFrame is."""
        raise NotImplementedError

    def get_val_data_path(self, idx: Optional[int] = None) -> str:
        """Where its validation data is."""
        raise NotImplementedError

    def get_test_data_path(self, idx: Optional[int] = None) -> str:
        """Where its test data is."""
        raise NotImplementedError

    def get_data_metadata_path(self, path: str) -> str:
        """A file for what is known about the data of a folder."""
        raise NotImplementedError

    def saving_runs(self) -> bool:
        """Whether checkpoints and logs are kept."""
        raise NotImplementedError

    def get_runs_path(self) -> str:
        """The folder of all runs."""
        raise NotImplementedError

    def get_run_path(self, run_id: str) -> str:
        """The folder of a run."""
        raise NotImplementedError

    def get_checkpoint_path(self, run_id: str) -> Optional[str]:
        """The file of a run's checkpoint; None if runs are not saved."""
        raise NotImplementedError

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> List[str]:
        """The files of a run's folder that end like this, sorted."""
        raise NotImplementedError

    def get_logs_path(self, run_id: str) -> Optional[str]:
        """The folder of a run's logs; None if runs are not saved."""
        raise NotImplementedError

    def get_checkpoint_filename(self) -> str:
        """The name of the checkpoint in a run's folder."""
        raise NotImplementedError

    def get_logs_subdir(self) -> str:
        """The name of the logs' folder in a run's folder."""
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        raise NotImplementedError

    def read(self, path: str) -> bytes:
        """The contents of a file."""
        raise NotImplementedError

    def write(self, path: str, data: bytes) -> None:
        """Writes a file as a whole: readers see what was there before, or all of it."""
        raise NotImplementedError

    def write_text(self, path: str, text: str) -> None:
        """The same with text."""
        self.write(path, text.encode())

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], Any]:
        """A function that makes a context manager with a temporary folder for a run's output."""
        raise NotImplementedError

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """A function that copies the files of a local folder into the run's folder."""
        raise NotImplementedError

    def to_remote(self, run_id: str, dataset_idx: Optional[int]) -> Any:
        """What a worker needs to know of the store for one run."""
        raise NotImplementedError
