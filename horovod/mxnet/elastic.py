# SPDX-License-Identifier: Apache-2.0
"""Elastic training with MXNet: state that survives a change of workers, and the loop around the training."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, Dict, Optional

import mxnet as mx

from horovod.common.basics import basics
from horovod.common.checkpoint import checkpoint
from horovod.common.elastic import ObjectState, run_fn
from horovod.mxnet.functions import broadcast_object, broadcast_parameters

__all__ = ["MXNetState", "checkpoint", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function `func(state, ...)` so that it goes on after failures and host changes."""
    return run_fn(func, _reset)


def _reset() -> None:
    try:
        mx.nd.waitall()
    except mx.MXNetError:
        pass  # operations that were under way when the world broke
    basics.reset()


class MXNetState(ObjectState):
    """The state of a training with Gluon; every argument becomes an attribute.

    Args:
        params: a block, or its `collect_params()`; initialised.
        trainer: a `gluon.Trainer`, whose optimizer's state is kept too; or None.
        kwargs: whatever else must be kept: the epoch, the batch, ...
    """

    def __init__(self, params: Any, trainer: Optional[Any] = None, **kwargs: Any) -> None:
        self.params = params.collect_params() if hasattr(params, "collect_params") else params
        self.trainer = trainer
        self._kept: Dict[str, Any] = {}
        self._optimizer = b""
        super().__init__(bcast_object=broadcast_object, get_rank=basics.rank, **kwargs)
        self._keep()

    def save(self) -> None:
        """Keeps the current values. MXNet copies parameters behind the operations that make them."""
        self._keep()
        super().save()

    def restore(self) -> None:
        """Brings the values last saved back."""
        for name, value in self._kept.items():
            self.params[name].set_data(value)
        self._restore_optimizer()
        super().restore()

    def sync(self) -> None:
        """Gives every rank the values of rank 0, and keeps them."""
        broadcast_parameters(self.params, root_rank=0)
        self._optimizer = broadcast_object(self._optimizer_states(), name="elastic.optimizer")
        self._restore_optimizer()
        self._keep()
        super().sync()

    def snapshot(self) -> Any:
        """What was kept, for `checkpoint`."""
        params = {name: value.asnumpy() for name, value in self._kept.items()}
        return {"params": params, "optimizer": self._optimizer, "values": super().snapshot()}

    def load_snapshot(self, snapshot: Any) -> None:
        """Takes what `snapshot` gave."""
        self._kept = {
            name: mx.nd.array(value, dtype=value.dtype) for name, value in snapshot["params"].items()
        }
        self._optimizer = snapshot["optimizer"]
        super().load_snapshot(snapshot["values"])
        self.restore()

    def _keep(self) -> None:
        self._kept = {name: self.params[name].data().copy() for name in self.params.keys()}
        self._optimizer = self._optimizer_states()

    def _optimizer_states(self) -> bytes:
        if self.trainer is None:
            return b""
        with tempfile.TemporaryDirectory() as folder:  # a trainer knows files only
            path = os.path.join(folder, "states")
            self.trainer.save_states(path)
            with open(path, "rb") as file:
                return file.read()

    def _restore_optimizer(self) -> None:
        if self.trainer is None or not self._optimizer:
            return
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "states")
            with open(path, "wb") as file:
                file.write(self._optimizer)
            self.trainer.load_states(path)
