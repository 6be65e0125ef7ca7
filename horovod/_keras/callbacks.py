# SPDX-License-Identifier: Apache-2.0
"""What the callbacks do; the callbacks modules of the two front ends give them their Keras' base class.

They run in any Keras: version 3 on any backend, and version 2.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Union

import numpy as np

from horovod._keras import jit, variables
from horovod.common import objects
from horovod.common.basics import basics as _basics

Logs = Optional[Dict[str, Any]]


def with_base(behaviour: type, base: type, module: str) -> Any:
    """A behaviour as a callback of one Keras, known by its name in that front end's module.

    Args:
        behaviour: a class of this module, e.g. MetricAverageCallback.
        base: keras.callbacks.Callback, or a class derived from it.
        module: where users and pickle find the result.
    """
    return type(behaviour.__name__, (behaviour, base), {"__doc__": behaviour.__doc__, "__module__": module})


class AnyKeras:
    """Lets a callback of Keras 3 run in the `fit` of Keras 2, which asks more of its callbacks."""

    _supports_tf_logs = False

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False


class BroadcastGlobalVariablesCallback(AnyKeras):
    """Starts all ranks with the root's weights and optimizer state.

    A model and an optimizer that have their variables are broadcast before the first batch; what is only made
    by the first batch is broadcast after it.

    Args:
        root_rank: the rank whose values are taken.
        device: accepted for compatibility.
        local_variables: variables to leave alone.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local = _list_of_variables(local_variables)

    def register_local_var(self, var: Any) -> None:
        """Leaves a variable as it is on this rank."""
        self._local.append(var)

    def set_model(self, model: Any) -> None:
        """Also keeps the model from being compiled by XLA where that cannot work."""
        super().set_model(model)  # type: ignore[misc]
        jit.avoid(model)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Broadcasts what is there."""
        if self.broadcast_done or not self.model.built:  # type: ignore[attr-defined]
            return
        self._broadcast()
        self.broadcast_done = _is_built(getattr(self.model, "optimizer", None))  # type: ignore[attr-defined]

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Broadcasts all, unless that was done before training."""
        if not self.broadcast_done:
            self._broadcast()
            self.broadcast_done = True

    def _broadcast(self) -> None:
        model = self.model  # type: ignore[attr-defined]
        optimizer = getattr(model, "optimizer", None)
        local = {id(v) for v in self._local}
        found = [*variables.of(model), *(variables.of(optimizer) if _is_built(optimizer) else [])]
        unique = list({id(v): v for v in found if id(v) not in local}.values())
        variables.broadcast(unique, self.root_rank)


def _is_built(optimizer: Any) -> bool:
    """Whether an optimizer has made its variables (or there is none)."""
    if optimizer is None:
        return True
    return bool(getattr(optimizer, "built", getattr(optimizer, "_built", False)))


def _list_of_variables(local: Any) -> List[Any]:
    if local is None:
        return []
    some = list(local) if isinstance(local, (list, tuple, set)) else [local]
    if not all(hasattr(v, "assign") for v in some):
        raise ValueError("All local variables must be of tf.Variable type.")
    return some


class MetricAverageCallback(AnyKeras):
    """Averages the metrics over all ranks at the end of each epoch.

    Args:
        device: accepted for compatibility.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Replaces every metric by its mean over the ranks."""
        if not logs or _basics.size() == 1:
            return
        mine = {name: float(value) for name, value in logs.items() if _is_number(value)}
        everybody = objects.allgather_object(mine, name="keras_metrics")
        for name in sorted(mine):
            values = [one[name] for one in everybody if name in one]
            logs[name] = float(np.mean(values))


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


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

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Sets the rate for this batch."""
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if self.staircase and batch == 0:
            self._adjust(epoch)
        elif not self.staircase:
            self._adjust(epoch + float(batch) / (self.steps_per_epoch or 1))

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
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
    return float(variables.to_numpy(value) if hasattr(value, "assign") else value)


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
            epoch += 1.0 / (self.steps_per_epoch or 1)
            size = _basics.size()
            return 1.0 / size * (epoch * (size - 1) / warmup_epochs + 1)

        super().__init__(
            0.0 if initial_lr is None else initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=int(warmup_epochs),
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
