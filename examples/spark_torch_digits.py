# SPDX-License-Identifier: Apache-2.0
"""A PyTorch model fitted on a Spark DataFrame of handwritten digits, with TorchEstimator.

pip install horovod[spark] torch scikit-learn
python examples/spark_torch_digits.py --num-proc 2
"""

from __future__ import annotations

import torch
from _spark_digits import accuracy, digits_frames, options, start_spark

from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator


def make_model(pixels: int) -> torch.nn.Module:
    """Convolutions over the square that the pixels were."""
    side = int(pixels**0.5)
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, side, side)),
        torch.nn.Conv2d(1, 16, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * (side - 2) ** 2, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )


def right(output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """A metric: the part of the rows that are predicted."""
    return (output.argmax(1) == label).float().mean()


def main() -> None:
    """Fits, then predicts the test data."""
    parser = options(__doc__.splitlines()[0])
    parser.add_argument("--backward-passes-per-step", type=int, default=1)
    args = parser.parse_args()
    spark = start_spark(args.master)
    train, test = digits_frames(spark, args.data_dir)
    torch.manual_seed(0)
    model = make_model(len(train.first()["features"]))
    estimator = TorchEstimator(
        num_proc=args.num_proc,
        store=Store.create(args.work_dir),
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), 1e-3),  # for one rank; it is scaled to their number
        loss=torch.nn.functional.cross_entropy,
        metrics=[right],
        feature_cols=["features"],
        label_cols=["label"],
        validation=0.1,
        batch_size=args.batch_size,
        epochs=args.epochs,
        backward_passes_per_step=args.backward_passes_per_step,
        random_seed=0,
        verbose=0,
    )
    fitted = estimator.fit(train)
    for logs in fitted.getHistory():
        measured = logs["validation"]["right"]
        print(f"epoch {logs['epoch'] + 1}: loss {logs['train']['loss']:.4f} validated {measured:.4f}")
    print(f"test accuracy {accuracy(fitted.transform(test)):.4f}")
    spark.stop()


if __name__ == "__main__":
    main()
