# SPDX-License-Identifier: Apache-2.0
"""The Lightning estimator on DataFrames: LightningModules and plain modules."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

pl = pytest.importorskip("lightning.pytorch")

from estimator_data import ROWS, one_rank, two_ranks  # noqa: E402

from horovod.spark.lightning import TorchEstimator, TorchModel  # noqa: E402

mse = torch.nn.functional.mse_loss


class Linear(pl.LightningModule):
    def __init__(self, lr=0.05, poison=1.0):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.lr = lr
        self.poison = poison

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, batch_idx):
        loss = mse(self(batch["features"]).squeeze(1), batch["y"]) * self.poison
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", mse(self(batch["features"]).squeeze(1), batch["y"]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def estimator(**more):
    torch.manual_seed(1)
    given = dict(
        backend=one_rank(),
        model=Linear(),
        feature_cols=["features"],
        label_cols=["y"],
        batch_size=10,
        epochs=2,
        random_seed=0,
        verbose=0,
        partitions_per_process=2,
    )
    return TorchEstimator(**{**given, **more})


def test_learns_and_transforms_on_two_ranks(df, store):
    model = estimator(store=store, backend=two_ranks(), epochs=6, validation="held_out").fit(df)
    history = model.getHistory()
    assert [one["epoch"] for one in history] == list(range(6))
    assert history[-1]["train_loss"] < 0.05 * history[0]["train_loss"]
    assert history[-1]["val_loss"] < 0.05 * history[0]["val_loss"]
    np.testing.assert_allclose(model.getModel().layer.weight.detach().numpy(), [[2, -3]], atol=0.2)
    result = model.transform(df).collect()
    assert max(abs(row["y"] - row["y__output"]) for row in result) < 0.6 and len(result) == ROWS


class Interrupt(pl.Callback):
    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 2:
            raise RuntimeError("stop here")


def test_an_interrupted_run_goes_on(df, store, capfd):
    with pytest.raises(RuntimeError, match="stop here"):
        estimator(store=store, run_id="r1", epochs=4, callbacks=[Interrupt()]).fit(df)
    resumed = estimator(store=store, run_id="r1", epochs=4, verbose=1).fit(df)
    assert [one["epoch"] for one in resumed.getHistory()] == [2, 3]
    assert "Resuming training from last checkpoint" in capfd.readouterr().out
    again = estimator(store=store, run_id="r1", epochs=4).fit(df)
    assert [one["epoch"] for one in again.getHistory()] == [4, 5, 6, 7]


def test_plain_modules(df, store, tmp_path):
    model = torch.nn.Linear(2, 1)
    given = estimator(
        store=store,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.05),
        loss=mse,
        sample_weight_col="weight",
        metrics=[torch.nn.functional.l1_loss],
        validation=0.2,
    )
    trained = given.fit(df)
    assert {"loss", "l1_loss", "val_loss", "val_l1_loss", "epoch"} <= set(trained.getHistory()[0])
    trained.write().overwrite().save(str(tmp_path / "model"))
    again = TorchModel.load(str(tmp_path / "model"))
    assert torch.equal(again.getModel().weight, trained.getModel().weight)
    assert not torch.equal(model.weight, trained.getModel().weight)
    constructed = given.copy({given.loss: None, given.loss_constructors: [lambda: torch.nn.L1Loss()]})
    assert "loss" in constructed.fit(df).getHistory()[0]


def test_a_loaded_estimator_with_a_plain_module_trains(df, store, tmp_path):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    given = estimator(store=store, run_id="r1", model=model, optimizer=optimizer, loss=mse, epochs=1)
    given.write().overwrite().save(str(tmp_path / "estimator"))
    trained = TorchEstimator.load(str(tmp_path / "estimator")).fit(df)
    expected = given.setRunId("r2").fit(df)
    assert torch.equal(trained.getModel().weight, expected.getModel().weight)
    assert not torch.equal(trained.getModel().weight, model.weight)


def test_a_loss_that_is_not_a_number(df, store):
    broken = estimator(store=store, model=Linear(poison=math.nan), terminate_on_nan=True)
    with pytest.raises(ValueError, match="the loss of batch 0 in epoch 0 is nan on rank 0"):
        broken.fit(df)


def test_arguments_of_the_trainer(df, store):
    model = estimator(store=store, trainer_args={"max_steps": 3}, train_async_data_loader_queue_size=2).fit(
        df
    )
    assert len(model.getHistory()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": 1}, "Parameter `optimizer` cannot be specified with a `LightningModule`."),
        ({"loss": mse}, "Parameter `loss` cannot be specified with a `LightningModule`."),
        ({"loss_weights": [1]}, "Parameter `loss_weights` cannot be specified with a `LightningModule`."),
        ({"model": torch.nn.Linear(2, 1)}, "a plain module needs the parameters loss and optimizer"),
    ],
)
def test_what_is_refused(df, store, change, message):
    given = estimator(store=store)
    with pytest.raises(ValueError, match=message):
        given.copy({getattr(given, name): value for name, value in change.items()}).fit(df)


def test_lightning_of_another_package(df, store):
    class LightningModule(torch.nn.Module):
        pass

    with pytest.raises(ValueError, match=r"derive it from lightning.pytorch.LightningModule"):
        estimator(store=store, model=LightningModule()).fit(df)
