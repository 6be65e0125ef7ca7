# SPDX-License-Identifier: Apache-2.0
"""Stores by URL: their layout, their files, and what workers get of them."""

from __future__ import annotations

import os
import pickle
import uuid

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from parquet_files import write

from horovod.spark.common.store import (
    DBFSLocalStore,
    FilesystemStore,
    HDFSStore,
    LocalStore,
    Store,
)


class FakeHadoop(LocalFileSystem):
    """HDFS as far as a store uses it: paths without protocol, and no renaming over a file."""

    protocol = "hdfs"
    root = ""

    def __init__(self, host="default", port=0, **options):
        super().__init__()
        self.connected_to = (host, port, options)

    @classmethod
    def _strip_protocol(cls, path):
        return path if path.startswith(cls.root) else cls.root + path

    def put_file(self, lpath, rpath, **kwargs):
        with open(lpath, "rb") as source, self.open(rpath, "wb") as target:
            target.write(source.read())

    def mv(self, path1, path2, **kwargs):
        assert not os.path.exists(path2), "HDFS does not rename over a file"
        super().mv(path1, path2, **kwargs)


@pytest.fixture
def hadoop(tmp_path):
    FakeHadoop.root = str(tmp_path)
    fsspec.register_implementation("hdfs", FakeHadoop, clobber=True)
    yield
    fsspec.register_implementation("hdfs", "fsspec.implementations.arrow.HadoopFileSystem", clobber=True)


def stores(tmp_path):
    return {
        "local": Store.create(str(tmp_path / "s")),
        "memory": Store.create(f"memory://{uuid.uuid4().hex}"),
        "hdfs": Store.create("hdfs://namenode:8020/s"),
    }


@pytest.mark.parametrize(
    ("path", "databricks", "kind", "full"),
    [
        ("/a/b", False, FilesystemStore, "file:///a/b"),
        ("file:///a/b/", False, FilesystemStore, "file:///a/b/"),
        ("s3://bucket/b", False, FilesystemStore, "s3://bucket/b"),
        ("hdfs://namenode:8020/b", False, HDFSStore, "hdfs://namenode:8020/b"),
        ("hdfs:///b", True, HDFSStore, "hdfs:///b"),
        ("/dbfs/b", False, FilesystemStore, "file:///dbfs/b"),
        ("/dbfs/b", True, DBFSLocalStore, "file:///dbfs/b"),
        ("dbfs:/b", True, DBFSLocalStore, "file:///dbfs/b"),
        ("file:/dbfs/b", True, DBFSLocalStore, "file:///dbfs/b"),
        ("file:///dbfs/b", True, DBFSLocalStore, "file:///dbfs/b"),
        ("/b", True, FilesystemStore, "file:///b"),
    ],
)
def test_create(path, databricks, kind, full, monkeypatch):
    if databricks:
        monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "16")
    store = Store.create(path)
    assert type(store) is kind and store.prefix_path == full


def test_layout(tmp_path):
    store = Store.create(str(tmp_path))
    prefix = f"file://{tmp_path}"
    assert store.get_train_data_path() == f"{prefix}/intermediate_train_data"
    assert store.get_train_data_path(3) == f"{prefix}/intermediate_train_data.3"
    assert store.get_val_data_path(0) == f"{prefix}/intermediate_val_data.0"
    assert store.get_test_data_path() == f"{prefix}/intermediate_test_data"
    assert store.get_runs_path() == f"{prefix}/runs"
    assert store.get_run_path("r1") == f"{prefix}/runs/r1"
    assert store.get_checkpoint_path("r1") == f"{prefix}/runs/r1/checkpoint"
    assert store.get_logs_path("r1") == f"{prefix}/runs/r1/logs"
    assert store.get_checkpoint_filename() == "checkpoint" and store.get_logs_subdir() == "logs"
    metadata = store.get_data_metadata_path(store.get_train_data_path())
    assert metadata.startswith(f"{tmp_path}/intermediate_train_data_")
    assert metadata.endswith("_cached_metadata.pkl")
    assert store.get_localized_path(store.get_run_path("r1")) == f"{tmp_path}/runs/r1"


