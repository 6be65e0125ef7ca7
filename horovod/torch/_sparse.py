# SPDX-License-Identifier: Apache-2.0
"""Reduction of sparse COO tensors: gather every rank's rows, add those with the same index.

Rows that repeat within a rank are added before they travel, and again after: an embedding's gradient has one
row per looked-up word, so this is usually far fewer bytes than the dense gradient. Where it turns out not to
be, an optimizer's gradients travel as dense ones from then on.
"""

from __future__ import annotations

from typing import Callable

import torch

from horovod.common import handles
from horovod.common.calls import Call
from horovod.common.constants import REDUCE_OP_NAME, Average, Sum
from horovod.common.log import log
from horovod.common.members import place_in
from horovod.common.verbs import ALLGATHER
from horovod.torch._operation import Operation
from horovod.torch._slots import Slot
from horovod.torch._tensor import kind_of

_INDEX_BYTES = 8


class SparseAllreduce:
    """A reduction under way."""

    def __init__(self, call: Call, tensor: torch.Tensor) -> None:
        if tensor.layout is not torch.sparse_coo:
            raise ValueError(
                f"Tensor type {kind_of(tensor)} is not supported: sparse reductions take sparse COO tensors."
            )
        self._call = call
        self._shape = tensor.shape
        local = tensor.detach().coalesce()
        self._indices = self._gather(local.indices().t().contiguous(), "indices")
        self._values = self._gather(local.values(), "values")
        self.gathered_bytes = 0  # of all ranks' rows, once they are there; the same on all ranks

    def _gather(self, part: torch.Tensor, suffix: str) -> int:
        name = None if self._call.name is None else f"{self._call.name}.{suffix}"
        return Operation(Call(ALLGATHER, name, self._call.process_set), (part,)).start()

    def result(self) -> torch.Tensor:
        """Waits for the two gathers and builds the sum or average."""
        indices = handles.synchronize(self._indices).t()
        values = handles.synchronize(self._values)
        self.gathered_bytes = indices.numel() * _INDEX_BYTES + values.numel() * values.element_size()
        if self._call.op == Average:
            values = values / place_in(self._call.process_set, self._call.verb)[0]
        gathered = torch.sparse_coo_tensor(indices, values, self._shape, check_invariants=False)
        return gathered.coalesce()


def allreduce(call: Call, tensor: torch.Tensor) -> torch.Tensor:
    """Blocking. Rows that ranks do not have count for nothing, so only sums make sense."""
    if call.op not in (Sum, Average):
        raise NotImplementedError(
            f"Only Sum and Average are supported with sparse tensors, not {REDUCE_OP_NAME[call.op]}: "
            "pass tensor.to_dense()"
        )
    reduced = SparseAllreduce(call, tensor).result()
    factor = call.prescale * call.postscale
    return reduced if factor == 1.0 else reduced * factor


def reduce_gradient(call: Call, slot: Slot, grad: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Starts the reduction of a parameter's gradient, and decides how the next one travels."""
    reduction = SparseAllreduce(call, grad)  # which adds, whatever the op is
    dense_bytes = slot.param.numel() * slot.param.element_size()

    def finish() -> torch.Tensor:
        result = reduction.result()
        # Over n ranks a gather moves (n-1)/n of all rows past every rank, an allreduce of the dense gradient
        # twice (n-1)/n of it. All ranks know both numbers, so all decide alike.
        if call.op in (Sum, Average) and reduction.gathered_bytes > 2 * dense_bytes:
            slot.as_dense = True
            log.info(
                "the gradients of %s are sent as dense ones from now on: the ranks' rows were %d bytes, the "
                "dense gradient is %d",
                slot.name, reduction.gathered_bytes, dense_bytes,
            )  # fmt: skip
        return result

    return finish


def empty_like(param: torch.Tensor) -> torch.Tensor:
    """A sparse gradient without rows."""
    indices = torch.empty((1, 0), dtype=torch.int64, device=param.device)
    values = param.new_empty((0, *param.shape[1:]))
    return torch.sparse_coo_tensor(indices, values, param.shape, check_invariants=False)
