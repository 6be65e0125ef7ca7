# SPDX-License-Identifier: Apache-2.0
"""Data for training on several ranks: Parquet files as batches, and base classes for loaders of your own.

`ParquetReader` needs pyarrow, fsspec and NumPy (``pip install horovod[data]``), which are imported when it
is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horovod.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader

if TYPE_CHECKING:
    from horovod.data.reader import ParquetReader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader", "ParquetReader"]


def __getattr__(name: str) -> Any:
    if name == "ParquetReader":
        from horovod.data.reader import ParquetReader

        return ParquetReader
    raise AttributeError(f"module 'horovod.data' has no attribute {name!r}")
