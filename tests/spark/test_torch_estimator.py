# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator on DataFrames: what it learns, returns, keeps, refuses."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import torch
from estimator_data import ROWS, one_rank, two_ranks
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.linalg import DenseVector
from pyspark.sql import functions as sql

import horovod.torch as hvd
from horovod.spark.common.estimator import HorovodEstimator, HorovodModel
from horovod.spark.torch import TorchEstimator, TorchModel

mse = torch.nn.functional.mse_loss


def linear(**more):
    torch.manual_seed(1)
    model = more.pop("model", torch.nn.Linear(2, 1))
    given = dict(
        backend=one_rank(),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.1),
        loss=mse,
        feature_cols=["features"],
        label_cols=["y"],
        batch_size=10,
        epochs=2,
        random_seed=0,
        verbose=0,
        partitions_per_process=2,
    )
    return TorchEstimator(**{**given, **more})


def train_losses(model):
    return [one["train"]["loss"] for one in model.getHistory()]


def test_learns_and_transforms_on_two_ranks(df, store):
    estimator = linear(
        store=store,
        backend=two_ranks(),
        epochs=6,
        validation="held_out",
        metrics=[torch.nn.functional.l1_loss],
    )
    before = estimator.getModel().weight.clone()
    model = estimator.fit(df)
    history = model.getHistory()
    assert [one["epoch"] for one in history] == list(range(6))
    assert history[-1]["train"]["loss"] < 0.05 * history[0]["train"]["loss"]
    assert history[-1]["validation"]["l1_loss"] < history[0]["validation"]["l1_loss"]
    np.testing.assert_allclose(model.getModel().weight.detach().numpy(), [[2, -3]], atol=0.2)
    assert torch.equal(before, estimator.getModel().weight), "what was given stays as it was"
    assert model.getOptimizer().param_groups[0]["lr"] == pytest.approx(0.05)
    assert model.getRunId().startswith("pytorch_")

    result = model.transform(df).collect()
    assert result[0].asDict().keys() == {*df.columns, "y__output"}
    assert isinstance(result[0]["features"], DenseVector)
    assert max(abs(row["y"] - row["y__output"]) for row in result) < 0.6 and len(result) == ROWS
    assert model.setOutputCols(["guess"]).transform(df).columns[-1] == "guess"
    with pytest.raises(ValueError, match="Output col 'y' exists in original df schema"):
        model.setOutputCols(["y"]).transform(df)
    with pytest.raises(Exception, match="Number of output columns must equal to number of label columns."):
        model.setOutputCols(["a", "b"]).transform(df)


