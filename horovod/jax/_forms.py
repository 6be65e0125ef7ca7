# SPDX-License-Identifier: Apache-2.0
"""The forms of a collective on jax arrays and pytrees, inside and outside of programs.

The public functions in collectives.py make a `Call` of their arguments and end here.
"""

from __future__ import annotations

from typing import Any, List, Sequence

import jax
import jax.numpy as jnp

from horovod.common.arguments import as_splits, check_rows, check_splits
from horovod.common.basics import basics
from horovod.common.calls import Call
from horovod.common.constants import Adasum
from horovod.common.members import check_member, place_in
from horovod.common.verbs import BROADCAST
from horovod.jax import _gradients
from horovod.jax.compression import Compression


def run(call: Call, tensor: Any, compression: Any = Compression.none) -> Any:
    """The collective of an array, or of the leaves of a pytree as one operation."""
    leaves, structure = jax.tree.flatten(tensor)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    _check(call, arrays)
    sent = [compression.compress(array) for array in arrays]
    received = _gradients.collective(call, [array for array, _ in sent])
    outputs = [compression.decompress(output, context) for output, (_, context) in zip(received, sent)]
    return jax.tree.unflatten(structure, outputs)


def run_group(call: Call, tensors: Sequence[Any], compression: Any = Compression.none) -> List[Any]:
    """The collective of several arrays as one operation."""
    return list(run(call, list(tensors), compression))


def exchange(call: Call, tensor: Any) -> Any:
    """The collective of one array; also how many rows came from each member, if splits were given."""
    array = jnp.asarray(tensor)
    _check(call, [array])
    splits = as_splits(call.splits)
    checked = check_splits(splits, array.shape[0], place_in(call.process_set, call.verb)[0])
    ready = call._replace(splits=None if checked is None else tuple(checked))
    output, received = _gradients.collective(ready, [array])
    return output if splits is None else (output, received)


def _check(call: Call, arrays: Sequence[Any]) -> None:
    """What the engine would refuse too, but in the middle of a program."""
    check_member(call.verb, call.process_set)
    for array in arrays:
        check_rows(call.verb, array.ndim)
        if call.op == Adasum and not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(f"Adasum needs floating-point tensors, not {array.dtype}; use hvd.Sum.")
    if call.verb is BROADCAST and call.root not in basics.process_set_ranks(call.process_set):
        raise ValueError(f"broadcast received invalid root rank {call.root} for provided process set")
