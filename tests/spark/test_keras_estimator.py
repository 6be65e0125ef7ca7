# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator on DataFrames: Keras 3 and Keras 2; what it learns, returns, keeps, refuses."""

from __future__ import annotations

import io
import zipfile

import keras
import numpy as np
import pytest
import tf_keras
from estimator_data import ROWS, kept_ranks, one_rank
from pyspark.sql import functions as sql

from horovod.keras.callbacks import BestModelCheckpoint
from horovod.spark.keras import KerasEstimator, KerasModel
from horovod.spark.keras.flavour import Flavour
from horovod.spark.keras.serialization import dump_model, facts_of, load_model

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras under NumPy 2
both = pytest.mark.parametrize("package", [keras, tf_keras], ids=["keras3", "keras2"])


def linear(package=keras, **more):
    package.utils.set_random_seed(1)
    model = more.pop("model", None) or package.Sequential([package.Input((2,)), package.layers.Dense(1)])
    given = dict(
        backend=one_rank(),
        model=model,
        optimizer=package.optimizers.SGD(0.05, momentum=0.1),
        loss="mse",
        feature_cols=["features"],
        label_cols=["y"],
        batch_size=10,
        epochs=2,
        random_seed=0,
        verbose=0,
        partitions_per_process=2,
        use_gpu=False,
    )
    return KerasEstimator(**{**given, **more})


@both
def test_learns_and_transforms_on_two_ranks(df, store, package):
    estimator = linear(
        package, store=store, backend=kept_ranks(), epochs=6, validation="held_out", metrics=["mae"]
    )
    before = estimator.getModel().get_weights()[0].copy()
    model = estimator.fit(df)
    history = model.getHistory()
    assert set(history) == {"loss", "mae", "val_loss", "val_mae"} and len(history["loss"]) == 6
    assert history["loss"][-1] < 0.05 * history["loss"][0]
    assert history["val_mae"][-1] < history["val_mae"][0]
    trained = model.getModel()
    np.testing.assert_allclose(trained.get_weights()[0].ravel(), [2, -3], atol=0.2)
    np.testing.assert_array_equal(estimator.getModel().get_weights()[0], before)
    assert float(trained.optimizer.learning_rate.numpy()) == pytest.approx(0.05)
    assert model.getRunId().startswith("keras_")
    result = model.transform(df).collect()
    assert max(abs(row["y"] - row["y__output"]) for row in result) < 0.6 and len(result) == ROWS
    assert store.exists(store.get_checkpoint_path(model.getRunId()))


def interrupt(epoch, logs=None):
    if epoch == 2:
        raise KeyboardInterrupt


@both
def test_an_interrupted_run_goes_on(df, store, capfd, package):
    with pytest.raises(KeyboardInterrupt):
        callback = package.callbacks.LambdaCallback(on_epoch_end=interrupt)
        linear(package, store=store, run_id="r1", epochs=4, callbacks=[callback]).fit(df)
    path = store.get_checkpoint_path("r1")
    facts = facts_of(store.read(path))
    assert facts.epochs == 2 and facts.learning_rate == pytest.approx(0.05)
    assert any(np.abs(one).max() > 0 for one in facts.variables if one.shape == (2, 1)), "momentum"
    capfd.readouterr()
    resumed = linear(package, store=store, run_id="r1", epochs=4, verbose=2).fit(df)
    assert len(resumed.getHistory()["loss"]) == 2
    assert f"Resuming training from last checkpoint: {path}" in capfd.readouterr().out
    again = linear(package, store=store, run_id="r1", epochs=4).fit(df)
    assert len(again.getHistory()["loss"]) == 4
    assert again.getHistory()["loss"][0] < resumed.getHistory()["loss"][0]


@both
def test_a_run_goes_on_with_a_model_that_is_built_anew(df, store, package):
    """Its layers have other names than those in the checkpoint: all ranks go on with that."""
    first, second = (
        linear(package, store=store, backend=kept_ranks(), run_id="r1", epochs=1) for _ in range(2)
    )
    assert first.getModel().layers[-1].name != second.getModel().layers[-1].name
    losses = [estimator.fit(df).getHistory()["loss"][0] for estimator in (first, second)]
    assert losses[1] < 0.5 * losses[0]


@both
def test_a_checkpoint_is_a_keras_file(df, store, tmp_path, package):
    model = linear(package, store=store, run_id="r1").fit(df)
    data = store.read(store.get_checkpoint_path("r1"))
    assert "config.json" in zipfile.ZipFile(io.BytesIO(data)).namelist()
    (tmp_path / "c.keras").write_bytes(data)
    loaded = package.models.load_model(tmp_path / "c.keras")
    np.testing.assert_array_equal(loaded.get_weights()[0], model.getModel().get_weights()[0])
    serialized = store.read_serialized_keras_model(store.get_checkpoint_path("r1"), model.getModel(), {})
    assert serialized == data


def test_logs_are_kept(df, store):
    pytest.importorskip("tensorboard")
    linear(store=store, run_id="r1").fit(df)
    assert store.fs.find(store.get_localized_path(store.get_logs_path("r1")))


class Scale(keras.layers.Layer):
    def __init__(self, factor=2.0, **more):
        super().__init__(**more)
        self.factor = factor

    def call(self, x):
        return x * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


def two_in_two_out():
    features, y = keras.Input((2,)), keras.Input((1,), dtype="int32")
    number = keras.layers.Dense(1, name="number")(Scale(3.0)(features))
    side = keras.layers.Dense(2, name="side", activation="softmax")(keras.layers.Flatten()(
        keras.layers.Embedding(2, 4)(y)
    ))  # fmt: skip
    return keras.Model([features, y], [number, side])


