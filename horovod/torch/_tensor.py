# SPDX-License-Identifier: Apache-2.0
"""Between torch tensors and the flat memory that the engine reads and writes.

The engine knows dense memory of thirteen element types, on the host or on a CUDA device. A tensor that is
such memory is used where it lies. Everything else is brought into that form by `to_wire`:

    non-contiguous, expanded, channels_last   a contiguous copy, in logical order, so that ranks whose
                                              tensors are laid out differently still mean the same elements
    complex                                   a real view with one more dimension (sums only)
    float8                                    a byte view (moved, never reduced)
    devices other than CUDA's                 a host copy
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import torch

from horovod.common import constants
from horovod.torch._cuda import device_of

CODES: Dict[torch.dtype, int] = {
    torch.uint8: constants.UINT8,
    torch.int8: constants.INT8,
    torch.int16: constants.INT16,
    torch.int32: constants.INT32,
    torch.int64: constants.INT64,
    torch.float16: constants.FLOAT16,
    torch.float32: constants.FLOAT32,
    torch.float64: constants.FLOAT64,
    torch.bool: constants.BOOL,
    torch.bfloat16: constants.BFLOAT16,
}
# Newer torch releases add the wide unsigned integers.
for _name, _code in (
    ("uint16", constants.UINT16),
    ("uint32", constants.UINT32),
    ("uint64", constants.UINT64),
):
    if hasattr(torch, _name):
        CODES[getattr(torch, _name)] = _code

# Reductions that act on the real and the imaginary part separately.
_LINEAR = frozenset((constants.Average, constants.Sum))


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor's own memory can be handed to the engine as it is."""
    return (
        (tensor.is_cpu or device_of(tensor) >= 0)
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and tensor.dtype in CODES
        and not tensor.is_neg()
    )


def kind_of(tensor: torch.Tensor) -> str:
    """The tensor's type as error messages name it, e.g. torch.ComplexFloatTensor."""
    try:
        return str(tensor.type())
    except RuntimeError:  # some layouts have no such name
        return f"{tensor.layout} of {tensor.dtype}"


_is_resizable: Callable[[Any], bool] = getattr(torch.UntypedStorage, "resizable", lambda storage: True)


def lasting_view(tensor: torch.Tensor) -> torch.Tensor:
    """A view of a tensor's memory that stays, for use beyond the call that the tensor was given to.

    `tensor.data = other` and `tensor.set_(...)` leave it alone, and resizing that memory is an error from now
    on, if it is on the host.
    """
    storage = tensor.untyped_storage()
    if tensor.is_cpu and _is_resizable(storage):
        # What NumPy has seen cannot be resized. There is no other way to say so from Python.
        torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    return tensor.detach()


def to_wire(tensor: torch.Tensor, reduce_op: Optional[int] = None) -> torch.Tensor:
    """The tensor as contiguous memory of a dtype and a device the engine knows.

    It shares the tensor's memory where that is possible. `reduce_op` is None for the verbs that only move
    elements; these take dtypes which cannot be added.
    """
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"Tensor type {kind_of(tensor)} is not supported: this call needs a dense tensor. "
            "Use allreduce or sparse_allreduce_async for sparse gradients, or pass tensor.to_dense()."
        )
    if tensor.requires_grad:
        tensor = tensor.detach()
    dtype = tensor.dtype
    if dtype in CODES:
        wire = tensor.resolve_neg() if tensor.is_neg() else tensor
    elif dtype.is_complex and (reduce_op is None or reduce_op in _LINEAR):
        wire = torch.view_as_real(tensor.resolve_conj().contiguous())
    elif dtype.is_floating_point and tensor.element_size() == 1 and reduce_op is None:
        wire = tensor.contiguous().view(torch.uint8)
    else:
        raise ValueError(f"Tensor type {kind_of(tensor)} is not supported.")
    if not wire.is_cpu and device_of(wire) < 0:
        return wire.cpu().contiguous()
    return wire if wire.is_contiguous() else wire.contiguous()


def from_wire(wire: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """What `to_wire` made of a tensor such as `like`, brought back to its dtype and device."""
    if like.dtype.is_complex:
        wire = torch.view_as_complex(wire)
    elif wire.dtype is not like.dtype:
        wire = wire.view(like.dtype)
    if wire.device != like.device:
        wire = wire.to(like.device, non_blocking=True)
    return wire
