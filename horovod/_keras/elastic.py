# SPDX-License-Identifier: Apache-2.0
"""Elastic training of Keras models: the state, and callbacks that keep it."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from horovod._keras import variables
from horovod._keras.callbacks import AnyKeras
from horovod.common import objects
from horovod.common.basics import basics as _basics
from horovod.common.elastic import ObjectState

Logs = Optional[Dict[str, Any]]


class KerasState(ObjectState):
    """State of a Keras model and its optimizer, and of whatever is given by keyword.

    Args:
        model: a built Keras model of any version and backend.
        optimizer: its optimizer; `model.optimizer` by default.
        **kwargs: further values to keep, e.g. batch=0, epoch=0.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        self._values: List[Any] = []
        self._save_model()
        super().__init__(bcast_object=objects.broadcast_object, get_rank=_basics.rank, **kwargs)

    def _variables(self) -> List[Any]:
        if hasattr(self.model, "jax_state_sync"):  # on JAX, `fit` keeps the values elsewhere
            self.model.jax_state_sync()
        optimizer = [] if self.optimizer is None else variables.of(self.optimizer)
        return list({id(v): v for v in [*variables.of(self.model), *optimizer]}.values())

    def _save_model(self) -> None:
        self._values = [(v, variables.to_numpy(v)) for v in self._variables()]

    def save(self) -> None:
        """Keeps the current values."""
        self._save_model()
        super().save()

    def restore(self) -> None:
        """Brings the kept values back."""
        for variable, value in self._values:
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the values of rank 0, and keeps them."""
        variables.broadcast(self._variables(), root_rank=0)
        self._save_model()
        super().sync()

    def snapshot(self) -> Any:
        """What was kept, for `checkpoint`."""
        return {"variables": [value for _, value in self._values], "values": super().snapshot()}

    def load_snapshot(self, snapshot: Any) -> None:
        """Takes what `snapshot` gave."""
        self._values = list(zip(self._variables(), snapshot["variables"]))
        super().load_snapshot(snapshot["values"])
        self.restore()


class CommitStateCallback(AnyKeras):
    """Commits the state every `batches_per_commit` batches and at the end of each epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Logs = None) -> None:
        """Starts counting anew: training may have been interrupted."""
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Commits on every N-th batch."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Commits."""
        self.state.commit()


class UpdateBatchStateCallback(AnyKeras):
    """Keeps `state.batch`; an interrupted epoch is shortened by the batches already done."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.steps_per_epoch: Optional[int] = None
        self._done_before = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        """Forgets the number of steps: it may be another one now."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Shortens this epoch by the batches done before, which count when it is interrupted again."""
        self._done_before = self.state.batch
        params = self.params or {}  # type: ignore[attr-defined]
        if params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = params["steps"]
            params["steps"] = self.steps_per_epoch - self.state.batch

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts."""
        self.state.batch = self._done_before + batch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """The next epoch starts at its first batch."""
        self.state.batch = 0


class UpdateEpochStateCallback(AnyKeras):
    """Keeps `state.epoch`, counted over restarts."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = self.state.epoch
        self._first: Optional[int] = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Remembers how many epochs were done before this `fit`."""
        self.initial_epoch = self.state.epoch
        self._first = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Epochs of `fit` count from 0, or from its initial_epoch."""
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """One more is done."""
        self.state.epoch = self.initial_epoch + epoch - (self._first or 0) + 1
