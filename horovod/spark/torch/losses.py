# SPDX-License-Identifier: Apache-2.0
"""The loss of a batch: one function for each output, with weights for outputs and for rows."""

from __future__ import annotations

import copy
from typing import Any, Callable, List, Optional, Sequence

import torch

from horovod.spark.torch.forms import matched

LossFunction = Callable[..., torch.Tensor]


def one_for_each(losses: Any, count: int) -> List[Any]:
    """A single loss serves all outputs."""
    several = list(losses) if isinstance(losses, (list, tuple)) else [losses] * count
    if len(several) != count:
        raise ValueError(f"{len(several)} losses for {count} label columns")
    return several


class Loss:
    """Sum of the losses of the outputs, each times its weight.

    Args:
        functions: for each output, e.g. torch.nn.functional.mse_loss or torch.nn.MSELoss().
        weights: of the outputs; equal ones that add up to 1 by default.
    """

    def __init__(self, functions: Sequence[LossFunction], weights: Optional[Sequence[float]]) -> None:
        self._functions = list(functions)
        self._weights = list(weights) if weights else [1 / len(self._functions)] * len(self._functions)

    def __call__(
        self,
        outputs: List[torch.Tensor],
        labels: List[torch.Tensor],
        sample_weights: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        total = torch.zeros((), device=outputs[0].device)
        for function, output, label, weight in zip(
            self._functions, outputs, matched(outputs, labels), self._weights
        ):
            if sample_weights is None:
                loss = function(output, label)
            else:
                by_row = _unreduced(function)(output, label)
                by_row = by_row.reshape(len(by_row), -1).mean(1)
                loss = (by_row * sample_weights.reshape(-1).to(by_row.dtype)).mean()
            total = total + weight * loss
        return total


def _unreduced(function: Any) -> LossFunction:
    """The same loss for each row by itself."""
    if isinstance(function, torch.nn.Module):
        if not hasattr(function, "reduction"):
            raise ValueError(f"with sample weights a loss must have a `reduction`; {function} has none")
        function = copy.copy(function)
        function.reduction = "none"
        return function  # type: ignore[no-any-return]
    return lambda output, label: function(output, label, reduction="none")
