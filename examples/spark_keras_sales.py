# SPDX-License-Identifier: Apache-2.0
"""Daily sales of shops, from raw tables to a forecast: features made by Spark, a Keras model, KerasEstimator.

    pip install horovod[spark] keras tensorflow
    python examples/spark_keras_sales.py --num-proc 2 --forecast forecast.csv

The tables are made up: a table of shops, and one with a row for each shop and day. Categories go through
embeddings, numbers straight in; the model learns the logarithm of the sales, and the weeks before those to be
forecast are for validation. The best epoch's model is kept.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Dict, List, Tuple

import keras
import numpy as np

from horovod.keras.callbacks import BestModelCheckpoint
from horovod.spark.common.store import Store
from horovod.spark.keras import KerasEstimator

CATEGORIES = ["shop", "weekday", "month", "kind"]
NUMBERS = ["promotion", "holiday", "distance", "trend"]
VALIDATION_DAYS, FORECAST_DAYS = 42, 14


def raw_tables(shops: int, days: int) -> Tuple[Any, Any]:
    """What a company has: (shops, sales) as pandas tables; sales of the last days are not known yet."""
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({
        "shop": np.arange(shops),
        "kind": rng.choice(list("abcd"), shops),
        "competitor_metres": rng.integers(50, 20_000, shops).astype(float),
    })  # fmt: skip
    size = rng.normal(8.5, 0.4, shops)
    dates = pd.date_range("2013-01-01", periods=days)
    sales = table[["shop"]].merge(pd.DataFrame({"date": dates, "day": np.arange(days)}), how="cross")
    sales["promotion"] = (sales["day"] // 7 % 2).astype(int)
    sales["holiday"] = (rng.random(len(sales)) < 0.05).astype(int)
    log = size[sales["shop"]] + 0.25 * sales["promotion"] - 0.3 * sales["holiday"]
    log += 0.15 * np.sin(2 * np.pi * sales["day"] / 365) + 0.1 * (sales["day"] % 7 == 5)
    sales["sales"] = np.exp(log + rng.normal(0, 0.08, len(sales)))
    sales.loc[sales["day"] >= days - FORECAST_DAYS, "sales"] = np.nan
    return table, sales


def prepare(spark: Any, shops: Any, sales: Any) -> Any:
    """Joins the tables and makes the columns of the model: categories as integers, a vector of numbers."""
    from pyspark.ml.feature import StringIndexer, VectorAssembler
    from pyspark.sql import functions as sql

    joined = spark.createDataFrame(sales).join(spark.createDataFrame(shops), "shop")
    last = int(sales["day"].max())
    joined = (
        joined.withColumn("sales", sql.when(sql.isnan("sales"), None).otherwise(sql.col("sales")))
        .withColumn("weekday", sql.dayofweek("date") - 1)
        .withColumn("month", sql.month("date") - 1)
        .withColumn("distance", sql.log("competitor_metres") / 10)
        .withColumn("trend", sql.col("day") / float(last))
        .withColumn("log_sales", sql.log("sales"))
        .withColumn("held_out", (sql.col("day") > last - FORECAST_DAYS - VALIDATION_DAYS).cast("int"))
    )
    indexer = StringIndexer(inputCol="kind", outputCol="kind_index").fit(joined)
    joined = indexer.transform(joined).withColumn("kind", sql.col("kind_index").cast("int"))
    assembled = VectorAssembler(inputCols=NUMBERS, outputCol="numbers").transform(joined)
    kept = ["date", "day", *CATEGORIES, "numbers", "sales", "log_sales", "held_out"]
    return assembled.select(*kept)


def make_model(sizes: Dict[str, int]) -> keras.Model:
    """An embedding for each category, and a small network over them and the numbers."""
    inputs: List[Any] = [keras.Input((1,), dtype="int32", name=name) for name in CATEGORIES]
    parts = [
        keras.layers.Flatten()(keras.layers.Embedding(sizes[name], min(10, 1 + sizes[name] // 2))(one))
        for name, one in zip(CATEGORIES, inputs)
    ]
    numbers = keras.Input((len(NUMBERS),), name="numbers")
    x = keras.layers.Concatenate()([*parts, numbers])
    for width in (64, 32):
        x = keras.layers.Dense(width, activation="relu")(x)
    # Near the mean of the logarithms from the start.
    output = keras.layers.Dense(1, bias_initializer=keras.initializers.Constant(8.5))(x)
    return keras.Model([*inputs, numbers], output)


def relative_error(frame: Any) -> float:
    """Root mean square of the relative errors of the sales."""
    rows = frame.select("sales", "log_sales__output").collect()
    errors = [(np.exp(row["log_sales__output"]) - row["sales"]) / row["sales"] for row in rows]
    return float(np.sqrt(np.mean(np.square(errors))))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", default="local[2]", help="of Spark; an empty one is left to spark-submit")
    parser.add_argument("--num-proc", type=int, default=2, help="ranks")
    parser.add_argument("--shops", type=int, default=40)
    parser.add_argument("--days", type=int, default=730)
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="of one rank")
    parser.add_argument("--batch-size", type=int, default=100, help="of each rank")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--work-dir", default="/tmp/horovod-spark", help="a path or URL that all ranks reach")
    parser.add_argument("--forecast", help="CSV file for the sales of the last days")
    return parser.parse_args()


def main() -> None:
    """From the tables to the forecast."""
    from pyspark.sql import SparkSession

    args = parse()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("sales").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = (builder.master(args.master) if args.master else builder).getOrCreate()

    rows = prepare(spark, *raw_tables(args.shops, args.days)).cache()
    known, unknown = rows.filter("sales is not null"), rows.filter("sales is null")
    sizes = {"shop": args.shops, "weekday": 7, "month": 12, "kind": 4}
    keras.utils.set_random_seed(0)
    estimator = KerasEstimator(
        num_proc=args.num_proc,
        store=Store.create(args.work_dir),
        model=make_model(sizes),
        optimizer=keras.optimizers.Adam(args.learning_rate),
        loss="mae",
        feature_cols=[*CATEGORIES, "numbers"],
        label_cols=["log_sales"],
        validation="held_out",
        batch_size=args.batch_size,
        epochs=args.epochs,
        checkpoint_callback=BestModelCheckpoint(monitor="val_loss"),
        random_seed=0,
        verbose=0,
    )
    fitted = estimator.fit(known)
    history = fitted.getHistory()
    for epoch, (loss, val_loss) in enumerate(zip(history["loss"], history["val_loss"]), 1):
        print(f"epoch {epoch}: loss {loss:.4f} validation {val_loss:.4f}")
    held_out = known.filter("held_out = 1")
    print(f"relative error {relative_error(fitted.transform(held_out)):.4f}")
    if args.forecast:
        forecast = fitted.transform(unknown).selectExpr("shop", "date", "exp(log_sales__output) as sales")
        table = forecast.toPandas().sort_values(["shop", "date"])
        table.to_csv(args.forecast, index=False)
        print(f"{len(table)} forecasts in {args.forecast}")
    spark.stop()


if __name__ == "__main__":
    main()
