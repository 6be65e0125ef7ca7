# SPDX-License-Identifier: Apache-2.0
"""Elastic training with JAX: pytrees that survive a change of workers, and the loop around the training."""

from __future__ import annotations

from typing import Any, Callable, Dict

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common.basics import basics
from horovod.common.checkpoint import checkpoint
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.objects import broadcast_object
from horovod.jax.functions import broadcast_parameters

__all__ = ["JaxState", "checkpoint", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function `func(state, ...)` so that it goes on after failures and host changes."""
    return run_fn(func, _reset)


def _reset() -> None:
    try:
        jax.effects_barrier()  # type: ignore[no-untyped-call]
    except RuntimeError:
        pass  # programs that were under way when the world broke
    basics.reset()


class JaxState(ObjectState):
    """The state of a training; every argument becomes an attribute.

    Values with arrays in them (parameters, optimizer states, `flax.nnx` states) are kept as pytrees. They are
    copied on the device, behind the step that makes them, so a commit waits for nothing and buffers may be
    donated. Other values are kept as they are.

    Args:
        kwargs: e.g. params=params, opt_state=opt_state, step=0.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._trees = [name for name, value in kwargs.items() if _has_arrays(value)]
        self._kept: Dict[str, Any] = {}
        plain = {name: value for name, value in kwargs.items() if name not in self._trees}
        super().__init__(bcast_object=broadcast_object, get_rank=basics.rank, **plain)
        for name in self._trees:
            setattr(self, name, kwargs[name])
        self._keep()

    def save(self) -> None:
        """Keeps the current values."""
        self._keep()
        super().save()

    def restore(self) -> None:
        """Brings the values last saved back."""
        for name, tree in self._kept.items():
            setattr(self, name, _copied(tree))
        super().restore()

    def sync(self) -> None:
        """Gives every rank the values of rank 0, and keeps them."""
        for name in self._trees:
            setattr(self, name, broadcast_parameters(getattr(self, name), root_rank=0))
        self._keep()
        super().sync()

    def snapshot(self) -> Any:
        """What was kept, for `checkpoint`."""
        trees = {name: jax.tree.leaves(jax.tree.map(_on_host, tree)) for name, tree in self._kept.items()}
        return {"trees": trees, "values": super().snapshot()}

    def load_snapshot(self, snapshot: Any) -> None:
        """Takes what `snapshot` gave; the pytrees must have the structure they had."""
        for name, leaves in snapshot["trees"].items():
            structure = jax.tree.structure(self._kept[name])
            arrays = [jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
            self._kept[name] = jax.tree.unflatten(structure, arrays)
        super().load_snapshot(snapshot["values"])
        self.restore()

    def _keep(self) -> None:
        self._kept = {name: _copied(getattr(self, name)) for name in self._trees}


def _copied(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf, tree)


def _on_host(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf


def _has_arrays(value: Any) -> bool:
    return any(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in jax.tree.leaves(value))
