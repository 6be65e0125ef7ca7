# SPDX-License-Identifier: Apache-2.0
"""Metrics: functions of (output, label), one value for each output."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

import torch

from horovod.spark.torch.forms import matched


def measure(
    functions: Sequence[Callable[[torch.Tensor, torch.Tensor], Any]],
    columns: Sequence[str],
    outputs: List[torch.Tensor],
    labels: List[torch.Tensor],
) -> Dict[str, Any]:
    """The metrics of a batch by name: "accuracy", or "<column>_accuracy" if there are several outputs."""
    values = {}
    for function in functions:
        name = str(getattr(function, "__name__", type(function).__name__))
        for column, output, label in zip(columns, outputs, matched(outputs, labels)):
            full = f"{column}_{name}" if len(outputs) > 1 else name
            values[full] = function(output.detach(), label)
    return values