def test_several_inputs_and_outputs_custom_objects_and_saving(df, store, tmp_path):
    estimator = linear(
        store=store,
        model=two_in_two_out(),
        custom_objects={"Scale": Scale},
        loss=["mse", keras.losses.SparseCategoricalCrossentropy()],
        loss_weights=[0.1, 0.9],
        feature_cols=["features", "positive"],
        label_cols=["y", "positive"],
        metrics=[[keras.metrics.MeanAbsoluteError()], ["accuracy"]],
        epochs=3,
    )
    model = estimator.fit(df)
    assert model.getHistory()["side_accuracy"][-1] == pytest.approx(1.0)
    row = model.transform(df).collect()[0]
    assert isinstance(row["y__output"], float) and len(row["positive__output"]) == 2
    assert model.getModel().evaluate is not None

    estimator.save(str(tmp_path / "estimator"))
    loaded = KerasEstimator.load(str(tmp_path / "estimator"))
    assert loaded.getLossWeights() == [0.1, 0.9]
    assert any(isinstance(layer, Scale) and layer.factor == 3.0 for layer in loaded.getModel().layers)
    assert loaded.getOptimizer().momentum == pytest.approx(0.1)
    model.save(str(tmp_path / "model"))
    again = KerasModel.load(str(tmp_path / "model"))
    assert again.getHistory() == model.getHistory()
    assert again.transform(df).collect()[0]["y__output"] == row["y__output"]


def test_sample_weights_and_compiled_models(df, store):
    """Rows of weight 0 teach nothing: half of the rows say 5, half of them -5."""
    frame = df.withColumn("y", sql.when(sql.col("weight") > 1, 5.0).otherwise(-5.0))
    frame = frame.withColumn("weight", sql.col("weight") - 1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    trained = linear(
        store=store, model=model, optimizer=None, loss=None, sample_weight_col="weight", epochs=4
    ).fit(frame)
    assert trained.getModel().get_weights()[1][0] == pytest.approx(5, abs=1)


def test_the_best_model_is_kept(df, store):
    """A rate that explodes: the first epoch is the best."""

    def fit(**more):
        return linear(store=store, optimizer=keras.optimizers.SGD(1.5), **more).fit(df)

    best = fit(checkpoint_callback=BestModelCheckpoint(monitor="loss"), epochs=3)
    losses = best.getHistory()["loss"]
    assert losses[0] < losses[-1]
    kept, last = (np.abs(model.getModel().get_weights()[0]).max() for model in (best, fit(epochs=3)))
    assert np.isfinite(kept) and not last <= 1000 * kept, (
        "the last epoch's weights are far larger, or no numbers"
    )


@both
def test_the_weights_of_the_best_model_are_kept(df, store, package):
    """The same without the architecture; to keep them does not disturb the training."""

    def fit(run, weights_only):
        options = {"monitor": "loss", "save_weights_only": weights_only}
        if package is keras:
            best = BestModelCheckpoint(**options)
        else:
            best = tf_keras.callbacks.ModelCheckpoint("replaced", save_best_only=True, **options)
        optimizer = package.optimizers.SGD(1.5, momentum=0.5)
        more = dict(store=store, run_id=run, optimizer=optimizer, checkpoint_callback=best, epochs=3)
        return linear(package, **more).fit(df)

    whole, weights = fit("r1", False), fit("r2", True)
    np.testing.assert_array_equal(weights.getHistory()["loss"], whole.getHistory()["loss"])
    for one, other in zip(weights.getModel().get_weights(), whole.getModel().get_weights()):
        np.testing.assert_array_equal(one, other)
    assert facts_of(store.read(store.get_checkpoint_path("r2"))).epochs == 3


def test_epochs_of_another_length_and_transformation(df, store):
    def constant(frame):
        frame["features"] = [value * 0 for value in frame["features"]]
        frame["y"] = frame["y"] * 0 + 4
        return frame

    estimator = linear(
        store=store,
        transformation_fn=constant,
        train_steps_per_epoch=70,
        validation=0.2,
        validation_steps_per_epoch=1,
        inmemory_cache_all=True,
        tensorflow_dataset_prefetch_buffer_size=2,
    )
    assert estimator.fit(df).getModel().get_weights()[1][0] == pytest.approx(4, abs=0.3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": 3}, "model has to be an instance of tensorflow.keras.Model"),
        ({"loss": None}, "Loss parameter is required for the model to compile"),
        ({"optimizer": None}, "Optimizer must be provided either as a parameter or as part of a compiled"),
        (
            {"feature_cols": ["y"]},
            "Feature column 'y' with size 1 must equal that of the model input at",
        ),
        ({"feature_cols": ["y", "features"]}, "Feature column count 2 must equal model inputs count 1"),
        (
            {"label_cols": ["features"]},
            "Label column 'features' with size 2 must equal that of the model",
        ),
        ({"label_cols": ["y", "weight"]}, "Label column count 2 must equal model outputs count 1"),
    ],
)
def test_what_is_refused(df, store, change, message):
    estimator = linear(store=store)
    with pytest.raises(ValueError, match=message):
        estimator.copy({getattr(estimator, name): value for name, value in change.items()}).fit(df)


def test_the_wrong_backend_of_keras():
    flavour = Flavour.of(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    other = Flavour("keras", "jax" if flavour.backend != "jax" else "torch", "float32")
    with pytest.raises(RuntimeError, match=f"set KERAS_BACKEND={other.backend} for it"):
        other.load()


def test_hdf5_models_are_read(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(tmp_path / "m.h5")
    loaded = load_model((tmp_path / "m.h5").read_bytes(), Flavour.of(model))
    np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])
    assert facts_of(dump_model(model)) is None
