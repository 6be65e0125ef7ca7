# SPDX-License-Identifier: Apache-2.0
"""From a DataFrame to files in the store: columns, splits, vectors, the cache, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.linalg import SparseVector, Vectors
from pyspark.sql import functions as sql

from horovod.data import ParquetReader
from horovod.spark.common import prepare, training_cache, util
from horovod.spark.common.metadata import ARRAY, SCALAR, VECTOR, read_metadata
from horovod.spark.common.prepare import Wanted


def wanted(**more):
    given = dict(
        feature_cols=("features",), label_cols=("y",), sample_weight_col=None, validation=None, partitions=2
    )
    return Wanted(**{**given, **more})


def values(path):
    (batch,) = ParquetReader(path, batch_size=1000, shuffle=False)
    return batch


def test_columns_and_metadata(spark, df, store):
    frame = df.withColumn("list", sql.array(sql.lit(1.0), sql.col("y")))
    asked = wanted(
        feature_cols=("features", "list"), label_cols=("y", "positive"), sample_weight_col="weight"
    )
    dataset = prepare.prepare(frame, store, asked)
    assert (dataset.train_rows, dataset.val_rows, dataset.idx) == (200, 0, 0)
    found = {name: (one.dtype, one.shape, one.kind) for name, one in dataset.columns.items()}
    assert found == {
        "features": ("float64", (2,), VECTOR),
        "list": ("float64", (2,), ARRAY),
        "y": ("float64", (), SCALAR),
        "positive": ("int64", (), SCALAR),
        "weight": ("float64", (), SCALAR),
    }
    batch = values(store.get_train_data_path(0))
    np.testing.assert_allclose(batch["features"] @ [2, -3] + 1, batch["y"], atol=1e-9)
    assert len(store.get_parquet_dataset(store.get_train_data_path(0)).fragments) == 2


@pytest.mark.parametrize("as_bool", [False, True])
def test_validation_column(df, store, as_bool):
    frame = df.withColumn("held_out", sql.col("held_out") > 0) if as_bool else df
    dataset = prepare.prepare(frame, store, wanted(validation="held_out"))
    assert (dataset.train_rows, dataset.val_rows) == (160, 40)
    assert read_metadata(store, 0, True, {}).val_rows == 40


def test_validation_fraction(df, store):
    dataset = prepare.prepare(df, store, wanted(validation=0.25, seed=1))
    assert dataset.train_rows + dataset.val_rows == 200 and 20 < dataset.val_rows < 80
    train, val = (values(path)["y"] for path in (store.get_train_data_path(0), store.get_val_data_path(0)))
    assert not set(train) & set(val)


@pytest.mark.parametrize("compress", [False, True])
def test_sparse_and_mixed_vectors(spark, store, compress):
    rows = [
        (Vectors.sparse(3, {i % 3: float(i)}) if i % 2 else Vectors.dense(i, 0, 0), float(i))
        for i in range(8)
    ]
    frame = spark.createDataFrame(rows, ["features", "y"])
    dataset = prepare.prepare(frame, store, wanted(compress_sparse=compress))
    assert dataset.columns["features"].shape == (3,) and dataset.columns["features"].kind == VECTOR
    batch = values(store.get_train_data_path(0))
    expected = np.zeros((8, 3))
    for row, number in enumerate(batch["y"].astype(int)):
        expected[row, number % 3 if number % 2 else 0] = number
    np.testing.assert_array_equal(batch["features"], expected)
    assert isinstance(rows[1][0], SparseVector)


def test_the_same_data_is_written_once(df, store):
    util.clear_training_cache()
    first = prepare.prepare(df, store, wanted())
    assert prepare.prepare(df.select("*"), store, wanted()) is first
    assert prepare.prepare(df, store, wanted(validation="held_out")).idx == 1
    assert prepare.prepare(df.filter("y > 0"), store, wanted()).idx == 2
    store.fs.rm(store.get_localized_path(store.get_train_data_path(0)), recursive=True)
    assert prepare.prepare(df, store, wanted()).idx == 3
    util.clear_training_cache()
    assert prepare.prepare(df, store, wanted()).idx == 0 and not training_cache._next.get("none")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_cols": ()}, "Parameter label_columns cannot be None or empty"),
        ({"label_cols": ("z",)}, "Label column z does not exist in the DataFrame"),
        ({"feature_cols": ("z",)}, "Feature column z does not exist in the DataFrame"),
        ({"sample_weight_col": "z"}, "Sample weight column z does not exist in the DataFrame"),
        ({"validation": "z"}, "Validation column z does not exist in the DataFrame"),
        ({"validation": 1.0}, r"Validation split 1.0 must be in the range: \[0, 1\)"),
        ({"validation": 3}, 'Param validation must be of type "float" or "str", found: <class \'int\'>'),
    ],
)
def test_what_is_refused(df, store, change, message):
    with pytest.raises(ValueError, match=message):
        prepare.prepare(df, store, wanted(**change))


def test_no_rows(df, store):
    with pytest.raises(ValueError, match="No rows found in training dataset: file://"):
        prepare.prepare(df.filter("y > 1000"), store, wanted())
    with pytest.raises(ValueError, match="No rows found in validation dataset: file://"):
        prepare.prepare(df.withColumn("none", sql.lit(0)), store, wanted(validation="none"))
    with pytest.raises(ValueError, match="No rows found in training dataset"):
        read_metadata(store, 77, False, {})
    with pytest.raises(ValueError, match="num_proc=0 and partitions_per_process=10 must both be > 0"):
        prepare.check_partitions(0, 10)
