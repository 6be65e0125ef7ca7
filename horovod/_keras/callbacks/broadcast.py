# SPDX-License-Identifier: Apache-2.0
"""All ranks start from the weights of one."""

from __future__ import annotations

from typing import Any, Iterable, List

from horovod._keras import jit, variables
from horovod._keras.callbacks.base import AnyKeras, Logs


class BroadcastGlobalVariablesCallback(AnyKeras):
    """Starts all ranks with the root's weights and optimizer state.

    That happens at the end of the first batch, when model and optimizer have all their variables, in every
    Keras: eager, compiled, or in a TF1 graph.

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
        """Leaves a variable, and what the optimizer keeps for it, as they are on this rank."""
        self._local.append(var)

    def set_model(self, model: Any) -> None:
        """Also keeps the model from being compiled by XLA where that cannot work."""
        super().set_model(model)  # type: ignore[misc]
        jit.avoid(model)

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Broadcasts, once: the first batch has made the variables that were still missing."""
        if self.broadcast_done:
            return
        model = self.model  # type: ignore[attr-defined]
        optimizer = getattr(model, "optimizer", None)
        local = {id(v) for v in [*self._local, *variables.kept_for(self._local, optimizer)]}
        every = variables.of_all(model, optimizer)
        variables.broadcast([v for v in every if id(v) not in local], self.root_rank)
        self.broadcast_done = True


def _list_of_variables(local: Any) -> List[Any]:
    if local is None:
        return []
    some = [local] if hasattr(local, "assign") or not isinstance(local, Iterable) else list(local)
    if not all(hasattr(v, "assign") for v in some):
        raise ValueError("All local variables must be of tf.Variable type.")
    return some
