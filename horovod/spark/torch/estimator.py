# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator: fit a PyTorch model on a DataFrame."""

from __future__ import annotations

import io
from typing import Any, Dict, Optional, Tuple, Type

import torch

from horovod.spark.common.backend import Backend
from horovod.spark.common.datamodule import DataModule
from horovod.spark.common.estimator import HorovodEstimator, check_sizes
from horovod.spark.common.metadata import Columns, Dataset
from horovod.spark.common.params import Row, has_params
from horovod.spark.torch.datamodule import TorchParquetDataModule
from horovod.spark.torch.model import TorchModel
from horovod.spark.torch.tied import tied_copies
from horovod.spark.torch.train import TorchSpec, train

TORCH = [
    Row("loss_constructors", "functions that make the losses on the ranks, instead of loss"),
    Row("input_shapes", "shapes of the inputs, e.g. [[-1, 1, 28, 28]], where columns have another"),
    Row("train_minibatch_fn", "a step of training of your own: called with (model, optimizer, "
        "transform_outputs, loss_fn, inputs, labels, sample_weights), returns (outputs, loss)"),
]  # fmt: skip


@has_params(TORCH)
class TorchEstimator(HorovodEstimator):
    """Trains a torch.nn.Module on a DataFrame; every feature column is an argument of its forward.

    All parameters are keyword arguments and have a setter and a getter. `metrics` are functions of (output,
    label); `callbacks` are called with (epoch, logs, model, optimizer) after each epoch, on every rank.
    """

    _PREFIX = "pytorch"

    def _check_model(self, columns: Columns) -> None:
        values = self._values()
        if values.loss is not None and values.loss_constructors is not None:
            raise ValueError("only one of loss_constructors and loss parameters can be specified.")
        if values.loss is None and values.loss_constructors is None:
            raise ValueError("one of the parameters loss and loss_constructors is required")
        if values.optimizer is None:
            raise ValueError("Optimizer parameter is required")
        if values.backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        if values.input_shapes:
            sizes = [_size(shape) for shape in values.input_shapes]
            check_sizes("Feature", values.feature_cols, columns, sizes, "input")

    def _run(self, backend: Backend, common: Dict[str, Any]) -> Tuple[Any, Any]:
        import cloudpickle

        values = self._values()
        spec = TorchSpec(
            **common,
            model_and_optimizer=cloudpickle.dumps(tied_copies(values.model, values.optimizer)),
            losses=values.loss,
            loss_constructors=values.loss_constructors,
            input_shapes=values.input_shapes,
            train_minibatch_fn=values.train_minibatch_fn,
        )
        result: Tuple[Any, Any] = backend.run(train, args=(spec,))[0]
        return result

    def _make_model(self, history: Any, trained: Any, run_id: str, dataset: Dataset) -> TorchModel:
        values = self._values()
        model, optimizer = tied_copies(values.model, values.optimizer)
        state = torch.load(io.BytesIO(trained), map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return TorchModel(
            history=history,
            model=model,
            optimizer=optimizer,
            loss=values.loss,
            loss_constructors=values.loss_constructors,
            input_shapes=values.input_shapes,
            feature_columns=values.feature_cols,
            label_columns=values.label_cols,
            run_id=run_id,
            _metadata=dataset.columns,
        )

    def _default_data_module(self) -> Type[DataModule]:
        return TorchParquetDataModule


def _size(shape: Any) -> Optional[int]:
    size = 1
    for number in shape[1:] if shape and shape[0] == -1 else shape:
        size *= number
    return size if size >= 0 else None
