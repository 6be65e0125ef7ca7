# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator: fit a Keras model on a DataFrame."""

from __future__ import annotations

from typing import Any, Dict, Tuple, Type

from horovod.spark.common.backend import Backend
from horovod.spark.common.datamodule import DataModule
from horovod.spark.common.estimator import HorovodEstimator, check_sizes
from horovod.spark.common.metadata import Columns, Dataset
from horovod.spark.common.params import Row, has_params
from horovod.spark.keras import serialization
from horovod.spark.keras.datamodule import KerasParquetDataModule
from horovod.spark.keras.flavour import Flavour
from horovod.spark.keras.forms import sizes_of
from horovod.spark.keras.model import KerasModel
from horovod.spark.keras.train import KerasSpec, metric_arguments, restore_variables, train

KERAS = [
    Row("custom_objects", "classes and functions by name that are needed to load the model", {}),
    Row("checkpoint_callback", "a ModelCheckpoint of yours, e.g. BestModelCheckpoint, instead of ours"),
    Row("backend_env", "variables for the ranks", {"LIBHDFS_OPTS": "-Xms2048m -Xmx2048m"}),
]


@has_params(KERAS)
class KerasEstimator(HorovodEstimator):
    """Trains a Keras model on a DataFrame: Keras 3 on any backend, or tf_keras.

    All parameters are keyword arguments and have a setter and a getter. Every feature column goes into an
    input of the model, in order, and every label column belongs to an output.
    """

    _PREFIX = "keras"

    def _check_model(self, columns: Columns) -> None:
        values = self._values()
        Flavour.of(values.model)
        if values.optimizer is None and getattr(values.model, "optimizer", None) is None:
            raise ValueError(
                "Optimizer must be provided either as a parameter or as part of a compiled model"
            )
        if self._loss() is None:
            raise ValueError("Loss parameter is required for the model to compile")
        inputs = sizes_of(getattr(values.model, "inputs", None))
        outputs = sizes_of(getattr(values.model, "outputs", None))
        if inputs:
            check_sizes("Feature", values.feature_cols, columns, inputs, "input")
        if outputs and values.label_shapes is None:
            if "sparse" in str(self._loss()).lower():  # the labels are the numbers of the classes
                outputs = [None] * len(outputs)
            check_sizes("Label", values.label_cols, columns, outputs, "output")

    def _loss(self) -> Any:
        values = self._values()
        return values.loss if values.loss is not None else getattr(values.model, "loss", None)

    def _optimizer(self) -> Any:
        values = self._values()
        return values.optimizer if values.optimizer is not None else values.model.optimizer

    def _backend_options(self) -> Dict[str, Any]:
        return {"env": self._values().backend_env}

    def _run(self, backend: Backend, common: Dict[str, Any]) -> Tuple[Any, Any]:
        import cloudpickle

        values = self._values()
        flavour = Flavour.of(values.model)
        common["metrics"] = serialization.portable(values.metrics)
        spec = KerasSpec(
            **common,
            model=serialization.dump_model(values.model),
            custom_objects=values.custom_objects,
            optimizer=serialization.portable(self._optimizer()),
            loss=serialization.portable(self._loss()),
            checkpoint_callback=values.checkpoint_callback,
            tf_prefetch=values.tensorflow_dataset_prefetch_buffer_size,
        )
        arguments = (cloudpickle.dumps(spec), flavour, values.use_gpu)
        result: Tuple[Any, Any] = backend.run(train, args=arguments, env=flavour.env)[0]
        return result

    def _make_model(self, history: Any, trained: Any, run_id: str, dataset: Dataset) -> KerasModel:
        values = self._values()
        flavour = Flavour.of(values.model)
        model = serialization.load_model(trained, flavour, values.custom_objects)
        self._compile(model, flavour, trained)
        return KerasModel(
            history=history,
            model=model,
            feature_columns=values.feature_cols,
            label_columns=values.label_cols,
            custom_objects=values.custom_objects,
            run_id=run_id,
            _metadata=dataset.columns,
            _floatx=flavour.floatx,
        )

    def _compile(self, model: Any, flavour: Flavour, trained: bytes) -> None:
        """As it was for one process, with the optimizer's state of the end."""
        values, keras = self._values(), flavour.load()
        optimizer = keras.optimizers.get(serialization.restored(serialization.portable(self._optimizer())))
        facts = serialization.facts_of(trained)
        if facts is not None:
            rate, _ = serialization.optimizer_variables(optimizer)
            if rate is not None and facts.learning_rate is not None:
                rate.assign(facts.learning_rate)
            restore_variables(optimizer, model, facts)
        model.compile(
            optimizer=optimizer,
            loss=serialization.restored(serialization.portable(self._loss())),
            loss_weights=values.loss_weights,
            **metric_arguments(
                serialization.restored(serialization.portable(values.metrics)), bool(values.sample_weight_col)
            ),
        )

    def _default_data_module(self) -> Type[DataModule]:
        return KerasParquetDataModule

    def _portable(self, name: str, value: Any) -> Any:
        return KerasModel.portable_param(name, value)

    def _restored(self, name: str, value: Any, values: Dict[str, Any]) -> Any:
        return KerasModel.restored_param(name, value, values)
