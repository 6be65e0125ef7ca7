# SPDX-License-Identifier: Apache-2.0
"""The Lightning estimator: fit a LightningModule, or a plain module, on a DataFrame."""

from __future__ import annotations

import io
from typing import Any, Dict, Tuple, Type

import lightning.pytorch as pl
import torch

from horovod.spark.common.backend import Backend
from horovod.spark.common.datamodule import DataModule
from horovod.spark.common.estimator import HorovodEstimator
from horovod.spark.common.metadata import Columns, Dataset
from horovod.spark.common.params import Row, has_params
from horovod.spark.lightning.datamodule import TorchParquetDataModule
from horovod.spark.lightning.legacy import LegacyModule
from horovod.spark.lightning.model import TorchModel
from horovod.spark.lightning.train import LightningSpec, train
from horovod.spark.torch.losses import one_for_each
from horovod.spark.torch.tied import tied_copies

LIGHTNING = [
    Row("loss_constructors", "functions that make the losses on the ranks, for a plain module"),
    Row("input_shapes", "shapes of the inputs, where columns have another"),
    Row("num_gpus", "accepted for compatibility: a rank has one GPU, or none"),
    Row("logger", "loggers of Lightning, or False for none"),
    Row("log_every_n_steps", "how often they get something", 50),
    Row("loader_num_epochs", "accepted for compatibility: the reader has no end"),
    Row("terminate_on_nan", "end with an error when the loss is not a number", False),
    Row("profiler", "a profiler of Lightning"),
    Row("trainer_args", "further arguments of Lightning's Trainer"),
    Row("debug_data_loader", "accepted for compatibility", False),
    Row("train_async_data_loader_queue_size", "batches that a thread prepares ahead"),
    Row("val_async_data_loader_queue_size", "the same for validation"),
]


@has_params(LIGHTNING)
class TorchEstimator(HorovodEstimator):
    """Trains a LightningModule on a DataFrame; batches are dictionaries of tensors by column name.

    A plain torch.nn.Module is taken, too, with `loss` and `optimizer` as for horovod.spark.torch. All
    parameters are keyword arguments and have a setter and a getter.
    """

    _PREFIX = "pytorch"

    def _check_model(self, columns: Columns) -> None:
        values = self._values()
        if not isinstance(values.model, pl.LightningModule):
            if any(base.__name__ == "LightningModule" for base in type(values.model).__mro__):
                raise ValueError(
                    "the model is a LightningModule of another package: derive it from "
                    "lightning.pytorch.LightningModule"
                )
            if values.loss is not None and values.loss_constructors is not None:
                raise ValueError("only one of loss_constructors and loss parameters can be specified.")
            if (values.loss is None and values.loss_constructors is None) or values.optimizer is None:
                raise ValueError("a plain module needs the parameters loss and optimizer")
            return
        for name, where in (
            ("optimizer", "Implement `LightningModule.configure_optimizers` instead."),
            ("loss", "Implement `LightningModule.training_step` instead."),
            ("loss_weights", "Implement `LightningModule.training_step` instead."),
        ):
            if getattr(values, name) is not None:
                raise ValueError(f"Parameter `{name}` cannot be specified with a `LightningModule`. {where}")

    def _maker(self) -> Any:
        """A function of (model, optimizer) that makes the LightningModule."""
        values = self._values()
        if isinstance(values.model, pl.LightningModule):
            return _as_it_is
        count = len(values.label_cols)
        constructors = values.loss_constructors and one_for_each(values.loss_constructors, count)
        losses = None if constructors else one_for_each(values.loss, count)
        options = {
            "loss_weights": values.loss_weights,
            "feature_cols": values.feature_cols,
            "label_cols": values.label_cols,
            "sample_weight_col": values.sample_weight_col,
            "input_shapes": values.input_shapes,
            "label_shapes": values.label_shapes,
            "metrics": values.metrics,
        }

        def make(model: Any, optimizer: Any) -> pl.LightningModule:
            functions = losses or [construct() for construct in constructors]
            return LegacyModule(model, optimizer, functions, **options)

        return make

    def _run(self, backend: Backend, common: Dict[str, Any]) -> Tuple[Any, Any]:
        import cloudpickle

        values = self._values()
        logger = {} if values.logger is None else {"logger": values.logger}
        trainer_args = {
            "log_every_n_steps": values.log_every_n_steps,
            "profiler": values.profiler,
            "logger": False,
            **logger,
            **(values.trainer_args or {}),
        }
        spec = LightningSpec(
            **common,
            model_and_optimizer=cloudpickle.dumps(tied_copies(values.model, values.optimizer)),
            make_module=self._maker(),
            trainer_args=trainer_args,
            terminate_on_nan=values.terminate_on_nan,
            train_prefetch=values.train_async_data_loader_queue_size or 0,
        )
        result: Tuple[Any, Any] = backend.run(train, args=(spec,))[0]
        return result

    def _make_model(self, history: Any, trained: Any, run_id: str, dataset: Dataset) -> TorchModel:
        import cloudpickle

        values = self._values()
        # A copy: what was given to the estimator stays as it was.
        model = cloudpickle.loads(cloudpickle.dumps(values.model))
        state = torch.load(io.BytesIO(trained), map_location="cpu")
        whole = model if isinstance(model, pl.LightningModule) else torch.nn.ModuleDict({"model": model})
        whole.load_state_dict(state)
        return TorchModel(
            history=history,
            model=model,
            input_shapes=values.input_shapes,
            feature_columns=values.feature_cols,
            label_columns=values.label_cols,
            run_id=run_id,
            _metadata=dataset.columns,
        )

    def _default_data_module(self) -> Type[DataModule]:
        return TorchParquetDataModule


def _as_it_is(model: Any, optimizer: Any) -> pl.LightningModule:
    return model
