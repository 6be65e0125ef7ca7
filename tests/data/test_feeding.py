# SPDX-License-Identifier: Apache-2.0
"""Batches as the frameworks want them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from parquet_files import write
from world import run_world, worker_env

from horovod.data import ParquetReader


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(str(tmp_path_factory.mktemp("data") / "set"), [40, 24])


def test_torch_shares_memory(folder):
    torch = pytest.importorskip("torch")
    from horovod.data.torch import tensor_of

    reader = ParquetReader(folder, batch_size=16)
    arrays = next(iter(reader))
    assert tensor_of(arrays["x"]).data_ptr() == arrays["x"].ctypes.data
    batch = next(iter(reader.to_torch()))
    assert torch.equal(batch["x"], torch.from_numpy(arrays["x"])) and batch["id"].dtype == torch.int64
    assert batch["text"].tolist() == arrays["text"].tolist()
    # Memory of Arrow, which must not be written to, is copied.
    plain = next(iter(ParquetReader(folder, ["id"], batch_size=64, shuffle=False).to_torch("cpu")))
    plain["id"] += 1
    assert plain["id"][0] == 1


def test_torch_data_loader(folder):
    torch = pytest.importorskip("torch")
    data = ParquetReader(folder, ["x", "id"], batch_size=16).to_torch()
    loader = torch.utils.data.DataLoader(data, batch_size=None)
    assert len(loader) == len(list(loader)) == 4
    with pytest.raises(RuntimeError, match="use num_workers=0"):
        next(iter(torch.utils.data.DataLoader(data, batch_size=None, num_workers=1)))


def test_tf_dataset(folder):
    pytest.importorskip("tensorflow")
    dataset = ParquetReader(folder, batch_size=24).to_tf()
    assert dataset.element_spec["x"].shape.as_list() == [None, 2]
    for _ in range(2):
        batches = list(dataset.as_numpy_iterator())
        assert sorted(int(i) for batch in batches for i in batch["id"]) == list(range(64))
        assert batches[0]["text"][0].decode() == str(batches[0]["id"][0])


KERAS = """
import sys, keras
from horovod.data import ParquetReader
reader = ParquetReader(sys.argv[1], ["x", "id"], batch_size=16, transform=lambda b: (b["x"], b["id"]))
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(reader.forever(), steps_per_epoch=len(reader), epochs=2, verbose=0)
assert len(history.history["loss"]) == 2
"""


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras(folder, backend):
    pytest.importorskip("keras")
    pytest.importorskip(backend)
    subprocess.run(
        [sys.executable, "-c", KERAS, folder], env=worker_env({"KERAS_BACKEND": backend}), check=True
    )


def read_as_rank(folder):
    import horovod.numpy as hvd

    hvd.init()
    reader = ParquetReader(folder, ["id"], batch_size=8)
    return reader.rank, reader.size, [batch["id"].tolist() for batch in reader]


def test_ranks_of_a_job(folder):
    results = run_world(read_as_rank, 2, args=(folder,))
    assert [(rank, size) for rank, size, _ in results] == [(0, 2), (1, 2)]
    assert sorted(i for _, _, batches in results for batch in batches for i in batch) == list(range(64))


def test_nothing_is_imported_before_it_is_used():
    code = """
import sys
import horovod.data, horovod.data.data_loader_base, horovod.data.dealing
loaded = [name for name in ("numpy", "pyarrow", "fsspec", "torch", "pandas") if name in sys.modules]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], env=worker_env(), check=True)
