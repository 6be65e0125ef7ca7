# SPDX-License-Identifier: Apache-2.0
"""A store on any file system that fsspec knows: local, s3, gs, abfs, memory, ..."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import tempfile
import uuid
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional

from horovod.spark.common.store_base import Store

# Their files appear when they are complete; renaming one would be a copy.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "r2", "hf"}


class AbstractFilesystemStore(Store):
    """A store under a prefix of some file system.

    Args:
        prefix_path: the folder that holds everything.
        train_path: another place for the training data; also val_path, test_path and runs_path.
        save_runs: keep checkpoints and logs.
        storage_options: what fsspec needs for the file system.
        checkpoint_filename: the name of checkpoints.
    """

    _DEFAULT_CHECKPOINT = "checkpoint"

    def __init__(
        self,
        prefix_path: str,
        train_path: Optional[str] = None,
        val_path: Optional[str] = None,
        test_path: Optional[str] = None,
        runs_path: Optional[str] = None,
        save_runs: bool = True,
        storage_options: Optional[Dict[str, Any]] = None,
        checkpoint_filename: Optional[str] = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise TypeError(f"{type(self).__name__} has no parameter {', '.join(sorted(kwargs))}")
        self.storage_options = dict(storage_options or {})
        self.prefix_path = self.get_full_path(str(prefix_path))
        self._train = self._place(train_path, "intermediate_train_data")
        self._val = self._place(val_path, "intermediate_val_data")
        self._test = self._place(test_path, "intermediate_test_data")
        self._runs = self._place(runs_path, "runs")
        self._save_runs = save_runs
        self._checkpoint_filename = checkpoint_filename or self._DEFAULT_CHECKPOINT

    # ------------------------------------------------------------------------------------------ paths

    def get_full_path(self, path: str) -> str:
        """The path as a URL."""
        raise NotImplementedError

    def get_localized_path(self, path: str) -> str:
        """The path as the file system itself calls it: without the protocol."""
        return str(self.fs._strip_protocol(self.get_full_path(path)))

    def get_train_data_path(self, idx: Optional[int] = None) -> str:
        return _numbered(self._train, idx)

    def get_val_data_path(self, idx: Optional[int] = None) -> str:
        return _numbered(self._val, idx)

    def get_test_data_path(self, idx: Optional[int] = None) -> str:
        return _numbered(self._test, idx)

    def get_data_metadata_path(self, path: str) -> str:
        host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:16]
        return f"{self.get_localized_path(path).rstrip('/')}_{host}_cached_metadata.pkl"

    def saving_runs(self) -> bool:
        return self._save_runs

    def get_runs_path(self) -> str:
        return self._runs

    def get_run_path(self, run_id: str) -> str:
        return _under(self._runs, run_id)

    def get_checkpoint_path(self, run_id: str) -> Optional[str]:
        return _under(self.get_run_path(run_id), self._checkpoint_filename) if self._save_runs else None

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> List[str]:
        folder = self.get_localized_path(self.get_run_path(run_id))
        if not self.fs.exists(folder):
            return []
        names = [name.rpartition("/")[2] for name in self.fs.ls(folder, detail=False)]
        return sorted(_under(self.get_run_path(run_id), name) for name in names if name.endswith(suffix))

    def get_logs_path(self, run_id: str) -> Optional[str]:
        return _under(self.get_run_path(run_id), self.get_logs_subdir()) if self._save_runs else None

    def get_checkpoint_filename(self) -> str:
        return self._checkpoint_filename

    def get_logs_subdir(self) -> str:
        return "logs"

    # ------------------------------------------------------------------------------------------ files

    @property
    def fs(self) -> Any:
        """The file system, as fsspec has it."""
        import fsspec

        return fsspec.core.url_to_fs(self.prefix_path, **self.storage_options)[0]

    def exists(self, path: str) -> bool:
        return bool(self.fs.exists(self.get_localized_path(path)))

    def read(self, path: str) -> bytes:
        with self.fs.open(self.get_localized_path(path), "rb") as file:
            return bytes(file.read())

    def write(self, path: str, data: bytes) -> None:
        def fill(target: str) -> None:
            with self.fs.open(target, "wb") as file:
                file.write(data)

        self._write_whole(self.get_localized_path(path), fill)

    def copy(
        self,
        lpath: str,
        rpath: str,
        recursive: bool = False,
        callback: Optional[Callable[[str], None]] = None,
    ) -> None:
        """Copies a local file, or with `recursive` the contents of a local folder, into the store.

        Args:
            lpath: what to copy.
            rpath: where to.
            recursive: lpath is a folder.
            callback: is called with the path of each file after it was copied.
        """
        target = self.get_localized_path(rpath)
        files = {lpath: target}
        if recursive:
            found = [os.path.join(top, name) for top, _, names in os.walk(lpath) for name in names]
            files = {name: f"{target.rstrip('/')}/{os.path.relpath(name, lpath)}" for name in found}
        for source, destination in files.items():
            self._write_whole(destination, partial(self.fs.put_file, source))
            if callback is not None:
                callback(destination)

    def is_parquet_dataset(self, path: str) -> bool:
        try:
            return bool(self.get_parquet_dataset(path).fragments)
        except (OSError, ValueError):
            return False

    def get_parquet_dataset(self, path: str) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetDataset(self.get_localized_path(path), filesystem=self.fs)

    # -------------------------------------------------------------------------------- for the workers

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], Any]:
        return _temporary_folder

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        def sync(local_run_path: str) -> None:
            self.copy(local_run_path, self.get_run_path(run_id), recursive=True)

        return sync

    def to_remote(self, run_id: str, dataset_idx: Optional[int]) -> RemoteStore:
        return RemoteStore(
            store=self,
            run_id=run_id,
            train_data_path=self.get_train_data_path(dataset_idx),
            val_data_path=self.get_val_data_path(dataset_idx),
            test_data_path=self.get_test_data_path(dataset_idx),
            saving_runs=self.saving_runs(),
            runs_path=self.get_runs_path(),
            run_path=self.get_run_path(run_id),
            checkpoint_path=self.get_checkpoint_path(run_id),
            logs_path=self.get_logs_path(run_id),
            checkpoint_filename=self.get_checkpoint_filename(),
            logs_subdir=self.get_logs_subdir(),
        )

    def read_serialized_keras_model(
        self, ckpt_path: str, model: Any, custom_objects: Optional[Dict[str, Any]] = None
    ) -> bytes:
        """The bytes of a checkpoint, after it was seen to load as a model like the one given."""
        from horovod.spark.keras.flavour import Flavour
        from horovod.spark.keras.serialization import load_model

        data = self.read(ckpt_path)
        load_model(data, Flavour.of(model), custom_objects)
        return data

    # ---------------------------------------------------------------------------------------- private

    def _place(self, path: Optional[str], name: str) -> str:
        return _under(self.prefix_path, name) if path is None else self.get_full_path(path).rstrip("/")

    def _write_whole(self, path: str, fill: Callable[[str], None]) -> None:
        fs = self.fs
        fs.makedirs(fs._parent(path), exist_ok=True)
        protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        if protocols & _OBJECT_STORES:
            fill(path)
            return
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}"
        try:
            fill(temporary)
            self._replace(temporary, path)
        except BaseException:
            with contextlib.suppress(Exception):
                fs.rm_file(temporary)
            raise

    def _replace(self, source: str, target: str) -> None:
        self.fs.mv(source, target)


class FilesystemStore(AbstractFilesystemStore):
    """The store for everything that is not special: local paths, s3, gs, abfs, memory, ..."""

    def __init__(
        self,
        prefix_path: str,
        train_path: Optional[str] = None,
        val_path: Optional[str] = None,
        test_path: Optional[str] = None,
        runs_path: Optional[str] = None,
        save_runs: bool = True,
        storage_options: Optional[Dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            prefix_path, train_path, val_path, test_path, runs_path, save_runs, storage_options, **kwargs
        )

    def get_full_path(self, path: str) -> str:
        return path if "://" in path else "file://" + os.path.abspath(path)


class LocalStore(FilesystemStore):
    """The earlier name of FilesystemStore for local paths."""

    def __init__(self, prefix_path: str, *args: Any, **kwargs: Any) -> None:
        warnings.warn("LocalStore is deprecated, use FilesystemStore", DeprecationWarning, stacklevel=2)
        super().__init__(prefix_path, *args, **kwargs)


@dataclass(frozen=True)
class RemoteStore:
    """A store as a worker of one run sees it."""

    store: AbstractFilesystemStore
    run_id: str
    train_data_path: str
    val_data_path: str
    test_data_path: str
    saving_runs: bool
    runs_path: str
    run_path: str
    checkpoint_path: Optional[str]
    logs_path: Optional[str]
    checkpoint_filename: str
    logs_subdir: str

    def get_local_output_dir(self) -> Any:
        """A context manager with a temporary folder for the run's output."""
        return self.store.get_local_output_dir_fn(self.run_id)()

    def sync(self, local_run_path: str) -> None:
        """Copies the files of a local folder into the run's folder."""
        self.store.sync_fn(self.run_id)(local_run_path)


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="horovod-run-") as folder:
        yield folder


def _under(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _numbered(path: str, idx: Optional[int]) -> str:
    return path if idx is None else f"{path}.{idx}"
