# SPDX-License-Identifier: Apache-2.0
"""What an estimator knows about its data: rows, and type and shape of each column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import numpy as np

from horovod.data import ParquetReader
from horovod.spark.common.filesystem_store import AbstractFilesystemStore

# The kinds of columns a DataFrame can have, as far as they matter for what comes out of a model.
SCALAR, ARRAY, VECTOR = "scalar", "array", "vector"


@dataclass(frozen=True)
class Column:
    """One column: the type and shape of a row as the reader gives it, and what it was in the DataFrame."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    kind: str

    @property
    def size(self) -> int:
        """Numbers in a row."""
        return int(np.prod(self.shape, dtype=np.int64))


Columns = Dict[str, Column]


@dataclass(frozen=True)
class Dataset:
    """The data of a fit, in the store."""

    train_rows: int
    val_rows: int
    columns: Columns
    idx: Optional[int] = None


def read_metadata(
    store: AbstractFilesystemStore, idx: Optional[int], has_validation: bool, kinds: Dict[str, str]
) -> Dataset:
    """Looks at the files in the store.

    Args:
        kinds: of the columns in the DataFrame, where it is known.
    """
    train = _open(store, store.get_train_data_path(idx), "training")
    val_rows = _open(store, store.get_val_data_path(idx), "validation").rows if has_validation else 0
    return Dataset(train.rows, val_rows, _columns(train, kinds), idx)


def _open(store: AbstractFilesystemStore, path: str, what: str) -> ParquetReader:
    try:
        reader = ParquetReader(path, storage_options=store.storage_options, rank=0, size=1)
        rows = reader.rows
    except FileNotFoundError:
        rows = 0
    if rows == 0:
        raise ValueError(f"No rows found in {what} dataset: {path}")
    return reader


def _columns(reader: ParquetReader, kinds: Dict[str, str]) -> Columns:
    found = {}
    for name, array in reader.example().items():
        if array.dtype == object and isinstance(array[0], np.ndarray):  # a list of its own length
            array = np.stack(list(array))
        kind = kinds.get(name) or _kind(reader.schema.field(name).type, array)
        found[name] = Column(name, array.dtype.name, tuple(array.shape[1:]), kind)
    return found


def _kind(arrow_type: Any, array: np.ndarray) -> str:
    import pyarrow as pa

    if pa.types.is_struct(arrow_type):
        return VECTOR
    return SCALAR if array.ndim == 1 else ARRAY
