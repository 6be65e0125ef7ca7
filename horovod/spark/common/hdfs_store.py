# SPDX-License-Identifier: Apache-2.0
"""A store on HDFS, reached through libhdfs (pyarrow.fs.HadoopFileSystem)."""

from __future__ import annotations

from typing import Any, Dict, Optional
from urllib.parse import urlsplit

from horovod.spark.common.filesystem_store import AbstractFilesystemStore

_SCHEME = "hdfs"


class HDFSStore(AbstractFilesystemStore):
    """A store on HDFS.

    Args:
        prefix_path: "hdfs://namenode:8020/path", "hdfs:///path" or "/path" on the default name node.
        host: the name node, if it is not in the path; "default" takes that of core-site.xml.
        port: its port.
        user: who to connect as.
        kerb_ticket: path of a Kerberos ticket cache.
        driver: accepted for compatibility; libhdfs is the only one.
        extra_conf: settings of Hadoop's client.
        kwargs: as for AbstractFilesystemStore.
    """

    def __init__(
        self,
        prefix_path: str,
        host: Optional[str] = None,
        port: Optional[int] = None,
        user: Optional[str] = None,
        kerb_ticket: Optional[str] = None,
        driver: str = "libhdfs",
        extra_conf: Optional[Dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        if driver != "libhdfs":
            raise ValueError(f"driver must be 'libhdfs', not {driver!r}: Arrow has no other")
        self._named = _authority(prefix_path)
        url = urlsplit(prefix_path)
        self._host = host or url.hostname or "default"
        self._port = int(port if port is not None else (url.port or 0))
        options = {"user": user, "kerb_ticket": kerb_ticket, "extra_conf": extra_conf}
        given = dict(kwargs.pop("storage_options", None) or {})
        given.update({name: value for name, value in options.items() if value is not None})
        super().__init__(prefix_path, storage_options=given, **kwargs)

    @classmethod
    def matches(cls, path: str) -> bool:
        """Whether a path says that it is on HDFS."""
        return path.startswith(f"{_SCHEME}://")

    def get_full_path(self, path: str) -> str:
        """The path as a URL. Raises ValueError for one of another file system or without a path."""
        url = urlsplit(path)
        if url.scheme not in ("", _SCHEME) or (url.netloc and url.netloc != self._named):
            raise ValueError(f"Mismatched HDFS namespace for URL: {path}")
        if not url.path:
            raise ValueError(f"Failed to parse path from URL: {path}")
        return f"{_SCHEME}://{self._named}{url.path}"

    def get_localized_path(self, path: str) -> str:
        return urlsplit(self.get_full_path(path)).path

    @property
    def fs(self) -> Any:
        import fsspec

        return fsspec.filesystem(_SCHEME, host=self._host, port=self._port, **self.storage_options)

    def _replace(self, source: str, target: str) -> None:
        fs = self.fs
        if fs.exists(target):  # HDFS does not rename over a file
            fs.rm_file(target)
        fs.mv(source, target)


def _authority(path: str) -> str:
    """What stands between hdfs:// and the path, e.g. "namenode:8020"."""
    return urlsplit(path).netloc
