# SPDX-License-Identifier: Apache-2.0
"""The Lightning estimator on DataFrames: LightningModules and plain modules."""

from __future__ import annotations

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from estimator_data import ROWS, backend, rows

from horovod.spark.common.store import Store
from horovod.spark.lightning import TorchEstimator


class Linear(pl.LightningModule):
    def __init__(self, lr=0.05):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.lr = lr

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.mse_loss(self(batch["features"]).squeeze(1), batch["y"])
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", torch.nn.functional.mse_loss(self(batch["features"]).squeeze(1), batch["y"]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


@pytest.fixture(scope="module")
def df(spark):
    return spark.createDataFrame(rows(), ["features", "y", "positive", "weight", "held_out"]).cache()


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path / "store"))


def estimator(**more):
    torch.manual_seed(1)
    given = dict(
        backend=backend(),
        model=Linear(),
        feature_cols=["features"],
        label_cols=["y"],
        batch_size=10,
        epochs=6,
        random_seed=0,
        verbose=0,
        partitions_per_process=1,
    )
    return TorchEstimator(**{**given, **more})


def test_learns_and_transforms(df, store):
    model = estimator(store=store, validation="held_out").fit(df)
    history = model.getHistory()
    assert [one["epoch"] for one in history] == list(range(6))
    assert history[-1]["train_loss"] < 0.05 * history[0]["train_loss"]
    assert history[-1]["val_loss"] < 0.05 * history[0]["val_loss"]
    np.testing.assert_allclose(model.getModel().layer.weight.detach().numpy(), [[2, -3]], atol=0.2)
    result = model.transform(df).collect()
    assert max(abs(row["y"] - row["y__output"]) for row in result) < 0.6 and len(result) == ROWS
