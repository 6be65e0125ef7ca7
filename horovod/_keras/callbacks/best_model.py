# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of the best model only."""

from __future__ import annotations

from typing import Any, Optional


class BestModelCheckpoint:
    """ModelCheckpoint that keeps the best model only.

    Args:
        monitor: the metric to look at.
        verbose: 1 to print when it saves.
        save_weights_only: leave the architecture and the optimizer out.
        mode: "min", "max" or "auto".
        save_freq: "epoch" or a number of batches.
        filepath: where to; may also be set later, before training.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: Optional[str] = None,
    ) -> None:
        placeholder = "best.weights.h5" if save_weights_only else "best.keras"
        super().__init__(  # type: ignore[call-arg]
            filepath=filepath or placeholder,
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = filepath
