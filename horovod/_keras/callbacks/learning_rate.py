# SPDX-License-Identifier: Apache-2.0
"""Learning rates that follow the epoch: schedules, and the warm-up of large batches."""

from __future__ import annotations

import math
from typing import Any, Callable, Optional, Union

from horovod._keras import variables
from horovod._keras.callbacks.base import AnyKeras, Logs
from horovod.common.basics import basics as _basics


class LearningRateScheduleCallback(AnyKeras):
    """Sets the learning rate to initial_lr * multiplier(epoch) between two epochs.

    Args:
        initial_lr: the rate to start from.
        multiplier: a function of the epoch, or a number m, meaning m ** (epoch - start_epoch).
        start_epoch: first epoch to adjust.
        end_epoch: first epoch not to adjust any more.
        staircase: once an epoch; else every batch, with fractions of epochs.
        momentum_correction: scale momentum with the rate for the batch in which it changes.
        steps_per_epoch: batches in an epoch; found out when not given.
    """

    def __init__(
        self,
        initial_lr: Optional[float],
        multiplier: Union[float, Callable[[float], float]],
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr: Any = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.restore_momentum: Optional[float] = None
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            base = float(multiplier)
            self.multiplier = lambda epoch: base ** (epoch - self.start_epoch)

    @property
    def _optimizer(self) -> Any:
        return self.model.optimizer  # type: ignore[attr-defined]

    def on_train_begin(self, logs: Logs = None) -> None:
        """Finds out how many steps an epoch has."""
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._detect_steps()

    def _detect_steps(self) -> int:
        params = self.params or {}  # type: ignore[attr-defined]
        if params.get("steps"):
            return int(params["steps"])
        if params.get("samples") and params.get("batch_size"):
            return int(params["samples"]) // int(params["batch_size"])
        raise ValueError(
            "Could not autodetect the number of steps per epoch. Please specify the steps_per_epoch "
            f"parameter to the {type(self).__name__}()."
        )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Remembers the epoch."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Sets the rate for this batch."""
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if self.staircase and batch == 0:
            self._adjust(epoch)
        elif not self.staircase:
            self._adjust(epoch + float(batch) / (self.steps_per_epoch or 1))

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Brings the momentum back."""
        if self.restore_momentum is not None:
            _set(self._optimizer, "momentum", self.restore_momentum)
            self.restore_momentum = None

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Reports the rate as `lr`."""
        if logs is not None:
            logs["lr"] = _get(self._optimizer, "learning_rate")

    def _adjust(self, epoch: float) -> None:
        old = _get(self._optimizer, "learning_rate")
        new = float(self.initial_lr) * self.multiplier(epoch)
        _set(self._optimizer, "learning_rate", new)
        if self.momentum_correction and old and self._momentum_can_change():
            # Accumulated momentum was built at the old rate (Goyal et al. 2017, section 3).
            self.restore_momentum = _get(self._optimizer, "momentum")
            _set(self._optimizer, "momentum", self.restore_momentum * new / old)

    def _momentum_can_change(self) -> bool:
        """Keras 3 keeps momentum as a number that a compiled step holds as a constant: changing it there
        would either do nothing or be compiled in for good."""
        if not hasattr(self._optimizer, "momentum"):
            return False
        if not variables.is_keras3(self._optimizer):
            return hasattr(self._optimizer, "_hyper")
        from horovod._keras.backends import keras_backend

        return keras_backend() == "torch" or bool(self.model.run_eagerly)  # type: ignore[attr-defined]


def _get(optimizer: Any, name: str) -> float:
    value = getattr(optimizer, name)
    return float(variables.read([value])[0] if hasattr(value, "assign") else value)


def _set(optimizer: Any, name: str, value: float) -> None:
    setattr(optimizer, name, value)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the rate from initial_lr / size to initial_lr over the first epochs.

    Args:
        initial_lr: the rate to reach, already scaled by the number of ranks; the optimizer's by default.
        warmup_epochs: how many epochs it takes.
        momentum_correction: as in LearningRateScheduleCallback.
        steps_per_epoch: batches in an epoch; found out when not given.
        verbose: 1 to print when it is done.
    """

    def __init__(
        self,
        initial_lr: Optional[float] = None,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # The rate of a batch is the one reached at its end, so the last batch has the full rate.
            epoch = min(epoch + 1.0 / (self.steps_per_epoch or 1), warmup_epochs)
            size = _basics.size()
            return 1.0 / size * (epoch * (size - 1) / warmup_epochs + 1)

        super().__init__(
            0.0 if initial_lr is None else initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=math.ceil(warmup_epochs),
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        if initial_lr is None:
            self.initial_lr = None
        self.verbose = verbose

    def on_train_begin(self, logs: Logs = None) -> None:
        """Takes the optimizer's rate as the target, if none was given."""
        super().on_train_begin(logs)
        if self.initial_lr is None:
            self.initial_lr = _get(self._optimizer, "learning_rate")

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Reports the end of the warm-up."""
        super().on_epoch_end(epoch, logs)
        if epoch == (self.end_epoch or 0) - 1 and self.verbose > 0 and _basics.rank() == 0:
            print(
                f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to "
                f"{_get(self._optimizer, 'learning_rate'):g}."
            )
