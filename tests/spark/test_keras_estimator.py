# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator on DataFrames: Keras 3 and Keras 2; what it learns, returns, keeps, refuses."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tf_keras
from estimator_data import ROWS, backend, rows

from horovod.spark.common.store import Store
from horovod.spark.keras import KerasEstimator, KerasModel


@pytest.fixture(scope="module")
def df(spark):
    return spark.createDataFrame(rows(), ["features", "y", "positive", "weight", "held_out"]).cache()


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path / "store"))


def linear(package=keras, **more):
    package.utils.set_random_seed(1)
    model = package.Sequential([package.Input((2,)), package.layers.Dense(1)])
    given = dict(
        backend=backend(),
        model=model,
        optimizer=package.optimizers.SGD(0.05),
        loss="mse",
        feature_cols=["features"],
        label_cols=["y"],
        batch_size=10,
        epochs=6,
        random_seed=0,
        verbose=0,
        partitions_per_process=1,
    )
    return KerasEstimator(**{**given, **more})


@pytest.mark.parametrize("package", [keras, tf_keras], ids=["keras3", "keras2"])
def test_learns_and_transforms(df, store, package):
    estimator = linear(package, store=store, validation="held_out", metrics=["mae"])
    model = estimator.fit(df)
    history = model.getHistory()
    assert set(history) == {"loss", "mae", "val_loss", "val_mae"} and len(history["loss"]) == 6
    assert history["loss"][-1] < 0.05 * history["loss"][0]
    assert history["val_mae"][-1] < history["val_mae"][0]
    np.testing.assert_allclose(model.getModel().get_weights()[0].ravel(), [2, -3], atol=0.2)
    assert float(model.getModel().optimizer.learning_rate.numpy()) == pytest.approx(0.05)
    result = model.transform(df).collect()
    assert max(abs(row["y"] - row["y__output"]) for row in result) < 0.6 and len(result) == ROWS
