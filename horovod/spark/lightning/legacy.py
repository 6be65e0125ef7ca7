# SPDX-License-Identifier: Apache-2.0
"""A plain torch.nn.Module with its loss and optimizer, as a LightningModule."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

import lightning.pytorch as pl
import torch

from horovod.spark.torch import forms
from horovod.spark.torch.losses import Loss
from horovod.spark.torch.metrics import measure


class LegacyModule(pl.LightningModule):
    """Steps over batches by column name; logs `loss` and `val_loss`."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any,
        losses: Sequence[Any],
        loss_weights: Optional[Sequence[float]],
        feature_cols: Sequence[str],
        label_cols: Sequence[str],
        sample_weight_col: Optional[str],
        input_shapes: forms.Shapes,
        label_shapes: forms.Shapes,
        metrics: Sequence[Any],
    ) -> None:
        super().__init__()
        self.model = model
        self._given = optimizer
        self._loss = Loss(losses, loss_weights)
        self._features = feature_cols
        self._labels = label_cols
        self._weight = sample_weight_col
        self._input_shapes = input_shapes
        self._label_shapes = label_shapes
        self._metrics = metrics
        self._dtypes = forms.feature_dtypes(model)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.model(*inputs)

    def configure_optimizers(self) -> Any:
        return self._given

    def training_step(self, batch: Dict[str, Any], batch_idx: int) -> torch.Tensor:
        return self._step(batch, "")

    def validation_step(self, batch: Dict[str, Any], batch_idx: int) -> torch.Tensor:
        return self._step(batch, "val_")

    def _step(self, batch: Dict[str, Any], prefix: str) -> torch.Tensor:
        inputs = forms.inputs_of([batch[name] for name in self._features], self._dtypes, self._input_shapes)
        labels = forms.labels_of(
            [batch[name] for name in self._labels], self._dtypes["f"], self._label_shapes
        )
        outputs = forms.outputs_of(self(*inputs))
        loss = self._loss(outputs, labels, batch[self._weight] if self._weight else None)
        rows = len(inputs[0])
        self.log(f"{prefix}loss", loss, batch_size=rows, on_step=False, on_epoch=True)
        for name, value in measure(self._metrics, self._labels, outputs, labels).items():
            self.log(prefix + name, value, batch_size=rows, on_step=False, on_epoch=True)
        return loss
