# SPDX-License-Identifier: Apache-2.0
"""A parameter's standing requests: built once, of which only a pointer changes from step to step.

Slot      one parameter: how its gradient becomes memory, and how the reduced memory becomes its gradient
Bucket    the slots that are submitted together: one, or a group of the user's
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from horovod.common._native import Request
from horovod.common.constants import ALLREDUCE, GROUP, WILL_WAIT
from horovod.torch import _staging
from horovod.torch._tensor import CODES, to_wire

INPUT, OUTPUT = Request.input.offset // 8, Request.output.offset // 8  # in Bucket.pointers
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
        "__weakref__", "base", "bucket", "c_name", "c_shape", "compressor", "context", "dtype", "event",
        "fast", "finish", "grad", "name", "param", "passes", "reduced", "request", "round", "shape", "sparse",
        "strides", "wire",
    )  # fmt: skip

    def __init__(self, name: str, param: torch.Tensor, compressor: Any) -> None:
        self.name = name
        self.param = param
        self.compressor = compressor  # None: gradients travel as they are
        self.dtype = param.dtype
        # A channels_last parameter has channels_last gradients: these travel in memory order, uncopied.
        self.strides = None
        if not param.is_contiguous() and dense_layout(param) is not None:
            self.strides = param.stride()
        self.bucket: Bucket
        self.c_name: Any = None  # memory the request points to
        self.c_shape: Any = None
        self.request: Request
        self.fast = False  # needs none of the rarer steps: see GradientReducer
        self.sparse = False  # its gradients were sparse before
        self.passes = 0  # backward passes since the last reduction
        self.round = 0  # the last step whose reduction is complete
        self.reduced = False  # param.grad is a reduction with nothing added since
        self.base: Optional[torch.Tensor] = None  # reduced part set aside while more is accumulated
        self.clear()

    def clear(self) -> None:
        """Nothing of this parameter is under way."""
        self.grad: Optional[torch.Tensor] = None  # gradient handed to the engine
        self.wire: Optional[torch.Tensor] = None  # what travels, if it is not the gradient's own memory
        self.context: Any = None
        self.event: Any = None
        self.finish: Optional[Callable[[], torch.Tensor]] = None  # of a sparse reduction

    def is_direct(self, grad: torch.Tensor) -> bool:
        """Whether the gradient's memory can travel as it is."""
        return (
            self.compressor is None
            and grad.is_cpu
            and grad.layout is torch.strided
            and grad.dtype is self.dtype
            and (grad.is_contiguous() if self.strides is None else grad.stride() == self.strides)
            and self.dtype in CODES
        )

    def describe(self, shape: Tuple[int, ...]) -> None:
        """Points the standing request at a shape."""
        self.shape = shape
        self.c_shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.request.shape = ctypes.addressof(self.c_shape)
        self.request.ndim = len(shape)

    def stage(self, grad: torch.Tensor, reduce_op: int) -> None:
        """Makes the memory that travels for a gradient whose own cannot."""
        if grad.layout is not torch.strided:
            grad = grad.to_dense()
        if self.strides is not None:
            # Bring it into the parameter's memory order, then look at that memory as a contiguous tensor.
            ordered = torch.empty_like(self.param).copy_(grad)
            grad = ordered.as_strided(dense_layout(ordered) or (), _packed(dense_layout(ordered) or ()))
        wire = grad
        if self.compressor is not None:
            wire, self.context = self.compressor.compress(grad)
        wire = to_wire(wire, reduce_op)
        if wire.is_cuda:
            wire, self.event = _staging.to_host(wire)
        elif not wire.is_cpu:
            wire = wire.cpu()
        elif wire.data_ptr() == grad.data_ptr():
            wire = wire.clone()  # a compressor that changed nothing; the gradient is overwritten when done
        self.wire = wire
        request = self.request
        request.input = request.output = wire.data_ptr()
        request.dtype = CODES[wire.dtype]
        if tuple(wire.shape) != self.shape:
            self.describe(tuple(wire.shape))

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


def _packed(sizes: Sequence[int]) -> Tuple[int, ...]:
    """Strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class Bucket:
    """Slots submitted together, and the C array of their requests."""

    __slots__ = (
        "arguments", "array", "count", "handle", "missing", "nbytes", "pointers", "quiet", "slots", "ticket",
    )  # fmt: skip

    def __init__(
        self,
        slots: List[Slot],
        wire_names: Sequence[str],
        op: int,
        prescale: float,
        postscale: float,
        set_id: int,
    ) -> None:
        self.slots = slots
        self.count = len(slots)
        self.array = (Request * self.count)()
        # Ready-made arguments of hvd_submit: converting Python integers costs more than the call.
        flags = GROUP if self.count > 1 else 0
        address, count = ctypes.c_void_p(ctypes.addressof(self.array)), ctypes.c_int32(self.count)
        self.arguments = (address, count, ctypes.c_uint32(flags), None, None, None)
        self.quiet = (address, count, ctypes.c_uint32(flags | WILL_WAIT), None, None, None)
        self.nbytes = sum(slot.param.numel() * slot.param.element_size() for slot in slots)
        self.pointers = memoryview(self.array).cast("B").cast("Q")  # the first request's, at INPUT and OUTPUT
        self.missing = self.count
        self.handle = 0
        self.ticket: Optional[_staging.Ticket] = None
        for index, (slot, name) in enumerate(zip(slots, wire_names)):
            slot.bucket = self
            slot.request = request = self.array[index]
            slot.c_name = ctypes.create_string_buffer(name.encode())
            request.struct_size = ctypes.sizeof(Request)
            request.kind = ALLREDUCE
            request.name = ctypes.addressof(slot.c_name)
            request.dtype = CODES.get(slot.dtype, 0)
            request.reduce_op = op
            request.prescale, request.postscale = prescale, postscale
            request.process_set = set_id
            request.root = request.device = -1
            shape = dense_layout(slot.param) if slot.strides is not None else None
            slot.describe(shape or tuple(slot.param.shape))

    def events(self) -> Tuple[Any, ...]:
        """What a device must finish before the bucket may be submitted."""
        return tuple(slot.event for slot in self.slots if slot.event is not None)

    def reset(self) -> None:
        """Ready for the next reduction."""
        self.missing = self.count
        self.handle = 0
        self.ticket = None
        for slot in self.slots:
            slot.clear()
