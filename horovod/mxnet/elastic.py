# SPDX-License-Identifier: Apache-2.0
"""Elastic training with MXNet: state that survives a change of workers, and the loop around the training."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, Dict, Optional, Tuple

import mxnet as mx

from horovod.common.basics import basics
from horovod.common.elastic import checkpoint, run_fn
from horovod.common.lazy_state import LazyState
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


class MXNetState(LazyState):
    """The state of a training with Gluon; every argument becomes an attribute.

    MXNet copies parameters behind the operations that make them, so a commit does not wait for the step; the
    state of an optimizer that has any is read, which does wait.

    Args:
        params: a block, or its `collect_params()`; initialised.
        trainer: a `gluon.Trainer`, whose optimizer's state is kept too; or None.
        kwargs: whatever else must be kept: the epoch, the batch, ...
    """

    def __init__(self, params: Any, trainer: Optional[Any] = None, **kwargs: Any) -> None:
        self.params = params.collect_params() if hasattr(params, "collect_params") else params
        self.trainer = trainer
        super().__init__(bcast_object=broadcast_object, get_rank=basics.rank, **kwargs)

    def copy_arrays(self) -> Tuple[Dict[str, Any], bytes]:
        """Copies of the parameters, and the optimizer's state."""
        return {
            name: self.params[name].data().copy() for name in self.params.keys()
        }, self._optimizer_states()

    def wait_for(self, arrays: Tuple[Dict[str, Any], bytes]) -> None:
        """Waits for copies."""
        for value in arrays[0].values():
            value.wait_to_read()

    def bring_back(self, arrays: Tuple[Dict[str, Any], bytes]) -> None:
        """Makes copies the current values."""
        for name, value in arrays[0].items():
            self.params[name].set_data(value)
        self._restore_optimizer(arrays[1])

    def sync_arrays(self) -> None:
        """Gives every rank the parameters and the optimizer's state of rank 0."""
        broadcast_parameters(self.params, root_rank=0)
        self._restore_optimizer(broadcast_object(self._optimizer_states(), name="elastic.optimizer"))

    def reset(self) -> None:
        """The job has new ranks: gradients are averaged over them."""
        if hasattr(self.trainer, "adapt"):
            self.trainer.adapt()

    def snapshot(self) -> Any:
        """What was kept, for `checkpoint`."""
        (params, optimizer), values = self._newest
        kept = {name: value.asnumpy() for name, value in params.items()}
        return {"params": kept, "optimizer": optimizer, "values": dict(values)}

    def load_snapshot(self, snapshot: Any) -> None:
        """Takes what `snapshot` gave."""
        params = snapshot["params"].items()
        arrays = {name: mx.nd.array(value, dtype=value.dtype) for name, value in params}
        self.bring_back((arrays, snapshot["optimizer"]))
        super().load_snapshot(snapshot["values"])
        self._newest = self._good = self._copies()

    def _optimizer_states(self) -> bytes:
        if self.trainer is None:
            return b""
        with tempfile.TemporaryDirectory() as folder:  # a trainer knows files only
            path = os.path.join(folder, "states")
            self.trainer.save_states(path)
            with open(path, "rb") as file:
                return file.read()

    def _restore_optimizer(self, states: bytes) -> None:
        if self.trainer is None or not states:
            return
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "states")
            with open(path, "wb") as file:
                file.write(states)
            self.trainer.load_states(path)
