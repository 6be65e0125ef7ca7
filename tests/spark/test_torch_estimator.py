# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator on DataFrames: what it learns, returns, keeps, refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pyspark.ml.linalg import Vectors
from world import worker_env

from horovod.spark.common.backend import LocalBackend
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator, TorchModel

ROWS = 200


def rows(seed=0):
    """y = 2a - 3b + 1, and whether it is positive."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, 2))
    y = 2 * x[:, 0] - 3 * x[:, 1] + 1
    return [
        (Vectors.dense(x[i]), float(y[i]), int(y[i] > 0), 1.0 + i % 2, float(i % 5 == 0)) for i in range(ROWS)
    ]


@pytest.fixture(scope="module")
def df(spark):
    return spark.createDataFrame(rows(), ["features", "y", "positive", "weight", "held_out"]).cache()


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path / "store"))


def backend(num_proc=2):
    return LocalBackend(num_proc, env=worker_env())


def linear(**more):
    torch.manual_seed(1)
    model = torch.nn.Linear(2, 1)
    given = dict(
        backend=backend(),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        loss=torch.nn.functional.mse_loss,
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
    estimator = linear(store=store, validation="held_out", metrics=[torch.nn.functional.l1_loss])
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
    assert isinstance(result[0]["features"], type(Vectors.dense([0])))
    worst = max(abs(row["y"] - row["y__output"]) for row in result)
    assert worst < 0.6 and len(result) == ROWS
    assert model.setOutputCols(["guess"]).transform(df).columns[-1] == "guess"
