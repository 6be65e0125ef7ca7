# SPDX-License-Identifier: Apache-2.0
"""One parameter: how its gradient becomes memory, and how the reduced memory becomes its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Tuple

import torch

from horovod.common import copies
from horovod.torch._cuda import device_of
from horovod.torch._tensor import CODES, to_wire
from horovod.torch.compression import BF16Compressor, FP16Compressor

if TYPE_CHECKING:
    from horovod.torch._buckets import Bucket
    from horovod.torch._flight import Flight

_CASTS = (FP16Compressor, BF16Compressor)
DIRTY = -1  # in Slot.round: holds local contributions that were not reduced


def dense_layout(tensor: torch.Tensor) -> Optional[Tuple[int, ...]]:
    """The sizes in memory order of a tensor that fills its memory without gaps, else None."""
    order = sorted(range(tensor.dim()), key=lambda d: (tensor.stride(d), tensor.size(d)), reverse=True)
    expected = 1
    for d in reversed(order):
        if tensor.size(d) != 1:
            if tensor.stride(d) != expected:
                return None
            expected *= tensor.size(d)
    return tuple(tensor.size(d) for d in order)


class Slot:
    """One parameter and the state of its gradient in the current step."""

    __slots__ = (
        "__weakref__", "as_dense", "base", "bucket", "cast", "compressor", "context", "device", "dtype",
        "fast", "finish", "flight", "grad", "index", "name", "param", "passes", "quick", "reduced", "round",
        "shape", "sparse", "storage", "strides", "wire",
    )  # fmt: skip

    def __init__(
        self, name: str, param: torch.Tensor, flight: Flight, compressor: Any, as_dense: bool
    ) -> None:
        self.name = name
        self.param = param
        self.flight = flight
        self.compressor = compressor  # None: gradients travel as they are
        self.cast = 0  # the type in which they travel on a GPU, where the engine casts them
        self.as_dense = as_dense  # sparse gradients travel as dense ones
        self.dtype = param.dtype
        self.device = device_of(param)
        if self.device >= 0 and compressor in _CASTS and self.dtype in (torch.float32, torch.float64):
            self.cast, self.compressor = CODES[compressor.wire], None
        # A channels_last parameter has channels_last gradients: these travel in memory order, uncopied.
        layout = None if param.is_contiguous() else dense_layout(param)
        self.strides = None if layout is None else param.stride()
        self.shape = tuple(param.shape) if layout is None else layout  # of what travels
        self.bucket: Bucket
        self.index = 0  # in the bucket
        self.fast = False  # needs none of the rarer steps: see GradientReducer
        self.quick: Any = None  # C's side of its hook, if that is C
        self.sparse = False  # its gradients were sparse before
        self.passes = 0  # backward passes since the last reduction
        self.round = 0  # the last step whose reduction is complete
        self.reduced = False  # param.grad is a reduction with nothing added since
        self.base: Optional[torch.Tensor] = None  # reduced part set aside while more is accumulated
        self.clear()

    def clear(self) -> None:
        """Nothing of this parameter is under way."""
        self.grad: Optional[torch.Tensor] = None  # gradient handed to the engine
        self.storage: Optional[torch.UntypedStorage] = None  # its memory: users may do `grad.data = other`
        self.wire: Optional[torch.Tensor] = None  # what travels, if it is not the gradient's own memory
        self.context: Any = None
        self.finish: Optional[Callable[[], torch.Tensor]] = None  # of a sparse reduction

    def is_direct(self, grad: torch.Tensor) -> bool:
        """Whether the gradient's memory can travel as it is."""
        return (
            self.compressor is None
            and (grad.is_cpu or device_of(grad) >= 0)
            and grad.layout is torch.strided
            and grad.dtype is self.dtype
            and (grad.is_contiguous() if self.strides is None else grad.stride() == self.strides)
            and self.dtype in CODES
        )

    def stage(self, grad: torch.Tensor, reduce_op: int) -> torch.Tensor:
        """Makes the memory that travels for a gradient whose own cannot, and returns it."""
        if grad.layout is not torch.strided:
            grad = grad.to_dense()
        if self.strides is not None:
            # Bring it into the parameter's memory order, then look at that memory as a contiguous tensor.
            ordered = torch.empty_like(self.param).copy_(grad)
            grad = ordered.as_strided(self.shape, _packed(self.shape))
        wire = grad
        if self.compressor is not None:
            wire, self.context = self.compressor.compress(grad)
        wire = to_wire(wire, reduce_op)
        if wire.data_ptr() == grad.data_ptr():
            wire = wire.clone()  # a compressor that changed nothing; the gradient is overwritten when done
        self.wire = wire
        return wire

    def unstage(self) -> torch.Tensor:
        """The reduced gradient, from what travelled."""
        assert self.wire is not None
        wire = self.wire
        if wire.device != self.param.device:
            wire = wire.to(self.param.device, non_blocking=True)
        if self.dtype.is_complex and not wire.is_complex():
            wire = torch.view_as_complex(wire)
        if self.compressor is not None:
            wire = self.compressor.decompress(wire, self.context)
        if self.strides is not None:
            wire = wire.as_strided(self.param.size(), self.strides)
        return wire

    def reduce_done(self, round_: int) -> None:
        """The reduction is there, in the gradient's own memory."""
        self.passes = 0
        self.round = round_

    def complete(self, round_: int) -> None:
        """The reduction is there: puts it into the parameter's gradient."""
        self.reduce_done(round_)
        self.reduced = True
        grad = self.grad
        assert grad is not None
        if self.wire is not None:
            grad, copied = copies.timed(self._bring_back, grad)
            copies.after(self.bucket.names[self.index], copied)
        if self.base is not None:
            grad.add_(self.base)
            self.base = None

    def _bring_back(self, grad: torch.Tensor) -> torch.Tensor:
        """Copies what travelled into the gradient, or makes a new one of it if that is sparse."""
        result = self.unstage()
        if grad.is_sparse:
            self.param.grad = result.to_sparse(grad.sparse_dim())
            return self.param.grad
        return grad.copy_(result.view_as(grad) if result.shape != grad.shape else result)


def _packed(sizes: Sequence[int]) -> Tuple[int, ...]:
    """Strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
