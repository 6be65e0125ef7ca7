# SPDX-License-Identifier: Apache-2.0
"""Starting all ranks from the same parameters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax.collectives import broadcast


def broadcast_parameters(
    params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """The pytree of `root_rank`, on every rank. jax arrays are immutable: use what it returns.

    Works for parameters, optimizer states and `flax.nnx` states alike. Numbers and numpy arrays become jax
    arrays, random keys are kept as keys, and leaves that are neither (names, functions) are left alone.
    """
    leaves, structure = jax.tree.flatten(params)
    is_key = [_is_key(leaf) for leaf in leaves]
    chosen = [i for i, leaf in enumerate(leaves) if is_key[i] or _is_numeric(leaf)]
    sent = [jax.random.key_data(leaves[i]) if is_key[i] else jnp.asarray(leaves[i]) for i in chosen]
    received = broadcast(sent, root_rank, "broadcast_parameters", process_set)
    for i, value in zip(chosen, received):
        if is_key[i]:
            value = jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaves[i]))
        leaves[i] = value
    return jax.tree.unflatten(structure, leaves)


def broadcast_optimizer_state(
    opt_state: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """The optimizer state of `root_rank`, on every rank: the same as `broadcast_parameters`."""
    return broadcast_parameters(opt_state, root_rank, process_set)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_numeric(leaf: Any) -> bool:
    if isinstance(leaf, (bool, int, float, jax.Array)):
        return True
    return isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "biufV"
