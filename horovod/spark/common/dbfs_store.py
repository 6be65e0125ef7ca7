# SPDX-License-Identifier: Apache-2.0
"""A store on Databricks' file system, through its local mount /dbfs."""

from __future__ import annotations

import os
from typing import Any

from horovod.spark.common.filesystem_store import AbstractFilesystemStore

_MOUNT = "/dbfs"


class DBFSLocalStore(AbstractFilesystemStore):
    """A store under /dbfs; takes "/dbfs/x", "dbfs:/x", "file:/dbfs/x" and "file:///dbfs/x".

    Args:
        prefix_path: the folder that holds everything.
        args: as for AbstractFilesystemStore, as are the keyword arguments.
    """

    _DEFAULT_CHECKPOINT = "checkpoint.tf"

    def __init__(self, prefix_path: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(prefix_path, *args, **kwargs)

    @classmethod
    def matches(cls, path: str) -> bool:
        """Whether we are on Databricks and the path is on DBFS."""
        return "DATABRICKS_RUNTIME_VERSION" in os.environ and cls.matches_dbfs(path)

    @staticmethod
    def matches_dbfs(path: str) -> bool:
        """Whether a path is one of DBFS."""
        return path.startswith("dbfs:/") or (_without_file(path) + "/").startswith(_MOUNT + "/")

    def get_full_path(self, path: str) -> str:
        """The path as a URL that Spark and fsspec both read."""
        if not self.matches_dbfs(path):
            raise ValueError(
                f"The provided path is not a DBFS path: {path}. Please provide a path starting with dbfs:/, "
                "/dbfs/, file:/dbfs/ or file:///dbfs/"
            )
        if path.startswith("dbfs:/"):
            return f"file://{_MOUNT}/{path[len('dbfs:/') :].lstrip('/')}"
        return "file://" + _without_file(path)


def _without_file(path: str) -> str:
    for prefix in ("file://", "file:"):
        if path.startswith(prefix):
            return path[len(prefix) :]
    return path
