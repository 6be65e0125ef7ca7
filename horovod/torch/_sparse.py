# SPDX-License-Identifier: Apache-2.0
"""Reduction of sparse COO tensors: gather every rank's rows, add those with the same index.

Rows that repeat within a rank are added before they travel, and again after: an embedding's gradient has one
row per looked-up word, so this is usually far fewer bytes than the dense gradient. Where it is not,
`DistributedOptimizer(sparse_as_dense=True)` sends the dense gradient instead.
"""

from __future__ import annotations

from typing import Callable, Optional

import torch

from horovod.common.constants import Average
from horovod.common.process_sets import ProcessSet, process_set_id
from horovod.torch import _handles
from horovod.torch._tensor import kind_of
from horovod.torch._verbs import Operation, Options, place_in


def allreduce_async(
    tensor: torch.Tensor, name: Optional[str], op: int, process_set: ProcessSet
) -> Callable[[], torch.Tensor]:
    """Starts the two gathers; the returned function waits for them and builds the sum or average."""
    if tensor.layout is not torch.sparse_coo:
        raise ValueError(
            f"Tensor type {kind_of(tensor)} is not supported: sparse reductions take sparse COO tensors."
        )
    set_id = process_set_id(process_set)
    local = tensor.detach().coalesce()

    def gather(part: torch.Tensor, suffix: str) -> int:
        part_name = None if name is None else f"{name}.{suffix}"
        return Operation("allgather", [part], part_name, Options(), set_id).start()

    indices_handle = gather(local.indices().t().contiguous(), "indices")
    values_handle = gather(local.values(), "values")

    def finish() -> torch.Tensor:
        indices = _handles.synchronize(indices_handle).t()
        values = _handles.synchronize(values_handle)
        if op == Average:
            values = values / place_in(set_id)[0]
        gathered = torch.sparse_coo_tensor(indices, values, tensor.shape, check_invariants=False)
        return gathered.coalesce()

    return finish


def allreduce(tensor: torch.Tensor, name: Optional[str], op: int, process_set: ProcessSet) -> torch.Tensor:
    """Blocking form."""
    return allreduce_async(tensor, name, op, process_set)()
