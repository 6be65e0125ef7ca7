# SPDX-License-Identifier: Apache-2.0
"""From the columns of a batch to what a Keras model wants: (inputs, labels) or (inputs, labels, weights)."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np


def sizes_of(tensors: Optional[Sequence[Any]]) -> List[Optional[int]]:
    """Numbers in a row of each input or output of a model; None where it is open."""
    return [_size(tensor.shape[1:]) for tensor in tensors or ()]


def _size(shape: Sequence[Any]) -> Optional[int]:
    return None if any(number is None for number in shape) else int(np.prod(list(shape), dtype=np.int64))


class Inputs:
    """Feature columns in the shapes and types of a model's inputs; one array, or a tuple of several."""

    def __init__(self, model: Any, floatx: str) -> None:
        tensors = getattr(model, "inputs", None) or ()
        self._shapes = [tuple(tensor.shape[1:]) for tensor in tensors]
        self._types = [_name_of(tensor.dtype) for tensor in tensors]
        self._floatx = floatx

    def __call__(self, arrays: Sequence[np.ndarray]) -> Any:
        made = [self._one(i, array) for i, array in enumerate(arrays)]
        return made[0] if len(made) == 1 else tuple(made)

    def _one(self, i: int, array: np.ndarray) -> np.ndarray:
        if i >= len(self._shapes):  # a model that is not built yet
            return array.astype(self._floatx) if array.dtype.kind == "f" else array
        shape = self._shapes[i]
        if _size(shape) == _size(array.shape[1:]):
            array = array.reshape(len(array), *shape)
        return array if self._types[i] == "string" else array.astype(self._types[i], copy=False)


class Examples:
    """A batch's columns as `fit` wants them."""

    def __init__(
        self,
        inputs: Inputs,
        feature_cols: Sequence[str],
        label_cols: Sequence[str],
        weight_col: Optional[str],
        label_shapes: Optional[Sequence[Sequence[int]]],
        floatx: str,
    ) -> None:
        self._inputs = inputs
        self._features = feature_cols
        self._labels = label_cols
        self._weight = weight_col
        self._label_shapes = label_shapes
        self._floatx = floatx

    def __call__(self, batch: Dict[str, np.ndarray]) -> Tuple[Any, ...]:
        inputs = self._inputs([batch[name] for name in self._features])
        labels = [self._label(i, batch[name]) for i, name in enumerate(self._labels)]
        together = (inputs, labels[0] if len(labels) == 1 else tuple(labels))
        if self._weight is None:
            return together
        weights = batch[self._weight].astype(self._floatx)
        return (*together, weights if len(labels) == 1 else (weights,) * len(labels))

    def _label(self, i: int, array: np.ndarray) -> np.ndarray:
        if self._label_shapes:
            shape = [number for number in self._label_shapes[i] if number != -1]
            array = array.reshape(len(array), *shape)
        return array.astype(self._floatx, copy=False) if array.dtype.kind == "f" else array


def _name_of(dtype: Any) -> str:
    """E.g. "float32", for Keras 3 (text) and TensorFlow (an object)."""
    return dtype if isinstance(dtype, str) else str(dtype.name)
