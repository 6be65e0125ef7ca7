# SPDX-License-Identifier: Apache-2.0
"""KerasModel: a trained Keras model that transforms DataFrames."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple

import numpy as np

from horovod.spark.common.model import HorovodModel, Predict
from horovod.spark.common.params import Row, has_params
from horovod.spark.keras import serialization
from horovod.spark.keras.flavour import Flavour
from horovod.spark.keras.forms import Inputs, sizes_of

KERAS_MODEL = [
    Row("custom_objects", "classes and functions by name that are needed to load the model", {}),
    Row("_floatx", "Keras' type of floating-point numbers", "float32", method="_floatx"),
]


class SavedModel(NamedTuple):
    """A model as it is kept with a KerasModel or KerasEstimator."""

    data: bytes
    flavour: Flavour


@has_params(KERAS_MODEL)
class KerasModel(HorovodModel):
    """What KerasEstimator.fit returns. `getModel()` is the Keras model."""

    def _loader(self) -> Callable[[], Predict]:
        values = self._values()
        data = serialization.dump_model(values.model)
        return _Loader(SavedModel(data, Flavour.of(values.model)), values.custom_objects)

    def _output_sizes(self) -> List[int]:
        sizes = sizes_of(getattr(self._values().model, "outputs", None))
        known = [size for size in sizes if size is not None]
        return known if sizes and len(known) == len(sizes) else super()._output_sizes()

    def _portable(self, name: str, value: Any) -> Any:
        return self.portable_param(name, value)

    def _restored(self, name: str, value: Any, values: Dict[str, Any]) -> Any:
        return self.restored_param(name, value, values)

    @staticmethod
    def portable_param(name: str, value: Any) -> Any:
        """A parameter's value in a form that can be pickled."""
        if name == "model":
            return SavedModel(serialization.dump_model(value), Flavour.of(value))
        return serialization.portable(value) if name in ("optimizer", "loss", "metrics") else value

    @staticmethod
    def restored_param(name: str, value: Any, values: Dict[str, Any]) -> Any:
        """The opposite."""
        if name == "model":
            return serialization.load_model(value.data, value.flavour, values.get("custom_objects"))
        return serialization.restored(value) if name in ("optimizer", "loss", "metrics") else value


class _Loader:
    def __init__(self, saved: SavedModel, custom_objects: Dict[str, Any]) -> None:
        self._saved = saved
        self._custom_objects = custom_objects

    def __call__(self) -> Predict:
        flavour = self._saved.flavour
        model = serialization.load_model(self._saved.data, flavour, self._custom_objects)
        inputs = Inputs(model, flavour.floatx)

        def predict(features: List[np.ndarray]) -> List[np.ndarray]:
            outputs = model.predict_on_batch(inputs(features))
            several = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            return [np.asarray(output) for output in several]

        return predict
