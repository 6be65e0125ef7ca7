# SPDX-License-Identifier: Apache-2.0
"""Where estimators keep their data, checkpoints and logs: `Store.create("s3://bucket/folder")`.

    <prefix>/intermediate_train_data[.N]     Parquet made from a DataFrame
    <prefix>/intermediate_val_data[.N]
    <prefix>/intermediate_test_data[.N]
    <prefix>/runs/<run id>/checkpoint        the model, after each epoch
    <prefix>/runs/<run id>/logs              TensorBoard

A store is a path and what fsspec needs to reach it, so it can be sent to any process.
"""

from __future__ import annotations

from horovod.spark.common.dbfs_store import DBFSLocalStore
from horovod.spark.common.filesystem_store import AbstractFilesystemStore, FilesystemStore, LocalStore
from horovod.spark.common.hdfs_store import HDFSStore
from horovod.spark.common.store_base import Store

__all__ = [
    "AbstractFilesystemStore",
    "DBFSLocalStore",
    "FilesystemStore",
    "HDFSStore",
    "LocalStore",
    "Store",
]