def test_other_places(tmp_path):
    store = FilesystemStore(
        str(tmp_path), train_path="/t", val_path="memory://v", runs_path="/r", save_runs=False
    )
    assert store.get_train_data_path(1) == "file:///t.1" and store.get_val_data_path() == "memory://v"
    assert store.get_run_path("x") == "file:///r/x" and not store.saving_runs()
    assert store.get_checkpoint_path("x") is None and store.get_logs_path("x") is None
    with pytest.raises(TypeError, match="no parameter trian_path"):
        FilesystemStore(str(tmp_path), trian_path="/t")
    with pytest.warns(DeprecationWarning, match="use FilesystemStore"):
        assert LocalStore(str(tmp_path)).prefix_path == f"file://{tmp_path}"


@pytest.mark.parametrize("kind", ["local", "memory", "hdfs"])
def test_files(kind, tmp_path, hadoop):
    store = pickle.loads(pickle.dumps(stores(tmp_path)[kind]))
    path = store.get_checkpoint_path("r1")
    assert not store.exists(path)
    for text in ("one", "two"):
        store.write_text(path, text)
        assert store.exists(path) and store.read(path) == text.encode()
    remote = pickle.loads(pickle.dumps(store.to_remote("r1", 2)))
    assert remote.checkpoint_path == path and remote.train_data_path == store.get_train_data_path(2)
    with remote.get_local_output_dir() as folder:
        os.makedirs(os.path.join(folder, "logs", "deep"))
        for name in ("a.ckpt", "b.ckpt", "logs/deep/events"):
            with open(os.path.join(folder, name), "w") as file:
                file.write(name)
        remote.sync(folder)
        remote.sync(folder)
    assert not os.path.exists(folder)
    assert store.read(store.get_logs_path("r1") + "/deep/events") == b"logs/deep/events"
    assert store.get_checkpoints("r1") == [f"{store.get_run_path('r1')}/{name}.ckpt" for name in "ab"]
    assert store.get_checkpoints("none") == []
    folder = store.get_localized_path(store.get_run_path("r1"))
    assert len(store.fs.ls(folder)) == 4, "no temporary files are left"


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_write_that_fails_changes_nothing(kind, tmp_path, hadoop):
    store = stores(tmp_path)[kind]
    path = store.get_checkpoint_path("r1")
    store.write(path, b"good")
    with pytest.raises(TypeError):
        store.write(path, 3)
    assert store.read(path) == b"good"
    assert len(store.fs.ls(store.get_localized_path(store.get_run_path("r1")))) == 1


def test_parquet(tmp_path):
    store = Store.create(str(tmp_path))
    assert not store.is_parquet_dataset(store.get_train_data_path())
    os.makedirs(tmp_path / "intermediate_val_data")
    assert not store.is_parquet_dataset(store.get_val_data_path())
    write(store.get_train_data_path(), [5, 5])
    assert store.is_parquet_dataset(store.get_train_data_path())
    assert store.get_parquet_dataset(store.get_train_data_path()).read().num_rows == 10


def test_hdfs_addresses(hadoop):
    store = HDFSStore("hdfs://namenode:8020/p", user="me")
    assert store.fs.connected_to == ("namenode", 8020, {"user": "me"})
    assert store.get_full_path("/q") == "hdfs://namenode:8020/q" and store.get_localized_path("/q") == "/q"
    default = HDFSStore("/p")
    assert default.fs.connected_to == ("default", 0, {}) and default.prefix_path == "hdfs:///p"
    for wrong in ("s3://bucket/p", "hdfs://other:8020/p"):
        with pytest.raises(ValueError, match="Mismatched HDFS namespace for URL: " + wrong):
            store.get_full_path(wrong)
    with pytest.raises(ValueError, match="Failed to parse path from URL: hdfs://namenode:8020"):
        HDFSStore("hdfs://namenode:8020")
    with pytest.raises(ValueError, match="Arrow has no other"):
        HDFSStore("/p", driver="libhdfs3")


def test_dbfs_paths():
    store = DBFSLocalStore("dbfs:/ml")
    assert store.get_localized_path(store.get_run_path("r")) == "/dbfs/ml/runs/r"
    assert store.get_checkpoint_filename() == "checkpoint.tf"
    for wrong in ("/ml", "s3://bucket", "file:///ml", "/dbfs2/x"):
        with pytest.raises(ValueError, match="The provided path is not a DBFS path: " + wrong):
            DBFSLocalStore(wrong)
