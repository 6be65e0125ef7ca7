# SPDX-License-Identifier: Apache-2.0
"""What there is to read: the row groups of one or many Parquet files, anywhere that fsspec reaches."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Sequence, Union

import pyarrow as pa
import pyarrow.dataset as ds

from horovod.data.dealing import Groups, Span

Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]

# Footers are read by this many threads: on a remote file system each costs a round trip or two.
_FOOTER_THREADS = 16


class RowGroups:
    """The row groups of a dataset, in the order of the names of their files.

    Args:
        paths: a file, a folder (its Hive partitions become columns), or several files.
        storage_options: what fsspec needs for the file system, e.g. {"anon": True}.
        columns: names of the columns to read; all by default.
    """

    def __init__(
        self,
        paths: Paths,
        storage_options: Optional[Dict[str, Any]] = None,
        columns: Optional[Sequence[str]] = None,
    ) -> None:
        self.name = str(paths) if isinstance(paths, (str, os.PathLike)) else f"{len(paths)} files"
        dataset = _open(paths, storage_options or {})
        fragments = sorted(dataset.get_fragments(), key=lambda fragment: fragment.path)
        if not fragments:
            raise FileNotFoundError(f"there are no Parquet files in {self.name}")
        self.schema: pa.Schema = dataset.schema
        unknown = [name for name in columns or () if name not in self.schema.names]
        if unknown:
            raise ValueError(
                f"{self.name} has no column {', '.join(unknown)}; it has {', '.join(self.schema.names)}"
            )
        self.columns = list(columns) if columns is not None else list(self.schema.names)
        with ThreadPoolExecutor(min(_FOOTER_THREADS, len(fragments))) as pool:
            found = list(pool.map(lambda fragment: list(fragment.row_groups), fragments))
        self._readable: List[Any] = [
            fragment.subset(row_group_ids=[group.id], schema=self.schema)
            for fragment, groups in zip(fragments, found)
            for group in groups
        ]
        self.groups = Groups(
            tuple(group.num_rows for groups in found for group in groups),
            tuple(group.total_byte_size for groups in found for group in groups),
        )

    def read(self, span: Span) -> pa.Table:
        """Some rows of a row group; the columns in the order in which they were asked for."""
        group, first, end = span
        table = self._readable[group].to_table(schema=self.schema, columns=self.columns, use_threads=False)
        return table.slice(first, end - first)


def _open(paths: Paths, storage_options: Dict[str, Any]) -> Any:
    import fsspec

    several = [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
    if not several:
        raise ValueError("no paths to read from")
    filesystem, _ = fsspec.core.url_to_fs(several[0], **storage_options)
    local = [filesystem._strip_protocol(path) for path in several]
    own = None if "file" in filesystem.protocol else filesystem  # Arrow reads local files by itself, faster
    try:
        return ds.dataset(
            local if len(local) > 1 else local[0], format="parquet", filesystem=own, partitioning="hive"
        )
    except pa.ArrowInvalid as error:
        raise ValueError(f"cannot read {several[0]} as Parquet: {error}") from error
