# SPDX-License-Identifier: Apache-2.0
"""From the columns of a batch to what a PyTorch model and its losses want."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import torch

Shapes = Optional[Sequence[Sequence[int]]]


def feature_dtypes(model: torch.nn.Module) -> Dict[str, torch.dtype]:
    """By kind of column ("f" or "i"): the types in which features go into a model.

    Numbers are cast to the type of the model's parameters; integers too, unless it looks some up in a table.
    """
    floating = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    looks_up = any(isinstance(module, tables) for module in model.modules())
    return {"f": floating, "i": torch.int64 if looks_up else floating}


def inputs_of(arrays: Sequence[Any], dtypes: Dict[str, torch.dtype], shapes: Shapes) -> List[torch.Tensor]:
    """Features, one for each input of the model."""
    tensors = [torch.as_tensor(array) for array in arrays]
    cast = [t.to(dtypes["f" if t.is_floating_point() else "i"]) for t in tensors]
    return _shaped(cast, shapes)


def labels_of(arrays: Sequence[Any], floating: torch.dtype, shapes: Shapes) -> List[torch.Tensor]:
    """Labels: numbers of the model's type, or classes as int64."""
    tensors = [torch.as_tensor(array) for array in arrays]
    cast = [t.to(floating if t.is_floating_point() else torch.int64) for t in tensors]
    return _shaped(cast, shapes)


def _shaped(tensors: List[torch.Tensor], shapes: Shapes) -> List[torch.Tensor]:
    if not shapes:
        return tensors
    return [t.reshape(_whole(shape)) for t, shape in zip(tensors, shapes)]


def _whole(shape: Sequence[int]) -> List[int]:
    """The shape of a batch: [2] and [-1, 2] mean the same."""
    return list(shape) if shape and shape[0] == -1 else [-1, *shape]


def outputs_of(result: Any) -> List[torch.Tensor]:
    """What a model returned, one for each output."""
    return list(result) if isinstance(result, (list, tuple)) else [result]


def matched(outputs: List[torch.Tensor], labels: List[torch.Tensor]) -> List[torch.Tensor]:
    """Labels in the shape of the outputs where only that differs: (n,) for an output of (n, 1)."""
    return [
        label.reshape(output.shape) if label.numel() == output.numel() else label
        for output, label in zip(outputs, labels)
    ]


def numpy_type(dtype: torch.dtype) -> Any:
    """The type of an array that becomes a tensor of this type without a copy, if there is one."""
    return np.dtype("float32") if dtype == torch.bfloat16 else torch.empty(0, dtype=dtype).numpy().dtype


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """On the host; NumPy has no bfloat16."""
    tensor = tensor.detach().cpu()
    array: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array
