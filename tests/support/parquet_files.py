# SPDX-License-Identifier: Apache-2.0
"""Small Parquet datasets for tests."""

from __future__ import annotations

import uuid

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write(url, groups, files=2):
    """Row groups of these sizes over some files. Row i has id i, x = (i, -i) and the text "i"."""
    filesystem, folder = fsspec.core.url_to_fs(url)
    filesystem.makedirs(folder, exist_ok=True)
    schema = pa.schema([("id", pa.int64()), ("x", pa.list_(pa.float32())), ("text", pa.string())])
    writers = [
        pq.ParquetWriter(filesystem.open(f"{folder}/part-{number}.parquet", "wb"), schema)
        for number in range(files)
    ]
    first = 0
    for number, rows in enumerate(groups):
        ids = np.arange(first, first + rows)
        first += rows
        x = pa.array([[i, -i] for i in ids], pa.list_(pa.float32()))
        table = pa.table({"id": ids, "x": x, "text": [str(i) for i in ids]}, schema=schema)
        writers[number * files // len(groups)].write_table(table, row_group_size=max(rows, 1))
    for writer in writers:
        writer.close()
        writer.file_handle.close() if writer.file_handle else None
    return url


def in_memory(groups, files=2):
    """The same in fsspec's memory file system."""
    return write(f"memory://{uuid.uuid4().hex}", groups, files)
