# SPDX-License-Identifier: Apache-2.0
"""Loaders and data modules by their earlier names."""

from __future__ import annotations

import importlib

import pytest
import torch
from parquet_files import write

from horovod.data import ParquetReader
from horovod.spark import conf
from horovod.spark.data_loaders import pytorch_data_loaders as loaders


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(str(tmp_path_factory.mktemp("data") / "set"), [20, 10])


def reader(folder):
    return ParquetReader(folder, ["id", "x"], batch_size=8, rank=0, size=1)


def ids(batches):
    return [int(i) for batch in batches for i in batch["id"]]


@pytest.mark.parametrize("kind", ["", "Async"])
def test_epochs(folder, kind, capsys):
    loader = getattr(loaders, f"Pytorch{kind}DataLoader")(reader=reader(folder), name="train", verbose=True)
    for _ in range(2):
        assert sorted(ids(loader)) == list(range(30)) and len(loader) == 4
    if kind:
        loader.close_async_loader()
    assert "[train] the epoch ends after 4 batches" in capsys.readouterr().out
    few = getattr(loaders, f"Pytorch{kind}DataLoader")(reader=reader(folder), limit_step_per_epoch=2)
    assert len(ids(few)) == 16
    if kind:
        few.close_async_loader()


@pytest.mark.parametrize("kind", ["", "Async"])
def test_infinite(folder, kind):
    made = getattr(loaders, f"PytorchInfinite{kind}DataLoader")(reader=reader(folder), limit_step_per_epoch=2)
    assert sorted(ids(made) + ids(made)) == list(range(30))
    if kind:
        made.close_async_loader()
    with pytest.raises(ValueError, match="needs limit_step_per_epoch"):
        loaders.PytorchInfiniteDataLoader(reader(folder))


@pytest.mark.parametrize("kind", ["", "Async"])
def test_in_memory(folder, kind):
    made = getattr(loaders, f"PytorchInmem{kind}DataLoader")(reader=reader(folder), shuffle=True)
    torch.manual_seed(1)
    first, second = ids(made), ids(made)
    assert sorted(first) == sorted(second) == list(range(30)) and first != second
    if kind:
        made.close_async_loader()
    assert isinstance(next(iter(made))["x"], torch.Tensor)
    if kind:
        made.close_async_loader()


@pytest.mark.parametrize("framework", ["torch", "keras", "lightning"])
def test_names_of_data_modules(framework):
    module = importlib.import_module(f"horovod.spark.{framework}.datamodule")
    from horovod.spark.common.datamodule import DataModule

    assert issubclass(module.PetastormDataModule, DataModule)
    assert issubclass(module.NVTabularDataModule, DataModule)
    assert loaders.PetastormBatchedDataLoader is loaders.PytorchDataLoader


def test_settings_of_spark():
    pairs = {name: value for name, value in vars(conf).items() if name.startswith("SPARK_CONF_")}
    defaults = pairs.pop("SPARK_CONF_DEFAULT_VALUES")
    assert pairs["SPARK_CONF_ALWAYS_RESTART_FAILED_TASK"] == ("spark.task.maxFailures", "2147483647")
    assert len(pairs) == 15 and {name for name, _ in pairs.values()} == set(defaults)
