# SPDX-License-Identifier: Apache-2.0
"""TorchModel: a trained PyTorch model that transforms DataFrames."""

from __future__ import annotations

from typing import Any, Callable, List

import numpy as np
import torch

from horovod.spark.common.model import HorovodModel, Predict
from horovod.spark.common.params import Row, has_params
from horovod.spark.torch import forms

TORCH_MODEL = [
    Row("optimizer", "the optimizer with the state it had at the end"),
    Row("loss", "the loss that was trained with"),
    Row("loss_constructors", "functions that make it"),
    Row("input_shapes", "shapes of the inputs"),
]


@has_params(TORCH_MODEL)
class TorchModel(HorovodModel):
    """What TorchEstimator.fit returns. `getModel()` is the torch.nn.Module."""

    def _loader(self) -> Callable[[], Predict]:
        import cloudpickle

        values = self._values()
        return _Loader(cloudpickle.dumps(values.model), values.input_shapes)


class _Loader:
    def __init__(self, model: bytes, shapes: Any) -> None:
        self._model = model
        self._shapes = shapes

    def __call__(self) -> Predict:
        import cloudpickle

        model = cloudpickle.loads(self._model).eval()
        dtypes = forms.feature_dtypes(model)

        def predict(features: List[np.ndarray]) -> List[np.ndarray]:
            with torch.no_grad():
                outputs: Any = model(*forms.inputs_of(features, dtypes, self._shapes))
            return [forms.to_numpy(output) for output in forms.outputs_of(outputs)]

        return predict
