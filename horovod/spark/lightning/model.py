# SPDX-License-Identifier: Apache-2.0
"""The trained LightningModule (or plain module) that transforms DataFrames: as that of TorchEstimator."""

from __future__ import annotations

from horovod.spark.torch.model import TorchModel as _TorchModel


class TorchModel(_TorchModel):
    """What TorchEstimator.fit of horovod.spark.lightning returns. `getModel()` is the module."""
