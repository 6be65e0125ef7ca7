# SPDX-License-Identifier: Apache-2.0
"""Lightning on several ranks: ``Trainer(strategy=HorovodStrategy(), devices=1)``, started by any launcher."""

from __future__ import annotations

from horovod.lightning.strategy import HorovodStrategy

__all__ = ["HorovodStrategy"]
