# SPDX-License-Identifier: Apache-2.0
"""A Keras 3 model fitted on a Spark DataFrame of handwritten digits, with KerasEstimator.

pip install horovod[spark] keras tensorflow scikit-learn
python examples/spark_keras_digits.py --num-proc 2
spark-submit --master spark://host:7077 examples/spark_keras_digits.py --master "" --work-dir s3a://bucket/run
"""

from __future__ import annotations

import keras
from _spark_digits import accuracy, digits_frames, options, start_spark

from horovod.spark.common.store import Store
from horovod.spark.keras import KerasEstimator


def make_model(pixels: int) -> keras.Model:
    """Convolutions over the square that the pixels were."""
    side = int(pixels**0.5)
    return keras.Sequential([
        keras.Input((pixels,)),
        keras.layers.Reshape((side, side, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ])  # fmt: skip


def main() -> None:
    """Fits, then predicts the test data."""
    args = options(__doc__.splitlines()[0]).parse_args()
    spark = start_spark(args.master)
    train, test = digits_frames(spark, args.data_dir)
    keras.utils.set_random_seed(0)
    estimator = KerasEstimator(
        num_proc=args.num_proc,
        store=Store.create(args.work_dir),
        model=make_model(len(train.first()["features"])),
        optimizer=keras.optimizers.Adam(1e-3),  # for one rank; it is scaled to their number
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        feature_cols=["features"],
        label_cols=["label"],
        validation=0.1,
        batch_size=args.batch_size,
        epochs=args.epochs,
        random_seed=0,
        verbose=2,
    )
    fitted = estimator.fit(train)
    for epoch, loss in enumerate(fitted.getHistory()["loss"], 1):
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"test accuracy {accuracy(fitted.transform(test)):.4f}")
    spark.stop()


if __name__ == "__main__":
    main()
