# SPDX-License-Identifier: Apache-2.0
"""Elastic training with JAX: pytrees that survive a change of workers, and the loop around the training."""

from __future__ import annotations

from typing import Any, Callable, Dict

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common.basics import basics
from horovod.common.elastic import checkpoint, run_fn
from horovod.common.lazy_state import LazyState
from horovod.common.objects import broadcast_object
from horovod.jax.functions import _is_key, broadcast_parameters

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


class JaxState(LazyState):
    """The state of a training; every argument becomes an attribute.

    Values with arrays in them (parameters, optimizer states, `flax.nnx` states) are kept as pytrees. They are
    copied on the device, behind the step that makes them: a commit does not wait for it, and buffers may be
    donated. Other values are kept as they are.

    Args:
        kwargs: e.g. params=params, opt_state=opt_state, step=0.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._trees = [name for name, value in kwargs.items() if _has_arrays(value)]
        plain = {name: value for name, value in kwargs.items() if name not in self._trees}
        for name in self._trees:
            setattr(self, name, kwargs[name])
        super().__init__(bcast_object=broadcast_object, get_rank=basics.rank, **plain)

    def copy_arrays(self) -> Dict[str, Any]:
        """Copies of the pytrees, made on the device when their values are there."""
        return {name: _copied(getattr(self, name)) for name in self._trees}

    def wait_for(self, arrays: Dict[str, Any]) -> None:
        """Waits for copies."""
        jax.block_until_ready(arrays)

    def bring_back(self, arrays: Dict[str, Any]) -> None:
        """Makes copies the current values."""
        for name, tree in arrays.items():
            setattr(self, name, _copied(tree))

    def sync_arrays(self) -> None:
        """Gives every rank the pytrees of rank 0."""
        for name in self._trees:
            setattr(self, name, broadcast_parameters(getattr(self, name), root_rank=0))

    def snapshot(self) -> Any:
        """What was kept, for `checkpoint`."""
        kept = self._newest
        trees = {
            name: [_on_host(leaf) for leaf in jax.tree.leaves(tree)] for name, tree in kept.arrays.items()
        }
        return {"trees": trees, "values": dict(kept.values)}

    def load_snapshot(self, snapshot: Any) -> None:
        """Takes what `snapshot` gave; the pytrees must have the structure they had."""
        for name, leaves in snapshot["trees"].items():
            mine, structure = jax.tree.flatten(getattr(self, name))
            setattr(self, name, jax.tree.unflatten(structure, map(_like, leaves, mine)))
        super().load_snapshot(snapshot["values"])
        self._newest = self._good = self._copies()


def _copied(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf, tree)


def _on_host(leaf: Any) -> Any:
    if _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf


def _like(value: Any, mine: Any) -> Any:
    """A leaf from the host, as the kind of leaf that is in its place."""
    if _is_key(mine):
        return jax.random.wrap_key_data(jnp.asarray(value), impl=jax.random.key_impl(mine))
    return jnp.asarray(value) if isinstance(mine, jax.Array) else value


def _has_arrays(value: Any) -> bool:
    return any(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in jax.tree.leaves(value))
