# SPDX-License-Identifier: Apache-2.0
"""HorovodStrategy with Lightning's Trainer: two ranks get the weights of one process with all the data."""

from __future__ import annotations

import pytest
from world import run_world

pytest.importorskip("lightning.pytorch")

ROWS, BATCH = 64, 4


def fit(folder, accumulate=1, scale=False, scheduler=False, ckpt=None, epochs=2):
    """Trains on the ranks there are; what each of them saw and has."""
    import lightning.pytorch as pl
    import torch

    from horovod.lightning import HorovodStrategy

    class Line(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            self.gathered = []

        def training_step(self, batch, batch_idx):
            x, y = batch
            loss = torch.nn.functional.mse_loss(self.layer(x), y)
            self.log("loss", loss, sync_dist=True, on_epoch=True, on_step=False)
            return loss

        def on_train_epoch_end(self):
            self.gathered = self.all_gather(torch.tensor(float(self.trainer.global_rank))).tolist()

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            if not scheduler:
                return optimizer
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    strategy = HorovodStrategy(scale_learning_rate=scale)
    trainer = pl.Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=1,
        max_epochs=epochs,
        accumulate_grad_batches=accumulate,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    rank, size = trainer.global_rank, trainer.world_size
    torch.manual_seed(rank)  # rank 0's weights must win
    model = Line()
    x = torch.linspace(-1, 1, 2 * ROWS).reshape(ROWS, 2)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    # The Trainer gives each rank every size-th row of an unshuffled loader.
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH * (2 // size), shuffle=False)
    trainer.fit(model, loader, ckpt_path=ckpt, weights_only=False)
    trainer.save_checkpoint(f"{folder}/{size}.ckpt")
    strategy.barrier()
    both = strategy.broadcast(f"from {rank}", src=size - 1)
    agreed = [
        strategy.reduce_boolean_decision(rank == 0),
        strategy.reduce_boolean_decision(rank == 0, all=False),
    ]
    return {
        "rank": rank,
        "size": size,
        "weights": [p.detach().ravel().tolist() for p in model.parameters()],
        "loss": float(trainer.callback_metrics["loss"]),
        "gathered": model.gathered,
        "broadcast": both,
        "agreed": agreed,
        "lr": trainer.optimizers[0].param_groups[0]["lr"],
        "steps": trainer.global_step,
    }


@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_ranks_do_what_one_does(tmp_path, accumulate):
    two = run_world(fit, 2, args=(str(tmp_path), accumulate))
    (one,) = run_world(fit, 1, args=(str(tmp_path), accumulate))
    assert [result["rank"] for result in two] == [0, 1] and two[0]["size"] == 2
    assert two[0]["weights"] == two[1]["weights"]
    for mine, expected in zip(two[0]["weights"], one["weights"]):
        assert mine == pytest.approx(expected, abs=1e-5)
    assert two[0]["loss"] == pytest.approx(one["loss"], abs=1e-5) == two[1]["loss"]
    assert two[1]["gathered"] == [0.0, 1.0] and two[0]["broadcast"] == two[1]["broadcast"] == "from 1"
    assert two[0]["agreed"] == two[1]["agreed"] == [False, True]
    assert two[0]["steps"] == one["steps"] == 2 * ROWS // 8 // accumulate


def test_scaled_rates_and_checkpoints_of_another_size(tmp_path):
    import torch

    first = run_world(fit, 2, args=(str(tmp_path), 1, True, True))
    assert first[0]["lr"] == pytest.approx(0.1 * 2 * 0.25)
    saved = torch.load(tmp_path / "2.ckpt", weights_only=False)
    assert saved["optimizer_states"][0]["param_groups"][0]["lr"] == pytest.approx(0.1 * 0.25)
    (alone,) = run_world(fit, 1, args=(str(tmp_path), 1, True, True, str(tmp_path / "2.ckpt"), 3))
    assert alone["lr"] == pytest.approx(0.1 * 0.125)


def test_reduce_refuses_what_it_cannot():
    import torch

    from horovod.lightning import HorovodStrategy

    with pytest.raises(ValueError, match="cannot reduce with bxor"):
        HorovodStrategy().reduce(torch.ones(1), reduce_op="bxor")
    assert HorovodStrategy().reduce("text") == "text"


def test_known_by_name():
    from lightning.pytorch.strategies import StrategyRegistry

    import horovod.lightning  # noqa: F401

    assert "horovod" in StrategyRegistry