def test_an_interrupted_run_goes_on(df, store, capfd):
    def stop_after_two(epoch, logs, model, optimizer):
        if epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        linear(store=store, run_id="r1", epochs=5, callbacks=[stop_after_two, lambda *_: None]).fit(df)
    path = store.get_checkpoint_path("r1")
    saved = torch.load(io.BytesIO(store.read(path)))
    assert set(saved) == {"model", "optimizer", "epochs"} and saved["epochs"] == 1
    assert saved["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0.05)

    resumed = linear(store=store, run_id="r1", epochs=5, verbose=1).fit(df)
    assert [one["epoch"] for one in resumed.getHistory()] == [1, 2, 3, 4]
    printed = capfd.readouterr().out
    assert f"Resuming training from last checkpoint: {path}" in printed and "epoch 5: train loss" in printed
    again = linear(store=store, run_id="r1", epochs=5).fit(df)
    assert [one["epoch"] for one in again.getHistory()] == [5, 6, 7, 8, 9]
    assert train_losses(again)[0] < train_losses(resumed)[0]


class TwoInTwoOut(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.number = torch.nn.Linear(2, 1)
        self.side = torch.nn.Linear(3, 2)

    def forward(self, features, y):
        number = self.number(features)
        return number, self.side(torch.cat([features, y.reshape(-1, 1)], 1))


def test_several_inputs_and_outputs(df, store):
    estimator = linear(
        store=store,
        model=TwoInTwoOut(),
        loss=[mse, torch.nn.CrossEntropyLoss()],
        loss_weights=[0.2, 0.8],
        feature_cols=["features", "y"],
        label_cols=["weight", "positive"],
        metrics=[lambda output, label: output.float().mean()],
    )
    model = estimator.fit(df)
    assert set(model.getHistory()[0]["train"]) == {"loss", "weight_<lambda>", "positive_<lambda>"}
    row = model.transform(df).collect()[0]
    assert isinstance(row["weight__output"], float) and len(row["positive__output"]) == 2


def test_sample_weights(df, store):
    """Rows of weight 0 teach nothing: half of the rows say 5, half of them -5."""
    frame = df.withColumn("y", sql.when(sql.col("weight") > 1, 5.0).otherwise(-5.0))
    frame = frame.withColumn("weight", sql.col("weight") - 1)
    for loss in (mse, torch.nn.MSELoss()):
        model = linear(store=store, loss=loss, sample_weight_col="weight", epochs=4).fit(frame)
        assert model.getModel().bias.item() == pytest.approx(5, abs=1)


def test_labels_that_are_vectors(df, store):
    from pyspark.ml.functions import array_to_vector

    frame = df.withColumn("both", array_to_vector(sql.array(sql.col("y"), -sql.col("y"))))
    model = linear(store=store, model=torch.nn.Linear(2, 2), label_cols=["both"]).fit(frame)
    assert isinstance(model.transform(frame).collect()[0]["both__output"], DenseVector)


def test_own_step_shapes_losses_and_callbacks(df, store):
    seen = []

    def step(model, optimizer, transform_outputs, loss_fn, inputs, labels, sample_weights):
        optimizer.zero_grad()
        outputs, labels = transform_outputs(model(*inputs), labels)
        loss = loss_fn(outputs, labels, sample_weights) * 2
        loss.backward()
        optimizer.step()
        seen.append(tuple(inputs[0].shape))
        return outputs, loss

    def at_end(epoch, logs, model, optimizer):
        seen.append((epoch, logs["train"]["loss"] > 0, type(model).__name__))

    estimator = linear(
        store=store,
        model=torch.nn.Conv1d(1, 1, 2),
        loss=None,
        loss_constructors=[lambda: torch.nn.L1Loss()],
        input_shapes=[[-1, 1, 2]],
        label_shapes=[[-1, 1, 1]],
        train_minibatch_fn=step,
        callbacks=[at_end],
        epochs=1,
        train_steps_per_epoch=3,
    )
    model = estimator.fit(df)
    assert seen == [(10, 1, 2)] * 3 + [(0, True, "Conv1d")]
    assert model.transform(df).collect()[0]["y__output"] is not None


def test_transformation(df, store):
    def double(frame):
        frame["y"] = frame["y"] * 0 + 4
        frame["features"] = [value * 0 for value in frame["features"]]
        return frame

    estimator = linear(
        store=store,
        transformation_fn=double,
        transformation_removed_fields=["weight"],
        sample_weight_col=None,
        epochs=4,
        inmemory_cache_all=True,
    )
    assert estimator.fit(df).getModel().bias.item() == pytest.approx(4, abs=0.5)


class CountedSGD(torch.optim.SGD):
    """Keeps the number of its steps where it comes back with the model: in its state."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
        return super().step(closure)


def test_several_backward_passes_and_compression(df, store):
    """20 batches of 10 rows, 3 for a step: 6 steps and one after the last 2."""
    model = torch.nn.Linear(2, 1)
    fitted = linear(
        store=store,
        model=model,
        optimizer=CountedSGD(model.parameters(), lr=0.01),
        backward_passes_per_step=3,
        gradient_compression=hvd.Compression.fp16,
        epochs=1,
    ).fit(df)
    assert fitted.getOptimizer().param_groups[0]["steps"] == 7
    assert not torch.equal(fitted.getModel().weight, model.weight)


def test_fit_on_parquet(df, store):
    for path in (store.get_train_data_path(), store.get_val_data_path(3), store.get_train_data_path(3)):
        df.write.parquet(path)  # vectors as Spark writes them
    assert len(linear(store=store).fit_on_parquet().getHistory()) == 2
    model = linear(store=store, validation=0.1).fit_on_parquet({}, dataset_idx=3)
    assert "validation" in model.getHistory()[0]
    missing = linear(store=store, feature_cols=["z"])
    with pytest.raises(ValueError, match=r"Feature columns \['z'\] not found in training DataFrame metadata"):
        missing.fit_on_parquet()


def test_parameters_for_one_fit(df, store):
    estimator = linear(store=store)
    assert len(estimator.fit(df, {estimator.epochs: 1}).getHistory()) == 1
    assert len(estimator.fit_on_parquet({estimator.epochs: 1}, dataset_idx=0).getHistory()) == 1
    assert estimator.getEpochs() == 2


def test_saved_and_loaded(spark, df, store, tmp_path):
    estimator = linear(store=store, backend=None, num_proc=3, metrics=[torch.nn.functional.l1_loss])
    estimator.write().overwrite().save(str(tmp_path / "estimator"))
    loaded = TorchEstimator.load(str(tmp_path / "estimator"))
    assert (
        loaded.uid == estimator.uid and loaded.getNumProc() == 3 and loaded.getFeatureCols() == ["features"]
    )
    assert loaded.getStore().prefix_path == store.prefix_path and loaded.getMetrics()[0].__name__ == "l1_loss"
    assert torch.equal(loaded.getModel().weight, estimator.getModel().weight)

    pipeline = Pipeline(stages=[linear(store=store)])
    model = pipeline.fit(df)
    model.write().overwrite().save(str(tmp_path / "model"))
    again = PipelineModel.load(str(tmp_path / "model"))
    assert isinstance(again.stages[0], TorchModel)
    assert again.stages[0].getHistory() == model.stages[0].getHistory()
    expected = [row["y__output"] for row in model.transform(df).collect()]
    assert [row["y__output"] for row in again.transform(df).collect()] == expected


def test_a_loaded_estimator_trains(df, store, tmp_path):
    """What trained before goes on: the state of its optimizer was saved, too."""
    before = linear(store=store, epochs=1).fit(df)
    given = linear(store=store, model=before.getModel(), optimizer=before.getOptimizer(), run_id="r1")
    given.write().overwrite().save(str(tmp_path / "estimator"))
    loaded = TorchEstimator.load(str(tmp_path / "estimator"))
    trained, expected = loaded.fit(df), given.setRunId("r2").fit(df)
    assert torch.equal(trained.getModel().weight, expected.getModel().weight)
    assert not torch.equal(trained.getModel().weight, before.getModel().weight)
    own, of_optimizer = trained.getModel().weight, trained.getOptimizer().param_groups[0]["params"][0]
    assert of_optimizer is own and trained.getOptimizer().state[own]["momentum_buffer"].abs().max() > 0


def test_an_optimizer_made_for_another_instance(df, store):
    estimator = linear(store=store, epochs=1)
    new = torch.nn.Linear(2, 1)
    trained = estimator.setModel(new).setRunId("r1").fit(df)
    assert trained.getOptimizer().param_groups[0]["params"][0] is trained.getModel().weight
    assert not torch.equal(trained.getModel().weight, new.weight)

    def two_layers():
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
        model[0].requires_grad_(False)
        return model

    of_last = torch.optim.SGD(two_layers()[1].parameters(), lr=0.05)
    model = two_layers()
    trained = estimator.setModel(model).setOptimizer(of_last).setRunId("r2").fit(df).getModel()
    assert torch.equal(trained[0].weight, model[0].weight)
    assert not torch.equal(trained[1].weight, model[1].weight)
    message = "its parameters have the shapes [(1, 3), (1,)], those of the model [(1, 2), (1,)]"
    with pytest.raises(ValueError, match=re.escape(message)):
        estimator.setModel(new).fit(df)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": None}, "Model parameter is required"),
        ({"store": None}, 'Parameter "store" is required'),
        ({"num_proc": 2}, 'At most one of parameters "backend" and "num_proc" may be specified'),
        ({"loss_constructors": [1]}, "only one of loss_constructors and loss parameters can be specified."),
        ({"loss": None}, "one of the parameters loss and loss_constructors is required"),
        ({"optimizer": None}, "Optimizer parameter is required"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step must be > 0"),
        ({"input_shapes": [[1], [2]]}, "Feature column count 1 must equal model inputs count 2"),
        (
            {"input_shapes": [[3]]},
            "Feature column 'features' with size 2 must equal that of the model input at index 0 with size 3",
        ),
    ],
)
def test_what_is_refused(df, store, change, message):
    estimator = linear(store=store)
    with pytest.raises(ValueError, match=message):
        estimator.copy({getattr(estimator, name): value for name, value in change.items()}).fit(df)


def test_bases_are_in_one_module():
    assert issubclass(TorchEstimator, HorovodEstimator) and issubclass(TorchModel, HorovodModel)


def test_unknown_and_wrong_parameters():
    with pytest.raises(TypeError, match="TorchEstimator has no parameter epoch; it has num_proc, backend"):
        TorchEstimator(epoch=3)
    with pytest.raises(TypeError, match='Invalid param value given for param "epochs"'):
        TorchEstimator(epochs="many")
    estimator = (
        TorchEstimator().setShufflingBufferSize(7).setTrainReaderNumWorker(3).setInMemoryCacheAll(True)
    )
    assert estimator.getShufflingBufferSize() == 7 and estimator.getTrainReaderNumWorker() == 3
    assert estimator.getInMemoryCacheAll() and estimator.getCallbacks() == []
